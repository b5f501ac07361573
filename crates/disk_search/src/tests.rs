//! Disk operations against real files, most of them in the middle of being changed.

mod indexed_reads;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use towpath_content::Oid;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_store::disk::chunk_index::Location;
use towpath_store::doubles::{noise, settle};
use towpath_store::{DiskStore, Stamp, Store};

use super::*;

const CUT_BY: Parameters = Parameters::DEFAULT;
const ALL: &dyn Fn(&Path) -> bool = &|_| true;

/// A store, and a folder of files to search.
struct Disk {
    _tmp: tempfile::TempDir,
    root: PathBuf,
    store: Arc<DiskStore>,
}

impl Disk {
    fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    fn within(tmp: tempfile::TempDir) -> Self {
        let base = tmp.path().canonicalize().unwrap();
        fs::create_dir(base.join("files")).unwrap();
        let store = DiskStore::open(&base.join("state"), &base.join("data")).unwrap();
        Self { _tmp: tmp, root: base.join("files"), store: Arc::new(store) }
    }

    /// Writes a file that was last changed long enough ago for its stamp to count.
    fn write(&self, name: &str, bytes: &[u8]) -> Candidate {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        settle(&path).unwrap();
        candidate(&path)
    }

    fn hash(
        &self,
        file: &Candidate,
        wanted: &SearchedChunk,
    ) -> (Result<HashOutcome, SearchError>, Vec<FoundChunk>) {
        let mut found = Vec::new();
        let mut give = |chunks: Vec<FoundChunk>| {
            found.extend(chunks);
            true
        };
        let (result, _) =
            hash(&self.store, file, &CUT_BY, Occasion::New, wanted, &Cancel::default(), &mut give);
        (result, found)
    }

    fn check(&self, hashes: &[ChunkHash]) -> Vec<Option<Location>> {
        cache_check(&self.store, hashes, ALL, &Cancel::default()).0.unwrap()
    }

    fn read(&self, chunks: &[IndexedChunks], wanted: &SearchedChunk) -> (ReadBack, Vec<FoundChunk>, Cost) {
        let mut found = Vec::new();
        let mut give = |chunks: Vec<FoundChunk>| {
            found.extend(chunks);
            true
        };
        let (result, cost) = cache_read(&self.store, chunks, wanted, &Cancel::default(), &mut give);
        (result.unwrap(), found, cost)
    }

    fn stat(&self, path: &Path) -> Result<(Vec<String>, Vec<String>), SearchError> {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let mut each = |listing: Listing| {
            files.extend(listing.files.iter().map(|file| file.name.to_str().unwrap().to_owned()));
            let name = |found: &DirectoryId| found.path.file_name().unwrap().to_str().unwrap().to_owned();
            directories.extend(listing.directories.iter().map(name));
            true
        };
        stat(&DirectoryId::start(path), &|name| name == "left-out", &Cancel::default(), &mut each).0?;
        files.sort();
        directories.sort();
        Ok((files, directories))
    }
}

fn candidate(path: &Path) -> Candidate {
    let (dir, name) = (path.parent().unwrap().into(), path.file_name().unwrap().into());
    Candidate { dir, name, stamp: Stamp::of_path(path).unwrap() }
}

/// The chunks of `data`, by name.
fn chunks(data: &[u8]) -> HashMap<ChunkHash, Vec<u8>> {
    let mut chunker = CUT_BY.chunker().unwrap();
    let (mut rest, mut all) = (data, HashMap::new());
    while let Some(chunk) = chunker.cut(&mut rest) {
        all.insert(ChunkHash::of(chunk), chunk.to_vec());
    }
    while let Some(chunk) = chunker.finish() {
        all.insert(ChunkHash::of(chunk), chunk.to_vec());
    }
    all
}

fn wanting(
    chunks: &HashMap<ChunkHash, Vec<u8>>,
) -> impl Fn(&ChunkHash) -> Option<u32> + Send + Sync + 'static {
    let lengths: HashMap<_, _> = chunks.iter().map(|(hash, bytes)| (*hash, bytes.len() as u32)).collect();
    move |hash| lengths.get(hash).copied()
}

fn nothing(_: &ChunkHash) -> Option<u32> {
    None
}

/// Asserts that these are the wanted chunks, all of them and as they are.
fn assert_found(found: &[FoundChunk], wanted: &HashMap<ChunkHash, Vec<u8>>) {
    let names: HashSet<_> = found.iter().map(|chunk| chunk.hash).collect();
    assert_eq!(names.len(), wanted.len());
    assert!(found.iter().all(|chunk| wanted[&chunk.hash] == chunk.bytes));
}

