//! The other machine over ssh: the side of a copy that is started there, and connections of our own
//! that race beside ssh's pipe.
//!
//! | module | story |
//! |---|---|
//! | [`place`] | where things are: here, or at a host |
//! | [`channel`] | the way there: ssh, and a pipe through it |
//! | [`ciphers`] | ssh's cipher, where another one is quicker |
//! | [`race`] | TLS connections beside it, of which the first takes over |
//! | [`addresses`] | where this machine listens and can be reached |
//! | [`patterns`] | paths of the started side: its home, and names with wildcards |
//! | [`error`] | what can go wrong on the way |

pub mod addresses;
pub mod channel;
pub mod ciphers;
pub mod error;
pub mod patterns;
pub mod place;
pub mod race;

pub use error::SshError;
