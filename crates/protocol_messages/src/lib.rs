//! The protocol's messages and their bytes (`docs/formats/protocol.md`).

mod contents;
pub mod counting;
mod data;
mod limits;
mod meaning;
pub mod pack_backoff;
pub mod packing;
mod pieces;
pub mod steps;
mod words;

use bytes::Bytes;
use prost::Message;
use towpath_content::codec::invalid;
use towpath_content::{DecodeError, Oid};

pub use contents::{
    ContentBody, ContentCredit, ContentList, Contents, ContentsBody, WireContent, WireRun, WireSignature,
};
pub use data::{DATA_HEADER, DataHeader, MAX_PAYLOAD, split_len, with_len};
pub use limits::{has_contents, may_come_first};
pub use pieces::{WantPiece, want_pieces};
pub use words::printable;

/// Frame kind of [`Control`] messages.
pub const CONTROL: u8 = 0;
/// Frame kind of data.
pub const DATA: u8 = 1;
/// The protocol's version.
pub const VERSION: u32 = 2;
/// Capabilities that this program always has, for its [`Hello`]; encodings that it takes come behind.
pub const CAPABILITIES: [&str; 9] =
    ["chunks", "live", RECIPES, PARTS, DELTAS, SAMPLES, WITHDRAWALS, HOLDERS, BRINGS];
/// The capability of encoded payloads of any size, which begin with it.
pub const PARTS: &str = "parts";
/// The capability of [`Recipe`] and of wants by a run of bytes.
pub const RECIPES: &str = "recipes";
/// The capability of runs of bytes with a base and of [`Delta`].
pub const DELTAS: &str = "deltas";
/// The capability of [`Samples`].
pub const SAMPLES: &str = "samples";
/// The capability of [`Withdrawn`].
pub const WITHDRAWALS: &str = "withdrawals";
/// The capability of a side that answers what it is asked, and that takes [`WireFinished`].
pub const ANSWERS: &str = "answers";
/// Said by a side whose network stack paces what it sends by a rate that it measures.
pub const PACES: &str = "paces";
/// The capability of [`WireServes`] and [`WireHolder`].
pub const HOLDERS: &str = "holders";
/// The capability of [`WireBring`].
pub const BRINGS: &str = "brings";
/// Most bytes of a ticket in a [`WireBring`].
pub const MAX_TICKET: usize = 8 << 10;
/// Most roots that are proved on a connection.
pub const MAX_ROOTS: usize = 64;
/// Most [`Withdrawn`] messages on a connection: one for each root.
pub const MAX_WITHDRAWALS: usize = 64;
/// Most [`WireHolder`] and [`WireServes`] messages on a connection, each way: some for each root.
pub const MAX_HOLDERS: usize = 16 * MAX_ROOTS;
/// Most bytes of a message of the control stream.
pub const MAX_MESSAGE: usize = 256 << 10;
/// Most bytes of samples in a [`Samples`].
pub const MAX_SAMPLES: usize = 64 << 10;
/// Most bytes of a run of bytes that has a base: it is held in memory on both sides.
pub const MAX_DELTA_SPAN: u32 = 4 << 20;
/// Most runs of bytes with a base in a [`Get`].
pub const MAX_BASES: usize = 64;
/// Most bytes of the bases in a [`Get`], of entries or of runs of bytes.
pub const MAX_BASES_LEN: usize = 256 << 10;
/// Most bytes of the root and the nodes in a [`Recipe`].
pub const MAX_RECIPE_PART: usize = 64 << 10;
/// Most bytes of a want that is a run of bytes.
pub const MAX_SPAN: u32 = 16 << 20;
/// Most requests under way on one connection, in each direction.
pub const MAX_REQUESTS: usize = 64;
/// Bytes of messages that may be on their way in a direction, or wait to be taken.
pub const WINDOW: usize = 4 << 20;
/// Bytes that a message counts for besides its own, so that empty ones are not for nothing.
pub const OVERHEAD: usize = 64;
/// Most wants in a [`Get`].
pub const MAX_WANTS: usize = 1024;
/// Most pieces, runs of bytes and chunks in a [`Get`].
pub const MAX_PIECES: usize = 4096;
/// Most wants in a [`Get`] that asks for entries, and contents in a [`Contents`].
pub const MAX_ENTRIES: usize = 256;
/// Most bytes of a [`ContentList`], packed or not.
pub const MAX_CONTENTS: usize = 256 << 10;
/// Most pieces that one [`ProofOf`] is of.
pub const MAX_PROOF_RUN: usize = 4096;
/// Most values in the proof of a run, beside one for each of its pieces (`docs/formats/pieces.md`).
pub const MAX_BESIDE: usize = 2 * 20;
/// Most runs of bytes in a [`Have`].
pub const MAX_RANGES: usize = 4 << 10;
/// Most bytes of a message that is words: a hello, a reason.
pub const MAX_WORDS: usize = 16 << 10;
pub use towpath_processors::MAX_ENCODINGS;

