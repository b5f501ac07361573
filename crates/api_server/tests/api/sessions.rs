//! Fate sharing: what is put under a session ends with its application.

use serde_json::{Value, json};

use crate::client::Connection;
use crate::world::{Daemon, eventually, pattern};

fn session(daemon: &Daemon) -> (Connection, String) {
    let mut connection = daemon.connect();
    connection.request("POST", "/v1/sessions", &[], b"");
    assert_eq!(connection.head().unwrap().status, 200);
    let first = connection.event().unwrap();
    assert_eq!(first["event"], "session");
    (connection, first["session"].as_str().unwrap().into())
}

fn objects(daemon: &Daemon) -> Vec<Value> {
    daemon.call("GET", "/v1/objects", None).with(200).json().as_array().unwrap().clone()
}

#[test]
fn the_end_of_a_connection_ends_what_it_held_and_nothing_else() {
    let daemon = Daemon::start();
    let file = daemon.file("a file", &pattern(1, 300_000));
    let (connection, name) = session(&daemon);
    let put = |session: Option<&str>| {
        let request = json!({ "path": file, "session": session });
        daemon.call("POST", "/v1/put", Some(request)).with(200).json()["ticket"].as_str().unwrap().to_owned()
    };
    let pinned = put(None);
    let held = put(Some(&name));
    assert_ne!(pinned, held, "each holder has a ticket of its own");
    assert_eq!((put(None), put(Some(&name))), (pinned.clone(), held.clone()), "the same again");
    let stream = format!("/v1/put-stream?session={name}");
    let mut streaming = daemon.connect();
    streaming.request("POST", &stream, &[], b"some words");
    streaming.reply().with(200);
    daemon.call("POST", "/v1/puts", Some(json!({ "session": name }))).with(200);
    let held_by = |kind: &str| objects(&daemon).iter().filter(|object| object["held"] == kind).count();
    assert_eq!((held_by("pinned"), held_by("session")), (1, 2));
    assert_eq!((&daemon.status()["open_puts"], &daemon.status()["sessions"]), (&1.into(), &1.into()));
    drop(connection);
    eventually("its leases end", || held_by("session") == 0 && daemon.status()["open_puts"] == 0);
    assert_eq!(held_by("pinned"), 1);
    assert_eq!(objects(&daemon)[0]["ticket"], pinned.as_str());
    let late = json!({ "path": file, "session": name });
    daemon.call("POST", "/v1/put", Some(late)).with(404);
    let receiver = Daemon::start();
    assert!(receiver.content(&pinned).with(200).body == pattern(1, 300_000));
}

#[test]
fn one_put_of_a_session_can_end_before_it() {
    let daemon = Daemon::start();
    let (_connection, name) = session(&daemon);
    let file = daemon.file("a file", b"some words");
    let request = json!({ "path": file, "session": name });
    let ticket = daemon.call("POST", "/v1/put", Some(request)).with(200).json()["ticket"].clone();
    daemon.call("POST", "/v1/done", Some(ticket)).with(200);
    assert!(objects(&daemon).is_empty());
    assert_eq!(daemon.status()["sessions"], 1);
}

#[test]
fn a_session_of_a_daemon_that_ended_holds_nothing_after_its_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, keep) = (dir.path().join("a file"), dir.path().to_path_buf());
    let daemon = Daemon::within(dir);
    std::fs::write(&path, b"some words").unwrap();
    let (connection, name) = session(&daemon);
    daemon.call("POST", "/v1/put", Some(json!({ "path": path, "session": name }))).with(200);
    let copy = tempfile::tempdir().unwrap();
    // As a crash leaves it: the connection is not there to end the lease.
    let copied = std::process::Command::new("cp").arg("-a").arg(&keep).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    drop((connection, daemon));
    let crashed = copy.path().join(keep.file_name().unwrap());
    let dir = tempfile::tempdir().unwrap();
    std::fs::rename(&crashed, dir.path().join("home")).unwrap();
    let again = Daemon::at(dir, "home");
    assert!(objects(&again).is_empty());
}

#[test]
fn the_trait_is_the_same_in_process_and_over_the_socket() {
    use towpath_api::{Api, Client, ContentRequest, ErrorKind, ListRequest, OpenPutRequest};
    use towpath_service::InProcess;
    let daemon = Daemon::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::connect(&daemon.socket).await.unwrap();
        let apis: [Box<dyn Api>; 2] = [Box::new(client), Box::new(InProcess(daemon.service.clone()))];
        for api in apis {
            let mut events = api.events().await.unwrap();
            let session = api.session().await.unwrap();
            let name = Some(session.id.clone());
            let put =
                api.open_put(OpenPutRequest { session: name, ..OpenPutRequest::default() }).await.unwrap();
            let part = api.put_part(put.oid.clone(), 0, Box::new(&b"some words"[..])).await.unwrap();
            assert_eq!(part.size, 10);
            let gap = api.put_part(put.oid.clone(), 11, Box::new(&b"more"[..])).await.unwrap_err();
            assert_eq!(gap.kind, ErrorKind::Usage);
            let done = api.commit_put(put.oid.clone()).await.unwrap();
            let request = ContentRequest { ticket: put.ticket.clone(), ..ContentRequest::default() };
            let mut content = api.content(request).await.unwrap();
            let mut bytes = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut content.bytes, &mut bytes).await.unwrap();
            assert_eq!((&bytes[..], content.oid), (&b"some words"[..], Some(done.oid.clone())));
            let event = events.recv().await.unwrap();
            assert_eq!((&event.direction[..], &event.oid), ("put", &put.oid));
            let listed = api.list(ListRequest::default()).await.unwrap();
            // A small object that is complete is in its ticket.
            assert!(done.ticket.len() > put.ticket.len());
            assert_eq!((listed.len(), listed[0].ticket.as_ref()), (1, Some(&done.ticket)));
            drop(session);
            let list = || runtime.handle().block_on(api.list(ListRequest::default()));
            tokio::task::block_in_place(|| eventually("it is gone", || list().unwrap().is_empty()));
        }
    });
}
