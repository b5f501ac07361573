//! Puts by open descriptor: one, with the first byte; a file that is referred to, or a pipe.

use std::fs::File;
use std::io::{IoSlice, Write, pipe};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;

use crate::client::{Connection, Reply};
use crate::world::{Daemon, eventually, pattern};

/// Sends these bytes with these descriptors at their first one.
fn pass(connection: &mut Connection, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    let stream: &UnixStream = connection.0.get_ref();
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

const REQUEST: &[u8] = b"POST /v1/put-descriptor HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

fn put(daemon: &Daemon, descriptors: &[BorrowedFd<'_>]) -> Reply {
    let mut connection = daemon.connect();
    pass(&mut connection, REQUEST, descriptors);
    let reply = connection.reply();
    assert_eq!(reply.head.field("connection"), Some("close"));
    assert!(connection.head().is_err(), "the connection is closed");
    reply
}

/// Puts a file by descriptor.
pub fn put_file(daemon: &Daemon, path: &Path) -> Reply {
    put(daemon, &[File::open(path).unwrap().as_fd()])
}

fn ticket(reply: &Value) -> &str {
    reply["ticket"].as_str().unwrap()
}

#[test]
fn a_file_is_referred_to_and_one_without_a_name_is_copied() {
    let (daemon, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(1, 700_000);
    let path = daemon.file("a file", &all);
    let file = File::open(&path).unwrap();
    let named = put(&daemon, &[file.as_fd()]).with(200).json();
    let by_name = daemon.call("POST", "/v1/put", Some(serde_json::json!({ "path": path }))).json();
    assert_eq!(named, by_name, "it is the same put");
    let cached = |daemon: &Daemon| daemon.call("GET", "/v1/objects?cached=true", None).json();
    assert_eq!(cached(&daemon).as_array().unwrap().len(), 1);
    std::fs::remove_file(&path).unwrap();
    let unnamed = put(&daemon, &[file.as_fd()]).with(200).json();
    assert_eq!((&unnamed["oid"], &unnamed["size"]), (&named["oid"], &700_000.into()));
    assert!(receiver.content(ticket(&unnamed)).with(200).body == all);
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let daemon = Daemon::start();
    let all = pattern(2, 500_000);
    let (reader, mut writer) = pipe().unwrap();
    let bytes = all.clone();
    let writing = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    let reply = put(&daemon, &[reader.as_fd()]).with(200).json();
    writing.join().unwrap();
    assert!(daemon.content(reply["oid"].as_str().unwrap()).with(200).body == all);
}

#[test]
fn the_head_may_come_in_pieces_after_the_first_byte() {
    let daemon = Daemon::start();
    let file = File::open(daemon.file("a file", b"some words")).unwrap();
    let mut connection = daemon.connect();
    pass(&mut connection, &REQUEST[..1], &[file.as_fd()]);
    std::thread::sleep(std::time::Duration::from_millis(50));
    connection.send(&REQUEST[1..]);
    assert_eq!(connection.reply().with(200).json()["size"], 10);
}

#[test]
fn anything_else_is_refused_and_closed() {
    let daemon = Daemon::start();
    let path = daemon.file("a file", b"some words");
    let file = File::open(&path).unwrap();
    let written = File::options().write(true).open(&path).unwrap();
    let folder = File::open(daemon.dir.path()).unwrap();
    let null = File::open("/dev/null").unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    let (_reader, writer) = pipe().unwrap();
    let before = open_descriptors();
    let kinds: [&[BorrowedFd<'_>]; 7] = [
        &[file.as_fd(), file.as_fd()],
        &[file.as_fd(), file.as_fd(), file.as_fd(), file.as_fd()],
        &[written.as_fd()],
        &[folder.as_fd()],
        &[null.as_fd()],
        &[socket.as_fd()],
        &[writer.as_fd()],
    ];
    for descriptors in kinds {
        let problem = put(&daemon, descriptors).with(400).json();
        assert_eq!(problem["kind"], "usage", "{problem}");
    }
    // One that comes later than the first byte, and one that no call takes.
    let mut connection = daemon.connect();
    connection.send(&REQUEST[..5]);
    std::thread::sleep(std::time::Duration::from_millis(50));
    pass(&mut connection, &REQUEST[5..], &[file.as_fd()]);
    connection.reply().with(400);
    let mut connection = daemon.connect();
    pass(&mut connection, b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", &[file.as_fd()]);
    connection.reply().with(200);
    connection.send(REQUEST);
    connection.reply().with(400);
    drop(connection);
    eventually("all are closed", || open_descriptors() <= before);
}

fn open_descriptors() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    // Other tests of this process run at the same time: only what this one passed counts.
    let is_ours = |name: &Path| {
        let name = name.to_string_lossy().into_owned();
        name.ends_with("/a file") || name == "/dev/null"
    };
    links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok()).filter(|path| is_ours(path)).count()
}
