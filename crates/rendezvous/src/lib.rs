//! Where peers find each other: a small server that keeps who holds what, and hands letters from one to another; and its client
//! (`papers/file-mover.txt` §2 has its Information System, `papers/dsync.txt` §6.1 its tracker). Formats: `docs/formats/rendezvous.md`.
//!
//! The server learns neither what is transferred nor the secret of a ticket: it keeps sealed entries under a key that was made
//! of the secret. It can hide entries, and that costs speed only.
//!
//! ```text
//!   client ── messages ──► server ──► board ─┬─► entry_table   who is there for a topic, who watches it
//!                                            └─► mailboxes     numbers under which two ends find each other
//! ```
//!
//! | module | story |
//! |---|---|
//! | [`topic`] | what a ticket's secret becomes here: a key to look under, and one to seal with |
//! | [`entry`] | what a node says of itself under a topic: sealed, signed, numbered, expiring |
//! | [`message`] | what client and server say to each other |
//! | [`entry_table`] | entries and watchers, within limits: pure |
//! | [`mailboxes`] | numbers, and letters between two ends: pure |
//! | `tries` | how often each address came in: pure |
//! | [`board`] | one message in, messages out: pure |
//! | [`server`] | connections around a board |
//! | [`sharing`] | the seam to other servers that have the same entries |
//! | [`mailbox_sharing`] | the seam to other servers for mailboxes |
//! | [`elsewhere`] | clients whose mailbox is at another server |
//! | [`page`] | what one server reads of another's entries |
//! | [`listening`] | sockets, and how many may shake hands at once |
//! | [`client`] | one connection to each server, for all topics of a program |
//! | `dialling` | the way to a server |
//! | [`letters`] | one end of a mailbox |

pub mod address_group;
pub mod board;
pub mod client;
mod dialling;
pub mod elsewhere;
pub mod entry;
pub mod entry_table;
pub mod letters;
pub mod listening;
pub mod mailbox_sharing;
pub mod mailboxes;
pub mod message;
pub mod page;
pub mod place;
pub mod server;
pub mod sharing;
pub mod topic;
mod tries;

use towpath_link::Protocol;

pub use address_group::AddressGroup;
pub use client::Rendezvous;
pub use entry::{HolderEntry, SignedEntry};
pub use place::ServerPlace;
pub use server::RendezvousServer;
pub use topic::{Topic, TopicKeys};

/// What is spoken with a rendezvous server.
pub const PROTOCOL: Protocol = Protocol(b"tow-rendezvous/1");
