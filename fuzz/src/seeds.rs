//! Valid inputs, from which changed ones are made.

use bytes::Bytes;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::codec::Writer;
use towpath_content::delta::{Signature, diff};
use towpath_content::live::Statement;
use towpath_content::recipe::{NodeHash, RecipeBuilder, Root};
use towpath_content::ticket::{Enclosed, Secret};
use towpath_content::tree::{Encoder, Entry, Event, Kind, Metadata, Owner, Time, Xattr};
use towpath_content::{Hint, NodeId, Oid, Ticket};
use towpath_link::frame::encode_head;
use towpath_plugins::direct::wire::*;

const CONTENT: Oid = Oid::Blake3([1; 32]);
const LIVE: Oid = Oid::Live([2; 32]);

fn some_hints() -> Vec<Hint> {
    let hint = |method: &str| Hint::new(method, 10, 5).expect("a valid hint");
    vec![hint("tow://192.0.2.1:7777"), hint("tow://[2001:db8::1]:7777"), hint("file:/srv/data")]
}

pub fn tickets() -> Vec<Vec<u8>> {
    let ticket =
        |oid, hints| Ticket { oid, node: NodeId([3; 32]), secret: Secret([4; 16]), hints, enclosed: None };
    let enclosed = Enclosed { name: b"note".to_vec(), content: b"words".to_vec(), ..Enclosed::default() };
    let with_content = Ticket { enclosed: Some(enclosed), ..ticket(Oid::of(b"words"), some_hints()) };
    let tickets = [ticket(CONTENT, Vec::new()), ticket(LIVE, some_hints()), with_content];
    tickets.map(|ticket| ticket.to_string().into_bytes()).into()
}

pub fn oid_texts() -> Vec<Vec<u8>> {
    [CONTENT, LIVE].map(|oid| oid.to_string().into_bytes()).into()
}

pub fn oids() -> Vec<Vec<u8>> {
    [CONTENT, LIVE].map(|oid| oid.to_bytes().to_vec()).into()
}

pub fn hints() -> Vec<Vec<u8>> {
    let encode = |hint: Hint| {
        let mut writer = Writer::new();
        hint.encode(&mut writer);
        writer.into_bytes()
    };
    some_hints().into_iter().map(encode).collect()
}

pub fn statements() -> Vec<Vec<u8>> {
    let values = Statement::Values { object: LIVE, generation: 9, first: 300, values: vec![[5; 32]; 3] };
    let bound = Statement::Bound { object: LIVE, content: CONTENT, size: 1 << 30 };
    vec![values.to_bytes(), bound.to_bytes()]
}

fn entry(name: &str, kind: Kind) -> Entry {
    let owner = |id| Owner { id, name: b"ann".to_vec() };
    let xattrs = vec![Xattr { name: b"user.note".to_vec(), value: b"x".to_vec() }];
    let modified = Time { seconds: 1_700_000_000, nanos: 5 };
    let metadata = Metadata { mode: 0o644, user: owner(1), group: owner(2), modified, xattrs };
    Entry { name: name.into(), kind, metadata, hard_link: None }
}

/// A small tree with something of everything.
pub fn trees() -> Vec<Vec<u8>> {
    let file = |oid| Kind::File { size: 100, oid, extents: None };
    let events = [
        Event::Enter(entry("", Kind::Directory)),
        Event::Leaf(entry("a", file(Some(CONTENT)))),
        Event::Enter(entry("b", Kind::Directory)),
        Event::Leaf(entry("link", Kind::Symlink { target: b"../a".to_vec() })),
        Event::Leaf(entry("pipe", Kind::Fifo)),
        Event::Leave,
        Event::Leave,
    ];
    let encode = |live| {
        let mut encoder = Encoder::new(live);
        events.iter().for_each(|event| encoder.push(event).expect("events in order"));
        encoder.finish().expect("all directories were left")
    };
    let with_content = || {
        let mut encoder = Encoder::with_content(false);
        for event in &events {
            let len = event.entry().map_or(0, Entry::inline_len);
            encoder.push_with(event, &vec![7; len]).expect("events in order");
        }
        encoder.finish().expect("all directories were left")
    };
    vec![encode(false), encode(true), with_content()]
}

/// A recipe of many chunks: its nodes, and its root.
fn recipe() -> (Vec<Vec<u8>>, Root) {
    let mut nodes = Vec::new();
    let emit = |_: NodeHash, node: Vec<u8>| {
        nodes.push(node);
        Ok::<(), std::convert::Infallible>(())
    };
    let mut builder = RecipeBuilder::new(Parameters::DEFAULT, emit).expect("the default parameters");
    for number in 0..2000u32 {
        builder.push(ChunkHash::of(&number.to_le_bytes()), 4096 + number).expect("lengths in the limits");
    }
    let root = builder.finish(CONTENT).expect("a recipe");
    (nodes, root)
}

