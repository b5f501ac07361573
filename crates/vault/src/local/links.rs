//! Hashes of versions that were proved here, one behind the other by their numbers. With them an old version is proved by itself, not by all those that
//! came behind it: so the first of ten thousand is restored as fast as the last.
//!
//! Soft state: without it, or where it is wrong, a version is proved by the chain of roots as before.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use towpath_vault_format::Digest;

use crate::head::NamedVersion;

const LENGTH: u64 = 32;
/// Versions behind it are not noted.
const MOST: u64 = 1 << 24;

/// The hash of a version that was proved here.
pub fn link(path: &Path, number: u64) -> Option<Digest> {
    let mut hash = Digest::NONE;
    File::open(path).ok()?.read_exact_at(&mut hash.0, number.min(MOST) * LENGTH).ok()?;
    (!hash.is_none()).then_some(hash)
}

/// Notes versions that were proved. What can't be written is not noted.
pub fn add_links(path: &Path, proved: impl Iterator<Item = NamedVersion>) {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path);
    let Ok(file) = file else { return };
    for NamedVersion { number, root } in proved.filter(|version| version.number < MOST) {
        let _ = file.write_all_at(&root.0, number * LENGTH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("links");
        assert_eq!(link(&path, 0), None);
        let version = |number| NamedVersion { number, root: Digest([number as u8; 32]) };
        add_links(&path, [version(7), version(3), version(u64::MAX)].into_iter());
        assert_eq!([3, 7].map(|number| link(&path, number)), [3, 7].map(|byte| Some(Digest([byte; 32]))));
        assert!([0, 4, 8, u64::MAX].iter().all(|number| link(&path, *number).is_none()));
    }
}
