//! Messages of the two sides of a copy over the control stream of the connection: one
//! Protocol Buffers message at a time (`docs/formats/copy.md`).
//!
//! The remote end, started over ssh, gets its task by `Start`. Then one side is the
//! sender, which has the source, and the other the receiver, which has the destination. Entries
//! are numbered from 0 in the order in which the sender's tree descriptor has them.

use bytes::Bytes;
use prost::{Message as _, Oneof};
use towpath_content::delta::exchange::Reply;
use towpath_protocol::counting::has_at_most;
use towpath_protocol::packing;

use crate::error::CopyError;

/// Bytes of a message that came packed, at most: as many as one that did not.
const MAX_UNPACKED: u64 = 256 << 10;

/// Parts that a message may have, each list by the numbers of its fields: an empty part takes a hundred times its
/// bytes once it is read.
const MOST_PARTS: [(&[u32], usize); 10] = [
    (&[1, 2, 1], 100_000), // sources of a start
    (&[1, 5], 256),        // addresses of both, and those that an error names
    (&[2, 1], 256),
    (&[3, 9], 256),
    (&[8, 1], 256),              // answers
    (&[9, 3], 1024),             // unchanged files
    (&[10, 4, 5], MOST_SOURCES), // sources in an event, and in a summary
    (&[11, 1, 12], MOST_LISTED),
    (&[11, 1, 13, 14], MOST_LISTED), // bottlenecks
    (&[14, 1], 128),                 // bases
];

/// Sources that an event about progress names.
pub const MOST_SOURCES: usize = 64;

/// The version of these messages.
pub const VERSION: u32 = 4;

/// One message.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(oneof = "Message", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18")]
    message: Option<Message>,
}

/// A message.
#[derive(Clone, PartialEq, Oneof)]
pub enum Message {
    /// Client to the remote end: what to do.
    #[prost(message, tag = "1")]
    Start(Start),
    /// The remote end is ready and can be dialled at these addresses.
    #[prost(message, tag = "2")]
    Ready(Ready),
    /// The copy as a whole can't go on.
    #[prost(message, tag = "3")]
    Fatal(Fatal),
    /// Sender: the next bytes of the live tree descriptor; none at its end.
    #[prost(bytes = "bytes", tag = "4")]
    Entries(Bytes),
    /// Sender: the tree could not be read completely; entries that did not come may still be there.
    #[prost(message, tag = "5")]
    Incomplete(Empty),
    /// Receiver: all entries below this number have been looked at.
    #[prost(uint64, tag = "6")]
    Considered(u64),
    /// Receiver: the contents of these files are wanted.
    #[prost(message, tag = "7")]
    Asks(Asks),
    /// Sender: under which names the contents can be had.
    #[prost(message, tag = "8")]
    Answers(Answers),
    /// Receiver: these files are done with.
    #[prost(message, tag = "9")]
    Settled(Settled),
    /// Started side: an event for the person at the client.
    #[prost(message, tag = "10")]
    Event(CopyReport),
    /// Receiver, when all is in place: its summary.
    #[prost(message, tag = "11")]
    Finished(EndReport),
    /// Sender: this entry, a directory that is about to come, comes without what is in it.
    #[prost(uint64, tag = "12")]
    Closed(u64),
    /// Client to the remote end, before `Start`: the front of the options, in parts.
    #[prost(bytes = "bytes", tag = "13")]
    More(Bytes),
    /// Receiver, before the `Asks` for these files: what it has of them.
    #[prost(message, tag = "14")]
    Bases(Bases),
    /// Sender: the next bytes of a file that comes in parts.
    #[prost(message, tag = "15")]
    Delta(DeltaMessage),
    /// Sender: one of the messages above, as a zstd frame with its length.
    #[prost(bytes = "bytes", tag = "16")]
    Packed(Bytes),
    /// Receiver, over the control stream of another connection: contents are to come this way.
    #[prost(message, tag = "17")]
    Carry(Empty),
    /// Receiver: a signature that the sender needs.
    #[prost(message, tag = "18")]
    NextSignature(DeltaMessage),
}

/// Nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

