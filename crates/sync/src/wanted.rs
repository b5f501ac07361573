//! A file that is requested, and the note of it until it has its name.

use towpath_content::tree::{Metadata, Time};
use towpath_files::{RelPath, Stamp};

use crate::decide::Changes;
use crate::notes::{InTheWay, Position};
use crate::source::Located;
use towpath_targets::file_permits::FilePermit;

/// Facts of a file when it is requested.
pub struct Wanted {
    /// Its number in the sender's tree.
    pub entry: u64,
    /// Path that it goes to.
    pub path: RelPath,
    /// Its path below the transfer's root, for people.
    pub shown: Vec<u8>,
    /// Metadata that it shall have.
    pub metadata: Metadata,
    /// Bytes, as the scan saw them.
    pub size: u64,
    /// The regular file in its place.
    pub old: Option<Stamp>,
    /// True if anything is in its place that a rename replaces.
    pub replaces: bool,
    /// A directory is in its place: where, and whether it must be empty to go.
    pub room: Option<(Position, InTheWay)>,
    /// Its content may be the same: these changes would be left.
    pub compare: Option<Changes>,
    /// Changes that are reported of it once it is known to be different.
    pub changes: Changes,
    /// Position of it, if that is on this machine.
    pub located: Option<Located>,
}

impl Wanted {
    /// Bytes that are kept of it, but for those that all have.
    pub fn bytes_kept(&self) -> usize {
        let attributes = self.metadata.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len());
        // Twice while metadata are applied.
        self.path.as_bytes().len() + self.shown.len() + 2 * attributes.sum::<usize>()
    }
}

/// Note of what is to be done when a file has its name.
pub struct Note {
    /// See [`Wanted::entry`].
    pub entry: u64,
    /// See [`Wanted::shown`].
    pub shown: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// Its time of last modification.
    pub modified: Time,
    /// Its permit among the files under way.
    pub permit: Option<FilePermit>,
}
