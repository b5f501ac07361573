//! Tickets, names, trees, recipes and deltas.

use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::codec::Writer;
use towpath_content::delta::exchange::{
    Base, DeltaRun, DeltaStep, NextSignature, Reply, Request, StepOf, refine,
};
use towpath_content::delta::{CopyOps, Delta, Signature, diff};
use towpath_content::live::Statement;
use towpath_content::pieces::{Layout, MIN_LOG2, PieceTree};
use towpath_content::recipe::{NodeHash, RecipeBuilder, RecipeRoot};
use towpath_content::ticket::{BoundSecret, Enclosed, Secret, Terms};
use towpath_content::tree::{Encoder, Entry, Event, Kind, Metadata, Owner, Time, Xattr};
use towpath_content::withdrawal::Withdrawal;
use towpath_content::{Hint, NodeId, Oid, Ticket};

use crate::input::Written;

pub const CONTENT: Oid = Oid::Blake3([1; 32]);
pub const LIVE: Oid = Oid::Live([2; 32]);

fn some_hints() -> Vec<Hint> {
    let hint = |method: &str| Hint::new(method, 10, 5).expect("a valid hint");
    vec![hint("tow://192.0.2.1:7777"), hint("tow://[2001:db8::1]:7777"), hint("file:/srv/data")]
}

pub fn tickets() -> Vec<Vec<u8>> {
    let terms = Terms::default();
    let ticket = |oid, hints| Ticket {
        oid,
        node: NodeId([3; 32]),
        secret: Secret([4; 16]),
        hints,
        terms,
        enclosed: None,
    };
    let enclosed = Enclosed { name: b"note".to_vec(), content: b"words".to_vec(), ..Enclosed::default() };
    let with_content = Ticket { enclosed: Some(enclosed), ..ticket(Oid::of(b"words"), some_hints()) };
    let terms = Terms { expires: Some(1_800_000_000), no_swarm: true };
    let with_terms = Ticket { terms, ..ticket(LIVE, some_hints()) };
    let tickets = [ticket(CONTENT, Vec::new()), ticket(LIVE, some_hints()), with_content, with_terms];
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
        writer.varint(hint.priority.into()).varint(hint.weight.into()).bytes(hint.method.as_bytes());
        writer.into_bytes()
    };
    some_hints().into_iter().map(encode).collect()
}

pub fn statements() -> Vec<Vec<u8>> {
    let values = Statement::Values { object: LIVE, generation: 9, first: 300, values: vec![[5; 32]; 3] };
    let bound = Statement::Bound { object: LIVE, content: CONTENT, size: 1 << 30 };
    vec![values.to_bytes(), bound.to_bytes()]
}

pub fn withdrawals() -> Vec<Vec<u8>> {
    let withdrawal = |root| Withdrawal::new(root, &Secret([4; 16]).into(), 1_700_000_000).to_bytes();
    vec![withdrawal(LIVE), withdrawal(CONTENT)]
}

