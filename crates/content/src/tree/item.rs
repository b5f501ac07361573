//! One event as bytes: tag, then OID and name, then the rest, the part that may be long last. Behind
//! a small file, in a descriptor that holds content, its bytes.
//!
//! Owners, mode and time are stored relative to the entry before in the same block, and the
//! shorter form is the only one accepted where it is possible.

use super::check::check_entry;
use super::entry::*;
use crate::codec::{Reader, Writer, invalid};
use crate::{DecodeError, Oid};

const KIND_MASK: u8 = 0b111;
const LEAVE: u8 = 0;
const DIRECTORY: u8 = 1;
const FILE: u8 = 2;
const SYMLINK: u8 = 3;
const FIFO: u8 = 4;
const SOCKET: u8 = 5;
const CHAR_DEVICE: u8 = 6;
const BLOCK_DEVICE: u8 = 7;

const SAME_OWNERS: u8 = 1 << 3;
const SAME_MODE: u8 = 1 << 4;
const HAS_XATTRS: u8 = 1 << 5;
const HAS_HARD_LINK: u8 = 1 << 6;
const IS_SPARSE: u8 = 1 << 7;

/// Stands where an OID's tag would.
const UNKNOWN_OID: u8 = 0xff;

/// No item is longer: the fields of fixed number and the content of a small file, which has no
/// target, take below 8 KiB, an attribute's two lengths at most twice its own bytes, an extent's two
/// numbers at most 20 bytes.
pub(super) const MAX_ITEM: usize = 8192 + 3 * MAX_XATTRS + 20 * MAX_EXTENTS;

/// Few items without content are longer.
const USUAL_ITEM: usize = 128;

/// Form of all items of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ItemForm {
    /// OIDs may be unknown.
    pub(super) live: bool,
    /// It holds the content of small files: version 2.
    pub(super) with_content: bool,
}

impl ItemForm {
    /// Number of bytes of content behind `entry`.
    pub(super) const fn content_len(self, entry: &Entry) -> usize {
        if self.with_content { entry.inline_len() } else { 0 }
    }
}

/// The entry before in the same block, as far as the next one refers to it.
#[derive(Debug, Default, Clone)]
pub(super) struct ItemContext {
    before: Option<PreviousItem>,
}

#[derive(Debug, Clone)]
struct PreviousItem {
    user: Owner,
    group: Owner,
    mode: u32,
    seconds: i64,
}

impl ItemContext {
    /// Notes what the next item of the same block refers to, after `event`.
    pub(super) fn note(&mut self, event: &Event) {
        let (Event::Enter(Entry { metadata, .. }) | Event::Leaf(Entry { metadata, .. })) = event else {
            return;
        };
        let Metadata { user, group, mode, modified: Time { seconds, .. }, .. } = metadata;
        let before = self.before.get_or_insert_with(|| PreviousItem {
            user: user.clone(),
            group: group.clone(),
            mode: *mode,
            seconds: *seconds,
        });
        before.user.clone_from(user);
        before.group.clone_from(group);
        (before.mode, before.seconds) = (*mode, *seconds);
    }

    fn seconds(&self) -> i64 {
        self.before.as_ref().map_or(0, |before| before.seconds)
    }

    fn same_owners(&self, metadata: &Metadata) -> bool {
        let is_same = |before: &PreviousItem| before.user == metadata.user && before.group == metadata.group;
        self.before.as_ref().is_some_and(is_same)
    }

    fn same_mode(&self, metadata: &Metadata) -> bool {
        self.before.as_ref().is_some_and(|before| before.mode == metadata.mode)
    }

    fn bits(&self, metadata: &Metadata) -> u8 {
        bit(SAME_OWNERS, self.same_owners(metadata)) | bit(SAME_MODE, self.same_mode(metadata))
    }
}

const fn bit(bit: u8, is_set: bool) -> u8 {
    if is_set { bit } else { 0 }
}

/// The bytes of `event`, and `content` that the descriptor holds, behind what `context` has noted.
pub(super) fn write(event: &Event, content: &[u8], context: &ItemContext) -> Vec<u8> {
    let mut writer = Writer::with_capacity(USUAL_ITEM + content.len());
    match event {
        Event::Enter(entry) | Event::Leaf(entry) => write_entry(&mut writer, entry, context),
        Event::Leave => drop(writer.u8(LEAVE)),
    }
    writer.raw(content);
    writer.into_bytes()
}