/// Task of the remote end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Start {
    /// [`VERSION`].
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Role of it in the copy.
    #[prost(oneof = "CopyRole", tags = "2, 3")]
    pub role: Option<CopyRole>,
    /// The options as [`options::encode`] writes them, without what came in `More` before.
    #[prost(bytes = "bytes", tag = "4")]
    pub options: Bytes,
    /// Addresses at which the client can be dialled.
    #[prost(string, repeated, tag = "5")]
    pub addresses: Vec<String>,
    /// As a sender, the client takes `Bases` and can pack.
    #[prost(bool, tag = "6")]
    pub takes_bases: bool,
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
    /// Addresses at which it can be dialled.
    #[prost(string, repeated, tag = "1")]
    pub addresses: Vec<String>,
    /// Number of sources, if it is the sender: wildcards may stand for several.
    #[prost(uint32, tag = "2")]
    pub sources: u32,
    /// As a sender, it takes `Bases` and can pack.
    #[prost(bool, tag = "3")]
    pub takes_bases: bool,
    /// Its machine has instructions for AES-GCM: the next copy may ask ssh for it.
    #[prost(bool, tag = "4")]
    pub has_aes: bool,
}

/// Files that are wanted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Asks {
    /// Their entries.
    #[prost(uint64, repeated, tag = "1")]
    pub entries: Vec<u64>,
    /// The receiver compares: every name must be that of the content, not of a live object.
    #[prost(uint64, repeated, tag = "2")]
    pub compare: Vec<u64>,
    /// The content of files in `entries` of at most so many bytes may come with the answer.
    #[prost(uint32, tag = "3")]
    pub inline: u32,
    /// Answers from here on are worth packing, with this level of zstd; 0: they are not.
    #[prost(uint32, tag = "4")]
    pub pack: u32,
}

/// Older versions of files that are about to be requested.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Bases {
    /// A request of each entry.
    #[prost(message, repeated, tag = "1")]
    pub bases: Vec<DeltaMessage>,
}

/// A message of the exchange of a delta ([`towpath_content::delta::exchange`]).
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeltaMessage {
    /// The entry.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// Its bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub bytes: Bytes,
}

/// Names of contents.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answers {
    /// One for each requested file, in any order.
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<Answer>,
}

/// The name of one file's content. If there is none, an event gives the reason to the person.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    /// The entry.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// The OID in its bytes' form; empty if it could not be read.
    #[prost(bytes = "bytes", tag = "2")]
    pub oid: Bytes,
    /// Bytes, as they are now.
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// The time of last modification, as it is now: seconds.
    #[prost(sint64, tag = "4")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(uint32, tag = "5")]
    pub nanos: u32,
    /// It takes less room on disk than it has bytes.
    #[prost(bool, tag = "6")]
    pub is_sparse: bool,
    /// All of it, of a little file; nothing more is to be fetched then.
    #[prost(bytes = "bytes", tag = "7")]
    pub content: Bytes,
    /// Reply to the request that described its base; empty if none did.
    #[prost(bytes = "bytes", tag = "8")]
    pub reply: Bytes,
    /// It was sent before, over a connection that was lost, and may have come all the same.
    #[prost(bool, tag = "9")]
    pub is_again: bool,
}

impl Answer {
    /// All there is to a file, so that it may come out of order with other answers.
    pub const fn is_whole(&self) -> bool {
        !self.content.is_empty() && self.reply.is_empty()
    }

    /// True if bytes of the file come with it: all of them, or what makes them of its base.
    pub const fn has_bytes(&self) -> bool {
        !self.content.is_empty() || self.reply.len() > 1
    }

    /// The reply to a request.
    pub fn reply(&self) -> Result<Option<Reply>, CopyError> {
        if self.reply.is_empty() {
            return Ok(None);
        }
        Reply::from_bytes(&self.reply).map(Some).map_err(|error| violation(&error.to_string()))
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

    /// The bytes of a message, packed if that makes them fewer.
    pub fn pack(bytes: Bytes, level: i32) -> Bytes {
        match packing::pack(&bytes, level) {
            Some(packed) => Self::Packed(packed.into()).into_bytes(),
            None => bytes,
        }
    }

    /// Reads a message from the other side.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, CopyError> {
        Self::read(bytes).map(|(message, _)| message)
    }

    /// Reads a message, and returns how many bytes stay in memory as long as any part of it is kept: its fields share
    /// them.
    pub fn read(bytes: Bytes) -> Result<(Self, usize), CopyError> {
        let len = bytes.len();
        match Self::decode(bytes)? {
            Self::Packed(packed) => {
                let unpacked = packing::unpack(&packed, MAX_UNPACKED);
                let unpacked = unpacked.ok_or_else(|| violation("what can't be unpacked"))?;
                let len = unpacked.len();
                match Self::decode(unpacked.into())? {
                    Self::Packed(_) => Err(violation("a message packed twice")),
                    message => Ok((message, len)),
                }
            }
            message => Ok((message, len)),
        }
    }

    fn decode(bytes: Bytes) -> Result<Self, CopyError> {
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

pub use fatal::Fatal;
use report::MOST_LISTED;
pub use report::{CopyReport, EndReport};

#[cfg(test)]
mod tests;
