//! A service, and a stranger who asks it whatever he likes: only who showed a ticket's secret is told or sent anything
//! of an object, and nobody more than the limits say.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use towpath_content::delta::exchange::{Base, Request};
use towpath_content::ticket::{BoundSecret, Secret};
use towpath_content::{NodeId, Oid};
use towpath_protocol::answering::{Answer, Answering, Taken};
use towpath_protocol::processors::Processors;
use towpath_protocol::service::{Issuer, Service, Serving};
use towpath_protocol::session::Encoded;
use towpath_protocol::step::Step;
use towpath_protocol::wire::{self, Body, MAX_REQUESTS};
use towpath_store::seam::About;
use towpath_store::{MemoryStore, Store};

use crate::input::{Source, Written, noise};
use crate::seeds;

/// Bytes of the object: a piece and a rest.
const SIZE: usize = 300 << 10;
const SECRET: Secret = Secret([7; 16]);
const BINDING: [u8; 32] = [5; 32];
const STRANGER: NodeId = NodeId([6; 32]);
/// Messages of a connection, and steps of an answer, at most.
const MOST_MESSAGES: usize = 200;
const MOST_STEPS: usize = 50;

/// Has issued a ticket for everything.
struct Keys;

impl Issuer for Keys {
    fn secret(&self, _: &Oid) -> Option<BoundSecret> {
        Some(SECRET.into())
    }

    fn is_allowed(&self, _: &NodeId, _: &Oid) -> bool {
        false
    }

    fn sign(&self, _: &[u8]) -> [u8; 64] {
        [0; 64]
    }
}

/// A service with one object.
static SERVICE: LazyLock<(Arc<Service>, Oid)> = LazyLock::new(|| {
    let (store, live) = (MemoryStore::new(), Oid::Live([4; 32]));
    store.put_init(&live, &About::default()).expect("room in memory");
    store.put_data(&live, noise(SIZE)).expect("room in memory");
    let oid = store.put_commit(&live).expect("an object that is whole");
    (Arc::new(Service::new(Arc::new(store), Arc::new(Keys))), oid)
});

/// Messages of a stranger: as they are, or such as are likely to mean something.
pub fn direct_answering(data: &[u8]) {
    let (mut source, (service, oid)) = (Source::new(data), &*SERVICE);
    let mut stranger = Stranger {
        answering: Answering::new(STRANGER, BINDING, Processors::default()),
        serving: Serving::new(Arc::clone(service), STRANGER),
        has_proved: false,
        answers: Vec::new(),
    };
    if source.byte() & 1 > 0 {
        stranger.answering.encode(Encoded { number: 1, is_asked: true, in_parts: true });
    }
    for _ in 0..MOST_MESSAGES {
        if source.is_empty() {
            break;
        }
        let body = match source.below(8) {
            0 => stranger.prove(oid),
            1 => Body::Cancel(cancel(&mut source)),
            2 => Body::Describe(question(&mut source, oid)),
            3 => Body::Watch(question(&mut source, oid)),
            4 => Body::Get(get(&mut source, oid)),
            5 => {
                stranger.answer();
                continue;
            }
            6 => {
                stranger.go_on();
                continue;
            }
            _ => match Body::from_frame(Bytes::copy_from_slice(source.run())) {
                Ok(body) => body,
                Err(_) => continue,
            },
        };
        match stranger.answering.take(body, &Keys) {
            Ok(Taken::Answer(answer)) => stranger.answers.push(*answer),
            Ok(Taken::Nothing | Taken::Refused(_)) => {}
            Ok(Taken::Cancelled(_)) => assert!(!stranger.answers.is_empty()),
            Ok(Taken::Entries(_)) => panic!("nobody offers any"),
            Err(_) => break,
        }
        assert!(stranger.answers.len() <= MAX_REQUESTS);
    }
    while !stranger.answers.is_empty() {
        stranger.answer();
    }
}

struct Stranger {
    answering: Answering,
    serving: Serving,
    has_proved: bool,
    answers: Vec<Answer>,
}

impl Stranger {
    fn prove(&mut self, oid: &Oid) -> Body {
        self.has_proved = true;
        let proof = Bytes::copy_from_slice(&SECRET.prove(&BINDING, &STRANGER, oid));
        Body::Prove(wire::Prove { root: wire::oid_field(oid), proof })
    }

    /// Goes on with an answer until it ends, or waits for what does not come.
    fn answer(&mut self) {
        let Some(mut answer) = self.answers.pop() else { return };
        for _ in 0..MOST_STEPS {
            if !self.step(&mut answer) {
                break;
            }
        }
        self.answering.end(answer.request());
    }

