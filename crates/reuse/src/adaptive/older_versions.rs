//! Older versions of files of few pieces. A file of one piece has no recipe, so nothing finds its chunks; of a few pieces the recipe
//! and the chunks around each change are more than what differs. So pieces are requested as deltas of what lies in the file's
//! place, or was found for it, where the network is slow and the sender may know this machine's files.
//!
//! Who may get a base is remembered here; [`sign`] reads and signs what there is.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::delta::Hints;
use towpath_content::pieces::Layout;
use towpath_transfer::{Group, ObjectFacts, Outcome, SignedBase, Tag, Want, WantId};

use super::neighbours::Region;
use super::signing::signed_base;
use crate::delta::made::{IN_PLACE, MadeDelta, MadeDeltas};
use crate::disk_search;
use crate::policy::network::Network;
use crate::policy::table::{LEAST_SIGNED, MISSES, MOST_BY_PIECES, PIECE_SPACING, VERSION_GROWN};

/// Wants with a base, and objects, that are remembered; others come as they are.
const REMEMBERED: usize = 4096;
/// Bytes on either side of a piece's place that its base has besides, at least and at most: as many as the sizes differ, as what was
/// inserted or left out shifts all that is behind it.
const LEAST_BESIDE: u64 = 8 << 10;
const MOST_BESIDE: u64 = 64 << 10;

/// What became of the bases so far. Pure.
#[derive(Debug, Default)]
pub(super) struct OlderVersions {
    /// Wants that are under way with a base.
    under_way: HashMap<Tag, BasedWant>,
    /// Wants that did not come so: a second time they come as they are.
    failed: HashSet<Tag>,
    /// Objects of several pieces, and whether these come so: not once a base was of little use.
    by_pieces: HashMap<Oid, bool>,
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
    base: OlderFile,
    /// It shows whether the older version is of use: not what lies behind the end of that.
    tells: bool,
}

/// A file that is here, of which a base is.
#[derive(Debug, Clone)]
pub(super) struct OlderFile {
    path: Arc<Path>,
    len: u64,
}

impl OlderVersions {
    /// True if `want` may be requested with a base.
    pub(super) fn may_have(&self, want: &Want) -> bool {
        let WantId::Piece { oid, layout, .. } = want.id else { return false };
        let is_of_few = layout.count() == 1 || layout.size() <= MOST_BY_PIECES;
        is_of_few
            && want.id.len() >= LEAST_SIGNED
            && self.by_pieces.get(&oid) != Some(&false)
            && want.needs_no_proof()
            && want.part.is_none()
            && self.are_useful()
            && self.under_way.len() + self.failed.len() < REMEMBERED
            && !self.failed.contains(&want.tag)
    }

    /// True if the pieces of an object of several come as deltas, rather than its chunks by a recipe.
    pub(super) fn come_by_pieces(&mut self, facts: &ObjectFacts<'_>, network: Network) -> bool {
        let Ok(layout) = Layout::of(facts.size) else { return false };
        if layout.count() == 1 || layout.size() > MOST_BY_PIECES || !self.are_useful() {
            return false;
        }
        match self.by_pieces.get(&facts.oid) {
            Some(come) => *come,
            None if self.by_pieces.len() >= REMEMBERED => false,
            None => {
                // A shorter one has no piece in its place: its target learns no values, by which deltas are checked.
                let older = older_version(facts.group, facts.size, network);
                let come = older.is_some_and(|(_, len)| len > layout.piece_len());
                self.by_pieces.insert(facts.oid, come);
                come
            }
        }
    }

    /// True unless too many bases were of no use.
    const fn are_useful(&self) -> bool {
        self.vain <= self.useful + MISSES
    }

    /// A want is requested with a base of this file, or without: then its object does not come so, unless it is hardly longer than
    /// a signature.
    pub(super) fn requested(&mut self, want: &Want, base: Option<OlderFile>) {
        let WantId::Piece { oid, layout, index } = want.id else { return };
        let group = Arc::clone(&want.group);
        match base {
            Some(base) => {
                let tells = layout.range(index).end <= base.len;
                self.under_way.insert(want.tag, BasedWant { oid, group, base, tells });
            }
            None if want.id.len() >= LEAST_SIGNED => self.gives_up(&oid),
            None => {}
        }
    }

    fn gives_up(&mut self, oid: &Oid) {
        self.by_pieces.get_mut(oid).into_iter().for_each(|come| *come = false);
    }

    /// Its bytes are here, and so many of them did not have to come. True if it had a base.
    pub(super) fn came(&mut self, tag: Tag, len: u64, saved: u64) -> bool {
        self.failed.remove(&tag);
        let Some(want) = self.under_way.remove(&tag) else { return false };
        match saved {
            0 => self.vain += u64::from(want.tells),
            _ => {
                self.useful += 1;
                self.made_of(&want, len, saved);
            }
        }
        if want.tells && saved < len / 2 {
            self.gives_up(&want.oid);
        }
        true
    }

