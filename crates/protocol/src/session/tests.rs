//! Two ends drive each other without a network, a thread or a clock.

mod ahead;
mod cancelling;
mod deltas;
mod entries;
mod pings;
mod recipes;

use std::sync::Arc;

use std::collections::VecDeque;

use towpath_content::NodeId;
use towpath_content::pieces::Layout;
use towpath_content::ticket::{BoundSecret, Secret};
use towpath_link::Frame;
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::want::Payload;
use towpath_transfer::{Delivery, Description, Outcome, SourceId, WantId};

use super::super::answering::{Answer, Answering, Taken};
use super::super::asks::{AskStates, EntryAsk};
use super::super::incoming::Decoder;
use super::super::outgoing::Outgoing;
use super::super::service::{Issuer, Service, Serving};
use super::super::step::Step;
use super::super::wire::{
    Describe, Get, Have, Hello, MAX_REQUESTS, RequestOnly, WireOutcome, WireWant, oid_field,
};
use super::*;
use crate::processors::Processors;

const BINDING: [u8; 32] = [5; 32];
const SECRET: Secret = Secret([7; 16]);
const PIECE: usize = 1 << 18;
const SECOND: Duration = Duration::from_secs(1);

/// Has issued a ticket for everything.
struct Keys;

impl Issuer for Keys {
    fn secret(&self, _root: &Oid) -> Option<BoundSecret> {
        Some(SECRET.into())
    }

    fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
        false
    }

    fn sign(&self, _message: &[u8]) -> [u8; 64] {
        [0; 64]
    }
}

/// One end of a connection, with both halves.
struct End {
    node: NodeId,
    session: Session,
    decoder: Decoder,
    answering: Answering,
    serving: Serving,
    answers: VecDeque<Answer>,
    /// Questions for entries.
    asks: Vec<EntryAsk>,
    /// Credit of contents that the other end gave back.
    credit: u64,
    /// Frames sent, and not received by the other end.
    out: VecDeque<Frame>,
    /// Effects for whoever asked.
    effects: Vec<Effect>,
}

impl End {
    fn new(node: u8, other: u8, store: &Arc<MemoryStore>, now: Instant) -> Self {
        let (node, other) = (NodeId([node; 32]), NodeId([other; 32]));
        let service = Arc::new(Service::new(Arc::clone(store) as Arc<dyn Store>, Arc::new(Keys)));
        let mut end = Self {
            node,
            session: Session::new(config(), now),
            decoder: Decoder::default(),
            answering: Answering::new(other, BINDING, Processors::default()),
            serving: Serving::new(service, other),
            answers: VecDeque::new(),
            asks: Vec::new(),
            credit: 0,
            out: VecDeque::new(),
            effects: Vec::new(),
        };
        end.settle();
        end
    }

    /// Performs effects.
    fn settle(&mut self) {
        while let Some(effect) = self.session.poll() {
            match effect {
                Effect::Send(body) | Effect::SendFirst(body) => self.send(body),
                Effect::Request(Body::ContentCredit(credit)) => self.credit += credit.bytes,
                Effect::Greeted { encoding: Some(encoding), .. } => self.answering.encode(encoding),
                Effect::Request(body) => match self.answering.take(body, &Keys) {
                    Ok(Taken::Nothing) => {}
                    Ok(Taken::Entries(asks)) => self.asks.extend(asks),
                    Ok(Taken::Answer(answer)) => self.answers.push_back(*answer),
                    Ok(Taken::Refused(messages)) => self.session.reply(messages),
                    Ok(Taken::Cancelled(outcome)) => self.session.reply([outcome]),
                    Err(why) => self.session.close(Some(why)),
                },
                Effect::Closed => {
                    self.answering.close();
                    self.session.goodbye().into_iter().for_each(|body| self.send(body));
                }
                effect => self.effects.push(effect),
            }
        }
    }

    fn send(&mut self, body: Body) {
        self.out.push_back(Outgoing::control(body).to_frame());
    }

