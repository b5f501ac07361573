//! Directories to be indexed anew, and the time for it. Pure: it is handed the time.
//!
//! A directory in which something happened waits until it is quiet, as a program writes many files one after
//! the other; but not for ever. Between passes there is a rest that is longer than the pass took, so that files
//! that are written all the time don't keep the disk busy.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use towpath_files::RelPath;

/// Directories kept in mind; with more, everything is looked at.
const MAX_DIRS: usize = 4096;
/// A rest takes so many times as long as the pass before it.
const REST: u32 = 10;
/// No rest is longer.
const LONGEST_REST: Duration = Duration::from_secs(15 * 60);

/// Delays and intervals.
#[derive(Debug, Clone, Copy)]
pub struct Rhythm {
    /// Without an event for so long, a directory is quiet.
    pub quiet: Duration,
    /// One that is never quiet waits no longer.
    pub longest: Duration,
    /// Interval at which everything is looked at where the kernel does not report changes.
    pub rescan: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(2),
            longest: Duration::from_secs(60),
            rescan: Duration::from_secs(3600),
        }
    }
}

/// A directory: which tree, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingSpot {
    /// The number of the tree.
    pub tree: usize,
    /// Below its root.
    pub path: RelPath,
}

/// See the head of this module.
#[derive(Debug)]
pub struct PendingChanges {
    rhythm: Rhythm,
    trees: usize,
    /// By tree and path.
    dirs: BTreeMap<(usize, Vec<u8>), WaitingChange>,
    /// All was looked at once.
    has_begun: bool,
    rests_until: Option<Instant>,
    rescan: Option<Instant>,
}

#[derive(Debug)]
struct WaitingChange {
    path: RelPath,
    is_deep: bool,
    since: Instant,
    last: Instant,
}

impl PendingChanges {
    /// All of so many trees is to be indexed at once.
    pub fn new(rhythm: Rhythm, trees: usize, now: Instant) -> Self {
        let (dirs, rests_until, rescan) = (BTreeMap::new(), None, Some(now));
        let mut pending = Self { rhythm, trees, dirs, has_begun: false, rests_until, rescan };
        pending.wake(now);
        pending
    }

    /// Something happened in a directory; with `is_deep`, in what is below it too.
    pub fn note(&mut self, spot: PendingSpot, is_deep: bool, now: Instant) {
        if self.dirs.len() >= MAX_DIRS {
            return self.note_all(now);
        }
        // A slash comes before all that a name may have, so what is in a directory comes right behind it.
        let key = spot.path.as_bytes().iter().map(|&byte| if byte == b'/' { 0 } else { byte }).collect();
        let waiting = self.dirs.entry((spot.tree, key));
        let waiting =
            waiting.or_insert(WaitingChange { path: spot.path, is_deep: false, since: now, last: now });
        waiting.last = now;
        waiting.is_deep |= is_deep;
    }

    /// Nobody knows where something happened.
    pub fn note_all(&mut self, now: Instant) {
        self.dirs.clear();
        for tree in 0..self.trees {
            let waiting = WaitingChange { path: RelPath::root(), is_deep: true, since: now, last: now };
            self.dirs.insert((tree, Vec::new()), waiting);
        }
    }

    /// Time at which the next pass should begin, if nothing more happens.
    pub fn due(&self) -> Option<Instant> {
        let quiet = self.dirs.values().map(|waiting| self.ready(waiting)).min();
        let next = quiet.into_iter().chain(self.rescan).min()?;
        Some(self.rests_until.map_or(next, |rests| rests.max(next)))
    }

    fn ready(&self, waiting: &WaitingChange) -> Instant {
        (waiting.last + self.rhythm.quiet).min(waiting.since + self.rhythm.longest)
    }

    /// Takes what is to be looked at now; of directories in each other the outer one, if it is deep.
    pub fn take(&mut self, now: Instant) -> Vec<(PendingSpot, bool)> {
        self.wake(now);
        let (ready, waiting) =
            std::mem::take(&mut self.dirs).into_iter().partition(|(_, waiting)| self.ready(waiting) <= now);
        self.dirs = waiting;
        let ready: BTreeMap<_, WaitingChange> = ready;
        let mut taken: Vec<(PendingSpot, bool)> = Vec::with_capacity(ready.len());
        let mut deep: Option<PendingSpot> = None;
        for ((tree, _), WaitingChange { path, is_deep, .. }) in ready {
            let is_covered =
                deep.as_ref().is_some_and(|deep| deep.tree == tree && path.starts_with(&deep.path));
            if is_covered {
                continue;
            }
            let spot = PendingSpot { tree, path };
            if is_deep {
                deep = Some(spot.clone());
            }
            taken.push((spot, is_deep));
        }
        taken
    }

