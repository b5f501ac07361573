//! The head of a `.tow`: the small file that `tow publish` writes beside a file, so that any web server which holds the two is
//! enough to fetch it from. It names the content and tells where parts of the `.tow` lie: the values of the pieces, and what helps
//! whoever has something similar. Layout: `docs/formats/published.md`.

use std::ops::Range;

use crate::Oid;
use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::hint::MAX_METHOD;
use crate::pieces::{Layout, VALUE_LEN, Value};
use crate::ticket::{decode_file_facts, encode_file_facts};
use crate::tree::Time;

/// Bytes in front of a head: mark, and length of the head.
pub const FRONT_LEN: usize = MARK.len() + 4;
/// The longest head, in bytes.
pub const MAX_HEAD: usize = 64 << 10;
/// The most places that a head names.
pub const MAX_PLACES: usize = 64;
/// The most sections.
pub const MAX_SECTIONS: usize = 16;
/// The longest section, in bytes.
pub const MAX_SECTION: u64 = 256 << 20;

/// Bytes of the shortest node of a recipe, or fewer: it holds one hash at least.
const LEAST_NODE: usize = 32;
const MARK: &[u8; 8] = b"towpath\n";
const VERSION: u64 = 1;

/// What a section holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SectionKind {
    /// The values of all pieces, 32 bytes each.
    Values,
    /// The recipe: root and nodes in the order of a walk, each with its length in front.
    Recipe,
    /// Sums of large blocks, to find them in an older version.
    LargeBlocks,
    /// Sums of small blocks, of which only those are looked at that lie where no large one was found.
    SmallBlocks,
    /// Nothing that this program knows.
    Unknown(u64),
}

/// A section of a `.tow`, all of which lie behind the head, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TowSection {
    /// What it holds.
    pub kind: SectionKind,
    /// Its bytes.
    pub len: u64,
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
}

/// The head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedHead {
    /// The content of the file.
    pub oid: Oid,
    /// Its bytes.
    pub size: u64,
    /// Its name: one path component, or empty. Nothing says that it is safe to use.
    pub name: Vec<u8>,
    /// Permission bits, if they are known.
    pub mode: Option<u32>,
    /// Time of last modification, if it is known.
    pub modified: Option<Time>,
    /// URLs of the file, absolute or from the place of the `.tow` on. None: it lies beside, by the name of the `.tow` without that end.
    pub places: Vec<String>,
    /// The sections, in their order.
    pub sections: Vec<TowSection>,
}

impl SectionKind {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Recipe => "recipe",
            Self::LargeBlocks => "large blocks",
            Self::SmallBlocks => "small blocks",
            Self::Unknown(_) => "other",
        }
    }

    const fn tag(self) -> u64 {
        match self {
            Self::Values => 1,
            Self::Recipe => 2,
            Self::LargeBlocks => 3,
            Self::SmallBlocks => 4,
            Self::Unknown(tag) => tag,
        }
    }

    const fn of(tag: u64) -> Self {
        match tag {
            1 => Self::Values,
            2 => Self::Recipe,
            3 => Self::LargeBlocks,
            4 => Self::SmallBlocks,
            tag => Self::Unknown(tag),
        }
    }
}

impl TowSection {
    /// The section that `bytes` are.
    pub fn of(kind: SectionKind, bytes: &[u8]) -> Self {
        Self { kind, len: bytes.len() as u64, hash: *blake3::hash(bytes).as_bytes() }
    }

    /// True if `bytes` are this section.
    pub fn is(&self, bytes: &[u8]) -> bool {
        *self == Self::of(self.kind, bytes)
    }
}

impl PublishedHead {
    /// Mark, length and head, as a `.tow` begins.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.varint(VERSION);
        self.oid.encode(&mut writer);
        writer.varint(self.size);
        encode_file_facts(&mut writer, (&self.name, self.mode, self.modified));
        writer.varint(self.places.len() as u64);
        for place in &self.places {
            writer.bytes(place.as_bytes());
        }
        writer.varint(self.sections.len() as u64);
        for section in &self.sections {
            writer.varint(section.kind.tag()).varint(section.len).raw(&section.hash);
        }
        let head = writer.into_bytes();
        let mut bytes = MARK.to_vec();
        bytes.extend_from_slice(&(head.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&head);
        bytes
    }

