//! The examples of rsync's manual, without rsync.

use std::fs::File;
use std::os::fd::AsFd;

use towpath_files::RelPath;
use towpath_files::filter::{Filter, FilterSide, RuleList};

use crate::walk::{make, readable, shown};

fn rules(filters: &[&str]) -> RuleList {
    let mut list = RuleList::default();
    filters.iter().for_each(|filter| list.push_filter(filter.as_bytes()).unwrap());
    list
}

fn sender(filters: &[&str]) -> Filter {
    Filter::new(rules(filters), FilterSide::Sender, false)
}

fn receiver(filters: &[&str]) -> Filter {
    Filter::new(rules(filters), FilterSide::Receiver, false)
}

/// A path, that of a directory with a slash at the end.
fn path(text: &str) -> (RelPath, bool) {
    (RelPath::new(text.trim_end_matches('/').split('/')).unwrap(), text.ends_with('/'))
}

fn shows(filter: &mut Filter, text: &str) -> bool {
    let (path, is_dir) = path(text);
    filter.shows(&path, is_dir)
}

fn protects(filter: &mut Filter, text: &str) -> bool {
    let (path, is_dir) = path(text);
    filter.protects(&path, is_dir)
}

#[test]
fn patterns_exclude_what_the_manual_says() {
    for (filter, hidden, shown) in [
        ("- *.o", &["a.o", "d/a.o", "d.o/"][..], &["a.c", "a.o.c"][..]),
        ("- /foo", &["foo", "foo/"], &["d/foo"]),
        ("- foo/", &["foo/", "d/foo/"], &["foo", "d/foo"]),
        ("- foo/bar", &["foo/bar", "d/foo/bar/"], &["foo", "bar", "afoo/bar"]),
        ("- foo/*/bar", &["foo/a/bar", "d/foo/a/bar"], &["foo/bar", "foo/a/b/bar"]),
        ("- /foo/**/bar", &["foo/a/bar", "foo/a/b/bar"], &["foo/bar", "d/foo/a/bar"]),
        (
            "- dir_name/***",
            &["dir_name/", "dir_name/a", "dir_name/a/b", "d/dir_name/"],
            &["dir_name", "dir_names/"],
        ),
        ("- foo\\bar", &["foo\\bar"], &["foobar"]),
        ("- foo\\bar*", &["foobar", "foobarn"], &["foo\\bar"]),
        ("- foo\\\\bar*", &["foo\\bar"], &["foobar"]),
        ("-! */", &["a", "d/a"], &["a/", "d/a/"]),
        ("- [a-z]", &["b"], &["B", "bb"]),
        ("exclude_*.o", &["a.o"], &["a"]),
        ("hide,p *.o", &["a.o"], &["a"]),
    ] {
        let mut filter = sender(&[filter]);
        hidden.iter().for_each(|path| assert!(!shows(&mut filter, path), "{filter:?} {path}"));
        shown.iter().for_each(|path| assert!(shows(&mut filter, path), "{filter:?} {path}"));
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let tmp = tempfile::tempdir().unwrap();
    for name in ["x/file.txt", "x/y/file.txt", "x/y/zzz.txt", "x/z/file.txt"] {
        make(tmp.path(), name.as_bytes(), b"");
    }
    let all = |filters: &[&str]| readable(&shown(tmp.path(), &mut sender(filters)).unwrap());
    assert_eq!(all(&["+ x/", "+ x/y/", "+ x/y/file.txt", "- *"]), ["x/", "x/y/", "x/y/file.txt"]);
    assert_eq!(all(&["+ */", "+ zzz.txt", "- *"]), ["x/", "x/y/", "x/y/zzz.txt", "x/z/"]);
    assert_eq!(all(&["+ zzz.txt", "- *"]), [""; 0]);
    assert_eq!(all(&["- x", "!", "- /x/[yz]"]), ["x/", "x/file.txt"]);
}

#[test]
fn rules_of_one_side_hold_there_only() {
    for (filter, hides, protects_it) in [
        ("- a", true, true),
        ("H a", true, false),
        ("-s a", true, false),
        ("P a", false, true),
        ("-r a", false, true),
        ("-sr a", true, true),
    ] {
        assert_eq!(!shows(&mut sender(&[filter]), "a"), hides, "{filter}");
        assert_eq!(protects(&mut receiver(&[filter]), "a"), protects_it, "{filter}");
    }
    assert!(!protects(&mut receiver(&["R a", "P *"]), "a"));
    assert!(shows(&mut sender(&["S a", "H *"]), "a"));
}

#[test]
fn delete_excluded_leaves_only_rules_that_name_the_receiver() {
    let filter = |text| Filter::new(rules(&[text]), FilterSide::Receiver, true);
    assert!(!protects(&mut filter("- a"), "a"));
    assert!(protects(&mut filter("P a"), "a"));
    assert!(protects(&mut filter("-sr a"), "a"));
}

#[test]
fn perishable_rules_do_not_keep_a_deleted_directory() {
    let mut filter = receiver(&["-p *.o", "- keep"]);
    let protected = |filter: &mut Filter, text| filter.protects_in_deleted(&path(text).0, false);
    assert!(protects(&mut filter, "d/a.o") && !protected(&mut filter, "d/a.o"));
    assert!(protected(&mut filter, "d/keep"));
}

#[test]
fn a_perishable_file_of_rules_is_so_with_the_exclusion_of_others_it_names() {
    let tmp = tempfile::tempdir().unwrap();
    make(tmp.path(), b".r", b":e .q\n");
    let mut filter = receiver(&[":p .r"]);
    filter.enter(File::open(tmp.path()).unwrap().as_fd(), &RelPath::root()).unwrap();
    assert!(protects(&mut filter, ".q"));
    assert!(!filter.protects_in_deleted(&path(".q").0, false));
}

#[test]
fn per_directory_rules_are_inherited_and_come_before_those_from_above() {
    let tmp = tempfile::tempdir().unwrap();
    for (name, content) in [
        (".r", "- *.o\n- /top\n"),
        ("top", ""),
        ("a.o", ""),
        ("d/.r", "+ a.o\n"),
        ("d/a.o", ""),
        ("d/b.o", ""),
        ("d/top", ""),
        ("d/e/a.o", ""),
        ("f/.r", "!\n"),
        ("f/b.o", ""),
    ] {
        make(tmp.path(), name.as_bytes(), content.as_bytes());
    }
    let all = |filter| readable(&shown(tmp.path(), &mut sender(&[filter, "- .r"])).unwrap());
    assert_eq!(all(": .r"), ["d/", "d/a.o", "d/e/", "d/e/a.o", "d/top", "f/", "f/b.o"]);
    assert_eq!(all(":n .r"), ["d/", "d/a.o", "d/b.o", "d/e/", "d/e/a.o", "d/top", "f/", "f/b.o"]);
    assert_eq!(all("- .r").len(), 10 - 3 + 3);
}
