//! Files that came as deltas of others which are here: how many, what it spared, and the first of them by name. Pure.

use std::path::PathBuf;

/// Files that are listed; of others it is only counted how many there were.
pub const MOST_LISTED: usize = 64;

/// Reason to take a file for an older version of another one, as reports have it: it was in its place. Others are what the two have in
/// common, [`Resemblance::name`](crate::candidates::rules::Resemblance::name).
pub const IN_PLACE: &str = "in_place";

/// A file that came so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeDelta {
    /// Its path at the source.
    pub path: Vec<u8>,
    /// The older version.
    pub base: PathBuf,
    /// Why that was taken.
    pub reason: &'static str,
    /// Bytes that were made of both.
    pub made: u64,
    /// Bytes that came for them.
    pub came: u64,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MadeDeltas {
    /// Files.
    pub files: u64,
    /// Bytes that did not have to come.
    pub saved: u64,
    /// The first of them.
    pub listed: Vec<MadeDelta>,
}

impl MadeDeltas {
    /// Adds a file.
    pub fn add(&mut self, delta: MadeDelta) {
        self.files += 1;
        self.saved += delta.made.saturating_sub(delta.came);
        if self.listed.len() < MOST_LISTED {
            self.listed.push(delta);
        }
    }

    /// With what came so in another way.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.files += others.files;
        self.saved += others.saved;
        self.listed.extend(others.listed);
        self.listed.truncate(MOST_LISTED);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(path: &str, made: u64, came: u64) -> MadeDelta {
        MadeDelta { path: path.into(), base: "/old".into(), reason: IN_PLACE, made, came }
    }

    #[test]
    fn no_more_are_listed_than_people_read() {
        let mut made = MadeDeltas::default();
        made.add(delta("a", 100, 10));
        assert_eq!(made, MadeDeltas { files: 1, saved: 90, listed: vec![delta("a", 100, 10)] });
        made.add(delta("a", 9, 9));
        assert_eq!(made.listed.len(), 2, "another file of the same name");
        (0..MOST_LISTED).for_each(|at| made.add(delta(&at.to_string(), 2, 1)));
        assert_eq!((made.files, made.saved, made.listed.len()), (66, 154, MOST_LISTED));
        let all = made.clone().and(made);
        assert_eq!((all.files, all.saved, all.listed.len()), (132, 308, MOST_LISTED));
    }
}
