//! Puts by open descriptor: one, with the first byte; a file that is referred to, or a pipe.

use std::fs::File;
use std::io::{IoSlice, Write, pipe};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use towpath_content::Ticket;
use towpath_content::ticket::Terms;

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
const STATUS: &[u8] = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n";

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
fn the_ticket_has_the_terms_that_were_asked_for() {
    let daemon = Daemon::start();
    let file = File::open(daemon.file("a file", b"all")).unwrap();
    let (reader, writer) = pipe().unwrap();
    drop(writer);
    let terms = |reply: Reply| ticket(&reply.with(200).json()).parse::<Ticket>().unwrap().terms;
    let expected = Terms { expires: Some(1 << 40), no_swarm: true };
    for descriptor in [file.as_fd(), reader.as_fd()] {
        let mut connection = daemon.connect();
        let query = "/v1/put-descriptor?no_swarm=true&expires=1099511627776";
        let head = format!("POST {query} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        pass(&mut connection, head.as_bytes(), &[descriptor]);
        assert_eq!(terms(connection.reply()), expected);
    }
    let request = serde_json::json!({ "no_swarm": true, "expires": 1_u64 << 40 });
    assert_eq!(terms(daemon.call("POST", "/v1/puts", Some(request))), expected);
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
fn chunks_end_where_its_application_says() {
    let daemon = Daemon::start();
    let all = pattern(3, 500_000);
    let request = |body: &str| {
        let head = "POST /v1/put-descriptor HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
        format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let put = |descriptor: BorrowedFd<'_>, body: &str| {
        let mut connection = daemon.connect();
        pass(&mut connection, &request(body), &[descriptor]);
        connection.reply()
    };
    let lengths = |reply: Reply| {
        let oid = reply.with(200).json()["oid"].as_str().unwrap().to_owned();
        let lines = daemon.call("GET", &format!("/v1/objects/{oid}/recipe"), None).with(200).events();
        lines.iter().map(|line| line["len"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let path = daemon.file("a file", &all);
    let file = File::open(&path).unwrap();
    let given = r#"{"boundaries":[10,300000]}"#;
    assert_eq!(lengths(put(file.as_fd(), given)), [10, 299_990, 200_000]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(lengths(put(file.as_fd(), r#"{"boundaries":[20,500000]}"#)), [20, 499_980], "without a name");
    let piped = |bytes: &[u8], body| {
        let (reader, mut writer) = pipe().unwrap();
        let bytes = bytes.to_vec();
        let writing = std::thread::spawn(move || writer.write_all(&bytes));
        let reply = put(reader.as_fd(), body);
        drop(reader);
        let _ = writing.join().unwrap();
        reply
    };
    assert_eq!(lengths(piped(&all[1..], given)), [10, 299_990, 199_999]);
    assert_eq!(lengths(piped(&all[..100], given)), [10, 90], "behind its end is nothing");
    for (wrong, why) in [(r#"{"boundaries":[9,9]}"#, "ascend"), (r#"{"boundaries":[600000]}"#, "outside")] {
        let said = put(file.as_fd(), wrong).with(400).json();
        assert!(said["detail"].as_str().unwrap().contains(why), "{said}");
    }
    put(file.as_fd(), "no json").with(400);
}

#[test]
fn the_head_may_come_in_pieces_after_the_first_byte() {
    let daemon = Daemon::start();
    let file = File::open(daemon.file("a file", b"some words")).unwrap();
    let mut connection = daemon.connect();
    // No read goes on behind bytes that came with a descriptor, so that the first one is of one byte.
    pass(&mut connection, &REQUEST[..1], &[file.as_fd()]);
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
    connection.send(STATUS);
    connection.reply().with(200);
    pass(&mut connection, REQUEST, &[file.as_fd()]);
    connection.reply().with(400);
    let mut connection = daemon.connect();
    pass(&mut connection, STATUS, &[file.as_fd()]);
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
