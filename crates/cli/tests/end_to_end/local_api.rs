//! The local API with real programs at both ends: the guide's examples, an application that is
//! killed, and memory that does not grow with a stream.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::environment::{Machine, TestEnvironment, WAIT_LIMIT, first_line};
use crate::local_client::LocalClient;
use crate::machinery::tool;
use crate::runner::{say, situations};
use crate::trees::{bytes, file};

situations![
    the_examples_of_the_guide_work,
    a_killed_application_takes_its_puts_along,
    a_stream_through_two_daemons_needs_little_memory,
    what_went_to_standard_output_is_cached_by_the_daemon,
    the_cache_is_listed_and_collected,
];

/// The examples of a page: what stands between ```sh and ```.
fn examples(page: &str) -> String {
    let blocks = page.split("\n```sh\n").skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Runs a script on a machine, where `$socket` is the daemon's.
fn run(machine: &Machine, script: &str) -> (bool, String) {
    let mut command = Command::new("timeout");
    command.args(["60", "bash", "-c", &format!("set -euxo pipefail\n{script}")]);
    command.current_dir(machine.path("")).env("socket", machine.home("run/tow.sock"));
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let text = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (ended.status.success(), text.join("\n"))
}

fn the_examples_of_the_guide_work() {
    tool("curl");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/local-api.md");
    let script = examples(&fs::read_to_string(page).unwrap());
    assert!(script.matches("call ").count() > 10, "the examples were not found");
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    let (is_good, said) = run(&env.sender, &script);
    assert!(is_good, "{said}");
}

/// A program that is killed when dropped.
struct Application(Child);

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that holds a session; returns the session's name.
fn application(machine: &Machine) -> (Application, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--no-buffer", "--max-time", "60", "--request", "POST", "--unix-socket"]);
    command.arg(machine.home("run/tow.sock")).arg("http://tow/v1/sessions");
    let mut application = Application(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(application.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    let session = event["session"].as_str().unwrap().into();
    (application, session)
}

fn a_killed_application_takes_its_puts_along() {
    tool("curl");
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    file(&env.sender.path("single"), 1, 70_000);
    let (application, session) = application(&env.sender);
    let path = env.sender.path("single");
    let request = serde_json::json!({ "path": path, "session": session });
    let put = format!(
        "curl --silent --unix-socket $socket --header 'Content-Type: application/json' --data '{request}' http://tow/v1/put"
    );
    let (is_good, said) = run(&env.sender, &put);
    assert!(is_good && said.contains("tow:"), "{said}");
    let listed = || env.sender.tow(["ls", "--json"]).end().with(0).events();
    assert_eq!(listed()[0]["held"], "session");
    drop(application);
    let start = Instant::now();
    while !listed().is_empty() {
        assert!(start.elapsed() < WAIT_LIMIT, "its lease did not end");
    }
    assert!(path.exists(), "the file itself stays");
}

/// Live all the way, and more than the limit on memory: `TOW_TEST_STREAM_MIB` MiB (default 320).
fn a_stream_through_two_daemons_needs_little_memory() {
    const LIMIT: u64 = 128 << 20;
    let size = std::env::var("TOW_TEST_STREAM_MIB").ok().and_then(|text| text.parse().ok());
    let parts: usize = size.unwrap_or(320);
    let env = TestEnvironment::new();
    let (sending, receiving) = (env.sender.daemon(), env.receiver.daemon());
    let (sender, receiver) = (LocalClient::of(&env.sender), LocalClient::of(&env.receiver));
    let put = sender.json("POST /v1/puts", &serde_json::json!({})).unwrap();
    // Each part is another one, and cheap to make.
    let noise = bytes(1, 2 << 20);
    let part = |number: usize| &noise[number * 4099 % (1 << 20)..][..1 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let path = format!("POST /v1/puts/{}", put["oid"].as_str().unwrap());
            for number in 0..parts {
                sender.send(&format!("{path}/data?offset={}", number << 20), part(number)).unwrap();
            }
            sender.send(&format!("{path}/commit"), b"").unwrap();
        });
        let mut got = receiver.content(put["ticket"].as_str().unwrap(), 60).unwrap();
        let mut buffer = vec![0; 1 << 20];
        for number in 0..parts {
            got.read_exact(&mut buffer).unwrap();
            assert!(buffer == part(number), "other bytes in part {number}");
        }
        assert_eq!(got.read(&mut buffer).unwrap(), 0, "more than was put");
    });
    for (daemon, who) in [(&sending, "sender"), (&receiving, "receiver")] {
        let peak = daemon.peak_memory();
        say(&format!("{parts} MiB took {} MiB of memory at the {who}", peak >> 20));
        assert!(peak < LIMIT, "the {who}'s daemon took {} MiB", peak >> 20);
    }
}

fn what_went_to_standard_output_is_cached_by_the_daemon() {
    let env = TestEnvironment::new();
    let (sending, _receiving) = (env.sender.daemon(), env.receiver.daemon());
    file(&env.sender.path("single"), 1, 3 << 20);
    let ticket = first_line(&env.sender.tow(["put", "single"]).end().with(0).out).unwrap();
    let first = env.receiver.tow(["get", &ticket, "-o", "-"]).end().with(0).out;
    drop(sending);
    let again = env.receiver.tow(["get", "--timeout", "3", &ticket, "-o", "-"]).end().with(0).out;
    assert!(first == again && first == fs::read(env.sender.path("single")).unwrap());
}

fn the_cache_is_listed_and_collected() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    let put = env.sender.tow(["put", "-"]).input_text("some words").end().with(0);
    let ticket = first_line(&put.out).unwrap();
    env.sender.tow(["done", &ticket]).end().with(0);
    assert!(env.sender.tow(["ls", "--json"]).end().with(0).events().is_empty());
    let cached = env.sender.tow(["ls", "--cached", "--json"]).end().with(0).events();
    assert_eq!((&cached[0]["size"], &cached[0]["held"]), (&10.into(), &"cached".into()));
    assert!(env.sender.tow(["ls", "--cached"]).end().with(0).text().contains("(cached)"));
    let removed = env.sender.tow(["gc", "--all", "--json"]).end().with(0).events();
    assert_eq!((&removed[0]["objects"], &removed[0]["bytes"]), (&1.into(), &10.into()));
    assert!(env.sender.tow(["ls", "--cached", "--json"]).end().with(0).events().is_empty());
    let said = env.sender.tow(["gc"]).end().with(0).text();
    assert!(said.contains("0 cached objects"), "{said}");
}
