//! Every message's bytes, and what is refused.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use towpath_api::copy::{CopyEvent, CopyOptions, CopySummary, FileTime, Via};
use towpath_api::{SourceBytes, SourceList};
use towpath_content::node_id::hex;
use towpath_files::FileError;
use towpath_ssh::SshError;

use super::*;

/// One message a line, hexadecimal, then what it is. `UPDATE_VECTORS=1` writes it anew.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/vectors/copy.txt");
/// Bytes that are no message.
const REFUSED: [(&str, &[u8]); 4] = [
    ("refused: message 14, which is not known", b"\x72\x00"),
    ("refused: an entries message shorter than it says", b"\x22\x05tow"),
    ("refused: considered, a number and not what it should be", b"\x30\x01"),
    ("refused: no Protocol Buffers", b"\xff\xff\xff"),
];

fn starts() -> [(&'static str, Message); 4] {
    let push = Start {
        version: VERSION,
        role: Some(CopyRole::Receiver(ReceiverRole {
            destination: Bytes::from_static(b"/srv/www"),
            is_cp: false,
            coming: Some(Coming::Contents(Empty {})),
        })),
        options: options::encode(&CopyOptions { delete: true, ..CopyOptions::default() }),
        addresses: vec!["192.0.2.1:7000".into()],
        links: 0,
    };
    let pull = Start {
        version: VERSION,
        role: Some(CopyRole::Sender(SenderRole {
            sources: vec![Bytes::from_static(b"a"), Bytes::from_static(b"\xff")],
            is_contents: false,
        })),
        options: options::encode(&CopyOptions { via: Via::Ssh, ..CopyOptions::default() }),
        ..Start::default()
    };
    let by_links = Start { links: 1, ..pull.clone() };
    let front = Start { version: VERSION, options: Bytes::from_static(b"\x08\x01"), ..Start::default() };
    [
        ("start: be the receiver of a tow sync", Message::Start(push)),
        ("start: be the sender, over ssh alone", Message::Start(pull)),
        ("start: the same, and tell where you move", Message::Start(by_links)),
        ("start: the front of long options", Message::Start(front)),
    ]
}

fn no_connection() -> SshError {
    let tried = vec!["192.0.2.1:7000".parse().unwrap()];
    SshError::NoConnection { limit: Duration::from_secs(30), tried, last: None }
}

fn sources() -> SourceList {
    let source = |kind: &str, node: Option<&str>, path: &str, bytes| SourceBytes {
        kind: kind.into(),
        node: node.map(str::to_owned),
        path: Some(path.into()),
        bytes,
    };
    SourceList(vec![source("peer", Some("1a2b"), "host", 5), source("directory", None, "/mnt", 2)])
}

fn packed(frame: &'static [u8]) -> TreeBytes {
    TreeBytes { part: Some(TreeBytesForm::Packed(Bytes::from_static(frame))), ..TreeBytes::default() }
}

fn messages() -> Vec<(&'static str, Message)> {
    let rest = [
        (
            "ready: a sender that has AES",
            Message::Ready(Ready { addresses: vec!["[2001:db8::1]:7001".into()], sources: 2, has_aes: true }),
        ),
        (
            "fatal: no space for f in /srv",
            Message::Fatal(Fatal::of(&CopyError::Full { name: b"f".to_vec(), place: "/srv".into() })),
        ),
        (
            "fatal: /srv/a can't be opened, as it is not there",
            Message::Fatal(Fatal::of(&CopyError::source(FileError::new(
                "open",
                Path::new("/srv/a"),
                Errno::NOENT,
            )))),
        ),
        (
            "fatal: no TLS connection within 30 seconds, where one address was dialled",
            Message::Fatal(Fatal::of(&no_connection().into())),
        ),
        (
            "fatal: the other side said what this one does not understand",
            Message::Fatal(Fatal::of(&violation("an unknown message"))),
        ),
        (
            "entries: the beginning of a descriptor",
            Message::Entries(TreeBytes::new(Bytes::from_static(b"towt\x01"), 0)),
        ),
        ("entries: the same, packed", Message::Entries(packed(b"(\xb5/\xfd \x05)\0\0towt\x01"))),
        ("entries: their end", Message::Entries(TreeBytes::end(false))),
        ("entries: their end, where some could not be read", Message::Entries(TreeBytes::end(true))),
        (
            "considered: entries 0 to 1023, of which none are wanted",
            Message::Considered(Considered { entry: 1024, wanted: Vec::new() }),
        ),
        (
            "considered: entries 0 to 1023, of which 1, 2 and 300 are wanted",
            Message::Considered(Considered { entry: 1024, wanted: vec![1, 3, 300, 301] }),
        ),
        (
            "settled: 1 is in place, 2 is dropped, 3 was the same, 4 was lost",
            Message::Settled(Settled {
                placed: vec![1],
                dropped: vec![2],
                unchanged: vec![Unchanged { entry: 3, inode: 12, seconds: -1, nanos: 5 }],
                lost: vec![4],
            }),
        ),
        (
            "event: old was deleted",
            Message::Event(CopyEvent::Deleted { path: b"old".to_vec(), is_dir: false }.into()),
        ),
        (
            "event: a, new, of 7 bytes, of the last nanosecond before 1970",
            Message::Event(
                CopyEvent::Item {
                    changes: *b">f+++++++++",
                    path: b"a".to_vec(),
                    target: None,
                    size: 7,
                    modified: FileTime { seconds: -1, nanos: 999_999_999 },
                }
                .into(),
            ),
        ),
        (
            "event: progress, of 7 bytes 5 from host and 2 from a directory there",
            Message::Event(
                CopyEvent::Progress {
                    done: 7,
                    expected: 9,
                    files_done: 1,
                    files_seen: 2,
                    sources: sources(),
                    trouble: None,
                }
                .into(),
            ),
        ),
        (
            "finished: the same two sources",
            Message::Finished(EndReport::with(CopySummary { sources: sources(), ..CopySummary::default() })),
        ),
        (
            "finished: one file was transferred",
            Message::Finished(EndReport::with(CopySummary { transferred: 1, ..CopySummary::default() })),
        ),
        ("finished: the other side keeps its own summary", Message::Finished(EndReport::default())),
        ("closed: entry 7", Message::Closed(7)),
        ("probe: the question", Message::Probe(Bytes::new())),
        ("probe: the front of the answer", Message::Probe(Bytes::from_static(b"\x01\x02\x03"))),
        ("connections: 4 are wanted", Message::Connections(WantedConnections { count: 4, link: None })),
        (
            "connections: 3 are wanted by the link eth0",
            Message::Connections(WantedConnections { count: 3, link: Some("eth0".into()) }),
        ),
    ];
    starts().into_iter().chain(rest).collect()
}

#[test]
fn the_bytes_are_those_in_the_file_and_come_back() {
    let mut text = String::new();
    for (name, message) in messages() {
        let bytes = message.clone().into_bytes();
        text += &format!("{}  {name}\n", hex(&bytes));
        assert_eq!(Message::from_bytes(bytes).unwrap(), message, "{name}");
    }
    for (name, bytes) in REFUSED {
        text += &format!("{}  {name}\n", hex(bytes));
        assert!(Message::from_bytes(Bytes::from_static(bytes)).is_err(), "{name}");
    }
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(VECTORS, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(VECTORS).unwrap(), text);
}

#[test]
fn packed_entries_are_read_like_any_others_within_the_limit() {
    let bytes = Bytes::from(vec![7; 100_000]);
    let entries = TreeBytes::new(bytes.clone(), 3);
    assert!(entries.encoded_len() < 1000);
    assert_eq!(entries.unpack().unwrap(), Some(bytes));
    assert!(TreeBytes::new(vec![7; 300_000].into(), 3).unpack().is_err(), "longer than a message may be");
    assert!(packed(b"tow").unpack().is_err(), "no zstd frame");
    let little = Bytes::from_static(b"little");
    assert_eq!(TreeBytes::new(little.clone(), 3), TreeBytes::new(little, 0), "packed it is longer");
    assert_eq!(TreeBytes::default().unpack().unwrap(), None);
}

#[test]
fn wanted_entries_are_ascending_runs_below_those_that_were_looked_at() {
    for (wanted, runs) in [
        (vec![], Some(vec![])),
        (vec![0, 1, 4, 9], Some(vec![0..1, 4..9])),
        (vec![4, 4], None),
        (vec![4, 5, 3, 4], None),
        (vec![4], None),
        (vec![9, 11], None),
    ] {
        assert_eq!(Considered { entry: 10, wanted: wanted.clone() }.runs(), runs, "{wanted:?}");
    }
}

#[test]
fn nothing_is_no_message() {
    assert!(Message::from_bytes(Bytes::new()).is_err());
}