    /// Bytes of the head behind these first [`FRONT_LEN`] ones.
    pub fn len_of(front: &[u8]) -> Result<usize, DecodeError> {
        let mut reader = Reader::new(front);
        if reader.array("mark")? != *MARK {
            return Err(invalid("mark", "is not that of a .tow file"));
        }
        let found = u64::from(u32::from_be_bytes(reader.array("length of the head")?));
        let limit = MAX_HEAD as u64;
        if found > limit {
            return Err(DecodeError::TooLarge { field: "length of the head", found, limit });
        }
        Ok(found as usize)
    }

    /// Reads the head, which is what follows the first [`FRONT_LEN`] bytes.
    pub fn from_bytes(head: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(head);
        let found = reader.varint("published file")?;
        if found != VERSION {
            return Err(DecodeError::Version { field: "published file", found, known: VERSION });
        }
        let oid = Oid::decode(&mut reader)?;
        if oid.is_live() {
            return Err(invalid("OID", "names no content"));
        }
        let size = reader.varint("size")?;
        Layout::of(size).map_err(|_| invalid("size", "is larger than any object"))?;
        let (name, mode, modified) = decode_file_facts(&mut reader)?;
        let places = reader.bounded("places", MAX_PLACES as u64)?;
        let places = (0..places).map(|_| place(&mut reader)).collect::<Result<_, _>>()?;
        let count = reader.bounded("sections", MAX_SECTIONS as u64)?;
        let sections = (0..count).map(|_| section(&mut reader)).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Self { oid, size, name, mode, modified, places, sections })
    }

    /// The section of this kind, and where it lies in the `.tow`; `front` are the bytes of mark, length and head.
    pub fn section(&self, kind: SectionKind, front: u64) -> Option<(TowSection, Range<u64>)> {
        let mut start = front;
        for section in &self.sections {
            let end = start + section.len;
            if section.kind == kind {
                return Some((*section, start..end));
            }
            start = end;
        }
        None
    }
}

fn place(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = reader.bytes("place", MAX_METHOD)?;
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("place", "not UTF-8"))?;
    if text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid("place", "is empty or contains spaces or control characters"));
    }
    Ok(text.to_owned())
}

fn section(reader: &mut Reader<'_>) -> Result<TowSection, DecodeError> {
    let kind = SectionKind::of(reader.varint("kind of section")?);
    let len = reader.bounded("length of a section", MAX_SECTION)?;
    Ok(TowSection { kind, len, hash: reader.array("hash of a section")? })
}

/// The bytes of a section of values.
pub fn values_to_bytes(values: &[Value]) -> Vec<u8> {
    values.concat()
}

/// Reads a section of values, as many as an object of this layout has.
pub fn values_from_bytes(bytes: &[u8], layout: &Layout) -> Result<Vec<Value>, DecodeError> {
    let (values, rest) = bytes.as_chunks::<VALUE_LEN>();
    if !rest.is_empty() || values.len() as u64 != layout.count() {
        return Err(invalid("values", "are not as many as the object has pieces"));
    }
    Ok(values.to_vec())
}

/// The bytes of a section of a recipe: root first, then its nodes.
pub fn recipe_to_bytes(root: &[u8], nodes: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.bytes(root);
    for node in nodes {
        writer.bytes(node);
    }
    writer.into_bytes()
}

