//! Scans that hide, follow, number and go on: what the reading side of a copy asks for.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use towpath_files::{
    FileError, HardLinks, Prune, RelPath, ScanOptions, Scanned, SourceTree, look, scan_pruned,
};

use crate::support::{outline, path, scan_all};

/// Hides names that contain `hidden`, and notes what it is told.
#[derive(Default)]
struct Noting {
    open: Vec<RelPath>,
    told: Vec<String>,
    refuse: &'static str,
}

impl Prune for Noting {
    fn enter(&mut self, dir: BorrowedFd<'_>, path: &RelPath) -> Result<(), FileError> {
        assert!(rustix::fs::fstat(dir).is_ok());
        if path.as_bytes() == self.refuse.as_bytes() && !self.refuse.is_empty() {
            return Err(FileError::new("read rules in", Path::new("d"), rustix::io::Errno::IO));
        }
        self.told.push(format!("+{path}"));
        self.open.push(path.clone());
        Ok(())
    }

    fn leave(&mut self) {
        let path = self.open.pop().unwrap();
        self.told.push(format!("-{path}"));
    }

    fn shows(&mut self, dir: &RelPath, name: &[u8], is_dir: bool) -> bool {
        assert_eq!(Some(dir), self.open.last());
        let path = dir.join(name).unwrap();
        self.told.push(format!("{path}{}", if is_dir { "/" } else { "" }));
        !path.as_bytes().ends_with(b"hidden")
    }
}

fn tree() -> tempfile::TempDir {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir_all(tmp.path().join("d/hidden/in")).unwrap();
    for file in ["a", "d/f", "d/x-hidden"] {
        fs::write(tmp.path().join(file), b"").unwrap();
    }
    symlink("nowhere", tmp.path().join("link-hidden")).unwrap();
    tmp
}

fn pruned(root: &Path, options: &ScanOptions, prune: &mut Noting) -> Vec<Scanned> {
    let mut steps = Vec::new();
    scan_pruned::<()>(root, options, &mut HardLinks::default(), prune, &mut |step| {
        steps.push(step);
        Ok(())
    })
    .unwrap();
    steps
}

#[test]
fn what_is_hidden_is_neither_told_nor_entered() {
    let tmp = tree();
    let mut prune = Noting::default();
    let steps = pruned(tmp.path(), &ScanOptions::default(), &mut prune);
    assert_eq!(outline(&steps).join(" "), "+ a +d f - -");
    let told = "+. a d/ +d d/f d/hidden/ d/x-hidden -d link-hidden -.";
    assert_eq!(prune.told.join(" "), told);
}

#[test]
fn rules_that_cannot_be_read_are_told_and_their_directory_is_not_read() {
    let tmp = tree();
    let mut prune = Noting { refuse: "d", ..Noting::default() };
    let steps = pruned(tmp.path(), &ScanOptions::default(), &mut prune);
    assert_eq!(outline(&steps).join(" "), "+ a +d ! - -");
    assert_eq!(prune.told.join(" "), "+. a d/ link-hidden -.");
}

#[test]
fn scans_below_one_root_share_numbers_and_tell_paths_from_the_root() {
    let tmp = tempfile::tempdir().unwrap();
    for dir in ["a", "b/c", "rest"] {
        fs::create_dir_all(tmp.path().join(dir)).unwrap();
    }
    for (file, link) in [("a/1", "b/c/1"), ("a/2", "rest/2")] {
        fs::write(tmp.path().join(file), b"").unwrap();
        fs::hard_link(tmp.path().join(file), tmp.path().join(link)).unwrap();
    }
    fs::write(tmp.path().join("b/c/single"), b"").unwrap();
    let source = SourceTree::open(tmp.path()).unwrap();
    let options = ScanOptions { hard_links: true, ..ScanOptions::default() };
    let (mut links, mut prune, mut numbers) = (HardLinks::default(), Noting::default(), Vec::new());
    for names in [&["a"][..], &["b", "c"]] {
        source
            .scan_below::<()>(&path(names), &options, &mut links, &mut prune, &mut |step| {
                if let Scanned::Leaf(found) = step {
                    numbers.push((String::from_utf8(found.entry.name).unwrap(), found.entry.hard_link));
                }
                Ok(())
            })
            .unwrap();
    }
    let mut found = source.look(&path(&["rest", "2"]), &options).unwrap();
    links.number(&mut found);
    numbers.push(("rest".into(), found.entry.hard_link));
    let wanted = [("1", Some(0)), ("2", Some(1)), ("1", Some(0)), ("single", None), ("rest", Some(1))];
    assert_eq!(numbers, wanted.map(|(name, number)| (name.to_owned(), number)));
    assert_eq!(prune.told.join(" "), "+a a/1 a/2 -a +b/c b/c/1 b/c/single -b/c");
    let unseen = source.dir(&path(&["b"])).unwrap();
    assert!(rustix::fs::fstat(unseen.as_fd()).is_ok());
}

