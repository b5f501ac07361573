//! A block tells the OIDs that are mentioned in it, and nothing passes for one that isn't.

use super::*;

fn oids_of(bytes: &[u8]) -> Vec<Oid> {
    bytes.chunks(BLOCK).flat_map(|block| oids_in_block(block).expect("an honest block")).collect()
}

fn check(events: &[Event], live: bool) {
    let bytes = encode(events, live).unwrap();
    let located = decode(&bytes).unwrap();
    let expected: Vec<Oid> = events.iter().filter_map(|event| event.entry()?.oid()).collect();
    assert_eq!(oids_of(&bytes), expected);
    for Located { event, block, .. } in located {
        if let Some(oid) = event.entry().and_then(Entry::oid) {
            let block = bytes.chunks(BLOCK).nth(block as usize).unwrap();
            assert!(oids_in_block(block).unwrap().contains(&oid));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_blocks_mention_what_the_tree_does(node in nodes(true)) {
        check(&node.events(), true);
    }
}

#[test]
fn an_entry_over_many_blocks_is_mentioned_where_it_begins() {
    let large = |name: &str| {
        let xattrs = ["a", "b", "c"].map(|name| xattr(name, vec![1; MAX_XATTR_VALUE])).to_vec();
        with(file(name), |entry| entry.metadata.xattrs = xattrs)
    };
    check(&tree([file("a"), large("b"), file("c"), large("d"), large("e"), file("f")]), false);
}

/// Everything an attacker can write is full of what would mention `evil`, at every alignment.
fn forged(evil: Oid) -> Vec<Event> {
    let item = items(&[leaf("x", Kind::File { size: 1, oid: Some(evil), extents: None })]);
    let form = ItemForm { live: false, with_content: false };
    let header = |continued, last| Header { form, last, used: item.len(), continued, beyond: 0 };
    let wrapped = [header(0, true), header(0, false)].map(|header| [&header.to_bytes(), &item[..]].concat());
    let lies = [item.clone(), wrapped.concat(), evil.to_bytes().to_vec()].concat();
    let text = |at: usize, len: usize| {
        let bytes = lies.iter().cycle().skip(at).filter(|byte| !b"/\0".contains(byte));
        bytes.take(len).copied().collect::<Vec<_>>()
    };
    let value = |at| lies.iter().cycle().skip(at).take(MAX_XATTR_VALUE).copied().collect::<Vec<_>>();
    (0..1000)
        .map(|i| {
            let name = [format!("{i:04}").as_bytes(), &text(i, 240)].concat();
            match i % 3 {
                0 => leaf(name, Kind::Symlink { target: text(i, 4000) }),
                1 => file(name),
                _ => with(file(name), |entry| {
                    entry.metadata.user.name = text(i, 200);
                    let names = (0..i % 4).map(|n| [&[n as u8 + 1], &text(i + n, 200)[..]].concat());
                    entry.metadata.xattrs = names.map(|name| xattr(name, value(i))).take(3).collect();
                }),
            }
        })
        .collect()
}

#[test]
fn names_targets_and_attributes_do_not_pass_for_oids() {
    let evil = Oid::of(b"not in this tree");
    let events = tree(forged(evil));
    check(&events, false);
    let bytes = encode(&events, false).unwrap();
    assert!(bytes.len() > 300 * BLOCK);
    assert!(!oids_of(&bytes).contains(&evil));
}

#[test]
fn a_block_is_read_whole_or_not_at_all() {
    let bytes =
        encode(&tree([file_with_xattr("a", 7, 60_000), file("b"), file_with_xattr("c", 7, 60_000)]), false);
    let bytes = bytes.unwrap();
    let (first, second) = bytes.split_at(BLOCK);
    assert_eq!(oids_in_block(first).unwrap().len(), 2);
    assert_eq!(oids_in_block(second).unwrap().len(), 1);
    for wrong in
        [&first[..BLOCK - 1], &bytes[..BLOCK + 1], &bytes[1..=BLOCK], &second[..second.len() - 1], &[]]
    {
        assert!(oids_in_block(wrong).is_err());
    }
}