/// Reads a section of a recipe. What its parts are is for their reader to check.
pub fn recipe_from_bytes(bytes: &[u8]) -> Result<(Vec<u8>, Vec<Vec<u8>>), DecodeError> {
    let mut reader = Reader::new(bytes);
    let root = reader.bytes("root of a recipe", crate::recipe::MAX_NODE_LEN)?.to_vec();
    let mut nodes = Vec::new();
    while reader.remaining() > 0 {
        let node = reader.bytes("node of a recipe", crate::recipe::MAX_NODE_LEN)?;
        // Each takes memory of its own beside its bytes.
        if node.len() < LEAST_NODE {
            return Err(invalid("node of a recipe", "is shorter than any"));
        }
        nodes.push(node.to_vec());
    }
    Ok((root, nodes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::node_id::hex;

    const VECTORS: &str = include_str!("../../../docs/formats/vectors/published.txt");

    fn head() -> PublishedHead {
        PublishedHead {
            oid: Oid::of(b"hello"),
            size: 5,
            name: b"hello.txt".to_vec(),
            mode: Some(0o644),
            modified: Some(Time { seconds: 1_700_000_000, nanos: 5 }),
            places: vec!["https://mirror.example/hello.txt".into(), "other/hello.txt".into()],
            sections: vec![
                TowSection::of(SectionKind::Values, &[7; 32]),
                TowSection::of(SectionKind::Unknown(99), b"later"),
                TowSection::of(SectionKind::Recipe, b"recipe"),
            ],
        }
    }

    fn read(bytes: &[u8]) -> Result<PublishedHead, DecodeError> {
        let (front, head) = bytes.split_at(FRONT_LEN);
        assert_eq!(PublishedHead::len_of(front), Ok(head.len()));
        PublishedHead::from_bytes(head)
    }

    #[test]
    fn the_published_vectors_are_read_and_written() {
        let line = |key: &str| VECTORS.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
        let bytes = head().to_bytes();
        assert_eq!(
            line("head "),
            hex(&bytes),
            "the vector of the head in docs/formats/vectors/published.txt"
        );
        assert_eq!(read(&bytes), Ok(head()));
        for refused in VECTORS.lines().filter_map(|line| line.strip_prefix("refused ")) {
            let (digits, why) = refused.split_once(' ').unwrap();
            let bytes = (0..digits.len()).step_by(2);
            let bytes: Vec<u8> =
                bytes.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
            assert!(PublishedHead::from_bytes(&bytes).is_err(), "{why}");
        }
    }

    #[test]
    fn a_section_lies_behind_those_before_it() {
        let head = head();
        let front = head.to_bytes().len() as u64;
        let (section, range) = head.section(SectionKind::Recipe, front).unwrap();
        assert!(section.is(b"recipe") && !section.is(b"recipd"));
        assert_eq!(range, front + 37..front + 43);
        assert_eq!(head.section(SectionKind::SmallBlocks, front), None);
    }

    #[test]
    fn values_are_as_many_as_there_are_pieces() {
        let layout = Layout::of(600_000).unwrap();
        let values = vec![[1; 32], [2; 32], [3; 32]];
        let bytes = values_to_bytes(&values);
        assert_eq!(values_from_bytes(&bytes, &layout), Ok(values));
        assert!(values_from_bytes(&bytes[..64], &layout).is_err());
        assert!(values_from_bytes(&bytes[..95], &layout).is_err());
    }

    #[test]
    fn a_recipe_comes_back_in_its_parts() {
        let nodes = vec![vec![1; 40], vec![2; 32], vec![3; 99]];
        assert_eq!(recipe_from_bytes(&recipe_to_bytes(b"root", &nodes)), Ok((b"root".to_vec(), nodes)));
        assert!(recipe_from_bytes(b"\x05root").is_err());
        // Once a megabyte of empty nodes took sixty.
        assert!(recipe_from_bytes(&[0; 1000]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = PublishedHead::from_bytes(&bytes);
            let _ = recipe_from_bytes(&bytes);
        }

        #[test]
        fn a_changed_head_is_refused_or_another_one(at in 0usize..200, flip in 1u8..) {
            let mut bytes = head().to_bytes().split_off(FRONT_LEN);
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(PublishedHead::from_bytes(&bytes) != Ok(head()));
        }
    }
}
