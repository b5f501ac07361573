//! Entries of several rendezvous servers, carried by NATS: each server has all of them in memory, and clients never speak to NATS.
//! Why so: `docs/design/anywhere.md`. What is said there: `docs/formats/rendezvous.md`.
//!
//! ```text
//!   server ── what a client says ──► NATS ──► every other server, at once
//!   server ── hello, at each (re)connection ──► NATS ──► every other server: they read each other's entries, page by page
//! ```
//!
//! NATS keeps nothing. The store is the servers' memory, each of which has everything; one that comes reads from the others.
//!
//! | module | story |
//! |---|---|
//! | [`place`] | where NATS is, and the login there |
//! | `subject` | names of subjects |
//! | `sharing` | the connection, as long as the server lives |
//! | `reading` | entries of the others, read page by page |

pub mod place;
mod reading;
mod sharing;
pub mod subject;

pub use place::{NatsLogin, NatsPlace};
pub use sharing::{NatsSettings, share};
