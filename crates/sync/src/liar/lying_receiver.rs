//! Lies that a receiver may try with a sender: each rule of `docs/formats/copy.md` ("What must be refused") that a
//! receiver can break, broken.

use std::fs;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::delta::exchange::{Base, Reply, Request};
use towpath_store::hash_open_file;

use super::super::message::{
    Answers, Asks, Bases, CopyReport, DeltaMessage, Empty, EndReport, Fatal, Message, Ready, Settled, Start,
    Unchanged,
};
use super::{CARRIERS, Carrier, End, Scene, Step};

/// `file` of the source: the root is entry 0, its directory 1.
const FILE: u64 = 2;

type Lie = (&'static str, Vec<Step>, End);

fn sends(message: Message) -> Step {
    Step::Send(message)
}

fn asks(entries: &[u64]) -> Step {
    sends(Message::Asks(Asks { entries: entries.to_vec(), ..Asks::default() }))
}

fn base(base: Base) -> Step {
    let request = Request { base, is_guess: false, outlines: 2 };
    raw_base(&request.to_bytes())
}

fn raw_base(bytes: &[u8]) -> Step {
    let bytes = Bytes::copy_from_slice(bytes);
    sends(Message::Bases(Bases { bases: vec![DeltaMessage { entry: FILE, bytes }] }))
}

fn named() -> Step {
    base(Base::Named(Oid::of(b"x")))
}

fn settled(change: fn(&mut Settled)) -> Step {
    let mut settled = Settled::default();
    change(&mut settled);
    sends(Message::Settled(settled))
}

fn receives_the_tree() -> Step {
    Step::Recv(|received| matches!(received, Message::Entries(bytes) if bytes.is_empty()))
}

fn receives_an_answer() -> Step {
    Step::Recv(|received| matches!(received, Message::Answers(_)))
}

fn finished() -> Step {
    sends(Message::Finished(EndReport::default()))
}

/// A summary with 1025 nameless sources.
fn many_sources() -> Vec<u8> {
    [&b"\x5a\x85\x10\x0a\x82\x10"[..], &b"\x62\x00".repeat(1025)].concat()
}

fn messages() -> Vec<Lie> {
    let unasked = "a message that a receiver does not send";
    let one_of = |name, message: Message| (name, vec![sends(message)], End::Error(unasked));
    vec![
        ("no message", vec![Step::Raw(b"\x0fnonsense".to_vec())], End::Error("does not understand")),
        ("an unknown message", vec![Step::Raw(vec![0x98, 6, 1])], End::Error("an unknown message")),
        one_of("entries", Message::Entries(Bytes::new())),
        one_of("closed", Message::Closed(1)),
        one_of("incomplete", Message::Incomplete(Empty {})),
        one_of("answers", Message::Answers(Answers::default())),
        one_of("delta", Message::Delta(DeltaMessage::default())),
        one_of("start", Message::Start(Start::default())),
        one_of("ready", Message::Ready(Ready::default())),
        one_of("more", Message::More(Bytes::new())),
        one_of("carry on the first connection", Message::Carry(Empty {})),
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
    let unsent = "a file that was not told of";
    let after_tree = |steps: Vec<Step>| [vec![receives_the_tree()], steps].concat();
    let many: Vec<u64> = (0..129).collect();
    let considered = sends(Message::Considered(4));
    let signature = |bytes: &'static [u8]| {
        let bytes = Bytes::from_static(bytes);
        sends(Message::NextSignature(DeltaMessage { entry: FILE, bytes }))
    };
    let parts = || base(Base::Parts { count: 2, ahead: 1 });
    vec![
        ("a file that was not told", after_tree(vec![asks(&[99])]), End::Error(unsent)),
        ("the root", after_tree(vec![asks(&[0])]), End::Error(unsent)),
        ("a directory", after_tree(vec![asks(&[1])]), End::Error(unsent)),
        ("a file twice", after_tree(vec![asks(&[FILE]), asks(&[FILE])]), End::Error(unsent)),
        ("a file twice in one ask", after_tree(vec![asks(&[FILE, FILE])]), End::Error(unsent)),
        ("a file that was considered", after_tree(vec![considered, asks(&[FILE])]), End::Error(unsent)),
        ("too many at once", after_tree(vec![asks(&many)]), End::Error(unsent)),
        (
            "considered beyond the tree",
            after_tree(vec![sends(Message::Considered(5))]),
            End::Error("entries that were not told of"),
        ),
        (
            "a signature that nobody waits for",
            after_tree(vec![signature(b"\x01x")]),
            End::Error("a signature that nobody waits for"),
        ),
        (
            "more signatures than go ahead",
            after_tree(vec![parts(), asks(&[FILE]), signature(b"\x01x"), signature(b"\x01x")]),
            End::Error("a signature that nobody waits for"),
        ),
        (
            "a signature message that is none",
            after_tree(vec![parts(), asks(&[FILE]), signature(b"\x07")]),
            End::Error("next signature"),
        ),
        (
            "a signature of no blocks",
            after_tree(vec![parts(), asks(&[FILE]), signature(b"\x01x"), receives_an_answer(), finished()]),
            End::Harmless,
        ),
        ("two bases", after_tree(vec![named(), named()]), End::Error("bases that are none, or too many")),
        (
            "too many parts",
            after_tree(vec![raw_base(b"\x02\0\0\x11\x01")]),
            End::Error("bases that are none"),
        ),
        (
            "parts of which none is signed",
            after_tree(vec![raw_base(b"\x02\0\0\x02\x00")]),
            End::Error("bases that are none"),
        ),
        (
            "more signed than there are",
            after_tree(vec![raw_base(b"\x02\0\0\x02\x03")]),
            End::Error("bases that are none"),
        ),
        (
            "a name that is none",
            after_tree(vec![raw_base(b"\x01\0\0name")]),
            End::Error("bases that are none"),
        ),
        (
            "too many settled",
            after_tree(vec![settled(|it| it.placed = vec![1; 1025])]),
            End::Error("more files settled"),
        ),
        (
            "a signature that is none",
            after_tree(vec![
                base(Base::Signature(b"none".to_vec())),
                asks(&[FILE]),
                receives_an_answer(),
                finished(),
            ]),
            End::Harmless,
        ),
        (
            "packing without end",
            after_tree(vec![
                sends(Message::Asks(Asks {
                    entries: vec![FILE],
                    inline: u32::MAX,
                    pack: u32::MAX,
                    ..Asks::default()
                })),
                receives_an_answer(),
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
    assert_eq!(run_all(messages(), false).await, 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_were_not_told_or_not_so_are_refused() {
    assert_eq!(run_all(files(), true).await, 20);
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
        super::super::sent::SentTo::new(&endpoint.host.shares, &liar.node()).add(&oid, 8000);
        super::super::sent::SentTo::new(&endpoint.host.shares, &endpoint.peer.node()).add(&oid, 8000);
    }
    drop(endpoint);
    let steps =
        [receives_the_tree(), base(Base::Named(oid)), asks(&[FILE]), receives_an_answer(), finished()];
    let ended = scene.send(Carrier::Pipe, is_pull, &steps).await;
    let Some(Message::Answers(told)) = ended.received.last() else { panic!("no answer: {:?}", ended.result) };
    let reply = told.answers[0].reply().unwrap().unwrap();
    assert!(matches!(reply, Reply::Whole(_) | Reply::UnknownBase), "{reply:?}");
    reply != Reply::UnknownBase
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
    let named = |guess: &[u8]| base(Base::Named(Oid::of(guess)));
    let steps =
        [receives_the_tree(), named(b"1"), asks(&[FILE]), receives_an_answer(), named(b"2"), asks(&[FILE])];
    let ended = scene.send(Carrier::Pipe, true, &steps).await;
    ended.assert("a second guess", End::Error("a file that was not told of"));
}
