//! Descriptors that no encoder writes are refused by the decoder.

use super::*;

/// Reason why one short block with these items is refused.
fn refused(payload: &[u8]) -> String {
    refused_bytes(&last_block(payload))
}

fn refused_bytes(bytes: &[u8]) -> String {
    decode(bytes).expect_err("a valid descriptor").to_string()
}

fn refused_events(events: &[Event]) -> String {
    let encoder = encode(events, false).expect_err("a valid tree").to_string();
    assert_eq!(refused(&items(events)), encoder, "decoder and encoder agree");
    encoder
}

#[test]
fn walks_that_are_no_tree() {
    let cases = [
        (tree([file("b"), file("a")]), "name: is not in order"),
        (tree([file("a"), file("a")]), "name: is not in order"),
        (tree([file("a"), enter("a"), Event::Leave]), "name: is not in order"),
        (tree([file("a/b")]), "name: contains '/'"),
        (tree([file("a\0")]), "name: contains NUL"),
        (tree([file(".")]), "name: is '.' or '..'"),
        (tree([file("..")]), "name: is '.' or '..'"),
        (tree([file("")]), "name: is empty"),
        (vec![enter("a"), Event::Leave], "name: of the root is not empty"),
        (vec![Event::Leave], "tree: ends before it begins"),
        (tree([Event::Leave]), "tree: goes on after the end of its root"),
        (vec![file(""), file("")], "tree: goes on after the end of its root"),
    ];
    for (events, why) in cases {
        assert_eq!(refused_events(&events), why);
    }
}

#[test]
fn events_of_the_wrong_kind() {
    for wrong in [leaf("a", Kind::Directory), Event::Enter(entry("a", Kind::Fifo))] {
        assert_eq!(
            encode(&tree([wrong]), false).unwrap_err().to_string(),
            "entry: is not of its event's kind"
        );
    }
}

#[test]
fn a_tree_without_end() {
    let events = [enter(""), file("a")];
    assert_eq!(encode(&events, false).unwrap_err().to_string(), "tree: ends before its root does");
    assert_eq!(encode(&[], false).unwrap_err().to_string(), "tree: ends before its root does");
    let why = "tree descriptor: has its last block elsewhere than its root's end";
    assert_eq!(refused(&items(&events)), why);
    let early = block(&items(&tree([])), |_| {});
    assert_eq!(refused_bytes(&early), why);
    assert!(matches!(decode(&[]), Err(DecodeError::Truncated { .. })));
}

#[test]
fn bytes_after_the_end() {
    let bytes = encode(&tree([file("a")]), false).unwrap();
    assert_eq!(decode_parts(&[&bytes, &[]]).map(|events| events.len()), Ok(3));
    for rest in [&[0][..], &bytes] {
        let whole = [&bytes, rest].concat();
        assert_eq!(decode(&whole), Err(DecodeError::Trailing { count: rest.len() }));
        assert_eq!(decode_parts(&[&bytes, rest]), Err(DecodeError::Trailing { count: rest.len() }));
    }
    let full = block(&items(&tree([])), |header| header.last = true);
    let padded = [&full[..], &[0; 100]].concat();
    assert!(matches!(decode(&padded), Err(DecodeError::Trailing { .. })), "the last block has no padding");
}

#[test]
fn headers_that_say_nonsense() {
    let good = last_block(&items(&tree([])));
    let used = good.len() - 14;
    assert!(decode(&good).is_ok());
    let cases: [(usize, &[u8], &str); 8] = [
        (0, b"toat", "tree descriptor: does not begin with its magic"),
        (4, &[3], "tree descriptor has version 3, this program knows 2"),
        (5, &[6], "tree descriptor: has unknown flags"),
        (6, &[0, 0], "block: is empty"),
        (6, &[0xf3, 0xff], "used is 65523, over the limit of 65522"),
        (8, &[used as u8 + 1, 0], &format!("continued is {}, over the limit of {used}", used + 1)),
        (8, &[1, 0], "block: does not continue the one before"),
        (10, &[1, 0, 0, 0], "block: ends inside an item without being full of it"),
    ];
    for (at, bytes, why) in cases {
        let mut wrong = good.clone();
        wrong[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(refused_bytes(&wrong), why);
    }
    let mut huge = good;
    huge[10..14].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(decode(&huge), Err(DecodeError::TooLarge { field: "beyond", .. })));
}

/// Two full blocks' worth of entries: the first block, and the payload of the second.
fn two_blocks() -> (Vec<u8>, Vec<u8>) {
    let events = tree([file_with_xattr("a", 7, 60_000), file_with_xattr("b", 7, 60_000)]);
    let bytes = encode(&events, false).unwrap();
    (bytes[..BLOCK].to_vec(), bytes[BLOCK + 14..].to_vec())
}

