//! The direct protocol on a simulated network: real messages between the real state machines, with
//! connections that break, stall and reorder at every message, peers that lie, and a thousand nodes.
//!
//! * `host.rs`: a host: its connections, what it serves, what it fetches.
//! * `fetch.rs`: one object on its way to a host, by the session's own ledger and checks.
//! * `faults.rs`: every fault at every message.
//! * `cancelling.rs`: wants that are cancelled while others come.
//! * `crowd.rs`: many nodes.
//! * `drawing.rs`: a host that draws on two others by the dealer.
//! * `pair.rs`: that host, where one of the two has nearly all on its disk.

#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

mod cancelling;
mod crowd;
mod drawing;
mod faults;
mod fetch;
mod host;
mod pair;
