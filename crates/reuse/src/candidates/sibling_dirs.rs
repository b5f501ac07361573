//! Directories beside the destination, in which a new large file may have an older version under the same path:
//! `backup/old/disk.img` for `backup/new/disk.img`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use towpath_files::{RelPath, is_temporary_name};

use super::by_version::pattern;
use super::index::{Present, may_be_version};
use super::machine::{Machine, from_root, nearest};

/// Names that are read of the directory in which they all lie.
const MOST_NAMES: usize = 4096;
/// Siblings that are looked at.
const MOST: usize = 64;

/// See the head of this module.
#[derive(Default)]
pub struct Siblings {
    dirs: Vec<RelPath>,
    /// The destination's file system: the others' files are left alone.
    device: Option<u64>,
}

impl Siblings {
    /// Of `root`, which is an absolute path without symbolic links.
    pub fn of(machine: &Machine, root: &Path) -> Self {
        let (Some(parent), Some(own)) = (root.parent(), root.file_name()) else { return Self::default() };
        let Ok(names) = names(parent, own) else { return Self::default() };
        let names = likeliest(names, own.as_bytes());
        let dirs = names.iter().filter_map(|name| from_root(&parent.join(OsStr::from_bytes(name))));
        Self { dirs: dirs.collect(), device: machine.device(root) }
    }

    /// Of the files with this path below one of them, the one nearest in size.
    pub fn find(&self, machine: &Machine, path: &RelPath, size: u64) -> Option<Present> {
        let present = |dir: &RelPath| {
            let mut whole = dir.clone();
            path.names().try_for_each(|name| whole.push(name)).ok()?;
            let found = machine.look(whole)?;
            let fits = Some(found.stamp.device) == self.device && may_be_version(found.stamp.size, size);
            fits.then_some(found)
        };
        nearest(self.dirs.iter().filter_map(present), size)
    }
}

/// The directories in `parent` but for `own`.
fn names(parent: &Path, own: &OsStr) -> std::io::Result<Vec<Vec<u8>>> {
    let entries = std::fs::read_dir(parent)?.take(MOST_NAMES).filter_map(Result::ok);
    let is_dir = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names = entries.filter(is_dir).map(|entry| entry.file_name()).filter(|name| name != own);
    Ok(names.map(OsString::into_vec).collect())
}

/// Those of the directories beside `own` that are looked at: first such as differ from it in numbers alone, last hidden ones.
fn likeliest(mut names: Vec<Vec<u8>>, own: &[u8]) -> Vec<Vec<u8>> {
    let own = pattern(own);
    names.retain(|name| !is_temporary_name(name));
    names.sort_by_cached_key(|name| (pattern(name) != own, name.starts_with(b"."), name.clone()));
    names.truncate(MOST);
    names
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::candidates::index::tests::path_of;
    use crate::policy::table::LARGE;

    fn file(path: &Path, size: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(path).unwrap().set_len(size).unwrap();
    }

    #[test]
    fn a_table_of_files_beside_the_destination() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let sizes = [("old/a/file", 3 * LARGE), ("older/a/file", 4 * LARGE), ("new/b", LARGE)];
        sizes.into_iter().for_each(|(path, size)| file(&root.join(path), size));
        file(&root.join("beside/b"), LARGE);
        fs::create_dir_all(root.join("odd/b")).unwrap();
        symlink(root.join("old"), root.join("link")).unwrap();
        symlink("../beside/b", root.join("old/b")).unwrap();
        symlink("../old/a", root.join("odd/a")).unwrap();
        let machine = Machine::open().unwrap();
        let siblings = Siblings::of(&machine, &root.join("new"));
        for (path, size, expected) in [
            ("a/file", 3 * LARGE, Some("old/a/file")),
            ("a/file", 3 * LARGE + 1, Some("old/a/file")),
            ("a/file", 5 * LARGE, Some("older/a/file")),
            ("a/file", 9 * LARGE, None),
            ("a/file", LARGE, None),
            ("b", LARGE, Some("beside/b")),
            ("c", LARGE, None),
            ("a", LARGE, None),
        ] {
            let found = siblings.find(&machine, &path_of(path), size).map(|found| found.path);
            assert_eq!(found, expected.map(|path| from_root(&root.join(path)).unwrap()), "{path} {size}");
        }
        let b = path_of("b");
        assert_eq!(Siblings::of(&machine, Path::new("/")).find(&machine, &b, LARGE), None);
        let elsewhere = Siblings { device: Some(u64::MAX), ..siblings };
        assert_eq!(elsewhere.find(&machine, &b, LARGE), None, "another file system");
    }

    #[test]
    fn versions_of_the_directory_come_first_and_hidden_ones_last() {
        let name = |name: &str| name.as_bytes().to_vec();
        let names = [".old", "z", "pkg-1.9", ".tow-0123456789abcdef", "a", "pkg-1.10"].map(name).to_vec();
        assert_eq!(likeliest(names, b"pkg-2.0"), ["pkg-1.10", "pkg-1.9", "a", "z", ".old"].map(name));
        let many = (0..1000).map(|number| name(&format!("dir {number}"))).collect();
        assert_eq!(likeliest(many, b"own").len(), MOST);
    }
}