    fn receive(&mut self, now: Instant, frame: Frame) {
        match self.decoder.decode(frame, |header| self.session.expected(header)) {
            Ok(incoming) => self.session.receive(now, incoming),
            Err(why) => self.session.close(Some(why)),
        }
        self.settle();
    }

    fn send_at(&mut self, now: Instant, body: Body) {
        self.receive(now, Outgoing::control(body).to_frame());
    }

    /// Goes on a little with the first answer. False if there is none, or it waits for its object.
    fn answer(&mut self) -> bool {
        let Some(mut answer) = self.answers.pop_front() else { return false };
        let request = answer.request();
        let is_over = self.answering.is_over(request);
        let mut step = || answer.step(&mut self.serving, &mut |frame| self.out.push_back(frame.to_frame()));
        match if is_over { Step::Over } else { step() } {
            Step::More => self.answers.push_front(answer),
            Step::Wait { .. } => {
                self.answers.push_back(answer);
                return false;
            }
            Step::Over => {
                let done = self.answering.end(request);
                self.send(done);
            }
        }
        true
    }

    fn close(&mut self, why: &str) {
        self.session.close(Some(why.into()));
        self.settle();
    }

    /// Asks for these wants of `oid`.
    fn get(&mut self, now: Instant, oid: &Oid, wants: Vec<Want>) -> u32 {
        self.session.prove(oid, &SECRET.prove(&BINDING, &self.node, oid));
        let request = self.session.get(now, GetRequest::new(oid, wants, self.session.greeting().has_recipes));
        self.settle();
        request
    }

    /// Outcomes of wants: `None` for those that ended by their bytes.
    fn ends(&self) -> Vec<(Tag, Option<Outcome>)> {
        let end = |effect: &Effect| match effect {
            Effect::Delivery { delivery, .. } => Some((delivery.tag, None)),
            Effect::Outcome { tag, outcome, .. } => Some((*tag, Some(outcome.clone()))),
            _ => None,
        };
        self.effects.iter().filter_map(end).collect()
    }

    fn ended(&self) -> Vec<(u32, Result<(), Outcome>)> {
        let end = |effect: &Effect| match effect {
            Effect::Ended { request, result } => Some((*request, result.clone())),
            _ => None,
        };
        self.effects.iter().filter_map(end).collect()
    }
}

fn config() -> SessionConfig {
    SessionConfig {
        measures: false,
        silence: 20 * SECOND,
        control: false,
        processors: Processors::default(),
        paces: false,
        wishes: Vec::new(),
        serves: true,
        priority: 0,
        source: SourceId::other("peer", None),
        tells_link: false,
        link_number: 0,
    }
}

/// A store with one object of some pieces, no two alike.
fn store(pieces: usize) -> (Arc<MemoryStore>, Oid, Vec<u8>) {
    let store = Arc::new(MemoryStore::new());
    let data: Vec<u8> = (0..pieces * PIECE - 1000).map(|at| (at / 249 + at / PIECE + at) as u8).collect();
    let live = Oid::Live([4; 32]);
    store.put_init(&live, &About::default()).unwrap();
    store.put_data(&live, &data).unwrap();
    let oid = store.put_commit(&live).unwrap();
    (store, oid, data)
}

/// One want for each piece, whose index is its tag.
fn wants(oid: Oid, data: &[u8]) -> Vec<Want> {
    let layout = Layout::of(data.len() as u64).unwrap();
    let want = |index| Want::new(index, WantId::Piece { oid, layout, index });
    (0..layout.count()).map(want).collect()
}

