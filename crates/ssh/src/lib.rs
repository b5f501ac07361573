//! The other machine over ssh: the remote end of a copy that is started there, and connections of our own
//! that race beside ssh's pipe.
//!
//! | module | story |
//! |---|---|
//! | [`address`] | sources and destinations: a path here, or at a host |
//! | [`channel`] | the way there: ssh, and a pipe through it |
//! | [`ciphers`] | ssh's cipher, where another one is quicker |
//! | [`handed`] | what a process is handed that makes a copy for another one |
//! | [`race`] | TLS connections beside it, of which the first takes over |
//! | `far_side` | the other side, as it is dialled |
//! | `further` | more of them where a path is long and fast |
//! | `attempts` | when the other side is dialled again |
//! | `race_status` | how far the race is |
//! | `links` | connections by several of this machine's links at once |
//! | [`addresses`] | listeners of this machine, and how it can be reached |
//! | [`patterns`] | paths of the remote end: its home, and names with wildcards |
//! | [`error`] | errors on the way |

pub mod address;
pub mod addresses;
mod attempts;
pub mod channel;
pub mod ciphers;
pub mod error;
mod far_side;
mod further;
pub mod handed;
mod links;
pub mod patterns;
pub mod race;
mod race_status;

pub use error::SshError;
pub use links::MOST_LINKS;
