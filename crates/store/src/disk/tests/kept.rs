//! A store that keeps what it owns in a byte store: all that a store promises, and what fails on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use towpath_byte_store::doubles::{ByteCall, FailingBytes};
use towpath_byte_store::{ByteName, ByteStore, ByteStoreError, LocalFiles};
use towpath_content::pieces::Layout;
use towpath_content::recipe;

use super::super::crash::quiet;
use super::cache::{lease, put};
use super::*;

const NOTHING: CachePolicy = CachePolicy { owned_bytes: 0, referred_files: 0 };

fn keeping(store: Arc<dyn ByteStore>) -> ByteKeeping {
    ByteKeeping { store, read_ahead: 16 << 20, spool: 8 << 20 }
}

impl Home {
    fn bytes(&self) -> Arc<dyn ByteStore> {
        Arc::new(LocalFiles::new(&self.path("bytes")))
    }

    fn open(&self, store: Arc<dyn ByteStore>) -> Result<DiskStore, StoreError> {
        DiskStore::open_with(&self.path("state"), &self.path("data"), Some(keeping(store)))
    }

    fn keeping(&self) -> DiskStore {
        self.open(self.bytes()).unwrap()
    }

    /// One whose byte store fails when `faults` says so.
    fn failing(
        &self,
        faults: impl Fn(ByteCall) -> Option<ByteStoreError> + Send + Sync + 'static,
    ) -> DiskStore {
        self.open(Arc::new(FailingBytes::new(self.bytes(), Box::new(faults)))).unwrap()
    }

    /// Names and sizes of all that is in the byte store.
    fn kept(&self) -> Vec<(Oid, u64)> {
        let all = self.bytes().list(None, 1000).unwrap();
        all.iter().map(|one| (Oid::Blake3(one.name.0), one.size)).collect()
    }

    /// Bytes on this machine that belong to objects.
    fn local_bytes(&self) -> u64 {
        let objects = fs::read_dir(self.path("data/objects")).unwrap();
        objects.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }
}

fn content(number: u8, len: usize) -> Vec<u8> {
    let mut data = pattern(len);
    data[0] = number;
    data
}

fn whole(store: &DiskStore, oid: &Oid) -> Result<Vec<u8>, StoreError> {
    let layout = store.have(oid)?.layout;
    let mut all = Vec::new();
    (0..layout.count()).try_for_each(|index| store.read_piece(oid, index, &mut all))?;
    Ok(all)
}

fn denied() -> ByteStoreError {
    ByteStoreError::Denied { place: "s3://bytes".into(), why: "the server answers 403".into() }
}

fn unreachable_place() -> ByteStoreError {
    ByteStoreError::Unreachable { place: "s3://bytes".into(), why: "the server answers 503".into() }
}

#[test]
fn conforms_with_its_bytes_elsewhere() {
    let (number, home) = (std::cell::Cell::new(0), tempfile::tempdir().unwrap());
    let make = || {
        number.set(number.get() + 1);
        let dir = home.path().join(number.get().to_string());
        fs::create_dir(&dir).unwrap();
        let bytes = Arc::new(LocalFiles::new(&dir.join("bytes")));
        DiskStore::open_with(&dir.join("state"), &dir.join("data"), Some(keeping(bytes))).unwrap()
    };
    crate::conformance::run(make);
    crate::conformance::run_leases(make);
    crate::conformance::run_chunks(make);
}

#[test]
fn what_is_put_or_adopted_lies_in_the_byte_store_alone_also_after_a_restart() {
    let (_quiet, home) = (quiet(), Home::new());
    let (small, large) = (content(1, 1000), content(2, 40 * PIECE + 7));
    let store = home.keeping();
    let put = [put(&store, 1, small.len()), put(&store, 2, large.len())];
    let adopted = content(3, 3 * PIECE);
    let incoming = store.incoming().unwrap();
    fs::write(incoming.path(), &adopted).unwrap();
    let layout = Layout::of(adopted.len() as u64).unwrap();
    let value = |index| {
        let range = layout.range(index);
        layout.value(index, &adopted[range.start as usize..range.end as usize])
    };
    let values: Vec<_> = (0..layout.count()).map(value).collect();
    let oid = Oid::of(&adopted);
    store.adopt(incoming, &oid, layout.size(), &values, &About::default()).unwrap();
    drop(store);
    assert_eq!(home.local_bytes(), 0);
    assert_eq!(fs::read_dir(home.path("data/incoming")).unwrap().count(), 0);
    let store = home.keeping();
    assert!(whole(&store, &put[0]).unwrap() == small);
    assert!(whole(&store, &put[1]).unwrap() == large);
    assert!(whole(&store, &oid).unwrap() == adopted);
    assert!(store.locate(&oid).unwrap().is_none(), "no file of this disk has it");
    let mut span = Vec::new();
    store.read_span(&put[1], 300_000..9_000_000, &mut span).unwrap();
    assert!(span == large[300_000..9_000_000]);
    let Descriptors::Proof(_) = store.get_descriptors(&put[1], 3..5).unwrap() else { panic!("no proof") };
}

