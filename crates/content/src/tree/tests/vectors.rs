//! The files in `docs/formats/vectors/tree/`: descriptors with what they say in words, and bytes
//! that every reader must refuse.

use std::fmt::Write;

use super::*;

macro_rules! vector {
    ($name:literal) => {
        include_bytes!(concat!("../../../../../docs/formats/vectors/tree/", $name))
    };
}

/// The valid ones: name, whether live, events.
fn valid() -> [(&'static str, bool, Vec<Event>); 4] {
    let single = with(file(""), |entry| entry.metadata = Metadata::default());
    [
        ("kinds", false, every_kind()),
        ("live", true, live()),
        ("single", false, vec![single]),
        ("blocks", false, blocks()),
    ]
}

fn every_kind() -> Vec<Event> {
    let holes = vec![Extent { offset: 4096, len: 4096 }, Extent { offset: 16384, len: 1 }];
    let sparse = Kind::File { size: 65536, oid: Some(Oid::of(b"sparse")), extents: Some(holes) };
    let old = with(leaf("old", Kind::Fifo), |entry| {
        entry.metadata.modified = Time { seconds: -1, nanos: 999_999_999 };
        entry.metadata.user = Owner::default();
    });
    let attributes = vec![xattr("user.a", []), xattr("user.b", "value")];
    tree([
        leaf("block", Kind::BlockDevice { major: 8, minor: 1 }),
        leaf("char", Kind::CharDevice { major: 1, minor: 3 }),
        with(enter("dir"), |entry| entry.metadata.mode = 0o1777),
        with(file("linked"), |entry| entry.hard_link = Some(0)),
        Event::Leave,
        with(file("linked"), |entry| entry.hard_link = Some(0)),
        old,
        leaf("socket", Kind::Socket),
        leaf("sparse", sparse),
        leaf("symlink", Kind::Symlink { target: b"../\xff".to_vec() }),
        with(file("xattrs"), |entry| entry.metadata.xattrs = attributes),
    ])
}

fn live() -> Vec<Event> {
    let with_oid = |name, oid| leaf(name, Kind::File { size: 5, oid, extents: None });
    tree([file("known"), with_oid("live", Some(Oid::Live([7; 32]))), with_oid("unknown", None)])
}

/// A block that the next entry does not fit in, an entry over two blocks, and one behind it.
fn blocks() -> Vec<Event> {
    let two = ["user.x", "user.y"].map(|name| xattr(name, vec![b'-'; 40_000])).to_vec();
    tree([file("a"), with(file("b"), |entry| entry.metadata.xattrs = two), file("c")])
}

/// Version 2: a small file whose bytes are in it, as the words do not say, and an empty one.
fn content() -> Vec<u8> {
    let bare = |event| (event, Vec::new());
    let small = (file("small"), b"small".to_vec());
    let empty = leaf("empty", file_kind(b""));
    let events = [bare(enter("")), bare(empty), small, bare(Event::Leave)];
    encode_with(Encoder::with_content(false), &events).unwrap()
}

fn refused() -> [(&'static str, Vec<u8>); 7] {
    let good = encode(&tree([file("a")]), false).unwrap();
    let mut padded = encode(&blocks(), false).unwrap();
    padded[BLOCK - 1] = 1;
    let mut without_content = good.clone();
    without_content[4] = 2;
    [
        ("refused-end-missing", last_block(&items(&[enter(""), file("a")]))),
        ("refused-trailing", [&good[..], &[0]].concat()),
        ("refused-truncated", good[..good.len() - 1].to_vec()),
        ("refused-unsorted", last_block(&items(&tree([file("b"), file("a")])))),
        ("refused-dot-dot", last_block(&items(&tree([file("..")])))),
        ("refused-padding", padded),
        ("refused-content-missing", without_content),
    ]
}

/// Events in words, one a line.
fn in_words(events: &[Event]) -> String {
    let mut out = String::new();
    for event in events {
        match event {
            Event::Enter(entry) | Event::Leaf(entry) => describe(&mut out, entry),
            Event::Leave => out.push_str("end"),
        }
        out.push('\n');
    }
    out
}

fn describe(out: &mut String, entry: &Entry) {
    let Metadata { mode, user, group, modified, xattrs } = &entry.metadata;
    let owner = |owner: &Owner| format!("{}={}", owner.id, quoted(&owner.name));
    write!(out, "{} {}", quoted(&entry.name), kind_in_words(&entry.kind)).unwrap();
    write!(out, " mode {mode:04o} user {} group {}", owner(user), owner(group)).unwrap();
    write!(out, " modified {}s+{}ns", modified.seconds, modified.nanos).unwrap();
    if let Some(number) = entry.hard_link {
        write!(out, " hard-link {number}").unwrap();
    }
    for Xattr { name, value } in xattrs {
        write!(out, " xattr {}={}", quoted(name), quoted(value)).unwrap();
    }
}

fn kind_in_words(kind: &Kind) -> String {
    match kind {
        Kind::Directory => "directory".into(),
        Kind::File { size, oid, extents } => {
            let oid = oid.map_or("unknown".into(), |oid| oid.to_string());
            let run = |run: &Extent| format!(" data {}+{}", run.offset, run.len);
            let runs = extents.as_ref().map(|runs| runs.iter().map(run).collect::<String>());
            format!("file {size} {oid}{}", runs.map_or(String::new(), |runs| format!(" sparse{runs}")))
        }
        Kind::Symlink { target } => format!("symlink {}", quoted(target)),
        Kind::Fifo => "fifo".into(),
        Kind::Socket => "socket".into(),
        Kind::CharDevice { major, minor } => format!("char-device {major}:{minor}"),
        Kind::BlockDevice { major, minor } => format!("block-device {major}:{minor}"),
    }
}

fn quoted(bytes: &[u8]) -> String {
    let first = bytes.first().copied().unwrap_or_default();
    if bytes.len() > 100 && bytes.iter().all(|byte| *byte == first) {
        return format!("{}*\"{}\"", bytes.len(), first.escape_ascii());
    }
    format!("\"{}\"", bytes.escape_ascii())
}

/// `UPDATE_VECTORS=1` writes the files anew, for a new version of the format; the next build reads
/// them.
fn write_vectors_if_asked() {
    if std::env::var_os("UPDATE_VECTORS").is_none() {
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/vectors/tree");
    for (name, live, events) in valid() {
        std::fs::write(format!("{folder}/{name}.tree"), encode(&events, live).unwrap()).unwrap();
        std::fs::write(format!("{folder}/{name}.txt"), in_words(&events)).unwrap();
    }
    std::fs::write(format!("{folder}/content.tree"), content()).unwrap();
    for (name, bytes) in refused() {
        std::fs::write(format!("{folder}/{name}.tree"), bytes).unwrap();
    }
}

#[test]
fn valid_vectors_are_written_and_read() {
    write_vectors_if_asked();
    let files: [(&[u8], &[u8]); 4] = [
        (vector!("kinds.tree"), vector!("kinds.txt")),
        (vector!("live.tree"), vector!("live.txt")),
        (vector!("single.tree"), vector!("single.txt")),
        (vector!("blocks.tree"), vector!("blocks.txt")),
    ];
    for ((name, live, events), (bytes, words)) in valid().into_iter().zip(files) {
        assert!(encode(&events, live).unwrap() == bytes, "{name} is written otherwise");
        assert_eq!(events_of(decode(bytes).unwrap()), events, "{name}");
        assert_eq!(in_words(&events).as_bytes(), words, "{name}");
    }
}

#[test]
fn the_vector_with_content_is_written_and_read() {
    let bytes = vector!("content.tree");
    assert_eq!(content(), bytes);
    let contents: Vec<_> = decode(bytes).unwrap().into_iter().map(|located| located.content).collect();
    assert_eq!(contents, [&b""[..], b"", b"small", b""]);
}

#[test]
fn refused_vectors_are_refused() {
    let files: [&[u8]; 7] = [
        vector!("refused-end-missing.tree"),
        vector!("refused-trailing.tree"),
        vector!("refused-truncated.tree"),
        vector!("refused-unsorted.tree"),
        vector!("refused-dot-dot.tree"),
        vector!("refused-padding.tree"),
        vector!("refused-content-missing.tree"),
    ];
    for ((name, bytes), file) in refused().into_iter().zip(files) {
        assert!(bytes == file, "{name} is made otherwise");
        assert!(decode(file).is_err(), "{name}");
    }
}
