//! Entries between two ends of a connection.

use towpath_content::delta::exchange::{Base, DeltaRun, NextSignature, Reply, Request};
use towpath_content::tree::Time;
use towpath_transfer::offer::{EntryBody, EntryContent, EntryQuery, EntryWant};

use super::*;
use crate::packing::pack;
use crate::wire::{
    ContentCredit, ContentList, Contents, ContentsBody, OVERHEAD, WINDOW, WireContent, WireRun, WireSignature,
};

const MODIFIED: Time = Time { seconds: -7, nanos: 8 };

/// Two ends, one of which offers entries.
fn offering(now: Instant) -> (End, End) {
    let (a, mut b) = pair(&Arc::new(MemoryStore::new()), now);
    b.answering.set_offer(true);
    (a, b)
}

fn in_parts(ahead: u64) -> Option<Request> {
    Some(Request { base: Base::Parts { count: 3, ahead }, is_guess: false, outlines: 0 })
}

/// A want for each entry, with ten times its number as its tag; each fourth has a base in parts.
fn wants(entries: impl IntoIterator<Item = u64>) -> Vec<EntryWant> {
    let want = |entry| {
        let base = if entry % 4 == 1 { in_parts(1) } else { None };
        let query = EntryQuery { entry, compare: entry == 3, inline: 900, pack: 2, base };
        EntryWant { tag: 10 * entry, query: Arc::new(query) }
    };
    entries.into_iter().map(want).collect()
}

fn ask(end: &mut End, wants: &[EntryWant]) -> u32 {
    let request = end.session.get_entries(wants);
    for (want, at) in wants.iter().zip(0..) {
        if want.query.base.is_some() {
            end.session.sign(request, at, signature(want.tag as usize));
        }
    }
    end.settle();
    request
}

fn signature(len: usize) -> Bytes {
    NextSignature::Signed(vec![9; len]).to_bytes().into()
}

fn content(entry: u64, body: EntryBody) -> EntryContent {
    let oid = Some(Oid::of(&entry.to_le_bytes()));
    EntryContent { oid, size: entry, modified: MODIFIED, is_sparse: entry == 2, body }
}

/// The content of an entry as the other end sends it.
fn body_of(entry: u64) -> EntryBody {
    match entry % 4 {
        0 => EntryBody::Whole(vec![entry as u8; 300].into()),
        1 => EntryBody::Delta(Reply::InParts),
        _ => EntryBody::Named,
    }
}

fn message(request: u32, contents: Vec<(u32, EntryContent)>) -> Body {
    let contents = contents.into_iter().map(|(want, content)| WireContent::new(want, content)).collect();
    Body::Contents(Contents { request, body: Some(ContentsBody::List(ContentList { contents })) })
}

fn run(request: u32, want: u32, bytes: &'static [u8]) -> Body {
    Body::Run(WireRun { request, want, bytes: DeltaRun::More(bytes).to_bytes().into() })
}

/// Answers what was asked: each fourth entry is refused, and runs follow those that come in parts.
fn reply(end: &mut End) {
    for EntryAsk { tag, query } in std::mem::take(&mut end.asks) {
        let (request, want) = (tag.request, tag.want);
        match query.entry % 4 {
            3 => end.send(Body::Outcome(WireOutcome::new(request, Some(want), &Outcome::Gone))),
            _ => end.send(message(request, vec![(want, content(query.entry, body_of(query.entry)))])),
        }
        if query.entry % 4 == 1 {
            assert!(end.answering.take_signature(tag).is_some(), "it came with the question");
            [&b"one"[..], b"two"].into_iter().for_each(|bytes| end.send(run(request, want, bytes)));
        }
        end.answering.end_ask(tag).into_iter().for_each(|done| end.send(done));
    }
}

/// Moves frames and has questions answered until nothing is left to do, or so many frames moved. Returns their number.
fn exchange(now: Instant, a: &mut End, b: &mut End, most: usize) -> usize {
    let mut moved = 0;
    loop {
        moved += drive(now, a, b, most - moved).len();
        // Those that have come are enough if a signature of one is on its way still.
        let is_signed = b.out.is_empty() && a.out.is_empty();
        if b.asks.is_empty() || moved == most && !is_signed {
            return moved;
        }
        reply(b);
    }
}

