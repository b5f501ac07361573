//! Simulated time and network, for development only: many nodes, faults and links with rate, delay
//! and loss in one thread, deterministic to the byte.
//!
//! | module | story |
//! |---|---|
//! | [`link`] | what becomes of a packet on a link: pure, also the heart of the lab's emulator |
//! | [`scenario`] | hosts, links and what changes when, as a file; the lab reads the same |
//! | [`units`] | `100mbit`, `16.5ms`, `1%`, `256k` |
//! | [`world`] | the clock, the events, and the nodes that live by them |
//! | [`node`] | what a node is told and what it can do |
//! | [`fault`] | what befalls single messages |
//! | [`seeds`] | a test under many seeds, with the one that failed |
//! | `routes` | the way between two hosts |
//! | `stream` | connections: messages in order, sent again when lost |

pub mod fault;
pub mod link;
pub mod node;
mod routes;
pub mod scenario;
pub mod seeds;
mod stream;
pub mod units;
pub mod world;

pub use fault::{NetFault, Passing};
pub use node::{ConnectionId, Net, SimNode};
pub use scenario::Scenario;
pub use seeds::for_seeds;
pub use world::World;
