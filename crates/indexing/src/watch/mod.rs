//! Directories that a daemon keeps in the index: all of them are indexed when it starts, and what changes in
//! them soon afterwards.
//!
//! ```text
//!   kernel ── events ──► Watches ── notes ──► Pending ── when it is quiet ──► a pass: directories
//!                           ▲                                                       │
//!                           └──────────── directories that it enters ───────────────┘
//! ```
//!
//! | part | story |
//! |---|---|
//! | `watches` | which directories the kernel watches, and what it tells |
//! | `pending` | what is to be indexed anew, and when; pure |
//!
//! A pass runs on one thread of its own at a low priority, and the daemon goes on meanwhile. Links are not
//! followed, other file systems not entered. Where the kernel does not tell all, everything is looked at
//! now and then; a directory that is missing is waited for so too.

mod pending;
mod watches;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use towpath_api::Event;
use towpath_files::{RelPath, ScanOptions, SourceTree};

use crate::IndexHost;
use crate::directories::{Cancel, IndexPart, index_parts};
pub use pending::Rhythm;
use pending::{PendingChanges, PendingSpot};
use towpath_config::{Directory, Live};
use watches::{WatchNote, WatchNotes, Watches};

/// Niceness of its thread.
const NICE: i32 = 10;

/// Keeps the directories that are configured in the index, also those of later configurations, of which `reconfigured`
/// is told. Never ends.
pub async fn keep_fresh(host: IndexHost, config: Live, reconfigured: Arc<Notify>, rhythm: Rhythm) {
    loop {
        let dirs = config.get().general.index.clone();
        let other_dirs = async {
            while config.get().general.index == dirs {
                reconfigured.notified().await;
            }
        };
        if dirs.is_empty() {
            other_dirs.await;
            continue;
        }
        tokio::select! {
            () = Keeper::new(&host, &dirs, rhythm, Watches::start()).run() => {}
            () = other_dirs => {}
        }
    }
}

/// Keeps some directories in the index.
struct Keeper {
    job: Arc<WatchJob>,
    notes: WatchNotes,
    pending: PendingChanges,
    pass: Option<JoinHandle<PassedDirectory>>,
}

/// Input of a pass.
struct WatchJob {
    host: IndexHost,
    dirs: Vec<PathBuf>,
    watches: Arc<Watches>,
    cancel: Cancel,
}

/// Result of a pass.
#[derive(Default)]
struct PassedDirectory {
    took: Duration,
    /// All directories are there and watched.
    is_told_all: bool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.job.cancel.cancel();
    }
}

impl Keeper {
    fn new(
        host: &IndexHost,
        dirs: &[Directory],
        rhythm: Rhythm,
        (watches, notes): (Arc<Watches>, WatchNotes),
    ) -> Self {
        let dirs: Vec<_> = dirs.iter().map(|Directory(path)| path.clone()).collect();
        let pending = PendingChanges::new(rhythm, dirs.len(), Instant::now());
        let job = WatchJob { host: host.clone(), dirs, watches, cancel: Cancel::default() };
        Self { job: Arc::new(job), notes, pending, pass: None }
    }

    /// Never ends.
    async fn run(mut self) {
        loop {
            let due = self.pending.due().filter(|_| self.pass.is_none());
            tokio::select! {
                notes = self.notes.next() => notes.into_iter().for_each(|note| self.note(note)),
                passed = ended(&mut self.pass) => {
                    self.pass = None;
                    self.pending.passed(passed.took, passed.is_told_all, Instant::now());
                }
                () = until(due) => {
                    let (job, spots) = (Arc::clone(&self.job), self.pending.take(Instant::now()));
                    self.pass = Some(tokio::task::spawn_blocking(move || job.pass(spots)));
                }
            }
        }
    }

    fn note(&mut self, note: WatchNote) {
        let now = Instant::now();
        match note {
            WatchNote::Changed(spot) => self.pending.note(spot, false, now),
            WatchNote::Appeared(spot) => self.pending.note(spot, true, now),
            WatchNote::Missed => self.pending.note_all(now),
        }
    }
}