#[test]
fn a_file_gives_the_wanted_chunks_it_has_and_is_known_afterwards() {
    let disk = Disk::new();
    let (old, mut new) = (noise(1, 600_000), noise(1, 600_000));
    new.splice(300_000..300_000, *b"an insertion");
    let file = disk.write("old", &old);
    let (old_chunks, new_chunks) = (chunks(&old), chunks(&new));
    let (result, found) = disk.hash(&file, &wanting(&new_chunks));
    assert_eq!(result.unwrap(), HashOutcome::Read);
    let shared: HashMap<_, _> =
        new_chunks.into_iter().filter(|(hash, _)| old_chunks.contains_key(hash)).collect();
    assert!(shared.len() > 20);
    assert_found(&found, &shared);

    // Chunks that nobody wanted then are in the index, and so is the content.
    assert_eq!(disk.hash(&file, &nothing).0.unwrap(), HashOutcome::Indexed);
    let names: Vec<_> = old_chunks.keys().copied().collect();
    let places = disk.check(&names);
    let places: Vec<IndexedChunks> = names.into_iter().zip(places.into_iter().flatten()).collect();
    let (back, found, cost) = disk.read(&places, &wanting(&old_chunks));
    assert_eq!(back, ReadBack::default());
    assert_found(&found, &old_chunks);
    assert_eq!((cost.bytes, cost.chunks), (old.len() as u64, old_chunks.len() as u64), "one pass");
    assert!(disk.store.have(&Oid::of(&old)).is_ok());
}

#[test]
fn a_small_object_is_found_as_a_whole_file() {
    let disk = Disk::new();
    for len in [1, 5000, 200_000] {
        let data = noise(len, len as usize);
        let file = disk.write(&format!("file{len}"), &data);
        let name = ChunkHash(*Oid::of(&data).digest());
        let (result, found) = disk.hash(&file, &move |hash| (*hash == name).then_some(len as u32));
        assert_eq!((result.unwrap(), found.len()), (HashOutcome::Read, 1), "{len}");
        assert!(found[0].bytes == data);
        assert!(disk.check(&[name])[0].is_some(), "by the index, too");
    }
}

#[test]
fn wants_of_another_length_and_those_satisfied_meanwhile_get_nothing() {
    let disk = Disk::new();
    let data = noise(3, 300_000);
    let file = disk.write("file", &data);
    let wanted = wanting(&chunks(&data));
    assert!(disk.hash(&file, &move |hash| wanted(hash).map(|len| len + 1)).1.is_empty());

    // Chunks that the file holds three times are handed out once, as the want is satisfied by then.
    let disk = Disk::new();
    let data = noise(3, 150_000);
    let repeated = [&data[..], &data[..], &data[..]].concat();
    let file = disk.write("file", &repeated);
    let (all, open) = (chunks(&repeated), Arc::new(Mutex::new(chunks(&repeated))));
    let wants = Arc::clone(&open);
    let wanted = move |hash: &ChunkHash| wants.lock().unwrap().get(hash).map(|bytes| bytes.len() as u32);
    let mut found = Vec::new();
    let mut give = |chunks: Vec<FoundChunk>| {
        chunks.iter().for_each(|chunk| drop(open.lock().unwrap().remove(&chunk.hash)));
        found.extend(chunks);
        true
    };
    hash(&disk.store, &file, &CUT_BY, Occasion::New, &wanted, &Cancel::default(), &mut give).0.unwrap();
    assert_eq!(found.len(), all.len());
    assert_found(&found, &all);
}

#[test]
fn what_is_about_to_be_replaced_gives_its_chunks_and_is_indexed_only_if_it_is_little() {
    let disk = Disk::new();
    for (name, len, indexed) in [("large", 700_000, 0), ("little", 100_000, 1)] {
        let data = noise(13, len);
        let file = disk.write(name, &data);
        let (wanted, mut found) = (chunks(&data), Vec::new());
        let mut give = |chunks: Vec<FoundChunk>| {
            found.extend(chunks);
            true
        };
        let (replaced, cancel) = (Occasion::Replaced, Cancel::default());
        let (result, _) = hash(&disk.store, &file, &CUT_BY, replaced, &wanting(&wanted), &cancel, &mut give);
        assert_eq!(result.unwrap(), HashOutcome::Read);
        assert_found(&found, &wanted);
        disk.store.chunk_index().flush().unwrap();
        assert_eq!(disk.store.chunk_index().totals().unwrap().files, indexed, "{name}");
    }
}

