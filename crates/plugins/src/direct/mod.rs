//! The direct plugin: objects from another Towpath service, over one protocol that is the same in
//! both directions (`docs/formats/protocol.md`; DOT's default GTC-GTC plugin, `papers/dot.txt`
//! §4.2).
//!
//! ```text
//!      Direct (TransferPlugin)              Service
//!            │ asks                          ▲ answers
//!            ▼                               │
//!   Peer ─ Session (pure) ── effects ── Answering (pure) ─ Conversation
//!            ▲                               │
//!       reader task      one connection      └─> writer task
//! ```
//!
//! What decides is pure: handed frames and the time, with no socket, channel, thread or clock. A
//! simulated network drives the same code.
//!
//! | module | story |
//! |---|---|
//! | [`wire`] | messages and data headers, their bytes |
//! | [`incoming`], [`outgoing`] | frames on their way in and out |
//! | [`session`] | a connection as a state machine: hellos, the asking half, silence: pure |
//! | [`requests`] | one `Get` under way: which data frame belongs to which want: pure |
//! | [`liveness`] | when a ping is due, when silence is the end: pure |
//! | [`answering`] | the answering half as a state machine, within limits: pure |
//! | [`gets`], [`answers`], `recipes` | answers to requests for data, to questions and for recipes, step by step |
//! | [`access`] | who may fetch what: pure |
//! | `sending` | the size of frames, and whether they are compressed unasked: pure |
//! | `turns` | whose turn it is among one node's `Get`s: pure, and shared |
//! | [`service`] | what a service gives to whom: rights and store |
//! | [`dialling`] | whether to dial now, use what stands, or wait: pure |
//! | `slots` | the connections to one peer |
//! | `widening` | how many connections to keep: pure |
//! | [`peer`] | a connection's handle |
//! | [`callers`] | who waits for which request of a session |
//! | `reader`, `writer` | a connection's two tasks |
//! | [`conversation`] | the threads that answer |
//! | [`client`] | [`Direct`]: dials, reconnects, and is a transfer plugin |
//! | [`control`] | the control stream: messages of the program above |
//! | `delivery` | how fast, and how late, the peer takes these: pure |
//! | `buffers` | the memory that pieces are read into |
//! | `deltas` | runs of bytes as deltas of what the asking side has |
//! | `compress` | payloads as zstd frames: a [`crate::processor`] |
//! | [`pace`] | a limit on bytes per second |
//!
//! A connection is dropped for anything the protocol does not allow, with a `Goodbye` that says
//! why; the other connections of the service do not notice.

pub mod access;
pub mod answering;
pub mod answers;
mod buffers;
pub mod callers;
pub mod client;
pub(crate) mod compress;
pub mod control;
pub mod conversation;
mod delivery;
mod deltas;
pub mod dialling;
pub mod gets;
pub mod incoming;
pub mod liveness;
pub mod outgoing;
pub mod pace;
pub mod peer;
mod reader;
mod recipes;
pub mod requests;
mod sending;
mod served;
pub mod service;
pub mod session;
mod slots;
mod turns;
mod widening;
pub mod wire;
mod writer;

pub use client::{Direct, DirectConfig};
pub use compress::WISH as COMPRESS;
pub use control::{ControlClosed, ControlReceiver, ControlSender};
pub use delivery::Delivered;
pub use pace::Pace;
pub use peer::{Peer, PeerConfig, Traffic};
pub use served::Served;
pub use service::{Issuer, Service};

/// The last word of a receiver that has all that it came for.
pub const HAS_ALL: &str = "has all of it";
/// The same if some files of a tree could not be had.
pub const HAS_THE_REST: &str = "has the rest of it";
/// The scheme of hints that this plugin answers: `tow://host:port`.
pub const SCHEME: &str = "tow";
