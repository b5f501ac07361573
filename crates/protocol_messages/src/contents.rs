//! Contents of entries, and what goes along with them: runs of deltas, signatures, credit.

use bytes::Bytes;
use prost::{Message, Oneof};
use towpath_content::codec::invalid;
use towpath_content::delta::exchange::Reply;
use towpath_content::tree::Time;
use towpath_content::{DecodeError, Oid};
use towpath_transfer::offer::{EntryBody, EntryContent};

use super::{MAX_CONTENTS, MAX_ENTRIES, oid_field};
use crate::counting::has_at_most;
use crate::packing::unpack;

/// Contents of entries that one [`Get`](super::Get) asks for.
#[derive(Clone, PartialEq, Message)]
pub struct Contents {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// Exactly one.
    #[prost(oneof = "ContentsBody", tags = "2, 3")]
    pub body: Option<ContentsBody>,
}

/// Contents as they are, or packed.
#[derive(Clone, PartialEq, Oneof)]
pub enum ContentsBody {
    /// As they are.
    #[prost(message, tag = "2")]
    List(ContentList),
    /// The bytes of a [`ContentList`], as one zstd frame that tells its length.
    #[prost(bytes = "bytes", tag = "3")]
    Packed(Bytes),
}

/// Contents, each of another want.
#[derive(Clone, PartialEq, Message)]
pub struct ContentList {
    /// One or more.
    #[prost(message, repeated, tag = "1")]
    pub contents: Vec<WireContent>,
}

/// The content of an entry.
#[derive(Clone, PartialEq, Message)]
pub struct WireContent {
    /// Index of the want.
    #[prost(uint32, tag = "1")]
    pub want: u32,
    /// Binary OID; empty only where there is a reply.
    #[prost(bytes = "bytes", tag = "2")]
    pub oid: Bytes,
    /// Bytes, as they are now.
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// Modification time, as it is now: seconds.
    #[prost(sint64, tag = "4")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(uint32, tag = "5")]
    pub nanos: u32,
    /// It takes less room on disk than it has bytes.
    #[prost(bool, tag = "6")]
    pub is_sparse: bool,
    /// What comes with the name, if anything does.
    #[prost(oneof = "ContentBody", tags = "7, 8")]
    pub body: Option<ContentBody>,
}

/// Bytes that come with a name.
#[derive(Clone, PartialEq, Oneof)]
pub enum ContentBody {
    /// All of the content.
    #[prost(bytes = "bytes", tag = "7")]
    Whole(Bytes),
    /// `exchange::Reply::to_bytes`.
    #[prost(bytes = "bytes", tag = "8")]
    Reply(Bytes),
}

/// The next run of an entry that comes in parts.
#[derive(Clone, PartialEq, Message)]
pub struct WireRun {
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

/// The next signature of an entry's base.
#[derive(Clone, PartialEq, Message)]
pub struct WireSignature {
    /// Request number.
    #[prost(uint32, tag = "1")]
    pub request: u32,
    /// Index of the want.
    #[prost(uint32, tag = "2")]
    pub want: u32,
    /// `exchange::NextSignature::to_bytes`.
    #[prost(bytes = "bytes", tag = "3")]
    pub bytes: Bytes,
}

/// Gives back credit of contents and runs.
#[derive(Clone, PartialEq, Message)]
pub struct ContentCredit {
    /// Bytes of frames that were taken, with 64 for each.
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

impl ContentList {
    /// Unpacks one, and tells how many bytes it has.
    pub fn unpack(packed: &[u8]) -> Result<(Self, usize), DecodeError> {
        let bytes = unpack(packed, MAX_CONTENTS as u64).ok_or(invalid("contents", "can't be unpacked"))?;
        if !has_at_most(&bytes, &[1], MAX_ENTRIES) {
            return Err(invalid("contents", "are too many"));
        }
        let len = bytes.len();
        let list = Self::decode(Bytes::from(bytes)).map_err(|_| invalid("contents", "are none"))?;
        Ok((list, len))
    }
}

impl WireContent {
    /// As a message.
    pub fn new(want: u32, content: EntryContent) -> Self {
        let EntryContent { oid, size, modified, is_sparse, body } = content;
        let body = match body {
            EntryBody::Named => None,
            EntryBody::Whole(bytes) => Some(ContentBody::Whole(bytes)),
            EntryBody::Delta(reply) => Some(ContentBody::Reply(reply.to_bytes().into())),
        };
        let oid = oid.as_ref().map(oid_field).unwrap_or_default();
        Self { want, oid, size, seconds: modified.seconds, nanos: modified.nanos, is_sparse, body }
    }

    /// Its meaning; out-of-range values are clipped.
    pub fn content(self) -> Result<EntryContent, DecodeError> {
        let oid = if self.oid.is_empty() { None } else { Some(Oid::from_bytes(&self.oid)?) };
        let body = match self.body {
            None => EntryBody::Named,
            Some(ContentBody::Whole(bytes)) => EntryBody::Whole(bytes),
            Some(ContentBody::Reply(bytes)) => EntryBody::Delta(Reply::from_bytes(&bytes)?),
        };
        if oid.is_none() && !matches!(body, EntryBody::Delta(_)) {
            return Err(invalid("content", "has no name"));
        }
        let modified = Time { seconds: self.seconds, nanos: self.nanos.min(999_999_999) };
        Ok(EntryContent { oid, size: self.size, modified, is_sparse: self.is_sparse, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::pack;

    fn whole(len: usize) -> WireContent {
        WireContent { body: Some(ContentBody::Whole(vec![0; len].into())), ..WireContent::default() }
    }

    fn unpacked(contents: Vec<WireContent>) -> Result<(ContentList, usize), DecodeError> {
        ContentList::unpack(&pack(&ContentList { contents }.encode_to_vec(), 1).unwrap())
    }

    #[test]
    fn contents_come_back() {
        let oid = Some(Oid::of(b"x"));
        for (oid, body) in [
            (oid, EntryBody::Named),
            (Some(Oid::Live([7; 32])), EntryBody::Named),
            (oid, EntryBody::Whole(Bytes::new())),
            (oid, EntryBody::Whole(Bytes::from_static(b"x"))),
            (oid, EntryBody::Delta(Reply::InParts)),
            (None, EntryBody::Delta(Reply::Whole(b"delta".to_vec()))),
        ] {
            let modified = Time { seconds: i64::MIN, nanos: 999_999_999 };
            let content = EntryContent { oid, size: u64::MAX, modified, is_sparse: true, body };
            let message = WireContent::new(3, content.clone());
            let read = WireContent::decode(&message.encode_to_vec()[..]).unwrap();
            assert_eq!((read.want, read.content()), (3, Ok(content)));
        }
        let odd = WireContent { nanos: u32::MAX, oid: oid_field(&Oid::of(b"x")), ..WireContent::default() };
        assert_eq!(odd.content().unwrap().modified.nanos, 999_999_999);
    }

    #[test]
    fn packed_contents_are_bounded_before_they_are_read() {
        let (list, len) = unpacked(vec![whole(500); MAX_ENTRIES]).unwrap();
        assert_eq!((list.contents.len(), len), (MAX_ENTRIES, list.encoded_len()));
        for (contents, words) in [
            (vec![whole(0); MAX_ENTRIES + 1], "too many"),
            (vec![WireContent::default(); 100_000], "too many"),
            (vec![whole(MAX_CONTENTS)], "can't be unpacked"),
        ] {
            let error = unpacked(contents).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
