//! Sessions whose process is gone, and what `gc` removes.

use super::super::crash::quiet;
use super::super::index::Durability;
use super::cache::{lease, put};
use super::*;

fn sessions(store: &DiskStore) -> Vec<Oid> {
    store.leases().unwrap().iter().map(|lease| lease.oid).collect()
}

#[test]
fn sessions_and_puts_end_with_their_process_and_others_go_on() {
    let (_quiet, home) = (quiet(), Home::new());
    let (daemon, other) = (home.store(), home.store());
    for (store, number) in [(&daemon, 1), (&other, 2)] {
        store.lease(&lease(live(number), Holder::Session([number; 16]))).unwrap();
        let file = Some(home.path("file"));
        store.lease(&Lease { path: file, ..lease(live(number + 10), Holder::Pinned) }).unwrap();
        // About to be committed; the second one is.
        store.lease(&lease(live(number + 20), Holder::Pinned)).unwrap();
        store.lease(&lease(live(number + 30), Holder::Pinned)).unwrap();
        store.put_init(&live(number + 30), &About::default()).unwrap();
        store.put_commit(&live(number + 30)).unwrap();
    }
    assert_eq!(daemon.lease_table().end_sessions().unwrap(), []);
    drop(daemon);
    let next = home.store();
    assert_eq!(next.lease_table().end_sessions().unwrap(), [live(1), live(21)]);
    assert_eq!(sessions(&next), [live(11), live(31), live(2), live(12), live(22), live(32)]);
    drop(other);
    assert_eq!(next.gc(&GcOptions::default()).unwrap().leases, 2);
    assert_eq!(sessions(&next), [live(11), live(31), live(12), live(32)]);
    assert_eq!(fs::read_dir(home.path("state/sessions")).unwrap().count(), 0);
}

#[test]
fn what_is_of_no_more_use_is_collected_and_everything_else_stays() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.store();
    let (kept, cached) = (put(&store, 1, 2 * PIECE), put(&store, 2, 10));
    let files = ["same", "changed", "gone"]
        .map(|name| home.file(name, &[name.as_bytes(), &pattern(2 * PIECE)].concat()));
    let oids = files.each_ref().map(|path| put_file(&store, path));
    fs::write(&files[1], b"other").unwrap();
    fs::remove_file(&files[2]).unwrap();
    let chunk = *blake3::hash(b"chunk").as_bytes();
    store.put_chunk(&chunk, b"chunk").unwrap();
    let (open, other) = (store.incoming().unwrap(), home.path("data/objects/README"));
    let orphan = |hash: [u8; 32], bytes: &[u8]| {
        fs::write(store.core.folders.object(&Oid::Blake3(hash)), bytes).unwrap();
        fs::write(store.core.folders.chunk(&[&chunk[..1], &hash[1..]].concat().try_into().unwrap()), bytes)
            .unwrap();
    };
    orphan([0xab; 32], b"orphan");
    fs::write(home.path("data/incoming/1-1"), b"left").unwrap();
    fs::write(&other, b"not ours").unwrap();
    let insert = "INSERT INTO piece_values VALUES (x'01', x'02')";
    store.core.index.write(Durability::Cached, "test", |t| Ok(t.execute(insert, [])?)).unwrap();
    let expected = Collected {
        objects: 1,
        chunks: 1,
        bytes: 12,
        files: 2,
        values: 1,
        temporaries: 1,
        ..Collected::default()
    };
    assert_eq!(store.gc(&GcOptions::default()).unwrap(), expected);
    assert_eq!(store.gc(&GcOptions::default()).unwrap(), Collected::default());
    let here = [kept, cached, oids[0], oids[1], oids[2]].map(|oid| read(&store, &oid, 0).is_ok());
    assert_eq!(here, [true, true, true, false, false]);
    assert_eq!(store.get_chunk(&chunk).unwrap(), b"chunk");
    assert!(other.exists() && open.path().exists());
}

#[test]
fn orphans_stay_while_a_damaged_index_may_know_of_them() {
    let (_quiet, home) = (quiet(), Home::new());
    let oid = put(&home.store(), 1, 10);
    fs::write(home.path("state/index.db"), vec![0xaa; 9000]).unwrap();
    let store = home.store();
    let collected = store.gc(&GcOptions::default()).unwrap();
    assert_eq!(collected, Collected { is_cautious: true, ..Collected::default() });
    assert!(store.core.folders.object(&oid).exists());
    for entry in fs::read_dir(home.path("state")).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_name().to_string_lossy().contains("damaged") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    assert_eq!(store.gc(&GcOptions::default()).unwrap().objects, 1);
}