#[test]
fn links_are_followed_if_asked_for_and_loops_end() {
    let tmp = tempfile::tempdir().unwrap();
    let (root, outside) = (tmp.path().join("src"), tmp.path().join("outside"));
    fs::create_dir_all(root.join("d")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), b"content").unwrap();
    symlink(&outside, root.join("d/dir")).unwrap();
    symlink("../../outside/f", root.join("d/file")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("..", root.join("d/up")).unwrap();
    symlink("self", root.join("self")).unwrap();
    for xattrs in [false, true] {
        let options = ScanOptions { follow_links: true, xattrs, ..ScanOptions::default() };
        let steps = scan_all(&root, &options);
        assert_eq!(outline(&steps).join(" "), "+ +d +dir f - file ! - ! ! -");
        let stamps: HashMap<_, _> = steps
            .iter()
            .filter_map(|step| if let Scanned::Leaf(found) = step { Some(found) } else { None })
            .map(|found| {
                assert!(found.file.as_ref().unwrap().open().is_ok());
                (found.entry.name.clone(), found.stamp)
            })
            .collect();
        let source = SourceTree::open(&root).unwrap();
        assert!(source.open_file(&path(&["d", "file"]), &stamps[&b"file"[..]]).is_err());
        let source = source.following_links();
        source.open_file(&path(&["d", "file"]), &stamps[&b"file"[..]]).unwrap();
        source.open_file(&path(&["d", "dir", "f"]), &stamps[&b"f"[..]]).unwrap();
    }
    let hidden = ScanOptions { follow_links: true, ..ScanOptions::default() };
    let steps = pruned(tree().path(), &hidden, &mut Noting::default());
    assert_eq!(outline(&steps).join(" "), "+ a +d f - -", "a hidden link to nowhere is no failure");
}

#[test]
fn a_named_thing_is_looked_at_as_it_was_named() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("d")).unwrap();
    fs::write(tmp.path().join("f"), b"").unwrap();
    symlink("d", tmp.path().join("l")).unwrap();
    let (plain, follow) = (ScanOptions::default(), ScanOptions { follow_links: true, ..Default::default() });
    let seen = |name: &str, options: &ScanOptions| {
        let found = look(&tmp.path().join(name), options).unwrap();
        (String::from_utf8(found.entry.name).unwrap(), format!("{:?}", found.entry.kind))
    };
    let is = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    assert_eq!(seen("d", &plain), is("d", "Directory"));
    assert_eq!(seen("l/", &plain), is("l", "Directory"));
    assert_eq!(seen("l", &follow), is("l", "Directory"));
    assert!(seen("l", &plain).1.starts_with("Symlink"));
    assert_eq!(seen("l/.", &plain).1, "Directory");
    assert_eq!(seen("d/..", &plain), is("", "Directory"));
    assert!(look(&tmp.path().join("f/"), &plain).is_err());
    let gone = look(&tmp.path().join("gone"), &plain);
    assert!(matches!(gone, Err(FileError::Vanished { .. })), "{gone:?}");
    assert!(look(Path::new("/"), &plain).unwrap().entry.name.is_empty());
}

#[test]
fn a_source_file_is_removed_only_if_it_is_as_it_was_seen() {
    let tmp = tempfile::tempdir().unwrap();
    for file in ["same", "written", "linked"] {
        fs::write(tmp.path().join(file), b"content").unwrap();
        let file = fs::File::options().write(true).open(tmp.path().join(file)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    fs::hard_link(tmp.path().join("linked"), tmp.path().join("linked-2")).unwrap();
    let source = SourceTree::open(tmp.path()).unwrap();
    let seen = |name: &str| source.look(&path(&[name]), &ScanOptions::default()).unwrap().stamp;
    let stamps = ["same", "written", "linked", "linked-2"].map(|name| (name, seen(name)));
    fs::write(tmp.path().join("written"), b"CONTENT").unwrap();
    for (name, stamp) in stamps {
        let removed = source.remove_file(&path(&[name]), &stamp);
        match name {
            "written" => assert!(matches!(removed, Err(FileError::Changed { .. })), "{removed:?}"),
            _ => removed.unwrap(),
        }
    }
    assert_eq!(crate::support::names_in(tmp.path()), ["written"]);
}
