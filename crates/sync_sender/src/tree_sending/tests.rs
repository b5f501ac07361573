use towpath_content::tree::{Decoder, Entry, Kind, MAX_XATTR_VALUE, Metadata, Xattr};

use super::super::message::Unchanged;
use super::*;

type Tree = TreeSending<u64, u64>;

fn named(name: &str, kind: Kind) -> Entry {
    Entry { name: name.as_bytes().to_vec(), kind, metadata: Metadata::default(), hard_link: None }
}

fn file(number: u64) -> Event {
    Event::Leaf(named(&format!("{number:09}"), Kind::File { size: 1, oid: None, extents: None }))
}

/// A tree with its root, which is entry 0.
fn begun() -> Tree {
    let mut tree = Tree::default();
    tree.step(&Event::Enter(named("", Kind::Directory)), None).unwrap();
    tree
}

/// One with so many files, each where its number says.
fn with_files(count: u64) -> Tree {
    let mut tree = begun();
    (1..=count).for_each(|number| tree.step(&file(number), Some(number)).unwrap());
    tree
}

fn considered(entry: u64, wanted: &[u64]) -> Message {
    Message::Considered(Considered { entry, wanted: wanted.to_vec() })
}

fn refusal(result: Result<Vec<(FileResult, u64)>, CopyError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn there_is_room_for_a_window_of_entries_and_again_for_as_many_as_are_considered() {
    let mut tree = with_files(WINDOW as u64 - 1);
    assert!(!tree.has_room() && tree.ahead().0 == WINDOW);
    tree.recv(considered(100, &[])).unwrap();
    (0..100).for_each(|number| {
        assert!(tree.has_room(), "{number}");
        tree.step(&file(WINDOW as u64 + number), None).unwrap();
    });
    assert!(!tree.has_room() && tree.ahead().0 == WINDOW);
    tree.end();
    assert!(
        tree.has_room() && tree.step(&file(u64::MAX >> 40), None).is_err(),
        "nobody waits when it is over"
    );
}

#[test]
fn there_is_room_for_a_window_of_bytes_and_one_step() {
    let mut tree = begun();
    let value = vec![7; MAX_XATTR_VALUE];
    let xattrs: Vec<_> =
        (b'a'..b'd').map(|name| Xattr { name: vec![b'u', name], value: value.clone() }).collect();
    let (mut number, mut put_out) = (0, 0);
    while tree.has_room() {
        number += 1;
        let Event::Leaf(mut entry) = file(number) else { unreachable!() };
        entry.metadata.xattrs.clone_from(&xattrs);
        tree.step(&Event::Leaf(entry), Some(number)).unwrap();
        while let Some(TreePart::Entries(bytes)) = tree.poll() {
            assert!(bytes.len() <= BLOCK);
            put_out += bytes.len() as u64;
        }
        assert_eq!(tree.ahead().1, put_out);
        assert!(put_out <= WINDOW_BYTES + (256 << 10) + 2 * BLOCK as u64, "{put_out}");
    }
    assert!(put_out > WINDOW_BYTES && tree.ahead().0 < WINDOW);
    tree.recv(considered(number + 1, &[])).unwrap();
    assert_eq!((tree.ahead(), tree.has_room()), ((0, 0), true));
}

#[test]
fn what_is_put_out_is_the_tree_in_its_order() {
    let mut tree = with_files(5000);
    tree.closed();
    tree.incomplete();
    tree.step(&Event::Leave, None).unwrap();
    tree.finish().unwrap();
    assert!(tree.step(&file(1), None).is_err() && tree.finish().is_err(), "the walk is over");
    let parts: Vec<_> = std::iter::from_fn(|| tree.poll()).collect();
    let (last, rest) = parts.split_last().unwrap();
    assert_eq!(*last, TreePart::End { is_incomplete: true });
    assert!(rest.contains(&TreePart::Closed(5001)));
    let (mut decoder, mut events) = (Decoder::new(), 0);
    for part in rest {
        let TreePart::Entries(bytes) = part else { continue };
        let mut at = 0;
        while at < bytes.len() {
            at += decoder.feed(&bytes[at..]);
            events += std::iter::from_fn(|| decoder.next_event().unwrap()).count();
        }
    }
    decoder.finish().unwrap();
    assert_eq!(events, 5002);
}

#[test]
fn a_file_is_known_until_it_was_considered_and_one_that_is_wanted_until_it_is_settled() {
    let mut tree = with_files(9);
    assert_eq!(tree.ask(1), Some(&mut 1), "before it is known to be wanted");
    tree.recv(considered(7, &[2, 4])).unwrap();
    let known: Vec<_> = (0..12).filter(|entry| tree.ask(*entry).is_some()).collect();
    assert_eq!(known, [1, 2, 3, 7, 8, 9]);
    let unchanged = [4, 9].map(|entry| Unchanged { entry, ..Unchanged::default() }).to_vec();
    let settled = Settled { placed: vec![1, 1, 99], dropped: vec![2], lost: vec![3, 6], unchanged };
    let settled = tree.recv(Message::Settled(settled)).unwrap();
    let files: Vec<_> = settled.iter().map(|(_, file)| *file).collect();
    assert_eq!(files, [2, 3, 1, 9]);
    assert_eq!(settled[0].0, FileResult::Dropped);
    assert_eq!((settled[1].0, settled[2].0), (FileResult::Lost, FileResult::Placed));
    assert!(tree.ask(9).is_none() && tree.wanted_file(7).is_some() && tree.wanted() == 2);
}

#[test]
fn a_receiver_that_breaks_a_rule_is_refused() {
    let of = |message| refusal(with_files(9).recv(message));
    assert!(of(considered(11, &[])).contains("not told of"));
    for wanted in [&[1][..], &[3, 2], &[2, 2], &[1, 3, 2, 4], &[4, 6]] {
        assert!(of(considered(5, wanted)).contains("wanted entries that are none"), "{wanted:?}");
    }
    let many = vec![1; MOST_SETTLED + 1];
    for settled in [
        Settled { placed: many.clone(), ..Settled::default() },
        Settled { dropped: many.clone(), ..Settled::default() },
        Settled { lost: many, ..Settled::default() },
    ] {
        assert!(of(Message::Settled(settled)).contains("more files settled"));
    }
    assert!(of(TreePart::Closed(1).pack(0)).contains("does not send"));
}

#[test]
fn more_files_than_may_be_wanted_are_refused_even_those_that_were_asked_for() {
    let most = MOST_WANTED as u64;
    let mut tree = with_files(most + 9);
    (1..=9).for_each(|entry| assert!(tree.ask(entry).is_some()));
    tree.recv(considered(most + 1, &[10, most + 1])).unwrap();
    assert_eq!(tree.wanted(), MOST_WANTED);
    let wanted = tree.recv(considered(most + 2, &[most + 1, most + 2]));
    assert!(refusal(wanted).contains("more files wanted"));
}