/// First message in each direction.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// See [`VERSION`].
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Named capabilities; unknown ones are ignored.
    #[prost(string, repeated, tag = "3")]
    pub capabilities: Vec<String>,
    /// Name and version of the program, for people.
    #[prost(string, tag = "4")]
    pub software: String,
    /// Encodings that numbers over 1 in this side's data frames stand for, by name, from 2 on.
    #[prost(string, repeated, tag = "5")]
    pub encodings: Vec<String>,
    /// Name of the link that this connection goes by, where its side uses several; empty: none.
    #[prost(string, tag = "6")]
    pub link: String,
    /// Number of this connection among those that its side has dialled by the link, from 1 on; 0: it dials no further ones.
    #[prost(uint32, tag = "7")]
    pub link_number: u32,
}

/// Shows the right to a root.
#[derive(Clone, PartialEq, Message)]
pub struct Prove {
    /// Binary OID.
    #[prost(bytes = "bytes", tag = "1")]
    pub root: Bytes,
    /// 32 bytes: `ticket::Secret::prove`.
    #[prost(bytes = "bytes", tag = "2")]
    pub proof: Bytes,
}

/// Asks about an object.
#[derive(Clone, PartialEq, Message)]
pub struct Describe {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// The right comes from here.
    #[prost(bytes = "bytes", tag = "2")]
    pub root: Bytes,
    /// The object.
    #[prost(bytes = "bytes", tag = "3")]
    pub oid: Bytes,
    /// Block of the root's tree descriptor that mentions it.
    #[prost(uint64, optional, tag = "4")]
    pub block: Option<u64>,
    /// First piece whose value is wanted; none if absent.
    #[prost(uint64, optional, tag = "5")]
    pub values_from: Option<u64>,
    /// One past the last piece whose value is wanted.
    #[prost(uint64, tag = "6")]
    pub values_to: u64,
    /// Keep telling while it is live.
    #[prost(bool, tag = "7")]
    pub follow: bool,
    /// And send its recipe.
    #[prost(bool, tag = "8")]
    pub recipe: bool,
    /// And send samples of its pieces.
    #[prost(bool, tag = "9")]
    pub samples: bool,
}

/// Answers [`Describe`].
#[derive(Clone, PartialEq, Message)]
pub struct Description {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// True for a tree descriptor.
    #[prost(bool, tag = "2")]
    pub is_tree: bool,
    /// One path component, or empty.
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
    /// Permission bits.
    #[prost(uint32, optional, tag = "4")]
    pub mode: Option<u32>,
    /// Modification time, seconds.
    #[prost(sint64, optional, tag = "5")]
    pub seconds: Option<i64>,
    /// Modification time, nanoseconds.
    #[prost(uint32, tag = "6")]
    pub nanos: u32,
    /// Bytes; absent while the object is live.
    #[prost(uint64, optional, tag = "7")]
    pub size: Option<u64>,
    /// Metadata of the sender's processors.
    #[prost(message, repeated, tag = "8")]
    pub metadata: Vec<KeyValue>,
}

