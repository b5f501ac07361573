//! Simulated time and network, for development only: many nodes, faults and links with rate, delay
//! and loss in one thread, deterministic to the byte.
//!
//! | module | story |
//! |---|---|
//! | [`link`] | what becomes of a packet on a link: pure, also the heart of the lab's emulator |
//! | [`scenario`] | hosts, links and what changes when, as a file; the lab reads the same |
//! | [`units`] | `100mbit`, `16.5ms`, `1%`, `256k` |

pub mod link;
pub mod scenario;
pub mod units;
