//! A connection as a whole: what this side asks and gives up, and whatever the peer says meanwhile. Each want ends
//! once, each request once and behind its wants, and all do when the connection ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::delta::Signature;
use towpath_content::delta::exchange::{Base, Request};
use towpath_content::pieces::Layout;
use towpath_link::Frame;
use towpath_protocol::incoming::Decoder;
use towpath_protocol::packing;
use towpath_protocol::processors::Processors;
use towpath_protocol::requests::GetRequest;
use towpath_protocol::session::{Effect, Question, Session, SessionConfig};
use towpath_protocol::wire::{self, Body, DataHeader};
use towpath_transfer::offer::{EntryQuery, EntryWant};
use towpath_transfer::{Origin, Outcome, SignedBase, SourceId, Tag, Want, WantId};

use crate::input::{Source, Written};
use crate::seeds;

/// Bytes of the object: two pieces and a rest.
const SIZE: u64 = 600 << 10;
/// Things that happen on a connection, at most.
const MOST_STEPS: usize = 500;
const OBJECT: Oid = seeds::content::CONTENT;

/// Events that happen, one after the other.
pub fn direct_session(data: &[u8]) {
    let mut source = Source::new(data);
    let mut side = Side::new(source.byte());
    for _ in 0..MOST_STEPS {
        if source.is_empty() {
            break;
        }
        side.step(&mut source);
        side.settle();
    }
    side.session.close(None);
    side.settle();
    assert!(side.is_closed && side.open.is_empty());
}

/// This side, and what it waits for.
struct Side {
    session: Session,
    decoder: Decoder,
    now: Instant,
    next_tag: Tag,
    cancelled: BTreeSet<Tag>,
    /// Requests that have not ended: wants of a `Get`, none of a question.
    open: BTreeMap<u32, Option<BTreeSet<Tag>>>,
    is_closed: bool,
}

impl Side {
    fn new(flags: u8) -> Self {
        let now = Instant::now();
        let config = SessionConfig {
            silence: Duration::from_secs(20),
            control: flags & 1 > 0,
            processors: Processors::default(),
            paces: false,
            wishes: Vec::new(),
            serves: flags & 2 > 0,
            priority: 0,
            measures: flags & 4 > 0,
            source: SourceId::other("a peer", None),
            tells_link: true,
            link_number: 0,
        };
        let (session, decoder) = (Session::new(config, now), Decoder::new(Processors::default()));
        let (cancelled, open) = (BTreeSet::new(), BTreeMap::new());
        Self { session, decoder, now, next_tag: 0, cancelled, open, is_closed: false }
    }

    fn step(&mut self, source: &mut Source<'_>) {
        match source.below(13) {
            0 => self.get(source),
            1 => self.ask(source),
            2 => self.cancel(source),
            3 => self.session.give_up(source.number() as u32),
            4 => self.session.get_ahead(self.now, &OBJECT, (&OBJECT, true)),
            5 => self.claim(source),
            6 => drop(self.session.prove(&OBJECT, &[source.byte(); 32])),
            7 => {
                self.now += Duration::from_millis(source.below(1 << 16));
                self.session.tick(self.now);
            }
            8 => self.receive(wire::CONTROL, Bytes::copy_from_slice(source.run())),
            9 => self.receive(wire::DATA, Bytes::copy_from_slice(source.run())),
            10 => {
                let frame = data_frame(source);
                self.receive(wire::DATA, frame);
            }
            12 => self.get_entries(source),
            _ => {
                let message = message(source).to_frame();
                self.receive(wire::CONTROL, message);
            }
        }
    }

