use towpath_content::tree::Time;
use towpath_files::Stamp;

use super::super::liar::{Step, leaf, one};
use super::*;

/// A tree with so many files, whose number is that of their entry less 2.
fn tree(files: u64) -> Vec<u8> {
    let files: Vec<_> = (0..files).map(|number| leaf(&format!("{number:06}"), 1)).collect();
    let Step::Send(Message::Entries(whole)) = one(&files) else { unreachable!() };
    whole.unpack().unwrap().unwrap().into()
}

fn entries(bytes: &[u8]) -> Message {
    TreePart::Entries(Bytes::copy_from_slice(bytes)).pack(0)
}

/// Names of the files that come, and what else.
fn steps(tree: &mut TreeReceiving) -> Vec<String> {
    let name = |step| match step {
        SenderStep::Event(Event::Leaf(entry)) => String::from_utf8(entry.name).unwrap(),
        SenderStep::Event(Event::Enter(_)) => "in".to_owned(),
        SenderStep::Event(Event::Leave) => "out".to_owned(),
        SenderStep::Closed(entry) => format!("closed {entry}"),
        SenderStep::End { is_incomplete } => format!("end {is_incomplete}"),
    };
    std::iter::from_fn(|| tree.next_step().unwrap()).map(name).collect()
}

fn message(news: News) -> Message {
    let News::Send(message) = news else { panic!("{news:?}") };
    message
}

#[test]
fn steps_come_in_their_order_however_the_bytes_are_cut() {
    let bytes = tree(5000);
    for len in [1000, 65_536, 100_000] {
        let (mut tree, mut came, is_incomplete) = (TreeReceiving::default(), Vec::new(), len == 1000);
        tree.take(TreePart::Closed(1).pack(0)).unwrap();
        for part in bytes.chunks(len) {
            tree.take(entries(part)).unwrap();
            came.extend(steps(&mut tree));
            assert_eq!(tree.held(), (0, 0));
        }
        tree.take(entries(b"")).unwrap();
        tree.take(TreePart::End { is_incomplete }.pack(0)).unwrap();
        came.extend(steps(&mut tree));
        assert_eq!(came.len(), 5006);
        assert_eq!(came[..4], ["closed 1", "in", "in", "000000"]);
        assert_eq!(came[5003..], ["out".to_owned(), "out".to_owned(), format!("end {is_incomplete}")]);
        let more = tree.take(entries(&bytes)).unwrap_err();
        assert!(more.to_string().contains("more of a tree"), "{more}");
    }
}

#[test]
fn a_tree_that_is_none_is_refused() {
    for bytes in [&b""[..], &tree(5)[..40], &[255; 70_000]] {
        let mut tree = TreeReceiving::default();
        tree.take(entries(bytes)).unwrap();
        tree.take(TreePart::End { is_incomplete: false }.pack(0)).unwrap();
        let refused = std::iter::from_fn(|| tree.next_step().transpose()).find_map(Result::err);
        assert!(refused.unwrap().to_string().contains("does not understand"));
    }
}

#[test]
fn more_than_a_sender_may_tell_at_once_is_refused_and_room_comes_back_with_each_step() {
    for part in [TreePart::Closed(9), TreePart::Entries(Bytes::from(vec![0; 200_000]))] {
        let (cost, mut tree) = (part.cost(), TreeReceiving::default());
        while tree.held().0 <= MAX_WAITING {
            tree.take(part.clone().pack(0)).unwrap();
            assert!(tree.held().0 <= MAX_WAITING + cost);
        }
        let refused = tree.take(part.clone().pack(0)).unwrap_err();
        assert!(refused.to_string().contains("more than was asked for"), "{refused}");
        let _ = tree.next_step();
        tree.take(part.pack(0)).unwrap();
    }
}

