//! Every message's bytes, and what is refused.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use towpath_api::copy::{CopyEvent, CopyOptions, CopySummary, FileTime, Via};
use towpath_content::Oid;
use towpath_content::delta::exchange::{Base, DeltaRun, DeltaStep, NextSignature, Request, StepOf};
use towpath_content::node_id::hex;
use towpath_files::FileError;
use towpath_ssh::SshError;

use super::*;

/// One message a line, hexadecimal, then what it is. `UPDATE_VECTORS=1` writes it anew.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/vectors/copy.txt");
/// Bytes that are no message.
const REFUSED: [(&str, &[u8]); 5] = [
    ("refused: message 19, which is not known", b"\x9a\x01\x00"),
    ("refused: a packed message that is no zstd frame", b"\x82\x01\x03tow"),
    ("refused: an entries message shorter than it says", b"\x22\x05tow"),
    ("refused: considered, not a number", b"\x32\x01a"),
    ("refused: no Protocol Buffers", b"\xff\xff\xff"),
];

fn starts() -> [(&'static str, Message); 2] {
    let push = Start {
        version: VERSION,
        role: Some(CopyRole::Receiver(ReceiverRole {
            destination: Bytes::from_static(b"/srv/www"),
            is_cp: false,
            coming: Some(Coming::Contents(Empty {})),
        })),
        options: options::encode(&CopyOptions { delete: true, ..CopyOptions::default() }),
        addresses: vec!["192.0.2.1:7000".into()],
        ..Start::default()
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
    [
        ("start: be the receiver of a tow sync", Message::Start(push)),
        ("start: be the sender, over ssh alone", Message::Start(pull)),
    ]
}

fn no_connection() -> SshError {
    let tried = vec!["192.0.2.1:7000".parse().unwrap()];
    SshError::NoConnection { limit: Duration::from_secs(30), tried, last: None }
}

fn answers() -> [(&'static str, Message); 8] {
    let named = Answer {
        entry: 300,
        oid: Bytes::copy_from_slice(&Oid::of(b"x").to_bytes()),
        size: 1,
        seconds: -1,
        nanos: 999_999_999,
        ..Answer::default()
    };
    let sparse = Answer { entry: 301, is_sparse: true, ..named.clone() };
    let whole = Answer { entry: 302, content: Bytes::from_static(b"x"), ..named.clone() };
    let again = Answer { is_again: true, ..whole.clone() };
    let reply = |reply: Reply| Bytes::from(reply.to_bytes());
    let delta = Answer { entry: 302, reply: reply(Reply::Whole(b"delta".to_vec())), ..named.clone() };
    let parts = Answer { entry: 303, reply: reply(Reply::InParts), ..named.clone() };
    let same = Answer { entry: 305, oid: Bytes::new(), reply: reply(Reply::Same), ..named.clone() };
    let lacking = Answer { entry: 304, reply: reply(Reply::UnknownBase), ..Answer::default() };
    let unreadable = Answer { entry: 1, ..Answer::default() };
    [
        (
            "answers: the content of entry 300, and of 301, which has holes",
            Message::Answers(Answers { answers: vec![named, sparse] }),
        ),
        ("answers: entry 302 with its content", Message::Answers(Answers { answers: vec![whole] })),
        ("answers: entry 302 with its content once more", Message::Answers(Answers { answers: vec![again] })),
        ("answers: entry 302 as a delta", Message::Answers(Answers { answers: vec![delta] })),
        ("answers: entry 303 comes in parts", Message::Answers(Answers { answers: vec![parts] })),
        ("answers: entry 305 is its base", Message::Answers(Answers { answers: vec![same] })),
        ("answers: the base of entry 304 is not here", Message::Answers(Answers { answers: vec![lacking] })),
        ("answers: entry 1 can't be read", Message::Answers(Answers { answers: vec![unreadable] })),
    ]
}

fn requested(base: Base) -> Vec<u8> {
    Request { base, is_guess: false, outlines: 2 }.to_bytes()
}

fn delta_of(entry: u64, bytes: Vec<u8>) -> DeltaMessage {
    DeltaMessage { entry, bytes: bytes.into() }
}

fn messages() -> Vec<(&'static str, Message)> {
    let rest = [
        (
            "ready: a sender that takes bases and has AES",
            Message::Ready(Ready {
                addresses: vec!["[2001:db8::1]:7001".into()],
                sources: 2,
                takes_bases: true,
                has_aes: true,
            }),
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
        ("entries: the beginning of a descriptor", Message::Entries(Bytes::from_static(b"towt\x01"))),
        ("entries: their end", Message::Entries(Bytes::new())),
        ("incomplete", Message::Incomplete(Empty {})),
        ("considered: entries 0 to 1023", Message::Considered(1024)),
        (
            "asks: entries 1 and 300, with their content up to 64 KiB, and 2 to compare",
            Message::Asks(Asks { entries: vec![1, 300], compare: vec![2], inline: 65536, pack: 0 }),
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
            "finished: one file was transferred",
            Message::Finished(EndReport::with(CopySummary { transferred: 1, ..CopySummary::default() })),
        ),
        ("finished: the other side keeps its own summary", Message::Finished(EndReport::default())),
        ("closed: entry 7", Message::Closed(7)),
        ("carry: contents are to come over this connection", Message::Carry(Empty {})),
        (
            "asks: entry 1, and answers are worth packing with level 9",
            Message::Asks(Asks { entries: vec![1], pack: 9, ..Asks::default() }),
        ),
        (
            "bases: of entry 300, of three parts, whose signatures follow, two at once; of 301, by its name",
            Message::Bases(Bases {
                bases: vec![
                    delta_of(300, requested(Base::Parts { count: 3, ahead: 2 })),
                    delta_of(301, requested(Base::Named(Oid::of(b"x")))),
                ],
            }),
        ),
        (
            "delta: the last bytes of a part of entry 303, packed, and the next signature is wanted",
            Message::Delta(delta_of(
                303,
                DeltaRun::Last(
                    DeltaStep::Delta { of: StepOf::NextPart { wants_signature: true }, is_packed: true },
                    b"frame",
                )
                .to_bytes(),
            )),
        ),
        (
            "next signature: of entry 303",
            Message::NextSignature(delta_of(303, NextSignature::Signed(b"signature".to_vec()).to_bytes())),
        ),
        (
            "next signature: no more of entry 303 should come so",
            Message::NextSignature(delta_of(303, NextSignature::GivenUp.to_bytes())),
        ),
        ("delta: entry 303 is given up", Message::Delta(delta_of(303, DeltaRun::GivenUp.to_bytes()))),
        ("more: the front of the options", Message::More(Bytes::from_static(b"\x08\x01"))),
    ];
    starts().into_iter().chain(answers()).chain(rest).collect()
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
fn a_packed_message_is_read_like_any_other_but_not_twice() {
    let message = Message::Entries(vec![7; 100_000].into());
    let packed = Message::pack(message.clone().into_bytes(), 3);
    assert!(packed.len() < 1000);
    assert_eq!(Message::from_bytes(packed.clone()).unwrap(), message);
    let twice = Message::Packed(packing::pack(&[&packed[..], &[0; 900]].concat(), 3).unwrap().into());
    assert!(Message::from_bytes(twice.into_bytes()).is_err());
    let twice = zstd::bulk::compress(&packed, 3).unwrap();
    assert!(Message::from_bytes(Message::Packed(twice.into()).into_bytes()).is_err());
    let large = Message::pack(Message::Entries(vec![7; 300_000].into()).into_bytes(), 3);
    assert!(Message::from_bytes(large).is_err(), "longer than a message may be");
    let little = Message::Considered(1);
    assert_eq!(Message::pack(little.clone().into_bytes(), 3), little.into_bytes());
}

#[test]
fn nothing_is_no_message() {
    assert!(Message::from_bytes(Bytes::new()).is_err());
}
