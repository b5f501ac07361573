//! Messages of the two sides of a copy over the control stream of the connection: one
//! Protocol Buffers message at a time (`docs/formats/copy.md`).
//!
//! The remote end, started over ssh, gets its task by `Start`. Then one side is the
//! sender, which has the source, and the other the receiver, which has the destination. Entries
//! are numbered from 0 in the order in which the sender's tree descriptor has them.

use std::ops::Range;

use bytes::Bytes;
use prost::{Message as _, Oneof};
use towpath_protocol::counting::has_at_most;
use towpath_protocol::packing;

use crate::error::CopyError;

/// Bytes of entries that came packed, at most: as many as a message has that did not.
const MAX_UNPACKED: u64 = 256 << 10;

/// Parts that a message may have, each list by the numbers of its fields: an empty part takes a hundred times its
/// bytes once it is read.
const MOST_PARTS: [(&[u32], usize); 9] = [
    (&[1, 2, 1], 100_000), // sources of a start
    (&[1, 5], 256),        // addresses of both, and those that an error names
    (&[2, 1], 256),
    (&[3, 9], 256),
    (&[7, 3], MOST_SETTLED),    // unchanged files
    (&[8, 4, 5], MOST_SOURCES), // sources in an event, and in a summary
    (&[9, 1, 12], MOST_LISTED),
    (&[9, 1, 13, 14], MOST_LISTED), // bottlenecks
    (&[9, 1, 13, 15], MOST_DELTAS),
];

/// Files in each list of a [`Settled`], at most.
pub const MOST_SETTLED: usize = 1024;

/// Sources that an event about progress names.
pub const MOST_SOURCES: usize = 64;

/// The version of these messages.
pub const VERSION: u32 = 8;

/// Bytes of a [`Message::Probe`] in answer.
pub const PROBE: usize = 32 << 10;

/// One message.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(oneof = "Message", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    message: Option<Message>,
}

/// A message.
#[derive(Clone, PartialEq, Oneof)]
pub enum Message {
    /// Client to the remote end: what to do. Long options come in several, of which the last one names the role.
    #[prost(message, tag = "1")]
    Start(Start),
    /// The remote end is ready and can be dialled at these addresses; again when they change.
    #[prost(message, tag = "2")]
    Ready(Ready),
    /// The copy as a whole can't go on.
    #[prost(message, tag = "3")]
    Fatal(Fatal),
    /// Sender: the next bytes of the live tree descriptor; none at its end.
    #[prost(message, tag = "4")]
    Entries(TreeBytes),
    /// Sender: this entry, a directory that is about to come, comes without what is in it.
    #[prost(uint64, tag = "5")]
    Closed(u64),
    /// Receiver: how far it has looked at entries.
    #[prost(message, tag = "6")]
    Considered(Considered),
    /// Receiver: these files are done with.
    #[prost(message, tag = "7")]
    Settled(Settled),
    /// Started side: an event for the person at the client.
    #[prost(message, tag = "8")]
    Event(CopyReport),
    /// Receiver, when all is in place: its summary.
    #[prost(message, tag = "9")]
    Finished(EndReport),
    /// Receiver, once, with nothing: how long do a few bytes take? Sender, in answer: those, which mean nothing.
    #[prost(bytes = "bytes", tag = "10")]
    Probe(Bytes),
    /// Receiver: connections that it wants.
    #[prost(message, tag = "11")]
    Connections(WantedConnections),
}

/// Nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

/// Connections that are wanted beside this one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WantedConnections {
    /// So many in all.
    #[prost(uint32, tag = "1")]
    pub count: u32,
    /// By this link of the sender's machine, as the hellos of its connections name it; none: by any.
    #[prost(string, optional, tag = "2")]
    pub link: Option<String>,
}

/// Task of the remote end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Start {
    /// [`VERSION`].
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Role of it in the copy; none: more of the options follows.
    #[prost(oneof = "CopyRole", tags = "2, 3")]
    pub role: Option<CopyRole>,
    /// The options as [`options::encode`] writes them, or their next part.
    #[prost(bytes = "bytes", tag = "4")]
    pub options: Bytes,
    /// Addresses at which the client can be dialled.
    #[prost(string, repeated, tag = "5")]
    pub addresses: Vec<String>,
    /// Links of its machine that the client's person named. It dials by these, so it wants another [`Ready`] when the remote end's addresses
    /// change, and a remote end that asks for data waits for them.
    #[prost(uint32, tag = "6")]
    pub links: u32,
}

/// The remote end's part in a copy.
#[derive(Clone, PartialEq, Oneof)]
pub enum CopyRole {
    /// It sends.
    #[prost(message, tag = "2")]
    Sender(SenderRole),
    /// It receives.
    #[prost(message, tag = "3")]
    Receiver(ReceiverRole),
}

/// Sources that a sender reads.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SenderRole {
    /// Paths, with wildcards.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub sources: Vec<Bytes>,
    /// True if what is in the only source is meant, not the source itself.
    #[prost(bool, tag = "2")]
    pub is_contents: bool,
}

/// Destination that a receiver writes to, and what comes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReceiverRole {
    /// Path of the destination.
    #[prost(bytes = "bytes", tag = "1")]
    pub destination: Bytes,
    /// The copy is `tow cp`; else `tow sync`.
    #[prost(bool, tag = "2")]
    pub is_cp: bool,
    /// Sources that come.
    #[prost(oneof = "Coming", tags = "3, 4")]
    pub coming: Option<Coming>,
}

/// Sources that come to a receiver.
#[derive(Clone, PartialEq, Oneof)]
pub enum Coming {
    /// Contents of one directory.
    #[prost(message, tag = "3")]
    Contents(Empty),
    /// So many sources under their own names.
    #[prost(uint32, tag = "4")]
    Sources(u32),
}

