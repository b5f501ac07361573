//! Older versions of files of up to some MiB. A file of one piece has no recipe, so nothing finds its chunks; of a few pieces the recipe
//! and the chunks around each change are more than what differs. So all of such a file is requested as a delta of what lies in its
//! place, or was found for it, where the network is slow and the sender may know this machine's files.
//!
//! Who may get a base is remembered here; [`sign`] reads and signs what there is.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::pieces::Layout;
use towpath_disk_search as disk_search;
use towpath_transfer::{Group, ObjectFacts, Outcome, SignedBase, Tag, Want, WantId};

use super::neighbours::Region;
use super::signing::signed_base;
use crate::delta::made::{IN_PLACE, MadeDelta, MadeDeltas};
use crate::policy::network::Network;
use crate::policy::table::{LEAST_SIGNED, MISSES, MOST_WHOLE, VERSION_GROWN};

/// Wants with a base, and objects, that are remembered; others come as they are.
const REMEMBERED: usize = 4096;
/// Times that an object of several pieces is requested as a delta, as connections may be lost.
const TRIES: u32 = 3;

/// What became of the bases so far. Pure.
#[derive(Debug, Default)]
pub(super) struct OlderVersions {
    /// Wants that are under way with a base.
    under_way: HashMap<Tag, BasedWant>,
    /// Wants that did not come so, and how often.
    failed: HashMap<Tag, u32>,
    /// Objects of several pieces, and whether they come as one delta: not once that was of no use.
    whole: HashMap<Oid, bool>,
    useful: u64,
    vain: u64,
    /// What came so.
    made: MadeDeltas,
    /// Bytes that did not have to come of each object.
    saved: HashMap<Oid, u64>,
}

/// A want that is under way with a base.
#[derive(Debug)]
struct BasedWant {
    oid: Oid,
    group: Arc<Group>,
    base: Arc<Path>,
}

/// The object of which a want is all.
fn object(want: &Want) -> Option<Oid> {
    match want.id {
        WantId::Piece { oid, .. } if want.id.is_whole() => Some(oid),
        _ => want.whole_object(),
    }
}

/// True if an object of so many bytes has several pieces, and not too many for one delta.
pub(super) fn has_few_pieces(size: u64) -> bool {
    size <= MOST_WHOLE && Layout::of(size).is_ok_and(|layout| layout.count() > 1)
}

impl OlderVersions {
    /// True if `want` may be requested with a base.
    pub(super) fn may_have(&self, want: &Want) -> bool {
        let Some(oid) = object(want) else { return false };
        let tries = if want.whole_object().is_some() { TRIES } else { 1 };
        want.id.len() >= LEAST_SIGNED
            && self.whole.get(&oid) != Some(&false)
            && want.part.is_none()
            && self.are_useful()
            && self.under_way.len() + self.failed.len() < REMEMBERED
            && self.failed.get(&want.tag).is_none_or(|failed| *failed < tries)
    }

    /// True if an object of several pieces comes as one delta, rather than its chunks by a recipe.
    pub(super) fn comes_whole(&mut self, facts: &ObjectFacts<'_>, network: Network) -> bool {
        if !has_few_pieces(facts.size) || !self.are_useful() {
            return false;
        }
        match self.whole.get(&facts.oid) {
            Some(comes) => *comes,
            None if self.whole.len() >= REMEMBERED => false,
            None => {
                let comes = older_version(facts.group, facts.size, network).is_some();
                self.whole.insert(facts.oid, comes);
                comes
            }
        }
    }

    /// True if an object of several pieces was to come as one delta, whatever became of that.
    pub(super) fn was_whole(&self, oid: &Oid) -> bool {
        self.whole.contains_key(oid)
    }

    /// True unless too many bases were of no use.
    const fn are_useful(&self) -> bool {
        self.vain <= self.useful + MISSES
    }

    /// A want is requested with a base of this file, or without: then its object does not come so.
    pub(super) fn requested(&mut self, want: &Want, base: Option<Arc<Path>>) {
        let Some(oid) = object(want) else { return };
        match base {
            Some(base) => {
                let group = Arc::clone(&want.group);
                self.under_way.insert(want.tag, BasedWant { oid, group, base });
            }
            None => self.gives_up(&oid),
        }
    }