    fn made_of(&mut self, want: &BasedWant, len: u64, saved: u64) {
        let (is_full, known) = (self.saved.len() >= REMEMBERED, self.saved.get_mut(&want.oid));
        let is_new = known.is_none();
        match known {
            Some(before) => *before += saved,
            None if is_full => {}
            None => drop(self.saved.insert(want.oid, saved)),
        }
        let (path, base) = (want.group.path.clone(), want.base.path.to_path_buf());
        let (made, came) = (len, len.saturating_sub(saved));
        self.made.add(MadeDelta { path, base, reason: IN_PLACE, made, came }, is_new);
    }

    /// What came so, as if each base had been in its place.
    pub(super) const fn made(&self) -> &MadeDeltas {
        &self.made
    }

    /// Bytes of an object that did not have to come.
    pub(super) fn saved(&self, oid: &Oid) -> u64 {
        self.saved.get(oid).copied().unwrap_or(0)
    }

    /// It did not come. If it is requested again, that is without a base.
    pub(super) fn ended(&mut self, tag: Tag, outcome: &Outcome) {
        match outcome {
            Outcome::RetryLater(_) if self.under_way.remove(&tag).is_some() => {
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

/// A base for `want`, read and signed, and where it lies, if there is one of use on this network. Blocks.
pub(super) fn sign(want: &Want, network: Network) -> Option<(Arc<SignedBase>, OlderFile)> {
    let WantId::Piece { layout, index, .. } = want.id else { return None };
    let (path, len) = older_version(&want.group, layout.size(), network)?;
    let range = region(&layout, index, len);
    if range.end.saturating_sub(range.start) < LEAST_SIGNED {
        return None;
    }
    let hints = match layout.count() {
        1 => Hints::default(),
        _ => Hints { edit_spacing: PIECE_SPACING, ..Hints::default() },
    };
    let region = Region { path: Arc::from(path), range };
    Some((signed_base(&region, want.id.len(), &hints)?, OlderFile { path: region.path, len }))
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

/// Bytes of an older version of `len` that a piece likely resembles: what is around its place.
fn region(layout: &Layout, index: u64, len: u64) -> Range<u64> {
    if layout.count() == 1 {
        return 0..len;
    }
    let (piece, shift) = (layout.range(index), layout.size().abs_diff(len));
    let beside = shift.clamp(LEAST_BESIDE, MOST_BESIDE);
    piece.start.saturating_sub(beside)..(piece.end + beside).min(len)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use towpath_transfer::OpenWays;

    use super::*;

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

    fn base() -> Option<OlderFile> {
        Some(OlderFile { path: Arc::from(Path::new("/old")), len: 2 * PIECE })
    }

    /// The same for another piece.
    fn numbered(want: Want, index: u64) -> Want {
        let WantId::Piece { oid, layout, .. } = want.id else { return want };
        Want { id: WantId::Piece { oid, layout, index }, ..want }
    }

    #[test]
    fn pieces_of_files_of_some_length_that_need_no_proof_are_tried_once() {
        let mut versions = OlderVersions::default();
        let one = want(1, 50_000, Group::default());
        for (what, want, may) in [
            ("of one piece", one.clone(), true),
            ("hardly longer than a signature", want(2, LEAST_SIGNED - 1, Group::default()), false),
            ("the last one is no longer", numbered(want(2, PIECE + 9, Group::default()), 1), false),
            ("as long as a piece may be", want(4, PIECE, Group::default()), true),
            ("of two pieces", want(3, PIECE + 1, Group::default()), true),
            ("of some", want(3, MOST_BY_PIECES, Group::default()), true),
            ("of many", want(3, MOST_BY_PIECES + 1, Group::default()), false),
            ("nobody knows its value", Want { value: None, ..want(3, PIECE + 1, Group::default()) }, false),
            ("a part of one", Want { part: Some(0..9), ..one.clone() }, false),
        ] {
            assert_eq!(versions.may_have(&want), may, "{what}");
        }
        let again = Outcome::RetryLater(Duration::ZERO);
        for (end, may) in [(Some(again), false), (Some(Outcome::Cancelled), true), (None, true)] {
            versions.requested(&one, base());
            match &end {
                Some(outcome) => versions.ended(1, outcome),
                None => assert!(versions.came(1, 50_000, 9)),
            }
            assert_eq!(versions.may_have(&one), may, "{end:?}");
            versions.withdrawn(&[1]);
        }
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
            versions.come_by_pieces(&facts(Oid::of(&at.to_le_bytes()), 2 * PIECE, &group), SLOW);
        }
        assert_eq!(versions.by_pieces.len(), REMEMBERED);
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
    fn the_base_of_a_piece_is_what_lies_around_its_place() {
        let beside = LEAST_BESIDE;
        for (size, len, index, range) in [
            (50_000, 40_000, 0, 0..40_000),
            (3 * PIECE, 3 * PIECE, 0, 0..PIECE + beside),
            (3 * PIECE, 3 * PIECE, 1, PIECE - beside..2 * PIECE + beside),
            (3 * PIECE, 3 * PIECE, 2, 2 * PIECE - beside..3 * PIECE),
            (3 * PIECE, 3 * PIECE - 20_000, 1, PIECE - 20_000..2 * PIECE + 20_000),
            (3 * PIECE, 2 * PIECE, 1, PIECE - MOST_BESIDE..2 * PIECE),
        ] {
            assert_eq!(region(&Layout::of(size).unwrap(), index, len), range, "{size} {len} {index}");
        }
        let (_folder, at) = folder(&[("old", PIECE + PIECE / 2)]);
        let group = Group { destination: at("old"), ..Group::default() };
        let piece = |index| {
            let (Want { tag, group, .. }, layout) =
                (want(1, 3 * PIECE, group.clone()), Layout::of(3 * PIECE).unwrap());
            let id = WantId::Piece { oid: Oid::of(b"it"), layout, index };
            sign(&Want { group, value: Some([7; 32]), ..Want::new(tag, id) }, SLOW)
        };
        let lens = [0, 1, 2].map(|index| piece(index).map(|(base, _)| base.bytes.len() as u64));
        assert_eq!(lens, [Some(PIECE + MOST_BESIDE), Some(PIECE / 2 + MOST_BESIDE), None]);
    }

    #[test]
    fn what_came_so_is_told_by_file() {
        let mut versions = OlderVersions::default();
        for (tag, saved) in [(1, PIECE - 9), (2, PIECE - 5), (3, 0)] {
            let group = Group { path: b"file".to_vec(), ..Group::default() };
            versions.requested(&want(tag, 2 * PIECE, group), base());
            versions.came(tag, PIECE, saved);
        }
        let MadeDeltas { files, saved, listed } = versions.made();
        assert_eq!((*files, *saved, listed.len()), (1, 2 * PIECE - 14, 1));
        let MadeDelta { path, base, made, came, .. } = &listed[0];
        assert_eq!(
            (&path[..], base.as_path(), *made, *came),
            (&b"file"[..], Path::new("/old"), 2 * PIECE, 14)
        );
        assert_eq!([&b"it"[..], b"other"].map(|name| versions.saved(&Oid::of(name))), [2 * PIECE - 14, 0]);
    }

    #[test]
    fn a_file_of_few_pieces_comes_by_them_until_a_base_is_of_little_use() {
        let (_folder, at) = folder(&[("old", 2 * PIECE), ("short", PIECE)]);
        let oid = Oid::of(b"it");
        let lies = |name| Group { destination: at(name), ..Group::default() };
        for (what, size, group, network, come) in [
            ("of two pieces", 2 * PIECE, lies("old"), SLOW, true),
            ("of one", PIECE, lies("old"), SLOW, false),
            ("of many", MOST_BY_PIECES + 1, lies("old"), SLOW, false),
            ("nothing is here", 2 * PIECE, lies("not there"), SLOW, false),
            ("nothing is in its place", 2 * PIECE, lies("short"), SLOW, false),
            ("it is fast", 2 * PIECE, lies("old"), FAST, false),
        ] {
            let mut versions = OlderVersions::default();
            assert_eq!(versions.come_by_pieces(&facts(oid, size, &group), network), come, "{what}");
        }
        let (group, one) = (lies("old"), want(1, 2 * PIECE, lies("old")));
        let behind = numbered(want(1, 3 * PIECE, lies("old")), 2);
        let short = numbered(want(1, PIECE + 9, lies("old")), 1);
        for (what, want, has_base, saved, come) in [
            ("most was saved", &one, true, PIECE - 9, true),
            ("little was saved", &one, true, PIECE / 2 - 1, false),
            ("it had no base", &one, false, 0, false),
            ("it is behind the older version's end", &behind, true, 0, true),
            ("it is too short", &short, false, 0, true),
        ] {
            let mut versions = OlderVersions::default();
            assert!(versions.come_by_pieces(&facts(oid, 2 * PIECE, &group), SLOW));
            versions.requested(want, base().filter(|_| has_base));
            assert_eq!(versions.came(1, PIECE, saved), has_base);
            assert_eq!(versions.come_by_pieces(&facts(oid, 2 * PIECE, &group), SLOW), come, "{what}");
            assert_eq!(versions.may_have(&one), come, "{what}");
            assert_eq!(versions.vain, 0, "{what}");
        }
    }
}
