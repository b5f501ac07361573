//! Events come back from their bytes, however these arrive, and bytes from their events.

use super::*;

fn check_canonical(bytes: &[u8]) -> Result<(), TestCaseError> {
    let _ = bytes.chunks(BLOCK).map(oids_in_block).collect::<Vec<_>>();
    if let Ok(located) = decode(bytes) {
        let is_live = bytes[5] & 1 == 1;
        let encoder = if bytes[4] == 1 { Encoder::new(is_live) } else { Encoder::with_content(is_live) };
        let found: Vec<_> = located.into_iter().map(|found| (found.event, found.content)).collect();
        let again = encode_with(encoder, &found).expect("what decodes, encodes");
        prop_assert!(again == bytes, "other bytes for the same events");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_tree_comes_back_whatever_the_parts(
        live: bool,
        node in any::<bool>().prop_flat_map(nodes),
        cuts in vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let events = node.events();
        let Ok(bytes) = encode(&events, live) else { return Ok(()) };
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let parts: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let located = decode_parts(&parts);
        prop_assert_eq!(&located, &decode(&bytes));
        prop_assert_eq!(events_of(located.unwrap()), events);
    }

    #[test]
    fn a_changed_byte_is_refused_or_says_something_else_canonically(
        node in nodes(true),
        at: prop::sample::Index,
        in_header: bool,
        to: u8,
    ) {
        let mut bytes = encode(&node.events(), true).unwrap();
        let mut at = at.index(bytes.len());
        if in_header {
            at = (at / BLOCK * BLOCK + at % 14).min(bytes.len() - 1);
        }
        bytes[at] = to;
        check_canonical(&bytes)?;
    }

    #[test]
    fn a_truncated_tree_is_refused(node in nodes(true), end: prop::sample::Index) {
        let bytes = encode(&node.events(), true).unwrap();
        prop_assert!(decode(&bytes[..end.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(bytes: Vec<u8>) {
        check_canonical(&bytes)?;
    }

    #[test]
    fn any_payload_is_refused_or_canonical(
        parts in vec(prop_oneof![any::<u8>().prop_map(|byte| vec![byte]), some_items()], 0..6),
        form in any::<(bool, bool)>().prop_map(|(live, with_content)| ItemForm { live, with_content }),
        continued in 0usize..3,
    ) {
        let payload = parts.concat();
        check_canonical(&block(&payload, |header| {
            *header = Header { form, last: true, continued, ..*header };
        }))?;
    }
}

/// Items that may be in their place or not.
fn some_items() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        nodes(true).prop_map(|node| items(&node.events()[..1])),
        Just(items(&[enter("")])),
        Just(items(&[Event::Leave])),
        vec(any::<u8>(), 0..50),
    ]
}

#[test]
fn an_item_may_end_exactly_with_its_block() {
    for spare in [0, 1, 2, CAPACITY - 1, CAPACITY] {
        let fixed = items(&tree([file_with_xattr("a", 7, 60_000)])).len() - 60_000;
        let fill = CAPACITY + spare - fixed;
        let first = fill.min(MAX_XATTR_VALUE);
        let xattrs = vec![xattr("user.x", vec![7; first]), xattr("user.y", vec![7; fill - first])];
        let events = tree([with(file("a"), |entry| entry.metadata.xattrs = xattrs)]);
        let bytes = encode(&events, false).unwrap();
        assert_eq!(events_of(decode(&bytes).unwrap()), events, "{spare} bytes over");
    }
}

#[test]
fn blocks_are_filled_to_the_last_byte() {
    // A root, a file as long as needed, and the end of the root: with `spare` bytes left over.
    let build = |spare: usize| {
        let fixed = items(&tree([file_with_xattr("a", 7, 60_000)])).len() - 60_000;
        encode(&tree([file_with_xattr("a", 7, CAPACITY - fixed - spare)]), false).unwrap()
    };
    assert_eq!(build(0).len(), BLOCK);
    assert_eq!(build(1).len(), BLOCK - 1);
    let events = tree([file_with_xattr("a", 7, 60_000), file_with_xattr("b", 7, 60_000)]);
    let bytes = encode(&events, false).unwrap();
    let blocks: Vec<_> = decode(&bytes).unwrap().iter().map(|located| located.block).collect();
    assert_eq!(blocks, [0, 0, 1, 1]);
}

#[test]
fn a_small_tree_is_one_short_block() {
    let bytes = encode(&tree([file("a"), file("b")]), false).unwrap();
    assert!(bytes.len() < 200, "{}", bytes.len());
}

#[test]
fn a_decoder_knows_whether_the_tree_is_live() {
    for live in [false, true] {
        let mut decoder = Decoder::new();
        assert_eq!(decoder.is_live(), None);
        let bytes = encode(&tree([]), live).unwrap();
        assert_eq!(decoder.feed(&bytes), bytes.len());
        assert!(decoder.next_event().unwrap().is_some());
        assert_eq!(decoder.is_live(), Some(live));
    }
}

#[test]
fn the_root_may_be_a_single_file() {
    let events = [file("")];
    let bytes = encode(&events, false).unwrap();
    assert_eq!(events_of(decode(&bytes).unwrap()), events);
}

#[test]
fn many_small_files_take_few_bytes_each() {
    const COUNT: u64 = 200_000;
    let files = (0..COUNT).map(|i| {
        with(file(format!("file-{i:07}")), |entry| {
            let scattered = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let seconds = 1_700_000_000 + (scattered % 100_000_000) as i64;
            entry.metadata.modified = Time { seconds, nanos: (scattered % u64::from(NANOS)) as u32 };
            entry.kind = Kind::File { size: scattered % 1_000_000, oid: entry.oid(), extents: None };
        })
    });
    let bytes = encode(&tree(files), false).unwrap();
    let each = bytes.len() as u64 / COUNT;
    assert!(each < 65, "{each} bytes per entry");
    assert_eq!(decode(&bytes).unwrap().len() as u64, COUNT + 2);
}

#[test]
fn finished_blocks_are_handed_out_and_not_kept() {
    let mut encoder = Encoder::new(false);
    encoder.push(&enter("")).unwrap();
    for i in 0..10_000 {
        encoder.push(&file(format!("{i:05}"))).unwrap();
        let taken = encoder.take();
        assert!(taken.is_empty() || taken.len() == BLOCK);
    }
}

#[test]
fn a_refused_event_changes_nothing() {
    let mut encoder = Encoder::new(false);
    encoder.push(&enter("")).unwrap();
    encoder.push(&file("b")).unwrap();
    for wrong in [file("a"), file("b"), file("c/d"), leaf("c", Kind::Symlink { target: Vec::new() })] {
        encoder.push(&wrong).unwrap_err();
    }
    encoder.push(&Event::Leave).unwrap();
    encoder.push(&file("c")).unwrap_err();
    assert_eq!(encoder.finish(), encode(&tree([file("b")]), false));
}

#[test]
fn a_decoder_takes_no_more_than_a_block_ahead() {
    let bytes = encode(&tree((0..5000).map(|i| file(format!("{i:05}")))), false).unwrap();
    let mut decoder = Decoder::new();
    assert_eq!(decoder.feed(&bytes), BLOCK);
    assert_eq!(decoder.feed(&bytes[BLOCK..]), 0);
    assert!(decoder.next_event().unwrap().is_some());
    assert_eq!(decoder.feed(&bytes[BLOCK..]), 0, "while its block is being read");
    while decoder.next_event().unwrap().is_some() {}
    assert_eq!(decoder.feed(&bytes[BLOCK..2 * BLOCK]), BLOCK);
}