    fn wants(&mut self, source: &mut Source<'_>) -> Vec<Want> {
        let layout = Layout::of(SIZE).expect("a small object");
        let mut want = |source: &mut Source<'_>| {
            self.next_tag += 1;
            let (kind, index) = (source.byte(), source.below(layout.count()));
            let piece = WantId::Piece { oid: OBJECT, layout, index };
            let chunk = WantId::Chunk { hash: [7; 32], len: 1 + source.below(1000) as u32 };
            let id = if kind & 1 > 0 { chunk } else { piece };
            let origin = (kind & 3 == 3).then_some(Origin { oid: OBJECT, offset: index * 100 });
            let part = (kind & 5 == 4).then_some(1..100);
            let base = (kind & 7 == 7).then(base);
            Want { origin, base, part, ..Want::new(self.next_tag, id) }
        };
        (0..1 + source.below(5)).map(|_| want(source)).collect()
    }

    fn get(&mut self, source: &mut Source<'_>) {
        let wants = self.wants(source);
        let tags = wants.iter().map(|want| want.tag).collect();
        let request = GetRequest::new(&OBJECT, wants, source.byte() & 1 > 0);
        let request = self.session.get(self.now, request);
        assert!(self.open.insert(request, Some(tags)).is_none());
    }

    fn get_entries(&mut self, source: &mut Source<'_>) {
        let mut want = |entry| {
            self.next_tag += 1;
            let base = Base::Parts { count: 9, ahead: 1 };
            let base = (entry & 1 > 0).then_some(Request { base, is_guess: false, outlines: 0 });
            let query = EntryQuery { entry, compare: false, inline: 100, pack: 0, base };
            EntryWant { tag: self.next_tag, query: Arc::new(query) }
        };
        let wants: Vec<_> = (0..1 + source.below(5)).map(|_| want(source.number())).collect();
        let tags = wants.iter().map(|want| want.tag).collect();
        let request = self.session.get_entries(&wants);
        assert!(self.open.insert(request, Some(tags)).is_none());
        self.session.sign(request, source.byte().into(), Bytes::from_static(&[0]));
    }

    fn ask(&mut self, source: &mut Source<'_>) {
        let (flags, oid) = (source.byte(), wire::oid_field(&OBJECT));
        let (recipe, samples) = (flags & 1 > 0, flags & 2 > 0);
        let root = oid.clone();
        let question = wire::Describe { root, oid, recipe, samples, ..wire::Describe::default() };
        let question = if flags & 4 > 0 { Question::Watch(question) } else { Question::Describe(question) };
        let request = self.session.ask(question);
        assert!(self.open.insert(request, None).is_none());
    }

    fn cancel(&mut self, source: &mut Source<'_>) {
        let tags: Vec<Tag> = (0..1 + source.below(3)).map(|_| source.number()).collect();
        self.cancelled.extend(&tags);
        self.session.cancel(0, &tags);
    }

    fn claim(&mut self, source: &mut Source<'_>) {
        let mut wants = self.wants(source);
        let mut tags: BTreeSet<Tag> = wants.iter().map(|want| want.tag).collect();
        if let Some(request) = self.session.claim(self.now, &mut wants) {
            tags.retain(|tag| wants.iter().all(|want| want.tag != *tag));
            assert!(self.open.insert(request, Some(tags)).is_none());
        }
    }

    fn receive(&mut self, kind: u8, body: Bytes) {
        match self.decoder.decode(Frame { kind, body }, |header| self.session.expected(header)) {
            Ok(incoming) => self.session.receive(self.now, incoming),
            Err(why) => self.session.close(Some(why)),
        }
    }

    /// Holds what comes out of it against what was asked.
    fn settle(&mut self) {
        while let Some(effect) = self.session.poll() {
            match effect {
                Effect::Delivery { request, delivery } => self.end_want(request, delivery.tag),
                Effect::Outcome { request, tag, outcome } => {
                    let is_ours = outcome != Outcome::Cancelled || self.cancelled.contains(&tag);
                    assert!(is_ours, "nobody cancelled it");
                    self.end_want(request, tag);
                }
                Effect::PartialPiece { request, delivery } => {
                    let wants = self.open.get(&request).and_then(Option::as_ref).expect("a get under way");
                    assert!(wants.contains(&delivery.tag));
                }
                Effect::Contents { request, contents, cost, .. } => {
                    contents.iter().for_each(|(tag, _)| self.end_want(request, *tag));
                    self.session.took(cost);
                }
                Effect::Run { request, tag, cost, .. } => {
                    let wants = self.open.get(&request).and_then(Option::as_ref).expect("a get under way");
                    assert!(!wants.contains(&tag), "its content came");
                    self.session.took(cost);
                }
                Effect::Answer { request, .. } | Effect::Ranges { request, .. } => {
                    assert!(self.open.get(&request).is_some_and(Option::is_none), "a question under way");
                }
                Effect::GoesOn { request, by } => {
                    let wants =
                        self.open.get_mut(&request).and_then(Option::as_mut).expect("a get under way");
                    let wants = std::mem::take(wants);
                    assert!(!wants.is_empty() && self.open.insert(by, Some(wants)).is_none());
                }
                Effect::Ended { request, .. } => {
                    let wants = self.open.remove(&request).expect("a request under way");
                    assert!(wants.is_none_or(|wants| wants.is_empty()));
                }
                Effect::Closed => self.is_closed = true,
                Effect::Send(_)
                | Effect::SendFirst(_)
                | Effect::Request(_)
                | Effect::Control(_)
                | Effect::Greeted { .. } => {
                    assert!(!self.is_closed, "nothing is said behind the end");
                }
                Effect::Measured | Effect::Withdrawn(_) | Effect::Holder(_) => {}
            }
        }
        assert_eq!(self.is_closed, self.session.ended().is_some());
        assert!(!self.is_closed || self.open.is_empty());
    }

    fn end_want(&mut self, request: u32, tag: Tag) {
        let wants = self.open.get_mut(&request).and_then(Option::as_mut).expect("a get under way");
        assert!(wants.remove(&tag), "a want that has not ended");
    }
}