    fn gives_up(&mut self, oid: &Oid) {
        self.whole.get_mut(oid).into_iter().for_each(|comes| *comes = false);
    }

    /// Its bytes are here, and so many of them did not have to come. True if it had a base.
    pub(super) fn came(&mut self, tag: Tag, len: u64, saved: u64) -> bool {
        self.failed.remove(&tag);
        let Some(want) = self.under_way.remove(&tag) else { return false };
        match saved {
            0 => self.vain += 1,
            _ => {
                self.useful += 1;
                self.made_of(&want, len, saved);
            }
        }
        true
    }

    fn made_of(&mut self, want: &BasedWant, len: u64, saved: u64) {
        if self.saved.len() < REMEMBERED {
            self.saved.insert(want.oid, saved);
        }
        let (path, base) = (want.group.path.clone(), want.base.to_path_buf());
        let (made, came) = (len, len.saturating_sub(saved));
        self.made.add(MadeDelta { path, base, reason: IN_PLACE, made, came });
    }

    /// What came so, as if each base had been in its place.
    pub(super) const fn made(&self) -> &MadeDeltas {
        &self.made
    }

    /// Bytes of an object that did not have to come.
    pub(super) fn saved(&self, oid: &Oid) -> u64 {
        self.saved.get(oid).copied().unwrap_or(0)
    }

