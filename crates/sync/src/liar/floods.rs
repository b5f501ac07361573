//! Floods: what a side keeps of messages that come faster than they are worked off, or are never worked off at all.

use towpath_content::delta::exchange::{Base, Request};
use towpath_content::tree::Event;
use towpath_protocol::packing;

use super::super::message::{Answer, Answers, Bases, DeltaMessage, Message};
use super::{Carrier, End, Scene, Step, dir, end, leaf, one};

/// A message of few bytes that takes 250 KiB once it is unpacked, of fields that nobody knows.
pub fn bloated(message: Message) -> Message {
    let mut bytes = message.into_bytes().to_vec();
    // Field 999, a string.
    bytes.extend_from_slice(&[0xba, 0x3e, 0x80, 0xd0, 0x0f]);
    bytes.resize(bytes.len() + 250 * 1024, 0);
    Message::Packed(packing::pack(&bytes, 1).unwrap().into())
}

/// A base that is told by its name.
pub fn named_base(entry: u64) -> DeltaMessage {
    let base = Base::Named(towpath_content::Oid::of(b"x"));
    let request = Request { base, is_guess: false, outlines: 0 };
    DeltaMessage { entry, bytes: request.to_bytes().into() }
}

/// The sender's tree stalls the merge, and more of it comes than fits the window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_beyond_the_window_end_the_copy() {
    let scene = Scene::new();
    let files: Vec<Event> = (0..20_000).map(|number| leaf(&format!("{number:06}"), 1)).collect();
    let mut steps = vec![one(&files)];
    // One byte of descriptor in each, behind the end of the tree.
    let Step::Send(first) = steps.remove(0) else { unreachable!() };
    let Message::Entries(bytes) = first else { unreachable!() };
    steps.extend(
        (0..bytes.len())
            .step_by(65536)
            .map(|at| Step::Send(Message::Entries(bytes.slice(at..bytes.len().min(at + 65536))))),
    );
    steps.push(Step::Flood(500_000, |_| Message::Closed(u64::MAX)));
    let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
    assert!(ended.result.is_err(), "{:?}", ended.result);
}

/// F5 of the same reading: 522 KB of descriptor took 1.24 GB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deep_tree_of_long_names_takes_little_memory() {
    let scene = Scene::new();
    let mut deep: Vec<Event> = (0..2000).map(|_| dir(&"d".repeat(255))).collect();
    deep.extend((0..700).flat_map(|number| [dir(&format!("{number:03}")), Event::Leave]));
    deep.extend((0..2000).map(|_| Event::Leave));
    let Step::Send(Message::Entries(bytes)) = one(&deep) else { unreachable!() };
    let mut steps: Vec<Step> = (0..bytes.len())
        .step_by(65536)
        .map(|at| Step::Send(Message::Entries(bytes.slice(at..bytes.len().min(at + 65536)))))
        .collect();
    steps.push(end());
    let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
    ended.assert("a tree deeper than any path", End::Complaint("a path of over"));
}

/// Empty answers: two bytes each on the way, two hundred in memory.
#[test]
fn a_message_of_empty_parts_is_not_read() {
    let answers = vec![Answer::default(); 100_000];
    let bytes = Message::Answers(Answers { answers }).into_bytes();
    assert!(bytes.len() < 256 << 10);
    assert!(Message::from_bytes(bytes).is_err());
    let bases = vec![DeltaMessage::default(); 100_000];
    assert!(Message::from_bytes(Message::Bases(Bases { bases }).into_bytes()).is_err());
}