pub fn recipe_nodes() -> Vec<Vec<u8>> {
    recipe().0
}

pub fn recipe_roots() -> Vec<Vec<u8>> {
    vec![recipe().1.to_bytes()]
}

pub fn parameters() -> Vec<Vec<u8>> {
    let rabin = Parameters::Rabin { min: 2 << 10, avg: 8 << 10, max: 64 << 10 };
    [Parameters::DEFAULT, rabin, Parameters::Given].map(|parameters| parameters.to_bytes()).to_vec()
}

/// A region that has something of everything: blocks that differ, equal ones, a shorter last one.
pub fn base() -> Vec<u8> {
    let numbers = (0..200u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes());
    numbers.chain([0; 300]).collect()
}

/// What resembles it.
pub fn target() -> Vec<u8> {
    let base = base();
    [&base[..300], b"inserted", &base[300..500], &base[640..], &base[..100]].concat()
}

fn signatures() -> Vec<Signature> {
    let sign = |block| Signature::of(&base(), block, target().len()).expect("a region in the limits");
    [64, 128, 1 << 16].map(sign).into()
}

pub fn deltas() -> Vec<Vec<u8>> {
    let make = |signature: &Signature| diff(signature, &target()).expect("a target in the limits").to_bytes();
    signatures().iter().map(make).collect()
}

pub fn delta_signatures() -> Vec<Vec<u8>> {
    signatures().iter().map(Signature::to_bytes).collect()
}

pub fn frames() -> Vec<Vec<u8>> {
    let frame = |kind, body: &[u8]| [&encode_head(kind, body.len()).expect("short")[..], body].concat();
    vec![[frame(0, b"hello"), frame(1, b""), frame(255, &[7; 300])].concat()]
}

pub fn controls() -> Vec<Vec<u8>> {
    let (oid, nodes) = (oid_field(&CONTENT), Bytes::from_static(&[6; 64]));
    let want = WireWant { oid: oid.clone(), block: Some(3), first: 1, count: 4, ..WireWant::default() };
    let span = WireWant { oid: oid.clone(), offset: Some(70_000), len: 100, ..WireWant::default() };
    let (root, recipe_nodes) = (Bytes::from(recipe().1.to_bytes()), vec![nodes.clone(); 2]);
    let about = Description {
        request: 1,
        is_tree: true,
        name: b"tree".to_vec(),
        size: Some(7),
        ..Description::default()
    };
    let question =
        Describe { request: 1, root: oid.clone(), oid: oid.clone(), follow: true, ..Describe::default() };
    let bodies = [
        Body::Hello(Hello {
            version: 1,
            session: nodes.clone(),
            capabilities: vec!["live".into()],
            ..Hello::default()
        }),
        Body::Prove(Prove { root: oid.clone(), proof: nodes.clone() }),
        Body::Describe(question.clone()),
        Body::Description(about),
        Body::Proof(ProofOf { request: 1, want: Some(2), first: 3, count: 4, nodes: nodes.clone() }),
        Body::Stated(Stated { request: 1, statement: nodes.clone(), signature: nodes.clone() }),
        Body::Have(Have { request: 1, bounds: vec![0, 5, 9, 12] }),
        Body::Describe(Describe { recipe: true, ..question.clone() }),
        Body::Delta(Delta { request: 1, want: 0, bytes: Bytes::from_static(&[9; 20]), packed: true }),
        Body::Recipe(Recipe { request: 1, root: Some(root), nodes: recipe_nodes }),
        Body::Get(Get { request: 1, root: oid.clone(), wants: vec![want; 3], urgency: -3 }),
        Body::Get(Get { request: 1, root: oid, wants: vec![span; 2], urgency: 0 }),
        Body::Outcome(WireOutcome { request: 1, want: Some(1), code: 5, retry_ms: 9, reason: "no".into() }),
        Body::Cancel(RequestOnly { request: 1 }),
        Body::Goodbye(Goodbye { reason: "bye".into() }),
        Body::Ping(Ping::default()),
        Body::Watch(question),
        Body::ControlData(ControlData { message: Bytes::from_static(b"message") }),
        Body::ControlCredit(ControlCredit { bytes: 71 }),
        Body::ControlEnd(ControlEnd {}),
    ];
    bodies.map(|body| body.to_frame().to_vec()).into()
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

pub fn filter_rules() -> Vec<Vec<u8>> {
    let lists: [&[u8]; 3] = [
        b"- *.o\n+ /a/b/\n-!/ [!a-c]*\nP x\n",
        b": .rules\n:nw-sp ../up/.q\n-srp dir/***\n",
        b"- **/[[:alpha:]x]?\n+ a\\*b**c\nhide,p *a*b*c*\n- a/**/b\n",
    ];
    lists.map(|list| list.strip_suffix(b"\n").unwrap_or(list).to_vec()).into()
}
