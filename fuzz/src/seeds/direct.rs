//! Messages and data frames of the direct protocol.

use bytes::Bytes;
use towpath_link::frame::encode_head;
use towpath_protocol::packing;
use towpath_protocol::wire::*;

use super::content::{CONTENT, recipe};

pub fn controls() -> Vec<Vec<u8>> {
    let (oid, nodes) = (oid_field(&CONTENT), Bytes::from_static(&[6; 64]));
    let want = WireWant { oid: oid.clone(), block: Some(3), first: 1, count: 4, ..WireWant::default() };
    let span = WireWant { oid: oid.clone(), offset: Some(70_000), len: 100, ..WireWant::default() };
    let (root, recipe_nodes) = (Bytes::from(recipe(100).1.to_bytes()), vec![nodes.clone(); 2]);
    let about = Description {
        request: 1,
        is_tree: true,
        name: b"tree".to_vec(),
        size: Some(7),
        ..Description::default()
    };
    let question =
        Describe { request: 1, root: oid.clone(), oid: oid.clone(), follow: true, ..Describe::default() };
    let outcome = WireOutcome {
        request: 1,
        want: Some(1),
        code: 5,
        retry_ms: 9,
        reason: "no".into(),
        pieces: Vec::new(),
    };
    let bodies = [
        Body::Hello(Hello { version: VERSION, capabilities: vec!["live".into()], ..Hello::default() }),
        Body::Prove(Prove { root: oid.clone(), proof: nodes.clone() }),
        Body::Describe(question.clone()),
        Body::Description(about),
        Body::Proof(ProofOf { request: 1, want: Some(2), first: 3, count: 4, nodes: nodes.clone() }),
        Body::Stated(Stated { request: 1, statement: nodes.clone(), signature: nodes.clone() }),
        Body::Have(Have { request: 1, bounds: vec![0, 5, 9, 12] }),
        Body::Describe(Describe { recipe: true, ..question.clone() }),
        Body::Delta(Delta { request: 1, want: 0, bytes: Bytes::from_static(&[1, 2, 0, 9, 9, 9]) }),
        Body::Delta(Delta { request: 1, want: 0, bytes: Bytes::from_static(&[1, 3, 1, 0, 9, 9]) }),
        Body::Recipe(Recipe { request: 1, root: Some(root), nodes: recipe_nodes }),
        Body::Get(Get { request: 1, root: oid.clone(), wants: vec![want; 3], urgency: -3, ..Get::default() }),
        Body::Get(Get { request: 1, root: oid, wants: vec![span; 2], ..Get::default() }),
        Body::Outcome(outcome),
        Body::Outcome(WireOutcome::cancelled(1, vec![0, 1, 1, 0])),
        Body::Cancel(WireCancel { request: 1, pieces: Vec::new() }),
        Body::Cancel(WireCancel { request: 1, pieces: vec![0, 1, 1, 0] }),
        Body::Goodbye(Goodbye { reason: "bye".into() }),
        Body::Ping(Ping::default()),
        Body::Watch(question),
        Body::ControlData(ControlData { message: Bytes::from_static(b"message") }),
        Body::ControlCredit(ControlCredit { bytes: 71 }),
        Body::ControlEnd(ControlEnd {}),
    ];
    bodies.into_iter().chain(entries()).map(|body| body.to_frame().to_vec()).collect()
}

/// Messages about entries.
fn entries() -> [Body; 6] {
    let (request, want, bytes) = (1, 0, Bytes::from_static(b"\x01signature"));
    let base = Bytes::from_static(&[2, 0, 0, 3, 1]);
    let wants = vec![WireWant { entry: Some(9), base, compare: true, ..WireWant::default() }; 2];
    let whole = Some(ContentBody::Whole(Bytes::from_static(b"content")));
    let content = WireContent { oid: oid_field(&CONTENT), size: 7, body: whole, ..WireContent::default() };
    let in_parts =
        WireContent { want: 1, body: Some(ContentBody::Reply(Bytes::from_static(&[4]))), ..content.clone() };
    let list = ContentList { contents: vec![content, in_parts] };
    // Want 1 comes in parts, twenty times.
    let packed = [0x0a, 5, 0x08, 1, 0x42, 1, 4].repeat(20);
    let packed = packing::pack(&packed, 3).expect("what packs well");
    [
        Body::Get(Get { request, wants, inline: 4000, pack: 3, ..Get::default() }),
        Body::Contents(Contents { request, body: Some(ContentsBody::List(list)) }),
        Body::Contents(Contents { request, body: Some(ContentsBody::Packed(packed.into())) }),
        Body::Run(WireRun { request, want: 1, bytes: Bytes::from_static(b"\x00run") }),
        Body::Signature(WireSignature { request, want, bytes }),
        Body::ContentCredit(ContentCredit { bytes: 71 }),
    ]
}

pub fn data_frames() -> Vec<Vec<u8>> {
    let header =
        DataHeader { request: 1, want: 2, piece: 3, offset: 4, suggested: 5, zeros: false, encoding: 0 };
    let zstd = DataHeader { encoding: 1, ..header };
    vec![
        [&header.encode()[..], b"payload"].concat(),
        [&zstd.encode()[..], b"payload"].concat(),
        DataHeader { zeros: true, ..header }.encode().to_vec(),
    ]
}

pub fn packed() -> Vec<Vec<u8>> {
    let pack = |bytes: &[u8]| packing::pack(bytes, 3).expect("what packs well");
    vec![pack(&[0; 1000]), pack(&b"all work and no play ".repeat(50)), pack(&vec![7; 256 << 10])]
}

/// Streams of a connection in one direction: a hello, then one of everything; packed data with and without their
/// lengths.
pub fn streams() -> Vec<Vec<u8>> {
    [&[][..], &[PARTS.to_owned()]].map(stream).to_vec()
}

fn stream(more: &[String]) -> Vec<u8> {
    let frame = |kind: u8, body: &[u8]| [&encode_head(kind, body.len()).expect("short")[..], body].concat();
    let capabilities = [&["live".to_owned(), "zstd".to_owned()][..], more].concat();
    let hello = Hello { version: 1, capabilities, ..Hello::default() };
    let mut stream = frame(CONTROL, &Body::Hello(hello).to_frame());
    controls().iter().skip(1).for_each(|body| stream.extend(frame(CONTROL, body)));
    let packed = packing::pack(&[5; 700], 1).expect("what packs well");
    let packed = if more.is_empty() { Bytes::from(packed) } else { with_len(700, &packed) };
    let header =
        DataHeader { request: 2, want: 0, piece: 0, offset: 700, suggested: 9, zeros: false, encoding: 1 };
    stream.extend(frame(DATA, &[&header.encode()[..], &packed].concat()));
    data_frames().iter().for_each(|body| stream.extend(frame(DATA, body)));
    stream
}
