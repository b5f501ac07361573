//! kill -9 of a put at each of its writes to this machine's disk and at each of its messages: the folder opens, the version
//! before is whole, and the same put ends well.
//!
//! `TOW_VAULT_KILLS=all` kills at every one; else at some that lie evenly between the first and the last.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use towpath_link::Identity;
use towpath_vault_protocol::{ClientMessage, ServerMessage};

use crate::environment::{Call, Machine, Running, TOW, WAIT_LIMIT, soon};
use crate::lying_server::{Fate, Honest, Liar, LyingServer, RawMessage, raw};
use crate::machinery::tool;
use crate::runner::situations;
use crate::trees::bytes;
use crate::vault::{PASSPHRASE, Vaults, call, find, number, put, told};
use crate::vault_attacks::{keys_of, member, state};

situations![
    a_put_that_is_killed_at_each_of_its_writes_loses_nothing,
    a_put_that_is_killed_at_each_of_its_messages_loses_nothing,
];

/// Calls of the system that change what lies on the disk, all by the thread that puts.
const WRITES: &str = "pwrite64,fsync,fdatasync,rename,ftruncate";
/// Points that are tried if not all are.
const SOME: usize = 6;
/// A kind of message that nobody knows, so it is passed over.
const UNKNOWN: u8 = 200;

/// A machine that puts notes again and again, and dies.
struct Mortal {
    vaults: Vaults,
    machine: Machine,
    id: String,
    content: Vec<u8>,
    puts: u64,
}

impl Mortal {
    fn new() -> Self {
        let vaults = Vaults::new();
        let machine = vaults.env.machine("one");
        let id = vaults.init(&machine);
        let mut mortal = Self { vaults, machine, id, content: bytes(1, 100_000), puts: 0 };
        mortal.edit();
        put(&mortal.machine, "notes");
        mortal
    }

    fn edit(&mut self) {
        self.puts += 1;
        self.content.splice(1000..1500, bytes(self.puts, 5000));
        fs::write(self.machine.path("notes"), &self.content).unwrap();
    }

    fn call(&self, program: &[String]) -> Call {
        self.machine.tow_as(program, ["vault", "put", "notes"]).variable(PASSPHRASE.0, PASSPHRASE.1)
    }

    /// Puts something new, is killed in the midst of it by `kill`, and looks at what is left.
    fn dies(&mut self, point: usize, kill: impl FnOnce(&Self)) {
        let before = self.content.clone();
        let version = number(&call(&self.machine, &["log", "--json"]).with(0).events()[0], "version");
        self.edit();
        kill(self);
        call(&self.machine, &["ls"]).with(0);
        let version = version.to_string();
        told(&self.machine, &["restore", "notes", "--version", &version, "-o", "back", "--overwrite"]);
        assert!(fs::read(self.machine.path("back")).unwrap() == before, "before point {point}");
        put(&self.machine, "notes");
        told(&self.machine, &["get", "notes", "-o", "back", "--overwrite"]);
        assert!(fs::read(self.machine.path("back")).unwrap() == self.content, "behind point {point}");
    }

    fn is_whole(&self) -> bool {
        number(&told(&self.machine, &["check", "--all"]), "faults") == 0
    }
}

/// Points of `all` that are tried.
fn chosen(all: usize) -> Vec<usize> {
    match std::env::var_os("TOW_VAULT_KILLS") {
        Some(_) => (1..=all).collect(),
        None => (0..SOME).map(|point| 1 + point * (all - 1) / (SOME - 1)).collect(),
    }
}

/// The calls of a trace in their order, each with how many of its kind there were up to it.
fn numbered(trace: &str) -> Vec<(String, usize)> {
    let mut counts = HashMap::<&str, usize>::new();
    let names = trace.lines().filter_map(|line| line.split_once('(')?.0.split_whitespace().last());
    let numbered = names.map(|name| {
        let count = counts.entry(name).or_default();
        *count += 1;
        (name.to_owned(), *count)
    });
    numbered.collect()
}

fn a_put_that_is_killed_at_each_of_its_writes_loses_nothing() {
    let strace = tool("strace").display().to_string();
    let mut mortal = Mortal::new();
    let log = mortal.vaults.env.dir().join("writes").display().to_string();
    let traced = |more: &[&str]| -> Vec<String> {
        let trace = format!("trace={WRITES}");
        let words = [&strace[..], "-f", "-qq", "-o", &log, "-e", &trace];
        words.iter().chain(more).chain(&[TOW]).map(ToString::to_string).collect()
    };
    mortal.edit();
    mortal.call(&traced(&[])).end().with(0);
    let writes = numbered(&fs::read_to_string(&log).unwrap());
    assert!((15..200).contains(&writes.len()), "{writes:?}");
    let (points, mut killed) = (chosen(writes.len()), 0);
    for point in &points {
        let (call, count) = &writes[point - 1];
        let program = traced(&["-e", &format!("inject={call}:signal=KILL:when={count}")]);
        mortal.dies(*point, |mortal| killed += usize::from(mortal.call(&program).end().is_killed()));
    }
    // Not each put cuts the same number of blocks, so a point may be missing now and then.
    assert!(killed + 2 >= points.len(), "{killed} of {points:?}");
    assert!(mortal.is_whole());
}

/// Counts the messages of both sides; one of them goes nowhere, and nothing after it.
struct Stall {
    count: Arc<AtomicUsize>,
    at: usize,
}

impl Stall {
    fn is_reached(&self) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst) + 1 >= self.at
    }
}

impl Liar for Stall {
    fn asked(&mut self, message: ClientMessage) -> Fate {
        match self.is_reached() {
            true => Fate::Answer(Vec::new()),
            false => Fate::Pass(raw(message.to_frames())),
        }
    }

    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        match self.is_reached() {
            true => Some((UNKNOWN, Bytes::new())),
            false => Some(raw(message.to_frames())),
        }
    }
}

fn a_put_that_is_killed_at_each_of_its_messages_loses_nothing() {
    let mut mortal = Mortal::new();
    let key = find(&mortal.vaults.env.machine("server").home(""), "node.key");
    let keys = keys_of(&mortal.machine, &mortal.id);
    let server = Identity::load_or_create(&key).unwrap();
    let liar = LyingServer::new(&server, &mortal.vaults.place, member(&keys));
    fs::write(state(&mortal.machine, &mortal.id).join("server"), &liar.place).unwrap();
    let stall = |at| {
        let count = Arc::<AtomicUsize>::default();
        liar.lie(Stall { count: Arc::clone(&count), at });
        count
    };
    let count = stall(usize::MAX);
    mortal.edit();
    put(&mortal.machine, "notes");
    let messages = count.load(Ordering::SeqCst);
    assert!((4..100).contains(&messages), "{messages} messages");
    for point in chosen(messages) {
        mortal.dies(point, |mortal| {
            let count = stall(point);
            let running = mortal.call(&[TOW.into()]).start();
            kill_when(running, || count.load(Ordering::SeqCst) >= point);
            liar.lie(Honest);
        });
    }
    assert!(mortal.is_whole());
}

/// Kills as soon as it is so, or the program has ended.
fn kill_when(mut running: Running, mut is_so: impl FnMut() -> bool) {
    soon(WAIT_LIMIT, || (is_so() || !running.runs()).then_some(())).expect("a message that never comes");
    running.kill();
}