#[test]
fn a_file_that_changed_is_forgotten_and_its_copy_is_used() {
    let disk = Disk::new();
    let data = noise(4, 200_000);
    let files = ["one", "two", "three"].map(|name| disk.write(name, &data));
    files.iter().for_each(|file| drop(disk.hash(file, &nothing)));
    let wanted = chunks(&data);
    let names: Vec<_> = wanted.keys().copied().collect();
    let holder = |places: &[Option<Location>]| places[0].clone().unwrap().path.to_path_buf();
    // Each time the file that is named changes in another way.
    let first = holder(&disk.check(&names));
    fs::write(&first, b"changed").unwrap();
    let second = holder(&disk.check(&names));
    fs::remove_file(&second).unwrap();
    let third = holder(&disk.check(&names));
    assert_eq!(HashSet::from([&first, &second, &third]).len(), 3);
    fs::remove_file(&third).unwrap();
    symlink("/etc/passwd", &third).unwrap();
    assert!(disk.check(&names).iter().all(Option::is_none));
    disk.store.chunk_index().flush().unwrap();
    assert_eq!(disk.store.chunk_index().totals().unwrap().files, 0);
}

#[test]
fn what_is_not_where_the_index_has_it_is_named_as_missing() {
    let disk = Disk::new();
    let data = noise(5, 400_000);
    let file = disk.write("file", &data);
    disk.hash(&file, &nothing).0.unwrap();
    let wanted = chunks(&data);
    let names: Vec<_> = wanted.keys().copied().collect();
    let places: Vec<IndexedChunks> =
        names.iter().copied().zip(disk.check(&names).into_iter().flatten()).collect();
    // One entry lies, as that of a damaged index or of a file changed without a trace would.
    let mut lying = places.clone();
    lying[0].1.offset += 1;
    lying[0].1.len -= 1;
    let liar = lying[0].clone();
    let lens = wanting(&wanted);
    let believed = move |hash: &ChunkHash| if *hash == liar.0 { Some(liar.1.len) } else { lens(hash) };
    let (back, found, _) = disk.read(&lying, &believed);
    assert_eq!(back.missing, [names[0]]);
    assert_eq!(found.len(), names.len() - 1);
    assert!(disk.check(&names).iter().all(Option::is_none), "the file is forgotten");
    // A file that was swapped for something else gives nothing, and nothing waits.
    for swap in [pipe, link, directory, removed] {
        fs::remove_file(file.path()).unwrap();
        swap(&file.path());
        let (back, found, _) = disk.read(&places, &wanting(&wanted));
        assert_eq!((back.missing.len(), found.len()), (names.len(), 0));
        assert!(matches!(disk.hash(&file, &nothing).0, Err(SearchError::Unfit(_) | SearchError::Gone(_))));
        let _ = fs::remove_dir(file.path());
        disk.write("other", b"");
        let _ = fs::remove_file(file.path());
        fs::write(file.path(), b"").unwrap();
    }
}

fn pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

fn link(path: &Path) {
    symlink("other", path).unwrap();
}

fn directory(path: &Path) {
    fs::create_dir(path).unwrap();
}

fn removed(_: &Path) {}

#[test]
fn a_file_changed_while_it_is_read_gives_what_was_right_and_is_not_indexed() {
    let disk = Disk::new();
    let data = noise(6, 40 << 20);
    let file = disk.write("file", &data);
    let wanted = chunks(&data);
    let (mut found, path) = (Vec::new(), file.path());
    let mut give = |chunks: Vec<FoundChunk>| {
        if found.is_empty() {
            fs::write(&path, noise(7, 40 << 20)).unwrap();
        }
        found.extend(chunks);
        true
    };
    let (result, _) =
        hash(&disk.store, &file, &CUT_BY, Occasion::New, &wanting(&wanted), &Cancel::default(), &mut give);
    assert!(matches!(result, Err(SearchError::Changed(_))), "{result:?}");
    assert!(found.iter().all(|chunk| wanted[&chunk.hash] == chunk.bytes));
    assert!(!found.is_empty() && found.len() < wanted.len());
    disk.store.chunk_index().flush().unwrap();
    assert_eq!(disk.store.chunk_index().totals().unwrap().files, 0);
}

