//! `--safe-links` against rsync.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use towpath_files::RelPath;
use towpath_files::filter::safe_links::is_unsafe;

use crate::rsync;

const TARGETS: [&str; 44] = [
    "a",
    "a/b",
    "./a",
    ".",
    "./",
    "..",
    "../",
    "../a",
    "../..",
    "../../",
    "../../a",
    "../../../a",
    "../../../../a",
    "../..//../a",
    "..//../a",
    "..//a",
    "..//..//",
    ".//../a",
    "./..",
    "./../a",
    "a/..",
    "a/../",
    "a/../b",
    "a/../../b",
    "a/../../x",
    "../a/..",
    "../a/../b",
    "...",
    "../...",
    ".../..",
    "..a/..b",
    "../..a",
    "..a",
    "../.",
    "../..a/../..",
    "/",
    "/a",
    "//a",
    "/..",
    "a/./b",
    "../../.",
    "../../..",
    "a//b/",
    "./.",
];

/// Every target, in a link at each depth.
fn cases() -> Vec<(RelPath, &'static str)> {
    let at = |target| {
        ["", "d", "d/e", "d/e/f"].map(|dir| {
            let number = TARGETS.iter().position(|own| *own == target).unwrap();
            let name = format!("link{number}");
            let names = dir.split('/').filter(|name| !name.is_empty()).chain([name.as_str()]);
            (RelPath::new(names).unwrap(), target)
        })
    };
    TARGETS.into_iter().flat_map(at).collect()
}

#[test]
fn links_are_as_safe_as_rsync_says() {
    if !rsync::is_recent() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let (from, to) = (tmp.path().join("s"), tmp.path().join("r"));
    for (path, target) in cases() {
        let full = path.below(&from);
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        symlink(OsStr::from_bytes(target.as_bytes()), full).unwrap();
    }
    let output = rsync::run(&[b"-rl".to_vec(), b"--safe-links".to_vec()], &from, &to);
    assert!(output.status.success(), "{output:?}");
    for (path, target) in cases() {
        let was_left_out = path.below(&to).symlink_metadata().is_err();
        assert_eq!(is_unsafe(target.as_bytes(), &path), was_left_out, "{path} -> {target}");
    }
}

#[test]
fn absolute_empty_and_outward_links_are_unsafe() {
    let path = |text: &str| RelPath::new(text.split('/')).unwrap();
    for (link, target) in
        [("l", "/etc/passwd"), ("l", ""), ("l", ".."), ("d/l", "../.."), ("d/l", "a/../../x")]
    {
        assert!(is_unsafe(target.as_bytes(), &path(link)), "{link} -> {target}");
    }
    for (link, target) in [("l", "a"), ("d/l", "../a"), ("d/l", ".."), ("d/e/l", "../../a/b")] {
        assert!(!is_unsafe(target.as_bytes(), &path(link)), "{link} -> {target}");
    }
}
