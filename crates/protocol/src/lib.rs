//! The language of services: one protocol that is the same in both directions
//! (`docs/formats/protocol.md`; DOT's GTC-GTC protocol, `papers/dot.txt` §4.2), and the tasks around
//! it.
//!
//! ```text
//!        who fetches (plugins)              Service
//!            │ asks                          ▲ answers
//!            ▼                               │
//!   Peer ─ Session (pure) ── effects ── Answering (pure) ─ Conversation
//!            ▲                               │
//!       reader task      one connection      └─> writer task
//! ```
//!
//! Decisions are pure: handed frames and the time, with no socket, channel, thread or clock. A
//! simulated network drives the same code.
//!
//! | module | story |
//! |---|---|
//! | [`wire`], [`counting`], [`packing`], [`pack_backoff`], [`steps`] | of the crate `towpath-protocol-messages`: messages and data headers, their bytes; runs of bytes as deltas |
//! | [`incoming`], [`outgoing`] | frames on their way in and out |
//! | [`session`] | a connection as a state machine: hellos, the asking half, silence: pure |
//! | [`requests`] | one `Get` under way: which data frame belongs to which want: pure |
//! | [`liveness`] | when a ping is due, when silence is the end: pure |
//! | [`answering`] | the answering half as a state machine, within limits: pure |
//! | [`gets`], [`answers`], `recipes` | answers to requests for data, to questions and for recipes, step by step |
//! | [`step`] | what is to be done between two steps of an answer |
//! | [`access`] | who may fetch what: pure |
//! | `sending` | the size of frames, and whether they are compressed unasked: pure |
//! | `urgent` | messages that go out before all data, and their places |
//! | `unwanted` | pieces of one `Get` that its peer cancelled |
//! | `turns` | whose turn it is among one node's `Get`s: pure, and shared |
//! | [`service`] | what a service gives to whom: rights and store |
//! | [`peer`], `shared` | a connection's handle; what it shares with the tasks |
//! | [`introductions`], `introducing` | who is told which others serve what it fetches: pure; and the messages that say so |
//! | `peer_use`, `served` | what one transfer here has of a connection; what the other side fetches over it, by root |
//! | [`callers`] | who waits for which request of a session |
//! | `reader`, `writer`, `session_queue` | a connection's two tasks; what of a session waits for the second |
//! | [`conversation`] | the answering half of a connection at work |
//! | [`threads`] | the threads that answer all peers, and who is next: pure, and shared |
//! | [`control`] | the control stream: messages of the program above |
//! | [`offer`], [`replies`] | entries that this side offers, and how questions for them are answered |
//! | `asks` | questions for entries, and their state while they are answered |
//! | `entry_caller`, `entry_way` | who asked for entries, and the way of signatures |
//! | `signatures` | signatures that an answer waits for: pure |
//! | `window` | how much of the control stream, and of contents, is under way |
//! | `delivery` | how fast, and how late, the peer takes these: pure |
//! | `buffers` | the memory that pieces are read into |
//! | [`processor`], [`processors`], [`compression`], [`rules`] | of the crate `towpath-processors`: what every chunk passes |
//! | [`pace`], [`waiting`] | of the crate `towpath-link`: a limit on bytes per second; what is reported to whoever waits |
//!
//! A connection is dropped for anything the protocol does not allow, with a `Goodbye` that says
//! why; the other connections of the service do not notice.

pub mod access;
pub mod answering;
pub mod answers;
mod asks;
mod buffers;
pub mod callers;
pub mod control;
pub mod conversation;
mod delivery;
mod entry_caller;
mod entry_way;
pub mod gets;
pub mod incoming;
mod introducing;
pub mod introductions;
pub mod liveness;
pub mod offer;
pub mod outgoing;
pub mod peer;
mod peer_use;
mod reader;
mod recipes;
pub mod replies;
pub mod requests;
mod sending;
mod served;
pub mod service;
pub mod session;
mod session_queue;
mod shared;
mod signatures;
pub mod step;
pub mod threads;
mod turns;
mod unwanted;
mod urgent;
mod window;
mod writer;

pub use callers::{HolderSink, PeerNews, WithdrawalSink};
pub use control::{ControlClosed, ControlReceiver, ControlSender};
pub use delivery::Delivered;
pub use offer::{EntryAsk, EntryTag, Offer};
pub use pace::Pace;
pub use peer::{Peer, PeerConfig};
pub use peer_use::{PeerFacts, PeerUse};
pub use replies::{ContentBatch, Replies, ReplyMessage};
pub use served::{Served, ServedFetch};
pub use service::{Issuer, Service};
pub use shared::Traffic;
pub use towpath_link::stall::{Arrived, QUIET, Stall};
pub use towpath_link::{pace, waiting};
pub use towpath_processors::compression::WISH as COMPRESS;
pub use towpath_processors::{compression, processor, processors, rules};
pub use towpath_protocol_messages as wire;
pub use towpath_protocol_messages::{counting, pack_backoff, packing, steps};

/// The last word of a receiver that has all that it came for.
pub const HAS_ALL: &str = "has all of it";
/// The same if some files of a tree could not be had.
pub const HAS_THE_REST: &str = "has the rest of it";