#[test]
fn operations_end_soon_after_they_are_cancelled_or_nobody_takes_what_they_find() {
    let disk = Disk::new();
    let data = noise(8, 40 << 20);
    let file = disk.write("file", &data);
    let wanted = chunks(&data);
    for by_refusal in [true, false] {
        let (cancel, mut count) = (Cancel::default(), 0);
        let mut give = |_| {
            count += 1;
            if !by_refusal {
                cancel.cancel();
            }
            !by_refusal
        };
        let (result, _) =
            hash(&disk.store, &file, &CUT_BY, Occasion::New, &wanting(&wanted), &cancel, &mut give);
        assert!(matches!(result, Err(SearchError::Cancelled)), "{result:?}");
        assert!(count < wanted.len());
    }
    let cancelled = Cancel::default();
    cancelled.cancel();
    let (result, _) = stat(&DirectoryId::start(&disk.root), &|_| false, &cancelled, &mut |_| true);
    assert!(matches!(result, Err(SearchError::Cancelled)));
    assert!(matches!(cache_check(&disk.store, &[], ALL, &cancelled).0, Err(SearchError::Cancelled)));
}

#[test]
fn a_directory_tells_readable_regular_files_and_directories_only() {
    let disk = Disk::new();
    disk.write("file", b"x");
    disk.write("dir/inner", b"x");
    disk.write("left-out", b"x");
    disk.write("empty", b"");
    fs::set_permissions(disk.write("secret", b"x").path(), fs::Permissions::from_mode(0o000)).unwrap();
    pipe(&disk.root.join("pipe"));
    symlink("file", disk.root.join("link")).unwrap();
    symlink("dir", disk.root.join("dirlink")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(disk.root.join("socket")).unwrap();
    let (mut files, directories) = disk.stat(&disk.root).unwrap();
    // Root may read everything.
    files.retain(|name| name != "secret" || !rustix::process::geteuid().is_root());
    assert_eq!((files, directories), (vec!["file".to_owned()], vec!["dir".to_owned()]));
    let failure = |name: &str| disk.stat(&disk.root.join(name)).unwrap_err();
    assert!(matches!(failure("dirlink"), SearchError::Unfit(_)));
    assert!(matches!(failure("file"), SearchError::Unfit(_)));
    assert!(matches!(failure("none"), SearchError::Gone(_)));
}

#[test]
fn a_huge_directory_comes_in_parts() {
    let disk = Disk::new();
    (0..5000).for_each(|n| fs::write(disk.root.join(n.to_string()), b"x").unwrap());
    let (mut count, mut largest) = (0, 0);
    let mut each = |listing: Listing| {
        count += listing.files.len();
        largest = largest.max(listing.files.len());
        true
    };
    let (result, cost) = stat(&DirectoryId::start(&disk.root), &|_| false, &Cancel::default(), &mut each);
    result.unwrap();
    assert_eq!((count, cost.stats), (5000, 5001));
    assert!(largest <= 1024);
}

#[test]
fn a_deep_tree_is_reached_to_its_bottom() {
    let disk = Disk::new();
    let (name, depth) = ("n".repeat(50), 60);
    let path = (0..depth).fold(disk.root.clone(), |path, _| path.join(&name));
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("file"), noise(9, 10_000)).unwrap();
    let mut next = Some(DirectoryId::start(&disk.root));
    let (mut steps, mut file) = (0, None);
    while let Some(directory) = next.take() {
        let mut each = |mut listing: Listing| {
            next = listing.directories.pop();
            file = listing.files.pop();
            true
        };
        stat(&directory, &|_| false, &Cancel::default(), &mut each).0.unwrap();
        steps += 1;
    }
    assert_eq!(steps, depth + 1);
    assert_eq!(disk.hash(&file.unwrap(), &nothing).0.unwrap(), HashOutcome::Read);
}

#[test]
fn another_file_system_is_not_entered() {
    let root = DirectoryId::start(Path::new("/"));
    let mut proc = None;
    let mut each = |listing: Listing| {
        let mut found = listing.directories.into_iter().filter(|found| *found.path == *Path::new("/proc"));
        proc = proc.take().or(found.next());
        true
    };
    stat(&root, &|_| false, &Cancel::default(), &mut each).0.unwrap();
    let proc = proc.unwrap();
    let (result, _) = stat(&proc, &|_| false, &Cancel::default(), &mut |_| true);
    assert!(matches!(result, Err(SearchError::OtherFileSystem(_))), "{result:?}");
}

