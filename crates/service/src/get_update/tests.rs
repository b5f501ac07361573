//! Senders that do not send all: nothing is removed for want of what they kept.

use std::fs;

use tempfile::TempDir;
use towpath_api::ErrorKind;
use towpath_content::tree::{Encoder, Event as TreeEvent, Kind, LEFT_OUT};

use super::*;
use crate::get;
use crate::get_tree::tests::{descriptor, entry, sender, service};

/// Updates the folder `copy`, which has `a` and `extra`, from a sender of this descriptor; also what failed.
async fn updated(folder: &TempDir, descriptor: &[u8]) -> (Result<Summary, ApiError>, Vec<String>) {
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["a", "b", "extra"] {
        fs::write(copy.join(name), "here").unwrap();
    }
    let (_sender, ticket) = sender(folder, descriptor).await;
    let (events, mut inbox) = mpsc::channel(64);
    let request = GetRequest {
        ticket,
        output: Some(copy),
        directory: folder.path().into(),
        timeout: 5,
        update: Some(GetUpdate { delete: true, force: true, ..GetUpdate::default() }),
        ..GetRequest::default()
    };
    let result = get::get(&service(folder, "receiver"), request, events).await;
    let mut failed = Vec::new();
    while let Some(event) = inbox.recv().await {
        if let Event::FileFailed { path, .. } = event {
            failed.push(path);
        }
    }
    (result, failed)
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path().join("copy")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_tree_does_not_have_is_removed_once_all_of_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let (result, failed) = updated(&folder, &descriptor(&[("a", b"new", b"new"), ("c", b"", b"")])).await;
    let summary = result.unwrap();
    assert_eq!((summary.failed, failed), (0, Vec::new()));
    assert_eq!(names(&folder), ["a", "c"]);
    assert_eq!(fs::read(folder.path().join("copy/a")).unwrap(), b"new");
    let updated = summary.updated.unwrap();
    assert_eq!((updated.created, updated.transferred, updated.deleted), (1, 2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_removed_if_a_file_failed() {
    let folder = tempfile::tempdir().unwrap();
    let lie = descriptor(&[("a", b"good", b"evil"), ("b", b"words", b"words")]);
    let (result, failed) = updated(&folder, &lie).await;
    let summary = result.unwrap();
    assert_eq!((summary.failed, summary.skipped), (1, 0), "that nothing is removed is no entry");
    assert_eq!(failed, ["a", ""], "the file, and that nothing is removed");
    assert_eq!(names(&folder), ["a", "b", "extra"]);
    assert_eq!(fs::read(folder.path().join("copy/a")).unwrap(), b"here", "what was there stays");
    assert_eq!(fs::read(folder.path().join("copy/b")).unwrap(), b"words");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_removed_if_the_sender_left_something_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut encoder = Encoder::with_content(false);
    encoder.push(&TreeEvent::Enter(entry("", Kind::Directory))).unwrap();
    let left_out = Kind::File { size: 0, oid: Some(LEFT_OUT), extents: None };
    encoder.push(&TreeEvent::Leaf(entry("a", left_out))).unwrap();
    encoder.push(&TreeEvent::Leave).unwrap();
    let (result, failed) = updated(&folder, &encoder.finish().unwrap()).await;
    assert_eq!(result.unwrap().failed, 1);
    assert_eq!(failed, ["a", ""]);
    assert_eq!(names(&folder), ["a", "b", "extra"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_removed_if_the_descriptor_is_not_whole() {
    let folder = tempfile::tempdir().unwrap();
    let whole = descriptor(&[("a", b"new", b"new")]);
    let (result, _) = updated(&folder, &whole[..whole.len() - 1]).await;
    assert_ne!(result.unwrap_err().kind, ErrorKind::Usage);
    assert_eq!(names(&folder).last().map(String::as_str), Some("extra"));
}
