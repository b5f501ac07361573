//! Faults of requests are told as problem details.

use serde_json::json;

use crate::client::{Connection, Reply};
use crate::world::{Daemon, eventually};

/// It is a problem of this status and kind.
fn assert_problem(reply: &Reply, status: u16, kind: &str) {
    assert_eq!(reply.head.status, status, "{reply:?}");
    assert_eq!(reply.head.field("content-type"), Some("application/problem+json"));
    let problem = reply.json();
    assert_eq!((&problem["status"], &problem["kind"]), (&status.into(), &kind.into()), "{problem}");
    assert_eq!(problem["type"], format!("urn:towpath:problem:{kind}"));
    assert!(
        !problem["title"].as_str().unwrap().is_empty() && !problem["detail"].as_str().unwrap().is_empty()
    );
}

#[test]
fn every_error_is_a_problem() {
    let daemon = Daemon::start();
    let object = |value| Some(value);
    let cases = [
        ("GET", "/v2/status", None, 404, "not_found"),
        ("GET", "/", None, 404, "not_found"),
        ("DELETE", "/v1/status", None, 405, "usage"),
        ("POST", "/v1/put", None, 415, "usage"),
        ("POST", "/v1/put", object(json!({ "way": "/x" })), 400, "usage"),
        ("POST", "/v1/put", object(json!({ "path": "/nowhere at all" })), 404, "not_found"),
        ("POST", "/v1/put", object(json!({ "path": "/etc/hostname", "session": "12" })), 404, "not_found"),
        ("POST", "/v1/done", object(json!("nonsense")), 400, "usage"),
        ("POST", "/v1/done", object(json!("x".repeat(300_000))), 413, "usage"),
        ("GET", "/v1/objects?cached=perhaps", None, 400, "usage"),
        ("GET", "/v1/content", None, 400, "usage"),
        ("GET", "/v1/content?ticket=nonsense", None, 400, "usage"),
        ("GET", "/v1/chunks?ticket=nonsense", None, 400, "usage"),
        ("GET", "/v1/puts/nonsense", None, 400, "usage"),
        ("POST", "/v1/puts", object(json!({ "name": "../x" })), 400, "usage"),
        ("POST", "/v1/puts", object(json!({ "expires": 1 })), 400, "usage"),
        ("POST", "/v1/put-stream?expires=1", None, 400, "usage"),
        ("POST", "/v1/put-stream?no_swarm=perhaps", None, 400, "usage"),
        ("POST", "/v1/put-descriptor", None, 400, "usage"),
    ];
    for (method, path, body, status, kind) in cases {
        let reply = daemon.call(method, path, body);
        assert_problem(&reply, status, kind);
    }
    let mut connection = daemon.connect();
    connection.request("POST", "/v1/put", &[("Content-Type", "application/json")], b"{\"path\":");
    assert_problem(&connection.reply(), 400, "usage");
}

#[test]
fn an_unknown_oid_is_not_found() {
    let daemon = Daemon::start();
    let (_, oid) = Daemon::start().put(b"elsewhere");
    assert_problem(&daemon.call("GET", &format!("/v1/content?ticket={oid}"), None), 404, "not_found");
}

#[test]
fn garbage_and_half_requests_cost_only_themselves() {
    let daemon = Daemon::start();
    let mut stalled: Vec<Connection> = (0..50).map(|_| daemon.connect()).collect();
    stalled.iter_mut().for_each(|connection| connection.send(b"POST /v1/put HTTP/1.1\r\nHos"));
    let mut half = daemon.connect();
    half.send(b"POST /v1/done HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n\"");
    let mut garbage = daemon.connect();
    garbage.send(&[0xff; 4096]);
    let _ = garbage.head();
    let mut long = daemon.connect();
    long.send(format!("GET /v1/status HTTP/1.1\r\nX: {}\r\n", "y".repeat(60_000)).as_bytes());
    assert_eq!(long.head().map(|head| head.status).unwrap_or(431), 431);
    daemon.status();
}

#[test]
fn a_connection_that_is_dropped_ends_its_put() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect();
    connection
        .send(b"POST /v1/put-stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    assert_eq!(connection.head().unwrap().status, 200);
    assert_eq!(connection.event().unwrap()["event"], "ticket");
    eventually("the put is open", || daemon.status()["open_puts"] == 1);
    drop(connection);
    eventually("the put is given up", || daemon.status()["open_puts"] == 0);
    assert_eq!(daemon.status()["objects"], 0);
}
