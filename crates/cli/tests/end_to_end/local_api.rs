//! The local API with real programs at both ends: the guide's examples, an application that is
//! killed, and memory that does not grow with a stream.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::environment::{Machine, PATIENCE, TestEnvironment, first_line};
use crate::machinery::tool;
use crate::runner::situations;
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
    let output = machine.path("session");
    let mut command = Command::new("curl");
    command.args(["--silent", "--no-buffer", "--max-time", "60", "--request", "POST", "--unix-socket"]);
    command.arg(machine.home("run/tow.sock")).arg("http://tow/v1/sessions");
    let application = Application(command.stdout(fs::File::create(&output).unwrap()).spawn().unwrap());
    let start = Instant::now();
    loop {
        if let Some(line) = first_line(&fs::read(&output).unwrap()) {
            let event: serde_json::Value = serde_json::from_str(&line).unwrap();
            return (application, event["session"].as_str().unwrap().into());
        }
        assert!(start.elapsed() < PATIENCE, "no session");
        std::thread::sleep(Duration::from_millis(10));
    }
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
        assert!(start.elapsed() < PATIENCE, "its lease did not end");
    }
    assert!(path.exists(), "the file itself stays");
}

/// More than the limit on memory, live all the way.
fn a_stream_through_two_daemons_needs_little_memory() {
    const LIMIT: u64 = 128 << 20;
    const SIZE: usize = 320 << 20;
    let env = TestEnvironment::new();
    let (sending, receiving) = (env.sender.daemon(), env.receiver.daemon());
    let (reader, mut producer) = std::io::pipe().unwrap();
    let mut put = env.sender.tow(["put", "-"]).input(reader).start();
    let get = env.receiver.tow(["get", &put.ticket(), "-o", "-"]).start();
    let part = bytes(1, 1 << 20);
    for _ in 0..SIZE / part.len() {
        producer.write_all(&part).unwrap();
    }
    drop(producer);
    let ended = get.end().with(0);
    assert!(ended.out.len() == SIZE && ended.out.chunks(part.len()).all(|chunk| chunk == part));
    put.end().with(0);
    for (daemon, who) in [(&sending, "sender"), (&receiving, "receiver")] {
        let peak = daemon.peak_memory();
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