fn base() -> Arc<SignedBase> {
    let base = seeds::content::base();
    let signature = Signature::of(&base, 64, 1000).expect("a region in the limits").to_bytes();
    let request = Request { base: Base::Signature(signature), is_guess: false, outlines: 2 };
    Arc::new(SignedBase { bytes: base.into(), request })
}

/// A data frame with a payload of zeros, as it is or packed.
fn data_frame(source: &mut Source<'_>) -> Bytes {
    let (request, want, piece) = (source.number() as u32, source.number() as u32, source.number() as u32);
    let (offset, len, kind) = (source.number() as u32, source.below(1 << 19) as usize, source.below(4));
    let zeros = vec![0; len];
    let payload = match kind {
        1 => Vec::new(),
        2 => packing::pack(&zeros, 1).unwrap_or_default(),
        3 => wire::with_len(len, &packing::pack(&zeros, 1).unwrap_or_default()).into(),
        _ => zeros,
    };
    let (zeros, encoding) = (kind == 1, u8::from(kind > 1));
    let header = DataHeader { request, want, piece, offset, suggested: 1, zeros, encoding };
    [&header.encode()[..], &payload].concat().into()
}

/// Names of a few pieces, or half a name.
fn pieces(source: &mut Source<'_>) -> Vec<u32> {
    (0..source.below(5)).map(|_| source.byte().into()).collect()
}

/// A message with numbers that are likely those of something under way.
fn message(source: &mut Source<'_>) -> Body {
    let (kind, request, want) = (source.below(14), source.number() as u32, source.number() as u32);
    let bytes = |source: &mut Source<'_>| Bytes::copy_from_slice(source.run());
    let which = (want > 0).then(|| want - 1);
    match kind {
        0 => {
            let names = [&wire::CAPABILITIES[..], &["zstd", "control"]].concat();
            let capabilities = names.iter().map(|name| (*name).to_owned()).skip(want as usize).collect();
            Body::Hello(wire::Hello { version: wire::VERSION, capabilities, ..wire::Hello::default() })
        }
        1 => {
            let (first, count) = (source.number(), source.number());
            Body::Proof(wire::ProofOf { request, want: which, first, count, nodes: bytes(source) })
        }
        2 => {
            let (code, retry_ms) = (source.number() as _, source.number() as _);
            let pieces = pieces(source);
            Body::Outcome(wire::WireOutcome {
                request,
                want: which,
                code,
                retry_ms,
                reason: "no".into(),
                pieces,
            })
        }
        3 => Body::Done(wire::RequestOnly { request }),
        4 => {
            let size = (want > 0).then(|| source.number());
            Body::Description(wire::Description { request, size, ..wire::Description::default() })
        }
        5 => Body::Have(wire::Have { request, bounds: vec![0, 1, want.into(), source.number()] }),
        6 => Body::Recipe(wire::Recipe { request, root: Some(bytes(source)), nodes: vec![bytes(source)] }),
        7 => Body::Samples(wire::Samples { request, first: want.into(), bytes: bytes(source) }),
        8 => Body::Delta(wire::Delta { request, want, bytes: bytes(source) }),
        9 => Body::Ping(wire::Ping { asks: request, answers: want }),
        10 => Body::Stated(wire::Stated { request, statement: bytes(source), signature: bytes(source) }),
        12 => Body::Contents(contents(request, want, source)),
        13 => Body::Run(wire::WireRun { request, want, bytes: bytes(source) }),
        _ => Body::ControlCredit(wire::ControlCredit { bytes: want.into() }),
    }
}

