//! Files of rules: who may name them, what they may be, and what is said of them.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use towpath_files::filter::{
    FileKind, Filter, FilterError, FilterFault, FilterSide, MAX_DIR_MERGES, MAX_FILE, RuleList, RulePlace,
};
use towpath_files::{FileError, RelPath};

use crate::walk::{make, readable, shown};

fn list(filter: &str) -> RuleList {
    let mut list = RuleList::default();
    list.push_filter(filter.as_bytes()).unwrap();
    list
}

fn shown_with(top: &Path, filter: &str) -> Result<Vec<String>, FileError> {
    shown(top, &mut Filter::new(list(filter), FilterSide::Sender, false)).map(|paths| readable(&paths))
}

/// The message and those of its sources.
fn told(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_bad_line_is_told_by_its_place_and_not_shown() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("rules");
    fs::write(&path, "- a\n\nroot:secret\n").unwrap();
    let error = RuleList::default().push_file(FileKind::Merge, &path).unwrap_err();
    assert!(
        matches!(&error, FilterError::Rule { place: RulePlace::File(at, 3), fault: FilterFault::Unknown } if *at == path)
    );
    let text = told(&error);
    assert!(text.contains("line 3") && !text.contains("secret"), "{text}");

    make(tmp.path(), b"d/.r", b"- a\nroot:secret\n");
    let text = told(&shown_with(tmp.path(), ": .r").unwrap_err());
    assert!(text.contains("d/.r") && text.contains("line 2") && !text.contains("secret"), "{text}");
}

#[test]
fn what_a_file_names_is_not_shown_either() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("rules");
    fs::write(&path, "- a\n. /nowhere/secret\n").unwrap();
    let error = RuleList::default().push_file(FileKind::Merge, &path).unwrap_err();
    assert!(matches!(&error, FilterError::Rule { place: RulePlace::File(_, 2), fault: FilterFault::Named }));
    assert!(!told(&error).contains("secret"), "{error}");

    make(tmp.path(), b".r", b": secret\n");
    make(tmp.path(), b"d/secret", b"nonsense\n");
    let text = told(&shown_with(tmp.path(), ": .r").unwrap_err());
    assert!(text.contains("line 1") && !text.contains("secret"), "{text}");
}

#[test]
fn an_argument_is_shown_without_control_characters() {
    let text = told(&RuleList::default().push_filter(b"bogus\x1b[2K").unwrap_err());
    assert!(text.contains("bogus\\u{1b}") && text.contains("begins with"), "{text}");
    let text = told(&RuleList::default().push_file(FileKind::Exclude, Path::new("/nowhere/x")).unwrap_err());
    assert!(text.contains("/nowhere/x"), "{text}");
}

#[test]
fn a_file_in_the_tree_cannot_have_others_read() {
    let tmp = tempfile::tempdir().unwrap();
    for content in [". /etc/passwd", ". other", "merge,- other", ": ../x", ": /x", ": a/x"] {
        make(tmp.path(), b".r", content.as_bytes());
        let error = shown_with(tmp.path(), ": .r").unwrap_err();
        assert!(told(&error).contains("line 1"), "{content} {error}");
    }
}

#[test]
fn links_pipes_and_huge_files_in_the_tree_are_errors_and_directories_are_not() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join(".r");
    symlink("/etc/passwd", &file).unwrap();
    assert!(told(&shown_with(tmp.path(), ": .r").unwrap_err()).contains("a symbolic link"));
    fs::remove_file(&file).unwrap();
    mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert!(told(&shown_with(tmp.path(), ": .r").unwrap_err()).contains("no regular file"));
    fs::remove_file(&file).unwrap();
    File::create(&file).unwrap().set_len(MAX_FILE as u64 + 1).unwrap();
    assert!(told(&shown_with(tmp.path(), ": .r").unwrap_err()).contains("too long"));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(shown_with(tmp.path(), ": .r").unwrap(), [".r/"]);
}

