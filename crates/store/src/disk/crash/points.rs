//! A process that is killed between any two steps that belong together loses nothing either.
//!
//! The child does one thing after the other, always the same, and is killed at the first point it
//! comes by; the next child at the second, and so on, until one gets to the end. Each begins with
//! an index of version 1. After each the store is opened again, compared with what the child was
//! told, and collected: then nothing may be left over.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_content::chunking::Parameters;
use towpath_content::pieces::Value;

use super::*;
use crate::{CachePolicy, GcOptions};

const POINT: &str = "TOWPATH_CRASH_POINT";
const SESSION: [u8; 16] = [7; 16];
/// Nothing may stay that nobody leases.
const NOTHING: CachePolicy = CachePolicy { owned_bytes: 0, referred_files: 0 };

/// Comes by a point; the one that the process was told is its last.
pub(crate) fn pass(name: &'static str) {
    static LAST: LazyLock<Option<u64>> = LazyLock::new(|| std::env::var(POINT).ok()?.parse().ok());
    static PASSED: AtomicU64 = AtomicU64::new(0);
    if LAST.is_some_and(|last| PASSED.fetch_add(1, Ordering::SeqCst) + 1 == last) {
        eprintln!("killed {name}");
        let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        unreachable!("{killed:?}");
    }
}

/// Objects by the number of their step: put before the upgrade, put and pinned, put by a session,
/// adopted, put and given back, a chunk, a file put by name.
const OLD: u64 = 0;
const PINNED: u64 = 3;
const SESSIONS: u64 = 6;
const ADOPTED: u64 = 9;
const GIVEN: u64 = 12;
const CHUNK: u64 = 15;
const FILE: u64 = 18;

fn data(step: u64) -> Vec<u8> {
    bytes(0, step)
}

fn oid(step: u64) -> Oid {
    Oid::of(&data(step))
}

/// The child's work; as a test of its own it does nothing.
#[test]
fn child_comes_by_points_until_it_is_killed() {
    if let (Some(home), Some(_)) = (std::env::var_os(HOME).map(PathBuf::from), std::env::var_os(POINT)) {
        do_everything(&home).unwrap();
        acknowledge("end", 0);
    }
}

fn do_everything(home: &Path) -> Result<(), StoreError> {
    let store = open(home);
    let put = |step, holder| {
        store.lease(&Lease { holder, ..lease(live(0, step)) })?;
        let data = data(step);
        store.put_init(&live(0, step), &About::default())?;
        let (head, tail) = split(&data);
        store.put_data(&live(0, step), head)?;
        store.put_boundary(&live(0, step))?;
        store.put_data(&live(0, step), tail)?;
        store.put_commit(&live(0, step))?;
        acknowledge("kept", step);
        Ok::<_, StoreError>(())
    };
    put(PINNED, Holder::Pinned)?;
    put(SESSIONS, Holder::Session(SESSION))?;
    put(GIVEN, Holder::Pinned)?;
    adopt(&store)?;
    acknowledge("kept", ADOPTED);
    store.put_chunk(blake3::hash(&data(CHUNK)).as_bytes(), &data(CHUNK))?;
    acknowledge("kept", CHUNK);
    store.put_file(&file_path(home, 0, FILE), Some(&live(0, FILE)), &About::default())?;
    acknowledge("kept", FILE);
    acknowledge("giving", SESSIONS);
    assert_eq!(store.end_session(&SESSION)?, [live(0, SESSIONS)]);
    acknowledge("given", SESSIONS);
    acknowledge("giving", GIVEN);
    assert!(store.done(&live(0, GIVEN))?);
    acknowledge("given", GIVEN);
    [SESSIONS, ADOPTED, GIVEN, FILE].iter().for_each(|step| acknowledge("evicting", *step));
    assert_eq!(store.cache().evict(&NOTHING)?.objects, 3);
    [SESSIONS, ADOPTED, GIVEN].iter().for_each(|step| acknowledge("evicted", *step));
    acknowledge("giving", CHUNK);
    store.release_chunk(blake3::hash(&data(CHUNK)).as_bytes())?;
    acknowledge("given", CHUNK);
    for orphan in ["objects/".to_owned() + &"00".repeat(32), "incoming/1-1".into()] {
        fs::write(home.join("data").join(orphan), b"left").unwrap();
    }
    store.gc(&GcOptions { policy: NOTHING }).map(drop)
}

fn split(data: &[u8]) -> (&[u8], &[u8]) {
    data.split_at(data.len() / 3)
}

fn adopt(store: &DiskStore) -> Result<(), StoreError> {
    let (data, incoming) = (data(ADOPTED), store.incoming()?);
    fs::write(incoming.path(), &data).unwrap();
    let layout = Layout::of(data.len() as u64).unwrap();
    let piece = |index| &data[layout.range(index).start as usize..layout.range(index).end as usize];
    let values: Vec<Value> = (0..layout.count()).map(|index| layout.value(index, piece(index))).collect();
    store.adopt(incoming, &oid(ADOPTED), layout.size(), &values, &About::default())
}

