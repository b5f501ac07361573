//! Files of the destination, or beside it, that may have the bytes of a new one, or most of them: found by size, time and
//! name, as it was renamed, moved or copied at the source, or is the next version of one.
//!
//! ```text
//!   new file ──► like a file that is here? ── no ──────► its content comes with its name
//!                     │ the same                └ an older version ──► it comes as a delta of that
//!                     ▼
//!                 its name alone comes ──► that file has it ──► copied here
//!                                              │ not
//!                                              └──► fetched
//! ```
//!
//! Nothing here proves anything: what is taken is hashed. Where the network is fast, nothing of it runs, as
//! a question more takes longer there than the bytes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::index::{FileIndex, Sought};
use super::outside::{OutsideSearch, WaitLimits};
use super::rules::{FileCandidate, best};
use crate::policy::network::Network;
use crate::policy::table::{
    BLIND_LOOK_WAIT, BLIND_WALK, BLIND_WALK_SHARE, LARGE, LOOK_SHARE, LOOK_WAIT, MISSES, WEAK_PER_HIT,
};
use towpath_content::lock::lock;
use towpath_content::pieces::MIN_LOG2;
use towpath_disk_search::Scope;

/// See the head of this module.
pub struct CandidateSearch {
    look: Mutex<Look>,
    outside: Mutex<OutsideSearch>,
    is_over: Arc<AtomicBool>,
    /// Of the destination only files right in it may be used.
    is_flat: bool,
    /// Files are compared piece by piece: large ones that were moved cost little.
    in_pieces: bool,
    /// Older versions are of use to files of one piece, too.
    has_bases: bool,
    same: Guesses,
    bases: Guesses,
}

/// Guesses, and what they proved to be.
#[derive(Default)]
struct Guesses {
    weak: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The look at the destination.
enum Look {
    /// Nothing called for it yet.
    NotBegun,
    Running(Receiver<FileIndex>),
    Done(FileIndex),
}

impl CandidateSearch {
    /// Nothing was looked at yet, and nothing will be outside `scope`.
    pub fn new(scope: Option<Scope>) -> Self {
        let look = if scope.is_some() { Look::NotBegun } else { Look::Done(FileIndex::default()) };
        let is_flat = scope.as_ref().is_some_and(|scope| scope.not_below && !scope.beyond_destination);
        Self {
            look: Mutex::new(look),
            outside: Mutex::new(OutsideSearch::new(scope)),
            is_over: Arc::default(),
            is_flat,
            in_pieces: false,
            has_bases: true,
            same: Guesses::default(),
            bases: Guesses::default(),
        }
    }

    /// The same for files whose pieces are compared with those of a candidate, before any is fetched. Those of one piece
    /// have older versions if `may_sign`: they come as deltas, which need a signature.
    pub const fn in_pieces(mut self, may_sign: bool) -> Self {
        (self.in_pieces, self.has_bases) = (true, may_sign);
        self
    }

