//! Older versions of files of one piece. Such a file has no recipe, so nothing finds its chunks: it is requested as a delta
//! of what lies in its place, or was found for it, where the network is slow and the sender may know this machine's files.
//!
//! Who may get a base is remembered here; [`sign`] reads and signs what there is.

use std::collections::HashSet;
use std::sync::Arc;

use towpath_transfer::{Outcome, SignedBase, Tag, Want};

use super::neighbours::Region;
use super::signing::signed_base;
use crate::disk_search;
use crate::policy::network::Network;
use crate::policy::table::{LEAST_SIGNED, MISSES, VERSION_GROWN};

/// Wants with a base that are remembered; others come as they are.
const REMEMBERED: usize = 4096;

/// What became of the bases so far. Pure.
#[derive(Debug, Default)]
pub(super) struct OlderVersions {
    /// Wants that are under way with a base.
    under_way: HashSet<Tag>,
    /// Wants that did not come so: a second time they come as they are.
    failed: HashSet<Tag>,
    useful: u64,
    vain: u64,
}

impl OlderVersions {
    /// True if `want` may be requested with a base.
    pub(super) fn may_have(&self, want: &Want) -> bool {
        want.id.is_whole()
            && want.part.is_none()
            && want.id.len() >= LEAST_SIGNED
            && self.vain <= self.useful + MISSES
            && self.under_way.len() + self.failed.len() < REMEMBERED
            && !self.failed.contains(&want.tag)
    }

    /// A want is requested with a base.
    pub(super) fn requested(&mut self, tag: Tag) {
        self.under_way.insert(tag);
    }

    /// Its bytes are here, and so many of them did not have to come. True if it had a base.
    pub(super) fn came(&mut self, tag: Tag, saved: u64) -> bool {
        self.failed.remove(&tag);
        let had_base = self.under_way.remove(&tag);
        match saved {
            0 => self.vain += u64::from(had_base),
            _ => self.useful += u64::from(had_base),
        }
        had_base
    }

    /// It did not come. If it is requested again, that is without a base.
    pub(super) fn ended(&mut self, tag: Tag, outcome: &Outcome) {
        match outcome {
            Outcome::RetryLater(_) if self.under_way.remove(&tag) => {
                self.vain += 1;
                self.failed.insert(tag);
            }
            Outcome::RetryLater(_) => {}
            _ => self.withdrawn(&[tag]),
        }
    }

    /// Nobody wants these any more.
    pub(super) fn withdrawn(&mut self, tags: &[Tag]) {
        for tag in tags {
            self.under_way.remove(tag);
            self.failed.remove(tag);
        }
    }
}

/// A base for `want`, read and signed, if there is one of use on this network. Blocks.
pub(super) fn sign(want: &Want, network: Network) -> Option<Arc<SignedBase>> {
    let places = [&want.group.destination, &want.group.older];
    let mut found = places.into_iter().flatten().filter_map(|path| Some((path, disk_search::size(path)?)));
    let (path, len) = found.next()?;
    let size = want.id.len();
    // Bases are held until the answer is here. So all of them are at most twice what is under way.
    if !network.likes_delta(len, size) || len > size * VERSION_GROWN {
        return None;
    }
    signed_base(&Region { path: Arc::from(path.as_path()), range: 0..len }, size)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_content::Oid;
    use towpath_content::pieces::Layout;
    use towpath_transfer::{Group, WantId};

    use super::*;

    const SLOW: Network = Network { rate: 1e5, round_trip: Duration::ZERO };
    const FAST: Network = Network { rate: 1e9, round_trip: Duration::ZERO };

    fn want(tag: Tag, size: u64, group: Group) -> Want {
        let id = WantId::Piece { oid: Oid::of(b"it"), layout: Layout::of(size).unwrap(), index: 0 };
        Want { group: Arc::new(group), ..Want::new(tag, id) }
    }

    #[test]
    fn a_want_is_tried_once_and_pieces_of_larger_files_never() {
        let mut versions = OlderVersions::default();
        let (one, small) = (want(1, 50_000, Group::default()), want(2, LEAST_SIGNED - 1, Group::default()));
        let (many, largest) =
            (want(3, (256 << 10) + 1, Group::default()), want(4, 256 << 10, Group::default()));
        let part = Want { part: Some(0..9), ..one.clone() };
        let may = [&one, &small, &many, &largest, &part].map(|want| versions.may_have(want));
        assert_eq!(may, [true, false, false, true, false]);
        let again = Outcome::RetryLater(Duration::ZERO);
        for (end, may) in [(Some(again), false), (Some(Outcome::Cancelled), true), (None, true)] {
            versions.requested(1);
            match &end {
                Some(outcome) => versions.ended(1, outcome),
                None => assert!(versions.came(1, 9)),
            }
            assert_eq!(versions.may_have(&one), may, "{end:?}");
            versions.withdrawn(&[1]);
        }
        assert!(versions.under_way.is_empty() && versions.failed.is_empty());
    }

    #[test]
    fn bases_that_are_of_no_use_are_given_up_until_others_prove_right() {
        let (mut versions, next) = (OlderVersions::default(), want(0, 50_000, Group::default()));
        let ended = |versions: &mut OlderVersions, saved| {
            versions.requested(1);
            versions.came(1, saved);
        };
        for _ in 0..=MISSES {
            assert!(versions.may_have(&next));
            ended(&mut versions, 0);
        }
        assert!(!versions.may_have(&next));
        assert!(!versions.came(2, 9));
        assert!(!versions.may_have(&next), "it had no base");
        ended(&mut versions, 9);
        assert!(versions.may_have(&next));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut versions = OlderVersions::default();
        (1..=REMEMBERED as Tag).for_each(|tag| versions.requested(tag));
        assert!(!versions.may_have(&want(0, 50_000, Group::default())));
    }

    #[test]
    fn what_lies_in_its_place_or_was_found_is_signed_on_a_slow_network() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| Some(root.join(name));
        for (name, len) in [("here", 50_000), ("found", 50_000), ("tiny", 100), ("huge", 100_001)] {
            std::fs::write(root.join(name), vec![7; len]).unwrap();
        }
        std::os::unix::fs::symlink("here", root.join("link")).unwrap();
        for (destination, older, network, is_signed) in [
            (at("here"), None, SLOW, true),
            (at("here"), None, FAST, false),
            (at("here"), None, Network::default(), false),
            (at("not there"), at("found"), SLOW, true),
            (None, at("found"), SLOW, true),
            (at("not there"), None, SLOW, false),
            (at("tiny"), None, SLOW, false),
            (at("huge"), None, SLOW, false),
            (at("link"), None, SLOW, false),
            (Some(root.clone()), None, SLOW, false),
        ] {
            let what = format!("{destination:?} {older:?} {network:?}");
            let group = Group { destination, older, ..Group::default() };
            let base = sign(&want(1, 50_000, group), network);
            assert_eq!(base.map(|base| base.bytes.len()), is_signed.then_some(50_000), "{what}");
        }
    }
}
