//! Files that were renamed at the source: the destination has their bytes under the old name, which
//! is about to be deleted.
//!
//! Files that the index knows are found by their OID without any help. One that it does not know (another tool
//! wrote it) is guessed by size and time, and hashed before it counts. For that a new file must
//! wait until the walk has seen what only the destination has, so only large ones do, and only
//! where something is deleted.

use std::collections::HashMap;

use towpath_content::tree::Time;
use towpath_files::{RelPath, Stamp};

use super::rules::Resemblance;

/// New files that wait for the end of the walk. Each holds one of the places for files under way.
pub const MAX_WAITING: usize = 2000;
/// Files kept in mind that only the destination has.
const MAX_SPARE: usize = 200_000;
/// Files of the same size and time that are hashed in search of one.
const MAX_GUESSES: usize = 4;

/// Files that only the destination has, by what a rename does not change.
#[derive(Debug, Default)]
pub struct Spare {
    files: HashMap<(u64, Time), Vec<(RelPath, Stamp)>>,
    count: usize,
}

impl Spare {
    /// Keeps a file in mind, unless there are too many or it is not worth it.
    pub fn add(&mut self, path: RelPath, stamp: Stamp) {
        if !Resemblance::Renamed.is_for(stamp.size) || self.count >= MAX_SPARE {
            return;
        }
        self.files.entry((stamp.size, stamp.modified)).or_default().push((path, stamp));
        self.count += 1;
    }

    /// Takes a file out, whose name another one takes. False: it is not there.
    pub fn take(&mut self, path: &RelPath, stamp: &Stamp) -> bool {
        let Some(files) = self.files.get_mut(&(stamp.size, stamp.modified)) else { return false };
        let at = files.iter().position(|(spare, _)| spare == path);
        at.map(|at| files.swap_remove(at)).is_some()
    }

    /// Files that may be one of this size and time.
    pub fn guesses(&self, size: u64, modified: Time) -> Vec<(RelPath, Stamp)> {
        let found = self.files.get(&(size, modified)).map_or(&[][..], Vec::as_slice);
        found.iter().take(MAX_GUESSES).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_has_the_same_size_and_time() {
        let stamp = |size, seconds| Stamp { size, modified: Time { seconds, nanos: 5 }, ..Stamp::default() };
        let path = |name: &str| RelPath::new([name]).unwrap();
        let mut spare = Spare::default();
        spare.add(path("a"), stamp(1 << 20, 7));
        spare.add(path("b"), stamp(1 << 20, 8));
        spare.add(path("small"), stamp(10, 7));
        let guesses = |size, seconds| {
            let found = spare.guesses(size, Time { seconds, nanos: 5 });
            found.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        assert_eq!(guesses(1 << 20, 7), [path("a")]);
        assert!(guesses(1 << 20, 9).is_empty() && guesses(10, 7).is_empty());
        assert!(spare.take(&path("a"), &stamp(1 << 20, 7)), "once");
        assert!(!spare.take(&path("a"), &stamp(1 << 20, 7)));
    }
}
