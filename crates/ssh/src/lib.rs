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
//! | `links` | ways by several of the person's links at once, at the side that asks |
//! | `dialled_links` | connections by these, at the person's side |
//! | `link_wishes` | how many each is to have |
//! | `told_addresses` | those that the sides tell each other, and dial: pure |
//! | `moving` | this machine's addresses as they change meanwhile |
//! | [`addresses`] | listeners of this machine, and how it can be reached |
//! | [`patterns`] | paths of the remote end: its home, and names with wildcards |
//! | [`error`] | errors on the way |

pub mod address;
pub mod addresses;
mod attempts;
pub mod channel;
pub mod ciphers;
mod dialled_links;
#[cfg(test)]
mod doubles;
pub mod error;
mod far_side;
mod further;
pub mod handed;
mod link_wishes;
mod links;
mod moving;
pub mod patterns;
pub mod race;
mod race_status;
mod told_addresses;

pub use error::SshError;
pub use link_wishes::WishReader;
pub use links::MOST_LINKS;
pub use moving::OwnAddresses;
