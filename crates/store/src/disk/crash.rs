//! A process that is killed at any moment loses nothing that it was told is kept, and never
//! leaves wrong bytes behind.
//!
//! The test starts itself again as a child that puts, commits, leases, remembers and releases as
//! fast as it can, and writes a line to its standard error after each call that returned. It is
//! killed after some of those lines; then the store is opened again and compared with the lines.

pub(super) mod points;

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::leases::{Chunks, Leases};
use crate::{
    About, Descriptors, DiskStore, FileRecord, Holder, Lease, Stamp, State, Store, StoreError, hash_open_file,
};
use towpath_content::Oid;
use towpath_content::pieces::{Layout, MIN_LOG2, verify};
use towpath_content::ticket::Secret;

const HOME: &str = "TOWPATH_CRASH_HOME";
const ROUND: &str = "TOWPATH_CRASH_ROUND";
const ROUNDS: u64 = 24;

/// The bytes of step `step` of a round; some have several pieces.
fn bytes(round: u64, step: u64) -> Vec<u8> {
    let len = if step.is_multiple_of(3) { (2 << MIN_LOG2) + step as usize } else { 1000 + step as usize };
    let mut bytes = vec![0; len];
    let seed = [round.to_le_bytes(), step.to_le_bytes()].concat();
    blake3::Hasher::new().update(&seed).finalize_xof().fill(&mut bytes);
    bytes
}

fn live(round: u64, step: u64) -> Oid {
    let mut name = [round as u8; 32];
    name[..8].copy_from_slice(&step.to_le_bytes());
    Oid::Live(name)
}

fn open(home: &Path) -> DiskStore {
    DiskStore::open(&home.join("state"), &home.join("data")).unwrap()
}

fn file_path(home: &Path, round: u64, step: u64) -> PathBuf {
    home.join(format!("files/{round}-{step}"))
}

fn lease(oid: Oid) -> Lease {
    Lease {
        oid,
        content: None,
        size: None,
        secret: Secret([9; 16]).into(),
        path: None,
        about: About::default(),
        created: 1,
        holder: Holder::Pinned,
    }
}

/// Held by tests whose locks on files would not be given back in time if a process were started
/// meanwhile, as it has all open files until it runs its program.
static STARTING: RwLock<()> = RwLock::new(());

/// Keeps processes from being started for as long as the guard lives.
pub(super) fn quiet() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process when no test needs quiet.
fn while_quiet<T>(start: impl FnOnce() -> T) -> T {
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    start()
}

fn acknowledge(what: &str, step: u64) {
    eprintln!("{what} {step}");
}

/// The child's work; as a test of its own it does nothing.
#[test]
fn child_works_until_it_is_killed() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else {
        return;
    };
    let round = std::env::var(ROUND).unwrap().parse().unwrap();
    let store = open(&home);
    acknowledge("open", 0);
    for step in 0.. {
        work(&store, &home, round, step).unwrap();
    }
}

fn work(store: &DiskStore, home: &Path, round: u64, step: u64) -> Result<(), StoreError> {
    let (data, live) = (bytes(round, step), live(round, step));
    store.lease(&lease(live))?;
    acknowledge("leased", step);
    store.put_init(&live, &About::default())?;
    data.chunks(100_000).try_for_each(|part| store.put_data(&live, part))?;
    store.put_commit(&live)?;
    acknowledge("committed", step);
    let hash = *blake3::hash(&data).as_bytes();
    store.put_chunk(&hash, &data)?;
    acknowledge("chunk", step);
    remember(store, home, round, step)?;
    acknowledge("remembered", step);
    if step % 2 == 1 {
        acknowledge("releasing", step);
        store.release_chunk(&hash)?;
        store.done(&live)?;
        acknowledge("released", step);
    }
    Ok(())
}

/// Writes a file with other bytes than the put's, and records it.
fn remember(store: &DiskStore, home: &Path, round: u64, step: u64) -> Result<(), StoreError> {
    let path = file_path(home, round, step);
    fs::write(&path, bytes(round + 100, step)).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let file = fs::File::options().read(true).append(true).open(&path).unwrap();
    file.set_modified(old).unwrap();
    let hashed = hash_open_file(&file, &path)?;
    let record = FileRecord::new(path.parent().unwrap(), path.file_name().unwrap(), hashed);
    store.remember(&[FileRecord { settled: true, ..record }])
}

/// Replies to the child, by step.
type Told = HashMap<u64, Vec<String>>;

fn run_and_kill(home: &Path, round: u64) -> Told {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["disk::crash::child_works_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"])
        .env(HOME, home)
        .env(ROUND, round.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = while_quiet(|| command.spawn()).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (heard, delay) = moment(round);
    eprintln!("round {round}: killed {delay:?} after line {heard}");
    let mut told: Vec<_> = lines.by_ref().take(heard).collect();
    assert_eq!(told.len(), heard, "the child ended by itself: {told:?}");
    assert!(!ends_within(&child, delay), "the child ended by itself");
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "the child ended by itself");
    told.extend(lines);
    by_step(&told)
}

