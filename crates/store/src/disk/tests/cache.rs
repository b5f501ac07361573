//! Cached objects that stay, and those that go.

use std::sync::atomic::{AtomicBool, Ordering};

use towpath_content::pieces::{Value, oid_of};
use towpath_content::ticket::Secret;

use super::super::crash::quiet;
use super::super::index::Durability;
use super::*;
use crate::hashing::hash_pieces;

const NOTHING: CachePolicy = CachePolicy { owned_bytes: 0, referred_files: 0 };

pub(super) fn lease(oid: Oid, holder: Holder) -> Lease {
    let (secret, about) = (Secret([1; 16]).into(), About::default());
    Lease { oid, content: None, size: None, secret, path: None, about, created: 1, holder }
}

/// Puts bytes of which there are some pieces.
pub(super) fn put(store: &DiskStore, number: u8, len: usize) -> Oid {
    let mut data = pattern(len);
    data[0] = number;
    store.put_init(&live(number), &About::default()).unwrap();
    store.put_data(&live(number), &data).unwrap();
    store.put_commit(&live(number)).unwrap()
}

fn is_here(store: &DiskStore, oid: &Oid) -> bool {
    match store.have(oid) {
        Ok(found) => found.state == State::Complete && read(store, oid, 0).is_ok(),
        Err(error) => {
            assert!(matches!(error, StoreError::NotHere), "{error}");
            false
        }
    }
}

fn set_used(store: &DiskStore, oid: &Oid, when: u64) {
    let set = "UPDATE objects SET used = ? WHERE oid = ?";
    let set = |t: &rusqlite::Transaction<'_>| Ok(t.execute(set, rusqlite::params![when, oid.to_bytes()])?);
    assert_eq!(store.core.index.write(Durability::Cached, "test", set).unwrap(), 1);
}

#[test]
fn what_was_unused_longest_goes_and_a_read_is_a_use() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.store();
    let oids = [1, 2, 3, 4].map(|number| put(&store, number, 1000));
    [(0, 30), (1, 10), (2, 20), (3, 40)].iter().for_each(|(at, when)| set_used(&store, &oids[*at], *when));
    let policy = |owned_bytes| CachePolicy { owned_bytes, ..CachePolicy::default() };
    assert_eq!(store.cache().evict(&policy(4000)).unwrap(), Evicted::default());
    assert_eq!(store.cache().evict(&policy(3999)).unwrap(), Evicted { objects: 1, bytes: 1000, files: 0 });
    assert!(matches!(store.have(&oids[1]), Err(StoreError::NotHere)));
    assert!(matches!(store.have(&live(2)), Err(StoreError::NotHere)), "its name is unbound");
    read(&store, &oids[2], 0).unwrap();
    assert_eq!(store.cache().evict(&policy(2500)).unwrap().objects, 1);
    assert_eq!(oids.map(|oid| is_here(&store, &oid)), [false, false, true, true]);
    assert_eq!(fs::read_dir(home.path("data/objects")).unwrap().count(), 2);
}

#[test]
fn an_evicted_object_can_be_put_again() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.store();
    for _ in 0..2 {
        let oid = put(&store, 1, 2 * PIECE);
        assert_eq!(store.cache().evict(&NOTHING).unwrap().bytes, 2 * LIVE_PIECE);
        assert!(!is_here(&store, &oid));
    }
}

#[test]
fn what_is_leased_stays_until_its_last_lease_is_given_back() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.store();
    store.lease(&lease(live(1), Holder::Pinned)).unwrap();
    let oid = put(&store, 1, 100);
    store.lease(&lease(oid, Holder::Session([5; 16]))).unwrap();
    for end in [true, false] {
        assert_eq!(store.cache().evict(&NOTHING).unwrap(), Evicted::default());
        assert!(is_here(&store, &oid));
        if end {
            store.end_session(&[5; 16]).unwrap();
        } else {
            store.done(&live(1)).unwrap();
        }
    }
    assert!(is_here(&store, &oid), "it is cache");
    assert_eq!(store.cache().evict(&NOTHING).unwrap().objects, 1);
}

#[test]
fn what_is_held_or_read_by_any_process_stays() {
    let (_quiet, home) = (quiet(), Home::new());
    let (store, other) = (home.store(), home.store());
    let (held, by_reader, by_us) = (put(&store, 1, 10), put(&store, 2, 2 * PIECE), put(&store, 3, 3 * PIECE));
    let hold = other.hold(&live(1)).unwrap();
    read(&other, &by_reader, 0).unwrap();
    read(&store, &by_us, 0).unwrap();
    assert_eq!(store.cache().evict(&NOTHING).unwrap(), Evicted::default());
    drop((hold, other));
    assert_eq!(store.cache().evict(&NOTHING).unwrap().objects, 2);
    assert_eq!([held, by_reader, by_us].map(|oid| is_here(&store, &oid)), [false, false, true]);
    assert!(matches!(store.hold(&held), Err(StoreError::NotHere)));
}

#[test]
fn a_hold_on_one_object_does_not_keep_the_others() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.store();
    let oids: Vec<_> = (0..150).map(|number| put(&store, number, 10)).collect();
    let _hold = store.hold(&oids[70]).unwrap();
    assert_eq!(store.cache().evict(&NOTHING).unwrap().objects, 149);
    assert!(is_here(&store, &oids[70]));
}

