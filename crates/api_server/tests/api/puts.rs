//! Puts in parts: the ticket first, parts that may be sent again, and an end that may be said again.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use towpath_config::Count;
use towpath_config::Home;
use towpath_content::Oid;
use towpath_content::ticket::Secret;
use towpath_content::tree::{Encoder, Entry, Event, Kind, Metadata};
use towpath_store::{About, DiskStore, Holder, Lease, Leases};

use crate::client::Reply;
use crate::world::{Daemon, eventually, pattern};

fn open(daemon: &Daemon, request: Value) -> (String, String) {
    let reply = daemon.call("POST", "/v1/puts", Some(request)).with(200).json();
    (reply["oid"].as_str().unwrap().into(), reply["ticket"].as_str().unwrap().into())
}

fn send(daemon: &Daemon, id: &str, offset: usize, bytes: &[u8]) -> Reply {
    let mut connection = daemon.connect();
    connection.request("POST", &format!("/v1/puts/{id}/data?offset={offset}"), &[], bytes);
    connection.reply()
}

#[test]
fn a_part_that_is_sent_again_adds_nothing_and_a_gap_is_refused() {
    let daemon = Daemon::start();
    let all = pattern(1, 700_000);
    let (id, _) = open(&daemon, json!({ "name": "numbers" }));
    assert_eq!(send(&daemon, &id, 0, &all[..300_000]).with(200).json()["size"], 300_000);
    assert_eq!(send(&daemon, &id, 0, &all[..300_000]).with(200).json()["size"], 300_000, "the same again");
    let gap = send(&daemon, &id, 400_000, &all[400_000..]).with(400).json();
    assert!(gap["detail"].as_str().unwrap().contains("gap"), "{gap}");
    // As after a connection that was lost in the middle of a part.
    assert_eq!(send(&daemon, &id, 200_000, &all[200_000..]).with(200).json()["size"], 700_000);
    assert_eq!(daemon.call("GET", &format!("/v1/puts/{id}"), None).with(200).json()["size"], 700_000);
    let commit = format!("/v1/puts/{id}/commit");
    let first = daemon.call("POST", &commit, None).with(200).json();
    let again = daemon.call("POST", &commit, None).with(200).json();
    assert_eq!(first, again, "an answer that was lost can be asked for again");
    assert_eq!(first["size"], 700_000);
    assert!(daemon.content(first["oid"].as_str().unwrap()).with(200).body == all);
    assert_eq!(send(&daemon, &id, 700_000, b"more").with(404).json()["kind"], "not_found");
}

#[test]
fn a_receiver_follows_a_put_in_parts_from_its_ticket_on() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(2, 1_500_000);
    let (id, ticket) = open(&sender, json!({}));
    let mut following = receiver.connect();
    let body = json!({ "ticket": ticket }).to_string();
    following.request("POST", "/v1/content", &[("Content-Type", "application/json")], body.as_bytes());
    let head = following.head().unwrap();
    assert_eq!((head.status, head.field("content-length")), (200, None), "its end is not known yet");
    send(&sender, &id, 0, &all[..800_000]).with(200);
    let mut got = following.part().unwrap().expect("comes while more is to come");
    send(&sender, &id, 800_000, &all[800_000..]).with(200);
    sender.call("POST", &format!("/v1/puts/{id}/commit"), None).with(200);
    got.extend(following.body(&head).unwrap());
    assert!(got == all);
}

#[test]
fn who_follows_a_put_that_is_given_up_cannot_miss_it() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let (id, ticket) = open(&sender, json!({}));
    send(&sender, &id, 0, &pattern(3, 600_000)).with(200);
    let paths = ["content", "chunks"].map(|call| format!("/v1/{call}?ticket={ticket}&timeout=3"));
    let mut following = paths.map(|path| {
        let mut following = receiver.connect();
        following.request("GET", &path, &[], b"");
        let head = following.head().unwrap();
        following.part().unwrap().expect("something came");
        (following, head)
    });
    sender.call("DELETE", &format!("/v1/puts/{id}"), None).with(200);
    for (following, head) in &mut following {
        assert!(following.body(head).is_err(), "the answer ended as a whole one does");
    }
    assert_eq!(sender.call("DELETE", &format!("/v1/puts/{id}"), None).with(404).json()["kind"], "not_found");
}