    /// For each of some new files that are about to be asked for, a file below or beside `root` that may be of use. Waits
    /// a little for the look at what is there. `network` tells how fast things come, and waits for somebody to know it as
    /// long as suits so many bytes.
    pub fn find(
        &self,
        root: &Path,
        network: impl Fn(u64) -> Network,
        files: &[Sought<'_>],
    ) -> Vec<Option<FileCandidate>> {
        let (nothing, known) = (vec![None; files.len()], network(0));
        // Large files are worth a look before the network is known.
        let is_worth_it = known.is_unknown() && files.iter().any(|file| file.size >= LARGE);
        if !known.is_slow() && !is_worth_it {
            return nothing;
        }
        let (since, wait_limit) =
            (Instant::now(), wait_limit(files.iter().map(|file| file.size).sum(), known));
        let mut look = lock(&self.look);
        self.begin(&mut look, root);
        let outside = lock(&self.outside).find(root, files, wait_limit);
        look.wait(wait_limit.whole.saturating_sub(since.elapsed()));
        let index = look.index();
        let all = files.iter().zip(outside);
        if known.is_unknown() {
            let has_base = |(file, outside): &(&Sought<'_>, Option<FileCandidate>)| {
                outside.is_some() || index.is_some_and(|index| index.other_version(file).is_some())
            };
            let bytes = all.clone().filter(has_base).map(|(file, _)| file.size).sum();
            if bytes == 0 || !network(bytes).is_slow() {
                return nothing;
            }
        }
        all.map(|(file, outside)| self.guess(index, file, outside)).collect()
    }

    fn begin(&self, look: &mut Look, root: &Path) {
        if let Look::NotBegun = look {
            let (done, index) = channel();
            let (root, is_flat, is_over) = (root.to_owned(), self.is_flat, Arc::clone(&self.is_over));
            // Without a thread the channel closes, as it does at the end.
            let looking = move || drop(done.send(FileIndex::of(&root, is_flat, &is_over)));
            let _ = std::thread::Builder::new().name("candidates".into()).spawn(looking);
            *look = Look::Running(index);
        }
    }

    /// The best candidate that may still be guessed.
    fn guess(
        &self,
        index: Option<&FileIndex>,
        file: &Sought<'_>,
        outside: Option<FileCandidate>,
    ) -> Option<FileCandidate> {
        let has_bases = self.has_bases || file.size > 1 << MIN_LOG2;
        let same = index.and_then(|index| index.same_content(file));
        let moved = index.filter(|_| self.in_pieces).and_then(|index| index.moved(file));
        let within = index.filter(|_| has_bases).and_then(|index| index.other_version(file));
        best([same, moved, within, outside].into_iter().flatten(), |candidate| {
            self.guesses(candidate.is_same()).may_guess(candidate.resemblance.rule().first)
        })
    }

    /// Notes whether a guess proved right: that a file is the same, or an older version.
    pub fn proved(&self, is_same: bool, is_hit: bool) {
        let Guesses { hits, misses, .. } = self.guesses(is_same);
        let count = if is_hit { hits } else { misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    const fn guesses(&self, is_same: bool) -> &Guesses {
        if is_same { &self.same } else { &self.bases }
    }
}

impl Look {
    /// Waits so long for its end.
    fn wait(&mut self, wait_limit: Duration) {
        let Self::Running(index) = self else { return };
        match index.recv_timeout(wait_limit) {
            Ok(index) => *self = Self::Done(index),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => *self = Self::Done(FileIndex::default()),
        }
    }

    const fn index(&self) -> Option<&FileIndex> {
        if let Self::Done(index) = self { Some(index) } else { None }
    }
}

impl Guesses {
    /// True if one more may be made; `weak`: one of those that begin with so many.
    fn may_guess(&self, weak: Option<u64>) -> bool {
        let hits = self.hits.load(Ordering::Relaxed);
        if self.misses.load(Ordering::Relaxed) >= MISSES + hits {
            return false;
        }
        let Some(first) = weak else { return true };
        if self.weak.load(Ordering::Relaxed) >= first + WEAK_PER_HIT * hits {
            return false;
        }
        self.weak.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl Drop for CandidateSearch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Longest time that so many bytes may wait for a look at the destination, and of that for a walk around it, which
/// seldom comes to an end. If their rate is not known, it suits the fastest network that is slow. Pure.
fn wait_limit(bytes: u64, network: Network) -> WaitLimits {
    if network.rate <= 0.0 {
        let walk = Network::shortest_for(bytes).mul_f64(BLIND_WALK_SHARE).min(BLIND_WALK);
        return WaitLimits { whole: BLIND_LOOK_WAIT + walk, walk };
    }
    let takes = Duration::try_from_secs_f64(LOOK_SHARE * bytes as f64 / network.rate);
    let whole = takes.unwrap_or(LOOK_WAIT).min(LOOK_WAIT);
    WaitLimits { whole, walk: whole / 2 }
}

#[cfg(test)]
mod tests {
    use towpath_files::Stamp;

    use super::*;
    use crate::candidates::index::Present;
    use crate::candidates::index::tests::{at, index, path_of};
    use crate::candidates::rules::Resemblance;
    use crate::policy::table::{WEAK_BASES, WEAK_SAME};

    const SLOW: Network = Network { rate: 1e6, round_trip: Duration::ZERO };
    const FAST: Network = Network { rate: 1e9, round_trip: Duration::ZERO };

    #[test]
    fn a_table_of_wait_limits() {
        for (bytes, rate, whole, walk) in [
            (1_000_000, 0.0, 101, 1),
            (u64::MAX, 0.0, 300, 200),
            (1_000_000, 1e6, 100, 50),
            (1, 1e6, 0, 0),
            (u64::MAX, 1.0, 1000, 500),
            (0, 1e6, 0, 0),
        ] {
            let wait_limit = wait_limit(bytes, Network { rate, round_trip: Duration::ZERO });
            assert_eq!(
                (wait_limit.whole.as_millis(), wait_limit.walk.as_millis()),
                (whole, walk),
                "{bytes} at {rate}"
            );
        }
    }

    #[test]
    fn guesses_end_when_they_prove_wrong_and_weak_ones_need_right_ones() {
        let candidates = CandidateSearch::new(None);
        let (index, path) = (index(&[("old", 1000, 1)]), path_of("new"));
        let sought = |seconds| Sought { path: &path, size: 1000, modified: at(seconds) };
        let guess = |seconds| candidates.guess(Some(&index), &sought(seconds), None).is_some();
        assert_eq!((0..1000).filter(|_| guess(2)).count(), WEAK_SAME as usize);
        assert!(guess(1));
        candidates.proved(true, true);
        assert_eq!((0..10).filter(|_| guess(2)).count(), 2);
        (0..MISSES).for_each(|_| candidates.proved(true, false));
        assert!(guess(1));
        candidates.proved(true, false);
        assert!(!guess(1));
    }

    #[test]
    fn what_is_compared_in_pieces_is_drawn_from_what_was_moved_and_has_versions_if_there_are_several() {
        let (piece, large) = (1 << MIN_LOG2, 16 << 20);
        let index = index(&[("v1/small", piece - 1, 1), ("v1/more", piece + 1, 1), ("old", large, 5)]);
        for (path, size, time, whole, in_pieces, signed) in [
            ("v2/small", piece, 2, Some("v1/small"), None, Some("v1/small")),
            ("v2/more", piece + 1, 2, Some("v1/more"), Some("v1/more"), Some("v1/more")),
            ("dir/new", large, 5, None, Some("old"), Some("old")),
            ("dir/new", large, 6, None, None, None),
        ] {
            let path = path_of(path);
            let sought = Sought { path: &path, size, modified: at(time) };
            let given = |search: &CandidateSearch| {
                search.guess(Some(&index), &sought, None).map(|found| found.file.path)
            };
            assert_eq!(given(&CandidateSearch::new(None)), whole.map(path_of), "{path:?}");
            for (may_sign, expected) in [(false, in_pieces), (true, signed)] {
                let search = CandidateSearch::new(None).in_pieces(may_sign);
                assert_eq!(given(&search), expected.map(path_of), "{path:?} {may_sign}");
            }
        }
    }

    #[test]
    fn the_older_version_is_preferred_to_what_has_the_same_name_and_size_alone() {
        let index = index(&[("v1/a", 1000, 1), ("v1/b", 2000, 1), ("c", 3000, 1), ("d", 4000, 5)]);
        for (path, size, time, expected) in [
            ("v2/a", 1000, 1, Some((true, "v1/a"))),
            ("v2/a", 1000, 2, Some((false, "v1/a"))),
            ("v2/b", 2500, 2, Some((false, "v1/b"))),
            ("v2/b", 4000, 5, Some((true, "d"))),
            ("v2/c", 3000, 2, Some((true, "c"))),
            ("v2/c", 3001, 2, None),
        ] {
            let (wanted, modified) = (path_of(path), at(time));
            let given = CandidateSearch::new(None).guess(
                Some(&index),
                &Sought { path: &wanted, size, modified },
                None,
            );
            let given = given.map(|found| (found.is_same(), found.file.path));
            assert_eq!(given, expected.map(|(is_same, path)| (is_same, path_of(path))), "{path}");
        }
    }

    #[test]
    fn what_is_likelier_to_be_an_older_version_is_preferred_within_and_beyond() {
        const SIZE: u64 = 2 * LARGE;
        let within = |path: &str| Some(index(&[(path, SIZE, 1)]));
        let (beside, namesake) = (Resemblance::Beside, Resemblance::NamesakeNear);
        for (here, outside, is_beyond) in [
            (within("v1/file"), Some(beside), false),
            (within("other/file"), Some(beside), true),
            (within("other/file"), Some(namesake), false),
            (within("v2/file 1"), None, false),
            (within("v2/other"), None, false),
            (within("v2/other"), Some(namesake), true),
            (within("unlike"), Some(namesake), true),
            (None, Some(namesake), true),
        ] {
            let what = format!("{here:?} {outside:?}");
            let (path, present) =
                (path_of("v2/file"), Present { path: path_of("x"), stamp: Stamp::default() });
            let sought = Sought { path: &path, size: SIZE + 1, modified: at(9) };
            let outside = outside.map(|resemblance| FileCandidate { file: present, resemblance });
            let found = CandidateSearch::new(None).guess(here.as_ref(), &sought, outside);
            assert!(found.as_ref().is_none_or(|found| !found.is_same()), "{what}");
            assert_eq!(found.is_some_and(|found| found.is_outside()), is_beyond, "{what}");
        }
    }

    /// Over 40 ms a connection that tells of the network takes twice as long as the first ask waits.
    #[test]
    fn for_a_large_file_with_an_older_version_somebody_waits_until_the_network_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        ["old", "new"].iter().for_each(|dir| std::fs::create_dir(root.join(dir)).unwrap());
        std::fs::File::create(root.join("old/file")).unwrap().set_len(LARGE).unwrap();
        let find = |name: &str, size, then: Network| {
            let path = path_of(name);
            let scope = Scope { start: root.join("new"), beyond_destination: true, ..Scope::default() };
            let asked = Mutex::new(Vec::new());
            let network = |bytes| {
                lock(&asked).push(bytes);
                if bytes > 0 { then } else { Network::default() }
            };
            let files = [Sought { path: &path, size, modified: at(0) }];
            let found = CandidateSearch::new(Some(scope)).find(&root.join("new"), network, &files);
            (found[0].is_some(), asked.into_inner().unwrap())
        };
        // A busy machine may be too late for a look.
        let slow = (0..10).map(|_| find("file", LARGE, SLOW)).find(|(is_found, _)| *is_found);
        assert_eq!(slow, Some((true, vec![0, LARGE])));
        assert!(!find("file", LARGE, FAST).0);
        assert_eq!(find("no file has such a name", LARGE, SLOW), (false, vec![0]));
        assert_eq!(find("file", LARGE - 1, SLOW), (false, vec![0]));
    }

    #[test]
    fn of_a_row_of_numbered_files_few_are_taken_for_versions_of_another() {
        let candidates = CandidateSearch::new(None);
        let index = index(&[("photo 1", 1000, 1), ("v1/file", 1000, 1)]);
        let guess = |path: &str| {
            let sought = Sought { path: &path_of(path), size: 1001, modified: at(2) };
            candidates.guess(Some(&index), &sought, None).is_some()
        };
        assert_eq!((2..1000).filter(|number| guess(&format!("photo {number}"))).count(), WEAK_BASES as usize);
        assert!((2..1000).all(|number| guess(&format!("v{number}/file"))), "a directory tells more");
        (0..MISSES).for_each(|_| candidates.proved(false, false));
        assert!(!guess("v2/file"));
        candidates.proved(false, true);
        assert!(guess("v2/file") && guess("photo 2"));
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
        let new = path_of("new");
        let files = [3000, 3001].map(|size| Sought { path: &new, size, modified: at(0) });
        let flat = CandidateSearch::new(Some(Scope { not_below: true, ..Scope::default() }));
        let find = |candidates: &CandidateSearch, network| {
            // It may be too early for what a look finds, if that is begun.
            drop(candidates.find(root, |_| network, &files));
            lock(&candidates.look).wait(Duration::from_secs(30));
            candidates.find(root, |_| network, &files)
        };
        let candidates = CandidateSearch::new(Some(Scope::default()));
        assert_eq!(find(&candidates, FAST), [None, None]);
        assert!(matches!(*lock(&candidates.look), Look::NotBegun));
        let found = find(&candidates, SLOW);
        assert!(
            matches!(&found[0], Some(old) if old.is_same() && old.file.path == path_of("a/b/old")),
            "{found:?}"
        );
        assert_eq!(found[1], None);
        assert_eq!(candidates.find(root, |_| FAST, &files), [None, None], "it became fast");
        assert_eq!(find(&flat, SLOW), [None, None], "nothing lies right in it");
        std::fs::write(root.join("there"), [7; 3000]).unwrap();
        let flat = CandidateSearch::new(Some(Scope { not_below: true, ..Scope::default() }));
        assert!(find(&flat, SLOW)[0].is_some());
    }
}