#[test]
fn readers_that_read_on_cause_few_requests() {
    let (_quiet, home) = (quiet(), Home::new());
    let large = content(2, 64 * PIECE);
    let oid = put(&home.keeping(), 2, large.len());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let store = home.failing(move |call| {
        count.fetch_add(usize::from(call == ByteCall::Get), Ordering::Relaxed);
        None
    });
    assert!(whole(&store, &oid).unwrap() == large);
    // 16 MiB are four windows.
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    read(&store, &oid, 40).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 4, "it is still in memory");
}

#[test]
fn a_recipe_is_made_of_what_fits_the_spool() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.keeping();
    let (small, fits, large) = (put(&store, 1, PIECE), put(&store, 2, 8 * PIECE), put(&store, 3, 40 * PIECE));
    for oid in [small, fits] {
        let nodes = store.recipe(&oid).unwrap();
        assert_eq!(nodes.root().object, oid);
        assert!(recipe::verify(nodes.root(), |hash| nodes.node(hash)).is_ok());
    }
    assert!(matches!(store.recipe(&large), Err(StoreError::NotHere)));
    assert_eq!(home.local_bytes(), 0);
    assert_eq!(fs::read_dir(home.path("data/incoming")).unwrap().count(), 0);
}

#[test]
fn a_put_that_the_place_refuses_is_an_error_and_can_be_committed_later() {
    let (_quiet, home) = (quiet(), Home::new());
    let faults: [fn() -> ByteStoreError; 3] = [denied, unreachable_place, || ByteStoreError::Full {
        place: "s3://bytes".into(),
        why: "507".into(),
    }];
    for (number, fault) in (1..).zip(faults) {
        let count = AtomicUsize::new(0);
        let store = home.failing(move |call| {
            (call == ByteCall::Put && count.fetch_add(1, Ordering::Relaxed) == 0).then(fault)
        });
        let data = content(number, 3 * PIECE);
        store.put_init(&live(number), &About::default()).unwrap();
        store.put_data(&live(number), &data).unwrap();
        let refused = store.put_commit(&live(number));
        assert!(matches!(refused, Err(StoreError::Bytes(_))), "{refused:?}");
        assert!(
            matches!(store.have(&Oid::of(&data)), Err(StoreError::NotHere)),
            "nothing is said to be kept"
        );
        assert_eq!(store.put_commit(&live(number)).unwrap(), Oid::of(&data));
        assert!(whole(&store, &Oid::of(&data)).unwrap() == data);
    }
}

#[test]
fn a_place_that_does_not_answer_costs_no_object_its_row() {
    let (_quiet, home) = (quiet(), Home::new());
    let oid = put(&home.keeping(), 1, 3 * PIECE);
    for fault in [denied as fn() -> ByteStoreError, unreachable_place] {
        let count = AtomicUsize::new(0);
        let store = home.failing(move |call| {
            (call == ByteCall::Get && count.fetch_add(1, Ordering::Relaxed) == 0).then(fault)
        });
        assert!(matches!(whole(&store, &oid), Err(StoreError::Bytes(_))));
        assert!(whole(&store, &oid).unwrap() == content(1, 3 * PIECE));
    }
}

#[test]
fn an_object_is_held_and_read_by_one_request() {
    let (_quiet, home) = (quiet(), Home::new());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let store = home.failing(move |call| {
        counted.fetch_add(usize::from(!matches!(call, ByteCall::Put | ByteCall::Claim)), Ordering::Relaxed);
        None
    });
    let oid = put(&store, 1, 1000);
    let mut bytes = vec![9];
    let hold = store.hold_piece(&oid, 0, &mut bytes).unwrap();
    assert_eq!((bytes.len(), bytes[0], bytes[1..] == content(1, 1000)), (1001, 9, true));
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    assert_eq!(store.cache().evict(&NOTHING).unwrap().objects, 0, "it is held");
    drop(hold);
    assert_eq!(store.cache().evict(&NOTHING).unwrap().objects, 1);
    assert!(store.hold_piece(&oid, 0, &mut bytes).is_err());
    assert_eq!(bytes.len(), 1001, "nothing is appended");
}

#[test]
fn an_object_that_vanished_is_forgotten_and_can_be_put_again() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.keeping();
    let oid = put(&store, 1, 3 * PIECE);
    assert!(whole(&store, &oid).is_ok());
    let reader = store.hold(&oid).unwrap();
    home.bytes().delete(&ByteName(*oid.digest())).unwrap();
    drop(store);
    let store = home.keeping();
    assert!(read(&store, &oid, 0).is_err());
    assert!(store.have(&oid).is_ok(), "while somebody has it locked it is not forgotten");
    drop(reader);
    assert!(matches!(read(&store, &oid, 0), Err(StoreError::Corrupt { .. })));
    assert!(matches!(store.have(&oid), Err(StoreError::NotHere)));
    // Under another name: the first one was bound for good.
    store.put_init(&live(2), &About::default()).unwrap();
    store.put_data(&live(2), &content(1, 3 * PIECE)).unwrap();
    assert_eq!(store.put_commit(&live(2)).unwrap(), oid);
    assert!(whole(&store, &oid).unwrap() == content(1, 3 * PIECE));
}