/// Ends of an object's chunks.
fn ends(daemon: &Daemon, oid: &str) -> Vec<u64> {
    let lines = daemon.call("GET", &format!("/v1/objects/{oid}/recipe"), None).with(200).events();
    let end = |line: &Value| {
        line["offset"].as_u64().unwrap() + line["len"].as_u64().unwrap() * line["count"].as_u64().unwrap()
    };
    lines.iter().map(end).collect()
}

#[test]
fn a_file_that_is_put_by_name_is_cut_where_its_application_says() {
    let daemon = Daemon::start();
    let small = daemon.file("small", &pattern(11, 10_000));
    let put = |path: &std::path::Path, boundaries: Value| {
        daemon.call("POST", "/v1/put", Some(json!({ "path": path, "boundaries": boundaries })))
    };
    let oid = |reply: Reply| reply.with(200).json()["oid"].as_str().unwrap().to_owned();
    assert_eq!(ends(&daemon, &oid(put(&small, json!([100, 4000])))), [100, 4000, 10_000]);
    assert_eq!(ends(&daemon, &oid(put(&small, json!([5, 10_000])))), [5, 10_000], "what was said last");
    assert_eq!(ends(&daemon, &oid(put(&small, json!([])))), [5, 10_000], "nothing was said");
    let large = daemon.file("large", &pattern(12, (65 << 20) + 3));
    let live = oid(put(&large, json!([1_000_000])));
    assert!(live.starts_with("live:"), "it is still being read");
    eventually("it is read and cut", || {
        let reply = daemon.call("GET", &format!("/v1/objects/{live}/recipe"), None);
        reply.head.status == 200 && reply.events()[0]["len"] == 1_000_000
    });
    let too_many: Vec<u64> = (1..=16_385).collect();
    for (wrong, why) in [
        (json!([0]), "ascend"),
        (json!([7, 7]), "ascend"),
        (json!([7, 3]), "ascend"),
        (json!([10_001]), "outside of the file"),
        (json!(too_many), "too many"),
        (json!([-1]), "the body is wrong"),
        (json!("x"), "the body is wrong"),
    ] {
        let said = put(&small, wrong).with(400).json();
        assert!(said["detail"].as_str().unwrap().contains(why), "{said}");
    }
    let said = put(daemon.dir.path(), json!([1])).with(400).json();
    assert!(said["detail"].as_str().unwrap().contains("tree"), "{said}");
}

#[test]
fn where_a_put_wants_its_chunks_outlives_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::under(dir.path());
    let bytes = [pattern(14, 20_000), pattern(15, 20_000), pattern(16, 500)];
    // As a daemon leaves them that is killed: one while it reads the file, one before it cuts what it
    // read, one of a file that is shorter when the next one looks.
    let store = DiskStore::open(home.state(), home.data()).unwrap();
    let names = [1, 2, 3].map(|number| Oid::Live([number; 32]));
    for (name, bytes) in names.iter().zip(&bytes) {
        let path = dir.path().join(format!("file {}", bytes.len() + usize::from(name.digest()[0])));
        std::fs::write(&path, bytes).unwrap();
        let (secret, about) = (Secret([1; 16]).into(), About::default());
        let (oid, content, size, holder) = (*name, None, None, Holder::Pinned);
        let path = Some(path.canonicalize().unwrap());
        store.lease(&Lease { oid, content, size, secret, path, about, created: 1, holder }).unwrap();
        store.lease_table().note_boundaries(name, &[100, 7000]).unwrap();
    }
    let read = dir.path().join(format!("file {}", 20_002)).canonicalize().unwrap();
    store.put_file(&read, Some(&names[1]), &About::default()).unwrap();
    drop(store);

    let daemon = Daemon::within(dir);
    daemon.resume();
    for bytes in &bytes[..2] {
        let oid = Oid::of(bytes).to_string();
        let recipe = || daemon.call("GET", &format!("/v1/objects/{oid}/recipe"), None);
        eventually("it is cut", || recipe().head.status == 200 && ends(&daemon, &oid) == [100, 7000, 20_000]);
    }
    let short = Oid::of(&bytes[2]).to_string();
    eventually("it is read", || {
        daemon.call("GET", &format!("/v1/objects/{short}/recipe"), None).head.status == 200
    });
    assert_eq!(ends(&daemon, &short), [500]);
}