fn contents(request: u32, want: u32, source: &mut Source<'_>) -> wire::Contents {
    let (kind, bytes) = (source.below(3), Bytes::copy_from_slice(source.run()));
    let body = [None, Some(wire::ContentBody::Whole(bytes.clone())), Some(wire::ContentBody::Reply(bytes))];
    let body = body.into_iter().nth(kind as usize).flatten();
    let content = wire::WireContent { want, oid: wire::oid_field(&OBJECT), body, ..Default::default() };
    let list = wire::ContentList { contents: vec![content] };
    wire::Contents { request, body: Some(wire::ContentsBody::List(list)) }
}

/// Conversations: a piece asked for, proved and delivered; a question that is answered; a piece asked for ahead;
/// an entry in parts.
pub fn seeds() -> Vec<Vec<u8>> {
    let begin = || Written::default().number(7).number(11).number(0).number(0).number(0);
    let done = |written: Written, request| written.number(11).number(3).number(request).number(0);
    let outcome = |written: Written, request, want| {
        written.number(11).number(2).number(request).number(want).number(1).number(9).number(0)
    };
    let piece = |written: Written, request: u64, kind: u64| {
        let written = written.number(10).number(request).number(0).number(0);
        written.number(0).number(256 << 10).number(kind)
    };
    // One want for the first piece, by its number.
    let get = |written: Written| written.number(0).number(0).number(0).number(0).number(0).number(0);
    let proof =
        |written: Written| written.number(11).number(1).number(1).number(1).number(0).number(1).run(&[5; 64]);
    let delivered = done(piece(proof(get(begin())), 1, 0), 1);
    let packed = done(piece(get(begin()), 1, 3), 1);
    // Two pieces; the second one is given up, and the peer says so.
    let two = |written: Written| {
        let written = [0, 1]
            .iter()
            .fold(written.number(0).number(1), |written, index| written.number(0).number(*index).number(0));
        written.number(0)
    };
    let given_up = two(begin()).number(2).number(0).number(2).number(11).number(2).number(1).number(0);
    let given_up = [6, 9, 2, 0, 1].iter().fold(given_up, |written, number| written.number(*number));
    let given_up = done(piece(given_up, 1, 0), 1);
    let refused = done(outcome(get(begin()).number(2).number(1), 1, 1), 1);
    let asked = begin().number(1).number(3).number(11).number(4).number(1).number(1).number(SIZE);
    let told = asked.number(11).number(7).number(1).number(0).run(&[8; 320]);
    let answered = outcome(told, 1, 0);
    let ahead = piece(begin().number(4), 1, 0).number(5).number(0).number(0).number(0).number(0);
    let in_parts = begin().number(12).number(0).number(1).number(0);
    let in_parts = in_parts.number(11).number(12).number(1).number(0).number(2).run(&[4]);
    let in_parts = done(in_parts.number(11).number(13).number(1).number(0).run(b"\x00run"), 1);
    let raw = seeds::direct::controls();
    let raw = raw.iter().fold(get(begin()), |written, message| written.number(8).run(message));
    [delivered, packed, given_up, refused, answered, done(ahead, 1), in_parts, raw].map(Written::done).into()
}
