//! Descriptors that hold the bytes of small files, and those that lie about them.

use std::net::SocketAddr;

use tempfile::TempDir;
use towpath_api::GetRequest;
use towpath_content::ticket::Secret;
use towpath_content::tree::{Encoder, Kind};
use towpath_store::{About, ObjectKind, Store};

use super::*;
use crate::{Options, Service, get};
use towpath_config::Home;

const SECRET: Secret = Secret([7; 16]);
const LIVE: Oid = Oid::Live([9; 32]);

pub(crate) fn service(folder: &TempDir, name: &str) -> Arc<Service> {
    Service::open(Home::under(&folder.path().join(name)), Options::default()).unwrap()
}

pub(crate) fn entry(name: &str, kind: Kind) -> Entry {
    Entry {
        name: name.into(),
        kind,
        metadata: Metadata { mode: 0o700, ..Metadata::default() },
        hard_link: None,
    }
}

/// A descriptor of `files`: each its name, what its OID names, and what is said to be its bytes.
pub(crate) fn descriptor(files: &[(&str, &[u8], &[u8])]) -> Vec<u8> {
    let mut encoder = Encoder::with_content(false);
    encoder.push(&tree::Event::Enter(entry("", Kind::Directory))).unwrap();
    for (name, named, told) in files {
        let kind = Kind::File { size: named.len() as u64, oid: Some(Oid::of(named)), extents: None };
        encoder.push_with(&tree::Event::Leaf(entry(name, kind)), told).unwrap();
    }
    encoder.push(&tree::Event::Leave).unwrap();
    encoder.finish().unwrap()
}

/// A sender of this descriptor, which has nothing else; its ticket.
pub(crate) async fn sender(folder: &TempDir, descriptor: &[u8]) -> (Arc<Service>, String) {
    let sender = service(folder, "sender");
    let about = About { kind: ObjectKind::Tree, name: b"tree".to_vec(), ..About::default() };
    sender.store.put_init(&LIVE, &about).unwrap();
    sender.store.put_data(&LIVE, descriptor).unwrap();
    let content = sender.store.put_commit(&LIVE).unwrap();
    sender.grants.share(content, SECRET);
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    sender.listen(b"test", &[loopback]).await.unwrap();
    sender.accept_peers();
    let ticket = sender.ticket(content, SECRET);
    (sender, ticket)
}

/// Gets `ticket` into the folder `copy`; also the files that failed.
async fn got(folder: &TempDir, ticket: String) -> (Summary, Vec<(String, String)>) {
    let (events, mut inbox) = mpsc::channel(64);
    let request = GetRequest {
        ticket,
        output: Some(folder.path().join("copy")),
        directory: folder.path().into(),
        timeout: 10,
        require_encryption: true,
        ..GetRequest::default()
    };
    let summary = get::get(&service(folder, "receiver"), request, events).await.unwrap();
    let mut failed = Vec::new();
    while let Some(event) = inbox.recv().await {
        if let Event::FileFailed { path, error } = event {
            failed.push((path, error));
        }
    }
    (summary, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_descriptor_holds_needs_no_other_source() {
    let folder = tempfile::tempdir().unwrap();
    let descriptor = descriptor(&[("a", b"some", b"some"), ("b", b"words", b"words"), ("c", b"", b"")]);
    let (_sender, ticket) = sender(&folder, &descriptor).await;
    let (summary, failed) = got(&folder, ticket).await;
    assert_eq!((summary.failed, summary.entries, summary.bytes), (0, 4, 9), "{failed:?}");
    assert_eq!(summary.by_source.values().sum::<u64>(), descriptor.len() as u64, "all came in it");
    assert_eq!(std::fs::read(folder.path().join("copy/b")).unwrap(), b"words");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_that_lies_about_a_file_fails_that_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let descriptor = descriptor(&[("a", b"good", b"good"), ("b", b"good", b"evil"), ("c", b"fine", b"fine")]);
    let (_sender, ticket) = sender(&folder, &descriptor).await;
    let (summary, failed) = got(&folder, ticket).await;
    assert_eq!(summary.failed, 1);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, "b");
    assert!(failed[0].1.contains("the descriptor holds other bytes than its id says"), "{failed:?}");
    let mut names: Vec<_> = std::fs::read_dir(folder.path().join("copy"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "c"]);
}