/// One of an object's metadata.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// A name of up to 64 bytes.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Up to 1024 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Proves a run of pieces.
#[derive(Clone, PartialEq, Message)]
pub struct ProofOf {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// Index of the want, when it precedes data.
    #[prost(uint32, optional, tag = "2")]
    pub want: Option<u32>,
    /// First piece.
    #[prost(uint64, tag = "3")]
    pub first: u64,
    /// Number of pieces.
    #[prost(uint64, tag = "4")]
    pub count: u64,
    /// See `docs/formats/pieces.md`.
    #[prost(bytes = "bytes", tag = "5")]
    pub nodes: Bytes,
}

/// A signed statement about a live object.
#[derive(Clone, PartialEq, Message)]
pub struct Stated {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// `live::Statement::to_bytes`.
    #[prost(bytes = "bytes", tag = "2")]
    pub statement: Bytes,
    /// Ed25519.
    #[prost(bytes = "bytes", tag = "3")]
    pub signature: Bytes,
}

/// The word of a ticket's issuer that the ticket is over. To be sent only to who proved the ticket's secret.
#[derive(Clone, PartialEq, Message)]
pub struct Withdrawn {
    /// `withdrawal::Withdrawal::to_bytes`.
    #[prost(bytes = "bytes", tag = "1")]
    pub withdrawal: Bytes,
    /// Ed25519, of the ticket's node.
    #[prost(bytes = "bytes", tag = "2")]
    pub signature: Bytes,
}

/// The asking side needs nothing more under a root: the connection stays for whatever else goes over it.
#[derive(Clone, PartialEq, Message)]
pub struct WireFinished {
    /// Binary OID.
    #[prost(bytes = "bytes", tag = "1")]
    pub root: Bytes,
    /// 0 it gave up, 1 it has all of it, 2 it has the rest of it.
    #[prost(uint32, tag = "2")]
    pub how: u32,
}

/// The asking side serves what it gets under a root, to whoever proves the same ticket.
#[derive(Clone, PartialEq, Message)]
pub struct WireServes {
    /// Binary OID.
    #[prost(bytes = "bytes", tag = "1")]
    pub root: Bytes,
    /// The TCP port where it listens; 0: it serves no more.
    #[prost(uint32, tag = "2")]
    pub port: u32,
}

/// Asks a site's cache to fetch what a ticket names, for whoever has the ticket.
#[derive(Clone, PartialEq, Message)]
pub struct WireBring {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// The ticket as text. The asking side shows its right with it.
    #[prost(bytes = "bytes", tag = "2")]
    pub ticket: Bytes,
}

/// Another node that serves what is under a root, as it said to the ticket's issuer.
#[derive(Clone, PartialEq, Message)]
pub struct WireHolder {
    /// Binary OID.
    #[prost(bytes = "bytes", tag = "1")]
    pub root: Bytes,
    /// The node's public key, 32 bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub node: Bytes,
    /// Where it listens: an IP address and a port, as text.
    #[prost(string, tag = "3")]
    pub address: String,
}

/// Part of a recipe.
#[derive(Clone, PartialEq, Message)]
pub struct Recipe {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// `recipe::RecipeRoot::to_bytes`, in the first part only.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub root: Option<Bytes>,
    /// The next nodes, in the order in which a walk through the recipe needs them.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub nodes: Vec<Bytes>,
}

/// Samples of pieces.
#[derive(Clone, PartialEq, Message)]
pub struct Samples {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// The first of the pieces that they are of.
    #[prost(uint64, tag = "2")]
    pub first: u64,
    /// Those of each piece, one behind the other (`transfer::following`).
    #[prost(bytes = "bytes", tag = "3")]
    pub bytes: Bytes,
}

/// The next run of a delta of a want's base.
#[derive(Clone, PartialEq, Message)]
pub struct Delta {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// Index of the want.
    #[prost(uint32, tag = "2")]
    pub want: u32,
    /// `exchange::DeltaRun::to_bytes`.
    #[prost(bytes = "bytes", tag = "3")]
    pub bytes: Bytes,
}

/// Bytes of the object that can be had, beside those told before.
#[derive(Clone, PartialEq, Message)]
pub struct Have {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// Start, end, start, end, …: ascending, apart.
    #[prost(uint64, repeated, tag = "2")]
    pub bounds: Vec<u64>,
}

