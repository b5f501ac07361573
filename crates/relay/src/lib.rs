//! Virtual paths: two nodes that cannot reach each other meet at a relay, and connect end to end through it.
//!
//! A *relay* passes on what it cannot read. A *circuit* is a virtual path between two nodes through one relay; it carries
//! TLS from end to end, as numbered *blocks*. A *waiting node* is connected with a relay so that it can be called. Both
//! ends dial out. When a relay dies, both ends meet again, there or at another one, and go on behind the last block that
//! arrived. Layouts and rules: `docs/formats/relay.md`; why they are so: `docs/design/relay.md`.
//!
//! | module | story |
//! |---|---|
//! | [`message`] | what nodes and relays say, as frames |
//! | [`pass`] | the secret that lets a node wait |
//! | [`place`] | where a relay is |
//! | [`circuit`] | one end of a circuit, without I/O: what is kept, sent again, acknowledged; PAUSE and GO |
//! | [`redial`] | which relay is tried next after a loss, without I/O |
//! | [`table`] | what a relay knows, without I/O: guests, calls, quotas, what may pass |
//! | [`server`] | a relay |
//! | [`client`] | calling and waiting |

pub mod circuit;
pub mod client;
pub mod message;
pub mod pass;
pub mod place;
pub mod redial;
pub mod server;
pub mod table;

pub use client::{CallError, IncomingCall, RelayDial, Waiting, WaitingPlace, WaitingState, call};
pub use pass::RelayPass;
pub use place::{PlaceError, RelayPlace};
pub use server::RelayServer;
pub use table::{Quotas, RelayRules};

use towpath_link::Protocol;

/// What nodes and relays speak.
pub const RELAY_PROTOCOL: Protocol = Protocol(b"tow-relay/1");
