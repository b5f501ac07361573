//! Answers in a queue, without a connection.

use towpath_content::delta::exchange::{Base, DeltaStep, Request, StepOf};
use towpath_content::lock::lock;
use towpath_content::tree::Time;
use towpath_content::{NodeId, Oid};
use towpath_store::doubles::noise;

use super::*;
use crate::answering::{Answering, Taken};
use crate::pace::Pace;
use crate::processors::Processors;
use crate::service::Issuer;
use crate::urgent::{UrgentReceiver, urgent_queue};
use crate::wire::{Get, WINDOW, WireCancel, WireSignature, WireWant};

struct Nobody;

impl Issuer for Nobody {
    fn secret(&self, _root: &Oid) -> Option<towpath_content::ticket::BoundSecret> {
        None
    }

    fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
        false
    }

    fn sign(&self, _message: &[u8]) -> [u8; 64] {
        [0; 64]
    }
}

struct Answerer {
    answering: Arc<Mutex<Answering>>,
    replies: Arc<Replies>,
    queue: UrgentReceiver,
}

impl Answerer {
    /// Who was asked by request 1 for so many entries, each with a base in parts.
    fn asked(count: usize) -> Self {
        let mut answering = Answering::new(NodeId([1; 32]), [2; 32], Processors::default());
        answering.set_offer(true);
        let base = Request { base: Base::Parts { count: 2, ahead: 1 }, is_guess: false, outlines: 0 };
        let want = WireWant { entry: Some(9), base: base.to_bytes().into(), ..WireWant::default() };
        let get = Get { request: 1, wants: vec![want; count], ..Get::default() };
        assert!(
            matches!(answering.take(Body::Get(get), &Nobody), Ok(Taken::Entries(asks)) if asks.len() == count)
        );
        let (urgent, queue) = urgent_queue();
        let window = SendWindow::new(urgent, Arc::new(Pace::new(0)));
        let answering = Arc::new(Mutex::new(answering));
        let replies = Arc::new(Replies::new(Arc::clone(&answering) as _, window));
        Self { answering, replies, queue }
    }

    fn take(&self, body: Body) {
        assert!(matches!(lock(&self.answering).take(body, &Nobody), Ok(Taken::Nothing)));
        self.replies.wake();
    }

    /// Messages so far, each in a word or two.
    fn sent(&mut self) -> Vec<String> {
        let tell = |body| match body {
            Body::Contents(Contents { body: Some(ContentsBody::List(list)), .. }) => {
                let wants: Vec<_> = list.contents.iter().map(|content| content.want).collect();
                format!("contents {wants:?}")
            }
            Body::Contents(Contents { body: Some(ContentsBody::Packed(packed)), .. }) => {
                format!("{} packed", ContentList::unpack(&packed).unwrap().0.contents.len())
            }
            Body::Run(run) => format!("run {}", run.want),
            Body::Outcome(outcome) => format!("{:?} {:?}", outcome.want, outcome.outcome()),
            Body::Done(_) => "done".into(),
            _ => panic!("that is no answer"),
        };
        std::iter::from_fn(|| self.queue.try_recv()).map(tell).collect()
    }
}

const fn tag(want: u32) -> EntryTag {
    EntryTag { request: 1, want }
}

fn content(want: u32, body: EntryBody) -> (EntryTag, EntryContent) {
    let (oid, modified) = (Some(Oid::of(b"x")), Time { seconds: 1, nanos: 2 });
    (tag(want), EntryContent { oid, size: 3, modified, is_sparse: false, body })
}

fn whole(want: u32, bytes: Vec<u8>) -> (EntryTag, EntryContent) {
    content(want, EntryBody::Whole(bytes.into()))
}

/// Sends contents, packed with this level; 0: as they are. Their bytes before and after packing.
async fn send(replies: &Replies, contents: Vec<(EntryTag, EntryContent)>, level: i32) -> (usize, usize) {
    let mut sum = (0, 0);
    for batch in replies.batches(contents) {
        let (message, lens) = if level > 0 { batch.packed(level) } else { (batch.plain(), (0, 0)) };
        sum = (sum.0 + lens.0, sum.1 + lens.1);
        replies.send(message).await.unwrap();
    }
    sum
}

async fn send_run(replies: &Replies, run: &DeltaRun<'_>) {
    replies.send(replies.run(tag(0), run)).await.unwrap();
}

fn signature() -> Body {
    let bytes = NextSignature::Signed(vec![1; 10]).to_bytes().into();
    Body::Signature(WireSignature { request: 1, want: 0, bytes })
}

#[tokio::test]
async fn a_request_is_done_behind_the_last_content_and_the_last_run() {
    let mut answerer = Answerer::asked(4);
    let replies = Arc::clone(&answerer.replies);
    let parts = content(0, EntryBody::Delta(Reply::InParts));
    send(&replies, vec![parts, content(1, EntryBody::Named)], 0).await;
    replies.refuse(tag(2), &Outcome::Gone);
    send(&replies, vec![content(3, EntryBody::Delta(Reply::Same))], 0).await;
    assert_eq!(answerer.sent(), ["contents [0, 1]", "Some(2) Gone", "contents [3]"]);
    send_run(&replies, &DeltaRun::More(b"x")).await;
    assert_eq!(answerer.sent(), ["run 0"]);
    assert!(!replies.is_over(1));
    replies.end(tag(0));
    replies.end(tag(0));
    assert_eq!(answerer.sent(), ["done"]);
    assert!(replies.is_over(1));
    send_run(&replies, &DeltaRun::More(b"x")).await;
    send(&replies, vec![content(1, EntryBody::Named)], 0).await;
    replies.refuse(tag(2), &Outcome::Gone);
    assert!(answerer.sent().is_empty(), "it has ended");
}

