//! Descriptors that hold the bytes of small files, and those that lie about them.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use towpath_api::{Announced, EntryKind, GetRequest, GetUpdate};
use towpath_content::ticket::Secret;
use towpath_content::tree::{Encoder, Kind, Owner, Xattr};
use towpath_files::ScanOptions;
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
    sender_of(folder, ObjectKind::Tree, descriptor).await
}

/// A sender of one object that is called `tree` or `file`.
async fn sender_of(folder: &TempDir, kind: ObjectKind, content: &[u8]) -> (Arc<Service>, String) {
    let sender = service(folder, "sender");
    let name = if kind == ObjectKind::Tree { "tree" } else { "file" };
    let about = About { kind, name: name.into(), ..About::default() };
    sender.store.put_init(&LIVE, &about).unwrap();
    sender.store.put_data(&LIVE, content).unwrap();
    let content = sender.store.put_commit(&LIVE).unwrap();
    sender.grants.share(content, SECRET.into());
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    sender.door.listen(b"test", &[loopback]).await.unwrap();
    sender.door.open();
    let ticket = sender.ticket(content, SECRET.into());
    (sender, ticket)
}

/// Gets `ticket` into the folder `copy`; also what failed or was left out.
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
        if let Event::FileFailed { path, error: why } | Event::EntrySkipped { path, why } = event {
            failed.push((path, why));
        }
    }
    (summary, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_received_is_told_before_anything_of_it_is_there() {
    let tree = descriptor(&[("a", b"some", b"some")]);
    for (kind, content, name, of, size) in [
        (ObjectKind::Tree, &tree[..], "tree", EntryKind::Directory, None),
        (ObjectKind::Blob, b"some words", "file", EntryKind::File, Some(10)),
    ] {
        for update in [None, Some(GetUpdate::default())] {
            let (folder, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (_sender, ticket) = sender_of(&folder, kind, content).await;
            let directory = here.path().to_path_buf();
            let request = GetRequest { ticket, directory, timeout: 10, update, ..GetRequest::default() };
            let (events, mut inbox) = mpsc::channel(1);
            // Nobody has read this one yet, so there is no room for the next.
            events.try_send(Event::Alive).unwrap();
            let receiver = service(&folder, "receiver");
            let mut getting = tokio::spawn(async move { get::get(&receiver, request, events).await });
            let early = tokio::time::timeout(Duration::from_millis(400), &mut getting).await;
            assert!(early.is_err(), "it waits until it is read");
            assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0, "{name}: it is there, untold");
            assert_eq!(inbox.recv().await, Some(Event::Alive));
            let output = here.path().join(name);
            let told = Announced { name: name.into(), kind: of, size, output: output.clone() };
            assert_eq!(inbox.recv().await, Some(Event::Receiving(told)));
            while inbox.recv().await.is_some() {}
            getting.await.unwrap().unwrap();
            assert!(output.exists());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_descriptor_holds_needs_no_other_source() {
    let folder = tempfile::tempdir().unwrap();
    let descriptor = descriptor(&[("a", b"some", b"some"), ("b", b"words", b"words"), ("c", b"", b"")]);
    let (_sender, ticket) = sender(&folder, &descriptor).await;
    let (summary, failed) = got(&folder, ticket).await;
    assert_eq!((summary.failed, summary.entries, summary.bytes), (0, 4, 9), "{failed:?}");
    assert_eq!(summary.sources.total(), descriptor.len() as u64, "all came in it");
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

/// Metadata that a stranger would have others apply.
fn greedy() -> Metadata {
    let xattr = |name: &str, value: &[u8]| Xattr { name: name.into(), value: value.to_vec() };
    let root = Owner { id: 0, name: b"root".to_vec() };
    Metadata {
        mode: 0o6777,
        user: root.clone(),
        group: root,
        xattrs: vec![
            xattr("security.capability", &[1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            xattr("trusted.note", b"note"),
        ],
        ..Metadata::default()
    }
}

fn encoded(entries: Vec<Entry>, content: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::with_content(false);
    encoder.push(&tree::Event::Enter(entry("", Kind::Directory))).unwrap();
    for entry in entries {
        let told = if entry.inline_len() > 0 { content } else { b"" };
        encoder.push_with(&tree::Event::Leaf(entry), told).unwrap();
    }
    encoder.push(&tree::Event::Leave).unwrap();
    encoder.finish().unwrap()
}

fn file_of(content: &[u8]) -> Kind {
    Kind::File { size: content.len() as u64, oid: Some(Oid::of(content)), extents: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gives_no_rights() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let device = Entry { metadata: greedy(), ..entry("device", Kind::BlockDevice { major: 8, minor: 0 }) };
    let program = Entry { metadata: greedy(), ..entry("program", file_of(b"bytes")) };
    let (_sender, ticket) = sender(&folder, &encoded(vec![device, program], b"bytes")).await;
    let (summary, failed) = got(&folder, ticket).await;
    assert_eq!((summary.dropped.special_bits, summary.dropped.privileged_xattrs), (1, 1));
    assert_eq!((summary.failed, summary.skipped, failed.len()), (0, 1, 1));
    assert!(failed[0].0 == "device" && failed[0].1.contains("a device is left out"), "{failed:?}");
    let program = folder.path().join("copy/program");
    let found = std::fs::metadata(&program).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o777 & !towpath_files::metadata::umask());
    assert_eq!(found.uid(), std::fs::metadata(folder.path()).unwrap().uid());
    let names = towpath_files::look(&program, &ScanOptions { xattrs: true, ..ScanOptions::default() });
    let names = names.unwrap().entry.metadata.xattrs;
    assert!(names.iter().all(|xattr| !towpath_files::metadata::is_privileged(&xattr.name)), "{names:?}");
    assert!(!folder.path().join("copy/device").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn links_to_what_the_sender_did_not_send_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let linked = |name, group, kind| Entry { hard_link: Some(group), ..entry(name, kind) };
    let target = b"/etc/hostname".to_vec();
    let entries = vec![
        linked("a link", 0, Kind::Symlink { target }),
        linked("b its file", 0, file_of(b"bytes")),
        linked("c from nowhere", 77, file_of(b"bytes")),
        linked("d", 1, file_of(b"bytes")),
        linked("e another content", 1, file_of(b"bites")),
        linked("f", 1, file_of(b"bytes")),
    ];
    let (_sender, ticket) = sender(&folder, &encoded(entries, b"bytes")).await;
    let (summary, mut failed) = got(&folder, ticket).await;
    failed.sort();
    let paths: Vec<_> = failed.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["b its file", "c from nowhere", "e another content"], "{failed:?}");
    assert_eq!(summary.failed, 3);
    let copy = folder.path().join("copy");
    let mut there: Vec<_> =
        std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    there.sort();
    assert_eq!(there, ["a link", "d", "f"]);
    let stamp = |name: &str| towpath_files::look(&copy.join(name), &ScanOptions::default()).unwrap().stamp;
    assert!(stamp("d").same_file(&stamp("f")));
}