pub fn bound_secrets() -> Vec<Vec<u8>> {
    let terms = Terms { expires: Some(1_800_000_000), no_swarm: true };
    let secret = Secret([4; 16]);
    vec![BoundSecret::from(secret).to_bytes(), BoundSecret { secret, terms }.to_bytes()]
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
pub fn recipe(chunks: u32) -> (Vec<Vec<u8>>, RecipeRoot) {
    let mut nodes = Vec::new();
    let emit = |_: NodeHash, node: Vec<u8>| {
        nodes.push(node);
        Ok::<(), std::convert::Infallible>(())
    };
    let mut builder = RecipeBuilder::new(Parameters::DEFAULT, emit).expect("the default parameters");
    for number in 0..chunks {
        builder.push(ChunkHash::of(&number.to_le_bytes()), 4096 + number).expect("lengths in the limits");
    }
    let root = builder.finish(CONTENT).expect("a recipe");
    (nodes, root)
}

pub fn recipe_nodes() -> Vec<Vec<u8>> {
    recipe(2000).0
}

pub fn recipe_roots() -> Vec<Vec<u8>> {
    vec![recipe(2000).1.to_bytes()]
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

/// Object that resembles it.
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

pub fn outlines() -> Vec<Vec<u8>> {
    let outline = |delta: Vec<u8>| Delta::from_bytes(&delta).expect("a delta").split().0.to_bytes();
    deltas().into_iter().map(outline).collect()
}

/// One outline and two, and the literals that they leave as a delta.
pub fn refined() -> Vec<Vec<u8>> {
    let (base, target) = (base(), target());
    let signature = Signature::of(&base, 128, target.len()).expect("a region in the limits");
    let split = |delta: Delta| -> (CopyOps, Vec<u8>) { delta.split() };
    let (first, literals) = split(diff(&signature, &target).expect("a target in the limits"));
    let first = first.to_bytes();
    let one = vec![first.clone()];
    let finer = refine::sign(&one, &base, 1).expect("an outline of it");
    let finer = Signature::from_bytes(&finer).expect("a signature");
    let delta = diff(&finer, &literals).expect("literals in the limits");
    let (second, rest) = split(delta.clone());
    let two = vec![first, second.to_bytes()];
    let last = refine::sign(&two, &base, 0).expect("outlines of it");
    let last =
        diff(&Signature::from_bytes(&last).expect("a signature"), &rest).expect("literals in the limits");
    let told = |outlines: &[Vec<u8>], delta: &Delta| {
        let head = Written::default().number(outlines.len() as u64).runs(outlines.iter().map(Vec::as_slice));
        let head = head.number(0).number(target.len() as u64).run(&delta.to_bytes());
        head.number(0).rest(&base).done()
    };
    vec![told(&one, &delta), told(&two, &last), told(&[], &delta)]
}

fn requests() -> Vec<Request> {
    let signature = delta_signatures().remove(0);
    let (base_len, outlines) = (base().len() as u64, vec![outlines().remove(0)]);
    let outlined = Base::Outlined { base_len, outlines, signature: signature.clone() };
    let parts = Base::Parts { count: 2, ahead: 1 };
    let bases = [Base::Signature(signature), Base::Named(CONTENT), parts, outlined];
    bases.map(|base| Request { base, is_guess: false, outlines: 2 }).into()
}

/// Steps with the bytes of a delta, of an outline, of a patch.
fn steps() -> Vec<(DeltaStep, Vec<u8>)> {
    let of = StepOf::NextPart { wants_signature: false };
    let patch = towpath_content::delta::patch::make(&base(), &target()).expect("files in the limits");
    vec![
        (DeltaStep::Delta { of, is_packed: false }, deltas().remove(0)),
        (DeltaStep::Outline { of, further: 1 }, outlines().remove(0)),
        (DeltaStep::Patch, patch),
        (DeltaStep::Delta { of: StepOf::Literals, is_packed: false }, deltas().remove(0)),
        (DeltaStep::Outline { of: StepOf::Literals, further: 0 }, outlines().remove(0)),
    ]
}

pub fn exchange_messages() -> Vec<Vec<u8>> {
    let mut all: Vec<_> = requests().iter().map(Request::to_bytes).collect();
    all.extend(
        [NextSignature::GivenUp, NextSignature::Signed(delta_signatures().remove(0))].map(|it| it.to_bytes()),
    );
    let replies =
        [Reply::Same, Reply::UnknownBase, Reply::GivenUp, Reply::Whole(deltas().remove(0)), Reply::InParts];
    all.extend(replies.map(|it| it.to_bytes()));
    all.extend([DeltaRun::More(b"front"), DeltaRun::GivenUp].map(|it| it.to_bytes()));
    all.extend(steps().iter().map(|(step, bytes)| DeltaRun::Last(*step, bytes).to_bytes()));
    all
}

/// A request, the file's bytes, a reply and a step with each.
pub fn exchanges() -> Vec<Vec<u8>> {
    let pairs = requests()
        .into_iter()
        .flat_map(|request| steps().into_iter().map(move |step| (request.clone(), step)));
    let told = |(request, (step, bytes)): (Request, (DeltaStep, Vec<u8>))| {
        let head = Written::default().run(&request.to_bytes()).number(target().len() as u64);
        let head = head.run(&Reply::InParts.to_bytes()).run(&DeltaRun::More(&bytes[..1]).to_bytes());
        head.run(&DeltaRun::Last(step, &bytes[1..]).to_bytes()).done()
    };
    pairs.map(told).collect()
}

/// Proofs of runs in objects of some pieces.
pub fn proofs() -> Vec<Vec<u8>> {
    let prove = |count: u64, run: std::ops::Range<u64>| {
        let layout = Layout::of((count << MIN_LOG2) - 5).expect("a small object");
        let values = (0..count).map(|index| [index as u8; 32]).collect();
        let tree = PieceTree::new(layout, values).expect("a value for each piece");
        let proof = tree.proof(run.clone()).expect("a run within it");
        let told = Written::default().run(tree.oid().digest()).number(0).number(layout.size());
        told.number(run.start).number(run.end - run.start).rest(&proof).done()
    };
    vec![prove(1, 0..1), prove(5, 0..5), prove(9, 3..6), prove(70, 64..65), prove(300, 17..90)]
}
