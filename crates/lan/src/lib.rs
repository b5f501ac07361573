//! A code that waits somewhere on this LAN is found without any server: by multicast DNS (RFC 6762, 6763).
//!
//! Whoever shows a code announces the number of its mailbox and a port while it waits, and not a moment longer. The
//! announcement's name is a random tag, made anew each time: it holds no name of host, user or file, and two
//! announcements of one machine have nothing in common but its address. The number is no secret (the words are), and
//! an answer is nobody's word: who is found has to prove that it knows the words.
//!
//! Each announcement and search has one thread of its own while it lives, and a socket on port 5353 beside those of
//! other programs. Where there is no network, or nobody may use multicast, they say so, and nothing else
//! is the worse for it.
//!
//! | module | story |
//! |---|---|
//! | [`announcement`] | what is told while a code waits |
//! | [`search`] | who announces a number, and which numbers are taken |
//! | [`near`] | the interfaces of this machine: whether multicast works on one, and who is reached over one |

pub mod announcement;
pub mod near;
pub mod search;

pub use announcement::LanAnnouncement;
pub use search::{LanSearch, find, numbers_in_use};

use thiserror::Error;

/// The kind of service that is announced.
const SERVICE: &str = "_towpath-code._tcp.local.";
/// Version of what is announced; others are passed over.
const VERSION: &str = "1";
/// Property with [`VERSION`].
const VERSION_KEY: &str = "v";
/// Property with the mailbox's number.
const NUMBER_KEY: &str = "n";
/// The highest number of a mailbox.
const MAX_NUMBER: u32 = 999_999;

/// Reason why nothing can be announced or found on a LAN. Other ways to meet are not affected.
#[derive(Debug, Error)]
pub enum LanError {
    /// The machine has no interface but its own loopback.
    #[error("this machine is on no network")]
    NoNetwork,
    /// It has some, and multicast DNS works on none.
    #[error("multicast DNS does not work here")]
    NoMulticast(#[source] std::io::Error),
    /// The system gives no random bytes, no thread or no interfaces.
    #[error("multicast DNS cannot begin: {0}")]
    CannotBegin(String),
}

impl From<mdns_sd::Error> for LanError {
    fn from(error: mdns_sd::Error) -> Self {
        Self::CannotBegin(error.to_string())
    }
}