    /// Goes on with an answer, a step.
    fn go_on(&mut self) {
        let Some(mut answer) = self.answers.pop() else { return };
        match self.step(&mut answer) {
            true => self.answers.push(answer),
            false => drop(self.answering.end(answer.request())),
        }
    }

    /// False if it was the last one.
    fn step(&mut self, answer: &mut Answer) -> bool {
        if self.answering.is_over(answer.request()) {
            return false;
        }
        let mut frames = Vec::new();
        let step = answer.step(&mut self.serving, &mut |frame| frames.push(frame.to_frame()));
        for frame in frames {
            assert!(frame.body.len() < towpath_link::frame::MAX_FRAME);
            assert!(self.has_proved || is_refusal(frame.kind, frame.body), "only a refusal");
        }
        step == Step::More
    }
}

fn is_refusal(kind: u8, body: Bytes) -> bool {
    kind == wire::CONTROL && matches!(Body::from_frame(body), Ok(Body::Outcome(_)))
}

/// The object, or another one.
fn some_oid(source: &mut Source<'_>, oid: &Oid) -> Bytes {
    match source.below(4) {
        0 => Bytes::copy_from_slice(source.run()),
        1 => wire::oid_field(&seeds::content::LIVE),
        _ => wire::oid_field(oid),
    }
}

/// A number, or none.
fn maybe(source: &mut Source<'_>) -> Option<u64> {
    (source.byte() & 1 > 0).then(|| source.number())
}

fn question(source: &mut Source<'_>, oid: &Oid) -> wire::Describe {
    let (request, flags) = (source.number() as u32, source.byte());
    wire::Describe {
        request,
        root: some_oid(source, oid),
        oid: some_oid(source, oid),
        block: maybe(source),
        values_from: maybe(source),
        values_to: source.number(),
        follow: flags & 1 > 0,
        recipe: flags & 2 > 0,
        samples: flags & 4 > 0,
    }
}

fn cancel(source: &mut Source<'_>) -> wire::WireCancel {
    let request = source.number() as u32;
    let pieces = (0..source.below(5)).map(|_| source.byte().into()).collect();
    wire::WireCancel { request, pieces }
}

fn get(source: &mut Source<'_>, oid: &Oid) -> wire::Get {
    let (request, root) = (source.number() as u32, some_oid(source, oid));
    let mut want = || {
        let mut want =
            wire::WireWant { oid: some_oid(source, oid), block: maybe(source), ..wire::WireWant::default() };
        match source.below(4) {
            0 => (want.offset, want.len) = (maybe(source), source.number() as u32),
            1 => want.chunk = Bytes::copy_from_slice(source.run()),
            2 => {
                (want.offset, want.len) = (Some(source.number()), source.number() as u32);
                want.base = Bytes::copy_from_slice(source.run());
            }
            _ => (want.first, want.count) = (source.number(), source.number() as u32),
        }
        want
    };
    let wants = (0..2).map(|_| want()).collect();
    wire::Get { request, root, wants, ..wire::Get::default() }
}

/// Questions and gets with and without the proof.
pub fn seeds() -> Vec<Vec<u8>> {
    let question = |written: Written, number: u64, flags: u64| {
        let written = written.number(2).number(number).number(flags).number(3).number(3);
        written.number(0).number(1).number(0).number(2)
    };
    let get = |written: Written, number: u64| {
        let written = written.number(4).number(number).number(3);
        let signature = seeds::content::delta_signatures().remove(0);
        let signature = Request { base: Base::Signature(signature), is_guess: false, outlines: 2 }.to_bytes();
        let pieces = written.number(3).number(0).number(3).number(0).number(2);
        let span =
            |written: Written| written.number(3).number(0).number(2).number(100).number(2000).run(&signature);
        span(pieces)
    };
    // Piece 1 of want 0, and want 1, which is a run of bytes.
    let cancel = |written: Written| {
        [0, 1, 1, 0].iter().fold(written.number(1).number(1).number(4), |written, byte| written.number(*byte))
    };
    let (part, begin) = (6, || Written::default().number(1));
    let in_the_middle = cancel(get(begin().number(0), 1).number(part).number(part));
    let told = |written: Written| question(question(cancel(get(written, 1)), 2, 2), 3, 4).number(5);
    let raw = seeds::direct::controls();
    let raw =
        raw.iter().fold(Written::default().number(0), |written, message| written.number(7).run(message));
    [
        in_the_middle,
        told(begin()),
        told(begin().number(0)),
        told(begin().number(0)).number(1).number(3).number(0),
        raw,
    ]
    .map(Written::done)
    .into()
}
