//! The index of chunks as its users see it.

use super::*;

const CUT_BY: Parameters = Parameters::DEFAULT;
const OTHERWISE: Parameters = Parameters::Fixed { len: 4096 };

fn open(dir: &Path) -> ChunkIndex {
    ChunkIndex::new(dir, ChunkLimits::default())
}

fn stamp(n: u64) -> Stamp {
    Stamp { dev: 1, ino: n, size: 1 << 20, mtime_ns: 5, ctime_ns: 6 }
}

fn hash(n: u64) -> ChunkHash {
    ChunkHash::of(&n.to_le_bytes())
}

fn chunks(numbers: std::ops::Range<u64>) -> Vec<CutChunk> {
    let first = numbers.start;
    let chunk = |n| CutChunk { hash: hash(n), offset: (n - first) * 16384, len: 16384 };
    numbers.map(chunk).collect()
}

fn record(index: &ChunkIndex, path: &str, stamp: Stamp, numbers: std::ops::Range<u64>) {
    let chunks = chunks(numbers);
    let cut = CutFile { path: Path::new(path), stamp, settled: true, parameters: CUT_BY, chunks: &chunks };
    index.record_chunks(&cut).unwrap();
}

fn find(index: &ChunkIndex, n: u64) -> Option<(String, u64)> {
    let found = index.find_chunks(&[hash(n)], &|_| true).unwrap().remove(0)?;
    Some((found.path.to_str().unwrap().to_owned(), found.offset))
}

#[test]
fn chunks_are_found_before_and_after_they_are_written_down_and_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    record(&index, "/a/one", stamp(1), 0..100);
    let expected = Some(("/a/one".to_owned(), 7 * 16384));
    assert_eq!(find(&index, 7), expected);
    index.flush().unwrap();
    assert_eq!((find(&index, 7), find(&open(dir.path()), 7)), (expected.clone(), expected));
    assert_eq!(find(&index, 100), None);
    assert_eq!(index.totals().unwrap(), ChunkTotals { files: 1, chunks: 100 });
}

#[test]
fn what_was_collected_is_written_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    record(&open(dir.path()), "/a/one", stamp(1), 0..3);
    assert!(find(&open(dir.path()), 2).is_some());
}

#[test]
fn a_file_is_cut_under_one_stamp_and_with_each_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    record(&index, "/a/one", stamp(1), 0..3);
    let path = Path::new("/a/one");
    for _written in [false, true] {
        assert!(index.is_cut(path, &stamp(1), &CUT_BY).unwrap());
        assert!(!index.is_cut(path, &stamp(2), &CUT_BY).unwrap());
        assert!(!index.is_cut(path, &stamp(1), &OTHERWISE).unwrap());
        assert!(!index.is_cut(Path::new("/a/two"), &stamp(1), &CUT_BY).unwrap());
        index.flush().unwrap();
    }
    let other =
        CutFile { path, stamp: stamp(1), settled: false, parameters: OTHERWISE, chunks: &chunks(9..12) };
    index.record_chunks(&other).unwrap();
    index.flush().unwrap();
    assert!(find(&index, 1).is_some() && find(&index, 10).is_some(), "one stamp, cut in two ways");
    assert!(!index.is_cut(path, &stamp(1), &OTHERWISE).unwrap(), "its stamp was not settled");
}

#[test]
fn a_file_that_changed_or_was_forgotten_takes_its_chunks_along() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    for written in [false, true] {
        let flush = || {
            if written {
                index.flush().unwrap()
            }
        };
        record(&index, "/a/one", stamp(1), 0..3);
        flush();
        record(&index, "/a/one", stamp(2), 3..6);
        flush();
        assert_eq!((find(&index, 1), find(&index, 4).is_some()), (None, true), "{written}");
        index.forget_file(Path::new("/a/one")).unwrap();
        assert_eq!(find(&index, 4), None, "{written}");
    }
    assert_eq!(index.totals().unwrap(), ChunkTotals::default());
}

#[test]
fn a_copy_is_found_when_the_first_file_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    record(&index, "/a/one", stamp(1), 0..3);
    record(&index, "/a/copy", stamp(2), 0..3);
    index.flush().unwrap();
    for name in ["one", "copy"] {
        let found = index.find_chunks(&[hash(1)], &|path| path.ends_with(name)).unwrap().remove(0);
        assert!(found.unwrap().path.ends_with(name), "of two places the one that may be used");
    }
    for path in ["/a/one", "/a/copy"] {
        assert!(find(&index, 1).is_some());
        index.forget_file(Path::new(path)).unwrap();
    }
    assert_eq!(find(&index, 1), None);
}