/// A line for each effect about entries.
fn told(end: &End) -> Vec<String> {
    let tell = |effect: &Effect| match effect {
        Effect::Contents { request, contents, kept, cost } => {
            assert!(*kept > 0 && *cost > OVERHEAD);
            let each = |(tag, content): &(Tag, EntryContent)| {
                assert_eq!(*content, self::content(*tag / 10, body_of(*tag / 10)));
                format!("{request}: content {tag}")
            };
            Some(contents.iter().map(each).collect::<Vec<_>>().join(", "))
        }
        Effect::Run { request, tag, run, .. } => Some(format!("{request}: run {tag} {}", run.len())),
        Effect::Outcome { request, tag, outcome } => Some(format!("{request}: {tag} {outcome:?}")),
        Effect::Ended { request, .. } => Some(format!("{request}: ended")),
        _ => None,
    };
    end.effects.iter().filter_map(tell).collect()
}

#[test]
fn each_want_gets_one_content_or_outcome_and_runs_follow_a_content_in_parts() {
    let now = Instant::now();
    let (mut a, mut b) = offering(now);
    ask(&mut a, &wants(0..4));
    exchange(now, &mut a, &mut b, usize::MAX);
    let expected = [
        "1: content 0",
        "1: content 10",
        "1: run 10 4",
        "1: run 10 4",
        "1: content 20",
        "1: 30 Gone",
        "1: ended",
    ];
    assert_eq!(told(&a), expected);
    assert_eq!((a.session.ended(), b.session.ended()), (None, None));
    assert!(!b.answering.is_under_way(1));
}

#[test]
fn a_question_comes_as_it_was_put() {
    let now = Instant::now();
    let (mut a, mut b) = offering(now);
    let wants = wants(0..6);
    ask(&mut a, &wants);
    drive(now, &mut a, &mut b, usize::MAX);
    let came: Vec<_> = b.asks.iter().map(|ask| (ask.tag.want, ask.query.clone())).collect();
    assert_eq!(came, wants.iter().zip(0..).map(|(want, at)| (at, (*want.query).clone())).collect::<Vec<_>>());
}

/// Each takes memory of the asking side, until it is whole.
#[test]
fn one_entry_comes_in_parts_after_the_other() {
    let now = Instant::now();
    let (mut a, mut b) = offering(now);
    ask(&mut a, &wants([1, 5]));
    drive(now, &mut a, &mut b, usize::MAX);
    a.send_at(now, message(1, vec![(0, content(1, body_of(1)))]));
    a.send_at(now, run(1, 0, b"one"));
    a.send_at(now, message(1, vec![(1, content(5, body_of(5)))]));
    a.send_at(now, run(1, 1, b"one"));
    let expected = ["1: content 10", "1: run 10 4", "1: content 50", "1: 10 RetryLater(0ns)", "1: run 50 4"];
    assert_eq!(told(&a), expected);
    a.send_at(now, run(1, 0, b"two"));
    assert_eq!(a.session.ended(), Some("sent data that was not asked for"));
}

/// At whichever message the connection is lost, each want gets its content or one outcome, and the next connection brings the rest.
#[test]
fn the_connection_is_lost_at_every_message_of_entries() {
    let now = Instant::now();
    let count = {
        let (mut a, mut b) = offering(now);
        ask(&mut a, &wants(0..9));
        exchange(now, &mut a, &mut b, usize::MAX)
    };
    assert!(count > 15, "hellos, a request, signatures, contents, runs and an end: {count}");
    for cut in 0..=count {
        let (mut a, mut b) = offering(now);
        ask(&mut a, &wants(0..9));
        assert_eq!(exchange(now, &mut a, &mut b, cut), cut);
        a.close("lost");
        b.close("lost");
        let mut ends = Vec::new();
        for effect in &a.effects {
            match effect {
                Effect::Contents { contents, .. } => {
                    ends.extend(contents.iter().map(|(tag, _)| (*tag, None)))
                }
                Effect::Outcome { tag, outcome, .. } => ends.push((*tag, Some(outcome.clone()))),
                _ => {}
            }
        }
        // Of one that came in parts the end of its runs is told, too.
        ends.sort_by_key(|(tag, _)| *tag);
        ends.dedup_by_key(|(tag, _)| *tag);
        let tags: Vec<_> = ends.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(tags, (0..9).map(|entry| 10 * entry).collect::<Vec<_>>(), "cut at {cut}");
        assert_eq!(a.ended(), [(1, Ok(()))], "cut at {cut}");

        let lost: Vec<_> =
            ends.iter().filter(|(_, end)| *end == Some(LOST)).map(|(tag, _)| *tag / 10).collect();
        let (mut a, mut b) = offering(now);
        if !lost.is_empty() {
            ask(&mut a, &wants(lost.iter().copied()));
            exchange(now, &mut a, &mut b, usize::MAX);
            let is_end = |line: &&String| line.contains("content") || line.contains("Gone");
            assert_eq!(told(&a).iter().filter(is_end).count(), lost.len(), "after a cut at {cut}");
        }
    }
}