#[tokio::test]
async fn contents_go_in_few_messages_none_of_which_is_too_long() {
    let mut answerer = Answerer::asked(MAX_ENTRIES);
    let contents = (0..10).map(|want| whole(want, noise(want.into(), 100_000)));
    let contents = contents.chain([whole(10, vec![0; MAX_CONTENTS]), content(11, EntryBody::Named)]);
    send(&answerer.replies, contents.collect(), 0).await;
    let mut came = Vec::new();
    while let Some(body) = answerer.queue.try_recv() {
        let Ok(Body::Contents(Contents { body: Some(ContentsBody::List(list)), .. })) =
            Body::from_frame(body.to_frame())
        else {
            panic!("it can't be read")
        };
        came.push(
            list.contents.iter().map(|content| (content.want, content.body.is_some())).collect::<Vec<_>>(),
        );
    }
    let two = |want| vec![(want, true), (want + 1, true)];
    assert_eq!(came, [two(0), two(2), two(4), two(6), [two(8), vec![(10, false), (11, false)]].concat()]);
}

#[tokio::test]
async fn contents_are_packed_if_that_makes_them_fewer_bytes() {
    let mut answerer = Answerer::asked(3);
    let replies = Arc::clone(&answerer.replies);
    let (plain, sent) = send(&replies, vec![whole(0, vec![7; 9000]), whole(1, vec![8; 9000])], 1).await;
    assert!(plain > 18_000 && sent < 500, "{plain} {sent}");
    let (plain, sent) = send(&replies, vec![whole(2, noise(1, 9000))], 1).await;
    assert_eq!(plain, sent);
    assert_eq!(answerer.sent(), ["2 packed", "contents [2]", "done"]);
    assert!(replies.batches(Vec::new()).is_empty());
}

#[tokio::test]
async fn of_what_the_peer_gave_up_only_the_end_is_sent() {
    let mut answerer = Answerer::asked(3);
    let replies = Arc::clone(&answerer.replies);
    send(&replies, vec![content(0, EntryBody::Delta(Reply::InParts))], 0).await;
    assert_eq!(answerer.sent(), ["contents [0]"]);
    let waiting = tokio::spawn({
        let replies = Arc::clone(&replies);
        async move { replies.next_signature(tag(0)).await }
    });
    tokio::task::yield_now().await;
    answerer.take(Body::Cancel(WireCancel { request: 1, ..WireCancel::default() }));
    assert_eq!(waiting.await.unwrap(), None, "nobody waits for it any more");
    assert!(replies.is_over(1));
    send_run(&replies, &DeltaRun::GivenUp).await;
    send(&replies, vec![whole(1, vec![1; 10])], 0).await;
    replies.refuse(tag(2), &Outcome::Gone);
    assert!(answerer.sent().is_empty());
    replies.end(tag(0));
    assert_eq!(answerer.sent(), ["done"]);
}

#[tokio::test]
async fn signatures_are_waited_for_until_the_connection_ends() {
    let answerer = Answerer::asked(1);
    let replies = Arc::clone(&answerer.replies);
    send(&replies, vec![content(0, EntryBody::Delta(Reply::InParts))], 0).await;
    let signed = Some(NextSignature::Signed(vec![1; 10]));
    let (came, ()) = tokio::join!(replies.next_signature(tag(0)), async { answerer.take(signature()) });
    assert_eq!(came, signed);
    let step = DeltaStep::Delta { of: StepOf::NextPart { wants_signature: true }, is_packed: false };
    send_run(&replies, &DeltaRun::Last(step, b"x")).await;
    answerer.take(signature());
    assert_eq!(replies.next_signature(tag(0)).await, signed, "the run wanted it");
    let (came, ()) = tokio::join!(replies.next_signature(tag(0)), async {
        lock(&answerer.answering).close();
        replies.close();
    });
    assert_eq!(came, None);
    send(&replies, vec![content(0, EntryBody::Named)], 0).await;
}

#[tokio::test]
async fn contents_wait_for_the_peers_window_and_no_longer_than_the_connection_lasts() {
    let mut answerer = Answerer::asked(1);
    let replies = Arc::clone(&answerer.replies);
    send(&replies, vec![content(0, EntryBody::Delta(Reply::InParts))], 0).await;
    let run = vec![0; 128 << 10];
    let sent = async {
        let mut sent = 0;
        while replies.send(replies.run(tag(0), &DeltaRun::More(&run))).await.is_ok() {
            sent += 1;
        }
        sent
    };
    let peer = async {
        assert_eq!(answerer.sent().len(), 1 + WINDOW / (run.len() + 100));
        assert!(replies.give_back(u64::MAX).is_err() && replies.give_back(WINDOW as u64 + 1).is_err());
        replies.give_back(2 * run.len() as u64 + 1000).unwrap();
        for _ in 0..2 {
            assert!(matches!(answerer.queue.recv().await, Some(Body::Run(_))));
        }
        assert!(answerer.sent().is_empty());
        replies.close();
    };
    let (sent, ()) = tokio::join!(sent, peer);
    assert_eq!(sent, WINDOW / (run.len() + 100) + 2);
}