    /// Marks what is looked at now and then as due.
    fn wake(&mut self, now: Instant) {
        if self.rescan.is_some_and(|rescan| rescan <= now) {
            self.rescan = None;
            // It has waited long enough.
            self.note_all(now);
            let quiet = self.rhythm.quiet;
            for waiting in self.dirs.values_mut() {
                waiting.last = now.checked_sub(quiet).unwrap_or(now);
            }
        }
    }

    /// A pass has ended; with `is_told_all` the kernel tells of everything that happens from now on.
    pub fn passed(&mut self, took: Duration, is_told_all: bool, now: Instant) {
        // The first pass is long, and does not come again.
        if std::mem::replace(&mut self.has_begun, true) {
            self.rests_until = Some(now + took.saturating_mul(REST).min(LONGEST_REST));
        }
        self.rescan = match (is_told_all, self.rescan) {
            (true, _) => None,
            (false, rescan) => rescan.or(Some(now + self.rhythm.rescan)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RHYTHM: Rhythm = Rhythm {
        quiet: Duration::from_secs(2),
        longest: Duration::from_secs(30),
        rescan: Duration::from_secs(1000),
    };

    fn spot(tree: usize, path: &str) -> PendingSpot {
        let names = path.split('/').filter(|name| !name.is_empty());
        PendingSpot { tree, path: RelPath::new(names).unwrap() }
    }

    /// One that has looked at everything, and the time since then.
    fn begun(is_told_all: bool) -> (PendingChanges, impl Fn(u64) -> Instant) {
        let start = Instant::now() + Duration::from_secs(1000);
        let mut pending = PendingChanges::new(RHYTHM, 2, start);
        assert_eq!(pending.due(), Some(start));
        assert_eq!(pending.take(start), [(spot(0, ""), true), (spot(1, ""), true)]);
        pending.passed(Duration::from_secs(500), is_told_all, start);
        (pending, move |seconds| start + Duration::from_secs(seconds))
    }

    #[test]
    fn a_directory_waits_until_it_is_quiet_but_not_for_ever() {
        let (mut pending, at) = begun(true);
        assert_eq!(pending.due(), None);
        pending.note(spot(0, "a"), false, at(1));
        pending.note(spot(1, "b"), false, at(2));
        assert_eq!(pending.due(), Some(at(3)));
        for second in 2..60 {
            pending.note(spot(0, "a"), false, at(second));
        }
        assert_eq!(pending.take(at(4)), [(spot(1, "b"), false)]);
        assert_eq!(pending.due(), Some(at(31)), "it was never quiet");
        assert_eq!(pending.take(at(31)), [(spot(0, "a"), false)]);
        assert_eq!(pending.due(), None);
    }

    #[test]
    fn what_is_in_a_deep_one_is_not_looked_at_twice() {
        let (mut pending, at) = begun(true);
        for (path, is_deep) in
            [("a/b/c", false), ("a/b", true), ("a", false), ("ab", false), ("a/b c", false)]
        {
            pending.note(spot(0, path), is_deep, at(1));
        }
        pending.note(spot(1, "a/b/c"), false, at(1));
        pending.note(spot(0, "a"), false, at(1));
        let expected = [
            (spot(0, "a"), false),
            (spot(0, "a/b"), true),
            (spot(0, "a/b c"), false),
            (spot(0, "ab"), false),
            (spot(1, "a/b/c"), false),
        ];
        assert_eq!(pending.take(at(9)), expected);
    }

    #[test]
    fn a_rest_is_longer_than_the_pass() {
        let (mut pending, at) = begun(true);
        pending.passed(Duration::from_secs(5), true, at(10));
        pending.note(spot(0, "a"), false, at(11));
        assert_eq!(pending.due(), Some(at(60)));
        pending.passed(Duration::from_secs(500), true, at(10));
        assert_eq!(pending.due(), Some(at(10) + LONGEST_REST));
    }

    #[test]
    fn where_the_kernel_tells_not_all_everything_is_looked_at_now_and_then() {
        let (mut pending, at) = begun(false);
        assert_eq!(pending.due(), Some(at(1000)));
        pending.note(spot(0, "a"), false, at(1));
        assert_eq!(pending.take(at(3)), [(spot(0, "a"), false)]);
        pending.passed(Duration::ZERO, false, at(4));
        assert_eq!(pending.due(), Some(at(1000)), "small passes don't put it off");
        assert_eq!(pending.take(at(1000)), [(spot(0, ""), true), (spot(1, ""), true)]);
        pending.passed(Duration::ZERO, true, at(1001));
        assert_eq!(pending.due(), None);
    }

    #[test]
    fn too_many_directories_are_everything() {
        let (mut pending, at) = begun(true);
        for number in 0..=MAX_DIRS {
            pending.note(spot(0, &number.to_string()), false, at(1));
        }
        assert_eq!(pending.take(at(3)), [(spot(0, ""), true), (spot(1, ""), true)]);
    }
}
