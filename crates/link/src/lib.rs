//! Node keys, and encrypted, framed connections between Towpath services.
//!
//! A frame is a kind and some bytes; this crate knows neither chunks nor messages. A connection
//! is a pair of frame streams with a peer whose node id is known, plus a channel binding that
//! proofs can be tied to. Layouts and rules: `docs/formats/link.md`.
//!
//! ```text
//!        FrameReader   FrameWriter     PathProbe      frame, path
//!              \            /              |
//!               Connection ----------------'          connection
//!                    |
//!            Box<dyn Transport>                       the seam
//!              /           \
//!        TlsTransport   PipeTransport                 tls, pipe
//!             |
//!        RecordSocket                                 the seam: TCP, or a stream of another kind
//! ```
//!
//! | module | story |
//! |---|---|
//! | [`identity`] | the key pair behind a node id, and the file it lives in |
//! | [`tls`] | TLS 1.3 with raw public keys, both ends authenticated; its records |
//! | [`RecvBuffer`] | the memory that is received into and that frames are taken from |
//! | [`frame`] | where a frame begins and ends; reading and writing them fast |
//! | [`connection`] | a connection, and the seam for whatever carries it |
//! | [`tcp`] | dialling and listening |
//! | [`pipe`] | a pair of streams that someone else protects, such as ssh's |
//! | [`path`] | what the kernel says of a path, and how much to keep outstanding on it |
//! | [`doubles`] | connections within one program, for tests of what goes over them |
//! | `protocol` | names of what is spoken |
//! | [`own_addresses`] | the addresses of this machine, and which are of use to others |
//! | [`address_notices`] | when these may have changed |
//! | [`public`] | which addresses anybody may reach |
//! | [`queued`] | bytes that wait for peers, of all connections together |
//! | [`backoff`] | how long to wait before the next attempt |
//! | [`dialling`] | whether to dial now, use what stands, or wait: pure |
//! | [`pace`] | a limit on bytes per second |
//! | [`waiting`] | what is reported to whoever waits |
//! | [`stall`] | whether a connection that stands has stalled: pure |
//!
//! After a crash or a dropped half nothing is left on this side; the peer sees a connection that
//! was cut off, and can tell that from one that was finished.

pub mod address_notices;
pub mod backoff;
pub mod connection;
pub mod dialling;
pub mod doubles;
pub mod frame;
pub mod identity;
mod kernel;
pub mod own_addresses;
pub mod pace;
pub mod path;
pub mod pipe;
mod protocol;
pub mod public;
pub mod queued;
mod recv_buffer;
pub mod stall;
pub mod tcp;
pub mod tls;
pub mod waiting;

pub use address_notices::AddressNotices;
pub use backoff::Backoff;
pub use connection::{Connection, PeerProof, Transport};
pub use frame::{Frame, FrameReader, FrameWriter};
pub use identity::Identity;
pub use path::{
    MAX_FRAME, PathInfo, PathProbe, frame_len, frame_len_at, suggested_outstanding, unsent_limit,
};
pub use protocol::Protocol;
pub use recv_buffer::{Receive, RecvBuffer};
