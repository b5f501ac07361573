//! Entries and mailboxes of several rendezvous servers, carried by NATS: each server has all of them in memory, and clients never speak to NATS.
//! Why so: `docs/design/anywhere.md`. What is said there: `docs/formats/rendezvous.md`.
//!
//! ```text
//!   server ── what a client says ──► NATS ──► every other server, at once
//!   server ── how many it has published, every two seconds ──► NATS ──► every other server: who lacks some reads all, page by page
//! ```
//!
//! NATS keeps nothing. The store is the servers' memory, each of which has everything; one that comes reads from the others.
//!
//! | module | story |
//! |---|---|
//! | [`place`] | where NATS is, and the login there |
//! | [`message`] | what servers say to each other: pure |
//! | `peers` | what was lost is noticed by counting: pure |
//! | [`mailbox_message`] | the same of mailboxes: pure |
//! | `mailboxes` | guests of one server in mailboxes of another, and numbers that one alone gives |
//! | `sharing` | the connection, as long as the server lives |
//! | `reading` | entries of the others, read page by page |

pub mod mailbox_message;
mod mailboxes;
pub mod message;
mod peers;
pub mod place;
mod reading;
mod sharing;

pub use place::{NatsLogin, NatsPlace};
pub use sharing::{NatsSettings, share};

/// A name that nobody else has.
pub(crate) fn drawn() -> [u8; 16] {
    let mut bytes = [0; 16];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}
