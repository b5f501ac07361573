//! Limits of an entry, whoever made it: the same check before encoding and after decoding.
//!
//! Names are checked where their place in the walk is known, in `walk`.

use thiserror::Error;

use super::entry::*;
use crate::pieces::MAX_SIZE;
use crate::{DecodeError, Oid};

/// Reason why something is no valid part of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A field has a value that no tree may have.
    #[error("{field}: {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// A length, count or number is over its limit.
    #[error("{field} is {found}, over the limit of {limit}")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The largest allowed value.
        limit: u64,
    },
}

impl From<TreeError> for DecodeError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Invalid { field, why } => Self::Invalid { field, why },
            TreeError::TooLarge { field, found, limit } => Self::TooLarge { field, found, limit },
        }
    }
}

/// Checks that `holds`, or says why not.
pub(super) fn ensure(holds: bool, field: &'static str, why: &'static str) -> Result<(), TreeError> {
    if holds { Ok(()) } else { Err(TreeError::Invalid { field, why }) }
}

/// Checks that `found` is at most `limit`.
pub(super) fn within(field: &'static str, found: u64, limit: u64) -> Result<(), TreeError> {
    if found <= limit { Ok(()) } else { Err(TreeError::TooLarge { field, found, limit }) }
}

/// Checks a byte string that the system ends with NUL.
pub(super) fn check_text(field: &'static str, text: &[u8], limit: usize) -> Result<(), TreeError> {
    within(field, text.len() as u64, limit as u64)?;
    ensure(!text.contains(&0), field, "contains NUL")
}

/// Checks everything but the name. `live`: OIDs may be missing or live.
pub(super) fn check_entry(entry: &Entry, live: bool) -> Result<(), TreeError> {
    check_kind(&entry.kind, live)?;
    let is_linked_directory = entry.kind == Kind::Directory && entry.hard_link.is_some();
    ensure(!is_linked_directory, "hard link", "is on a directory")?;
    check_metadata(&entry.metadata)
}

fn check_kind(kind: &Kind, live: bool) -> Result<(), TreeError> {
    match kind {
        Kind::File { size, oid, extents } => {
            within("file size", *size, MAX_SIZE)?;
            let is_final = oid.as_ref().is_some_and(|oid| !Oid::is_live(oid));
            ensure(live || is_final, "OID", "is unknown or live in a tree that is not live")?;
            extents.as_ref().map_or(Ok(()), |extents| check_extents(extents, *size))
        }
        Kind::Symlink { target } => {
            ensure(!target.is_empty(), "symlink target", "is empty")?;
            check_text("symlink target", target, MAX_TARGET)
        }
        _ => Ok(()),
    }
}

fn check_extents(extents: &[Extent], size: u64) -> Result<(), TreeError> {
    within("extents", extents.len() as u64, MAX_EXTENTS as u64)?;
    let mut end = None;
    let mut data = 0;
    for Extent { offset, len } in extents {
        ensure(*len > 0, "extent", "is empty")?;
        ensure(end.is_none_or(|end| *offset > end), "extent", "does not follow a hole")?;
        let next = offset.checked_add(*len).filter(|next| *next <= size);
        ensure(next.is_some(), "extent", "is not inside the file")?;
        end = next;
        data += len;
    }
    ensure(data < size, "extents", "leave no hole")
}

fn check_metadata(metadata: &Metadata) -> Result<(), TreeError> {
    within("mode", metadata.mode.into(), MAX_MODE.into())?;
    within("nanoseconds", metadata.modified.nanos.into(), u64::from(NANOS) - 1)?;
    check_text("user name", &metadata.user.name, MAX_OWNER_NAME)?;
    check_text("group name", &metadata.group.name, MAX_OWNER_NAME)?;
    check_xattrs(&metadata.xattrs)
}

fn check_xattrs(xattrs: &[Xattr]) -> Result<(), TreeError> {
    let mut before: &[u8] = &[];
    let mut total = 0;
    for Xattr { name, value } in xattrs {
        ensure(!name.is_empty(), "attribute name", "is empty")?;
        check_text("attribute name", name, MAX_NAME)?;
        ensure(before < name.as_slice(), "attribute name", "is not in order")?;
        within("attribute value", value.len() as u64, MAX_XATTR_VALUE as u64)?;
        before = name;
        total += (name.len() + value.len()) as u64;
    }
    within("attributes of one entry", total, MAX_XATTRS as u64)
}
