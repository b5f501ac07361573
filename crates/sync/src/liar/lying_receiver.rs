//! Lies that a receiver may try with a sender: each rule of `docs/formats/copy.md` ("What must be refused") that a
//! receiver can break, broken.

use std::fs;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::delta::exchange::{Base, NextSignature, Reply, Request};
use towpath_store::hash_open_file;
use towpath_transfer::Outcome;
use towpath_transfer::offer::{EntryBody, EntryContent, EntryQuery};

use super::super::entry_sink::Came;
use super::super::message::{
    Considered, CopyReport, EndReport, Fatal, Message, Ready, Settled, Start, TreeBytes, Unchanged,
};
use super::{CARRIERS, Carrier, End, Scene, Step};

/// `file` of the source: the root is entry 0, its directory 1.
const FILE: u64 = 2;

type Lie = (&'static str, Vec<Step>, End);

fn sends(message: Message) -> Step {
    Step::Send(message)
}

fn query(entry: u64, base: Option<Base>) -> EntryQuery {
    let base = base.map(|base| Request { base, is_guess: false, outlines: 2 });
    EntryQuery { entry, compare: false, inline: 0, pack: 0, base }
}

fn asks(entry: u64) -> Step {
    Step::Ask(query(entry, None))
}

fn asks_with(base: Base) -> Step {
    Step::Ask(query(FILE, Some(base)))
}

fn considered(entry: u64, wanted: &[u64]) -> Step {
    sends(Message::Considered(Considered { entry, wanted: wanted.to_vec() }))
}

fn settled(change: fn(&mut Settled)) -> Step {
    let mut settled = Settled::default();
    change(&mut settled);
    sends(Message::Settled(settled))
}

fn receives_the_tree() -> Step {
    Step::Recv(|received| matches!(received, Message::Entries(end) if *end == TreeBytes::default()))
}

fn finished() -> Step {
    sends(Message::Finished(EndReport::default()))
}

/// A summary with 1025 nameless sources.
fn many_sources() -> Vec<u8> {
    [&b"\x4a\x85\x10\x0a\x82\x10"[..], &b"\x62\x00".repeat(1025)].concat()
}

fn messages() -> Vec<Lie> {
    let unasked = "a message that a receiver does not send";
    let one_of = |name, message: Message| (name, vec![sends(message)], End::Error(unasked));
    vec![
        ("no message", vec![Step::Raw(b"\x0fnonsense".to_vec())], End::Error("does not understand")),
        ("an unknown message", vec![Step::Raw(vec![0x98, 6, 1])], End::Error("an unknown message")),
        one_of("entries", Message::Entries(TreeBytes::default())),
        one_of("closed", Message::Closed(1)),
        one_of("start", Message::Start(Start::default())),
        ("a second probe", vec![sends(Message::Probe(Bytes::new())); 2], End::Error("a second probe")),
        ("a probe with bytes", vec![sends(Message::Probe(b"x"[..].into()))], End::Error("one with bytes")),
        ("an event that is none", vec![sends(Message::Event(CopyReport::default()))], End::Error("event")),
        ("a summary of too many sources", vec![Step::Raw(many_sources())], End::Error("too many parts")),
        (
            "an error that is none",
            vec![sends(Message::Fatal(Fatal::default()))],
            End::Error("an error that can't be read"),
        ),
        ("hanging up", vec![Step::HangUp], End::Error("hung up")),
    ]
}

fn files() -> Vec<Lie> {
    let after_tree = |steps: Vec<Step>| [vec![receives_the_tree()], steps].concat();
    let untold = "entries that were not told of";
    let none = "wanted entries that are none";
    let unreadable = |bytes: &'static [u8]| NextSignature::Signed(bytes.to_vec());
    vec![
        ("considered beyond the tree", after_tree(vec![considered(5, &[])]), End::Error(untold)),
        ("wanted beyond those considered", after_tree(vec![considered(2, &[2, 3])]), End::Error(none)),
        ("wanted in no order", after_tree(vec![considered(4, &[3, 4, 2, 3])]), End::Error(none)),
        ("half a run", after_tree(vec![considered(4, &[2])]), End::Error(none)),
        (
            "a signature of no blocks",
            after_tree(vec![
                asks_with(Base::Parts { count: 2, ahead: 1 }),
                Step::Signature(unreadable(b"x")),
                Step::RecvEnd,
                finished(),
            ]),
            End::Harmless,
        ),
        (
            "too many settled",
            after_tree(vec![settled(|it| it.placed = vec![1; 1025])]),
            End::Error("more files settled"),
        ),
        (
            "a signature that is none",
            after_tree(vec![asks_with(Base::Signature(b"none".to_vec())), Step::RecvEnd, finished()]),
            End::Harmless,
        ),
        (
            "packing without end",
            after_tree(vec![
                Step::Ask(EntryQuery { inline: u32::MAX, pack: u32::MAX, ..query(FILE, None) }),
                Step::RecvEnd,
                finished(),
            ]),
            End::Harmless,
        ),
    ]
}

/// Files are settled that were never requested, or are not what they were.
fn removals() -> Vec<Lie> {
    let after_tree = |step: Step| vec![receives_the_tree(), step, finished()];
    vec![
        ("the root", after_tree(settled(|it| it.placed = vec![0, 1])), End::Harmless),
        ("beyond the tree", after_tree(settled(|it| it.placed = vec![99, u64::MAX])), End::Harmless),
        ("given up", after_tree(settled(|it| it.dropped = vec![FILE, 3])), End::Harmless),
        ("lost", after_tree(settled(|it| it.lost = vec![1, 99])), End::Harmless),
    ]
}

async fn run_all(lies: Vec<Lie>, removes: bool) -> usize {
    for carrier in CARRIERS {
        for (name, steps, wanted) in &lies {
            let mut scene = Scene::new();
            scene.options.remove_source_files = removes;
            scene.file("from/file", &[b'x'; 9000]);
            scene.file("from/other", b"other");
            let ended = scene.send(carrier, false, steps).await;
            ended.assert(&format!("{name} ({carrier:?})"), *wanted);
            assert_eq!(fs::read_dir(scene.path("from")).unwrap().count(), 2, "{name}: the source stays");
        }
    }
    lies.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_no_receiver_sends_end_the_copy() {
    assert_eq!(run_all(messages(), false).await, 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_puller_that_tells_where_it_moves_is_refused() {
    let scene = Scene::new();
    scene.file("from/file", b"x");
    let ended = scene.send(Carrier::Pipe, true, &[sends(Message::Ready(Ready::default()))]).await;
    ended.assert("a move", End::Error("a message that a receiver does not send"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_were_not_told_or_not_so_are_refused() {
    assert_eq!(run_all(files(), true).await, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_files_that_are_told_of_can_be_had() {
    let scene = Scene::new();
    scene.file("from/file", &[b'x'; 9000]);
    let asks = [0, 1, 99, FILE, FILE].into_iter().flat_map(|entry| [asks(entry), Step::RecvEnd]);
    let steps: Vec<_> = [receives_the_tree()].into_iter().chain(asks).chain([finished()]).collect();
    let ended = scene.send(Carrier::Pipe, false, &steps).await;
    ended.assert("asks", End::Harmless);
    let is_had = |came: &Came| matches!(came, Came::Content(_));
    assert_eq!(ended.answers.iter().map(is_had).collect::<Vec<_>>(), [false, false, false, true, true]);
    let refused = Came::Outcome(Outcome::Refused("an entry that is not on offer".into()));
    assert_eq!(ended.answers[0], refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_asked_for_is_not_removed() {
    assert_eq!(run_all(removals(), true).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_the_receivers_own_is_not_removed() {
    use std::os::unix::fs::MetadataExt;
    let mut scene = Scene::new();
    scene.options.remove_source_files = true;
    let file = scene.file("from/file", b"x");
    let seen = file.metadata().unwrap();
    let same =
        Unchanged { entry: FILE, inode: seen.ino(), seconds: seen.ctime(), nanos: seen.ctime_nsec() as u32 };
    let steps = [
        receives_the_tree(),
        sends(Message::Settled(Settled { unchanged: vec![same], ..Settled::default() })),
        finished(),
    ];
    scene.send(Carrier::Pipe, false, &steps).await.assert("the same file", End::Harmless);
    assert!(file.exists());
}

/// Answers to a receiver that names guesses as bases: whether one of them is here.
async fn guess(is_pull: bool, went_before: bool) -> bool {
    let scene = Scene::new();
    scene.file("from/file", &[b'x'; 9000]);
    let secret = scene.file("secret/pin", &[b'4'; 8000]);
    let (endpoint, _inbox, _reports, liar) = scene.endpoints(Carrier::Pipe, is_pull).await;
    let hashed = hash_open_file(&fs::File::open(&secret).unwrap(), &secret).unwrap();
    let oid = hashed.oid;
    let record =
        towpath_store::FileRecord::new(secret.parent().unwrap(), secret.file_name().unwrap(), hashed);
    endpoint.host.store.remember(&[record]).unwrap();
    if went_before {
        super::super::sent::SentTo::new(&endpoint.host.shares, &liar.peer.node()).add(&oid, 8000);
        super::super::sent::SentTo::new(&endpoint.host.shares, &endpoint.peer.node()).add(&oid, 8000);
    }
    drop(endpoint);
    let steps = [receives_the_tree(), asks_with(Base::Named(oid)), Step::RecvEnd, finished()];
    let ended = scene.send(Carrier::Pipe, is_pull, &steps).await;
    let reply = reply(ended.answers.last().unwrap()).unwrap();
    assert!(matches!(reply, Reply::Whole(_) | Reply::UnknownBase), "{reply:?}");
    reply != Reply::UnknownBase
}

/// The reply that came with a content.
fn reply(came: &Came) -> Option<Reply> {
    match came {
        Came::Content(EntryContent { body: EntryBody::Delta(reply), .. }) => Some(reply.clone()),
        _ => None,
    }
}

/// F3 of the reading of November 2026.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_receiver_of_a_push_learns_nothing_of_the_index_by_guesses() {
    assert!(!guess(false, false).await, "it was never sent there");
    assert!(guess(false, true).await, "it went to that very node before");
    assert!(guess(true, false).await, "who pulls over ssh could read it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_base_is_named_of_a_file() {
    let scene = Scene::new();
    scene.file("from/file", &[b'x'; 9000]);
    let named = |guess: &[u8]| asks_with(Base::Named(Oid::of(guess)));
    let steps = [
        receives_the_tree(),
        named(b"1"),
        Step::RecvEnd,
        named(b"2"),
        Step::RecvEnd,
        named(b"1"),
        Step::RecvEnd,
        finished(),
    ];
    let ended = scene.send(Carrier::Pipe, true, &steps).await;
    let replies: Vec<_> = ended.answers.iter().map(reply).collect();
    assert_eq!(
        replies,
        [Some(Reply::UnknownBase), None, Some(Reply::UnknownBase)],
        "the second guess counts not"
    );
}
