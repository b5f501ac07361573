//! A program that stalls or sends garbage at the daemon's socket costs only itself: the others go
//! on, about as fast as without it, and nothing of it is left when it is gone.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::environment::{Running, TestEnvironment, WAIT_LIMIT, soon, until_stopped};
use crate::local_client::LocalClient;
use crate::runner::{say as report, situations};
use crate::trees::bytes;

situations![
    those_who_stall_cost_only_themselves,
    a_thousand_who_stall_keep_nobody_from_reading,
    those_who_send_garbage_cost_only_themselves
];

/// The most that either daemon may take, whoever stalls.
const MEMORY: u64 = 160 << 20;
const OBJECT: u64 = 12 << 20;
/// As long as it may take on a busy machine whatever happens.
const ALLOWANCE: Duration = Duration::from_secs(1);

/// Behaves as a good program does; returns the least time that it took in some tries.
fn behave(daemon: &LocalClient, ticket: &str, object: &[u8]) -> Duration {
    let run = |try_number| {
        let start = Instant::now();
        assert!(daemon.content(ticket, 60).unwrap().ok("content").unwrap() == object);
        daemon.put_parts(&bytes(try_number, 2 << 20), 256 << 10, |_| ()).unwrap();
        for _ in 0..20 {
            daemon.json("GET /v1/status", &Value::Null).unwrap();
        }
        start.elapsed()
    };
    (100..105).map(run).min().unwrap()
}

/// Connections that the daemon has; further files stay open for the next who needs them.
fn sockets(daemon: &Running) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap();
    let targets = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Measures without the bad ones, with them, and looks at what they leave.
fn compare(bad: impl FnOnce(&LocalClient, &str, &dyn Fn())) {
    let env = TestEnvironment::new();
    let running = env.sender.daemon();
    let (daemon, object) = (LocalClient::of(&env.sender), bytes(1, OBJECT));
    let mut ticket = String::new();
    daemon.put_parts(&object, 1 << 20, |opened| ticket = opened.into()).unwrap();
    let alone = behave(&daemon, &ticket, &object);
    let before = sockets(&running);
    bad(&daemon, &ticket, &|| {
        let beside = behave(&daemon, &ticket, &object);
        report(&format!("alone {alone:?}, beside those who are bad {beside:?}"));
        assert!(beside < alone * 4 + ALLOWANCE, "alone {alone:?}, beside those who are bad {beside:?}");
    });
    let status = || daemon.json("GET /v1/status", &Value::Null).unwrap();
    let clean = soon(WAIT_LIMIT, || {
        let status = status();
        let is_clean = ["sessions", "open_puts", "gets"].iter().all(|name| status[name] == 0);
        (is_clean && sockets(&running) <= before).then_some(())
    });
    assert!(clean.is_some(), "{} sockets, before {before}: {}", sockets(&running), status());
    let peak = running.peak_memory();
    assert!((1..MEMORY).contains(&peak), "the daemon took {} MiB", peak >> 20);
}

fn say(daemon: &LocalClient, words: &str) -> UnixStream {
    let mut stream = daemon.connect().unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    stream
}

fn those_who_stall_cost_only_themselves() {
    compare(|daemon, ticket, behave_beside| {
        let kinds = [
            String::new(),
            "GET /v1/sta".into(),
            "POST /v1/put HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{".into(),
            "POST /v1/put-stream HTTP/1.1\r\nHost: tow\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel".into(),
            format!("GET /v1/content?ticket={ticket} HTTP/1.1\r\nHost: tow\r\n\r\n"),
            format!("GET /v1/chunks?ticket={ticket} HTTP/1.1\r\nHost: tow\r\n\r\n"),
            "GET /v1/events HTTP/1.1\r\nHost: tow\r\n\r\n".into(),
            "POST /v1/sessions HTTP/1.1\r\nHost: tow\r\n\r\n".into(),
            // Many requests and no look at their answers.
            "GET /v1/status HTTP/1.1\r\nHost: tow\r\n\r\n".repeat(500),
        ];
        let stalled: Vec<UnixStream> =
            kinds.iter().flat_map(|words| (0..25).map(|_| say(daemon, words))).collect();
        behave_beside();
        drop(stalled);
    });
}

