//! Small files whose bytes are in the descriptor.

use super::*;

/// Content of a file of this name in these tests.
fn small(name: &str, len: u64) -> (Event, Vec<u8>) {
    let content: Vec<u8> = name.bytes().cycle().take(len as usize).collect();
    (Event::Leaf(entry(name, file_kind(&content))), content)
}

fn around(files: impl IntoIterator<Item = (Event, Vec<u8>)>) -> Vec<(Event, Vec<u8>)> {
    let bare = |event| (event, Vec::new());
    [bare(enter(""))].into_iter().chain(files).chain([bare(Event::Leave)]).collect()
}

fn encoded(events: &[(Event, Vec<u8>)], live: bool) -> Vec<u8> {
    encode_with(Encoder::with_content(live), events).unwrap()
}

fn found(bytes: &[u8]) -> Vec<(Event, Vec<u8>)> {
    decode(bytes).unwrap().into_iter().map(|located| (located.event, located.content)).collect()
}

#[test]
fn files_up_to_the_limit_have_their_bytes_in_it() {
    let large = (Event::Leaf(entry("d", file_kind(&[7; MAX_INLINE as usize + 1]))), Vec::new());
    let empty = (Event::Leaf(entry("e", file_kind(&[]))), Vec::new());
    let events = around([small("a", 1), small("b", MAX_INLINE - 1), small("c", MAX_INLINE), large, empty]);
    let bytes = encoded(&events, false);
    assert_eq!(found(&bytes), events);
    assert_eq!(bytes[4], 2);
    let plain: Vec<_> = events.into_iter().map(|(event, _)| event).collect();
    assert_eq!(
        encode(&plain, false).unwrap().len() + 2 * MAX_INLINE as usize,
        bytes.len(),
        "nothing else is more"
    );
}

#[test]
fn many_of_them_fill_blocks_and_each_is_mentioned_where_it_is() {
    let events = around((0..500).map(|i| small(&format!("{i:03}"), i * 37 % (MAX_INLINE + 1))));
    let bytes = encoded(&events, false);
    let blocks: Vec<_> = bytes.chunks(BLOCK).map(|block| oids_in_block(block).unwrap()).collect();
    assert!(blocks.len() > 3);
    for Located { event, block, content } in decode(&bytes).unwrap() {
        if let Some(oid) = event.entry().and_then(Entry::oid) {
            assert_eq!(Oid::of(&content), oid);
            assert!(blocks[block as usize].contains(&oid));
        }
    }
}

#[test]
fn an_entry_over_blocks_has_its_bytes_at_its_end() {
    let two = ["user.x", "user.y"].map(|name| xattr(name, vec![b'-'; 40_000])).to_vec();
    let (event, content) = small("b", 700);
    let long = with(event, |entry| entry.metadata.xattrs = two);
    let events = around([small("a", 5), (long, content), small("c", 5)]);
    assert_eq!(found(&encoded(&events, false)), events);
}

#[test]
fn what_is_unknown_live_or_has_holes_is_not_in_it() {
    let with_oid = |name, oid| (leaf(name, Kind::File { size: 5, oid, extents: None }), Vec::new());
    let hole = Kind::File { size: 5, oid: Some(Oid::of(&[0; 5])), extents: Some(Vec::new()) };
    let events = around([
        (leaf("hole", hole), Vec::new()),
        with_oid("live", Some(Oid::Live([7; 32]))),
        small("small", 5),
        with_oid("unknown", None),
    ]);
    assert_eq!(found(&encoded(&events, true)), events);
}

#[test]
fn content_of_another_length_is_refused() {
    let (event, content) = small("a", 5);
    for wrong in [&content[..4], b"", b"longer"] {
        let refused = encode_with(Encoder::with_content(false), &around([(event.clone(), wrong.to_vec())]));
        let why = "content: is not as long as the descriptor holds of the file";
        assert_eq!(refused.unwrap_err().to_string(), why);
    }
    assert!(encode_with(Encoder::new(false), &around([(event.clone(), content.clone())])).is_err());
    // An old writer's item under the new version: the next ones are taken for content.
    let old = items(&tree([event]));
    let refused = decode(&block(&old, |header| {
        header.last = true;
        header.form.with_content = true;
    }));
    assert!(matches!(refused, Err(DecodeError::Truncated { field: "content", .. })), "{refused:?}");
}

#[test]
fn the_version_is_the_same_in_all_blocks() {
    let events = around((0..200).map(|i| small(&format!("{i:03}"), MAX_INLINE)));
    let mut bytes = encoded(&events, false);
    bytes[BLOCK + 4] = 1;
    let why = "block: differs from the ones before in version or in being live";
    assert_eq!(decode(&bytes).unwrap_err().to_string(), why);
}
