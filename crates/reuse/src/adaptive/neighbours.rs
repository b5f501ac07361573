//! Regions that a chunk which no file has likely resembles: where its neighbours were found, and what lies between
//! them there.
//!
//! Chunks that follow each other in an object and in a file are one stretch, so that an object of which all but
//! some edits lie in a file takes a few entries. Pure; `content::delta::refine` does the same for an object of
//! which all is known at once.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use towpath_content::Oid;
use towpath_disk_search::FilePosition;

/// Stretches that are remembered. What is forgotten comes as it is.
const REMEMBERED: usize = 1 << 16;
/// A neighbour that is further away says little.
const FAR: u64 = 128 << 10;
/// Bytes a region reaches beyond the likely place, on sides without a neighbour.
const SLACK: u64 = 16 << 10;
/// A region has at most this many times the bytes that resemble it, and this many more.
const REGION_PER_RUN: u64 = 4;
const REGION_BEYOND_RUN: u64 = 64 << 10;

/// A region of a file; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The file.
    pub path: Arc<Path>,
    /// Its bytes.
    pub range: Range<u64>,
}

impl Region {
    /// Its bytes.
    pub const fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Never.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Positions at which the chunks of objects were found.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// By object and first byte.
    objects: HashMap<Oid, BTreeMap<u64, Stretch>>,
    count: usize,
}

/// Chunks that follow each other in the object and in a file.
#[derive(Debug, Clone)]
struct Stretch {
    len: u64,
    position: FilePosition,
}

impl Stretch {
    /// True if `next`, which begins at `offset` of the object, goes on where this ends.
    fn goes_on(&self, start: u64, offset: u64, next: &FilePosition) -> bool {
        start + self.len == offset
            && self.position.offset + self.len == next.offset
            && self.position.path == next.path
    }
}

/// The edge of a neighbour: where in the object, and where in its file.
struct Edge<'a> {
    offset: u64,
    at: u64,
    position: &'a FilePosition,
}

impl Neighbours {
    /// The chunk of `len` bytes at `offset` of an object was found there.
    pub fn found(&mut self, oid: &Oid, offset: u64, len: u64, position: FilePosition) {
        if self.count >= REMEMBERED {
            return;
        }
        let stretches = self.objects.entry(*oid).or_default();
        let before = stretches.range_mut(..=offset).next_back();
        let (start, end) = match before {
            Some((start, stretch)) if offset < *start + stretch.len => return,
            Some((start, stretch)) if stretch.goes_on(*start, offset, &position) => {
                stretch.len += len;
                (*start, offset + len)
            }
            _ => {
                stretches.insert(offset, Stretch { len, position });
                self.count += 1;
                (offset, offset + len)
            }
        };
        let is_one = |stretch: &Stretch, next: &Stretch| stretch.goes_on(start, end, &next.position);
        if let (Some(stretch), Some(next)) = (stretches.get(&start), stretches.get(&end))
            && is_one(stretch, next)
            && let Some(next) = stretches.remove(&end)
            && let Some(stretch) = stretches.get_mut(&start)
        {
            stretch.len += next.len;
            self.count -= 1;
        }
    }

    /// The region that the missing bytes `run` of an object likely resemble.
    pub fn region(&self, oid: &Oid, run: &Range<u64>) -> Option<Region> {
        let stretches = self.objects.get(oid)?;
        let left = stretches.range(..run.end).next_back().map(|(start, stretch)| Edge {
            offset: start + stretch.len,
            at: stretch.position.offset + stretch.len,
            position: &stretch.position,
        });
        let right = stretches.range(run.end..).next().map(|(start, stretch)| Edge {
            offset: *start,
            at: stretch.position.offset,
            position: &stretch.position,
        });
        let left = left.filter(|edge| edge.offset <= run.start && run.start - edge.offset <= FAR);
        let right = right.filter(|edge| edge.offset - run.end <= FAR);
        let (position, range) = match (left, right) {
            (None, None) => return None,
            (Some(left), Some(right)) if left.position.path == right.position.path && left.at <= right.at => {
                (left.position, between(&left, &right, run))
            }
            (Some(left), Some(right)) if run.start - left.offset > right.offset - run.end => {
                (right.position, before(&right, run))
            }
            (Some(left), _) => (left.position, behind(&left, run)),
            (None, Some(right)) => (right.position, before(&right, run)),
        };
        let range = range.start..range.end.min(position.size);
        (range.start < range.end).then(|| Region { path: Arc::clone(&position.path), range })
    }
}

/// The region of an older version, all of it, that a run of an object of `size` bytes likely resembles if no neighbour was found.
pub fn same_place(older: &FilePosition, size: u64, run: &Range<u64>) -> Option<Region> {
    let start = Edge { offset: 0, at: 0, position: older };
    let end = Edge { offset: size, at: older.size, position: older };
    let range = between(&start, &end, run);
    (range.start < range.end).then(|| Region { path: Arc::clone(&older.path), range })
}

/// The region between two edges. The position of inserted or removed bytes in the gap is not known: a part of it may
/// lie anywhere between its distance from the gap's start and that from its end.
fn between(left: &Edge<'_>, right: &Edge<'_>, run: &Range<u64>) -> Range<u64> {
    let (gap, found) = (right.offset - left.offset, right.at - left.at);
    let (inserted, removed) = (gap.saturating_sub(found), found.saturating_sub(gap));
    let here = left.at + (run.start - left.offset);
    let before = if run.start == left.offset { 0 } else { inserted + SLACK };
    let behind = if run.end == right.offset { removed } else { removed + SLACK };
    let from = here.saturating_sub(before).max(left.at);
    let to = (here + (run.end - run.start)).saturating_add(behind).min(right.at);
    from..to.min(from + most(run))
}