#[test]
fn the_file_that_holds_most_of_what_is_wanted_is_preferred() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    record(&index, "/whole", stamp(1), 0..50);
    for n in 0..5 {
        record(&index, &format!("/part{n}"), stamp(2 + n), n..n + 1);
        index.flush().unwrap();
    }
    let wanted: Vec<_> = (0..50).map(hash).collect();
    let found = index.find_chunks(&wanted, &|_| true).unwrap();
    assert!(found.iter().flatten().all(|found| *found.path == *Path::new("/whole")));
}

#[test]
fn many_batches_are_merged_and_everything_is_still_found() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    for n in 0..60 {
        record(&index, &format!("/d/{n}"), stamp(n), n * 50..n * 50 + 50);
        index.flush().unwrap();
    }
    let wanted: Vec<_> = (0..3000).map(hash).collect();
    for (n, found) in index.find_chunks(&wanted, &|_| true).unwrap().into_iter().enumerate() {
        let found = found.unwrap();
        assert_eq!(
            (found.path.to_str().unwrap(), found.offset),
            (&*format!("/d/{}", n / 50), (n % 50) as u64 * 16384)
        );
    }
    let runs = index.with(&mut lock(&index.state), "test", |conn| Ok(runs::all(conn)?)).unwrap();
    assert!(runs.len() <= 8, "{}", runs.len());
    assert_eq!(runs.iter().map(|run| run.entries).sum::<u64>(), 3000);
}

#[test]
fn beyond_the_limit_what_was_unused_longest_goes() {
    let dir = tempfile::tempdir().unwrap();
    let index = ChunkIndex::new(dir.path(), ChunkLimits { chunks: 160, files: 1000 });
    for n in 0..4 {
        record(&index, &format!("/d/{n}"), stamp(n), n * 40..n * 40 + 40);
    }
    index.flush().unwrap();
    let age = |conn: &mut Connection| Ok(conn.execute("UPDATE cuts SET used = id", [])?);
    index.with(&mut lock(&index.state), "test", age).unwrap();
    assert!(find(&index, 1).is_some(), "used now");
    record(&index, "/d/new", stamp(9), 1000..1010);
    index.flush().unwrap();
    let is_there: Vec<_> = (0..4).map(|n| find(&index, n * 40).is_some()).collect();
    assert_eq!(is_there, [true, false, true, true]);
    assert_eq!(index.totals().unwrap(), ChunkTotals { files: 4, chunks: 130 });
}

#[test]
fn entries_of_forgotten_files_leave_the_disk_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    let many = pending::MAX_CHUNKS as u64 + 10;
    for round in 0..3 {
        record(&index, "/d/one", stamp(round), round * many..(round + 1) * many);
        index.flush().unwrap();
    }
    let runs = index.with(&mut lock(&index.state), "test", |conn| Ok(runs::all(conn)?)).unwrap();
    assert!(runs.iter().map(|run| run.entries).sum::<u64>() < 2 * many + many / 2, "{runs:?}");
    assert!(find(&index, 2 * many).is_some() && find(&index, 0).is_none());
}

#[test]
fn a_damaged_index_is_begun_anew_and_the_store_keeps_its_own() {
    let dir = tempfile::tempdir().unwrap();
    record(&open(dir.path()), "/a/one", stamp(1), 0..3);
    std::fs::write(dir.path().join("chunks.db"), vec![0xaa; 9000]).unwrap();
    let index = open(dir.path());
    assert_eq!(find(&index, 1), None);
    record(&index, "/a/one", stamp(1), 0..3);
    index.flush().unwrap();
    // Damage that shows while it is open.
    index.with(&mut lock(&index.state), "test", |conn| Ok(conn.execute_batch("DROP TABLE places")?)).unwrap();
    assert!(index.find_chunks(&[hash(1)], &|_| true).is_err());
    assert_eq!(find(&index, 1), None);
    record(&index, "/a/one", stamp(1), 0..3);
    index.flush().unwrap();
    assert!(find(&open(dir.path()), 1).is_some());
}

#[test]
fn an_index_of_a_newer_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    let newer = |conn: &mut Connection| Ok(conn.pragma_update(None, "user_version", 9)?);
    index.with(&mut lock(&index.state), "test", newer).unwrap();
    assert!(
        open(dir.path()).find_chunks(&[hash(1)], &|_| true).unwrap_err().to_string().contains("version 9")
    );
    assert!(dir.path().join("chunks.db").exists());
}

