//! Files that are no longer as they were, and owned bytes that are damaged.

use super::*;

#[test]
fn a_changed_file_is_forgotten_and_nobody_is_blamed() {
    let home = Home::new();
    for len in [10, 3 * PIECE] {
        let (path, store) = (home.file("file", &pattern(len)), home.store());
        let oid = put_file(&store, &path);
        read(&store, &oid, 0).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"new", 1).unwrap();
        let result = read(&store, &oid, 0);
        assert!(
            matches!(&result, Err(StoreError::SourceChanged { path: lost }) if *lost == path),
            "{result:?}"
        );
        assert!(matches!(store.have(&oid), Err(StoreError::NotHere)));
        assert!(matches!(read(&store, &oid, 0), Err(StoreError::NotHere)));
        assert_eq!(store.locate(&oid).unwrap(), None);
    }
}

#[test]
fn what_is_gone_from_the_disk_is_not_here_whatever_the_index_says() {
    let home = Home::new();
    let store = home.store();
    let path = home.file("a", b"referred");
    let referred = put_file(&store, &path);
    let owned = cache::put(&store, 1, 1000);
    assert!(store.is_here(&referred) && store.is_here(&owned));
    fs::remove_file(path).unwrap();
    fs::remove_file(home.path("data/objects").join(owned.to_string().trim_start_matches("blake3:"))).unwrap();
    assert!(store.have(&referred).is_ok() && store.have(&owned).is_ok(), "the index does not know it yet");
    assert!(!store.is_here(&referred) && !store.is_here(&owned));
    assert!(!store.is_here(&live(1)), "a name of what is gone");
}

#[test]
fn a_file_that_is_gone_replaced_or_a_pipe_now_is_a_changed_one() {
    let home = Home::new();
    let store = home.store();
    let ways: [fn(&Path); 3] = [
        |path| fs::remove_file(path).unwrap(),
        |path| {
            fs::write(path.with_extension("new"), b"other").unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RUSR, 0).unwrap();
        },
    ];
    for (number, spoil) in ways.into_iter().enumerate() {
        let path = home.file(&number.to_string(), &pattern(20 + number));
        let oid = put_file(&store, &path);
        spoil(&path);
        assert!(matches!(read(&store, &oid, 0), Err(StoreError::SourceChanged { .. })), "way {number}");
    }
}

#[test]
fn when_one_copy_changed_another_is_read() {
    let home = Home::new();
    for len in [10, 2 * PIECE + 1] {
        let store = home.store();
        let paths = ["a", "b", "c"].map(|name| home.file(&format!("{name}{len}"), &pattern(len)));
        let oid = paths.iter().map(|path| put_file(&store, path)).last().unwrap();
        let (kept, _) = store.locate(&oid).unwrap().unwrap();
        for path in paths.iter().filter(|path| **path != paths[1]) {
            fs::write(path, b"other").unwrap();
        }
        assert_eq!(read(&store, &oid, 0).unwrap(), pattern(len)[..len.min(PIECE)], "first was {kept:?}");
        assert_eq!(store.locate(&oid).unwrap().unwrap().0, paths[1]);
        assert!(store.get_descriptors(&oid, 0..1).is_ok());
    }
}

#[test]
fn many_stale_records_of_one_object_do_not_hide_the_good_one() {
    let home = Home::new();
    let (store, path) = (home.store(), home.file("z", b"same"));
    let good = record(&path);
    let stale = |n| FileRecord { dir: home.path("gone"), name: format!("{n}").into(), ..good.clone() };
    let records: Vec<_> = (0..300).map(stale).chain([good.clone()]).collect();
    store.remember(&records).unwrap();
    assert_eq!(read(&store, &good.oid, 0).unwrap(), b"same");
}

#[test]
fn an_owned_object_that_was_cut_off_is_reported_as_damaged() {
    let home = Home::new();
    let store = home.store();
    store.put_init(&live(1), &About::default()).unwrap();
    store.put_data(&live(1), b"bytes").unwrap();
    let oid = store.put_commit(&live(1)).unwrap();
    fs::write(home.store().core.folders.object(&oid), b"byt").unwrap();
    assert!(matches!(read(&store, &oid, 0), Err(StoreError::Corrupt { .. })));
    assert!(matches!(read(&store, &oid, 0), Err(StoreError::NotHere)));
}

#[test]
fn a_file_that_another_process_has_locked_is_neither_damaged_nor_forgotten() {
    let home = Home::new();
    let store = home.store();
    store.put_init(&live(1), &About::default()).unwrap();
    store.put_data(&live(1), b"bytes").unwrap();
    let oid = store.put_commit(&live(1)).unwrap();
    let file = fs::File::open(store.core.folders.object(&oid)).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(matches!(read(&store, &oid, 0), Err(StoreError::Io { .. })));
    rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
    assert_eq!(read(&store, &oid, 0).unwrap(), b"bytes");
}

#[test]
fn a_damaged_chunk_is_noticed_forgotten_and_can_be_put_again() {
    let (home, hash) = (Home::new(), *blake3::hash(b"chunk").as_bytes());
    let store = home.store();
    store.put_chunk(&hash, b"chunk").unwrap();
    fs::write(store.core.folders.chunk(&hash), b"chunX").unwrap();
    assert!(matches!(store.get_chunk(&hash), Err(StoreError::Corrupt { .. })));
    assert!(matches!(store.get_chunk(&hash), Err(StoreError::NotHere)));
    store.put_chunk(&hash, b"chunk").unwrap();
    assert_eq!(home.store().get_chunk(&hash).unwrap(), b"chunk");
}