#[test]
fn a_tree_that_was_put_by_name_has_a_size_in_the_list() {
    let daemon = Daemon::start();
    let tree = daemon.dir.path().join("tree");
    std::fs::create_dir_all(tree.join("inner")).unwrap();
    std::fs::write(tree.join("a"), pattern(1, 300_000)).unwrap();
    std::fs::write(tree.join("inner/b"), pattern(2, 7)).unwrap();
    let sizes = || {
        let objects = daemon.call("GET", "/v1/objects", None).with(200).json();
        objects.as_array().unwrap().iter().map(|object| object["size"].clone()).collect::<Vec<_>>()
    };
    let put = || daemon.call("POST", "/v1/put", Some(json!({ "path": tree }))).with(200);
    put();
    eventually("it is read", || sizes() == [300_007]);
    put();
    assert_eq!(sizes(), [300_007], "put again");
}

#[test]
fn an_application_can_describe_a_tree_itself() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let content = pattern(13, 300_000);
    sender.put(&content);
    let file = Entry {
        kind: Kind::File { size: 300_000, oid: Some(Oid::of(&content)), extents: None },
        ..entry("a file")
    };
    let mut encoder = Encoder::new(false);
    for event in [Event::Enter(entry("")), Event::Leaf(file), Event::Leave] {
        encoder.push(&event).unwrap();
    }
    let descriptor = encoder.finish().unwrap();
    let (id, ticket) = open(&sender, json!({ "kind": "tree", "name": "described" }));
    let (front, rest) = descriptor.split_at(descriptor.len() / 2);
    send(&sender, &id, 0, front).with(200);
    send(&sender, &id, front.len(), rest).with(200);
    let commit = sender.call("POST", &format!("/v1/puts/{id}/commit"), None).with(200).json();
    assert_eq!(commit["size"], 300_000, "of its files");
    let objects = sender.call("GET", "/v1/objects", None).json();
    assert!(objects.as_array().unwrap().iter().any(|object| object["kind"] == "tree"), "{objects}");
    let out = receiver.dir.path().join("out");
    let request = json!({ "ticket": ticket, "output": out, "directory": "/" });
    let events = receiver.call("POST", "/v1/get", Some(request)).with(200).events();
    assert_eq!(events.last().unwrap()["event"], "summary", "{events:?}");
    assert!(std::fs::read(out.join("a file")).unwrap() == content);
}

fn entry(name: &str) -> Entry {
    let metadata = Metadata { mode: 0o755, ..Metadata::default() };
    Entry { name: name.into(), kind: Kind::Directory, metadata, hard_link: None }
}

#[test]
fn what_is_no_tree_is_not_committed_as_one() {
    let daemon = Daemon::start();
    for bytes in [&b""[..], b"plain words"] {
        let (id, ticket) = open(&daemon, json!({ "kind": "tree" }));
        send(&daemon, &id, 0, bytes).with(200);
        let commit = format!("/v1/puts/{id}/commit");
        let said = daemon.call("POST", &commit, None).with(400).json();
        assert!(said["detail"].as_str().unwrap().contains("no tree descriptor"), "{said}");
        assert_eq!(daemon.call("POST", &commit, None).with(404).json()["kind"], "not_found");
        let path = format!("/v1/content?ticket={ticket}&timeout=3");
        assert!(daemon.call("GET", &path, None).head.status >= 400);
    }
    assert_eq!((&daemon.status()["open_puts"], &daemon.status()["objects"]), (&0.into(), &0.into()));
    let wrong = daemon.call("POST", "/v1/puts", Some(json!({ "kind": "list" }))).with(400).json();
    assert!(
        wrong["detail"].as_str().unwrap().contains("kind")
            || wrong["detail"].as_str().unwrap().contains("list")
    );
}