#[test]
fn a_reader_and_an_evictor_in_two_processes_never_make_wrong_bytes_or_damage() {
    let home = Home::new();
    let (reader, writer, end) = (home.store(), home.store(), AtomicBool::new(false));
    let oid = put(&writer, 1, PIECE);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut seen = [0, 0];
            while !end.load(Ordering::SeqCst) {
                match read(&reader, &oid, 0) {
                    Ok(bytes) => assert!(Oid::of(&bytes) == oid),
                    Err(error) => assert!(matches!(error, StoreError::NotHere), "{error}"),
                }
                seen[usize::from(reader.have(&oid).is_ok())] += 1;
            }
            seen
        });
        for _ in 0..100 {
            writer.cache().evict(&NOTHING).unwrap();
            assert_eq!(put_again(&writer), oid);
            assert!(is_here(&writer, &oid), "what was put is not forgotten by a reader that came too late");
        }
        end.store(true, Ordering::SeqCst);
        let seen = reading.join().unwrap();
        eprintln!("gone {} times, there {}", seen[0], seen[1]);
    });
}

fn put_again(store: &DiskStore) -> Oid {
    store.lease(&lease(live(1), Holder::Pinned)).unwrap();
    store.done(&live(1)).unwrap();
    put(store, 1, PIECE)
}

fn adopt(store: &DiskStore, data: &[u8], said: u64, spoil: bool) -> Result<Oid, StoreError> {
    let incoming = store.incoming().unwrap();
    incoming.file().write_all_at(data, 0).unwrap();
    let layout = Layout::of(data.len() as u64).unwrap();
    let mut values: Vec<Value> = Vec::new();
    let collect = &mut |run: Vec<Value>| {
        values.extend(run);
        Ok(())
    };
    hash_pieces(incoming.file(), &layout, collect).unwrap();
    let oid = oid_of(&values);
    values[0][0] ^= u8::from(spoil);
    store.adopt(incoming, &oid, said, &values, &About::default()).map(|()| oid)
}

#[test]
fn a_received_file_is_adopted_without_a_copy_and_is_cache() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.store();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&heard);
    store.register_push(Box::new(move |oid| lock(&list).push(*oid)));
    for len in [0, 10, 3 * PIECE + 1] {
        let data = pattern(len);
        let oid = adopt(&store, &data, len as u64, false).unwrap();
        assert_eq!(oid, Oid::of(&data));
        assert!(is_here(&home.store(), &oid) && store.get_descriptors(&oid, 0..1).is_ok());
    }
    assert_eq!(lock(&heard).len(), 3);
    assert_eq!(store.cache().evict(&NOTHING).unwrap().objects, 3);
}

#[test]
fn what_does_not_fit_its_name_is_not_adopted() {
    let home = Home::new();
    let store = home.store();
    for (said, spoil) in [(PIECE as u64, false), (3 * LIVE_PIECE, true), (2 * LIVE_PIECE + 1, false)] {
        let adopted = adopt(&store, &pattern(3 * PIECE), said, spoil);
        assert!(matches!(adopted, Err(StoreError::Refused { .. })), "{adopted:?}");
    }
    assert!(matches!(store.have(&Oid::of(&pattern(3 * PIECE))), Err(StoreError::NotHere)));
    assert_eq!(fs::read_dir(home.path("data/incoming")).unwrap().count(), 0);
}

#[test]
fn referred_files_are_forgotten_by_folder_and_never_touched() {
    let home = Home::new();
    let store = home.store();
    let records = |folder: &str, count: usize| -> Vec<_> {
        fs::create_dir(home.path("files").join(folder)).unwrap();
        let path = |n| home.path("files").join(folder).join(n);
        let files = (0..count).map(|n| path(n.to_string()));
        files
            .map(|path| {
                fs::write(&path, path.as_os_str().as_encoded_bytes()).unwrap();
                record(&path)
            })
            .collect()
    };
    let (old, leased, new) = (records("old", 30), records("leased", 20), records("new", 10));
    for (records, when) in [(&old, 10), (&leased, 0), (&new, 20)] {
        store.remember(records).unwrap();
        let set = "UPDATE dirs SET used = ? WHERE path = ?";
        let path = records[0].dir.as_os_str().as_encoded_bytes();
        let set = |t: &rusqlite::Transaction<'_>| Ok(t.execute(set, rusqlite::params![when, path])?);
        assert_eq!(store.core.index.write(Durability::Cached, "test", set).unwrap(), 1);
    }
    let tree = Lease { path: Some(home.path("files/leased")), ..lease(live(9), Holder::Pinned) };
    store.lease(&tree).unwrap();
    store.lease(&lease(old[3].oid, Holder::Pinned)).unwrap();
    let evict = |referred_files| {
        store.cache().evict(&CachePolicy { referred_files, ..CachePolicy::default() }).unwrap().files
    };
    assert_eq!(evict(60), 0);
    assert_eq!(evict(39), 29, "one of the folder is leased itself");
    let count = |records: &[FileRecord]| records.iter().filter(|one| is_here(&store, &one.oid)).count();
    assert_eq!([&old, &leased, &new].map(|records| count(records)), [1, 20, 10]);
    assert_eq!(evict(0), 10);
    assert_eq!([&old, &leased, &new].map(|records| count(records)), [1, 20, 0]);
    assert_eq!(fs::read_dir(home.path("files/old")).unwrap().count(), 30, "the files are others' own");
}
