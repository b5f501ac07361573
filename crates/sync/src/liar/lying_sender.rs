//! Lies that a sender may try with a receiver: each rule of `docs/formats/copy.md` ("What must be refused") that a
//! sender can break, broken.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use bytes::Bytes;
use towpath_api::copy::{CopyOptions, Mode};
use towpath_content::Oid;
use towpath_content::delta::exchange::{DeltaRun, DeltaStep, Reply, StepOf};
use towpath_content::tree::{Event, Kind, Time, Xattr};
use towpath_protocol::packing;
use towpath_transfer::Outcome;
use towpath_transfer::offer::{EntryBody, EntryContent};

use super::super::merge::Destined;
use super::super::message::{
    Considered, CopyReport, EndReport, Fatal, Message, PROBE, Ready, Settled, Start, TreeBytes,
    TreeBytesForm, WantedConnections, internal,
};
use super::{
    CARRIERS, Carrier, End, Ended, Scene, Step, dir, end, entries as raw, entry, leaf, one, snapshot, tree,
};
use towpath_ssh::patterns::Requested;

const CONTENT: &[u8] = b"bytes";
type Lie = (&'static str, Vec<Step>, End);

/// A content that comes with its name.
fn answer() -> EntryContent {
    EntryContent {
        oid: Some(Oid::of(CONTENT)),
        size: CONTENT.len() as u64,
        modified: Time { seconds: 9, nanos: 0 },
        is_sparse: false,
        body: EntryBody::Whole(Bytes::from_static(CONTENT)),
    }
}

/// A file that is requested, and what the sender does then.
fn answered(step: Step) -> Vec<Step> {
    vec![one(&[leaf("a", 5)]), end(), Step::RecvAsk, step]
}

fn packed(frame: Vec<u8>) -> Step {
    let part = Some(TreeBytesForm::Packed(frame.into()));
    Step::Send(Message::Entries(TreeBytes { part, ..TreeBytes::default() }))
}

fn messages() -> Vec<Lie> {
    let unasked = "a message that a sender does not send";
    let one_of = |name, message: Message| (name, vec![Step::Send(message)], End::Error(unasked));
    let long = packing::pack(&vec![0; 300 << 10], 1).unwrap();
    vec![
        ("no message", vec![Step::Raw(b"\x0fnonsense".to_vec())], End::Error("does not understand")),
        ("an empty message", vec![Step::Raw(Vec::new())], End::Error("an unknown message")),
        ("an unknown message", vec![Step::Raw(vec![0x98, 6, 1])], End::Error("an unknown message")),
        ("nothing packed", vec![packed(b"x".to_vec())], End::Error("unpacked")),
        ("packed beyond a message", vec![packed(long)], End::Error("unpacked")),
        one_of("considered", Message::Considered(Considered::default())),
        one_of("settled", Message::Settled(Settled::default())),
        one_of("start", Message::Start(Start::default())),
        one_of("finished", Message::Finished(EndReport::default())),
        one_of("a wish for connections", Message::Connections(WantedConnections::default())),
        (
            "a probe's answer unasked",
            vec![Step::Send(Message::Probe(vec![0; PROBE].into()))],
            End::Error("a probe that nobody asked for"),
        ),
        (
            "an event that is none",
            vec![Step::Send(Message::Event(CopyReport::default()))],
            End::Error("event"),
        ),
        ("hanging up", vec![one(&[]), Step::HangUp], End::Error("hung up")),
    ]
}

fn entries() -> Vec<Lie> {
    macro_rules! vector {
        ($name:literal) => {
            include_bytes!(concat!("../../../../docs/formats/vectors/tree/refused-", $name, ".tree"))
        };
    }
    let of = |name, bytes: &[u8]| (name, vec![raw(bytes), end()], End::Error("does not understand"));
    let linked = |group| {
        let Event::Leaf(entry) = leaf("a", 5) else { unreachable!() };
        Event::Leaf(towpath_content::tree::Entry { hard_link: Some(group), ..entry })
    };
    let device = Event::Leaf(entry("a", Kind::CharDevice { major: 1, minor: 3 }));
    let temporary = vec![one(&[dir(".tow-0123456789abcdef"), leaf("x", 5), Event::Leave]), end()];
    let mut deep = vec![];
    (0..80).for_each(|_| deep.push(dir(&"d".repeat(255))));
    (0..80).for_each(|_| deep.push(Event::Leave));
    vec![
        of("a name that leads out", vector!("dot-dot")),
        of("names out of order", vector!("unsorted")),
        of("more behind the end", vector!("trailing")),
        of("a tree cut short", vector!("truncated")),
        of("a tree without its end", vector!("end-missing")),
        of("padding that is none", vector!("padding")),
        ("no tree", vec![raw(&[0xff; 70_000]), end()], End::Error("does not understand")),
        ("nothing at all", vec![end()], End::Error("does not understand")),
        ("a file for a directory", vec![tree(&[leaf("a", 5)]), end()], End::Error("no directory")),
        (
            "two sources for one",
            vec![tree(&[dir("a"), Event::Leave, dir("b"), Event::Leave]), end()],
            End::Error("a second source"),
        ),
        (
            "a closed directory that is over",
            {
                let closed = Step::Send(Message::Closed(0));
                vec![one(&[]), closed, end()]
            },
            End::Error("a closed directory that does not come"),
        ),
        ("a hard link before its first name", vec![one(&[linked(99)]), end()], End::Complaint("hard link")),
        ("a device", vec![one(&[device]), end()], End::Complaint("a device")),
        ("a temporary's name", temporary, End::Complaint("tow gives its temporaries")),
        ("a path without end", vec![one(&deep), end()], End::Complaint("a path of over")),
    ]
}

fn answers() -> Vec<Lie> {
    let lie = |change: &dyn Fn(&mut EntryContent)| {
        let mut lie = answer();
        change(&mut lie);
        answered(Step::Answer(lie))
    };
    let bytes = |bytes: &'static [u8]| {
        lie(&move |it: &mut EntryContent| it.body = EntryBody::Whole(Bytes::from_static(bytes)))
    };
    let reply = |reply: &Reply| lie(&|it: &mut EntryContent| it.body = EntryBody::Delta(reply.clone()));
    vec![
        ("no name", lie(&|it| it.oid = None), End::Error("hung up")),
        ("other bytes", bytes(b"other"), End::Complaint("a: ")),
        ("more bytes than said", bytes(b"bytes and more"), End::Complaint("a: ")),
        ("another length", lie(&|it| it.size = 9), End::Complaint("a: ")),
        ("a delta of nothing", reply(&Reply::Whole(b"delta".to_vec())), End::Error("a delta of nothing")),
        ("the same as nothing", reply(&Reply::Same), End::Error("a delta of nothing")),
        ("parts of nothing", reply(&Reply::InParts), End::Error("a delta of nothing")),
        ("giving up nothing", reply(&Reply::GivenUp), End::Error("a delta of nothing")),
        ("a base that nobody named", reply(&Reply::UnknownBase), End::Error("a delta of nothing")),
        ("a file that was not there", answered(Step::Refuse(Outcome::NotHere)), End::Harmless),
        (
            "a file that is kept back",
            answered(Step::Refuse(Outcome::Refused("mine".into()))),
            End::Complaint("mine"),
        ),
    ]
}

