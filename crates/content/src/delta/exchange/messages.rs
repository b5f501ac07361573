//! Messages of the exchange as sum types, and their bytes (`docs/formats/delta-exchange.md`).

use crate::Oid;
use crate::codec::{DecodeError, Reader, Writer, invalid};

use super::parts::{MAX_PART_LEN, MAX_PARTS};
use super::{MAX_OUTLINE_LEN, MAX_OUTLINES, MAX_RUN_LEN, MAX_SIGNATURE_LEN, MAX_WHOLE_LEN};

const SIGNATURE: u8 = 0;
const NAMED: u8 = 1;
const PARTS: u8 = 2;
const OUTLINED: u8 = 3;

/// From the requester, first: a file is wanted, and this is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Description of the base.
    pub base: Base,
    /// The base may be quite another file: no delta should come that saves little.
    pub is_guess: bool,
    /// Outlines of a part that the requester answers.
    pub outlines: usize,
}

/// A base, as a request describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// Its signature, as one part.
    Signature(Vec<u8>),
    /// Its name, in case the responder has it too.
    Named(Oid),
    /// Its parts are signed in messages of their own.
    Parts {
        /// Number of parts.
        count: u64,
        /// Signatures that follow at once.
        ahead: u64,
    },
    /// Outlines that came of it, as one part, and the signature of what they leave: the next step, requested by itself.
    Outlined {
        /// Bytes of the base.
        base_len: u64,
        /// The outlines, in their order; one or more.
        outlines: Vec<Vec<u8>>,
        /// Signature of what they leave.
        signature: Vec<u8>,
    },
}

/// From the requester: the next signature that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextSignature {
    /// No more of the file should come so.
    GivenUp,
    /// Of the next part, or of what an outline leaves.
    Signed(Vec<u8>),
}

/// From the responder, first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The file is the base that was named.
    Same,
    /// The base that was named is not here.
    UnknownBase,
    /// The file should be fetched.
    GivenUp,
    /// All of it, as a delta of what was signed or a patch of what was named.
    Whole(Vec<u8>),
    /// It comes in runs.
    InParts,
}

/// From the responder: bytes of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaRun<'a> {
    /// More follow.
    More(&'a [u8]),
    /// The last ones of a step.
    Last(DeltaStep, &'a [u8]),
    /// The file should be fetched.
    GivenUp,
}

/// A step towards a part: the meaning of the bytes of its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaStep {
    /// A patch of the base that was named, for the next part.
    Patch,
    /// A delta, which may be one zstd frame.
    Delta {
        /// Its target.
        of: StepOf,
        /// It is packed.
        is_packed: bool,
    },
    /// A delta whose literals follow later.
    Outline {
        /// Its target.
        of: StepOf,
        /// Outlines of this part that may follow.
        further: usize,
    },
}

/// Target of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOf {
    /// The next part.
    NextPart {
        /// The next signature of a part is wanted, too.
        wants_signature: bool,
    },
    /// Literals of the first outline that waits for them.
    Literals,
}

impl Base {
    /// Its name, if that is all that describes it.
    pub const fn oid(&self) -> Option<Oid> {
        if let Self::Named(oid) = self { Some(*oid) } else { None }
    }

    /// Signatures that follow a request with this base.
    pub const fn ahead(&self) -> u64 {
        if let Self::Parts { ahead, .. } = self { *ahead } else { 0 }
    }

    /// Bytes of the signature.
    pub const fn signature_len(&self) -> usize {
        match self {
            Self::Signature(signature) | Self::Outlined { signature, .. } => signature.len(),
            Self::Named(_) | Self::Parts { .. } => 0,
        }
    }

    fn read_outlined(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let base_len = reader.bounded("base bytes", MAX_PART_LEN)?;
        let count = reader.bounded("outlines that came", MAX_OUTLINES as u64)?;
        if count == 0 {
            return Err(invalid("outlines that came", "are none"));
        }
        let outline = |_| Ok(reader.bytes("outline", MAX_OUTLINE_LEN)?.to_vec());
        let outlines = (0..count).map(outline).collect::<Result<_, DecodeError>>()?;
        let signature = rest(reader, "signature", MAX_SIGNATURE_LEN)?.to_vec();
        Ok(Self::Outlined { base_len, outlines, signature })
    }
}

impl DeltaStep {
    /// Signatures that the step wants in answer.
    pub const fn wanted(&self) -> usize {
        match self {
            Self::Patch => 0,
            Self::Delta { of, .. } => of.wanted(),
            Self::Outline { of, .. } => 1 + of.wanted(),
        }
    }
}

impl StepOf {
    const fn wanted(self) -> usize {
        matches!(self, Self::NextPart { wants_signature: true }) as usize
    }

    const fn code(self) -> u8 {
        match self {
            Self::NextPart { wants_signature: false } => 0,
            Self::NextPart { wants_signature: true } => 1,
            Self::Literals => 2,
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8("target of a step")? {
            code @ (0 | 1) => Ok(Self::NextPart { wants_signature: code == 1 }),
            2 => Ok(Self::Literals),
            _ => Err(invalid("target of a step", "is not known")),
        }
    }
}

impl DeltaRun<'_> {
    /// Signatures that the run wants in answer.
    pub const fn wanted(&self) -> usize {
        if let Self::Last(step, _) = self { step.wanted() } else { 0 }
    }
}

