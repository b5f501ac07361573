//! A file that was renamed at the source: the destination has its bytes under the old name, which is about to be
//! removed.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use towpath_content::Oid;
use towpath_files::metadata::differences;
use towpath_files::{FileError, RelPath, ScanOptions, Stamp};
use towpath_reuse::candidates::renames::MAX_WAITING;
use towpath_reuse::candidates::rules::Resemblance;
use towpath_targets::placing::Placing;

use super::{CopyFile, FileState, Note};
use towpath_targets::file_permits::MOST_BYTES;

/// Bytes that are compared at once.
const COMPARED: usize = 256 << 10;

/// Bytes of path and attributes of a file that may wait for the end of the walk: all that wait leave half of the room to
/// the others, which would wait for them else.
const MOST_KEPT: usize = MOST_BYTES / 2 / MAX_WAITING;

/// Names that a new file may have had.
pub struct OldNames<'a> {
    pub(super) file: &'a CopyFile,
}

impl OldNames<'_> {
    /// Whether its bytes may be here under one that is about to be removed.
    pub fn may_be(&self) -> bool {
        let CopyFile { receiving, wanted, .. } = self.file;
        receiving.options.delete
            && wanted.changes.new
            && Resemblance::Renamed.is_for(self.file.size())
            && wanted.bytes_kept() <= MOST_KEPT
    }

    /// Looks for its bytes under one.
    pub fn look(&self, oid: &Oid) {
        let FileState { size, modified, .. } = *self.file.state();
        self.file.receiving.find_renamed(oid, size, modified);
    }

    /// Whether a file that may be it lies there, and is removed altogether.
    pub fn are_known(&self) -> bool {
        !self.file.receiving.options.backup && !self.spares().is_empty()
    }

    /// Gives it a file that is about to be removed and has the same metadata and bytes as `source`, which was `seen`.
    /// That one keeps its old name until then. False if there is none.
    pub fn take(&self, source: &File, seen: &Stamp) -> Result<bool, FileError> {
        let receiving = &self.file.receiving;
        let placing = receiving.placing()?;
        for (path, stamp) in self.spares() {
            let is_it = self.is_as_wanted(placing, &path)?
                && has_same_bytes(source, &placing.destination.open_file(&path, &stamp)?)?
                && Stamp::of(source).is_ok_and(|now| now == *seen);
            if !is_it || !receiving.kept.take_spare(&path, &stamp) {
                continue;
            }
            receiving.note_staging()?;
            let staging = placing.destination.staging();
            let Some(staged) = staging.link_for(&path, &stamp, &self.file.wanted.path)? else { continue };
            receiving.account.count(|counts| counts.matched += seen.size);
            self.file.finish(staged, None)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn spares(&self) -> Vec<(RelPath, Stamp)> {
        let FileState { size, modified, .. } = *self.file.state();
        self.file.receiving.kept.spares(size, modified)
    }

    /// Whether the file at `path` has the metadata that this one is to have.
    fn is_as_wanted(&self, placing: &Placing<Note>, path: &RelPath) -> Result<bool, FileError> {
        let receiving = &self.file.receiving;
        let (xattrs, acls) = (receiving.options.preserve.xattrs, receiving.options.preserve.acls);
        let look = ScanOptions { xattrs, acls, files: false, ..ScanOptions::default() };
        let found = placing.destination.look(path, &look)?;
        Ok(found.is_some_and(|found| {
            let (wanted, here) = (&self.file.wanted.metadata, &found.entry.metadata);
            !differences(&found.entry.kind, wanted, here, &receiving.policy).any()
        }))
    }
}

/// Whether two files have the same bytes.
fn has_same_bytes(one: &File, other: &File) -> Result<bool, FileError> {
    let failed = |error| FileError::new("compare", Path::new("two files"), error);
    let (mut left, mut right) = (vec![0; COMPARED], vec![0; COMPARED]);
    let mut at = 0;
    loop {
        let len = one.read_at(&mut left, at).map_err(failed)?;
        if len == 0 {
            return Ok(other.read_at(&mut right[..1], at).map_err(failed)? == 0);
        }
        match other.read_exact_at(&mut right[..len], at) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            read => read.map_err(failed)?,
        }
        if left[..len] != right[..len] {
            return Ok(false);
        }
        at += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_targets::file_permits::FilePermits;

    #[test]
    fn files_that_wait_leave_room_for_others() {
        let permits = FilePermits::new(2 * MAX_WAITING);
        let waiting: Vec<_> = (0..MAX_WAITING).map(|_| permits.try_take(MOST_KEPT)).collect();
        assert!(waiting.iter().all(Option::is_some));
        assert!(permits.try_take(MOST_BYTES / 2).is_some());
    }
}
