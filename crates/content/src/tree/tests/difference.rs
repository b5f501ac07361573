//! The difference of two trees is that of the maps from path to entry.

use std::convert::Infallible;

use super::*;

type Path = Vec<Vec<u8>>;

fn ok(events: &[Event]) -> impl Iterator<Item = Result<Event, Infallible>> {
    events.iter().cloned().map(Ok)
}

fn changes(old: &[Event], new: &[Event]) -> Result<Vec<Change>, DifferenceError<Infallible>> {
    difference(ok(old), ok(new)).collect()
}

fn map_of(events: &[Event]) -> BTreeMap<Path, Entry> {
    let mut map = BTreeMap::new();
    let mut path = Path::new();
    for event in events {
        let Some(entry) = event.entry() else {
            path.pop();
            continue;
        };
        path.push(entry.name.clone());
        map.insert(path[1..].to_vec(), entry.clone());
        if matches!(event, Event::Leaf(_)) {
            path.pop();
        }
    }
    map
}

/// Parts in which two entries have to be equal, if their content or their metadata is the same.
fn parts(entry: &Entry) -> (Kind, impl PartialEq) {
    let mut kind = entry.kind.clone();
    let mut holes = None;
    if let Kind::File { extents, .. } = &mut kind {
        holes = extents.take();
    }
    (kind, (entry.metadata.clone(), holes, entry.hard_link.is_some()))
}

fn by_maps(old: &[Event], new: &[Event]) -> Vec<Change> {
    let (old, new) = (map_of(old), map_of(new));
    let paths: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let what = |path| match (old.get(path), new.get(path)) {
        (None, new) => new.cloned().map(What::Added),
        (old, None) => old.cloned().map(What::Removed),
        (Some(old), Some(new)) => {
            let (content, metadata) = (parts(old).0 != parts(new).0, parts(old).1 != parts(new).1);
            let (old, new) = (Box::new(old.clone()), Box::new(new.clone()));
            (content || metadata).then_some(What::Changed { old, new, content, metadata })
        }
    };
    paths.into_iter().filter_map(|path| what(path).map(|what| Change { path: path.clone(), what })).collect()
}

/// Two trees that share a part.
fn pairs() -> impl Strategy<Value = (Node, Node)> {
    let graft = |(mut old, mut new, shared): (Node, Node, Node)| {
        for node in [&mut old, &mut new] {
            if node.kind == Kind::Directory {
                node.children.insert(b"ab".to_vec(), shared.clone());
            }
        }
        (old, new)
    };
    (nodes(false), nodes(false), nodes(false)).prop_map(graft)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn changes_are_those_of_the_maps((old, new) in pairs()) {
        let (old, new) = (old.events(), new.events());
        prop_assert_eq!(changes(&old, &new), Ok(by_maps(&old, &new)));
        prop_assert_eq!(changes(&old, &old), Ok(vec![]));
        prop_assert_eq!(changes(&[], &new), Ok(by_maps(&[], &new)));
    }
}

fn one_change(old: Event, new: Event) -> Option<(bool, bool)> {
    let changes = changes(&tree([old]), &tree([new])).unwrap();
    assert!(changes.len() < 2);
    changes.first().map(|change| match &change.what {
        What::Changed { content, metadata, .. } => (*content, *metadata),
        other => panic!("{other:?}"),
    })
}

fn touched(event: Event) -> Event {
    with(event, |entry| entry.metadata.modified.nanos += 1)
}

#[test]
fn a_touched_file_has_the_same_content() {
    assert_eq!(one_change(file("a"), file("a")), None);
    assert_eq!(one_change(file("a"), touched(file("a"))), Some((false, true)));
    assert_eq!(one_change(file("a"), leaf("a", file_kind(b"other"))), Some((true, false)));
    assert_eq!(one_change(file("a"), leaf("a", Kind::Fifo)), Some((true, false)));
}

#[test]
fn without_oid_size_and_time_decide() {
    let unread = |size| leaf("a", Kind::File { size, oid: None, extents: None });
    assert_eq!(one_change(file("a"), unread(1)), None);
    assert_eq!(one_change(unread(1), unread(1)), None);
    assert_eq!(one_change(unread(1), unread(2)), Some((true, false)));
    assert_eq!(one_change(unread(1), touched(file("a"))), Some((true, true)));
    let chmod = with(unread(1), |entry| entry.metadata.mode = 0);
    assert_eq!(one_change(unread(1), chmod), Some((false, true)));
}

#[test]
fn hard_link_numbers_of_two_trees_are_not_compared() {
    let linked = |number| with(file("a"), |entry| entry.hard_link = number);
    assert_eq!(one_change(linked(Some(1)), linked(Some(2))), None);
    assert_eq!(one_change(linked(None), linked(Some(2))), Some((false, true)));
}

#[test]
fn holes_are_not_content() {
    let sparse = |extents| leaf("a", Kind::File { size: 9, oid: Some(Oid::of(b"")), extents });
    assert_eq!(one_change(sparse(None), sparse(Some(vec![]))), Some((false, true)));
}

#[test]
fn a_directory_in_place_of_a_file_and_back() {
    let a_file = tree([file("a"), file("b")]);
    let a_directory = tree([enter("a"), file("x"), Event::Leave, file("b")]);
    let summary = |old: &[Event], new: &[Event]| -> Vec<_> {
        let line = |change: &Change| {
            let what = match &change.what {
                What::Added(_) => "added",
                What::Removed(_) => "removed",
                What::Changed { content: true, metadata: false, .. } => "changed",
                What::Changed { .. } => "unexpected",
            };
            format!("{what} {}", change.path.join(&b'/').escape_ascii())
        };
        changes(old, new).unwrap().iter().map(line).collect()
    };
    assert_eq!(summary(&a_file, &a_directory), ["changed a", "added a/x"]);
    assert_eq!(summary(&a_directory, &a_file), ["changed a", "removed a/x"]);
}

#[test]
fn a_walk_that_breaks_off_does_not_look_like_removal() {
    let whole = tree([file("a"), file("b")]);
    for cut in [0, 1, 2, 3] {
        let mut found = difference(ok(&whole), ok(&whole[..cut]));
        let error = found.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "New tree: tree: ends before its root does");
        assert!(found.next().is_none());
    }
    let error = changes(&whole[..2], &whole).unwrap_err().to_string();
    assert_eq!(error, "Old tree: tree: ends before its root does");
}

#[test]
fn walks_in_disorder_or_with_errors_of_their_own() {
    let unsorted = tree([file("b"), file("a")]);
    assert!(matches!(changes(&unsorted, &tree([])), Err(DifferenceError::Tree { side: TreeSide::Old, .. })));
    let twice = [tree([]), tree([])].concat();
    assert!(matches!(changes(&tree([]), &twice), Err(DifferenceError::Tree { side: TreeSide::New, .. })));
    let failing = [Ok(enter("")), Err("unreadable")];
    let mut found = difference(tree([]).into_iter().map(Ok), failing);
    let failed = DifferenceError::Walk { side: TreeSide::New, error: "unreadable" };
    assert_eq!(found.next(), Some(Err(failed)));
    assert_eq!(found.next(), None);
}
