//! The blocks a descriptor is made of, and which OIDs one of them mentions.
//!
//! Only the header at a block's start says where its first whole item begins. Nothing is ever
//! searched for, so names and attributes, whatever is written in them, are not taken for OIDs.

use super::entry::Entry;
use super::item::{self, ItemContext, ItemForm, MAX_ITEM};
use crate::codec::{Reader, invalid};
use crate::{DecodeError, Oid};

/// Bytes of a block; every block but the last has exactly so many.
pub const BLOCK: usize = 64 * 1024;

/// Bytes of a block's header.
pub(super) const HEADER: usize = 14;
/// Bytes of payload that a block can hold.
pub(super) const CAPACITY: usize = BLOCK - HEADER;

const FORMAT: &str = "tree descriptor";
const MAGIC: [u8; 4] = *b"towt";
/// No content; and with that of small files.
const VERSIONS: [u8; 2] = [1, 2];
const LIVE: u8 = 1;
const LAST: u8 = 2;

/// Header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The same in all blocks.
    pub(super) form: ItemForm,
    /// No block follows.
    pub(super) last: bool,
    /// Bytes of payload.
    pub(super) used: usize,
    /// Number of them that continue an item of an earlier block.
    pub(super) continued: usize,
    /// Number of bytes of the item at the end that are in later blocks.
    pub(super) beyond: usize,
}

impl Header {
    /// The header's bytes.
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let flags = if self.form.live { LIVE } else { 0 } | if self.last { LAST } else { 0 };
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSIONS[usize::from(self.form.with_content)];
        out[5] = flags;
        out[6..8].copy_from_slice(&(self.used as u16).to_le_bytes());
        out[8..10].copy_from_slice(&(self.continued as u16).to_le_bytes());
        out[10..].copy_from_slice(&(self.beyond as u32).to_le_bytes());
        out
    }

    /// Reads the header at the front of a block.
    pub(super) fn of(block: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(block);
        if reader.array("magic")? != MAGIC {
            return Err(invalid(FORMAT, "does not begin with its magic"));
        }
        let version = reader.u8("version")?;
        if !VERSIONS.contains(&version) {
            let (found, known) = (version.into(), VERSIONS[1].into());
            return Err(DecodeError::Version { field: FORMAT, found, known });
        }
        let flags = reader.u8("flags")?;
        if flags & !(LIVE | LAST) != 0 {
            return Err(invalid(FORMAT, "has unknown flags"));
        }
        let used = usize::from(u16::from_le_bytes(reader.array("used")?));
        let continued = usize::from(u16::from_le_bytes(reader.array("continued")?));
        let beyond = u32::from_le_bytes(reader.array("beyond")?) as usize;
        let form = ItemForm { live: flags & LIVE != 0, with_content: version == VERSIONS[1] };
        let header = Self { form, last: flags & LAST != 0, used, continued, beyond };
        header.check().map(|()| header)
    }

    /// Bytes of the whole block.
    pub(super) const fn block_len(&self) -> usize {
        if self.last { HEADER + self.used } else { BLOCK }
    }

    /// The payload of a whole `block`, if its length is right and its padding zero.
    pub(super) fn payload<'a>(&self, block: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let mut reader = Reader::new(block);
        reader.take("header", HEADER)?;
        let payload = reader.take("payload", self.used)?;
        let padding = reader.take("padding", self.block_len() - HEADER - self.used)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(invalid("padding", "is not zero"));
        }
        reader.finish().map(|()| payload)
    }

    fn check(&self) -> Result<(), DecodeError> {
        for (field, found, limit) in [
            ("used", self.used, CAPACITY),
            ("continued", self.continued, self.used),
            ("beyond", self.beyond, MAX_ITEM),
        ] {
            if found > limit {
                return Err(DecodeError::TooLarge { field, found: found as u64, limit: limit as u64 });
            }
        }
        if self.used == 0 {
            return Err(invalid("block", "is empty"));
        }
        let is_full = self.used == CAPACITY && !self.last;
        let is_one_item = self.continued == 0 || self.continued == self.used;
        if self.beyond > 0 && !(is_full && is_one_item) {
            return Err(invalid("block", "ends inside an item without being full of it"));
        }
        Ok(())
    }
}

/// The OIDs of the entries that begin in one block of a descriptor, in their order.
///
/// `block` is a whole block: the bytes of a descriptor from a multiple of [`BLOCK`] on, [`BLOCK`]
/// of them or all there are. It is read on its own, so it is not checked that it continues the
/// block before. Unknown OIDs of a live tree are left out.
pub fn oids_in_block(block: &[u8]) -> Result<Vec<Oid>, DecodeError> {
    let header = Header::of(block)?;
    let payload = header.payload(block)?;
    let mut reader = Reader::new(&payload[header.continued..]);
    if header.beyond > 0 && header.continued == 0 {
        return item::read_front(&mut reader).map(|oid| oid.into_iter().collect());
    }
    let mut context = ItemContext::default();
    let mut oids = Vec::new();
    while reader.remaining() > 0 {
        let (event, _) = item::read(&mut reader, &context, header.form)?;
        context.note(&event);
        oids.extend(event.entry().and_then(Entry::oid));
    }
    Ok(oids)
}
