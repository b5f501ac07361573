//! One canonical encoding for each record: two encodings of one value do not exist, so its hash is its name.

use towpath_content::DecodeError;
use towpath_content::NodeId;
use towpath_content::codec::{Reader, Writer};

use crate::names::Digest;

/// A record with one encoding.
pub trait Canonical: Sized {
    /// Its name in errors.
    const NAME: &'static str;
    /// The most bytes that an encoding has.
    const LIMIT: usize;

    /// Appends the encoding.
    fn write(&self, out: &mut Writer);

    /// Takes a record off the front. Lengths are checked before memory is taken.
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// The encoding.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        self.write(&mut out);
        out.into_bytes()
    }

    /// Reads an encoding, all of it.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (found, limit) = (bytes.len() as u64, Self::LIMIT as u64);
        if found > limit {
            return Err(DecodeError::TooLarge { field: Self::NAME, found, limit });
        }
        let mut reader = Reader::new(bytes);
        let record = Self::read(&mut reader)?;
        reader.finish().map(|()| record)
    }

    /// The hash of the encoding.
    fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }
}

/// Reads the byte that records begin with.
pub(crate) fn version(reader: &mut Reader<'_>, field: &'static str) -> Result<(), DecodeError> {
    match reader.u8(field)? {
        1 => Ok(()),
        found => Err(DecodeError::Version { field, found: found.into(), known: 1 }),
    }
}

/// Reads a number of 32 bits.
pub(crate) fn number(reader: &mut Reader<'_>, field: &'static str) -> Result<u32, DecodeError> {
    reader.bounded(field, u32::MAX.into()).map(|number| number as u32)
}

/// Reads a list of at most `limit` records. Memory is taken as they come.
pub fn list<T>(
    reader: &mut Reader<'_>,
    field: &'static str,
    limit: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = reader.bounded(field, limit as u64)?;
    (0..count).map(|_| read(reader)).collect()
}

/// Appends a list.
pub fn write_list<T>(out: &mut Writer, list: &[T], write: impl Fn(&T, &mut Writer)) {
    out.varint(list.len() as u64);
    list.iter().for_each(|record| write(record, out));
}

/// Reads a byte that says whether a record follows, and the record.
pub fn option<T>(
    reader: &mut Reader<'_>,
    field: &'static str,
    read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    match reader.bounded(field, 1)? {
        0 => Ok(None),
        _ => read(reader).map(Some),
    }
}

/// Appends a byte that says whether a record follows, and the record.
pub fn write_option<T>(out: &mut Writer, record: Option<&T>, write: impl Fn(&T, &mut Writer)) {
    out.u8(u8::from(record.is_some()));
    if let Some(record) = record {
        write(record, out);
    }
}

/// What is signed: the kind of statement, so that none is taken for another, and its content.
pub(crate) fn statement(kind: &str, content: &[&[u8]]) -> Vec<u8> {
    let mut message = format!("tow-vault/1 {kind}\n").into_bytes();
    content.iter().for_each(|part| message.extend_from_slice(part));
    message
}

/// Reads a public key.
pub(crate) fn node(reader: &mut Reader<'_>, field: &'static str) -> Result<NodeId, DecodeError> {
    reader.array(field).map(NodeId)
}

/// Reads a hash.
pub(crate) fn hash(reader: &mut Reader<'_>, field: &'static str) -> Result<Digest, DecodeError> {
    reader.array(field).map(Digest)
}