#[test]
fn an_empty_put_is_an_object() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let (id, ticket) = open(&sender, json!({}));
    sender.call("POST", &format!("/v1/puts/{id}/commit"), None).with(200);
    assert!(receiver.content(&ticket).with(200).body.is_empty());
}

#[test]
fn a_put_ends_when_its_ticket_is_done() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let (ticket, oid) = sender.put(&pattern(4, 300_000));
    assert_eq!(sender.status()["objects"], 1);
    sender.call("POST", "/v1/done", Some(json!(ticket))).with(200);
    let path = format!("/v1/content?ticket={ticket}&timeout=3");
    assert_eq!(receiver.call("GET", &path, None).head.status, 403, "the ticket's right is gone");
    let cached = sender.call("GET", "/v1/objects?cached=true", None).json();
    assert_eq!((&cached[0]["oid"], &cached[0]["held"]), (&oid.as_str().into(), &"cached".into()));
    let gc = |request| sender.call("POST", "/v1/gc", Some(request)).with(200).json();
    assert_eq!(gc(json!({}))["objects"], 0, "there is room");
    assert_eq!(gc(json!({ "all": true }))["objects"], 1);
    sender.content(&oid).with(404);
}

#[test]
fn two_files_with_the_same_content_have_a_ticket_each() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(7, 300_000);
    let put = |name| {
        let path = sender.file(name, &all);
        let reply = sender.call("POST", "/v1/put", Some(json!({ "path": path }))).with(200).json();
        reply["ticket"].as_str().unwrap().to_owned()
    };
    let tickets = [put("first"), put("second")];
    // Said again, each answers the same.
    assert_eq!(tickets, [put("first"), put("second")]);
    let done = sender.call("POST", "/v1/done", Some(json!(tickets[1])));
    done.with(200);
    let path = format!("/v1/content?ticket={}&timeout=3", tickets[0]);
    assert!(receiver.call("GET", &path, None).with(200).body == all);
    assert_eq!(sender.status()["objects"], 1);
}

#[test]
fn what_is_committed_while_the_cache_is_emptied_stays() {
    let daemon = Daemon::start();
    let is_over = AtomicBool::new(false);
    let tickets: Vec<(u64, String)> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                daemon.call("POST", "/v1/gc", Some(json!({ "all": true }))).with(200);
            }
        });
        let put = |number| {
            let (id, ticket) = open(&daemon, json!({}));
            send(&daemon, &id, 0, &pattern(number, 1000)).with(200);
            daemon.call("POST", &format!("/v1/puts/{id}/commit"), None).with(200);
            (number, ticket)
        };
        let tickets = (0..40).map(put).collect();
        is_over.store(true, Ordering::Relaxed);
        tickets
    });
    for (number, ticket) in tickets {
        let path = format!("/v1/content?ticket={ticket}&timeout=2");
        assert!(daemon.call("GET", &path, None).with(200).body == pattern(number, 1000));
    }
}