#[test]
fn news_is_gathered_for_a_while_and_what_was_considered_goes_at_once_behind_it() {
    let (mut tree, begun) = (TreeReceiving::default(), Instant::now());
    assert!(matches!(tree.poll(begun), News::Nothing));
    tree.settled(3, FileResult::Placed);
    let News::Wait(look) = tree.poll(begun) else { panic!("it is not gathered") };
    assert_eq!(look, begun + LOOK);
    tree.settled(4, FileResult::Dropped);
    assert!(matches!(tree.poll(begun + GATHER - LOOK), News::Wait(until) if until == begun + GATHER));
    let settled = Settled { placed: vec![3], dropped: vec![4], ..Settled::default() };
    assert_eq!(message(tree.poll(begun + GATHER)), Message::Settled(settled));
    let here = Stamp { inode: 7, changed: Time { seconds: 8, nanos: 9 }, ..Stamp::default() };
    tree.settled(5, FileResult::Unchanged(here));
    tree.settled(6, FileResult::Lost);
    [7, 8, 10].into_iter().for_each(|entry| tree.want(entry));
    assert!(tree.considered(11));
    tree.want(11);
    let unchanged = vec![Unchanged { entry: 5, inode: 7, seconds: 8, nanos: 9 }];
    let settled = Settled { unchanged, lost: vec![6], ..Settled::default() };
    assert_eq!(message(tree.poll(begun)), Message::Settled(settled));
    let considered = Considered { entry: 11, wanted: vec![7, 9, 10, 11] };
    assert_eq!(message(tree.poll(begun)), Message::Considered(considered), "11 is beyond it");
    assert!(matches!(tree.poll(begun), News::Nothing));
}

#[test]
fn a_message_names_no_more_files_and_runs_than_it_may() {
    let (mut tree, now) = (TreeReceiving::default(), Instant::now());
    (0..2500).for_each(|entry| tree.settled(entry, FileResult::Placed));
    for entry in 0..30_000 {
        if entry % 2 == 0 {
            tree.want(entry);
        }
        if entry % 1000 == 999 {
            assert!(tree.considered(entry + 1));
        }
    }
    tree.end();
    let (mut settled, mut wanted, mut messages) = (0, 0, 0);
    loop {
        messages += 1;
        match tree.poll(now) {
            News::Send(Message::Settled(part)) => {
                assert!(part.placed.len() <= MOST_SETTLED);
                settled += part.placed.len();
            }
            News::Send(Message::Considered(part)) => {
                assert!(part.wanted.len() <= MOST_BOUNDS && part.runs().is_some());
                wanted += part.wanted.len() / 2;
            }
            News::Over => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((settled, wanted), (2500, 15_000));
    assert!(messages < 10, "{messages}");
}

#[test]
fn the_walk_waits_while_too_much_news_waits() {
    let (mut tree, now) = (TreeReceiving::default(), Instant::now());
    tree.take(entries(&self::tree(9))).unwrap();
    let bound = MOST_NEWS as u64;
    (0..=bound).for_each(|entry| tree.settled(entry, FileResult::Placed));
    assert!(tree.next_step().unwrap().is_none());
    message(tree.poll(now));
    assert!(tree.next_step().unwrap().is_some());
}

#[test]
fn when_it_is_over_nothing_waits_and_what_is_left_is_told() {
    let (mut tree, now) = (TreeReceiving::default(), Instant::now());
    tree.take(entries(&self::tree(9))).unwrap();
    tree.settled(1, FileResult::Placed);
    tree.end();
    assert!(matches!(tree.next_step(), Err(CopyError::HungUp)));
    assert_eq!(tree.held(), (0, 1));
    tree.take(TreePart::Closed(1).pack(0)).unwrap();
    message(tree.poll(now));
    assert!(matches!(tree.poll(now), News::Over));
    assert!(!tree.considered(9));
}

#[test]
fn a_probe_is_asked_for_once_before_other_news_and_taken_once() {
    let (mut tree, now) = (TreeReceiving::default(), Instant::now());
    let probed = |len| Message::Probe(vec![7; len].into());
    assert!(tree.take(probed(PROBE)).is_err(), "nobody asked");
    let mut tree_of = |asked: bool| {
        tree = TreeReceiving::default();
        tree.settled(3, FileResult::Placed);
        tree.probe();
        assert!(!tree.is_probed());
        if asked {
            assert_eq!(message(tree.poll(now)), Message::Probe(Bytes::new()));
        }
        std::mem::take(&mut tree)
    };
    assert!(tree_of(false).take(probed(PROBE)).is_err(), "before it was asked for");
    assert!(tree_of(true).take(probed(PROBE - 1)).is_err(), "another length");
    let mut tree = tree_of(true);
    assert!(matches!(tree.poll(now), News::Wait(_)), "only once");
    tree.take(probed(PROBE)).unwrap();
    assert!(tree.is_probed());
    tree.probe();
    assert!(matches!(tree.poll(now), News::Wait(_)), "never again");
    assert!(tree.take(probed(PROBE)).is_err(), "a second answer");
    let mut tree = tree_of(true);
    tree.end();
    assert!(tree.is_probed(), "nobody waits for what never comes");
}