fn write_entry(writer: &mut Writer, entry: &Entry, context: &ItemContext) {
    writer.u8(kind_of(&entry.kind) | bits_of(entry) | context.bits(&entry.metadata));
    if let Kind::File { oid, .. } = &entry.kind {
        match oid {
            Some(oid) => oid.encode(writer),
            None => drop(writer.u8(UNKNOWN_OID)),
        }
    }
    writer.bytes(&entry.name);
    write_metadata(writer, &entry.metadata, context);
    write_kind(writer, &entry.kind);
    if let Some(number) = entry.hard_link {
        writer.varint(number);
    }
    write_xattrs(writer, &entry.metadata.xattrs);
    if let Kind::File { extents: Some(extents), .. } = &entry.kind {
        write_extents(writer, extents);
    }
}

const fn kind_of(kind: &Kind) -> u8 {
    match kind {
        Kind::Directory => DIRECTORY,
        Kind::File { .. } => FILE,
        Kind::Symlink { .. } => SYMLINK,
        Kind::Fifo => FIFO,
        Kind::Socket => SOCKET,
        Kind::CharDevice { .. } => CHAR_DEVICE,
        Kind::BlockDevice { .. } => BLOCK_DEVICE,
    }
}

const fn bits_of(entry: &Entry) -> u8 {
    bit(HAS_XATTRS, !entry.metadata.xattrs.is_empty())
        | bit(HAS_HARD_LINK, entry.hard_link.is_some())
        | bit(IS_SPARSE, matches!(entry.kind, Kind::File { extents: Some(_), .. }))
}

fn write_metadata(writer: &mut Writer, metadata: &Metadata, context: &ItemContext) {
    if !context.same_owners(metadata) {
        for Owner { id, name } in [&metadata.user, &metadata.group] {
            writer.varint((*id).into()).bytes(name);
        }
    }
    if !context.same_mode(metadata) {
        writer.varint(metadata.mode.into());
    }
    let Time { seconds, nanos } = metadata.modified;
    writer.signed(seconds.wrapping_sub(context.seconds())).varint(nanos.into());
}

fn write_kind(writer: &mut Writer, kind: &Kind) {
    match kind {
        Kind::File { size, .. } => drop(writer.varint(*size)),
        Kind::Symlink { target } => drop(writer.bytes(target)),
        Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
            writer.varint((*major).into()).varint((*minor).into());
        }
        Kind::Directory | Kind::Fifo | Kind::Socket => {}
    }
}

fn write_xattrs(writer: &mut Writer, xattrs: &[Xattr]) {
    if xattrs.is_empty() {
        return;
    }
    writer.varint(xattrs.len() as u64);
    for Xattr { name, value } in xattrs {
        writer.bytes(name).bytes(value);
    }
}

fn write_extents(writer: &mut Writer, extents: &[Extent]) {
    writer.varint(extents.len() as u64);
    let mut end = 0;
    for Extent { offset, len } in extents {
        writer.varint(offset - end).varint(*len);
        end = offset + len;
    }
}

/// Takes one item off the front of `reader`, and content where `form` has it, and checks all of it
/// but the name, its place, and whether the content is what the OID names.
pub(super) fn read<'a>(
    reader: &mut Reader<'a>,
    context: &ItemContext,
    form: ItemForm,
) -> Result<(Event, &'a [u8]), DecodeError> {
    let event = read_event(reader, context, form.live)?;
    let len = event.entry().map_or(0, |entry| form.content_len(entry));
    Ok((event, reader.take("content", len)?))
}

fn read_event(reader: &mut Reader<'_>, context: &ItemContext, live: bool) -> Result<Event, DecodeError> {
    let tag = reader.u8("tag")?;
    if tag & KIND_MASK == LEAVE {
        return if tag == LEAVE {
            Ok(Event::Leave)
        } else {
            Err(invalid("tag", "has bits that are not allowed"))
        };
    }
    let entry = read_entry(reader, tag, context)?;
    check_entry(&entry, live)?;
    if tag != kind_of(&entry.kind) | bits_of(&entry) | context.bits(&entry.metadata) {
        return Err(invalid("tag", "does not fit what follows"));
    }
    Ok(if entry.kind == Kind::Directory { Event::Enter(entry) } else { Event::Leaf(entry) })
}

/// The OID of an item of which only the front may be there.
pub(super) fn read_front(reader: &mut Reader<'_>) -> Result<Option<Oid>, DecodeError> {
    let tag = reader.u8("tag")?;
    if tag & KIND_MASK == FILE { read_oid(reader) } else { Ok(None) }
}