/// Moves frames, one in each direction a round, while there are any and not more than `most`.
/// Returns them.
fn drive(now: Instant, a: &mut End, b: &mut End, most: usize) -> Vec<Frame> {
    let mut moved = Vec::new();
    loop {
        let before = moved.len();
        let is_answering = a.answer() | b.answer();
        for is_back in [false, true] {
            let (from, to) = if is_back { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
            if moved.len() < most
                && let Some(frame) = from.out.pop_front()
            {
                moved.push(frame.clone());
                to.receive(now, frame);
            }
        }
        if moved.len() == most || !is_answering && moved.len() == before {
            return moved;
        }
    }
}

fn pair(store: &Arc<MemoryStore>, now: Instant) -> (End, End) {
    let empty = Arc::new(MemoryStore::new());
    (End::new(1, 2, &empty, now), End::new(2, 1, store, now))
}

/// Asks what the object is and for all of its pieces.
fn ask_all(end: &mut End, now: Instant, oid: Oid, data: &[u8]) {
    end.get(now, &oid, wants(oid, data));
    end.session.ask(Question::Describe(Describe {
        root: oid_field(&oid),
        oid: oid_field(&oid),
        values_from: Some(0),
        values_to: 2,
        ..Describe::default()
    }));
    end.settle();
}

#[test]
fn one_end_asks_and_the_other_answers() {
    let ((store, oid, data), now) = (store(5), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    ask_all(&mut a, now, oid, &data);
    drive(now, &mut a, &mut b, usize::MAX);
    let mut got = Vec::new();
    for effect in &a.effects {
        if let Effect::Delivery { request: 1, delivery } = effect {
            let Payload::Bytes(bytes) = &delivery.payload else { panic!() };
            assert!(delivery.proof.is_some() && delivery.tag == (got.len() / PIECE) as u64);
            got.extend_from_slice(bytes);
        }
    }
    assert!(got == data);
    assert_eq!(a.ended(), [(1, Ok(())), (2, Ok(()))]);
    let answers: Vec<_> =
        a.effects.iter().filter(|effect| matches!(effect, Effect::Answer { request: 2, .. })).collect();
    assert_eq!(answers.len(), 2, "what it is, and its values");
    assert_eq!((a.session.ended(), b.session.ended()), (None, None));
    a.close("tea time");
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!(b.session.ended(), Some("the peer closed: tea time"));
}

#[test]
fn the_same_calls_give_the_same_bytes() {
    let ((store, oid, data), now) = (store(5), Instant::now());
    let run = || {
        let (mut a, mut b) = pair(&store, now);
        ask_all(&mut a, now, oid, &data);
        drive(now, &mut a, &mut b, usize::MAX)
    };
    assert!(run() == run());
}

/// At whichever message the connection is lost, each want and each request ends once, and the
/// next connection brings the rest.
#[test]
fn the_connection_is_lost_at_every_message() {
    let ((store, oid, data), now) = (store(4), Instant::now());
    let count = {
        let (mut a, mut b) = pair(&store, now);
        ask_all(&mut a, now, oid, &data);
        drive(now, &mut a, &mut b, usize::MAX).len()
    };
    assert!(count > 12, "hellos, proof, two requests, their answers and ends: {count}");
    for cut in 0..=count {
        let (mut a, mut b) = pair(&store, now);
        ask_all(&mut a, now, oid, &data);
        assert_eq!(drive(now, &mut a, &mut b, cut).len(), cut);
        a.close("lost");
        b.close("lost");
        assert!(a.answering.is_over(1) && b.answering.is_over(1));
        let mut ends = a.ends();
        ends.sort_by_key(|(tag, _)| *tag);
        assert_eq!(ends.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [0, 1, 2, 3], "cut at {cut}");
        let mut ended: Vec<_> = a.ended().iter().map(|(request, _)| *request).collect();
        ended.sort_unstable();
        assert_eq!(ended, [1, 2], "cut at {cut}");
        // Nothing is left to be sent about it, and nothing more is received.
        let before = a.effects.len();
        a.send_at(now, Body::Done(RequestOnly { request: 1 }));
        assert_eq!(a.effects.len(), before);

        let missing: Vec<_> =
            wants(oid, &data).into_iter().filter(|want| ends.contains(&(want.tag, Some(LOST)))).collect();
        let tags: Vec<_> = missing.iter().map(|want| (want.tag, None)).collect();
        let (mut a, mut b) = pair(&store, now);
        a.get(now, &oid, missing);
        drive(now, &mut a, &mut b, usize::MAX);
        assert_eq!(a.ends(), tags, "after a cut at {cut}");
    }
}

#[test]
fn asking_a_connection_that_is_gone_ends_at_once() {
    let ((store, oid, data), now) = (store(1), Instant::now());
    let (mut a, _) = pair(&store, now);
    a.session.close(None);
    a.settle();
    let sent = a.out.len();
    ask_all(&mut a, now, oid, &data);
    assert_eq!(a.ends(), [(0, Some(LOST))]);
    assert_eq!(a.ended(), [(1, Ok(())), (2, Err(LOST))]);
    assert_eq!((a.out.len(), a.session.goodbye(), a.session.next_wake()), (sent, None, None));
    assert_eq!(a.session.ended(), Some("the connection was closed"));
}

#[test]
fn more_requests_than_the_limit_wait_for_room() {
    let ((store, oid, data), now) = (store(1), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    for _ in 0..MAX_REQUESTS + 10 {
        a.get(now, &oid, wants(oid, &data));
    }
    assert_eq!(a.out.len(), 1 + 1 + MAX_REQUESTS, "hello, proof, requests");
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!((a.ended().len(), b.session.ended()), (MAX_REQUESTS + 10, None));
}

#[test]
fn a_request_that_waits_for_room_is_cancelled_or_given_up_without_a_word() {
    let ((store, oid, data), now) = (store(2), Instant::now());
    let (mut a, _) = pair(&store, now);
    for _ in 0..MAX_REQUESTS {
        a.session.ask(Question::Watch(Describe::default()));
    }
    let (first, second) = (wants(oid, &data).remove(0), wants(oid, &data).remove(1));
    let cancelled = a.get(now, &oid, vec![first]);
    let given_up = a.get(now, &oid, vec![second]);
    let sent = a.out.len();
    a.session.cancel(0, &[0]);
    a.session.give_up(given_up);
    a.settle();
    assert_eq!(a.ends(), [(0, Some(Outcome::Cancelled)), (1, Some(LOST))]);
    assert_eq!(a.ended(), [(cancelled, Ok(())), (given_up, Ok(()))]);
    for request in 1..=MAX_REQUESTS as u32 {
        a.send_at(now, if request == 1 { hello(&config()) } else { Body::Ping(Ping::default()) });
        a.send_at(now, Body::Done(RequestOnly { request }));
    }
    assert_eq!((a.out.len(), a.session.ended()), (sent, None), "neither is sent later");
}

#[test]
fn what_came_of_a_piece_is_told_before_it_ends_without_the_rest() {
    let ((store, oid, data), now) = (store(8), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    let request = a.get(now, &oid, wants(oid, &data));
    drive(now, &mut a, &mut b, 4);
    let header =
        DataHeader { request, want: 0, piece: 5, offset: 0, suggested: 0, zeros: false, encoding: 0 };
    let payload = Bytes::copy_from_slice(&data[5 * PIECE..5 * PIECE + 1000]);
    a.session.receive(now, Incoming::Data { header, payload: Some(payload.clone()) });
    a.close("enough");
    let at = |wanted: &dyn Fn(&Effect) -> bool| a.effects.iter().position(wanted).unwrap();
    let is_front = |delivery: &Delivery| delivery.tag == 5 && *delivery.payload.bytes() == *payload;
    let front = at(&|effect| matches!(effect, Effect::PartialPiece { delivery, .. } if is_front(delivery)));
    assert!(front < at(&|effect| matches!(effect, Effect::Outcome { tag: 5, .. })));
}

#[test]
fn what_was_given_up_is_heard_of_no_more() {
    let ((store, oid, data), now) = (store(8), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    let request = a.get(now, &oid, wants(oid, &data));
    drive(now, &mut a, &mut b, 8);
    a.session.give_up(request);
    a.settle();
    let before = a.effects.len();
    assert_eq!((a.ends().len(), a.ended()), (8, vec![(request, Ok(()))]));
    a.session.give_up(request);
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!((a.effects.len(), a.session.ended(), b.session.ended()), (before, None, None));
}

/// The agreement with a peer of these capabilities.
fn agreed(named: &[&str], wishes: &[&str]) -> Option<(bool, bool)> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut session = Session::new(SessionConfig { wishes: owned(wishes), ..config() }, Instant::now());
    let capabilities = owned(named);
    let hello = Hello { version: wire::VERSION, capabilities, ..Hello::default() };
    session.receive(Instant::now(), Incoming::Message(Body::Hello(hello)));
    std::iter::from_fn(|| session.poll()).find_map(|effect| match effect {
        Effect::Greeted { encoding, .. } => Some(encoding.map(|agreed| (agreed.is_asked, agreed.in_parts))),
        _ => None,
    })?
}

#[test]
fn data_are_compressed_if_it_is_asked_or_by_choice_if_the_peer_knows_of_it() {
    assert_eq!(agreed(&["zstd"], &[]), None, "an older peer was promised that it is asked");
    assert_eq!(agreed(&["parts", "compress"], &["compress"]), None, "it does not take it");
    assert_eq!(agreed(&["zstd", "parts"], &[]), Some((false, true)));
    assert_eq!(agreed(&["zstd", "parts", "compress"], &[]), Some((true, true)));
    assert_eq!(agreed(&["zstd", "parts"], &["compress"]), Some((true, true)));
    assert_eq!(agreed(&["zstd"], &["compress"]), Some((true, false)));
}

#[test]
fn pings_keep_an_idle_connection_and_silence_loses_it() {
    let ((store, ..), start) = (store(1), Instant::now());
    let (mut a, mut b) = pair(&store, start);
    drive(start, &mut a, &mut b, usize::MAX);
    let mut now = start;
    while now < start + 3600 * SECOND {
        now = a.session.next_wake().unwrap().min(b.session.next_wake().unwrap());
        for end in [&mut a, &mut b] {
            end.session.tick(now);
            end.settle();
        }
        assert!(drive(now, &mut a, &mut b, usize::MAX).len() <= 2);
    }
    assert_eq!((a.session.ended(), b.session.ended()), (None, None));
    // From here on nothing comes through.
    while a.session.next_wake().is_some() {
        now = a.session.next_wake().unwrap();
        a.session.tick(now);
        a.settle();
    }
    assert_eq!(a.session.ended(), Some("not a byte came for 20s"));
    assert!(a.session.liveness().is_lost());
    assert!(now >= start + 3620 * SECOND && now < start + 3626 * SECOND);
}

/// The table of what a peer must not say to who has asked for one piece, and the words in which the
/// connection ends.
#[test]
fn a_peer_that_lies_is_told_so() {
    let (((store, oid, data), now), unasked) = ((store(1), Instant::now()), "not asked for");
    let data_frame = |request, want| {
        let header =
            DataHeader { request, want, piece: 0, offset: 0, suggested: 0, zeros: true, encoding: 0 };
        Outgoing::data(&header, Bytes::new())
    };
    let lies = [
        (data_frame(2, 0), unasked),
        (data_frame(1, 1), unasked),
        (Outgoing::control(Body::Done(RequestOnly { request: 2 })), unasked),
        (Outgoing::control(Body::Done(RequestOnly { request: 0 })), unasked),
        (Outgoing::control(Body::Outcome(WireOutcome::new(2, None, &Outcome::Gone))), unasked),
        (Outgoing::control(Body::Outcome(WireOutcome::cancelled(1, vec![1, 0]))), unasked),
        (Outgoing::control(Body::Outcome(WireOutcome::cancelled(1, vec![0, 1]))), unasked),
        (Outgoing::control(Body::Outcome(WireOutcome::cancelled(1, vec![0, 1, 0]))), unasked),
        (Outgoing::control(Body::Have(Have { request: 2, bounds: vec![0, 1] })), unasked),
        (Outgoing::control(Body::Have(Have { request: 1, bounds: vec![1, 1] })), "impossible ranges"),
        (Outgoing::control(hello(&config())), "a second hello"),
        (Outgoing::control(Body::ControlEnd(wire::ControlEnd {})), "a control stream that is not there"),
        (
            Outgoing::control(Body::Description(wire::Description { request: 2, ..Default::default() })),
            unasked,
        ),
    ];
    for (lie, words) in lies {
        let (mut a, _) = pair(&store, now);
        a.get(now, &oid, wants(oid, &data));
        a.send_at(now, hello(&config()));
        a.receive(now, lie.to_frame());
        let why = a.session.ended().unwrap().to_owned();
        assert!(why.contains(words), "{why}");
        assert_eq!(a.ends(), [(0, Some(LOST))]);
        let goodbye = Body::Goodbye(Goodbye { reason: why });
        assert_eq!(a.out.pop_back(), Some(Outgoing::control(goodbye).to_frame()));
    }
}

#[test]
fn an_answer_to_a_request_that_was_not_sent_yet_is_a_lie() {
    let ((store, oid, data), now) = (store(1), Instant::now());
    let (mut a, _) = pair(&store, now);
    for _ in 0..MAX_REQUESTS {
        a.session.ask(Question::Watch(Describe::default()));
    }
    let request = a.get(now, &oid, wants(oid, &data));
    a.send_at(now, hello(&config()));
    a.send_at(now, Body::Done(RequestOnly { request }));
    assert_eq!(a.session.ended(), Some("sent data that was not asked for"));
}

#[test]
fn the_first_word_is_a_hello_of_this_version() {
    let ((store, ..), now) = (store(1), Instant::now());
    let data = Frame { kind: wire::DATA, body: Bytes::new() };
    let ping = Outgoing::control(Body::Ping(Ping::default())).to_frame();
    let old = Outgoing::control(Body::Hello(Hello::default())).to_frame();
    for (frame, words) in
        [(data, "did not begin with a hello"), (ping, "did not begin with a hello"), (old, "version 0")]
    {
        let (mut a, _) = pair(&store, now);
        a.receive(now, frame);
        assert!(a.session.ended().unwrap().contains(words));
    }
}

/// Requests before the secret was shown are refused, also if it is shown before the answer.
#[test]
fn a_proof_counts_for_what_is_asked_after_it() {
    let ((store, oid, _), now) = (store(1), Instant::now());
    let (_, mut b) = pair(&store, now);
    b.send_at(now, hello(&config()));
    b.out.clear();
    let want = WireWant { oid: oid_field(&oid), count: 1, ..WireWant::default() };
    let get = |request| {
        Body::Get(Get { request, root: oid_field(&oid), wants: vec![want.clone()], ..Get::default() })
    };
    b.send_at(now, get(1));
    let proof = Bytes::copy_from_slice(&SECRET.prove(&BINDING, &NodeId([1; 32]), &oid));
    b.send_at(now, Body::Prove(Prove { root: oid_field(&oid), proof }));
    b.send_at(now, get(2));
    while b.answer() {}
    let outcome = Body::from_frame(b.out.pop_front().unwrap().body);
    assert!(matches!(outcome, Ok(Body::Outcome(WireOutcome { request: 1, want: None, code: 5, .. }))));
    assert_eq!(b.out.iter().filter(|frame| frame.kind == wire::DATA).count(), 1);
    assert_eq!(b.session.ended(), None);
}

/// A follower of a live object waits for it without a thread.
#[test]
fn a_live_object_is_followed_as_it_grows() {
    let (store, now, live) = (Arc::new(MemoryStore::new()), Instant::now(), Oid::Live([9; 32]));
    store.put_init(&live, &About::default()).unwrap();
    let (mut a, mut b) = pair(&store, now);
    a.session.prove(&live, &SECRET.prove(&BINDING, &a.node, &live));
    let question = Describe {
        root: oid_field(&live),
        oid: oid_field(&live),
        values_from: Some(0),
        follow: true,
        ..Describe::default()
    };
    a.session.ask(Question::Describe(question));
    a.settle();
    let rounds = |a: &mut End, b: &mut End| {
        // The wait is over, or it was none.
        b.answer();
        drive(now, a, b, usize::MAX);
        a.effects.iter().filter(|effect| matches!(effect, Effect::Answer { .. })).count()
    };
    let before = rounds(&mut a, &mut b);
    store.put_data(&live, &[1; 2 * PIECE]).unwrap();
    let grown = rounds(&mut a, &mut b);
    store.put_commit(&live).unwrap();
    let bound = rounds(&mut a, &mut b);
    assert_eq!((before, grown, bound), (1, 2, 3), "what it is, two values, its binding");
    assert_eq!(a.ended(), [(1, Ok(()))]);
}

/// A session whose peer greeted it so.
fn greeted(capabilities: &[&str]) -> Session {
    let mut session = Session::new(config(), Instant::now());
    let capabilities = capabilities.iter().map(|name| (*name).into()).collect();
    let hello = Hello { version: wire::VERSION, capabilities, ..Hello::default() };
    session.receive(Instant::now(), Incoming::Message(Body::Hello(hello)));
    while session.poll().is_some() {}
    session
}

#[test]
fn too_many_withdrawals_end_the_connection() {
    let mut session = greeted(&[]);
    let told = || Incoming::Message(Body::Withdrawn(wire::Withdrawn::default()));
    for _ in 0..wire::MAX_WITHDRAWALS {
        session.receive(Instant::now(), told());
        assert!(matches!(session.poll(), Some(Effect::Withdrawn(_))) && session.ended().is_none());
    }
    session.receive(Instant::now(), told());
    assert_eq!(session.ended(), Some("told too many withdrawals"));
}

#[test]
fn a_withdrawal_goes_only_to_who_knows_the_message() {
    for (capabilities, is_told) in [(&["withdrawals"][..], true), (&[], false)] {
        let mut session = greeted(capabilities);
        session.reply([Body::Withdrawn(wire::Withdrawn::default()), Body::Ping(Ping::default())]);
        let is_withdrawn = |effect: &Effect| matches!(effect, Effect::Send(Body::Withdrawn(_)));
        let sent: Vec<_> = std::iter::from_fn(|| session.poll()).collect();
        assert_eq!(sent.iter().any(is_withdrawn), is_told);
        assert!(sent.iter().any(|effect| matches!(effect, Effect::Send(Body::Ping(_)))), "the rest goes");
    }
}

#[test]
fn too_much_about_who_serves_ends_the_connection() {
    let mut session = greeted(&[]);
    let told = |at| match at % 2 {
        0 => Body::Holder(wire::WireHolder::default()),
        _ => Body::Serves(wire::WireServes::default()),
    };
    for at in 0..=wire::MAX_HOLDERS {
        assert!(session.ended().is_none());
        session.receive(Instant::now(), Incoming::Message(told(at)));
    }
    assert_eq!(session.ended(), Some("told too often who serves"));
}

#[test]
fn who_knows_it_is_told_who_serves() {
    for (capabilities, knows) in [(&["holders"][..], true), (&[], false)] {
        let mut session = greeted(capabilities);
        session.reply([Body::Holder(wire::WireHolder::default()), Body::Serves(wire::WireServes::default())]);
        assert_eq!(session.poll().is_some() && session.poll().is_some(), knows);
        assert!(session.poll().is_none());
    }
}

#[test]
fn a_ticket_is_handed_only_to_who_knows_the_message() {
    for (capabilities, knows) in [(&["brings"][..], true), (&[], false)] {
        let mut session = greeted(capabilities);
        while session.poll().is_some() {}
        session.ask(Question::Bring(Bytes::from_static(b"ticket")));
        match session.poll() {
            Some(Effect::Send(Body::Bring(_))) => assert!(knows),
            Some(Effect::Ended { result: Err(Outcome::NotHere), .. }) => assert!(!knows),
            other => panic!("{other:?}"),
        }
        assert!(session.ended().is_none());
    }
}

#[test]
fn a_right_is_shown_once_and_not_where_another_one_to_the_same_root_was() {
    let mut session = greeted(&[]);
    let roots: Vec<Oid> = (0..=MAX_ROOTS as u8).map(|at| Oid::Live([at; 32])).collect();
    while session.poll().is_some() {}
    assert!(session.prove(&roots[0], &[1; 32]) && session.prove(&roots[0], &[1; 32]));
    assert!(!session.prove(&roots[0], &[2; 32]), "its answers are for the first one");
    assert!(roots[1..MAX_ROOTS].iter().all(|root| session.prove(root, &[1; 32])));
    assert!(!session.prove(&roots[MAX_ROOTS], &[1; 32]), "the peer takes no more");
    let sent = std::iter::from_fn(|| session.poll());
    assert_eq!(sent.filter(|effect| matches!(effect, Effect::Send(Body::Prove(_)))).count(), MAX_ROOTS);
}

#[test]
fn only_who_answers_is_told_that_no_more_is_needed() {
    for (capabilities, is_told) in [(&["answers"][..], true), (&[], false)] {
        let mut session = greeted(capabilities);
        session.reply([Body::Finished(wire::WireFinished::default())]);
        let sent: Vec<Effect> = std::iter::from_fn(|| session.poll()).collect();
        let is_finished = |effect: &Effect| matches!(effect, Effect::Send(Body::Finished(_)));
        assert_eq!(sent.iter().any(is_finished), is_told);
    }
}

#[test]
fn whoever_answers_or_paces_says_so() {
    for (serves, paces) in [(true, false), (false, true)] {
        let Body::Hello(hello) = hello(&SessionConfig { serves, paces, ..config() }) else { panic!() };
        let says = |word: &str| hello.capabilities.iter().any(|name| name == word);
        assert_eq!((says(wire::ANSWERS), says(wire::PACES)), (serves, paces));
    }
}

/// A name that is odd, or would be told to strangers, is left out.
#[test]
fn a_connection_is_named_by_its_link_where_both_sides_agreed_on_that() {
    let node = NodeId([7; 32]);
    let by = |link: Option<&str>| SourceId::peer_by(node, link);
    let said =
        |source, tells_link| match hello(&SessionConfig { source, tells_link, link_number: 3, ..config() }) {
            Body::Hello(hello) => (hello.link, hello.link_number),
            _ => panic!("no hello"),
        };
    assert_eq!(
        [said(by(Some("eth0")), true), said(by(Some("eth0")), false), said(by(None), true)],
        [("eth0".into(), 3), (String::new(), 0), (String::new(), 0)]
    );
    for (own, tells_link, link, named) in [
        (None, true, "eth0", Some("eth0")),
        (Some("wlan0"), true, "eth0", Some("wlan0")),
        (None, false, "eth0", None),
        (None, true, "", None),
        (None, true, "two words", None),
        (None, true, &"x".repeat(46), None),
    ] {
        let mut session =
            Session::new(SessionConfig { source: by(own), tells_link, ..config() }, Instant::now());
        let hello = Hello { version: wire::VERSION, link: link.into(), ..Hello::default() };
        session.receive(Instant::now(), Incoming::Message(Body::Hello(hello)));
        assert_eq!(*session.source(), by(named), "{link}");
    }
}