/// An executor that wants `wanted`.
fn start(
    disk: &Disk,
    wanted: &HashMap<ChunkHash, Vec<u8>>,
    limits: QueueLimits,
) -> (Executor, mpsc::Receiver<DiskEvent>) {
    let leave_out = Arc::new(|_: &OsStr| false);
    let rules = SearchRules { wanted: Arc::new(wanting(wanted)), may_use: Arc::new(|_| true), leave_out };
    Executor::start(Arc::clone(&disk.store), rules, limits).unwrap()
}

#[test]
fn operations_are_worked_off_and_each_ends_once() {
    let disk = Disk::new();
    let data = noise(10, 500_000);
    disk.write("sub/file", &data);
    let wanted = chunks(&data);
    let (executor, mut events) = start(&disk, &wanted, QueueLimits::default());
    let first = executor.submit(Operation::Stat(DirectoryId::start(&disk.root))).unwrap();
    let (mut found, mut ended) = (Vec::new(), Vec::new());
    while let Some(event) = events.blocking_recv() {
        match event {
            DiskEvent::Listed { listing, .. } => {
                for directory in listing.directories {
                    executor.submit(Operation::Stat(directory)).unwrap();
                }
                for candidate in listing.files {
                    executor
                        .submit(Operation::Hash { candidate, parameters: CUT_BY, occasion: Occasion::New })
                        .unwrap();
                }
            }
            DiskEvent::Found { chunks, .. } => found.extend(chunks),
            DiskEvent::Ended { id, result, cost } => {
                assert!(cost.stats > 0);
                ended.push((id, result.unwrap()));
            }
        }
        if ended.len() == 3 {
            break;
        }
    }
    assert_found(&found, &wanted);
    assert_eq!(ended[0], (first, FinishedOperation::Stat));
    assert_eq!(ended[2].1, FinishedOperation::Hash(HashOutcome::Read));
    let names: Vec<_> = wanted.keys().copied().collect();
    executor.submit(Operation::CacheCheck(names.clone())).unwrap();
    let Some(DiskEvent::Ended { result: Ok(FinishedOperation::CacheCheck(places)), .. }) =
        events.blocking_recv()
    else {
        panic!("the check ends")
    };
    let places = names.into_iter().zip(places.into_iter().flatten()).collect();
    executor.submit(Operation::CacheRead(places)).unwrap();
    let mut read = Vec::new();
    while let Some(DiskEvent::Found { chunks, .. }) = events.blocking_recv() {
        read.extend(chunks);
    }
    assert_found(&read, &wanted);
    assert_eq!((executor.outstanding(), executor.bytes_in_flight()), (0, 0));
}

#[tokio::test]
async fn a_slow_taker_holds_bytes_back_and_a_full_queue_gives_operations_back() {
    let disk = Disk::new();
    let data = noise(11, 4 << 20);
    let file = disk.write("file", &data);
    let wanted = chunks(&data);
    let limits = QueueLimits { bytes: 100 << 10, operations: 2, ..QueueLimits::default() };
    let (executor, mut events) = start(&disk, &wanted, limits);
    let operation =
        || Operation::Hash { candidate: file.clone(), parameters: CUT_BY, occasion: Occasion::New };
    let ids = [executor.submit(operation()).unwrap(), executor.submit(operation()).unwrap()];
    assert_eq!(executor.submit(operation()), Err(operation()));
    let mut held = Vec::new();
    // It stops by itself while all is held.
    while let Ok(event) = timeout(Duration::from_millis(500), events.recv()).await {
        held.push(event.unwrap());
    }
    assert!(!held.is_empty() && executor.bytes_in_flight() <= 100 << 10);
    ids.into_iter().for_each(|id| executor.cancel(id));
    for id in ids {
        let Some(DiskEvent::Ended { id: ended, result, .. }) = events.recv().await else { panic!("it ends") };
        assert!(ended == id && matches!(result, Err(SearchError::Cancelled)));
    }
}

#[test]
fn dropping_the_executor_ends_its_threads() {
    let disk = Disk::new();
    let data = noise(12, 8 << 20);
    let file = disk.write("file", &data);
    let (executor, mut events) =
        start(&disk, &chunks(&data), QueueLimits { bytes: 1, ..QueueLimits::default() });
    executor
        .submit(Operation::Hash { candidate: file, parameters: CUT_BY, occasion: Occasion::New })
        .unwrap();
    let first = events.blocking_recv();
    assert!(matches!(first, Some(DiskEvent::Found { .. })));
    drop(executor);
    // The channel closes when the last thread is gone.
    while let Some(event) = events.blocking_recv() {
        assert!(!matches!(event, DiskEvent::Listed { .. }));
    }
    assert_eq!(Arc::strong_count(&disk.store), 1);
}
