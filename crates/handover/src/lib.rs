//! Hands a ticket over by a short code that people say to each other. The host waits on its own network, where multicast finds
//! it, and in mailboxes of rendezvous servers; the guest looks in all these places at once. What they say to each other there is
//! decided in `towpath_codes`; here are the ways between them.
//!
//! | module | story |
//! |---|---|
//! | [`host`] | shows a code, waits, and hands out the ticket once |
//! | [`guest`] | has a code, and looks for who waits with it |
//! | `conversation` | one way between the two: a mailbox, or a connection on one network |
//! | `doors` | where a host waits |

mod conversation;
mod doors;
pub mod guest;
pub mod host;

use towpath_link::Protocol;
use towpath_rendezvous::place::KnownServer;

/// What is spoken on one network, without a server: messages of a code, each in a frame.
pub const PROTOCOL: Protocol = Protocol(b"tow-code/1");

/// Where host and guest look for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverPlaces {
    /// Rendezvous servers.
    pub servers: Vec<KnownServer>,
    /// This network, by multicast.
    pub lan: bool,
}
