//! Chosen rules and files, given to rsync and to the filter.

use std::os::unix::ffi::OsStrExt;

use towpath_files::display_name;
use towpath_files::filter::{FileKind, Filter, FilterSide, RuleList};

use crate::rsync;
use crate::walk::{make, readable, shown};

/// Rules that are refused, and some that look so and are not.
const ODD_RULES: [&[u8]; 48] = [
    b"",
    b"-",
    b"- ",
    b"-_",
    b"a",
    b"foo *.o",
    b"-x*",
    b"--",
    b"-q a",
    b"-! a",
    b"-!",
    b"!",
    b"! ",
    b"!a",
    b"!,",
    b"clear",
    b"clear,",
    b"clear ",
    b"clear a",
    b"clearer",
    b"exclude",
    b"exclude a",
    b"exclude_a",
    b"exclude\ta",
    b"exclude,",
    b"exclude, a",
    b"exclude,!/p a",
    b"excluder a",
    b"Hs a",
    b"H/ a",
    b"Pr a",
    b"P!p a",
    b"hide,s a",
    b"-n a",
    b"-e a",
    b"-w a",
    b"-+ a",
    b":- .x",
    b":+- .x",
    b":! .x",
    b":x",
    b": ",
    b":-+e .x",
    b"dir-merge .x",
    b"dir-merge.x",
    b"merge",
    b".",
    b"#- a",
];

#[test]
fn rules_are_refused_when_rsync_refuses_them() {
    if !rsync::is_there() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    for (option, push) in [
        ("--filter", RuleList::push_filter as fn(&mut RuleList, &[u8]) -> _),
        ("--exclude", RuleList::push_exclude),
        ("--include", RuleList::push_include),
    ] {
        for text in ODD_RULES {
            let arguments = [b"-rn".to_vec(), [option.as_bytes(), b"=", text].concat()];
            let output = rsync::run(&arguments, tmp.path(), &tmp.path().join("to"));
            let ours = push(&mut RuleList::default(), text);
            // Rules for extended attributes are refused here only.
            let is_xattr = text.starts_with(b"-x") || text == b":x";
            let expected = output.status.success() && !(is_xattr && option == "--filter");
            assert_eq!(ours.is_ok(), expected, "{option} {} {ours:?} {output:?}", display_name(text));
        }
    }
}

/// Content of a file of rules, and how it is merged.
const FILES: [(&[u8], &[u8]); 20] = [
    (b".", b"- a\n# c\n\n;d\r\n+ b\r"),
    (b".-", b"a\n- b\n#c\n+ c\n!\n"),
    (b".+", b"a\n!\n"),
    (b".w", b"-_a -_b\t#\n"),
    (b".w", b"-_a\x0b-_b"),
    (b".w-", b"a #c\n\n ab"),
    (b".w", b"- a"),
    (b".s", b"- a\n- b"),
    (b".s", b"-r a"),
    (b".r", b"H a"),
    (b".p", b"- a\n:e .r\n"),
    (b".e", b"- a\n"),
    (b".n", b"- a\n"),
    (b".", b"bad a\n"),
    (b".", b"- a\n!\n- c\n"),
    (b".", b"-"),
    (b".", b"  - a"),
    (b".", b":s .r\n:s .r\n"),
    (b"./", b"- /a\n- s/b\n"),
    (b".C", b"a b"),
];

#[test]
fn merged_files_mean_what_they_mean_to_rsync() {
    if !rsync::is_there() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let (sender, receiver, file) = (tmp.path().join("s"), tmp.path().join("r"), tmp.path().join("rules"));
    for name in ["a", "b", "c", "ab", "#c", "d", "s/b", "s/a/x", "- b", "+ c", "rules", "e/!"] {
        make(&sender, name.as_bytes(), b"");
    }
    make(&sender, b".r", b"- d\n");
    make(&sender, b"s/.r", b"- /a/x\n");
    for (merge, content) in FILES {
        std::fs::write(&file, content).unwrap();
        let rule = [merge, b" ", file.as_os_str().as_bytes()].concat();
        let output = rsync::run(
            &[b"-rn".to_vec(), b"--out-format=%i|%n".to_vec(), [b"--filter=", &rule[..]].concat()],
            &sender,
            &receiver,
        );
        let mut list = RuleList::default();
        let pushed = list.push_filter(&rule);
        let is_cvs = merge == b".C";
        assert_eq!(pushed.is_ok(), output.status.success() && !is_cvs, "{pushed:?} {output:?}");
        if pushed.is_ok() {
            let ours = shown(&sender, &mut Filter::new(list, FilterSide::Sender, false).at(&sender)).unwrap();
            assert_eq!(readable(&ours), readable(&rsync::itemized(&output).0), "{}", display_name(content));
        }
    }
}

