//! Directories beside the destination, in which a new large file may have an older version under the same path:
//! `backup/old/disk.img` for `backup/new/disk.img`.
//!
//! Looked at in a thread of their own, which is waited for a little: a disk that is asleep, or a dead server's, holds up nobody.
//! What it tells proves nothing.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use towpath_files::{RelPath, ScanOptions, SourceTree, is_temporary_name};

use super::catalogue::{LARGE, Present, Sought, may_be_version};
use super::file::is_file;
use super::versions::pattern;

/// Names that are read of the directory in which they all lie.
const MOST_NAMES: usize = 4096;
/// Siblings that are looked at.
const MOST: usize = 64;

/// See the head of this module.
pub struct Siblings {
    /// None if they are not wanted, or kept somebody waiting.
    dirs: Option<Arc<OnceLock<Dirs>>>,
}

impl Siblings {
    /// Nothing was looked at yet. Unless `are_wanted`, nothing will be.
    pub fn new(are_wanted: bool) -> Self {
        Self { dirs: are_wanted.then(Arc::default) }
    }

    /// For each of these files the probable older version beside `root`, whose paths are below the directory
    /// that `root` lies in. Waits for so long at most.
    pub fn find(&mut self, root: &Path, files: &[Sought<'_>], patience: Duration) -> Vec<Option<Present>> {
        let nothing = || vec![None; files.len()];
        let Some(dirs) = self.dirs.clone().filter(|_| files.iter().any(|file| file.size >= LARGE)) else {
            return nothing();
        };
        let sought: Vec<_> = files.iter().map(|file| (file.path.clone(), file.size)).collect();
        let root = root.to_owned();
        let (done, found) = channel();
        let looking = move || {
            let dirs = dirs.get_or_init(|| Dirs::beside(&root));
            let found = sought.iter().map(|(path, size)| dirs.nearest(path, *size));
            // Nobody may wait any more.
            let _ = done.send(found.collect());
        };
        // Without a thread the channel closes.
        let _ = std::thread::Builder::new().name("siblings".into()).spawn(looking);
        found.recv_timeout(patience).unwrap_or_else(|_| {
            self.dirs = None;
            nothing()
        })
    }
}

/// Directories beside another one.
#[derive(Default)]
struct Dirs {
    /// What they lie in, held; none if that can't be read.
    tree: Option<SourceTree>,
    names: Vec<RelPath>,
    /// The file system of the other one; the others' files are left alone.
    device: u64,
}

impl Dirs {
    /// Beside `root`, which is an absolute path without symbolic links.
    fn beside(root: &Path) -> Self {
        let (Some(parent), Some(own)) = (root.parent(), root.file_name()) else { return Self::default() };
        let Ok(tree) = SourceTree::open(parent) else { return Self::default() };
        let here = RelPath::root().join(own.as_bytes()).and_then(|own| tree.look(&own, &looking()));
        let (Ok(here), Ok(names)) = (here, names(parent, own)) else { return Self::default() };
        let names = likeliest(names, own.as_bytes());
        let names = names.iter().filter_map(|name| RelPath::root().join(name).ok()).collect();
        Self { tree: Some(tree), names, device: here.stamp.device }
    }

    /// Of files with this path below one of them, the one nearest in size, and of several the latest.
    fn nearest(&self, path: &RelPath, size: u64) -> Option<Present> {
        let tree = self.tree.as_ref().filter(|_| size >= LARGE)?;
        let present = |dir: &RelPath| {
            let mut whole = dir.clone();
            path.names().try_for_each(|name| whole.push(name)).ok()?;
            let found = tree.look(&whole, &looking()).ok()?;
            let fits = is_file(&found.entry.kind)
                && found.stamp.device == self.device
                && may_be_version(found.stamp.size, size);
            fits.then_some(Present { path: whole, stamp: found.stamp })
        };
        let all = self.names.iter().filter_map(present);
        all.min_by_key(|found| (found.stamp.size.abs_diff(size), Reverse(found.stamp.modified)))
    }
}

fn looking() -> ScanOptions {
    ScanOptions { files: false, ..ScanOptions::default() }
}

/// The directories in `parent` but for `own`.
fn names(parent: &Path, own: &OsStr) -> std::io::Result<Vec<Vec<u8>>> {
    let entries = std::fs::read_dir(parent)?.take(MOST_NAMES).filter_map(Result::ok);
    let is_dir = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let dirs = entries.filter(is_dir).map(|entry| PathBuf::from(entry.file_name()));
    let others = dirs.filter(|name| name.as_os_str() != own);
    Ok(others.map(|name| name.into_os_string().as_bytes().to_vec()).collect())
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

    use super::super::catalogue::tests::{at, path_of};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn sought(path: &RelPath, size: u64) -> Sought<'_> {
        Sought { path, size, modified: at(0) }
    }

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
        file(&root.join("outside/b"), LARGE);
        fs::create_dir_all(root.join("odd/b")).unwrap();
        symlink(root.join("old"), root.join("link")).unwrap();
        symlink("../outside/b", root.join("old/b")).unwrap();
        symlink("../old/a", root.join("odd/a")).unwrap();
        let mut siblings = Siblings::new(true);
        for (path, size, expected) in [
            ("a/file", 3 * LARGE, Some("old/a/file")),
            ("a/file", 3 * LARGE + 1, Some("old/a/file")),
            ("a/file", 5 * LARGE, Some("older/a/file")),
            ("a/file", 9 * LARGE, None),
            ("a/file", LARGE, None),
            ("a/file", LARGE - 1, None),
            ("b", LARGE, Some("outside/b")),
            ("c", LARGE, None),
            ("a", LARGE, None),
        ] {
            let wanted = path_of(path);
            let files = [sought(&wanted, size), sought(&wanted, 1)];
            let found = siblings.find(&root.join("new"), &files, PATIENCE);
            let found: Vec<_> = found.iter().map(|it| it.as_ref().map(|it| it.path.as_bytes())).collect();
            assert_eq!(found, [expected.map(str::as_bytes), None], "{path} {size}");
        }
        let b = path_of("b");
        assert_eq!(Siblings::new(false).find(&root.join("new"), &[sought(&b, LARGE)], PATIENCE), [None]);
        assert_eq!(siblings.find(Path::new("/"), &[sought(&b, LARGE)], PATIENCE).len(), 1);
    }

    #[test]
    fn whoever_keeps_somebody_waiting_is_not_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        ["old", "new"].iter().for_each(|dir| file(&root.join(dir).join("file"), LARGE));
        let (path, root) = (path_of("file"), root.join("new"));
        let mut siblings = Siblings::new(true);
        // A thread takes longer to begin.
        assert_eq!(siblings.find(&root, &[sought(&path, LARGE)], Duration::ZERO), [None]);
        assert_eq!(siblings.find(&root, &[sought(&path, LARGE)], PATIENCE), [None]);
        assert!(Siblings::new(true).find(&root, &[sought(&path, LARGE)], PATIENCE)[0].is_some());
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
