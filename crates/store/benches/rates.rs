//! Rates at which the disk store records, looks up, hashes and reads.
//!
//! `cargo bench -p towpath-store [-- DIR]`; DIR says which disk, by default the one with /tmp. The
//! files are looked at by their stamps alone, so the rows need no real files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use towpath_content::Oid;
use towpath_store::{About, Chunks, DiskStore, FileRecord, Stamp, Store};

const DIRS: usize = 1000;
const FILES: usize = 200;
const BATCH: usize = 10_000;
const BIG: u64 = 1 << 30;

fn report(what: &str, count: f64, unit: &str, took: Duration) {
    let rate = count / took.as_secs_f64();
    let line = format!("{what:44} {rate:12.0} {unit}/s   ({:.3} s)", took.as_secs_f64());
    // A bench whose reader went away has nothing left to do.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn timed<T>(what: &str, count: f64, unit: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    report(what, count, unit, start.elapsed());
    result
}

fn dir(number: usize) -> PathBuf {
    format!("/srv/somewhere/in/a/tree/with/a/usual/depth/{number:04}").into()
}

fn record(dir_number: usize, file: usize) -> FileRecord {
    let number = (dir_number * FILES + file) as u64;
    let stamp = Stamp {
        dev: 65024,
        ino: 1_000_000 + number,
        size: 1000 + number,
        mtime_ns: 1_700_000_000_000_000_000 + number as i64,
        ctime_ns: 1_700_000_000_000_000_000 + number as i64,
    };
    let name = format!("file-{file:05}.dat").into();
    let oid = Oid::of(&number.to_le_bytes());
    FileRecord { dir: dir(dir_number), name, stamp, settled: true, oid, values: None }
}

fn rows(store: &DiskStore, state: &Path) {
    let records: Vec<_> = (0..DIRS).flat_map(|d| (0..FILES).map(move |f| record(d, f))).collect();
    let count = records.len() as f64;
    let remember = || records.chunks(BATCH).for_each(|batch| store.remember(batch).expect("remember"));
    timed("remember, new", count, "rows", remember);
    timed("remember, nothing new", count, "rows", remember);
    let known = || {
        records.chunks(FILES).for_each(|files| {
            let asked: Vec<_> = files.iter().map(|r| (&r.name, r.stamp)).collect();
            let known = store.known(&files[0].dir, &asked).expect("known");
            assert!(known.iter().all(Option::is_some));
        });
    };
    timed("known, a folder at a time", count, "rows", known);
    let have = || records.iter().step_by(7).for_each(|r| drop(store.have(&r.oid).expect("have")));
    timed("have, one at a time", count / 7.0, "objects", have);
    let size = fs::metadata(state.join("index.db")).map_or(0, |found| found.len());
    report("index, bytes a row", size as f64 / count, "bytes", Duration::from_secs(1));
}

fn big_file(store: &DiskStore, dir: &Path) {
    let path = dir.join("big");
    let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 253 + i) as u8).collect();
    let mut file = fs::File::create(&path).expect("create");
    (0..BIG >> 20).for_each(|_| file.write_all(&block).expect("write"));
    drop(file);
    let (about, mib) = (About::default(), (BIG >> 20) as f64);
    let live = Oid::Live([1; 32]);
    let put = |live| store.put_file(&path, live, &about).expect("put").0;
    timed("put_file, 1 GiB in the page cache", mib, "MiB", || put(None));
    fs::File::options()
        .append(true)
        .open(&path)
        .and_then(|f| f.set_modified(std::time::SystemTime::now()))
        .expect("touch");
    let oid = timed("put_file, the same readable meanwhile", mib, "MiB", || put(Some(&live)));
    timed("put_file, known", 1.0, "files", || put(None));
    let mut buf = Vec::new();
    let read = || {
        (0..BIG >> 18).for_each(|index| {
            buf.clear();
            store.read_piece(&oid, index, &mut buf).expect("read");
        });
    };
    timed("read_piece, referred file", mib, "MiB", read);
    let streamed = Oid::Live([2; 32]);
    timed("put_init, put_data, put_commit, 1 GiB", mib, "MiB", || {
        store.put_init(&streamed, &about).expect("init");
        (0..BIG >> 20).for_each(|_| store.put_data(&streamed, &block).expect("data"));
        assert_eq!(store.put_commit(&streamed).expect("commit"), oid);
    });
}

fn small_puts(store: &DiskStore) {
    timed("put_init, put_data, put_commit, 4 KiB", 200.0, "objects", || {
        for number in 0..200u64 {
            let mut name = [3; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            let live = Oid::Live(name);
            store.put_init(&live, &About::default()).expect("init");
            store.put_data(&live, &name.repeat(128)).expect("data");
            store.put_commit(&live).expect("commit");
        }
    });
    timed("put_chunk, 16 KiB", 200.0, "chunks", || {
        for number in 0..200u64 {
            let chunk = number.to_le_bytes().repeat(2048);
            store.put_chunk(blake3::hash(&chunk).as_bytes(), &chunk).expect("chunk");
        }
    });
}

fn main() {
    let place = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let place = place.map_or_else(std::env::temp_dir, PathBuf::from);
    let home = tempfile::tempdir_in(place).expect("a folder to work in");
    let (state, data) = (home.path().join("state"), home.path().join("data"));
    let store = DiskStore::open(&state, &data).expect("open");
    rows(&store, &state);
    small_puts(&store);
    big_file(&store, home.path());
}