    /// It did not come. If it is requested again, that is without a base, or once it was tried often enough.
    pub(super) fn ended(&mut self, tag: Tag, outcome: &Outcome) {
        let want = self.under_way.remove(&tag);
        if let Outcome::RetryLater(_) = outcome {
            if want.is_some() {
                self.vain += 1;
                *self.failed.entry(tag).or_default() += 1;
            }
            return;
        }
        self.failed.remove(&tag);
        if let Some(want) = want.filter(|_| *outcome != Outcome::Cancelled) {
            self.vain += u64::from(self.whole.contains_key(&want.oid));
            self.gives_up(&want.oid);
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

/// A base for `want`, read and signed, and where it lies, if there is one of use on this network. Blocks.
pub(super) fn sign(want: &Want, network: Network) -> Option<(Arc<SignedBase>, Arc<Path>)> {
    let size = want.id.len();
    let (path, len) = older_version(&want.group, size, network)?;
    let region = Region { path: Arc::from(path), range: 0..len };
    let is_whole = want.whole_object().is_some();
    // One piece has no room for steps.
    let base = signed_base(&region, size, is_whole, if is_whole { network } else { Network::default() });
    Some((base?, region.path))
}

/// What lies in the place of a file of `size` bytes, or else was found for it, and its bytes, if it may be a base. Blocks.
fn older_version(group: &Group, size: u64, network: Network) -> Option<(&Path, u64)> {
    let places = [&group.destination, &group.older];
    let mut found = places.into_iter().flatten().filter_map(|path| Some((path, disk_search::size(path)?)));
    let (path, len) = found.next()?;
    // Bases are held until the answer is here. So all of them are at most twice what is under way.
    let is_alike = network.likes_delta(len, size) && len <= size * VERSION_GROWN;
    is_alike.then_some((path.as_path(), len))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use towpath_content::delta::exchange::MAX_OUTLINES;
    use towpath_transfer::{OpenWays, Origin};

    use super::*;
    use crate::policy::table::OUTLINES_BELOW;

    const SLOW: Network = Network { rate: 1e5, round_trip: Duration::ZERO };
    const FAST: Network = Network { rate: 1e9, round_trip: Duration::ZERO };
    const PIECE: u64 = 256 << 10;

    /// The want for the first piece of a file of so many bytes, whose value is known if it is one of several.
    fn want(tag: Tag, size: u64, group: Group) -> Want {
        let layout = Layout::of(size).unwrap();
        let value = (layout.count() > 1).then_some([7; 32]);
        let id = WantId::Piece { oid: Oid::of(b"it"), layout, index: 0 };
        Want { group: Arc::new(group), value, ..Want::new(tag, id) }
    }

    fn base() -> Option<Arc<Path>> {
        Some(Arc::from(Path::new("/old")))
    }

    /// A want for all of an object of several pieces.
    fn whole(tag: Tag, size: u64, group: Group) -> Want {
        let oid = Oid::of(b"it");
        let id = WantId::Chunk { hash: *oid.digest(), len: size as u32 };
        Want { group: Arc::new(group), origin: Some(Origin { oid, offset: 0 }), ..Want::new(tag, id) }
    }

    #[test]
    fn what_is_all_of_its_object_is_tried_once_and_more_often_if_that_has_several_pieces() {
        let mut versions = OlderVersions::default();
        let (one, all) = (want(1, 50_000, Group::default()), whole(2, 3 * PIECE, Group::default()));
        let other = Origin { oid: Oid::of(b"other"), offset: 0 };
        for (what, want, may) in [
            ("of one piece", one.clone(), true),
            ("hardly longer than a signature", want(2, LEAST_SIGNED - 1, Group::default()), false),
            ("as long as a piece may be", want(4, PIECE, Group::default()), true),
            ("of two pieces", want(3, PIECE + 1, Group::default()), false),
            ("a part of one", Want { part: Some(0..9), ..one.clone() }, false),
            ("all of several", all.clone(), true),
            ("a chunk of another object", Want { origin: Some(other), ..all.clone() }, false),
        ] {
            assert_eq!(versions.may_have(&want), may, "{what}");
        }
        let again = Outcome::RetryLater(Duration::ZERO);
        for (end, may) in [(Some(again.clone()), false), (Some(Outcome::Cancelled), true), (None, true)] {
            versions.requested(&one, base());
            match &end {
                Some(outcome) => versions.ended(1, outcome),
                None => assert!(versions.came(1, 50_000, 9)),
            }
            assert_eq!(versions.may_have(&one), may, "{end:?}");
            versions.withdrawn(&[1]);
        }
        for _ in 0..TRIES {
            assert!(versions.may_have(&all));
            versions.requested(&all, base());
            versions.ended(2, &again);
        }
        assert!(!versions.may_have(&all));
        versions.withdrawn(&[2]);
        assert!(versions.under_way.is_empty() && versions.failed.is_empty());
    }

    #[test]
    fn bases_that_are_of_no_use_are_given_up_until_others_prove_right() {
        let (mut versions, next) = (OlderVersions::default(), want(0, 50_000, Group::default()));
        let one = want(1, 50_000, Group::default());
        let ended = |versions: &mut OlderVersions, saved| {
            versions.requested(&one, base());
            versions.came(1, 50_000, saved);
        };
        for _ in 0..=MISSES {
            assert!(versions.may_have(&next));
            ended(&mut versions, 0);
        }
        assert!(!versions.may_have(&next));
        assert!(!versions.came(2, 50_000, 9));
        assert!(!versions.may_have(&next), "it had no base");
        ended(&mut versions, 9);
        assert!(versions.may_have(&next));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut versions = OlderVersions::default();
        let wants = (1..=REMEMBERED as Tag).map(|tag| want(tag, 50_000, Group::default()));
        wants.for_each(|want| versions.requested(&want, base()));
        assert!(!versions.may_have(&want(0, 50_000, Group::default())));
        let group = Group::default();
        for at in 0..=REMEMBERED as u64 {
            versions.comes_whole(&facts(Oid::of(&at.to_le_bytes()), 2 * PIECE, &group), SLOW);
        }
        assert_eq!(versions.whole.len(), REMEMBERED);
    }

    fn facts(oid: Oid, size: u64, group: &Group) -> ObjectFacts<'_> {
        let open = OpenWays::RECIPE;
        ObjectFacts { oid, asked_as: oid, size, missing: size, read_rate: 0.0, kept: 0, group, open }
    }

    /// A folder with files of these lengths, and the group of one of them.
    fn folder(files: &[(&str, u64)]) -> (tempfile::TempDir, impl Fn(&str) -> Option<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for (name, len) in files {
            std::fs::write(root.join(name), vec![7; *len as usize]).unwrap();
        }
        (folder, move |name| Some(root.join(name)))
    }

    #[test]
    fn what_lies_in_its_place_or_was_found_is_signed_on_a_slow_network() {
        let (_folder, at) = folder(&[("here", 50_000), ("found", 50_000), ("tiny", 100), ("huge", 100_001)]);
        std::os::unix::fs::symlink("here", at("link").unwrap()).unwrap();
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
            (at("."), None, SLOW, false),
        ] {
            let what = format!("{destination:?} {older:?} {network:?}");
            let group = Group { destination, older, ..Group::default() };
            let base = sign(&want(1, 50_000, group), network);
            assert_eq!(base.map(|(base, _)| base.bytes.len()), is_signed.then_some(50_000), "{what}");
        }
    }

    #[test]
    fn an_object_of_several_pieces_is_of_no_use_but_as_a_delta_in_as_many_steps_as_the_network_likes() {
        let (_folder, at) = folder(&[("old", 3 * PIECE)]);
        let quick = Network { rate: 2.0 * OUTLINES_BELOW, round_trip: Duration::ZERO };
        for (network, outlines) in [(SLOW, Some(MAX_OUTLINES)), (quick, Some(0)), (FAST, None)] {
            let group = Group { destination: at("old"), ..Group::default() };
            let base = sign(&whole(1, 3 * PIECE, group), network).map(|(base, _)| base);
            let told = base.map(|base| {
                assert!(base.request.is_guess && base.bytes.len() as u64 == 3 * PIECE);
                base.request.outlines
            });
            assert_eq!(told, outlines, "{network:?}");
        }
    }

    #[test]
    fn what_came_so_is_told_by_file() {
        let mut versions = OlderVersions::default();
        for (tag, saved) in [(1, PIECE - 9), (2, 0)] {
            let group = Group { path: b"file".to_vec(), ..Group::default() };
            versions.requested(&want(tag, PIECE, group), base());
            versions.came(tag, PIECE, saved);
        }
        let MadeDeltas { files, saved, listed } = versions.made();
        assert_eq!((*files, *saved, listed.len()), (1, PIECE - 9, 1));
        let MadeDelta { path, base, made, came, .. } = &listed[0];
        assert_eq!((&path[..], base.as_path(), *made, *came), (&b"file"[..], Path::new("/old"), PIECE, 9));
        assert_eq!([&b"it"[..], b"other"].map(|name| versions.saved(&Oid::of(name))), [PIECE - 9, 0]);
    }

    #[test]
    fn a_file_of_few_pieces_comes_as_one_delta_until_that_is_of_no_use() {
        let (_folder, at) = folder(&[("old", 2 * PIECE), ("short", PIECE / 8)]);
        let oid = Oid::of(b"it");
        let lies = |name| Group { destination: at(name), ..Group::default() };
        for (what, size, group, network, comes) in [
            ("of two pieces", 2 * PIECE, lies("old"), SLOW, true),
            ("of one", PIECE, lies("old"), SLOW, false),
            ("of many", MOST_WHOLE + 1, lies("old"), SLOW, false),
            ("nothing is here", 2 * PIECE, lies("not there"), SLOW, false),
            ("what is here is far shorter", 2 * PIECE, lies("short"), SLOW, false),
            ("it is fast", 2 * PIECE, lies("old"), FAST, false),
        ] {
            let mut versions = OlderVersions::default();
            assert_eq!(versions.comes_whole(&facts(oid, size, &group), network), comes, "{what}");
        }
        let (group, all) = (lies("old"), whole(1, 2 * PIECE, lies("old")));
        for (what, has_base, end, comes) in [
            ("it came", true, None, true),
            ("the connection was lost", true, Some(Outcome::RetryLater(Duration::ZERO)), true),
            ("too little is alike", true, Some(Outcome::NotHere), false),
            ("it had no base", false, None, false),
        ] {
            let mut versions = OlderVersions::default();
            assert!(versions.comes_whole(&facts(oid, 2 * PIECE, &group), SLOW));
            versions.requested(&all, base().filter(|_| has_base));
            match end {
                Some(outcome) => versions.ended(1, &outcome),
                None => assert_eq!(versions.came(1, 2 * PIECE, PIECE), has_base),
            }
            assert_eq!(versions.comes_whole(&facts(oid, 2 * PIECE, &group), SLOW), comes, "{what}");
            assert_eq!(versions.may_have(&all), comes, "{what}");
        }
    }
}