/// Who has asked for entry 0, and for entry 1 in parts, and was told this.
fn told_lies(lies: Vec<Body>) -> Option<String> {
    let now = Instant::now();
    let (mut a, _) = offering(now);
    ask(&mut a, &wants(0..2));
    a.send_at(now, hello(&config()));
    lies.into_iter().for_each(|lie| a.send_at(now, lie));
    a.session.ended().map(String::from)
}

#[test]
fn a_peer_that_lies_about_entries_is_told_so() {
    let named = |want| message(1, vec![(want, content(0, EntryBody::Named))]);
    let parts = || message(1, vec![(1, content(1, EntryBody::Delta(Reply::InParts)))]);
    let unnamed = |body| message(1, vec![(0, EntryContent { oid: None, ..content(0, body) })]);
    let body = |body| Body::Contents(Contents { request: 1, body });
    let packed = |bytes: Vec<u8>| body(Some(ContentsBody::Packed(bytes.into())));
    let odd = |oid: &'static [u8], content| WireContent {
        oid: Bytes::from_static(oid),
        body: content,
        ..Default::default()
    };
    let list = |contents| body(Some(ContentsBody::List(ContentList { contents })));
    let reply = |bytes| Some(wire::ContentBody::Reply(Bytes::from_static(bytes)));
    let outcome = |want| Body::Outcome(WireOutcome::new(1, Some(want), &Outcome::Gone));
    let unasked = "not asked for";
    for (lies, words) in [
        (vec![named(2)], unasked),
        (vec![named(0), named(0)], unasked),
        (vec![message(1, vec![(0, content(0, EntryBody::Named)); 2])], unasked),
        (vec![outcome(0), named(0)], unasked),
        (vec![outcome(2)], unasked),
        (vec![message(2, vec![(0, content(0, EntryBody::Named))])], unasked),
        (vec![run(1, 1, b"too soon")], unasked),
        (vec![named(1), run(1, 1, b"it is not in parts")], unasked),
        (vec![parts(), run(1, 0, b"another one")], unasked),
        (vec![parts(), outcome(1), run(1, 1, b"it ended")], unasked),
        (vec![run(2, 0, b"nobody asked")], unasked),
        (vec![body(None)], "contents that are none"),
        (vec![list(Vec::new())], "contents that are none"),
        (vec![packed(Vec::new())], "can't be unpacked"),
        (vec![packed(pack(&[0xff; 1000], 1).unwrap())], "are too many"),
        (vec![packed(pack(&vec![0; 300 << 10], 1).unwrap())], "can't be unpacked"),
        (vec![unnamed(EntryBody::Named)], "has no name"),
        (vec![unnamed(EntryBody::Whole(Bytes::from_static(b"x")))], "has no name"),
        (vec![list(vec![odd(b"?", None)])], "sent a content of which"),
        (vec![list(vec![odd(b"", reply(b"\x09"))])], "sent a content of which"),
    ] {
        let why = told_lies(lies).unwrap_or_default();
        assert!(why.contains(words), "{words}: {why}");
    }
    let given_up = || unnamed(EntryBody::Delta(Reply::GivenUp));
    let done = || Body::Done(RequestOnly { request: 1 });
    for truth in [
        vec![given_up()],
        vec![parts(), run(1, 1, b"one"), run(1, 1, b"two"), outcome(1), named(0)],
        vec![named(0), outcome(0)],
        // What was under way when it ended.
        vec![done(), named(0), run(1, 0, b"late")],
    ] {
        assert_eq!(told_lies(truth), None);
    }
}

