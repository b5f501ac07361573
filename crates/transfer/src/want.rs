//! Wants of a session, the deliveries of sources, and how each want ends.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::delta::exchange::Request;
use towpath_content::pieces::{Layout, Value};
use towpath_content::tree::Time;

use crate::source_id::SourceId;

/// Names a want within its session; never used twice.
pub type Tag = u64;

/// Names an object within its session; never used twice.
pub type ObjectKey = u64;

/// Content that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WantId {
    /// A piece of an object, checked by its value in the object's BLAKE3 tree.
    Piece {
        /// The object, content or live.
        oid: Oid,
        /// Layout of the object.
        layout: Layout,
        /// Number of the piece.
        index: u64,
    },
    /// A chunk that a recipe names, wherever it is found.
    Chunk {
        /// BLAKE3 of its bytes.
        hash: [u8; 32],
        /// Its bytes.
        len: u32,
    },
    /// A block that means nothing to the service, named by the BLAKE3 hash of its bytes.
    Block {
        /// BLAKE3 of its bytes.
        hash: [u8; 32],
        /// Its bytes.
        len: u32,
    },
}

impl WantId {
    /// Bytes that a delivery must have.
    pub fn len(&self) -> u64 {
        match self {
            Self::Piece { layout, index, .. } => layout.len(*index),
            Self::Chunk { len, .. } | Self::Block { len, .. } => u64::from(*len),
        }
    }

    /// True if it is all of an object whose content is known: its bytes are checked by the object's name alone.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Piece { oid, layout, .. } if layout.count() == 1 && !oid.is_live())
    }

    /// True if it is a chunk that is all of this object, by whose name it is checked.
    pub fn is_chunk_of_all(&self, object: &Oid) -> bool {
        matches!(self, Self::Chunk { hash, .. } if Oid::Blake3(*hash) == *object)
    }

    /// True if a delivery has no bytes (the piece of the empty object).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One position where wanted bytes belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectOffset {
    /// The object.
    pub object: ObjectKey,
    /// First byte.
    pub offset: u64,
}

/// Origin of the right to an object when it is not the ticket's own: block `block` of the
/// ticket's tree descriptor mentions it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Coverage {
    /// Number of the descriptor's block.
    pub block: u64,
}

/// Facts of the file that a want belongs to: dsync's metadata group (`papers/dsync.txt`
/// §5.2), by which sources order their search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Path inside the transferred tree, raw bytes; empty for a single object.
    pub path: Vec<u8>,
    /// Bytes of the whole file, if known.
    pub size: Option<u64>,
    /// Its modification time, if known.
    pub modified: Option<Time>,
    /// Path that it will have on this machine, if it will be a file; or that of an older version which lies elsewhere.
    pub destination: Option<PathBuf>,
    /// Path of a file that may be an older version as well as quite another file.
    pub older: Option<PathBuf>,
    /// See [`Coverage`].
    pub coverage: Option<Coverage>,
    /// Place of its first byte in the root's space ([`root_space`](crate::root_space)), if that is known and it is not the root.
    pub in_root: Option<u64>,
}

/// Position of a chunk in an object for which the object's source can be asked: whoever has the
/// right to the object has it to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The object, by its content.
    pub oid: Oid,
    /// The chunk's first byte in it.
    pub offset: u64,
}

/// Base on this machine that likely resembles a run of wanted chunks, or a piece: a source that knows how may
/// send its signature and take a delta (`docs/formats/delta-exchange.md`). A guess: whoever does not know
/// what to do with it leaves it out, and what is made of it is checked like anything else.
#[derive(Debug, PartialEq, Eq)]
pub struct SignedBase {
    /// The base region.
    pub bytes: Bytes,
    /// The request that has its signature. If that calls it a guess, what is wanted is of no use but as a delta: whoever makes none
    /// of little has it not.
    pub request: Request,
}

/// One thing to bring, with every position it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Named so in deliveries and outcomes.
    pub tag: Tag,
    /// Content that is wanted.
    pub id: WantId,
    /// Positions that it belongs to, one or more.
    pub positions: Vec<ObjectOffset>,
    /// File that it is part of.
    pub group: Arc<Group>,
    /// Of a chunk: a position at which it can be requested as a run of bytes, in the file of `group`.
    pub origin: Option<Origin>,
    /// Of a piece: its value, if that is known. Bytes that come without a proof are checked by it.
    pub value: Option<Value>,
    /// Of a chunk with `origin`, or of a piece that can be checked without a proof: what likely resembles it. Chunks that
    /// follow each other in the object may have one together.
    pub base: Option<Arc<SignedBase>>,
    /// Of a piece, or of a chunk with `origin`: the only bytes of it that are missing, counted from its begin. A source that knows
    /// how may deliver these alone, without a proof; whoever does not know what to do with it delivers all.
    pub part: Option<Range<u64>>,
    /// All of it is to come from one source: put together from several it was wrong, and again it would not show whose fault that
    /// is; or it has a base, which is of no use to parts. For those who deal wants out; who brings them has nothing to do with it.
    pub undivided: bool,
}

