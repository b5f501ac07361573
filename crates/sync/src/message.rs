//! What the two sides of a copy say to each other over the control stream of the connection: one
//! Protocol Buffers message at a time (`docs/formats/copy.md`).
//!
//! The side that was started (over ssh) is told what to do by `Start`. Then one side is the
//! sender, which has the source, and the other the receiver, which has the destination. Entries
//! are numbered from 0 in the order in which the sender's tree descriptor has them.

use bytes::Bytes;
use prost::{Message as _, Oneof};
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

/// Sources that an event about progress tells of.
pub const MOST_SOURCES: usize = 64;

/// The version of these messages.
pub const VERSION: u32 = 3;

/// One message.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(oneof = "Message", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18")]
    message: Option<Message>,
}

/// What may be said.
#[derive(Clone, PartialEq, Oneof)]
pub enum Message {
    /// Client to the started side: what to do.
    #[prost(message, tag = "1")]
    Start(Start),
    /// The started side is ready and can be dialled at these addresses.
    #[prost(message, tag = "2")]
    Ready(Ready),
    /// The copy as a whole can't go on.
    #[prost(message, tag = "3")]
    Fatal(Fatal),
    /// Sender: the next bytes of the live tree descriptor; none at its end.
    #[prost(bytes = "bytes", tag = "4")]
    Entries(Bytes),
    /// Sender: the tree could not be read completely; what is not told may still be there.
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
    /// Sender: this entry, a directory that is about to come, is told without what is in it.
    #[prost(uint64, tag = "12")]
    Closed(u64),
    /// Client to the started side, before `Start`: the front of the options, in parts.
    #[prost(bytes = "bytes", tag = "13")]
    More(Bytes),
    /// Receiver, before the `Asks` for these files: what it has of them, signed.
    #[prost(message, tag = "14")]
    Bases(Bases),
    /// Sender: the next bytes of a file that comes as deltas of parts.
    #[prost(message, tag = "15")]
    Delta(Delta),
    /// Sender: one of the messages above, as a zstd frame that tells its length.
    #[prost(bytes = "bytes", tag = "16")]
    Packed(Bytes),
    /// Receiver, over the control stream of another connection: contents are to come this way.
    #[prost(message, tag = "17")]
    Carry(Empty),
    /// Receiver: what an outline leaves of its part's base, signed.
    #[prost(message, tag = "18")]
    Finer(Finer),
}

/// Nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

/// What the started side is to do.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Start {
    /// [`VERSION`].
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Which side of the copy it is.
    #[prost(oneof = "CopyRole", tags = "2, 3")]
    pub role: Option<CopyRole>,
    /// The options as [`options::encode`] writes them, without what came in `More` before.
    #[prost(bytes = "bytes", tag = "4")]
    pub options: Bytes,
    /// Where the client can be dialled.
    #[prost(string, repeated, tag = "5")]
    pub addresses: Vec<String>,
    /// As a sender, the client takes `Bases` and can pack.
    #[prost(bool, tag = "6")]
    pub takes_bases: bool,
}

/// The started side's part in a copy.
#[derive(Clone, PartialEq, Oneof)]
pub enum CopyRole {
    /// It sends.
    #[prost(message, tag = "2")]
    Sender(SenderRole),
    /// It receives.
    #[prost(message, tag = "3")]
    Receiver(ReceiverRole),
}

/// What a sender reads.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SenderRole {
    /// Paths, with wildcards.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub sources: Vec<Bytes>,
    /// What is in the only source is meant, not the source itself.
    #[prost(bool, tag = "2")]
    pub is_contents: bool,
}

/// Where a receiver writes, and what.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReceiverRole {
    /// Where to.
    #[prost(bytes = "bytes", tag = "1")]
    pub destination: Bytes,
    /// The copy is `tow cp`; else `tow sync`.
    #[prost(bool, tag = "2")]
    pub is_cp: bool,
    /// What comes.
    #[prost(oneof = "Coming", tags = "3, 4")]
    pub coming: Option<Coming>,
}

/// What comes to a receiver.
#[derive(Clone, PartialEq, Oneof)]
pub enum Coming {
    /// What is in one directory.
    #[prost(message, tag = "3")]
    Contents(Empty),
    /// So many sources under their own names.
    #[prost(uint32, tag = "4")]
    Sources(u32),
}