#[test]
fn padding_with_something_in_it() {
    let (mut first, second) = two_blocks();
    *first.last_mut().unwrap() = 1;
    assert_eq!(refused_bytes(&[first, last_block(&second)].concat()), "padding: is not zero");
}

#[test]
fn a_block_that_begins_too_early() {
    let first = block(&items(&[enter("")]), |_| {});
    for rest in [&[file("a"), Event::Leave][..], &[Event::Leave]] {
        let bytes = [first.clone(), last_block(&items(rest))].concat();
        assert_eq!(refused_bytes(&bytes), "block: begins with what fits in the one before");
    }
}

#[test]
fn a_block_that_begins_too_early_by_the_context_of_the_one_before() {
    // Fits behind `a` because it has the same owners and mode, but not where it stands alone.
    let alone = items(&[file("b")]).len();
    let behind = items(&[file("a"), file("b")]).len() - items(&[file("a")]).len();
    let front = items(&[enter(""), file_with_xattr("a", 7, 60_000)]).len() - 60_000;
    let len = CAPACITY - front - (alone + behind) / 2;
    let events = tree([file_with_xattr("a", 7, len), file("b")]);
    let bytes = encode(&events, false).unwrap();
    assert_eq!(decode(&bytes).unwrap()[2].block, 0);
    let first = block(&items(&events[..2]), |_| {});
    let bytes = [first, last_block(&items(&events[2..]))].concat();
    assert_eq!(refused_bytes(&bytes), "block: begins with what fits in the one before");
}

#[test]
fn a_block_of_another_liveness() {
    let (first, second) = two_blocks();
    assert!(decode(&[&first[..], &last_block(&second)].concat()).is_ok());
    let other = block(&second, |header| (header.form.live, header.last) = (true, true));
    let why = refused_bytes(&[first, other].concat());
    assert_eq!(why, "block: differs from the ones before in version or in being live");
}

/// A tree with one entry over two blocks: the first block, and the payload of the second.
fn split_entry() -> (Vec<u8>, Vec<u8>, usize) {
    let xattrs = ["x", "y"].map(|name| xattr(name, vec![7; 60_000])).to_vec();
    let events = tree([with(file("a"), |entry| entry.metadata.xattrs = xattrs)]);
    let bytes = encode(&events, false).unwrap();
    let rest = bytes[2 * BLOCK + 14..].to_vec();
    (bytes[..2 * BLOCK].to_vec(), rest.clone(), rest.len() - 1)
}

#[test]
fn an_item_that_is_not_continued_as_announced() {
    let (first, rest, continued) = split_entry();
    let second = |payload: &[u8], continued| {
        let last = block(payload, |header| *header = Header { last: true, continued, ..*header });
        decode(&[first.clone(), last].concat()).map(|events| events.len())
    };
    let refusal = crate::codec::invalid("block", "does not continue the one before");
    assert_eq!(second(&rest, continued), Ok(3));
    assert_eq!(second(&rest, continued - 1), Err(refusal.clone()));
    assert_eq!(second(&rest, continued + 1), Err(refusal.clone()));
    assert_eq!(second(&items(&[Event::Leave]), 0), Err(refusal));
}

#[test]
fn an_item_that_ends_before_its_length() {
    let (_, rest, _) = split_entry();
    let root = block(&items(&[enter("")]), |_| {});
    let mut item = items(&[file("a")]);
    item.resize(CAPACITY, 0);
    let first = block(&item, |header| header.beyond = rest.len() - 1);
    let last = block(&rest, |header| *header = Header { last: true, continued: rest.len() - 1, ..*header });
    assert!(matches!(decode(&[root, first, last].concat()), Err(DecodeError::Trailing { .. })));
}

#[test]
fn a_longer_form_where_a_shorter_one_is_possible() {
    let again = [items(&[enter("")]), items(&[enter("a"), Event::Leave])].concat();
    assert_eq!(refused(&again), "tag: does not fit what follows");
    let first = items(&[enter(""), enter("a")])[items(&[enter("")]).len()..].to_vec();
    assert_eq!(refused(&first), "tag: refers to an entry of another block");
}

#[test]
fn tags_with_bits_that_do_not_fit() {
    let good = items(&[leaf("", Kind::Fifo)]);
    for bit in [1 << 5, 1 << 7] {
        let mut wrong = good.clone();
        wrong[0] |= bit;
        wrong.push(0);
        assert_eq!(refused(&wrong), "tag: does not fit what follows", "no attributes, or sparse");
    }
    assert_eq!(refused(&[8]), "tag: has bits that are not allowed");
}

#[test]
fn an_error_stays() {
    let mut decoder = Decoder::new();
    assert_eq!(decoder.feed(&[0; 100]), 100);
    let error = decoder.next_event().unwrap_err();
    assert_eq!(decoder.feed(&[0; BLOCK * 2]), BLOCK * 2);
    assert_eq!(decoder.next_event().unwrap_err(), error);
    assert_eq!(decoder.finish().unwrap_err(), error);
}
