//! Many local clients at once: all are served, or told that there are too many.

use std::thread;
use std::time::{Duration, Instant};

use towpath_config::Count;

use crate::client::{Connection, Reply, call};
use crate::world::{Daemon, eventually, pattern, within};

#[test]
fn a_thousand_clients_at_once_are_served() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(1, 400_000);
    let (ticket, _) = sender.put(&all);
    let start = Instant::now();
    let path = format!("/v1/content?ticket={ticket}");
    thread::scope(|scope| {
        for number in 0..1000 {
            let (receiver, path, all) = (&receiver, &path, &all);
            let work = move || {
                if number % 2 == 0 {
                    let reply = served(receiver, "GET", path, &[]);
                    assert!(reply.body == *all);
                    return;
                }
                let reply = served(receiver, "POST", "/v1/put-stream", &pattern(number, 1000));
                assert_eq!(reply.events().last().unwrap()["bytes"], 1000);
            };
            thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work).unwrap();
        }
    });
    assert_eq!(receiver.status()["objects"], 500);
    println!("1000 clients in {:?}", start.elapsed());
}

#[test]
fn who_waits_for_the_bytes_of_another_keeps_no_connection_to_the_sender() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    sender.limit(|limits| {
        limits.connections_per_address = Count(2);
        limits.connections_per_node = Count(2);
    });
    // From the second object on each client asks the sender first whether it is what the receiver keeps.
    for seed in 1..4 {
        let all = pattern(seed, 400_000);
        let (ticket, _) = sender.put(&all);
        let path = format!("/v1/content?ticket={ticket}");
        thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| assert!(served(&receiver, "GET", &path, &[]).body == all));
            }
        });
    }
}

/// The reply to a client that comes again as long as it is told that there are more than the limit at once.
fn served(daemon: &Daemon, method: &str, path: &str, body: &[u8]) -> Reply {
    let mut served = None;
    within(Duration::from_secs(120), "there is room", || {
        let mut connection = daemon.connect();
        connection.request(method, path, &[], body);
        let reply = connection.reply();
        if reply.head.status == 503 {
            assert_eq!(reply.head.field("retry-after"), Some("1"));
            return false;
        }
        served = Some(reply.with(200));
        true
    });
    served.unwrap()
}

#[test]
fn one_too_many_is_told_so() {
    let daemon = Daemon::start();
    raise_descriptor_limit();
    let idle: Vec<_> = (0..2048).map(|_| Connection::open(&daemon.socket)).collect();
    let reply = call(&daemon.socket, "GET", "/v1/status", None).with(503);
    assert_eq!(reply.json()["kind"], "busy");
    assert_eq!(reply.head.field("retry-after"), Some("1"));
    drop(idle);
    eventually("there is room again", || call(&daemon.socket, "GET", "/v1/status", None).head.status == 200);
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}