#[test]
fn packed_contents_keep_what_they_have_unpacked() {
    let now = Instant::now();
    let (mut a, _) = offering(now);
    ask(&mut a, &wants([0, 4]));
    a.send_at(now, hello(&config()));
    let contents =
        [(0, 0), (1, 4)].map(|(want, entry)| WireContent::new(want, content(entry, body_of(entry))));
    let bytes = prost::Message::encode_to_vec(&ContentList { contents: contents.into() });
    let packed = pack(&bytes, 1).unwrap();
    let body = Some(ContentsBody::Packed(packed.clone().into()));
    let message = Body::Contents(Contents { request: 1, body });
    let cost = message.frame_len() + OVERHEAD;
    a.send_at(now, message);
    assert_eq!(told(&a), ["1: content 0, 1: content 40"]);
    let is_it = |effect: &Effect| matches!(effect, Effect::Contents { kept, cost: counted, .. } if *kept == bytes.len() && *counted == cost);
    assert!(a.effects.iter().any(is_it) && cost < bytes.len());
}

#[test]
fn a_request_that_is_done_or_refused_leaves_no_want_without_an_end() {
    let now = Instant::now();
    for (message, outcome) in [
        (Body::Done(RequestOnly { request: 1 }), "RetryLater(0ns)"),
        (Body::Outcome(WireOutcome::new(1, None, &Outcome::RetryLater(SECOND))), "RetryLater(1s)"),
        (Body::Outcome(WireOutcome::new(1, None, &Outcome::Cancelled)), "RetryLater(0ns)"),
    ] {
        let (mut a, _) = offering(now);
        ask(&mut a, &wants(0..2));
        a.send_at(now, hello(&config()));
        a.send_at(now, message);
        a.send_at(now, Body::Done(RequestOnly { request: 1 }));
        assert_eq!(told(&a), [format!("1: 0 {outcome}"), format!("1: 10 {outcome}"), "1: ended".into()]);
    }
}

/// Messages that an end sent, without its hello.
fn sent(end: &End) -> Vec<Body> {
    let bodies = end.out.iter().map(|frame| Body::from_frame(frame.body.clone()).unwrap());
    bodies.filter(|body| !matches!(body, Body::Hello(_))).collect()
}

/// The numbers of requests and of signatures, as they went out.
fn order(end: &End) -> Vec<String> {
    let tell = |body: &Body| match body {
        Body::Get(get) => Some(format!("get {}", get.request)),
        Body::Signature(WireSignature { request, want, .. }) => Some(format!("signature {request} {want}")),
        Body::Cancel(cancel) => Some(format!("cancel {}", cancel.request)),
        _ => None,
    };
    sent(end).iter().filter_map(tell).collect()
}

#[test]
fn signatures_go_behind_their_request_and_behind_no_other_that_waits() {
    let now = Instant::now();
    let (mut a, _) = offering(now);
    for _ in 1..MAX_REQUESTS {
        a.session.ask(Question::Watch(Describe::default()));
    }
    let first = ask(&mut a, &wants([1]));
    let [second, third] = [[5, 9], [13, 17]].map(|entries| ask(&mut a, &wants(entries)));
    assert_eq!(order(&a), ["get 64", "signature 64 0"], "the others wait for room");
    for request in [third, second, first] {
        a.session.sign(request, 0, signature(3));
    }
    a.settle();
    assert_eq!(order(&a)[2..], ["signature 64 0"]);
    a.out.clear();
    a.send_at(now, hello(&config()));
    a.send_at(now, Body::Done(RequestOnly { request: 1 }));
    let expected = ["get 65", "signature 65 0", "signature 65 1", "signature 65 0"];
    assert_eq!(order(&a), expected);
    a.session.give_up(third);
    a.send_at(now, Body::Done(RequestOnly { request: 2 }));
    a.session.sign(third, 0, signature(3));
    a.settle();
    assert_eq!(order(&a), expected, "what was given up is not sent, nor are its signatures");
}