fn behind(left: &Edge<'_>, run: &Range<u64>) -> Range<u64> {
    let here = left.at + (run.start - left.offset);
    let before = if run.start == left.offset { 0 } else { SLACK };
    here.saturating_sub(before).max(left.at)..here + (run.end - run.start) + SLACK
}

fn before(right: &Edge<'_>, run: &Range<u64>) -> Range<u64> {
    let end = right.at.saturating_sub(right.offset - run.end);
    let behind = if run.end == right.offset { 0 } else { SLACK };
    end.saturating_sub(run.end - run.start + SLACK)..(end + behind).min(right.at)
}

const fn most(run: &Range<u64>) -> u64 {
    REGION_PER_RUN * (run.end - run.start) + REGION_BEYOND_RUN
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    fn neighbours(found: &[(u64, u64, &str, u64)]) -> (Oid, Neighbours) {
        let (oid, mut neighbours) = (Oid::of(b"it"), Neighbours::default());
        for (offset, len, path, at) in found {
            let position = FilePosition { path: Path::new(path).into(), offset: at * K, size: 1000 * K };
            neighbours.found(&oid, offset * K, len * K, position);
        }
        (oid, neighbours)
    }

    #[test]
    fn what_has_no_neighbour_lies_where_it_lay_as_far_as_the_versions_differ_in_length() {
        for (older, size, run, region) in [
            (1000, 1000, 0..100, Some(0..116)),
            (1000, 1000, 500..600, Some(484..616)),
            (1000, 1000, 900..1000, Some(884..1000)),
            (1000, 1030, 500..600, Some(454..616)),
            (970, 1000, 900..1000, Some(854..970)),
            (100, 1000, 990..1000, Some(74..100)),
            (0, 1000, 0..10, None),
        ] {
            let run = run.start * K..run.end * K;
            let position = FilePosition { path: Path::new("/f").into(), offset: 0, size: older * K };
            let found = same_place(&position, size * K, &run).map(|it| it.range.start / K..it.range.end / K);
            assert_eq!(found, region, "{older} {size} {run:?}");
        }
    }

    #[test]
    fn chunks_that_follow_each_other_are_one_stretch_in_whatever_order_they_come() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 3, 1, 2], [2, 0, 3, 1]] {
            let found = order.map(|at| (at * 10, 10, "/f", 5 + at * 10));
            let (oid, mut neighbours) = neighbours(&found);
            let again = FilePosition { path: Path::new("/f").into(), offset: 5 * K, size: 1000 * K };
            neighbours.found(&oid, 0, 10 * K, again);
            assert_eq!((neighbours.count, neighbours.objects[&oid].len()), (1, 1), "{order:?}");
            assert_eq!(neighbours.objects[&oid][&0].len, 40 * K);
        }
        let (_, apart) = neighbours(&[(0, 10, "/f", 0), (10, 10, "/g", 10), (20, 10, "/f", 21)]);
        assert_eq!(apart.count, 3);
    }

    #[test]
    fn a_table_of_gaps() {
        type Found<'a> = &'a [(u64, u64, &'a str, u64)];
        let in_order: Found<'_> = &[(0, 10, "/f", 5), (40, 10, "/f", 45)];
        let inserted: Found<'_> = &[(0, 10, "/f", 5), (40, 10, "/f", 35)];
        let removed: Found<'_> = &[(0, 10, "/f", 5), (40, 10, "/f", 55)];
        let swapped: Found<'_> = &[(0, 10, "/f", 95), (40, 10, "/f", 35)];
        let apart: Found<'_> = &[(0, 10, "/f", 5), (40, 10, "/g", 200)];
        let alone: Found<'_> = &[(40, 10, "/f", 20)];
        let at_end: Found<'_> = &[(0, 10, "/f", 985)];
        for (what, found, run, expected) in [
            ("the whole gap", in_order, 10..40, Some(15..45)),
            ("its front", in_order, 10..20, Some(15..41)),
            ("its end", in_order, 35..40, Some(24..45)),
            ("something was inserted", inserted, 10..40, Some(15..35)),
            ("something was removed", removed, 10..40, Some(15..55)),
            ("the wrong way round: the left one is nearer", swapped, 10..20, Some(105..131)),
            ("the right one is nearer", swapped, 35..40, Some(14..35)),
            ("in different files", apart, 10..40, Some(15..61)),
            ("behind nothing", alone, 30..40, Some(0..20)),
            ("the file's end", at_end, 10..40, Some(995..1000)),
            ("nothing left of the file", at_end, 40..50, None),
            ("far away", alone, 300..310, None),
            ("nothing is known", &[], 0..10, None),
        ] {
            let (oid, neighbours) = neighbours(found);
            let found = neighbours.region(&oid, &(run.start * K..run.end * K));
            assert_eq!(found.map(|it| it.range.start / K..it.range.end / K), expected, "{what}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (oid, mut neighbours) = neighbours(&[]);
        for at in 0..REMEMBERED as u64 + 10 {
            let position = FilePosition { path: Path::new("/f").into(), offset: 0, size: 1 };
            neighbours.found(&oid, 2 * at, 1, position);
        }
        assert_eq!(neighbours.count, REMEMBERED);
    }
}
