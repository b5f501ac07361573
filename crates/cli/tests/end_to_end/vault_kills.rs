//! kill -9 of a put at each of its writes to this machine's disk and at each of its messages: the folder opens, the version
//! before is whole, and the same put ends well.
//!
//! `TOW_VAULT_KILLS=all` kills at every one; else at some that lie evenly between the first and the last.

use std::collections::{BTreeSet, HashMap};
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
const WRITES: &str = "write,pwrite64,fsync,fdatasync,rename,ftruncate";
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

/// A call that changes what a machine keeps of a vault.
#[derive(Debug)]
struct WritePoint {
    call: String,
    path: String,
    /// How many calls of its name there were up to it: about its path, and by its thread.
    counts: [usize; 2],
}

impl WritePoint {
    /// Words by which strace kills there.
    fn words(&self) -> Vec<String> {
        let Self { call, path, counts: [of_path, of_thread] } = self;
        let kill = |count| ["-e".to_owned(), format!("inject={call}:signal=KILL:when={count}")];
        // The file of a put's blocks has another name each time.
        match path.contains("uncommitted-blocks") {
            true => kill(of_thread).into(),
            false => [&["-P".to_owned(), path.clone()][..], &kill(of_path)].concat(),
        }
    }

    /// It is about the head that was seen last: what rollbacks are known by.
    fn is_head(&self) -> bool {
        self.path.contains("/head")
    }
}

/// Points of `all` that are tried.
fn chosen(all: usize) -> Vec<usize> {
    match std::env::var_os("TOW_VAULT_KILLS") {
        Some(_) => (1..=all).collect(),
        None => (0..SOME).map(|point| 1 + point * (all - 1) / (SOME - 1)).collect(),
    }
}

/// The calls of a trace that are about files of the vault `id`, in their order.
fn numbered(trace: &str, id: &str) -> Vec<WritePoint> {
    let mut counts = HashMap::<(String, &str), usize>::new();
    let mut counted = |key: &str, call| {
        let count = counts.entry((key.to_owned(), call)).or_default();
        *count += 1;
        *count
    };
    let numbered = trace.lines().filter_map(|line| {
        let (head, words) = line.split_once('(')?;
        let (thread, call) = head.split_once(char::is_whitespace)?;
        let call = call.trim();
        let of_thread = counted(thread, call);
        // A file that is open, or else a name.
        let path = match call {
            "rename" => words.split('"').nth(1)?,
            _ => words.split_once('<')?.1.split_once('>')?.0,
        };
        let counts = [counted(path, call), of_thread];
        path.contains(id).then(|| WritePoint { call: call.to_owned(), path: path.to_owned(), counts })
    });
    numbered.collect()
}

fn a_put_that_is_killed_at_each_of_its_writes_loses_nothing() {
    let strace = tool("strace").display().to_string();
    let mut mortal = Mortal::new();
    let log = mortal.vaults.env.dir().join("writes").display().to_string();
    let traced = |more: &[String]| -> Vec<String> {
        let trace = format!("trace={WRITES}");
        let words = [&strace[..], "-f", "-y", "-qq", "-o", &log, "-e", &trace].map(ToOwned::to_owned);
        [&words, more, &[TOW.to_owned()]].concat()
    };
    mortal.edit();
    mortal.call(&traced(&[])).end().with(0);
    let writes = numbered(&fs::read_to_string(&log).unwrap(), &mortal.id);
    assert!((25..200).contains(&writes.len()), "{writes:?}");
    let head = (1..=writes.len()).filter(|point| writes[point - 1].is_head());
    let points: BTreeSet<usize> = chosen(writes.len()).into_iter().chain(head).collect();
    let mut killed = 0;
    for point in &points {
        let program = traced(&writes[point - 1].words());
        mortal.dies(*point, |mortal| killed += usize::from(mortal.call(&program).end().is_killed()));
    }
    // Writes about a put's own file are numbered with those that wake threads, so a point may be missing now and then.
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
