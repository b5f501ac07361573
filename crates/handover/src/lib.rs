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

use std::fmt::Display;

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

/// Why nobody is met at a server, for people: with its address, which most errors have already.
fn trouble_at(server: &KnownServer, why: impl Display) -> String {
    let (address, why) = (&server.place.address, why.to_string());
    if why.starts_with(address) { why } else { format!("{address}: {why}") }
}

/// The same on this network.
fn trouble_near(why: impl Display) -> String {
    format!("this network: {why}")
}

#[cfg(test)]
mod tests {
    use towpath_content::NodeId;
    use towpath_rendezvous::ServerPlace;

    use super::*;

    #[test]
    fn a_server_is_named_once() {
        let place = ServerPlace { node: NodeId([1; 32]), address: "192.0.2.1:7".into() };
        let server = KnownServer { place, is_trusted: true };
        let rows = [
            ("192.0.2.1:7: refused the connection", "192.0.2.1:7: refused the connection"),
            ("the server is ending", "192.0.2.1:7: the server is ending"),
        ];
        for (why, told) in rows {
            assert_eq!(trouble_at(&server, why), told);
        }
    }
}