async fn ended(pass: &mut Option<JoinHandle<PassedDirectory>>) -> PassedDirectory {
    match pass {
        // One that panicked has not looked at all.
        Some(pass) => pass.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

impl WatchJob {
    /// Indexes what changed, with what is below it where that is said.
    fn pass(&self, spots: Vec<(PendingSpot, bool)>) -> PassedDirectory {
        let started = Instant::now();
        // Its priority is that thread's own.
        let lower = |_| {
            let _ = rustix::process::nice(NICE);
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).start_handler(lower).build();
        let is_there = match pool {
            Ok(pool) => pool.install(|| self.index(&spots)),
            Err(error) => {
                tracing::warn!("indexed directories could not be looked at: {error}");
                false
            }
        };
        PassedDirectory { took: started.elapsed(), is_told_all: is_there && self.watches.are_complete() }
    }

    /// True if all directories that are configured are there, and all was done.
    fn index(&self, spots: &[(PendingSpot, bool)]) -> bool {
        if spots.iter().any(|(spot, is_deep)| *is_deep && spot.path.is_root()) {
            self.watches.try_again();
        }
        let trees: Vec<_> = self.dirs.iter().map(|dir| WatchedTree::open(dir)).collect();
        let parts = spots.iter().filter_map(|(spot, is_deep)| {
            let tree = trees[spot.tree].as_ref().filter(|tree| tree.holds(&spot.path));
            if tree.is_none() {
                self.gone(spot);
            }
            Some(IndexPart { tree: &tree?.tree, number: spot.tree, at: spot.path.clone(), is_deep: *is_deep })
        });
        let parts: Vec<_> = parts.collect();
        let entered = &mut |part: &IndexPart<'_>, dir: BorrowedFd<'_>, path: &RelPath| {
            self.watches.add(dir, PendingSpot { tree: part.number, path: path.clone() });
        };
        let report = &mut |event| {
            if let Event::FileFailed { path, error } = event {
                tracing::debug!(path, error, "could not be indexed");
            }
        };
        match index_parts(&self.host, &parts, &self.cancel, entered, report) {
            Ok(indexed) => tracing::info!(
                files = indexed.files,
                read = indexed.read,
                seconds = indexed.seconds.as_f64(),
                "indexed what changed"
            ),
            Err(_) if self.cancel.is_cancelled() => {}
            Err(error) => {
                tracing::warn!("indexed directories could not be looked at, which is tried again: {error}");
                return false;
            }
        }
        trees.iter().all(Option::is_some)
    }

    fn gone(&self, spot: &PendingSpot) {
        self.watches.forget(spot);
        if spot.path.is_root() {
            let dir = self.dirs[spot.tree].display();
            tracing::warn!(
                "{dir} is to be kept in the index and can't be read; it is looked for now and then"
            );
        }
    }
}

/// One of the directories that are configured.
struct WatchedTree {
    tree: SourceTree,
    device: u64,
}

impl WatchedTree {
    fn open(dir: &Path) -> Option<Self> {
        let tree = SourceTree::open(&dir.canonicalize().ok()?).ok()?;
        let device = tree.look(&RelPath::root(), &ScanOptions::default()).ok()?.stamp.device;
        Some(Self { tree, device })
    }

    /// True if the directory is there, in the same file system.
    fn holds(&self, path: &RelPath) -> bool {
        let found = self.tree.look(path, &ScanOptions::default());
        found.is_ok_and(|found| found.stamp.device == self.device)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use towpath_content::Oid;

    use super::*;
    use towpath_config::{Config, Home};
    use towpath_store::DiskStore;
    use towpath_targets::index_record::store_stamp;

    const LOOK_EVERY: Duration = Duration::from_millis(5);
    const LOOKS: usize = 4000;
    const LOOKS_UNTIL_TOUCHED: usize = 400;
    const SOON: Rhythm = Rhythm {
        quiet: Duration::from_millis(20),
        longest: Duration::from_millis(200),
        rescan: Duration::from_millis(300),
    };

    /// A service that keeps these directories below `folder` in its index.
    struct Kept {
        host: IndexHost,
        config: Live,
        reconfigured: Arc<Notify>,
    }

    impl Kept {
        fn new(folder: &Path, dirs: &[&str]) -> Self {
            let home = Home::under(&folder.join("home"));
            let store = Arc::new(DiskStore::open(home.state(), home.data()).unwrap());
            let (config, reconfigured) = (Live::new(config(folder, dirs)), Arc::default());
            Self { host: IndexHost { home, store }, config, reconfigured }
        }

        fn keep(&self) -> JoinHandle<()> {
            let (host, config) = (self.host.clone(), self.config.clone());
            tokio::spawn(keep_fresh(host, config, Arc::clone(&self.reconfigured), SOON))
        }

        fn reconfigure(&self, config: Config) {
            self.config.set(config);
            self.reconfigured.notify_one();
        }
    }

    fn config(folder: &Path, dirs: &[&str]) -> Config {
        let mut config = Config::default();
        config.general.index = dirs.iter().map(|dir| Directory(folder.join(dir))).collect();
        config
    }

    /// The name of a file's content, if the index knows it.
    fn known(kept: &Kept, path: &Path) -> Option<Oid> {
        let found = towpath_files::look(path, &ScanOptions::default()).ok()?;
        let (dir, name) = (path.parent()?, path.file_name()?);
        kept.host.store.known(dir, &[(name, store_stamp(&found.stamp))]).unwrap().pop()?
    }

    async fn wait_for(kept: &Kept, path: &Path, content: &[u8]) {
        for look in 1..LOOKS {
            if known(kept, path) == Some(Oid::of(content)) {
                return;
            }
            // Files read within the tick of the clock in which they were written do not count as known.
            if look % LOOKS_UNTIL_TOUCHED == 0 {
                let file = fs::File::options().append(true).open(path).unwrap();
                file.set_modified(std::time::SystemTime::now()).unwrap();
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("{} is not indexed", path.display());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_changes_is_indexed_anew() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for dir in ["one/a/b", "two", "other/c"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::write(root.join("one/a/b/old"), b"old").unwrap();
        fs::write(root.join("other/c/file"), b"not asked for").unwrap();
        symlink(root.join("other"), root.join("one/link")).unwrap();
        let kept = Kept::new(&root, &["one", "two"]);
        let keeping = kept.keep();
        wait_for(&kept, &root.join("one/a/b/old"), b"old").await;

        fs::write(root.join("one/a/b/old"), b"changed").unwrap();
        fs::write(root.join("two/new"), [7; 9000]).unwrap();
        wait_for(&kept, &root.join("one/a/b/old"), b"changed").await;
        wait_for(&kept, &root.join("two/new"), &[7; 9000]).await;
        // A directory that comes with all that is in it, and what happens in it from then on.
        fs::rename(root.join("one/a"), root.join("two/moved")).unwrap();
        wait_for(&kept, &root.join("two/moved/b/old"), b"changed").await;
        fs::write(root.join("two/moved/b/later"), b"later").unwrap();
        wait_for(&kept, &root.join("two/moved/b/later"), b"later").await;
        fs::create_dir_all(root.join("one/x/y/z")).unwrap();
        fs::write(root.join("one/x/y/z/deep"), b"deep").unwrap();
        wait_for(&kept, &root.join("one/x/y/z/deep"), b"deep").await;
        assert_eq!(known(&kept, &root.join("other/c/file")), None, "links are not followed");

        kept.reconfigure(config(&root, &["other"]));
        wait_for(&kept, &root.join("other/c/file"), b"not asked for").await;
        keeping.abort();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_the_kernels_help_everything_is_looked_at_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("kept")).unwrap();
        let kept = Kept::new(&root, &["kept"]);
        let dirs = [Directory(root.join("kept"))];
        let keeping = tokio::spawn(Keeper::new(&kept.host, &dirs, SOON, Watches::none()).run());
        for content in [b"one", b"two"] {
            fs::write(root.join("kept/file"), content).unwrap();
            wait_for(&kept, &root.join("kept/file"), content).await;
        }
        keeping.abort();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_directory_that_is_missing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let kept = Kept::new(&root, &["there", "missing"]);
        fs::create_dir(root.join("there")).unwrap();
        let keeping = kept.keep();
        fs::write(root.join("there/file"), b"there").unwrap();
        wait_for(&kept, &root.join("there/file"), b"there").await;
        for content in [b"first", b"again"] {
            fs::create_dir(root.join("missing")).unwrap();
            fs::write(root.join("missing/file"), content).unwrap();
            wait_for(&kept, &root.join("missing/file"), content).await;
            fs::remove_dir_all(root.join("missing")).unwrap();
        }
        keeping.abort();
    }
}
