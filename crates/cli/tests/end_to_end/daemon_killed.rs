//! `kill -9` of the daemon in the midst of its applications, at many moments: what it acknowledged
//! is there afterwards, no wrong byte is ever served, and nothing is left over.
//!
//! `TOW_TEST_KILLS` says how often (default 10).

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::environment::{TestEnvironment, soon, until_stopped};
use crate::local_client::{Answer, LocalClient};
use crate::machinery::SetOnDrop;
use crate::runner::{say, situations};
use crate::trees::bytes;

situations![what_a_killed_daemon_acknowledged_is_there];

/// Objects of the peer.
const OF_THE_PEER: u64 = 6;

fn kills() -> u64 {
    std::env::var("TOW_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Something that was put, whose bytes follow from its number.
#[derive(Debug, Clone)]
struct Put {
    ticket: String,
    seed: u64,
}

impl Put {
    /// Of very different lengths; some are whole pieces, some are empty.
    fn bytes(seed: u64) -> Vec<u8> {
        let len = match seed % 4 {
            0 => (seed % 5) << 18,
            1 => seed * 7919 % 100_000,
            _ => 300_000 + seed * 104_729 % 900_000,
        };
        bytes(seed, len)
    }

    /// Reads all that comes. What comes must be right, and an end must be the end.
    fn check(&self, answer: Answer) -> Result<(), String> {
        let status = answer.status;
        let (expected, mut got) = (Self::bytes(self.seed), Vec::new());
        let mut answer = answer;
        let read = answer.read_to_end(&mut got);
        if status != 200 {
            return Err(String::from_utf8_lossy(&got).into_owned());
        }
        assert!(expected.starts_with(&got), "wrong bytes of {self:?}");
        read.map_err(|error| error.to_string())?;
        assert!(
            answer.has_ended() && got.len() == expected.len(),
            "a part was served as the whole: {self:?}"
        );
        Ok(())
    }
}

/// Puts that the daemon was asked for, and its answers.
#[derive(Default)]
struct Told {
    /// Acknowledged and not done.
    held: Mutex<Vec<Put>>,
    /// Begun, and perhaps never ended.
    begun: Mutex<Vec<Put>>,
    /// Acknowledged, and taken back or left by its application.
    released: Mutex<Vec<Put>>,
    next: AtomicU64,
}

impl Told {
    fn seed(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn some_held(&self) -> Option<Put> {
        let held = self.held.lock().unwrap();
        let number = self.next.load(Ordering::Relaxed) as usize;
        (!held.is_empty()).then(|| held[number % held.len()].clone())
    }
}

/// The applications of a daemon that will be killed.
struct Applications<'a> {
    daemon: LocalClient,
    folder: &'a Path,
    told: &'a Told,
    of_the_peer: &'a [Put],
}

type Step = io::Result<()>;

impl Applications<'_> {
    fn put_in_parts(&self) -> Step {
        let seed = self.told.seed();
        let mut put = None;
        self.daemon.put_parts(&Put::bytes(seed), 70_000 + seed as usize * 31 % 200_000, |ticket| {
            let begun = Put { ticket: ticket.into(), seed };
            self.told.begun.lock().unwrap().push(begun.clone());
            put = Some(begun);
        })?;
        self.told.held.lock().unwrap().extend(put);
        Ok(())
    }

    fn put_by_name(&self) -> Step {
        let (path, seed) = self.file();
        let ticket = ticket(&self.daemon.json("POST /v1/put", &json!({ "path": path }))?);
        self.told.held.lock().unwrap().push(Put { ticket, seed });
        Ok(())
    }

    fn file(&self) -> (PathBuf, u64) {
        let seed = self.told.seed();
        let path = self.folder.join(seed.to_string());
        fs::write(&path, Put::bytes(seed)).unwrap();
        (path, seed)
    }

    /// Puts under a session that ends at once.
    fn hold_for_a_moment(&self) -> Step {
        let mut session = self.daemon.call("POST /v1/sessions", "", b"")?;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            session.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        let event: Value = serde_json::from_slice(&line).unwrap();
        let (path, seed) = self.file();
        let request = json!({ "path": path, "session": event["session"] });
        let ticket = ticket(&self.daemon.json("POST /v1/put", &request)?);
        self.told.released.lock().unwrap().push(Put { ticket, seed });
        Ok(())
    }

    /// Takes something back that was put in parts.
    fn take_back(&self) -> Step {
        let seed = self.told.seed();
        let mut taken = String::new();
        self.daemon.put_parts(&Put::bytes(seed), 1 << 20, |ticket| taken = ticket.into())?;
        self.daemon.json("POST /v1/done", &json!(taken))?;
        self.told.released.lock().unwrap().push(Put { ticket: taken, seed });
        Ok(())
    }

    fn collect(&self) -> Step {
        self.daemon.json("POST /v1/gc", &json!({ "all": true })).map(drop)
    }

    /// Gets one of the peer's objects, over the network or from the cache.
    fn get(&self) -> Step {
        let put = &self.of_the_peer[(self.told.seed() % OF_THE_PEER) as usize];
        self.check_whole(put)
    }

    /// Gets something of its own.
    fn get_own(&self) -> Step {
        match self.told.some_held() {
            Some(put) => self.check_whole(&put),
            None => self.daemon.json("GET /v1/status", &Value::Null).map(drop),
        }
    }

    fn check_whole(&self, put: &Put) -> Step {
        put.check(self.daemon.content(&put.ticket, 60)?).map_err(io::Error::other)
    }

    /// All at once until the daemon is gone.
    fn run(&self) {
        let steps: [fn(&Self) -> Step; 7] = [
            Self::put_in_parts,
            Self::put_by_name,
            Self::hold_for_a_moment,
            Self::take_back,
            Self::collect,
            Self::get,
            Self::get_own,
        ];
        thread::scope(|scope| {
            for step in steps {
                scope.spawn(move || {
                    let error = loop {
                        if let Err(error) = step(self) {
                            break error;
                        }
                    };
                    let is_late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                    assert!(!is_late, "the daemon did not answer: {error}");
                    // It failed since the daemon is gone, not by itself.
                    let gone = soon(Duration::from_secs(5), || self.daemon.connect().err());
                    assert!(gone.is_some(), "it failed while the daemon runs: {error}");
                });
            }
        });
    }
}

fn ticket(reply: &Value) -> String {
    reply["ticket"].as_str().unwrap().into()
}

/// The right that a ticket gives, each put's own. Its addresses may change, and the ticket of a small
/// object names the content once that is known, and holds it.
fn right(ticket: &str) -> [u8; 16] {
    ticket.parse::<towpath_content::Ticket>().unwrap().secret.0
}

/// After a restart: what was acknowledged is there, what was not is whole or refused.
fn look_after(daemon: &LocalClient, told: &Told, is_last: bool) {
    let objects = daemon.json("GET /v1/objects", &Value::Null).unwrap();
    let objects = objects.as_array().unwrap();
    let find = |put: &Put| {
        objects.iter().find(|object| right(object["ticket"].as_str().unwrap()) == right(&put.ticket))
    };
    let held = told.held.lock().unwrap();
    let looked_at = if is_last { held.len() } else { held.len().min(12) };
    for put in &held[held.len() - looked_at..] {
        let object = find(put).unwrap_or_else(|| panic!("{put:?} is gone"));
        assert_eq!(object["held"], "pinned");
        put.check(daemon.content(&put.ticket, 2).unwrap()).unwrap_or_else(|why| panic!("{object}: {why}"));
    }
    for put in told.released.lock().unwrap().iter() {
        assert!(find(put).is_none(), "{put:?} is held again");
    }
    for put in told.begun.lock().unwrap().drain(..) {
        // Without a commit that succeeded it is an error, which the check would not accept as an end.
        let _ = put.check(daemon.content(&put.ticket, 2).unwrap());
    }
}

/// The peer gets what is put, whether the daemon lives at the moment or not.
fn get_from_afar(peer: &LocalClient, told: &Told, stop: &AtomicBool) -> u64 {
    let mut whole = 0;
    until_stopped(stop, Duration::from_millis(5), || {
        if let Some(put) = told.some_held() {
            whole += u64::from(put.check(peer.content(&put.ticket, 20).unwrap()).is_ok());
        }
    });
    whole
}

/// Files below `folder` that hold something.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), found),
            false if entry.metadata().unwrap().len() > 0 => found.push(entry.path()),
            false => {}
        }
    }
}

