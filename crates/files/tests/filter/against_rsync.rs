//! The same trees and the same rules, given to rsync and to the filter.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use towpath_files::display_name;
use towpath_files::filter::{Filter, FilterSide, RuleList};

use crate::walk::{deleted, readable, shown};
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

/// Compares one run; with `delete`, what is deleted too.
fn compare(
    tree: &[(&'static [u8], cases::Node)],
    options: &Options,
    delete: Option<bool>,
) -> Result<(), TestCaseError> {
    let tmp = rsync::tempdir();
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
    let ours = shown(&sender, &mut filter(FilterSide::Sender, &sender));
    let ours = match (ours, delete) {
        (Ok(shown), Some(_)) => deleted(&receiver, &shown, &mut filter(FilterSide::Receiver, &receiver)),
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