#[test]
fn puts_of_every_kind_count_as_transfers_and_an_open_one_comes_to_its_end() {
    let daemon = Daemon::start();
    let small = daemon.file("small", b"few");
    daemon.limit(|limits| limits.transfers = Count(1));
    let (id, _) = open(&daemon, json!({}));
    send(&daemon, &id, 0, b"first ").with(200);
    let by_name = || daemon.call("POST", "/v1/put", Some(json!({ "path": small })));
    let in_parts = || daemon.call("POST", "/v1/puts", Some(json!({})));
    let streamed = || {
        let mut connection = daemon.connect();
        connection.request("POST", "/v1/put-stream", &[], b"bytes");
        connection.reply()
    };
    for refused in [by_name(), in_parts(), streamed(), crate::descriptors::put_file(&daemon, &small)] {
        let problem = refused.with(503).json();
        assert_eq!(problem["kind"], "busy", "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("limits.transfers"), "{problem}");
    }
    send(&daemon, &id, 6, b"last").with(200);
    daemon.call("POST", &format!("/v1/puts/{id}/commit"), None).with(200);
    by_name().with(200);
    eventually("the put by name has ended", || in_parts().head.status == 200);
}

#[test]
fn a_put_that_is_given_up_or_whose_session_ends_leaves_its_place() {
    let daemon = Daemon::start();
    daemon.limit(|limits| limits.transfers = Count(1));
    let (id, _) = open(&daemon, json!({}));
    daemon.call("DELETE", &format!("/v1/puts/{id}"), None).with(200);
    let mut session = daemon.connect();
    session.request("POST", "/v1/sessions", &[], b"");
    assert_eq!(session.head().unwrap().status, 200);
    let name = session.event().unwrap()["session"].as_str().unwrap().to_owned();
    open(&daemon, json!({ "session": name }));
    drop(session);
    eventually("the session's put is given up", || {
        daemon.call("POST", "/v1/puts", Some(json!({}))).head.status == 200
    });
}

#[test]
fn puts_by_name_are_told_of_with_what_was_left_out() {
    let daemon = Daemon::start();
    let mut events = crate::getting::listen(&daemon);
    let tree = daemon.dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), pattern(9, 200_000)).unwrap();
    let secret = tree.join("secret");
    std::fs::write(&secret, "").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let is_readable = std::fs::File::open(&secret).is_ok();
    let put = |path: &std::path::Path| daemon.call("POST", "/v1/put", Some(json!({ "path": path })));
    put(&tree).with(200);
    let mut told = Vec::new();
    while told.last().is_none_or(|event: &Value| event["event"] != "summary") {
        let event = events.event().unwrap();
        assert_eq!(event["direction"], "put", "{event}");
        told.push(event);
    }
    // As root nothing is.
    let left_out: Vec<_> = told.iter().filter(|event| event["event"] == "file_failed").collect();
    assert_eq!(left_out.len(), usize::from(!is_readable), "{told:?}");
    assert!(left_out.iter().all(|event| event["path"] == "secret"), "{told:?}");
    assert_eq!(told[told.len() - 1]["bytes"], 200_000);
    // Large enough for its ticket to come before all is read.
    let large = daemon.file("large", &vec![7; 70 << 20]);
    put(&large).with(200);
    let (mut last, mut progress) = (json!(null), 0);
    while last["event"] != "summary" {
        last = events.event().unwrap();
        progress += u32::from(last["event"] == "transfer" && last["expected"] == 70 << 20);
    }
    assert!(progress > 0 && last["bytes"] == 70 << 20, "{last}");
}

#[test]
fn chunks_end_where_the_application_says_also_if_a_part_is_sent_again() {
    let daemon = Daemon::start();
    let all = pattern(11, 60_000);
    let (id, _) = open(&daemon, json!({}));
    for range in [0..10_000, 0..10_000, 10_000..15_000, 15_000..60_000] {
        let ends_chunk = range.end != 15_000;
        let path = format!("/v1/puts/{id}/data?offset={}&boundary={ends_chunk}", range.start);
        let mut connection = daemon.connect();
        connection.request("POST", &path, &[], &all[range]);
        connection.reply().with(200);
    }
    daemon.call("POST", &format!("/v1/puts/{id}/commit"), None).with(200);
    let recipe = daemon.call("GET", &format!("/v1/objects/{id}/recipe"), None).with(200).events();
    let places: Vec<_> = recipe
        .iter()
        .map(|chunk| (chunk["offset"].as_u64().unwrap(), chunk["len"].as_u64().unwrap()))
        .collect();
    assert_eq!(places, [(0, 10_000), (10_000, 50_000)]);
    assert!(recipe.iter().all(|chunk| chunk["count"] == 1 && chunk["hash"].as_str().unwrap().len() == 64));
}
