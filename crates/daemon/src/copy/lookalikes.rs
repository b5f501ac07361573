//! Files of the destination that may have the bytes of a new one, which was renamed, moved or copied at the
//! source: found by size, time and name, so that the sender is asked for the name of the content first.
//!
//! ```text
//!   new file ──► like a file that is here? ── no ──► its content comes with its name
//!                        │ yes
//!                        ▼
//!                 its name alone comes ──► that file has it ──► copied here
//!                                              │ not
//!                                              └──► fetched
//! ```
//!
//! Nothing here proves anything: what is taken is hashed. Where the network is fast, nothing of it runs, as
//! a question more takes longer there than the bytes.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_content::tree::Time;
use towpath_files::{
    FileError, HardLinks, Prune, RelPath, ScanOptions, Scanned, Stamp, is_temporary_name, scan_pruned,
};

use super::network::Network;
use crate::lock::lock;

/// A file of fewer bytes comes as fast as its name.
const LEAST: u64 = 256;
/// Larger ones are found by searching, which needs no file that is the same from end to end.
const MOST: u64 = 4 << 20;
/// Files of the destination that are kept in mind.
const MAX_KNOWN: usize = 200_000;
/// Files of the same size that are compared with a new one.
const MAX_COMPARED: usize = 1024;
/// So many more files may prove to be others than the same, before no more are guessed.
const MISSES: u64 = 16;
/// Guesses by name and size alone, before so many proved right.
const WEAK: u64 = 128;
/// What is asked for waits for a look at the destination at most this part of the time that it takes to come,
const SHARE: f64 = 0.1;
/// at most so long, and so long where it is not known how fast it comes.
const PATIENCE: Duration = Duration::from_secs(1);
const BLIND_PATIENCE: Duration = Duration::from_millis(100);

/// What a new file is like.
#[derive(Debug, Clone, Copy)]
pub struct Sought<'a> {
    /// Its name in its directory.
    pub name: &'a [u8],
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub modified: Time,
}

/// A file of the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookalike {
    /// Below the destination's root.
    pub path: RelPath,
    /// What it looked like.
    pub stamp: Stamp,
}

