//! Floods: what a side keeps of messages that come faster than they are worked off, or are never worked off at all.

use towpath_content::tree::Event;
use towpath_protocol::packing;

use super::super::message::{Message, Settled, TreeBytes, TreeBytesForm, Unchanged};
use super::{Carrier, End, Scene, Step, dir, end, entries, leaf, one};

/// Entries of few bytes that take 250 KiB once they are unpacked.
pub fn bloated(_: u64) -> Message {
    let packed = packing::pack(&vec![0; 250 << 10], 1).unwrap();
    Message::Entries(TreeBytes { part: Some(TreeBytesForm::Packed(packed.into())), ..TreeBytes::default() })
}

/// A descriptor in messages of the length of its blocks.
pub fn in_parts(tree: Step) -> Vec<Step> {
    let Step::Send(Message::Entries(whole)) = tree else { unreachable!() };
    whole.unpack().unwrap().unwrap_or_default().chunks(65536).map(entries).collect()
}

/// The sender's tree stalls the merge, and more of it comes than fits the window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_beyond_the_window_end_the_copy() {
    let scene = Scene::new();
    let files: Vec<Event> = (0..20_000).map(|number| leaf(&format!("{number:06}"), 1)).collect();
    let mut steps = vec![one(&files)];
    let first = steps.remove(0);
    steps.extend(in_parts(first));
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
    let mut steps = in_parts(one(&deep));
    steps.push(end());
    let ended = scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await;
    ended.assert("a tree deeper than any path", End::Complaint("a path of over"));
}

/// Empty parts: two bytes each on the way, many in memory.
#[test]
fn a_message_of_empty_parts_is_not_read() {
    let unchanged = vec![Unchanged::default(); 100_000];
    let bytes = Message::Settled(Settled { unchanged, ..Settled::default() }).into_bytes();
    assert!(bytes.len() < 256 << 10);
    assert!(Message::from_bytes(bytes).is_err());
}