impl Want {
    /// A want of which nothing more is known: it belongs nowhere yet.
    pub fn new(tag: Tag, id: WantId) -> Self {
        let (positions, group) = (Vec::new(), Arc::default());
        Self {
            tag,
            id,
            positions,
            group,
            origin: None,
            value: None,
            base: None,
            part: None,
            undivided: false,
        }
    }

    /// True if its bytes can be checked without a proof: by the value of a piece, or by the object's name if it is all of that.
    pub fn needs_no_proof(&self) -> bool {
        self.value.is_some() || self.id.is_whole()
    }

    /// The object, if it is wanted as one chunk that is all of it: as its older version makes that.
    pub fn whole_object(&self) -> Option<Oid> {
        self.origin.map(|origin| origin.oid).filter(|oid| self.id.is_chunk_of_all(oid))
    }

    /// Bytes that have to come for it.
    pub fn missing_len(&self) -> u64 {
        self.part.as_ref().map_or_else(|| self.id.len(), |part| part.end - part.start)
    }
}

/// Values of a run of pieces, proved against the OID (`pieces::verify`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The pieces proved.
    pub run: Range<u64>,
    /// See `docs/formats/pieces.md`.
    pub nodes: Bytes,
}

/// The bytes of a want.
#[derive(Debug, Clone)]
pub enum Payload {
    /// As they are.
    Bytes(Bytes),
    /// Those of a chunk whose hash was computed of these very bytes, in this program and just now: the session does
    /// not compute it again. The pieces that they become part of are checked like all others.
    Hashed(Bytes),
    /// All zero, as many as the want has: a hole in a sparse file. Nothing crossed the network.
    Zeros,
    /// Brought in parts by several sources: ascending, and together all that was wanted
    /// ([`PieceParts`](crate::gathering::PieceParts)).
    Gathered(Vec<PiecePart>),
}

/// A part of a want, as one source brought it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiecePart {
    /// Its first byte, counted from the begin of the want.
    pub start: u64,
    /// Its bytes.
    pub bytes: Bytes,
    /// Source of the bytes.
    pub source: SourceId,
}

impl PiecePart {
    /// Where it lies, counted from the begin of the want.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }
}

impl Payload {
    /// The bytes, if they lie in one place: not those that came in parts.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) | Self::Hashed(bytes) => bytes,
            Self::Zeros | Self::Gathered(_) => &[],
        }
    }

    /// Number of bytes that take memory.
    pub fn memory(&self) -> usize {
        match self {
            Self::Gathered(parts) => parts.iter().map(|part| part.bytes.len()).sum(),
            _ => self.bytes().len(),
        }
    }

    /// The bytes in one place, of which zeros are `len`.
    pub fn to_bytes(&self, len: u64) -> Cow<'_, [u8]> {
        match self {
            Self::Bytes(bytes) | Self::Hashed(bytes) => Cow::Borrowed(bytes),
            Self::Zeros => vec![0; len as usize].into(),
            Self::Gathered(parts) => parts.iter().flat_map(|part| &part.bytes).copied().collect(),
        }
    }
}

/// Bytes that a source brought, not checked yet.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Want that was delivered.
    pub tag: Tag,
    /// The bytes.
    pub payload: Payload,
    /// For a piece whose value the session may not know yet. Only a source whose state says that it proves nothing has none.
    pub proof: Option<Arc<Proof>>,
    /// Source of the bytes.
    pub source: SourceId,
    /// Time of the request to the source, and of the last byte.
    pub timing: (Instant, Instant),
    /// Bytes of them that did not have to come, because they were made of the want's [`SignedBase`].
    pub saved: u64,
}

/// End of a want, if not by its delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This source does not have it. Asking again is of no use unless something changes.
    NotHere,
    /// The source may have it later, or the way there is broken for now.
    RetryLater(Duration),
    /// The source had it and never will again.
    Gone,
    /// The file it comes from changed at the source. Nobody is to blame.
    SourceChanged,
    /// The source does not let us have it.
    Refused(String),
    /// The session cancelled it.
    Cancelled,
}
