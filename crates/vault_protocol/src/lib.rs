//! What a vault's client and its server say to each other. Formats: `docs/formats/vault.md`.
//!
//! ```text
//!   client                                                    server
//!     Hello ─────────────────────────────────────────────────► Head
//!     Propose ──────────► Paths (if it is not signed), Wants (unless all blocks follow)
//!     Block ..., Sign ──► Committed | Conflict | Refused
//!     Get ──────────────► Object | Missing, one for each hash
//! ```
//!
//! Requests are answered in their order, so a client need not wait for one answer before it asks for more.
//!
//! | module | story |
//! |---|---|
//! | [`message`] | the messages, each in a frame or several |
//! | [`assembly`] | long messages in several frames |
//! | [`server`] | the server's end: which message is allowed when, what is to be done for it; pure |
//! | [`client`] | the client's end: which answer belongs to what, and whether it is believed; pure |
//! | [`connection`] | the client's end on a connection |
//! | [`mod@line`] | what a line carries up and down; pure |
//! | [`kept_line`] | what counts of it later |
//! | [`newer`] | the newest version as what it differs in from one that was seen; pure |
//! | [`whole`] | small versions in one message; pure |
//! | [`window`] | versions on their way, one behind the other; pure |

pub mod assembly;
pub mod client;
pub mod connection;
pub mod kept_line;
pub mod line;
pub mod message;
pub mod newer;
pub mod server;
pub mod whole;
pub mod window;

use towpath_link::Protocol;

pub use client::{ClientMachine, ServerFault};
pub use connection::{CommitAnswer, ConnectionError, ProposalPaths, VaultConnection};
pub use line::{LineMeter, MeasuredLine};
pub use message::{ClientMessage, CommittedVersion, ServerMessage, VaultRefusal, VaultUsage, VersionLine};
pub use server::{Proposal, ProposalVerdict, ServerMachine, ServerOrder};

/// What is spoken with a vault server.
pub const PROTOCOL: Protocol = Protocol(b"tow-vault/1");
