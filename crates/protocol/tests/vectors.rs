//! The protocol's messages have the bytes that `docs/formats/vectors/protocol.txt` lists: one a
//! line, hexadecimal, then what it is. `UPDATE_VECTORS=1` writes the file anew.

use bytes::Bytes;
use prost::Message;
use towpath_content::Oid;
use towpath_content::delta::exchange::{Base, DeltaRun, DeltaStep, NextSignature, Reply, Request, StepOf};
use towpath_content::node_id::hex;
use towpath_content::ticket::Secret;
use towpath_content::tree::Time;
use towpath_content::withdrawal::Withdrawal;
use towpath_protocol::wire::{self, Body, DataHeader, oid_field};
use towpath_transfer::Outcome;
use towpath_transfer::offer::{EntryBody, EntryContent};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/vectors/protocol.txt");

fn entries() -> wire::Get {
    let base = Request { base: Base::Parts { count: 2, ahead: 1 }, is_guess: false, outlines: 2 };
    let entry = |entry| wire::WireWant { entry: Some(entry), ..wire::WireWant::default() };
    let wants = vec![
        wire::WireWant { base: base.to_bytes().into(), ..entry(7) },
        wire::WireWant { compare: true, ..entry(8) },
    ];
    wire::Get { request: 7, wants, inline: 4000, pack: 3, ..wire::Get::default() }
}

fn content(want: u32, body: EntryBody) -> wire::WireContent {
    let modified = Time { seconds: 1_700_000_000, nanos: 5 };
    let content = EntryContent { oid: Some(Oid::of(b"x")), size: 1, modified, is_sparse: false, body };
    wire::WireContent::new(want, content)
}

fn list() -> wire::ContentList {
    wire::ContentList { contents: vec![content(1, EntryBody::Whole(Bytes::from_static(b"x")))] }
}

fn contents(body: wire::ContentsBody) -> Body {
    Body::Contents(wire::Contents { request: 7, body: Some(body) })
}

/// The list as zstd frame of one raw block, which every version of zstd reads and none need write.
fn packed_list() -> Bytes {
    let bytes = list().encode_to_vec();
    let (len, block) = (bytes.len() as u8, 1 | (bytes.len() as u32) << 3);
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, len][..], &block.to_le_bytes()[..3], &bytes].concat().into()
}