#[test]
fn nothing_is_signed_that_nobody_needs() {
    let now = Instant::now();
    let (mut a, _) = offering(now);
    let request = a.session.get_entries(&wants([1, 5]));
    a.send_at(now, hello(&config()));
    a.send_at(now, message(request, vec![(0, content(1, EntryBody::Delta(Reply::GivenUp)))]));
    a.out.clear();
    for want in 0..3 {
        a.session.sign(request, want, signature(3));
    }
    a.send_at(now, Body::Done(RequestOnly { request }));
    a.session.sign(request, 1, signature(3));
    a.settle();
    assert_eq!(order(&a), ["signature 1 1"]);
}

#[test]
fn what_is_taken_is_given_back_and_what_is_not_is_bounded() {
    let now = Instant::now();
    let (mut a, mut b) = offering(now);
    ask(&mut a, &wants([0, 1]));
    drive(now, &mut a, &mut b, usize::MAX);
    a.send_at(now, message(1, vec![(1, content(1, EntryBody::Delta(Reply::InParts)))]));
    let long = || Body::Run(WireRun { request: 1, want: 1, bytes: vec![0; 100 << 10].into() });
    let cost = long().frame_len() + OVERHEAD;
    for _ in 0..3 {
        a.send_at(now, long());
    }
    let costs: Vec<_> = a
        .effects
        .iter()
        .filter_map(|effect| if let Effect::Run { cost, .. } = effect { Some(*cost) } else { None })
        .collect();
    assert_eq!(costs, [cost; 3]);
    assert!(sent(&a).is_empty(), "nothing was taken");
    costs.iter().for_each(|cost| a.session.took(*cost));
    a.settle();
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!(b.credit, 2 * cost as u64, "the rest goes back with what is taken next");
    let most = WINDOW / cost - 1;
    (0..most).for_each(|_| a.send_at(now, long()));
    assert_eq!(a.session.ended(), None);
    a.send_at(now, long());
    assert_eq!(a.session.ended(), Some("sent more contents than their window allows"));
    a.session.took(WINDOW / 2);
    a.settle();
    let is_credit = |body: &Body| matches!(body, Body::ContentCredit(_));
    assert!(!sent(&a).iter().any(is_credit), "the connection has ended");
}

#[test]
fn what_was_given_up_is_passed_over_and_given_back() {
    let now = Instant::now();
    let (mut a, mut b) = offering(now);
    let request = ask(&mut a, &wants([1]));
    drive(now, &mut a, &mut b, usize::MAX);
    a.session.give_up(request);
    a.settle();
    assert_eq!(told(&a), ["1: 10 RetryLater(0ns)", "1: ended"]);
    drive(now, &mut a, &mut b, usize::MAX);
    assert!(!b.answering.awaits(b.asks[0].tag));
    b.send(message(request, vec![(0, content(1, EntryBody::Delta(Reply::InParts)))]));
    let long = vec![0; 100 << 10];
    for _ in 0..20 {
        b.send(Body::Run(WireRun { request, want: 0, bytes: long.clone().into() }));
        b.send(message(request, vec![(0, content(1, EntryBody::Whole(long.clone().into())))]));
    }
    reply(&mut b);
    drive(now, &mut a, &mut b, usize::MAX);
    assert_eq!((a.session.ended(), b.session.ended(), told(&a).len()), (None, None, 2));
    assert!(b.credit > 39 * (100 << 10), "{}", b.credit);
    assert!(!b.answering.is_under_way(request));
}

#[test]
fn a_side_that_answers_nothing_takes_neither_signatures_nor_credit() {
    let now = Instant::now();
    let signature = WireSignature { request: 1, want: 0, bytes: signature(3) };
    for body in [Body::Signature(signature), Body::ContentCredit(ContentCredit { bytes: 0 })] {
        let mut session = Session::new(SessionConfig { serves: false, ..config() }, now);
        session.receive(now, Incoming::Message(hello(&config())));
        session.receive(now, Incoming::Message(body));
        assert_eq!(session.ended(), Some("asked a service that only receives"));
    }
}