#[test]
fn a_directory_whose_rules_are_unknown_shows_nothing_and_loses_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    make(tmp.path(), b"d/.r", b"nonsense");
    let path = |text: &str| RelPath::new(text.split('/')).unwrap();
    for side in [FilterSide::Sender, FilterSide::Receiver] {
        let mut filter = Filter::new(list(": .r"), side, false);
        filter.enter(File::open(tmp.path()).unwrap().as_fd(), &RelPath::root()).unwrap();
        filter.enter(File::open(tmp.path().join("d")).unwrap().as_fd(), &path("d")).unwrap_err();
        assert!(!filter.shows(&path("d/a"), false) && filter.protects(&path("d/a"), false));
        // The caller may leave it or not.
        assert!(filter.shows(&path("e"), false) && !filter.protects(&path("e"), false));
    }
}

#[test]
fn files_that_name_themselves_come_to_an_end() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("rules");
    fs::write(&path, format!("- a\n. {}\n", path.display())).unwrap();
    let error = RuleList::default().push_file(FileKind::Merge, &path).unwrap_err();
    assert!(matches!(error, FilterError::Rule { fault: FilterFault::TooDeep, .. }), "{error}");
    make(tmp.path(), b"t/.r", b": .r\n- x\n");
    make(tmp.path(), b"t/x", b"");
    assert_eq!(shown_with(&tmp.path().join("t"), ": .r").unwrap(), [".r"]);
}

#[test]
fn a_chain_of_files_that_name_the_next_has_a_limit() {
    let tmp = tempfile::tempdir().unwrap();
    for number in 0..=MAX_DIR_MERGES {
        make(tmp.path(), format!(".r{number}").as_bytes(), format!(": .r{}\n", number + 1).as_bytes());
    }
    assert!(told(&shown_with(tmp.path(), ": .r0").unwrap_err()).contains("kinds of per-directory files"));
}

#[test]
fn an_anchored_rule_works_in_a_directory_named_like_a_pattern() {
    let tmp = tempfile::tempdir().unwrap();
    make(tmp.path(), b"[x]/.r", b"- /a\n- .r\n");
    make(tmp.path(), b"[x]/a", b"");
    assert_eq!(shown_with(tmp.path(), ": .r").unwrap(), ["[x]/"]);
}

#[test]
fn lines_that_were_sent_make_the_same_rules_and_read_no_files() {
    let mut list = RuleList::default();
    for filter in [
        "- a/",
        "+! /b",
        "-/ps //",
        "P  c ",
        "-sr x\ny",
        ":/-nwrp .q",
        ": ../../.r",
        ":e .s",
        "- ***",
        "-,r _",
    ] {
        list.push_filter(filter.as_bytes()).unwrap();
    }
    list.push_exclude(b"+ b\xff").unwrap();
    list.push_include(b"- ").unwrap_err();
    let lines = list.to_lines();
    assert_eq!(RuleList::from_lines(&lines).unwrap(), list);
    assert_eq!(lines[0], b"- a/");
    for bad in [
        &b". /etc/passwd"[..],
        b"",
        b"merge x",
        b"-C",
        b"-x a",
        b"- a\0b",
        b": ..",
        b": a/",
        b"- ",
        b"nonsense",
    ] {
        let error = RuleList::from_lines(&[b"- a".to_vec(), bad.to_vec()]).unwrap_err();
        assert!(matches!(error, FilterError::Rule { place: RulePlace::Line(2), .. }), "{error}");
    }
    let long = RuleList::from_lines(&[[b"- ", &[b'a'; 4096][..]].concat()]).unwrap_err();
    assert!(matches!(long, FilterError::Rule { fault: FilterFault::TooLong, .. }));
}

#[test]
fn a_list_has_a_limit() {
    let lines = vec![b"- a".to_vec(); towpath_files::filter::MAX_RULES + 1];
    let error = RuleList::from_lines(&lines).unwrap_err();
    assert!(matches!(error, FilterError::Rule { fault: FilterFault::TooMany, .. }), "{error}");
}