/// True if a child ends within this time.
fn ends_within(child: &Child, time: Duration) -> bool {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let time = time.try_into().unwrap();
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&time)).unwrap() > 0
}

/// Moment to kill: some microseconds after a number of lines, so that the blow falls into the call
/// that follows, each round elsewhere.
fn moment(round: u64) -> (usize, Duration) {
    let hash = blake3::hash(&[std::process::id().to_le_bytes(), (round as u32).to_le_bytes()].concat());
    let [lines, low, high, ..] = *hash.as_bytes();
    let micros = u64::from(u16::from_le_bytes([low, high])) % 4000;
    (usize::from(lines) % 40, Duration::from_micros(micros))
}

fn by_step(lines: &[String]) -> Told {
    let mut told = Told::new();
    for line in lines {
        // The last line may be cut off.
        if let Some((what, step)) = line.split_once(' ').and_then(|(w, s)| Some((w, s.parse().ok()?))) {
            told.entry(step).or_default().push(what.to_owned());
        }
    }
    told
}

fn expect_whole(store: &DiskStore, oid: &Oid, data: &[u8]) {
    let layout = Layout::of(data.len() as u64).unwrap();
    let mut buf = Vec::new();
    for index in 0..layout.count() {
        buf.clear();
        store.read_piece(oid, index, &mut buf).unwrap();
        let range = layout.range(index);
        assert!(buf == data[range.start as usize..range.end as usize], "wrong bytes in piece {index}");
    }
    let Descriptors::Proof(proof) = store.get_descriptors(oid, 0..layout.count()).unwrap() else {
        panic!("a complete object is described by proofs");
    };
    assert!(verify(Oid::of(data).digest(), &layout, 0..layout.count(), &proof).is_ok());
}

/// Everything that the store says it has must be right, acknowledged or not.
fn expect_whole_or_nothing(store: &DiskStore, data: &[u8]) {
    match store.have(&Oid::of(data)) {
        Ok(_) => expect_whole(store, &Oid::of(data), data),
        Err(error) => assert!(matches!(error, StoreError::NotHere), "{error}"),
    }
}

fn check_step(store: &DiskStore, home: &Path, round: u64, step: u64, told: &[String]) {
    let was = |what: &str| told.iter().any(|line| line == what);
    let (data, live) = (bytes(round, step), live(round, step));
    let hash = *blake3::hash(&data).as_bytes();
    let is_leased = store.leases().unwrap().iter().any(|lease| lease.oid == live);
    if was("leased") && !was("releasing") {
        assert!(is_leased, "the lease of step {step} is gone");
    }
    if was("released") {
        assert!(!is_leased && store.have(&live).is_err(), "step {step} was given back");
        assert!(matches!(store.get_chunk(&hash), Err(StoreError::NotHere)));
    }
    if was("committed") && !was("releasing") {
        assert_eq!(store.have(&live).unwrap().state, State::Bound(Oid::of(&data)));
        expect_whole(store, &live, &data);
    }
    if was("chunk") && !was("releasing") {
        assert!(store.get_chunk(&hash).unwrap() == data);
    }
    if was("remembered") {
        let path = file_path(home, round, step);
        let file = fs::File::open(&path).unwrap();
        let stamp = Stamp::of(&file).unwrap();
        let known = store.known(path.parent().unwrap(), &[(path.file_name().unwrap(), stamp)]);
        assert_eq!(known.unwrap(), [Some(Oid::of(&bytes(round + 100, step)))]);
    }
    expect_whole_or_nothing(store, &data);
    expect_whole_or_nothing(store, &bytes(round + 100, step));
    match store.get_chunk(&hash) {
        Ok(found) => assert!(found == data),
        Err(error) => assert!(matches!(error, StoreError::NotHere), "{error}"),
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    fs::create_dir(home.join("files")).unwrap();
    let (start, mut steps) = (Instant::now(), 0);
    for round in 0..ROUNDS {
        let told = run_and_kill(&home, round);
        let store = open(&home);
        let left = fs::read_dir(home.join("data/incoming")).unwrap().count();
        assert_eq!(left, 0, "what was half put is removed");
        // One step further than was heard of: its work may have been done in part.
        let end = told.keys().max().map_or(0, |last| last + 2);
        for step in 0..end {
            check_step(&store, &home, round, step, told.get(&step).map_or(&[], Vec::as_slice));
        }
        steps += end;
    }
    eprintln!("{steps} steps in {ROUNDS} rounds, {:?}", start.elapsed());
    let damaged = fs::read_dir(home.join("state")).unwrap();
    assert!(!damaged.into_iter().any(|e| e.unwrap().file_name().to_string_lossy().contains("damaged")));
}