fn entry_messages() -> [(&'static str, Body); 7] {
    let (request, want) = (7, 0);
    let signature = NextSignature::Signed(vec![0xbb; 5]).to_bytes().into();
    let signature = wire::WireSignature { request, want, bytes: signature };
    let in_parts = wire::ContentList { contents: vec![content(0, EntryBody::Delta(Reply::InParts))] };
    let run = wire::WireRun { request, want, bytes: DeltaRun::More(&[0xcc; 4]).to_bytes().into() };
    [
        ("get entries 7 and 8: what has up to 4000 bytes may come along, packed", Body::Get(entries())),
        ("signature: of the base of want 0", Body::Signature(signature)),
        ("contents: want 1, with all of it", contents(wire::ContentsBody::List(list()))),
        ("contents: the same, one zstd frame", contents(wire::ContentsBody::Packed(packed_list()))),
        ("contents: want 0 comes in parts", contents(wire::ContentsBody::List(in_parts))),
        ("run: the next of want 0", Body::Run(run)),
        ("credit of contents", Body::ContentCredit(wire::ContentCredit { bytes: 131_200 })),
    ]
}

fn withdrawn() -> Body {
    let withdrawal = Withdrawal::new(Oid::Live([0x11; 32]), &Secret([0x22; 16]).into(), 1_700_000_000);
    let signature = Bytes::from_static(&[0xdd; 64]);
    Body::Withdrawn(wire::Withdrawn { withdrawal: withdrawal.to_bytes().into(), signature })
}

fn holder(root: Bytes) -> Body {
    let node = Bytes::from_static(&[0xee; 32]);
    Body::Holder(wire::WireHolder { root, node, address: "192.0.2.1:7000".into() })
}

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let root = oid_field(&Oid::Live([0x11; 32]));
    let oid = oid_field(&Oid::of(b"x"));
    let hello = wire::Hello {
        version: wire::VERSION,
        capabilities: wire::CAPABILITIES.map(String::from).into(),
        software: "towpath 0.1.0".into(),
        encodings: Vec::new(),
        link: String::new(),
        link_number: 0,
    };
    let with_encoding = wire::Hello { encodings: vec!["x-other".into()], ..hello.clone() };
    let with_link = wire::Hello { link: "eth0".into(), ..hello.clone() };
    let with_number = wire::Hello { link_number: 2, ..with_link.clone() };
    let description = wire::Description {
        request: 1,
        name: b"name".to_vec(),
        mode: Some(0o644),
        size: Some(1),
        metadata: vec![wire::KeyValue { key: "label".into(), value: b"internal".to_vec() }],
        ..wire::Description::default()
    };
    let want =
        wire::WireWant { oid: oid.clone(), block: Some(3), first: 4, count: 5, ..wire::WireWant::default() };
    let span =
        wire::WireWant { oid: oid.clone(), offset: Some(70_000), len: 100, ..wire::WireWant::default() };
    let based = |base| wire::WireWant {
        base: Request { base, is_guess: true, outlines: 2 }.to_bytes().into(),
        ..span.clone()
    };
    let similar = based(Base::Signature(vec![0x88; 9]));
    let (outlines, signature) = (vec![vec![0xaa; 3]], vec![0x88; 9]);
    let outlined = based(Base::Outlined { base_len: 200, outlines, signature });
    let delta =
        |run: DeltaRun<'_>| Body::Delta(wire::Delta { request: 4, want: 0, bytes: run.to_bytes().into() });
    let (next, bytes) = (StepOf::NextPart { wants_signature: false }, &[0x99; 7][..]);
    let chunk =
        wire::WireWant { count: 1, chunk: Bytes::from_static(&[0x44; 32]), ..wire::WireWant::default() };
    let recipe = wire::Describe {
        request: 3,
        root: root.clone(),
        oid: oid.clone(),
        values_from: Some(0),
        values_to: 9,
        recipe: true,
        ..wire::Describe::default()
    };
    let sampled = wire::Describe {
        request: 6,
        root: root.clone(),
        oid: oid.clone(),
        samples: true,
        ..wire::Describe::default()
    };
    let samples = wire::Samples { request: 6, first: 32, bytes: Bytes::from_static(&[0xaa; 16]) };
    let part = wire::Recipe {
        request: 3,
        root: Some(Bytes::from_static(&[0x55; 72])),
        nodes: vec![Bytes::from_static(&[0x66; 5]), Bytes::from_static(&[0x77; 6])],
    };
    let describe =
        wire::Describe { request: 1, root: root.clone(), oid, follow: true, ..wire::Describe::default() };
    let header = DataHeader {
        request: 2,
        want: 0,
        piece: 1,
        offset: 0,
        suggested: 4 << 20,
        zeros: false,
        encoding: 0,
    };
    let control = [
        ("hello", Body::Hello(hello)),
        ("hello: the same, where data of encoding 2 are in x-other", Body::Hello(with_encoding)),
        ("hello: the same by the link eth0", Body::Hello(with_link)),
        ("hello: by a second connection of that link", Body::Hello(with_number)),
        ("description with metadata", Body::Description(description)),
        ("prove", Body::Prove(wire::Prove { root: root.clone(), proof: Bytes::from_static(&[0x33; 32]) })),
        ("describe and follow", Body::Describe(describe)),
        (
            "get pieces 4 to 8 of an object that block 3 mentions",
            Body::Get(wire::Get {
                request: 2,
                root: root.clone(),
                wants: vec![want.clone()],
                ..wire::Get::default()
            }),
        ),
        ("describe with the recipe", Body::Describe(recipe)),
        ("part of a recipe: the root and two nodes", Body::Recipe(part)),
        (
            "get bytes 70000 to 70099 of an object, and a chunk by its hash",
            Body::Get(wire::Get {
                request: 3,
                root: root.clone(),
                wants: vec![span, chunk],
                ..wire::Get::default()
            }),
        ),
        (
            "get bytes 70000 to 70099 of an object, as a delta of what was signed so, or not at all",
            Body::Get(wire::Get {
                request: 4,
                root: root.clone(),
                wants: vec![similar],
                ..wire::Get::default()
            }),
        ),
        (
            "get the same, of which an outline came: the next step of the delta",
            Body::Get(wire::Get {
                request: 4,
                root: root.clone(),
                wants: vec![outlined],
                ..wire::Get::default()
            }),
        ),
        (
            "get pieces 4 to 8 with urgency -3: what else its node asks for goes first",
            Body::Get(wire::Get {
                request: 5,
                root: root.clone(),
                wants: vec![want],
                urgency: -3,
                ..wire::Get::default()
            }),
        ),
        ("describe with samples", Body::Describe(sampled)),
        ("samples of pieces from 32 on", Body::Samples(samples)),
        ("delta: want 0, more follow", delta(DeltaRun::More(bytes))),
        (
            "delta: the last of it, one zstd frame",
            delta(DeltaRun::Last(DeltaStep::Delta { of: next, is_packed: true }, bytes)),
        ),
        (
            "delta: an outline, which one more may follow",
            delta(DeltaRun::Last(DeltaStep::Outline { of: next, further: 1 }, bytes)),
        ),
        (
            "outcome: want 0 changed at its source",
            Body::Outcome(wire::WireOutcome::new(2, Some(0), &Outcome::SourceChanged)),
        ),
        ("cancel", Body::Cancel(wire::WireCancel { request: 2, pieces: Vec::new() })),
        (
            "cancel: piece 1 of want 0 and want 3",
            Body::Cancel(wire::WireCancel { request: 2, pieces: vec![0, 1, 3, 0] }),
        ),
        ("outcome: these were cancelled", Body::Outcome(wire::WireOutcome::cancelled(2, vec![0, 1, 3, 0]))),
        ("the ticket was withdrawn", withdrawn()),
        ("finished: has all of it", Body::Finished(wire::WireFinished { root: root.clone(), how: 1 })),
        (
            "serves what it gets at port 7000",
            Body::Serves(wire::WireServes { root: root.clone(), port: 7000 }),
        ),
        ("holder: another node serves, too", holder(root.clone())),
        (
            "bring what this ticket names",
            Body::Bring(wire::WireBring { request: 8, ticket: Bytes::from_static(b"tow:x") }),
        ),
        ("done", Body::Done(wire::RequestOnly { request: 2 })),
        ("goodbye", Body::Goodbye(wire::Goodbye { reason: "sent a second hello".into() })),
        ("ping", Body::Ping(wire::Ping::default())),
        ("ping that asks", Body::Ping(wire::Ping { asks: 1, answers: 0 })),
        ("ping that answers", Body::Ping(wire::Ping { asks: 0, answers: 1 })),
        (
            "control stream: a message",
            Body::ControlData(wire::ControlData { message: Bytes::from_static(b"go") }),
        ),
        ("control stream: credit for it", Body::ControlCredit(wire::ControlCredit { bytes: 66 })),
        ("control stream: its end", Body::ControlEnd(wire::ControlEnd {})),
    ];
    let control = control.into_iter().chain(entry_messages());
    let mut all: Vec<_> = control.map(|(name, body)| (name, body.to_frame().to_vec())).collect();
    all.push(("data header: piece 1 of want 0", header.encode().to_vec()));
    all.push(("data header: the same, all zeros", DataHeader { zeros: true, ..header }.encode().to_vec()));
    all.push((
        "data header: the same, one zstd frame",
        DataHeader { encoding: 1, ..header }.encode().to_vec(),
    ));
    all.push(("data header: the same, encoding 2", DataHeader { encoding: 2, ..header }.encode().to_vec()));
    all.push((
        "an encoded payload: 258 bytes as three, between sides with parts",
        wire::with_len(258, b"abc").to_vec(),
    ));
    all
}

#[test]
fn the_bytes_are_those_in_the_file() {
    let text: String = messages().iter().map(|(name, bytes)| format!("{}  {name}\n", hex(bytes))).collect();
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(FILE).unwrap(), text);
}

#[test]
fn the_packed_contents_are_those_that_are_not() {
    assert_eq!(wire::ContentList::unpack(&packed_list()).unwrap().0, list());
}

/// All but data and what may be in them.
fn is_control(name: &str) -> bool {
    !name.starts_with("data") && !name.starts_with("an encoded payload")
}

#[test]
fn control_messages_come_back() {
    for (name, bytes) in messages().into_iter().filter(|(name, _)| is_control(name)) {
        let body = Body::from_frame(bytes.clone().into()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(body.to_frame().to_vec(), bytes, "{name}");
    }
}