/// A home as version 1 left it, with one object that is leased.
fn old_home() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["state", "data/objects", "files"] {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    fs::write(file_path(dir.path(), 0, FILE), data(FILE)).unwrap();
    let name: String = oid(OLD).digest().iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(dir.path().join("data/objects").join(name), data(OLD)).unwrap();
    let index = rusqlite::Connection::open(dir.path().join("state/index.db")).unwrap();
    index.execute_batch(include_str!("../tests/version_1.sql")).unwrap();
    let (live, oid, size) = (live(0, OLD).to_bytes(), oid(OLD).to_bytes(), data(OLD).len());
    let insert = |sql, values: &[&dyn rusqlite::ToSql]| index.execute(sql, values).unwrap();
    insert("INSERT INTO objects VALUES (?, ?, 1, 0, x'', NULL, NULL, NULL)", &[&oid, &size]);
    insert("INSERT INTO bindings VALUES (?, ?, ?)", &[&live, &oid, &size]);
    insert(
        "INSERT INTO leases VALUES (1, ?, ?, ?, ?, NULL, 0, x'', NULL, NULL, NULL, 1)",
        &[&live, &oid, &size, &[9u8; 16]],
    );
    dir
}

/// Lets a child come by points until the given one; returns what it said, and whether it was killed.
fn run_to(home: &Path, point: u64) -> (Vec<String>, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "disk::crash::points::child_comes_by_points_until_it_is_killed";
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(HOME, home).env(POINT, point.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let output = while_quiet(|| command.spawn()).unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() || output.status.signal() == Some(9), "point {point}: {said}");
    (said.lines().map(str::to_owned).collect(), !output.status.success())
}

fn check(home: &Path, told: &Told) {
    let store = open(home);
    let was = |what: &str, step| told.get(&step).is_some_and(|lines| lines.iter().any(|line| line == what));
    for step in [SESSIONS, GIVEN] {
        assert!(!was("given", step) || store.have(&live(0, step)).is_err(), "{step} was given back");
    }
    for step in [OLD, PINNED, SESSIONS, ADOPTED, GIVEN, FILE] {
        if step == OLD || was("kept", step) && !was("evicting", step) {
            expect_whole(&store, &oid(step), &data(step));
        }
        if step == OLD || was("kept", step) && !was("giving", step) && step != ADOPTED && step != FILE {
            assert_eq!(store.have(&live(0, step)).unwrap().state, State::Bound(oid(step)));
            assert!(store.leases().unwrap().iter().any(|lease| lease.oid == live(0, step)));
        }
        if was("kept", step) && !was("evicting", step) && [PINNED, SESSIONS, GIVEN].contains(&step) {
            let recipe = store.recipe(&oid(step)).unwrap();
            assert_eq!(recipe.root().parameters, Parameters::Given, "{step} has the boundaries it was given");
        }
        assert!(!was("evicted", step) || store.have(&oid(step)).is_err(), "{step} was evicted");
        expect_whole_or_nothing(&store, &data(step));
    }
    let hash = *blake3::hash(&data(CHUNK)).as_bytes();
    match store.get_chunk(&hash) {
        Ok(found) => assert!(found == data(CHUNK) && !was("given", CHUNK)),
        Err(_) => assert!(!was("kept", CHUNK) || was("giving", CHUNK), "the chunk is gone"),
    }
    assert!(fs::read(file_path(home, 0, FILE)).unwrap() == data(FILE));
    // A process that was killed has no sessions, and what was read just now is in use.
    drop(store);
    let store = open(home);
    store.gc(&GcOptions { policy: NOTHING }).unwrap();
    check_collected(home, &store);
    assert_eq!(store.gc(&GcOptions { policy: NOTHING }).unwrap(), crate::Collected::default());
}

/// After a collection there are leased objects, counted chunks, and nothing else.
fn check_collected(home: &Path, store: &DiskStore) {
    let has_content = |lease: &Lease| lease.content.is_some();
    assert!(store.leases().unwrap().iter().all(has_content), "a put that never ended holds nothing");
    let leased: BTreeSet<_> = store.leases().unwrap().iter().filter_map(|lease| lease.content).collect();
    for step in [OLD, PINNED, SESSIONS, ADOPTED, GIVEN] {
        if leased.contains(&oid(step)) {
            expect_whole(store, &oid(step), &data(step));
        }
    }
    let count = |folder: &str| fs::read_dir(home.join(folder)).unwrap().count();
    let chunks = fs::read_dir(home.join("data/chunks")).unwrap();
    let chunks: usize = chunks.map(|folder| fs::read_dir(folder.unwrap().path()).unwrap().count()).sum();
    let counted = store.get_chunk(blake3::hash(&data(CHUNK)).as_bytes()).is_ok();
    let left = (count("data/objects"), chunks, count("data/incoming"), count("state/sessions"));
    assert_eq!(left, (leased.len(), usize::from(counted), 0, 0));
    let given = leased.iter().filter(|leased| **leased != oid(OLD)).count();
    assert_eq!((count("data/recipes/given"), count("data/recipes/made")), (given, 0));
}

#[test]
fn a_process_killed_at_any_point_loses_nothing_that_was_acknowledged() {
    let (start, mut names) = (Instant::now(), BTreeSet::new());
    for point in 1..500 {
        let home = old_home();
        let path = home.path().canonicalize().unwrap();
        let (said, was_killed) = run_to(&path, point);
        let told = by_step(&said);
        if !was_killed {
            assert!(told[&0].contains(&"end".to_owned()), "the child did its work");
            check(&path, &told);
            eprintln!("{point} points in {:?}: {names:?}", start.elapsed());
            assert!(names.len() >= 7, "{names:?}");
            return;
        }
        let name = said.iter().rev().find(|line| line.starts_with("killed ")).expect("it says where");
        eprintln!("point {point}: {name}");
        names.insert(name.clone());
        check(&path, &told);
    }
    panic!("the child never came to its end");
}