#[test]
fn nobody_else_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    record(&index, "/a/one", stamp(1), 0..3);
    index.flush().unwrap();
    for name in ["chunks.db", "chunks.db-wal"] {
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// Bytes of this process that are in memory and its own.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Number of chunks in a measurement, in millions.
fn millions() -> u64 {
    std::env::var("MILLIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// `INDEX`, where an index stays for the next measurement, or a folder that goes.
fn measured() -> (PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("INDEX").map_or_else(|| folder.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(&dir).unwrap();
    (dir, folder)
}

/// Its figures are in `docs/formats/index.md`, with the command.
#[test]
#[ignore = "takes minutes; a measurement"]
fn memory_and_writes_with_many_chunks() {
    let millions = millions();
    let (dir, _folder) = measured();
    let index = open(&dir);
    let (before, start) = (resident(), std::time::Instant::now());
    for n in 0..millions * 100_000 {
        record(&index, &format!("/tree/{}/file-{n}", n / 100), stamp(n), n * 10..n * 10 + 10);
    }
    index.flush().unwrap();
    let recorded = start.elapsed();
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    let wanted: Vec<_> = (0..131_072).map(|n| hash(n * 997 % (millions * 1_000_000))).collect();
    let start = std::time::Instant::now();
    let found = index.find_chunks(&wanted, &|_| true).unwrap().iter().flatten().count();
    let (all, start) = (start.elapsed(), std::time::Instant::now());
    (0..1000).for_each(|n| drop(find(&index, n * 7919)));
    println!(
        "{:?} {} MiB more memory, {recorded:.1?} to record, {} bytes written a chunk, {} MiB on disk; \
         {found} of {} found in {all:.2?}, one in {:.0?}",
        index.totals().unwrap(),
        (resident() - before) >> 20,
        written.parse::<u64>().unwrap() / (millions * 1_000_000),
        std::fs::metadata(dir.join("chunks.db")).unwrap().len() >> 20,
        wanted.len(),
        start.elapsed() / 1000,
    );
    assert_eq!(found, wanted.len());
    assert!((resident() - before) < 128 << 20);
}

/// Drops what the kernel holds of the index, as far as it can be.
fn forget_pages(dir: &Path) {
    for name in ["chunks.db", "chunks.db-wal"] {
        let Ok(file) = File::open(dir.join(name)) else { continue };
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// Looks in an index that [`memory_and_writes_with_many_chunks`] left in `INDEX`, in a process that has done
/// nothing else. Its figures are in `docs/results/dsync.md`, with the command.
#[test]
#[ignore = "a measurement, of an index that another one leaves"]
fn look_ups_with_many_chunks() {
    let (dir, _folder) = measured();
    let (count, before) = (millions() * 1_000_000, resident());
    let index = open(&dir);
    println!("{:?}, {} MiB in memory to begin with", index.totals().unwrap(), before >> 20);
    for (what, first) in [("that are there", 0), ("that are not", count)] {
        // As many as a CACHE-CHECK asks for, and one.
        for (at_once, times) in [(4096, 64), (1, 4096)] {
            for is_cold in [true, false] {
                if is_cold {
                    forget_pages(&dir);
                }
                // Here and there: files are not asked for one after the other.
                let wanted = |batch| (0..at_once).map(move |n| (batch * at_once + n) * 104_729 % count);
                let batch = |batch| wanted(batch).map(|n| hash(first + n)).collect::<Vec<_>>();
                let batches: Vec<_> = (0..times).map(batch).collect();
                let (start, mut found) = (std::time::Instant::now(), 0);
                for wanted in &batches {
                    found += index.find_chunks(wanted, &|_| true).unwrap().iter().flatten().count();
                }
                let took = start.elapsed();
                assert_eq!(found as u64, if first == 0 { at_once * times } else { 0 });
                println!(
                    "{at_once} at once {what}, {}: {:.0} a second, {:.2?} each time",
                    if is_cold { "nothing in memory" } else { "again" },
                    (at_once * times) as f64 / took.as_secs_f64(),
                    took / times as u32,
                );
            }
        }
    }
    index.flush().unwrap();
    println!("{} MiB more in memory at its peak", (resident() - before) >> 20);
    assert!((resident() - before) < 128 << 20);
}
