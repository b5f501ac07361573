//! File systems for which two names are one: `A` and `a`, or two Unicode forms of `é`.
//!
//! On such a file system the second of two entries of a tree would silently replace the first. It
//! is found by trying, once for each file system; elsewhere it costs nothing more.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use super::random_digits;
use super::tree::WrittenTree;
use crate::error::FileError;
use crate::listing::for_each_name;
use crate::path::RelPath;
use crate::stamp::Stamp;

/// A name, and names that are the same to who folds case or Unicode forms.
const PROBE: &str = "a\u{e9}";
const FOLDED: [&str; 2] = ["A\u{e9}", "ae\u{301}"];

/// The names in a [`Destination`](super::Destination).
#[derive(Debug, Clone, Copy)]
pub struct NameFolding<'a> {
    pub(super) tree: &'a WrittenTree,
}

impl NameFolding<'_> {
    /// True if the file system that `path` lies in takes different names for one, found out by a
    /// file in the staging directory. If it does, [`actual_name`](Self::actual_name) tells which
    /// name a thing really has.
    pub fn folds(self, path: &RelPath) -> Result<bool, FileError> {
        self.tree.staging_for(path)?.folds(probe)
    }

    /// The name that what is found at `path` has in its directory: another one than the path's if
    /// the file system takes the two for one. `None` if nothing is there. Reads the directory.
    pub fn actual_name(self, path: &RelPath) -> Result<Option<Vec<u8>>, FileError> {
        let failed = |e| FileError::new("look at", &path.below(self.tree.path()), e);
        let (dir, name) = self.tree.spot(path)?;
        let stamp_of = |name: &[u8]| match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Stamp::from_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        };
        let Some(wanted) = stamp_of(name).map_err(failed)? else { return Ok(None) };
        let mut best: Option<(u8, Vec<u8>)> = None;
        for_each_name(&dir, &mut |other| -> Result<(), Errno> {
            let rank = likeness(other, name);
            let better = best.as_ref().is_none_or(|(held, _)| *held < rank);
            if better && stamp_of(other)?.is_some_and(|stamp| stamp.same_file(&wanted)) {
                best = Some((rank, other.to_vec()));
            }
            Ok(())
        })
        .map_err(failed)?;
        Ok(best.map(|(_, name)| name))
    }
}

/// Likelihood that one name is meant by another; hard links have several that are possible.
fn likeness(other: &[u8], name: &[u8]) -> u8 {
    let lower = |name: &[u8]| String::from_utf8_lossy(name).to_lowercase();
    match other == name {
        true => 2,
        false => u8::from(lower(other) == lower(name)),
    }
}

fn probe(staging: BorrowedFd<'_>) -> Result<bool, Errno> {
    let digits = random_digits()?;
    let name = format!("{digits}{PROBE}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(staging, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let found = |name: &str| statat(staging, format!("{digits}{name}"), AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let folds = FOLDED.iter().any(|name| found(name));
    unlinkat(staging, name.as_str(), AtFlags::empty())?;
    Ok(folds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_likelier_than_one_that_differs_in_case() {
        assert_eq!(likeness(b"a", b"a"), 2);
        assert_eq!(likeness("Ä".as_bytes(), "ä".as_bytes()), 1);
        assert_eq!(likeness(b"b", b"a"), 0);
    }
}
