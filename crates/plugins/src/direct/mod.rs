//! The direct plugin: objects from another Towpath service, over one protocol that is the same in
//! both directions (`docs/formats/protocol.md`; DOT's default GTC-GTC plugin, `papers/dot.txt`
//! §4.2).
//!
//! ```text
//!      Direct (TransferPlugin)          Service (answers)
//!            │ asks                          ▲ requests
//!            ▼                               │
//!          Peer ── one connection: reader task, writer task ── Peer of the other service
//! ```
//!
//! | module | story |
//! |---|---|
//! | [`wire`] | messages and data headers, their bytes |
//! | [`access`] | who may fetch what: pure |
//! | [`peer`] | a connection's two tasks; requests out, answers in |
//! | [`requests`] | requests under way: which data frame belongs to which want |
//! | [`outgoing`] | frames on their way out |
//! | [`service`] | what a service gives to whom: rights, store, the state of one talk |
//! | [`conversation`] | takes a peer's requests, within limits |
//! | `gets` | answers requests for data |
//! | `answers` | to questions about objects, and to those who follow a live one |
//! | [`client`] | [`Direct`]: dials, reconnects, and is a transfer plugin |
//! | [`control`] | the control stream: messages of the program above |
//! | `compress` | payloads as zstd frames |
//! | [`pace`] | a limit on bytes per second |
//!
//! A connection is dropped for anything the protocol does not allow, with a `Goodbye` that says
//! why; the other connections of the service do not notice.

pub mod access;
mod answers;
pub mod client;
mod compress;
pub mod control;
pub mod conversation;
mod gets;
pub mod outgoing;
pub mod pace;
pub mod peer;
pub mod requests;
pub mod service;
pub mod wire;

pub use client::{Direct, DirectConfig};
pub use control::{ControlClosed, ControlReceiver, ControlSender};
pub use pace::Pace;
pub use peer::{Peer, PeerConfig, Traffic};
pub use service::{Issuer, Service};

/// The scheme of hints that this plugin answers: `tow://host:port`.
pub const SCHEME: &str = "tow";
