//! Many local clients at once: all are served, or told that there are too many.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Connection, call};
use crate::world::{Daemon, pattern};

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
                    assert!(receiver.call("GET", path, None).with(200).body == *all);
                    return;
                }
                let mine = pattern(number, 1000);
                let put = || {
                    let mut connection = receiver.connect();
                    connection.request("POST", "/v1/put-stream", &[], &mine);
                    connection.reply()
                };
                let mut reply = put();
                // There may be more than the limit at once: it comes again, as it is told to.
                while reply.head.status == 503 {
                    thread::sleep(Duration::from_millis(100));
                    reply = put();
                }
                assert_eq!(reply.with(200).events().last().unwrap()["bytes"], 1000);
            };
            thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work).unwrap();
        }
    });
    assert_eq!(receiver.status()["objects"], 500);
    println!("1000 clients in {:?}", start.elapsed());
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
    crate::world::eventually("there is room again", || {
        call(&daemon.socket, "GET", "/v1/status", None).head.status == 200
    });
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}