#[test]
fn include_and_exclude_files_mean_what_they_mean_to_rsync() {
    if !rsync::is_there() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let (sender, receiver, file) = (tmp.path().join("s"), tmp.path().join("r"), tmp.path().join("rules"));
    for name in ["a", "b", "c", "ab", "#c", ";d", "!e", "-f", "P a", " g"] {
        make(&sender, name.as_bytes(), b"");
    }
    for content in
        ["a\n+ b\n*\n", "- a\r\n#c\n;d\n", "!e\n-f\nP a\n g\n", "a\n!\nb\n", "+ ab\n- a*\n", "- \n"]
    {
        std::fs::write(&file, content).unwrap();
        for (option, kind) in [("--exclude-from", FileKind::Exclude), ("--include-from", FileKind::Include)] {
            let from = [option.as_bytes(), b"=", file.as_os_str().as_bytes()].concat();
            let last = b"--exclude=*b".to_vec();
            let output = rsync::run(
                &[b"-rn".to_vec(), b"--out-format=%i|%n".to_vec(), from, last],
                &sender,
                &receiver,
            );
            let mut list = RuleList::default();
            let pushed = list.push_file(kind, &file);
            assert_eq!(pushed.is_ok(), output.status.success(), "{pushed:?} {output:?}");
            list.push_exclude(b"*b").unwrap();
            if pushed.is_ok() {
                let ours = shown(&sender, &mut Filter::new(list, FilterSide::Sender, false)).unwrap();
                assert_eq!(readable(&ours), readable(&rsync::itemized(&output).0), "{option} {content}");
            }
        }
    }
}

#[test]
fn directories_above_the_tree_are_looked_at_as_rsync_does() {
    if !rsync::is_there() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let top = tmp.path().canonicalize().unwrap();
    for name in ["u/v/s/a", "u/v/s/b", "u/v/s/c", "u/v/s/d/a", "u/v/s/d/e", "u/v/s/d/f"] {
        make(&top, name.as_bytes(), b"");
    }
    for (file, content) in [
        ("u/.r", "- /v/s/a\n- e\n"),
        ("u/v/.r", "- /s/b\n- s/d/f\n"),
        ("u/v/s/.r", "- /c\n"),
        ("u/v/s/d/.r", "+ /e\n"),
        (".r", "- d/\n"),
    ] {
        make(&top, file.as_bytes(), content.as_bytes());
    }
    let sender = top.join("u/v/s");
    let up = top.join("u/.r");
    let absolute =
        |before: &str, path: &std::path::Path| [before.as_bytes(), path.as_os_str().as_bytes()].concat();
    let rules = [
        b": .r".to_vec(),
        b": ../.r".to_vec(),
        b": ../../.r".to_vec(),
        b":n ../../.r".to_vec(),
        b": ./.r".to_vec(),
        b": d/.r".to_vec(),
        b": d/../../.r".to_vec(),
        b": //.r".to_vec(),
        absolute(": ", &up),
        absolute("-/ ", &sender.join("d/f")),
        absolute("-!/ ", &sender.join("d**")),
        b"-/ v/s/a".to_vec(),
        b"-/ s/**/a".to_vec(),
        b"-/ **/s/a".to_vec(),
        b"-/ a".to_vec(),
        b"-/ /a".to_vec(),
        b":/- ../.r".to_vec(),
    ];
    for rule in rules {
        let arguments = [b"-rn".to_vec(), b"--out-format=%i|%n".to_vec(), [b"--filter=", &rule[..]].concat()];
        let output = rsync::run(&arguments, &sender, &top.join("to"));
        assert!(output.status.success(), "{output:?}");
        let mut list = RuleList::default();
        list.push_filter(&rule).unwrap();
        let ours = shown(&sender, &mut Filter::new(list, FilterSide::Sender, false).at(&sender)).unwrap();
        assert_eq!(readable(&ours), readable(&rsync::itemized(&output).0), "{}", display_name(&rule));
    }
}