#[test]
fn an_object_that_is_being_put_is_not_taken_for_an_orphan() {
    let (_quiet, home) = (quiet(), Home::new());
    let store = home.store();
    let incoming = store.incoming().unwrap();
    incoming.file().write_all_at(b"bytes", 0).unwrap();
    let target = store.core.folders.object(&Oid::of(b"bytes"));
    incoming.publish(&target).unwrap();
    assert_eq!(home.store().gc(&GcOptions::default()).unwrap().objects, 0);
    drop(incoming);
    assert_eq!(home.store().gc(&GcOptions::default()).unwrap().objects, 1);
    assert!(!target.exists());
}

#[test]
fn a_collector_in_another_process_takes_nothing_that_is_leased_or_counted() {
    let home = Home::new();
    let (writer, collector) = (home.store(), home.store());
    let nothing = CachePolicy { owned_bytes: 0, referred_files: 0 };
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for number in 0..40 {
                writer.lease(&lease(live(number), Holder::Session([number % 3; 16]))).unwrap();
                put(&writer, number, 1000);
                writer.put_chunk(blake3::hash(&[number]).as_bytes(), &[number]).unwrap();
            }
        });
        while !writing.is_finished() {
            collector.gc(&GcOptions { policy: nothing }).unwrap();
        }
    });
    for number in 0..40 {
        assert_eq!(read(&collector, &live(number), 0).unwrap()[0], number);
        assert_eq!(collector.get_chunk(blake3::hash(&[number]).as_bytes()).unwrap(), [number]);
    }
    assert_eq!(writer.end_session(&[1; 16]).unwrap().len(), 13);
}

#[test]
fn an_index_of_version_1_is_converted_with_all_that_is_in_it() {
    let home = Home::new();
    fs::create_dir(home.path("state")).unwrap();
    let index = rusqlite::Connection::open(home.path("state/index.db")).unwrap();
    index.execute_batch(include_str!("version_1.sql")).unwrap();
    let (name, oid) = (live(1).to_bytes(), Oid::of(b"old").to_bytes());
    index.execute("INSERT INTO dirs VALUES (7, x'2f')", []).unwrap();
    index.execute("INSERT INTO objects VALUES (?, 3, 1, 0, x'', NULL, NULL, NULL)", [oid]).unwrap();
    index.execute("INSERT INTO bindings VALUES (?, ?, 3)", [name, oid]).unwrap();
    let insert = "INSERT INTO leases VALUES (1, ?, ?, 3, zeroblob(16), NULL, 0, x'', NULL, NULL, NULL, 5)";
    index.execute(insert, [name, oid]).unwrap();
    drop(index);
    let store = home.store();
    fs::write(store.core.folders.object(&Oid::of(b"old")), b"old").unwrap();
    let leases = store.leases().unwrap();
    assert_eq!((leases[0].oid, leases[0].holder, leases[0].created), (live(1), Holder::Pinned, 5));
    assert_eq!(read(&store, &live(1), 0).unwrap(), b"old");
    let unused = |conn: &rusqlite::Connection| {
        let select = "SELECT (SELECT count(*) FROM dirs WHERE used = 0)
            + (SELECT count(*) FROM objects WHERE used = 0)";
        Ok(conn.query_row(select, [], |row| row.get::<_, u64>(0))?)
    };
    assert_eq!(store.core.index.read("test", unused).unwrap(), 0, "what was there counts as used now");
    let columns = |index: &rusqlite::Connection| -> Vec<(String, String)> {
        let select = "SELECT m.name, c.name || ' ' || c.type || c.\"notnull\" || coalesce(c.dflt_value, '')
            FROM sqlite_schema m JOIN pragma_table_info(m.name) c ORDER BY m.name, c.cid";
        let mut select = index.prepare(select).unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let fresh = Home::new();
    fresh.store();
    let [old, new] =
        [&home, &fresh].map(|home| rusqlite::Connection::open(home.path("state/index.db")).unwrap());
    assert_eq!(columns(&old), columns(&new), "as if it were new");
}