fn read_oid(reader: &mut Reader<'_>) -> Result<Option<Oid>, DecodeError> {
    let mut ahead = reader.clone();
    if ahead.u8("OID")? == UNKNOWN_OID {
        *reader = ahead;
        return Ok(None);
    }
    Oid::decode(reader).map(Some)
}

fn read_entry(reader: &mut Reader<'_>, tag: u8, context: &ItemContext) -> Result<Entry, DecodeError> {
    let oid = if tag & KIND_MASK == FILE { read_oid(reader)? } else { None };
    let name = reader.bytes("name", MAX_NAME)?.to_vec();
    let mut metadata = read_metadata(reader, tag, context)?;
    let mut kind = read_kind(reader, tag, oid)?;
    let has = |bit| tag & bit != 0;
    let hard_link = has(HAS_HARD_LINK).then(|| reader.varint("hard link")).transpose()?;
    if has(HAS_XATTRS) {
        metadata.xattrs = read_xattrs(reader)?;
    }
    if let (true, Kind::File { extents, .. }) = (has(IS_SPARSE), &mut kind) {
        *extents = Some(read_extents(reader)?);
    }
    Ok(Entry { name, kind, metadata, hard_link })
}

fn read_metadata(reader: &mut Reader<'_>, tag: u8, context: &ItemContext) -> Result<Metadata, DecodeError> {
    let before = || context.before.as_ref().ok_or(invalid("tag", "refers to an entry of another block"));
    let (user, group) = match tag & SAME_OWNERS {
        0 => (read_owner(reader)?, read_owner(reader)?),
        _ => before().map(|before| (before.user.clone(), before.group.clone()))?,
    };
    let mode = match tag & SAME_MODE {
        0 => read_u32(reader, "mode")?,
        _ => before()?.mode,
    };
    let seconds = context.seconds().wrapping_add(reader.signed("seconds")?);
    let modified = Time { seconds, nanos: read_u32(reader, "nanoseconds")? };
    Ok(Metadata { mode, user, group, modified, xattrs: Vec::new() })
}

fn read_owner(reader: &mut Reader<'_>) -> Result<Owner, DecodeError> {
    let id = read_u32(reader, "owner")?;
    Ok(Owner { id, name: reader.bytes("owner name", MAX_OWNER_NAME)?.to_vec() })
}

fn read_u32(reader: &mut Reader<'_>, field: &'static str) -> Result<u32, DecodeError> {
    reader.bounded(field, u32::MAX.into()).map(|value| value as u32)
}

fn read_kind(reader: &mut Reader<'_>, tag: u8, oid: Option<Oid>) -> Result<Kind, DecodeError> {
    Ok(match tag & KIND_MASK {
        DIRECTORY => Kind::Directory,
        FILE => Kind::File { size: reader.varint("file size")?, oid, extents: None },
        SYMLINK => Kind::Symlink { target: reader.bytes("symlink target", MAX_TARGET)?.to_vec() },
        FIFO => Kind::Fifo,
        SOCKET => Kind::Socket,
        CHAR_DEVICE => {
            Kind::CharDevice { major: read_u32(reader, "major")?, minor: read_u32(reader, "minor")? }
        }
        BLOCK_DEVICE => {
            Kind::BlockDevice { major: read_u32(reader, "major")?, minor: read_u32(reader, "minor")? }
        }
        _ => return Err(invalid("tag", "is not that of an entry")),
    })
}

fn read_xattrs(reader: &mut Reader<'_>) -> Result<Vec<Xattr>, DecodeError> {
    // Every attribute has a name, so there are no more than bytes of names.
    let count = reader.bounded("attributes", MAX_XATTRS as u64)?;
    let mut xattrs = Vec::new();
    for _ in 0..count {
        let name = reader.bytes("attribute name", MAX_NAME)?.to_vec();
        let value = reader.bytes("attribute value", MAX_XATTR_VALUE)?.to_vec();
        xattrs.push(Xattr { name, value });
    }
    Ok(xattrs)
}

fn read_extents(reader: &mut Reader<'_>) -> Result<Vec<Extent>, DecodeError> {
    let count = reader.bounded("extents", MAX_EXTENTS as u64)?;
    let mut extents = Vec::new();
    let mut end = 0u64;
    for _ in 0..count {
        let offset =
            end.checked_add(reader.varint("hole")?).ok_or(invalid("extent", "is not inside the file"))?;
        let len = reader.varint("extent")?;
        end = offset.checked_add(len).ok_or(invalid("extent", "is not inside the file"))?;
        extents.push(Extent { offset, len });
    }
    Ok(extents)
}