/// See the head of this module.
pub struct Lookalikes {
    look: Mutex<Look>,
    is_over: Arc<AtomicBool>,
    /// Guesses, and what they proved to be.
    weak: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The look at the destination.
enum Look {
    /// Nothing called for it yet.
    NotBegun,
    Running(Receiver<Catalogue>),
    Done(Catalogue),
}

impl Lookalikes {
    /// Nothing was looked at yet. Unless `is_wanted`, nothing will be.
    pub fn new(is_wanted: bool) -> Self {
        let look = if is_wanted { Look::NotBegun } else { Look::Done(Catalogue::default()) };
        Self {
            look: Mutex::new(look),
            is_over: Arc::default(),
            weak: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// For each of some new files that are about to be asked for, a file below `root` that may be the same. Waits
    /// a little for the look at what is there.
    pub fn find(&self, root: &Path, network: Network, files: &[Sought<'_>]) -> Vec<Option<Lookalike>> {
        let bytes = files.iter().map(|file| file.size).sum();
        let mut look = lock(&self.look);
        if network.is_slow() {
            self.advance(&mut look, root, patience(bytes, network));
        }
        let Look::Done(catalogue) = &*look else { return vec![None; files.len()] };
        files.iter().map(|file| self.guess(catalogue, file).filter(|_| network.is_slow()).cloned()).collect()
    }

    fn advance(&self, look: &mut Look, root: &Path, patience: Duration) {
        if let Look::NotBegun = look {
            let (done, catalogue) = channel();
            let (root, is_over) = (root.to_owned(), Arc::clone(&self.is_over));
            // Without a thread the channel closes, as it does at the end.
            let looking = move || drop(done.send(Catalogue::of(&root, &is_over)));
            let _ = std::thread::Builder::new().name("lookalikes".into()).spawn(looking);
            *look = Look::Running(catalogue);
        }
        let Look::Running(catalogue) = look else { return };
        match catalogue.recv_timeout(patience) {
            Ok(catalogue) => *look = Look::Done(catalogue),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => *look = Look::Done(Catalogue::default()),
        }
    }

    fn guess<'a>(&self, catalogue: &'a Catalogue, file: &Sought<'_>) -> Option<&'a Lookalike> {
        let hits = self.hits.load(Ordering::Relaxed);
        if self.misses.load(Ordering::Relaxed) >= MISSES + hits {
            return None;
        }
        let (found, likeness) = catalogue.like(file)?;
        if likeness < Likeness::Time {
            if self.weak.load(Ordering::Relaxed) >= WEAK + 2 * hits {
                return None;
            }
            self.weak.fetch_add(1, Ordering::Relaxed);
        }
        Some(found)
    }

    /// What a guess proved to be.
    pub fn proved(&self, is_same: bool) {
        let count = if is_same { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Lookalikes {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// How long so many bytes may wait for a look at the destination. Pure.
fn patience(bytes: u64, network: Network) -> Duration {
    if network.rate <= 0.0 {
        return BLIND_PATIENCE;
    }
    let takes = Duration::try_from_secs_f64(SHARE * bytes as f64 / network.rate);
    takes.unwrap_or(PATIENCE).min(PATIENCE)
}

/// How much alike two files of the same size are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// No others have this size.
    Size,
    Name,
    Time,
    TimeAndName,
}

/// Files of the destination, by size and then by time.
#[derive(Debug, Default)]
struct Catalogue(Vec<Lookalike>);

impl Catalogue {
    /// Looks at what is below `root`, but not in other file systems.
    fn of(root: &Path, is_over: &AtomicBool) -> Self {
        let options = ScanOptions { one_file_system: true, ..ScanOptions::default() };
        let (mut files, mut dirs) = (Vec::new(), Vec::new());
        let visit = &mut |step| {
            match step {
                Scanned::Enter(found) => dirs.push(found.entry.name),
                Scanned::Leave => drop(dirs.pop()),
                Scanned::Leaf(found) if found.file.is_some() && is_worth_it(found.stamp.size) => {
                    // The first name is the root's.
                    let names = dirs.iter().skip(1).chain([&found.entry.name]);
                    let path = RelPath::new(names);
                    files.extend(path.ok().map(|path| Lookalike { path, stamp: found.stamp }));
                }
                Scanned::Leaf(_) | Scanned::Failed(_) => {}
            }
            if files.len() < MAX_KNOWN && !is_over.load(Ordering::Relaxed) { Ok(()) } else { Err(()) }
        };
        // What can't be read is no help, and that is all.
        let _ = scan_pruned(root, &options, &mut HardLinks::default(), &mut NoTemporaries, visit);
        Self::sorted(files)
    }

    fn sorted(mut files: Vec<Lookalike>) -> Self {
        files.sort_unstable_by_key(|file| (file.stamp.size, file.stamp.modified));
        Self(files)
    }

    /// The file that is most like this one.
    fn like(&self, file: &Sought<'_>) -> Option<(&Lookalike, Likeness)> {
        if !is_worth_it(file.size) {
            return None;
        }
        let of_size = range(&self.0, |stamp| stamp.size, file.size);
        let of_time = range(of_size, |stamp| stamp.modified, file.modified);
        let others = of_time.iter().chain(of_size).take(MAX_COMPARED);
        let is_only_one = of_size.len() == 1;
        let likeness = |other: &Lookalike| {
            let is_named_so = other.path.names().last() == Some(file.name);
            match (other.stamp.modified == file.modified, is_named_so) {
                (true, true) => Some(Likeness::TimeAndName),
                (true, false) => Some(Likeness::Time),
                (false, true) => Some(Likeness::Name),
                (false, false) => is_only_one.then_some(Likeness::Size),
            }
        };
        let alike = others.filter_map(|other| Some((other, likeness(other)?)));
        alike.max_by_key(|(_, likeness)| *likeness)
    }
}

const fn is_worth_it(size: u64) -> bool {
    LEAST <= size && size <= MOST
}

/// Those of sorted files that have this key.
fn range<K: Ord>(files: &[Lookalike], key: impl Fn(&Stamp) -> K, wanted: K) -> &[Lookalike] {
    let start = files.partition_point(|file| key(&file.stamp) < wanted);
    let end = files.partition_point(|file| key(&file.stamp) <= wanted);
    &files[start..end]
}

/// What is being written, by this copy or another one, is not looked at.
struct NoTemporaries;

impl Prune for NoTemporaries {
    fn enter(&mut self, _: BorrowedFd<'_>, _: &RelPath) -> Result<(), FileError> {
        Ok(())
    }

    fn leave(&mut self) {}

    fn shows(&mut self, path: &RelPath, _: bool) -> bool {
        !path.names().last().is_some_and(is_temporary_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Network = Network { rate: 1e6, round_trip: Duration::ZERO };
    const FAST: Network = Network { rate: 1e9, round_trip: Duration::ZERO };

    const fn at(seconds: i64) -> Time {
        Time { seconds, nanos: 0 }
    }

    fn catalogue(files: &[(&str, u64, i64)]) -> Catalogue {
        let file = |&(path, size, seconds): &(&str, u64, i64)| Lookalike {
            path: RelPath::new(path.split('/')).unwrap(),
            stamp: Stamp { size, modified: at(seconds), ..Stamp::default() },
        };
        Catalogue::sorted(files.iter().map(file).collect())
    }

    const fn sought(name: &str, size: u64, seconds: i64) -> Sought<'_> {
        Sought { name: name.as_bytes(), size, modified: at(seconds) }
    }

    #[test]
    fn a_table_of_likenesses() {
        let catalogue = catalogue(&[
            ("a/one", 1000, 1),
            ("a/two", 1000, 1),
            ("b/two", 1000, 2),
            ("c/alone", 2000, 1),
            ("little", 10, 1),
            ("large", 5 << 20, 1),
        ]);
        for (name, size, seconds, like) in [
            ("two", 1000, 1, Some(("a/two", Likeness::TimeAndName))),
            ("other", 1000, 2, Some(("b/two", Likeness::Time))),
            ("one", 1000, 2, Some(("b/two", Likeness::Time))),
            ("one", 1000, 3, Some(("a/one", Likeness::Name))),
            ("other", 1000, 3, None),
            ("other", 2000, 3, Some(("c/alone", Likeness::Size))),
            ("alone", 2001, 1, None),
            ("little", 10, 1, None),
            ("large", 5 << 20, 1, None),
        ] {
            let found = catalogue.like(&sought(name, size, seconds));
            let like = like.map(|(path, likeness)| (path.as_bytes(), likeness));
            assert_eq!(
                found.map(|(file, likeness)| (file.path.as_bytes(), likeness)),
                like,
                "{name} {seconds}"
            );
        }
    }

    #[test]
    fn a_table_of_patience() {
        for (bytes, rate, millis) in
            [(1_000_000, 0.0, 100), (1_000_000, 1e6, 100), (1, 1e6, 0), (u64::MAX, 1.0, 1000), (0, 1e6, 0)]
        {
            let network = Network { rate, round_trip: Duration::ZERO };
            assert_eq!(patience(bytes, network).as_millis(), millis, "{bytes} at {rate}");
        }
    }

    #[test]
    fn guesses_end_when_they_prove_wrong_and_weak_ones_need_right_ones() {
        let lookalikes = Lookalikes::new(false);
        let catalogue = catalogue(&[("old", 1000, 1)]);
        let guess = |seconds| lookalikes.guess(&catalogue, &sought("new", 1000, seconds)).is_some();
        assert_eq!((0..1000).filter(|_| guess(2)).count(), WEAK as usize);
        assert!(guess(1));
        lookalikes.proved(true);
        assert_eq!((0..10).filter(|_| guess(2)).count(), 2);
        (0..MISSES).for_each(|_| lookalikes.proved(false));
        assert!(guess(1));
        lookalikes.proved(false);
        assert!(!guess(1));
    }

    #[test]
    fn the_destination_is_looked_at_only_on_a_slow_network() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(root.join(".tow-0123456789abcdef")).unwrap();
        for name in ["a/b/old", ".tow-0123456789abcdef/x"] {
            std::fs::write(root.join(name), [7; 3000]).unwrap();
        }
        std::os::unix::fs::symlink("/", root.join("a/link")).unwrap();
        let files = [sought("new", 3000, 0), sought("new", 3001, 0)];
        let find = |lookalikes: &Lookalikes, network| {
            let mut found = vec![None; 2];
            for _ in 0..100 {
                found = lookalikes.find(root, network, &files);
                if found[0].is_some() || matches!(*lock(&lookalikes.look), Look::NotBegun) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            found.into_iter().map(|found| found.map(|found| found.path)).collect::<Vec<_>>()
        };
        let lookalikes = Lookalikes::new(true);
        assert_eq!(find(&lookalikes, FAST), [None, None]);
        assert!(matches!(*lock(&lookalikes.look), Look::NotBegun));
        assert_eq!(find(&lookalikes, SLOW), [Some(RelPath::new(["a", "b", "old"]).unwrap()), None]);
        assert_eq!(lookalikes.find(root, FAST, &files), [None, None], "it became fast");
    }
}
