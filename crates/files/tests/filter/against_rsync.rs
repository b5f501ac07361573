//! The same trees and the same rules, given to rsync and to the filter.

use std::os::unix::ffi::OsStrExt;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use towpath_files::display_name;
use towpath_files::filter::{FileKind, Filter, RuleList, Side};

use crate::walk::{Paths, deleted, make, shown};
use crate::{cases, rsync};

/// Options and their arguments, in a form that is readable when a case fails.
#[derive(Clone)]
struct Options(Vec<(&'static str, Vec<u8>)>);

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(option, text)| write!(f, "{option}='{}' ", display_name(text)))
    }
}

impl Options {
    fn rules(&self) -> RuleList {
        let mut list = RuleList::default();
        for (option, text) in &self.0 {
            match *option {
                "--filter" => list.push_filter(text),
                "--exclude" => list.push_exclude(text),
                _ => list.push_include(text),
            }
            .unwrap();
        }
        list
    }

    fn arguments(&self) -> impl Iterator<Item = Vec<u8>> {
        self.0.iter().map(|(option, text)| [option.as_bytes(), b"=", text].concat())
    }
}

fn readable(paths: &Paths) -> Vec<String> {
    paths.iter().map(|path| display_name(path)).collect()
}

/// Compares one run; with `delete`, what is deleted too.
fn compare(
    tree: &[(&'static [u8], cases::Node)],
    options: &Options,
    delete: Option<bool>,
) -> Result<(), TestCaseError> {
    let tmp = tempfile::tempdir().unwrap();
    let (sender, receiver) = (tmp.path().join("s"), tmp.path().join("r"));
    cases::make_tree(tree, &sender, &receiver);
    let delete_excluded = delete == Some(true);
    // A dry run tells of deleting directories that turn out not to be empty, so deleting is real.
    let flags = match delete {
        None => &["-rn"][..],
        Some(false) => &["-r", "--existing", "--ignore-existing", "--delete"],
        Some(true) => &["-r", "--existing", "--ignore-existing", "--delete", "--delete-excluded"],
    };
    let flags = flags.iter().chain(&["--out-format=%i|%n"]).map(|flag| flag.as_bytes().to_vec());
    let arguments: Vec<_> = flags.chain(options.arguments()).collect();
    let to = if delete.is_some() { receiver.clone() } else { tmp.path().join("empty") };
    let run = || rsync::run(&arguments, &sender, &to);

    // The rules travel as lines, as they do between two machines.
    let rules = RuleList::from_lines(&options.rules().to_lines()).unwrap();
    prop_assert_eq!(&rules, &options.rules());
    let filter = |side, top| Filter::new(rules.clone(), side, delete_excluded).at(top);
    let ours = shown(&sender, &mut filter(Side::Sender, &sender));
    let ours = match (ours, delete) {
        (Ok(shown), Some(_)) => deleted(&receiver, &shown, &mut filter(Side::Receiver, &receiver)),
        (ours, _) => ours,
    };
    let output = run();
    prop_assert_eq!(ours.is_ok(), output.status.success(), "{:?} {:?}", ours, output);
    let Ok(ours) = ours else { return Ok(()) };
    let (sent, gone) = rsync::itemized(&output);
    prop_assert_eq!(readable(&ours), readable(if delete.is_some() { &gone } else { &sent }));
    Ok(())
}

/// Rsync waits more than it works, so several run at once.
const AT_ONCE: u32 = 8;

fn try_all(default: u32, delete: &(impl Strategy<Value = Option<bool>> + Clone + Sync)) {
    if !rsync::is_there() {
        return;
    }
    let cases = rsync::cases(default).div_ceil(AT_ONCE);
    let try_some = || {
        let options = vec(cases::option(), 1..7).prop_map(Options);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let strategy = (cases::tree(), options, delete.clone());
        let outcome = TestRunner::new(config)
            .run(&strategy, |(tree, options, delete)| compare(&tree, &options, delete));
        outcome.unwrap();
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(try_some))));
}

#[test]
fn a_sender_shows_what_rsync_sends() {
    try_all(550, &Just(None));
}

#[test]
fn a_receiver_deletes_what_rsync_deletes() {
    try_all(350, &prop_oneof![Just(Some(false)), Just(Some(true))]);
}

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
            let ours = shown(&sender, &mut Filter::new(list, Side::Sender, false).at(&sender)).unwrap();
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
                let ours = shown(&sender, &mut Filter::new(list, Side::Sender, false)).unwrap();
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
        let ours = shown(&sender, &mut Filter::new(list, Side::Sender, false).at(&sender)).unwrap();
        assert_eq!(readable(&ours), readable(&rsync::itemized(&output).0), "{}", display_name(&rule));
    }
}