#[test]
fn eviction_deletes_in_the_byte_store_what_nobody_holds_or_leases() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.keeping();
    let oids = [1, 2, 3].map(|number| put(&store, number, 1000 * usize::from(number)));
    store.lease(&lease(oids[0], Holder::Pinned)).unwrap();
    let other = home.keeping();
    let held = other.hold(&oids[1]).unwrap();
    assert_eq!(store.cache().evict(&NOTHING).unwrap().objects, 1);
    let mut expected = vec![(oids[0], 1000), (oids[1], 2000)];
    expected.sort_by_key(|(oid, _)| *oid.digest());
    assert_eq!(home.kept(), expected);
    drop(held);
    assert_eq!(store.cache().evict(&NOTHING).unwrap().objects, 1);
    assert_eq!(home.kept(), [(oids[0], 1000)]);
    assert_eq!(fs::read_dir(home.path("data/objects")).unwrap().count(), 1, "one stand-in");
    assert!(whole(&store, &oids[0]).is_ok());
}

#[test]
fn what_could_not_be_deleted_and_what_a_crash_left_is_collected() {
    let (_quiet, home) = (quiet(), Home::new());
    let oid = put(&home.keeping(), 1, 1000);
    let failing = home.failing(|call| (call == ByteCall::Delete).then(denied));
    assert_eq!(failing.cache().evict(&NOTHING).unwrap().objects, 1);
    assert_eq!(home.kept(), [(oid, 1000)]);
    drop(failing);
    let store = home.keeping();
    // As a put leaves it that is killed before its row is written.
    home.bytes().put(&ByteName([9; 32]), &mut &b"left"[..], 4).unwrap();
    let here = put(&store, 2, 10);
    let collected = store.gc(&GcOptions::default()).unwrap();
    assert_eq!((collected.objects, collected.bytes), (2, 1004));
    assert_eq!(home.kept(), [(here, 10)]);
    assert_eq!(store.gc(&GcOptions::default()).unwrap(), Collected::default());
}

#[test]
fn what_was_owned_before_stays_where_it_is_and_both_are_served() {
    let (_quiet, home) = (quiet(), Home::new());
    let before = put(&home.store(), 1, 1000);
    let store = home.keeping();
    let after = put(&store, 2, 1000);
    assert_eq!(put(&store, 3, 1000), Oid::of(&content(3, 1000)));
    for number in [1, 2] {
        let oid = [before, after][usize::from(number) - 1];
        assert!(whole(&store, &oid).unwrap() == content(number, 1000));
    }
    drop(store);
    // A program without the byte store serves what is on the disk, and takes the other for nothing lost.
    let plain = home.store();
    assert!(whole(&plain, &before).is_ok());
    let absent = whole(&plain, &after).unwrap_err();
    assert!(absent.to_string().contains("reading an object"), "{absent}");
    assert_eq!(plain.cache().evict(&NOTHING).unwrap().objects, 1);
    drop(plain);
    assert!(whole(&home.keeping(), &after).is_ok());
}

#[test]
fn another_place_than_that_of_the_objects_is_refused() {
    let (_quiet, home) = (quiet(), Home::new());
    put(&home.keeping(), 1, 1000);
    let elsewhere = home.open(Arc::new(LocalFiles::new(&home.path("elsewhere"))));
    assert!(matches!(elsewhere.err(), Some(StoreError::Bytes(ByteStoreError::Missing { .. }))));
    let other = Home::new();
    let taken = other.open(home.bytes());
    assert!(matches!(taken.err(), Some(StoreError::Bytes(ByteStoreError::Taken { .. }))));
    // What is moved with all that is in it is the same place.
    fs::rename(home.path("bytes"), home.path("moved")).unwrap();
    let moved = home.open(Arc::new(LocalFiles::new(&home.path("moved")))).unwrap();
    assert!(whole(&moved, &Oid::of(&content(1, 1000))).is_ok());
}

#[test]
fn puts_reads_and_evictions_at_once_lose_nothing() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.keeping();
    let [first, second] = [home.keeping(), home.keeping()];
    std::thread::scope(|scope| {
        for (store, begin) in [(&first, 10), (&second, 20)] {
            scope.spawn(move || {
                for round in 0..20 {
                    let number = begin + round % 4;
                    let (name, oid) = (Oid::Live([begin; 32]), Oid::of(&content(number, 2 * PIECE)));
                    store.lease(&lease(oid, Holder::Pinned)).unwrap();
                    let live = Oid::Live([begin, round, 0, 0].repeat(8).try_into().unwrap());
                    assert!(live != name);
                    store.put_init(&live, &About::default()).unwrap();
                    store.put_data(&live, &content(number, 2 * PIECE)).unwrap();
                    assert_eq!(store.put_commit(&live).unwrap(), oid);
                    assert!(whole(store, &oid).unwrap() == content(number, 2 * PIECE));
                    assert!(store.done(&oid).unwrap());
                }
            });
        }
        for _ in 0..40 {
            store.cache().evict(&NOTHING).unwrap();
            store.gc(&GcOptions::default()).unwrap();
        }
    });
}