/// The started side can begin.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ready {
    /// Where it can be dialled.
    #[prost(string, repeated, tag = "1")]
    pub addresses: Vec<String>,
    /// How many sources there are, if it is the sender: wildcards may stand for several.
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
    /// Deltas of parts from here on may come in steps: the receiver answers so many outlines of each.
    #[prost(uint32, tag = "5")]
    pub takes_outlines: u32,
}

/// Older versions of files that are about to be asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Bases {
    /// One of each entry.
    #[prost(message, repeated, tag = "1")]
    pub bases: Vec<Base>,
}

/// What the receiver has in a file's place, or takes for its older version.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Base {
    /// The entry.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// Its signature, if it has one part.
    #[prost(bytes = "bytes", tag = "2")]
    pub signature: Bytes,
    /// Instead: the OID of it, in its bytes' form, in case the sender has it too.
    #[prost(bytes = "bytes", tag = "3")]
    pub oid: Bytes,
    /// Said with the OID: a patch may come in parts.
    #[prost(bool, tag = "4")]
    pub in_parts: bool,
    /// It lies elsewhere and may be quite another file: no delta should come that saves little.
    #[prost(bool, tag = "5")]
    pub is_guess: bool,
    /// Instead: it has so many parts, whose signatures follow the ask as [`Finer`].
    #[prost(uint32, tag = "6")]
    pub parts: u32,
    /// Said with `parts`: so many of them follow at once, the others when a part is said that wants one.
    #[prost(uint32, tag = "7")]
    pub ahead: u32,
}

/// A run of the bytes of a delta.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Delta {
    /// The entry.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// The next bytes of its current part's delta.
    #[prost(bytes = "bytes", tag = "2")]
    pub bytes: Bytes,
    /// They are the part's last.
    #[prost(bool, tag = "3")]
    pub is_last: bool,
    /// Said with the last: the delta is one zstd frame that tells its length.
    #[prost(bool, tag = "4")]
    pub is_packed: bool,
    /// No more of the file comes so: the receiver should fetch it.
    #[prost(bool, tag = "5")]
    pub is_given_up: bool,
    /// Said with the last: the delta has no literals. They come later, in the order of the outlines, each as a delta of
    /// what the receiver signs in answer.
    #[prost(bool, tag = "6")]
    pub is_outline: bool,
    /// Said with an outline: so many more of this part may follow, each of the literals of the one before.
    #[prost(uint32, tag = "7")]
    pub further: u32,
    /// Said with the last: it is of the literals of the first outline that waits for its own, not of the next part.
    #[prost(bool, tag = "8")]
    pub is_rest: bool,
    /// Said with the last: the receiver should tell the signature of the next part whose one was not told.
    #[prost(bool, tag = "9")]
    pub wants_next: bool,
}

/// One more signature, which an outline or a part needs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Finer {
    /// The entry.
    #[prost(uint64, tag = "1")]
    pub entry: u64,
    /// The signature of what the outline does not copy, or of the next part whose one was not told; none: no more of the
    /// file should come so.
    #[prost(bytes = "bytes", tag = "2")]
    pub signature: Bytes,
}

/// Names of contents.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answers {
    /// One for each file asked for, in any order.
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<Answer>,
}

/// The name of one file's content. Why there is none is told by an event, to the person.
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
    /// `content` is a delta of the base, which has one part.
    #[prost(bool, tag = "8")]
    pub is_delta: bool,
    /// The content comes in `Delta` messages, as deltas of so many parts.
    #[prost(uint32, tag = "9")]
    pub parts: u32,
    /// What comes, as `content` or as its parts, are zstd frames with the named base as their prefix.
    #[prost(bool, tag = "10")]
    pub is_patch: bool,
    /// The named base is not here: the file should be asked for again, with signatures or without.
    #[prost(bool, tag = "11")]
    pub lacks_base: bool,
    /// The content is that of the named base; `oid` is not said.
    #[prost(bool, tag = "12")]
    pub is_same: bool,
    /// It was said before, over a connection that was lost, and may have come all the same.
    #[prost(bool, tag = "13")]
    pub is_again: bool,
}

impl Answer {
    /// All there is to a file, so that it may come out of order with other answers.
    pub const fn is_whole(&self) -> bool {
        !self.content.is_empty() && !self.is_delta && !self.is_patch
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
    /// They could not be read to the end; the sender tells why.
    #[prost(uint64, repeated, tag = "4")]
    pub lost: Vec<u64>,
}

/// A file that was the same already, and what tells whether it is the sender's own.
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

    /// Reads a message, and tells how many bytes stay in memory as long as any part of it is kept: its fields share
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

/// What should not be possible.
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