/// The remote end can begin.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ready {
    /// All addresses at which it can be dialled now. In another one than the first, nothing else counts.
    #[prost(string, repeated, tag = "1")]
    pub addresses: Vec<String>,
    /// Number of sources, if it is the sender: wildcards may stand for several.
    #[prost(uint32, tag = "2")]
    pub sources: u32,
    /// Its machine has instructions for AES-GCM: the next copy may ask ssh for it.
    #[prost(bool, tag = "3")]
    pub has_aes: bool,
}

/// Bytes of the live tree descriptor, of at most one of its blocks; none at its end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TreeBytes {
    /// The bytes.
    #[prost(oneof = "TreeBytesForm", tags = "1, 2")]
    pub part: Option<TreeBytesForm>,
    /// At its end: it could not be read completely; entries that did not come may still be there.
    #[prost(bool, tag = "3")]
    pub is_incomplete: bool,
}

/// Forms of such bytes.
#[derive(Clone, PartialEq, Oneof)]
pub enum TreeBytesForm {
    /// As they are.
    #[prost(bytes = "bytes", tag = "1")]
    Plain(Bytes),
    /// One zstd frame with its length.
    #[prost(bytes = "bytes", tag = "2")]
    Packed(Bytes),
}

impl TreeBytes {
    /// These bytes, packed with zstd's `level` if that makes them fewer; 0: as they are.
    pub fn new(bytes: Bytes, level: i32) -> Self {
        let packed = if level > 0 { packing::pack(&bytes, level) } else { None };
        let part = match packed {
            Some(packed) => TreeBytesForm::Packed(packed.into()),
            None => TreeBytesForm::Plain(bytes),
        };
        Self { part: Some(part), ..Self::default() }
    }

    /// The end of the descriptor.
    pub const fn end(is_incomplete: bool) -> Self {
        Self { part: None, is_incomplete }
    }

    /// The bytes as they are, in memory of their own; none at the end.
    pub fn unpack(&self) -> Result<Option<Bytes>, CopyError> {
        let Some(part) = &self.part else { return Ok(None) };
        match part {
            // Shared with its message, a byte of it would keep all of that.
            TreeBytesForm::Plain(bytes) => Ok(Some(Bytes::copy_from_slice(bytes))),
            TreeBytesForm::Packed(packed) => {
                let unpacked = packing::unpack(packed, MAX_UNPACKED).map(Bytes::from);
                unpacked.map(Some).ok_or_else(|| violation("entries that can't be unpacked"))
            }
        }
    }
}

/// Entries that were looked at. The sender forgets those that are not wanted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Considered {
    /// All below this number were.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// Those of them that are wanted and were not named in such a message before: start, end, start, end, …, ascending.
    #[prost(uint64, repeated, tag = "2")]
    pub wanted: Vec<u64>,
}

impl Considered {
    /// Runs of wanted entries; none if they are not what they should be.
    pub fn runs(&self) -> Option<Vec<Range<u64>>> {
        let (pairs, rest) = self.wanted.as_chunks::<2>();
        let is_ascending = self.wanted.is_sorted() && pairs.iter().all(|[start, end]| start < end);
        let is_within = self.wanted.last().is_none_or(|last| *last <= self.entry);
        let runs = pairs.iter().map(|[start, end]| *start..*end).collect();
        (rest.is_empty() && is_ascending && is_within).then_some(runs)
    }
}

/// Files that the receiver needs nothing more of.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Settled {
    /// They are in place.
    #[prost(uint64, repeated, tag = "1")]
    pub placed: Vec<u64>,
    /// They are given up.
    #[prost(uint64, repeated, tag = "2")]
    pub dropped: Vec<u64>,
    /// They were the same already.
    #[prost(message, repeated, tag = "3")]
    pub unchanged: Vec<Unchanged>,
    /// They could not be read to the end; the sender reports why.
    #[prost(uint64, repeated, tag = "4")]
    pub lost: Vec<u64>,
}

/// A file that was the same already, and the facts that show whether it is the sender's own.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Unchanged {
    /// The entry.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// The inode of the receiver's file.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    /// Its last change (ctime): seconds.
    #[prost(sint64, tag = "3")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(uint32, tag = "4")]
    pub nanos: u32,
}

impl Message {
    /// Its bytes.
    pub fn into_bytes(self) -> Bytes {
        Envelope { message: Some(self) }.encode_to_vec().into()
    }

    /// Reads a message from the other side.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, CopyError> {
        if MOST_PARTS.iter().any(|(path, most)| !has_at_most(&bytes, path, *most)) {
            return Err(violation("a message of too many parts"));
        }
        let envelope = Envelope::decode(bytes).map_err(|error| violation(&error.to_string()))?;
        envelope.message.ok_or_else(|| violation("an unknown message"))
    }
}

/// The other side does not keep to what is agreed.
pub fn violation(what: &str) -> CopyError {
    CopyError::Violation { what: what.to_owned() }
}

/// An error that should not be possible.
pub fn internal(what: &str) -> CopyError {
    CopyError::Internal { what: what.to_owned() }
}

/// The connection ended before the copy did.
pub const fn hung_up() -> CopyError {
    CopyError::HungUp
}

#[macro_use]
mod same;
mod fatal;
pub mod options;
mod report;
mod tree_part;

pub use fatal::Fatal;
pub use report::{CopyReport, EndReport};
use report::{MOST_DELTAS, MOST_LISTED};
pub use tree_part::TreePart;

#[cfg(test)]
mod tests;