/// One want of a [`Get`].
#[derive(Clone, PartialEq, Message)]
pub struct WireWant {
    /// The object, for pieces and runs of bytes; else empty.
    #[prost(bytes = "bytes", tag = "1")]
    pub oid: Bytes,
    /// Block of the root's tree descriptor that mentions it.
    #[prost(uint64, optional, tag = "2")]
    pub block: Option<u64>,
    /// First piece.
    #[prost(uint64, tag = "3")]
    pub first: u64,
    /// Number of pieces.
    #[prost(uint32, tag = "4")]
    pub count: u32,
    /// BLAKE3 of a chunk, for chunks.
    #[prost(bytes = "bytes", tag = "5")]
    pub chunk: Bytes,
    /// First byte, for a run of bytes.
    #[prost(uint64, optional, tag = "6")]
    pub offset: Option<u64>,
    /// Number of bytes.
    #[prost(uint32, tag = "7")]
    pub len: u32,
    /// Number of an entry that the other side offers; all fields above are empty then.
    #[prost(uint64, optional, tag = "9")]
    pub entry: Option<u64>,
    /// `exchange::Request::to_bytes`: what the asking side has of the entry, or that may resemble the run of bytes; empty if it has
    /// nothing.
    #[prost(bytes = "bytes", tag = "10")]
    pub base: Bytes,
    /// The entry is compared: it must be named by its content, and does not come with its name.
    #[prost(bool, tag = "11")]
    pub compare: bool,
}

/// Asks for data.
#[derive(Clone, PartialEq, Message)]
pub struct Get {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// The right comes from here; empty if entries are asked for.
    #[prost(bytes = "bytes", tag = "2")]
    pub root: Bytes,
    /// The wants: all of them entries, or none.
    #[prost(message, repeated, tag = "3")]
    pub wants: Vec<WireWant>,
    /// Among the asking side's own `Get`s higher ones are answered first; -128 to 127.
    #[prost(sint32, tag = "4")]
    pub urgency: i32,
    /// For entries: contents of at most so many bytes may come with their names.
    #[prost(uint32, tag = "5")]
    pub inline: u32,
    /// For entries: zstd's level that answers are worth; 0: none.
    #[prost(uint32, tag = "6")]
    pub pack: u32,
}

/// Outcome of a want that did not end by its data.
#[derive(Clone, PartialEq, Message)]
pub struct WireOutcome {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// Index of the want; the whole request if absent.
    #[prost(uint32, optional, tag = "2")]
    pub want: Option<u32>,
    /// 1 not here, 2 retry later, 3 gone, 4 changed at its source, 5 refused, 6 cancelled.
    #[prost(uint32, tag = "3")]
    pub code: u32,
    /// For "retry later".
    #[prost(uint32, tag = "4")]
    pub retry_ms: u32,
    /// For people.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// The pieces that ended so, as in [`WireCancel`]; if there are any, no want is named.
    #[prost(uint32, repeated, tag = "6")]
    pub pieces: Vec<u32>,
}

/// Gives up a request, or pieces of its wants.
#[derive(Clone, PartialEq, Message)]
pub struct WireCancel {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// Want, piece of its run, want, piece, …: see [`want_pieces`]. Empty: the whole request.
    #[prost(uint32, repeated, tag = "2")]
    pub pieces: Vec<u32>,
}

/// Names a request.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOnly {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
}

/// Reason why the connection is about to be closed.
#[derive(Clone, PartialEq, Message)]
pub struct Goodbye {
    /// For people.
    #[prost(string, tag = "1")]
    pub reason: String,
}

/// Shows that its sender is alive, and may measure how long an answer takes.
#[derive(Clone, PartialEq, Message)]
pub struct Ping {
    /// A number that the peer repeats at once; 0: it need not answer.
    #[prost(uint32, tag = "1")]
    pub asks: u32,
    /// The number that the peer's ping asked to repeat; 0: it answers none.
    #[prost(uint32, tag = "2")]
    pub answers: u32,
}