fn what_a_killed_daemon_acknowledged_is_there() {
    let env = TestEnvironment::new();
    let _peer = env.receiver.daemon();
    let peer = LocalClient::of(&env.receiver);
    let told = Told::default();
    let of_the_peer: Vec<Put> = (0..OF_THE_PEER)
        .map(|_| {
            let (seed, mut name) = (told.seed(), String::new());
            peer.put_parts(&Put::bytes(seed), 1 << 20, |ticket| name = ticket.into()).unwrap();
            Put { ticket: name, seed }
        })
        .collect();
    let daemon = LocalClient::of(&env.sender);
    let folder = env.sender.path("");
    let applications =
        Applications { daemon: daemon.clone(), folder: &folder, told: &told, of_the_peer: &of_the_peer };
    let stop = AtomicBool::new(false);
    let whole = thread::scope(|scope| {
        let far = scope.spawn(|| get_from_afar(&peer, &told, &stop));
        let stopping = SetOnDrop(&stop);
        for round in 0..kills() {
            let running = env.sender.daemon();
            look_after(&daemon, &told, false);
            thread::scope(|scope| {
                scope.spawn(|| applications.run());
                running.kill_after(Duration::from_millis(20 + round * 131 % 700));
            });
        }
        let running = env.sender.daemon();
        look_after(&daemon, &told, true);
        drop(stopping);
        let whole = far.join().unwrap();
        drop(running);
        whole
    });
    say(&format!(
        "{} kills: {} puts held, {} released, {whole} fetched by the peer",
        kills(),
        told.held.lock().unwrap().len(),
        told.released.lock().unwrap().len()
    ));
    nothing_is_left(&env, &daemon, &told);
}

fn nothing_is_left(env: &TestEnvironment, daemon: &LocalClient, told: &Told) {
    // A daemon that has read nothing lately, so that all of the cache can go.
    let running = env.sender.daemon();
    for object in daemon.json("GET /v1/objects", &Value::Null).unwrap().as_array().unwrap() {
        daemon.json("POST /v1/done", &object["oid"]).unwrap();
    }
    drop(running);
    let _running = env.sender.daemon();
    env.sender.tow(["gc", "--all"]).end().with(0);
    let again = env.sender.tow(["gc", "--all", "--json"]).end().with(0).events();
    for count in ["objects", "bytes", "leftovers", "leases"] {
        assert_eq!(again[0][count], 0, "a second collection found more: {}", again[0]);
    }
    let mut left = Vec::new();
    files(&env.sender.home("data"), &mut left);
    assert!(left.is_empty(), "{left:?}");
    // A file that was put by name is as it was.
    for seed in 0..told.next.load(Ordering::Relaxed) {
        if let Ok(content) = fs::read(env.sender.path(seed.to_string())) {
            assert!(content == Put::bytes(seed), "{seed} was changed");
        }
    }
}
