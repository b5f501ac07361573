//! Tests of what only a store on a disk has to do right.

mod cache;
mod changed;
mod collecting;
mod kept;
mod recipes;
mod while_hashed;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::*;
use crate::doubles::settle;
use crate::hashing::{LIVE_PIECE, hash_open_file};
use crate::leases::{Chunks, Holder, Leases};
use crate::seam::ObjectKind;
use crate::stamp::Stamp;
use towpath_content::lock::lock;

const PIECE: usize = LIVE_PIECE as usize;

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(home.path("files")).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn store(&self) -> DiskStore {
        DiskStore::open(&self.path("state"), &self.path("data")).unwrap()
    }

    /// Writes a file and waits until its stamp counts.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path("files").join(name);
        fs::write(&path, bytes).unwrap();
        settle(&path).unwrap();
        path
    }

    /// A file with holes only.
    fn sparse_file(&self, name: &str, pieces: usize) -> PathBuf {
        let path = self.path("files").join(name);
        fs::File::create(&path).unwrap().set_len((pieces * PIECE) as u64).unwrap();
        path
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 247 + i) as u8).collect()
}

fn live(number: u8) -> Oid {
    Oid::Live([number; 32])
}

fn put_file(store: &DiskStore, path: &Path) -> Oid {
    store.put_file(path, None, &About::default()).unwrap().0
}

fn read(store: &DiskStore, oid: &Oid, index: u64) -> Result<Vec<u8>, StoreError> {
    let mut buf = Vec::new();
    store.read_piece(oid, index, &mut buf).map(|()| buf)
}

fn record(path: &Path) -> FileRecord {
    let hashed = hash_open_file(&fs::File::open(path).unwrap(), path).unwrap();
    FileRecord::new(path.parent().unwrap(), path.file_name().unwrap(), hashed)
}

#[test]
fn conforms() {
    let home = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    let make = || {
        number.set(number.get() + 1);
        let dir = home.path().join(number.get().to_string());
        DiskStore::open(&dir.join("state"), &dir.join("data")).unwrap()
    };
    crate::conformance::run(make);
    crate::conformance::run_leases(make);
    crate::conformance::run_chunks(make);
}

#[test]
fn a_file_put_by_name_is_served_from_where_it_lies_also_after_a_restart() {
    let home = Home::new();
    let sizes = [("empty", 0), ("small", 10), ("one", PIECE), ("large", 3 * PIECE + 7)];
    for (live, (name, len)) in (1..).map(live).zip(sizes) {
        let (path, data) = (home.file(name, &pattern(len)), pattern(len));
        let about = About { kind: ObjectKind::Blob, name: name.into(), mode: Some(0o640), modified: None };
        let put = home.store().put_file(&path, Some(&live), &about).unwrap();
        assert_eq!(put, (Oid::of(&data), len as u64));
        let store = home.store();
        let found = store.have(&put.0).unwrap();
        assert_eq!((found.state, found.about), (State::Complete, about));
        assert_eq!(store.have(&live).unwrap().state, State::Bound(put.0));
        let pieces = (0..found.layout.count()).map(|index| read(&store, &put.0, index).unwrap());
        assert_eq!(pieces.collect::<Vec<_>>().concat(), data);
        assert_eq!(store.locate(&put.0).unwrap().unwrap().0, path);
    }
    assert_eq!(fs::read_dir(home.path("data/objects")).unwrap().count(), 0, "nothing was copied");
}

#[test]
fn a_file_known_under_its_stamp_is_not_read_again() {
    let home = Home::new();
    let path = home.file("file", &pattern(PIECE + 1));
    let store = home.store();
    // A wrong record betrays who reads the file and who believes the index.
    let lie = FileRecord { oid: Oid::of(b"lie"), values: None, ..record(&path) };
    store.remember(&[lie]).unwrap();
    assert_eq!(put_file(&store, &path), Oid::of(b"lie"));
    fs::write(&path, pattern(PIECE + 1)).unwrap();
    assert_eq!(put_file(&store, &path), Oid::of(&pattern(PIECE + 1)), "a new stamp is not believed");
}

#[test]
fn a_file_hashed_within_a_tick_of_its_change_is_served_but_read_again() {
    let home = Home::new();
    let (path, store) = (home.path("files/fresh"), home.store());
    fs::write(&path, b"fresh").unwrap();
    let oid = put_file(&store, &path);
    let stamp = Stamp::of_path(&path).unwrap();
    assert_eq!(store.known(&home.path("files"), &[("fresh", stamp)]).unwrap(), [None]);
    assert_eq!(read(&store, &oid, 0).unwrap(), b"fresh");
    settle(&path).unwrap();
    put_file(&store, &path);
    assert_eq!(store.known(&home.path("files"), &[("fresh", stamp)]).unwrap(), [Some(oid)]);
}

#[test]
fn what_is_remembered_is_known_by_name_and_stamp() {
    let home = Home::new();
    let store = home.store();
    let paths: Vec<_> = (0..4).map(|n| home.file(&n.to_string(), &pattern(n * PIECE / 2 + 1))).collect();
    let records: Vec<_> = paths.iter().map(|path| record(path)).collect();
    store.remember(&records).unwrap();
    store.remember(&records).unwrap();
    let mut asked: Vec<_> = records.iter().map(|r| (r.name.clone(), r.stamp)).collect();
    asked[1].1.mtime_ns += 1;
    asked.push(("unknown".into(), asked[0].1));
    let known = home.store().known(&home.path("files"), &asked).unwrap();
    let expected = [Some(records[0].oid), None, Some(records[2].oid), Some(records[3].oid), None];
    assert_eq!(known, expected);
    assert_eq!(store.known(&home.path("elsewhere"), &asked).unwrap(), [None; 5]);
}