fn run(run: &DeltaRun<'_>) -> Step {
    Step::Run(run.to_bytes())
}

fn lacking() -> Step {
    Step::Answer(EntryContent { oid: None, body: EntryBody::Delta(Reply::UnknownBase), ..answer() })
}

/// Lies about a changed file, whose base the receiver names on a slow network and then signs.
fn deltas() -> Vec<Lie> {
    let begun = |answer: Step, rest: Vec<Step>| {
        let mut steps = vec![one(&[leaf("old", SIZE as u64)]), end(), Step::RecvAsk, lacking()];
        steps.extend([Step::RecvAsk, answer]);
        steps.extend(rest);
        steps
    };
    let sized =
        |size| Step::Answer(EntryContent { size, body: EntryBody::Delta(Reply::InParts), ..answer() });
    let parts = || sized(SIZE as u64);
    let literals = DeltaStep::Delta { of: StepOf::Literals, is_packed: false };
    let long = |_| run(&DeltaRun::More(&[0; 128 << 10]));
    vec![
        ("parts that are too long", begun(sized(17 << 20), vec![]), End::Error("too many or too long")),
        (
            "literals of no outline",
            begun(parts(), vec![run(&DeltaRun::Last(literals, b"x"))]),
            End::Error("literals of no outline"),
        ),
        (
            "a patch of what was signed",
            begun(parts(), vec![run(&DeltaRun::Last(DeltaStep::Patch, b"x"))]),
            End::Error("a patch of what was signed"),
        ),
        (
            "a delta without end",
            begun(parts(), (0..200).map(long).collect()),
            End::Error("longer than what it makes"),
        ),
        (
            "a base that lacks twice",
            begun(lacking(), vec![]),
            End::Error("a base that nobody named is lacking"),
        ),
    ]
}