impl Request {
    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        let kind = match self.base {
            Base::Signature(_) => SIGNATURE,
            Base::Named(_) => NAMED,
            Base::Parts { .. } => PARTS,
            Base::Outlined { .. } => OUTLINED,
        };
        writer.u8(kind).u8(self.is_guess.into()).varint(self.outlines as u64);
        match &self.base {
            Base::Signature(signature) => drop(writer.raw(signature)),
            Base::Named(oid) => oid.encode(&mut writer),
            Base::Parts { count, ahead } => drop(writer.varint(*count).varint(*ahead)),
            Base::Outlined { base_len, outlines, signature } => {
                writer.varint(*base_len).varint(outlines.len() as u64);
                for outline in outlines {
                    writer.bytes(outline);
                }
                writer.raw(signature);
            }
        }
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8("base")?;
        let is_guess = read_flag(&mut reader, "guess")?;
        let outlines = reader.bounded("outlines", MAX_OUTLINES as u64)? as usize;
        let base = match kind {
            SIGNATURE => Base::Signature(rest(&mut reader, "signature", MAX_SIGNATURE_LEN)?.to_vec()),
            NAMED => Base::Named(Oid::decode(&mut reader)?),
            PARTS => {
                let count = reader.bounded("parts", MAX_PARTS)?;
                let ahead = reader.bounded("signatures ahead", count)?;
                if ahead == 0 {
                    return Err(invalid("signatures ahead", "are none"));
                }
                Base::Parts { count, ahead }
            }
            OUTLINED => Base::read_outlined(&mut reader)?,
            _ => return Err(invalid("base", "is of no known kind")),
        };
        reader.finish()?;
        Ok(Self { base, is_guess, outlines })
    }
}

impl NextSignature {
    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::GivenUp => vec![0],
            Self::Signed(signature) => [&[1], &signature[..]].concat(),
        }
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let next = match reader.u8("next signature")? {
            0 => Self::GivenUp,
            1 => Self::Signed(rest(&mut reader, "signature", MAX_SIGNATURE_LEN)?.to_vec()),
            _ => return Err(invalid("next signature", "is of no known kind")),
        };
        reader.finish().map(|()| next)
    }

    /// Bytes of the signature.
    pub const fn len(&self) -> usize {
        if let Self::Signed(signature) = self { signature.len() } else { 0 }
    }

    /// True if there is no signature.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Reply {
    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Same => vec![0],
            Self::UnknownBase => vec![1],
            Self::GivenUp => vec![2],
            Self::Whole(bytes) => [&[3], &bytes[..]].concat(),
            Self::InParts => vec![4],
        }
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let reply = match reader.u8("reply")? {
            0 => Self::Same,
            1 => Self::UnknownBase,
            2 => Self::GivenUp,
            3 => Self::Whole(rest(&mut reader, "whole delta", MAX_WHOLE_LEN)?.to_vec()),
            4 => Self::InParts,
            _ => return Err(invalid("reply", "is of no known kind")),
        };
        reader.finish().map(|()| reply)
    }
}

impl<'a> DeltaRun<'a> {
    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (head, bytes): (&[u8], &[u8]) = match self {
            Self::More(bytes) => (&[0], bytes),
            Self::Last(DeltaStep::Patch, bytes) => (&[1, 0, 0], bytes),
            Self::Last(DeltaStep::Delta { of, is_packed }, bytes) => {
                (&[1, 1 + u8::from(*is_packed), of.code()], bytes)
            }
            Self::Last(DeltaStep::Outline { of, further }, bytes) => {
                (&[1, 3, *further as u8, of.code()], bytes)
            }
            Self::GivenUp => (&[2], &[]),
        };
        [head, bytes].concat()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let run = match reader.u8("run")? {
            0 => Self::More(rest(&mut reader, "run", MAX_RUN_LEN)?),
            1 => Self::Last(DeltaStep::read(&mut reader)?, rest(&mut reader, "run", MAX_RUN_LEN)?),
            2 => Self::GivenUp,
            _ => return Err(invalid("run", "is of no known kind")),
        };
        reader.finish().map(|()| run)
    }
}

impl DeltaStep {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = reader.u8("step")?;
        let further = match kind {
            0..=2 => 0,
            3 => reader.bounded("further outlines", MAX_OUTLINES as u64 - 1)? as usize,
            _ => return Err(invalid("step", "is of no known kind")),
        };
        let of = StepOf::read(reader)?;
        match (kind, of) {
            (0, StepOf::NextPart { wants_signature: false }) => Ok(Self::Patch),
            (0, _) => Err(invalid("target of a patch", "is none that it has")),
            (3, _) => Ok(Self::Outline { of, further }),
            (_, _) => Ok(Self::Delta { of, is_packed: kind == 2 }),
        }
    }
}

fn read_flag(reader: &mut Reader<'_>, field: &'static str) -> Result<bool, DecodeError> {
    match reader.u8(field)? {
        flag @ (0 | 1) => Ok(flag == 1),
        _ => Err(invalid(field, "must be 0 or 1")),
    }
}

/// All that is left, at most `limit` bytes.
fn rest<'a>(reader: &mut Reader<'a>, field: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
    let len = reader.remaining();
    if len > limit {
        return Err(DecodeError::TooLarge { field, found: len as u64, limit: limit as u64 });
    }
    reader.take(field, len)
}