#[test]
fn values_that_nobody_kept_are_found_by_reading() {
    let home = Home::new();
    let (store, path) = (home.store(), home.file("large", &pattern(4 * PIECE)));
    let without = FileRecord { values: None, ..record(&path) };
    store.remember(std::slice::from_ref(&without)).unwrap();
    let Descriptors::Proof(proof) = store.get_descriptors(&without.oid, 1..3).unwrap() else {
        panic!("a complete object is described by proofs");
    };
    let layout = Layout::of(without.stamp.size).unwrap();
    assert!(towpath_content::pieces::verify(without.oid.digest(), &layout, 1..3, &proof).is_ok());
}

#[test]
fn a_listener_hears_of_remembered_files_once() {
    let home = Home::new();
    let (store, heard) = (home.store(), Arc::new(Mutex::new(Vec::new())));
    let list = Arc::clone(&heard);
    store.register_push(Box::new(move |oid| lock(&list).push(*oid)));
    let paths = ["a", "b"].map(|name| home.file(name, b"same"));
    store.remember(&paths.each_ref().map(|path| record(path))).unwrap();
    put_file(&store, &paths[0]);
    assert_eq!(*lock(&heard), [Oid::of(b"same")]);
}

#[test]
fn holes_are_seen_without_reading() {
    let home = Home::new();
    let path = home.sparse_file("sparse", 4);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"data", 2 * LIVE_PIECE + 5).unwrap();
    settle(&path).unwrap();
    let store = home.store();
    let oid = put_file(&store, &path);
    assert_eq!([0, 1, 2, 3, 4].map(|index| store.is_zero(&oid, index)), [true, true, false, true, false]);
    assert_eq!(read(&store, &oid, 1).unwrap(), vec![0; PIECE]);
    let dense = put_file(&store, &home.file("dense", &vec![0; 2 * PIECE]));
    assert!(!store.is_zero(&dense, 0), "zeros that were written are not looked for");
}

#[test]
fn only_regular_files_are_put_by_name_and_links_lead_to_them() {
    let home = Home::new();
    let (store, path) = (home.store(), home.file("file", b"bytes"));
    let put = |path: &Path| store.put_file(path, None, &About::default());
    assert!(matches!(put(&home.path("files")), Err(StoreError::Refused { .. })));
    assert!(matches!(put(&home.path("missing")), Err(StoreError::Io { .. })));
    let link = home.path("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(store.locate(&put(&link).unwrap().0).unwrap().unwrap().0, path);
}

#[test]
fn a_put_may_be_repeated_but_a_name_not_bound_anew() {
    let home = Home::new();
    let (store, about) = (home.store(), About::default());
    let (one, other) = (home.file("one", b"one"), home.file("other", b"other"));
    let first = store.put_file(&one, Some(&live(1)), &about).unwrap();
    assert_eq!(store.put_file(&one, Some(&live(1)), &about).unwrap(), first);
    let again = store.put_file(&other, Some(&live(1)), &about);
    assert!(matches!(again, Err(StoreError::Refused { .. })), "{again:?}");
    let named = store.put_file(&one, Some(&first.0), &about);
    assert!(matches!(named, Err(StoreError::Refused { .. })), "{named:?}");
}

#[test]
fn giving_a_lease_back_leaves_files_of_others_alone() {
    let home = Home::new();
    let (store, path) = (home.store(), home.file("file", b"bytes"));
    let (oid, _) = store.put_file(&path, Some(&live(1)), &About::default()).unwrap();
    let secret = towpath_content::ticket::Secret([1; 16]).into();
    let about = About::default();
    let lease = Lease {
        oid: live(1),
        content: None,
        size: None,
        secret,
        path: Some(path.clone()),
        about,
        created: 1,
        holder: Holder::Pinned,
    };
    store.lease(&lease).unwrap();
    assert_eq!(store.leases().unwrap()[0].content, Some(oid));
    assert!(store.done(&oid).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"bytes");
    assert!(matches!(store.have(&live(1)), Err(StoreError::NotHere)));
}

#[test]
fn two_stores_on_one_home_see_what_the_other_completed() {
    let home = Home::new();
    let (one, two) = (home.store(), home.store());
    std::thread::scope(|scope| {
        for (store, base) in [(&one, 0), (&two, 100)] {
            scope.spawn(move || {
                for number in base..base + 20 {
                    store.put_init(&live(number), &About::default()).unwrap();
                    store.put_data(&live(number), &[number]).unwrap();
                    store.put_commit(&live(number)).unwrap();
                }
            });
        }
    });
    for number in (0..20).chain(100..120) {
        for store in [&one, &two] {
            assert_eq!(read(store, &Oid::of(&[number]), 0).unwrap(), [number]);
        }
    }
}

#[test]
fn the_folders_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    home.store();
    for dir in ["state", "data", "data/objects", "data/chunks", "data/incoming"] {
        assert_eq!(fs::metadata(home.path(dir)).unwrap().permissions().mode() & 0o777, 0o700, "{dir}");
    }
}