/// Bytes of a changed file.
const SIZE: usize = 300_000;

async fn run_all(lies: Vec<Lie>, is_pull: bool) -> usize {
    for carrier in CARRIERS {
        for (name, steps, wanted) in &lies {
            let mut scene = Scene::new();
            scene.options.limit_rate = 100_000;
            scene.file("to/old", &towpath_store::doubles::noise(3, SIZE));
            scene.file("beside", b"beside");
            let before = snapshot(&scene.path("to"));
            let ended = scene.receive(carrier, is_pull, scene.contents(), steps).await;
            ended.assert(&format!("{name} ({carrier:?})"), *wanted);
            if ended.result.is_err() {
                let old = snapshot(&scene.path("to"));
                assert_eq!(old.iter().filter(|it| before.contains(it)).count(), before.len(), "{name}");
            }
            assert_eq!(fs::read(scene.path("beside")).unwrap(), b"beside", "{name}");
        }
    }
    lies.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_no_sender_sends_end_the_copy() {
    assert_eq!(run_all(messages(), true).await, 13);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_that_are_none_end_the_copy_and_odd_entries_are_left_out() {
    assert_eq!(run_all(entries(), true).await, 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_lie_bring_nothing() {
    assert_eq!(run_all(answers(), true).await, 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deltas_that_lie_end_the_copy() {
    assert_eq!(run_all(deltas(), true).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pusher_tells_its_receiver_no_events() {
    let event = Step::Send(Message::Event(CopyReport::default()));
    assert_eq!(
        run_all(vec![("an event", vec![event], End::Error("a sender does not send"))], false).await,
        1
    );
}

/// A destination's neighbours, and a copy to `name` beside them.
async fn copy_beside(name: &str, paths: &[&[u8]], mode: Mode, steps: &[Step]) -> (Scene, Ended) {
    let mut scene = Scene::new();
    scene.options = CopyOptions { delete: mode == Mode::Sync, max_delete: Some(0), ..scene.options };
    scene.file("at/.ssh/authorized_keys", b"mine");
    scene.file("at/victim.conf", b"mine");
    scene.file("at/Documents/thesis", b"mine");
    let requested = Requested::of(paths, false).unwrap();
    let path = scene.path("at").join(name);
    let destined =
        Destined { path, mode, sources: requested.sources(), contents: false, names: requested.names };
    let ended = scene.receive(Carrier::Pipe, true, destined, steps).await;
    (scene, ended)
}

/// F1 of the reading of November 2026: the second top-level entry was taken for the destination's directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_writes_nothing_beside_the_destination() {
    let lie = [
        tree(&[
            leaf("a.txt", 0),
            dir("b.txt"),
            dir(".ssh"),
            leaf("authorized_keys", 0),
            Event::Leave,
            Event::Leaf(entry("Documents", Kind::Symlink { target: b"/".to_vec() })),
            leaf("victim.conf", 0),
            Event::Leave,
        ]),
        end(),
    ];
    for (paths, mode) in [
        (&[&b"*.txt"[..]][..], Mode::Cp),
        (&[b"*.txt"], Mode::Sync),
        (&[b"a.txt", b"b.txt"], Mode::Cp),
        (&[b"a.txt"], Mode::Cp),
        (&[b"a.txt"], Mode::Sync),
    ] {
        let (scene, ended) = copy_beside("report.txt", paths, mode, &lie).await;
        let at = scene.path("at");
        for name in [".ssh/authorized_keys", "victim.conf", "Documents/thesis"] {
            assert_eq!(fs::read(at.join(name)).unwrap(), b"mine", "{paths:?} {mode:?}: {name}");
        }
        let names: Vec<_> = fs::read_dir(&at).unwrap().map(|it| it.unwrap().file_name()).collect();
        let known = [".ssh", "victim.conf", "Documents", "report.txt"];
        let known = |name: &std::ffi::OsString| known.iter().any(|one| name == one);
        let strange: Vec<_> = names
            .iter()
            .filter(|name| !known(name) && !name.to_string_lossy().starts_with(".tow-"))
            .collect();
        assert!(strange.is_empty(), "{paths:?} {mode:?}: {strange:?} {:?}", ended.result);
    }
}

/// A tree `to` in which `data` has `count` files, and a sender with something else as `data`.
async fn replace(options: CopyOptions, entries: &[Event], is_incomplete: bool) -> (Scene, Ended) {
    let mut scene = Scene::new();
    scene.options = CopyOptions { via: scene.options.via, ..options };
    scene.file("to/keep", CONTENT);
    (0..20).for_each(|number| drop(scene.file(&format!("to/data/{number}"), b"mine")));
    let steps = [one(entries), Step::Send(Message::Entries(TreeBytes::end(is_incomplete)))];
    let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
    (scene, ended)
}

/// F2 of the same reading: it went at once, past every limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_in_the_way_counts_against_every_limit() {
    let deleting = CopyOptions { delete: true, ..CopyOptions::default() };
    let link = Event::Leaf(entry("data", Kind::Symlink { target: b"elsewhere".to_vec() }));
    let keep = leaf("keep", 0);
    for (what, data) in [("a file", leaf("data", 0)), ("a link", link)] {
        let entries = [data, keep.clone()];
        for (limit, options, is_incomplete) in [
            ("--max-delete", CopyOptions { max_delete: Some(19), ..deleting.clone() }, false),
            ("the guard of half", deleting.clone(), false),
            ("an incomplete source", CopyOptions { force: true, ..deleting.clone() }, true),
        ] {
            let (scene, ended) = replace(options, &entries, is_incomplete).await;
            let left = fs::read_dir(scene.path("to/data")).map_or(0, Iterator::count);
            assert_eq!(left, 20, "{what}, {limit}: {:?}", ended.complaints);
            assert!(ended.complaints.join(" ").contains("in the way"), "{limit}: {:?}", ended.complaints);
        }
        let allowed = CopyOptions { max_delete: Some(20), ..deleting.clone() };
        let (scene, ended) = replace(allowed, &entries, false).await;
        assert!(!scene.path("to/data").is_dir(), "{what}: {:?}", ended.complaints);
        assert!(scene.path("to/data").symlink_metadata().is_ok(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_old_goes_before_what_replaces_it_is_there() {
    // The sender names a file and brings other bytes.
    let mut scene = Scene::new();
    scene.options.delete = true;
    scene.options.force = true;
    scene.file("to/data/old", b"mine");
    let lie = EntryContent { body: EntryBody::Whole(Bytes::from_static(b"other")), ..answer() };
    let steps = [one(&[leaf("data", 5)]), end(), Step::RecvAsk, Step::Answer(lie)];
    let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
    ended.assert("other bytes for what is in the way", End::Complaint("data: "));
    assert_eq!(fs::read(scene.path("to/data/old")).unwrap(), b"mine");
    let steps = [one(&[leaf("data", 5)]), end(), Step::RecvAsk, Step::Answer(answer())];
    let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
    ended.assert("the right bytes", End::Harmless);
    assert_eq!(fs::read(scene.path("to/data")).unwrap(), CONTENT);
}

/// Only the remote end's addresses may change: the client has its own links.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_tells_where_it_moves_is_refused() {
    let scene = Scene::new();
    let steps = [Step::Send(Message::Ready(Ready::default()))];
    let ended = scene.receive(Carrier::Pipe, false, scene.contents(), &steps).await;
    ended.assert("a move", End::Error("a message that a sender does not send"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_at_the_destination_leads_nothing_out() {
    let scene = Scene::new();
    scene.file("outside/file", b"mine");
    symlink(scene.path("outside"), scene.path("to/data")).unwrap();
    let steps = [one(&[dir("data"), leaf("file", 0), Event::Leave]), end()];
    let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
    ended.assert("a directory where a link is", End::Harmless);
    assert_eq!(fs::read(scene.path("outside/file")).unwrap(), b"mine");
    assert!(scene.path("to/data").symlink_metadata().unwrap().is_dir());
}

/// F8 of the same reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_come_only_where_they_were_asked_for() {
    let Event::Leaf(mut program) = leaf("program", 0) else { unreachable!() };
    program.metadata.mode = 0o6755;
    let capability = [&[1, 0, 0, 2][..], &[0; 16]].concat();
    program.metadata.xattrs = vec![Xattr { name: b"security.capability".to_vec(), value: capability }];
    let steps = [one(&[Event::Leaf(program)]), end()];
    for (asked, mode) in [(false, 0o755), (true, 0o6755)] {
        let mut scene = Scene::new();
        scene.options.preserve.special_bits = asked;
        let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
        let dropped = ended.result.unwrap().dropped;
        assert_eq!((dropped.special_bits, dropped.privileged_xattrs), (u64::from(!asked), 1));
        let there = scene.path("to/program");
        // Bits of an owner that could not be set are dropped in any case.
        let got = there.metadata().unwrap().permissions().mode() & 0o7777;
        assert!(got == mode || got == 0o755 && there.metadata().unwrap().uid() != 0, "{got:o}");
    }
}

/// The files that are requested know the copy that they belong to, and it knows who requests them: this must
/// not keep all of them, or the side never sends its last event and never ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_fails_while_files_are_asked_for_lets_go_of_all() {
    let scene = Scene::new();
    let fatal = Step::Send(Message::Fatal(Fatal::of(&internal("the disk is gone"))));
    let steps = [one(&[leaf("a", 5), leaf("b", 5)]), Step::RecvAsk, Step::RecvAsk, fatal];
    // Its last event comes when nothing is left that could send another one.
    let ended = scene.receive(Carrier::Pipe, false, scene.contents(), &steps).await;
    assert_eq!(ended.result.unwrap_err().to_string(), "the liar: the disk is gone");
}

/// F10 of the same reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_sender_paints_nothing() {
    let fatal = Fatal::of(&internal("\u{1b}]52;c;x\u{7}\u{202e}"));
    let scene = Scene::new();
    let steps = [Step::Send(Message::Fatal(fatal))];
    let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
    let shown = ended.result.unwrap_err().to_string();
    assert!(shown.contains("\\u{1b}]52") && !shown.contains(char::is_control), "{shown}");
    assert!(!shown.contains('\u{202e}'));
}