/// They take what content may have in memory, and no more; whoever reads has the rest of it.
fn a_thousand_who_stall_keep_nobody_from_reading() {
    const STALLED: usize = 1000;
    /// The program itself, and what a thousand connections take besides content.
    const BESIDES: u64 = 96 << 20;
    raise_descriptor_limit();
    let env = TestEnvironment::new();
    let running = env.sender.daemon_with("[limits]\ncontent_memory = \"32M\"\n");
    let (daemon, object) = (LocalClient::of(&env.sender), bytes(1, OBJECT));
    let mut ticket = String::new();
    daemon.put_parts(&object, 1 << 20, |opened| ticket = opened.into()).unwrap();
    let stall = |number| {
        let call = if number % 2 == 0 { "content" } else { "chunks" };
        let request = format!("GET /v1/{call}?ticket={ticket} HTTP/1.1\r\nHost: tow\r\n\r\n");
        let mut stream = say(&daemon, &request);
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    };
    let stalled: Vec<UnixStream> = (0..STALLED).map(stall).collect();
    let start = Instant::now();
    thread::scope(|scope| {
        let read = || assert!(daemon.content(&ticket, 60).unwrap().ok("content").unwrap() == object);
        (0..16).for_each(|_| drop(scope.spawn(read)));
    });
    let peak = running.peak_memory();
    report(&format!("16 readers beside {STALLED} that stall: {:?}, {} MiB", start.elapsed(), peak >> 20));
    assert!((1..(32 << 20) + BESIDES).contains(&peak), "the daemon took {} MiB", peak >> 20);
    drop(stalled);
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

fn those_who_send_garbage_cost_only_themselves() {
    compare(|daemon, ticket, behave_beside| {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for seed in 0..6 {
                let stop = &stop;
                scope.spawn(move || send_garbage(daemon, ticket, seed, stop));
            }
            behave_beside();
            stop.store(true, Ordering::Relaxed);
        });
    });
}

fn send_garbage(daemon: &LocalClient, ticket: &str, seed: u64, stop: &AtomicBool) {
    let noise = bytes(seed, 20_000);
    let chunked = "HTTP/1.1\r\nHost: tow\r\nTransfer-Encoding: chunked\r\n\r\n";
    let long = "Content-Length: 18446744073709551615\r\n\r\n";
    let heads = [
        String::new(),
        "GET / HTTP/9.9\r\n".into(),
        format!("POST /v1/put-stream {chunked}ffffffffffffffffff\r\n"),
        format!("POST /v1/put-stream {chunked}zz\r\n"),
        format!("POST /v1/put HTTP/1.1\r\nHost: tow\r\nContent-Type: application/json\r\n{long}"),
        format!("POST /v1/puts/nonsense/data?offset=-1 HTTP/1.1\r\nHost: tow\r\n{long}"),
        format!("GET /v1/content?ticket={ticket} HTTP/1.1\r\nRange: bytes=99999999999999999999-\r\n\r\n"),
        format!("GET /v1/content?ticket={} HTTP/1.1\r\nHost: tow\r\n\r\n", "x".repeat(30_000)),
        format!("GET /v1/status HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(3000)),
    ];
    let mut heads = heads.iter().cycle();
    until_stopped(stop, Duration::from_millis(5), || {
        let head = heads.next().unwrap();
        let mut stream = daemon.connect().unwrap();
        // The daemon may have closed it in the middle.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&noise));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = (&stream).take(1 << 20).read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(
            !text.contains("HTTP/1.1 200") || head.contains("put-stream") || head.contains("Range"),
            "{text}"
        );
    });
}
