//! The exchange behind a code: [`CodeHost`] shows it and has a ticket, [`CodeGuest`] typed it and wants that.
//!
//! ```text
//! host                                       guest
//!  | Offer: half of SPAKE2  (may wait in the   |
//!  |        mailbox before anybody comes) ---> |
//!  | <--- Answer: the other half, confirmation |
//!  | Confirm: confirmation ------------------> |  both may show a fingerprint now
//!  | Sealed: the ticket ---------------------> |  at once, or when the host's person accepts
//!  | <--- End: what became of it, from either ---> |
//! ```
//!
//! Two messages and one round trip, once the guest has the offer. Neither end has a clock: how long to wait is the
//! caller's to say. A host hands out its ticket once, to the first answer if that is right; if it is wrong, the host is
//! void for good. Nothing that is lost, repeated, changed or made up brings the ticket to anybody who does not know the
//! words, and both ends can tell what happened. Layouts: `docs/formats/code.md`.
//!
//! | module | story |
//! |---|---|
//! | [`message`] | what is said, as bytes |
//! | `keys` | the keys and confirmations that follow from the words and all that was said |
//! | [`host`] | the end that shows the code |
//! | [`guest`] | the end where it was typed |

pub mod guest;
pub mod host;
mod keys;
pub mod message;

use std::fmt;

use towpath_content::NodeId;

pub use guest::{CodeGuest, GuestFailure, GuestStep};
pub use host::{CodeHost, HostStep, TicketTooLong};

use crate::words;

/// The way between the two ends of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeWay {
    /// Somebody carries the messages: a mailbox.
    Carried,
    /// One connection between both ends, over which all messages go.
    Direct {
        /// Who the other end of the connection has proved to be.
        peer: NodeId,
        /// The connection's channel binding, the same at both ends.
        binding: [u8; 32],
    },
}

impl CodeWay {
    /// True unless the connection's other end is known and another one than a message says.
    fn may_be(&self, node: NodeId) -> bool {
        match self {
            Self::Carried => true,
            Self::Direct { peer, .. } => *peer == node,
        }
    }
}

/// Four words that are the same at both ends, and at no others: people compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([&'static str; 4]);

impl Fingerprint {
    /// Takes ten bits for each word.
    fn of(bits: u64) -> Self {
        Self([0, 1, 2, 3].map(|index| words::word((bits >> (words::BITS * index)) as u16)))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}