/// A message of the control stream.
#[derive(Clone, PartialEq, Message)]
pub struct ControlData {
    /// At most 256 KiB, of no concern to this protocol.
    #[prost(bytes = "bytes", tag = "1")]
    pub message: Bytes,
}

/// Gives back credit of the control stream.
#[derive(Clone, PartialEq, Message)]
pub struct ControlCredit {
    /// Bytes of messages that were taken, with 64 for each message.
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

/// Ends this direction of the control stream.
#[derive(Clone, PartialEq, Message)]
pub struct ControlEnd {}

/// Any control message.
#[derive(Clone, PartialEq, Message)]
pub struct Control {
    /// Exactly one.
    #[prost(
        oneof = "Body",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29"
    )]
    pub body: Option<Body>,
}

/// The messages.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each is documented at its type")]
pub enum Body {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    Prove(Prove),
    #[prost(message, tag = "3")]
    Describe(Describe),
    #[prost(message, tag = "4")]
    Description(Description),
    #[prost(message, tag = "5")]
    Proof(ProofOf),
    #[prost(message, tag = "6")]
    Stated(Stated),
    #[prost(message, tag = "7")]
    Have(Have),
    #[prost(message, tag = "8")]
    Get(Get),
    #[prost(message, tag = "9")]
    Outcome(WireOutcome),
    #[prost(message, tag = "10")]
    Cancel(WireCancel),
    #[prost(message, tag = "11")]
    Done(RequestOnly),
    #[prost(message, tag = "12")]
    Goodbye(Goodbye),
    #[prost(message, tag = "13")]
    Ping(Ping),
    #[prost(message, tag = "14")]
    Watch(Describe),
    #[prost(message, tag = "15")]
    ControlData(ControlData),
    #[prost(message, tag = "16")]
    ControlCredit(ControlCredit),
    #[prost(message, tag = "17")]
    ControlEnd(ControlEnd),
    #[prost(message, tag = "18")]
    Recipe(Recipe),
    #[prost(message, tag = "19")]
    Delta(Delta),
    #[prost(message, tag = "20")]
    Samples(Samples),
    #[prost(message, tag = "21")]
    Contents(Contents),
    #[prost(message, tag = "22")]
    Run(WireRun),
    #[prost(message, tag = "23")]
    Signature(WireSignature),
    #[prost(message, tag = "24")]
    ContentCredit(ContentCredit),
    #[prost(message, tag = "25")]
    Withdrawn(Withdrawn),
    #[prost(message, tag = "26")]
    Finished(WireFinished),
    #[prost(message, tag = "27")]
    Serves(WireServes),
    #[prost(message, tag = "28")]
    Holder(WireHolder),
    #[prost(message, tag = "29")]
    Bring(WireBring),
}

impl Body {
    /// The frame body.
    pub fn to_frame(self) -> Bytes {
        Control { body: Some(self) }.encode_to_vec().into()
    }

    /// Bytes of the frame body.
    pub fn frame_len(&self) -> usize {
        self.encoded_len()
    }

    /// Reads a frame body, of one message within its limits. Nested byte strings share its memory: whoever
    /// keeps one keeps all of that.
    pub fn from_frame(bytes: Bytes) -> Result<Self, DecodeError> {
        limits::check(&bytes)?;
        let control = Control::decode(bytes).map_err(|_| invalid("message", "is not Protocol Buffers"))?;
        control.body.ok_or(invalid("message", "is of an unknown kind"))
    }
}

/// An OID as a message field.
pub fn oid_field(oid: &Oid) -> Bytes {
    Bytes::copy_from_slice(&oid.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_messages_are_told_apart_from_unknown_fields() {
        // Field 99, varint 1: no message of this version.
        assert!(Body::from_frame(Bytes::from_static(&[0x98, 0x06, 0x01])).is_err());
        let mut ping = Body::Ping(Ping::default()).to_frame().to_vec();
        ping.extend_from_slice(&[0x98, 0x06, 0x01]);
        assert_eq!(Body::from_frame(ping.into()), Ok(Body::Ping(Ping::default())));
    }
}
