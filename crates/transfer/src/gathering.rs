//! Bytes of several sources that make one piece, or any other want: put together as they come, and, if the whole is wrong, who may
//! have done that. Pure.
//!
//! Whoever deals a want out in parts ([`PieceParts`]) delivers it once, when all of it is there. The session checks the
//! whole. If that is wrong nobody can say whose part was: each part is *doubted*, and the session wants all of it anew, from one
//! source ([`Want::undivided`](crate::Want::undivided)). The right bytes then show who lied.

use std::ops::Range;

use bytes::Bytes;
use towpath_content::Oid;

use crate::intervals::Intervals;
use crate::source_id::SourceId;
use crate::want::{Payload, PiecePart};

/// The parts of one want that have come. It takes as much memory as the want has bytes, and what the parts are slices of.
#[derive(Debug, Clone)]
pub struct PieceParts {
    wanted: Range<u64>,
    there: Intervals,
    /// Ascending and apart.
    parts: Vec<PiecePart>,
}

impl PieceParts {
    /// Nothing came yet of the bytes `wanted`, counted from the want's begin: all that it has, or its
    /// [`Want::part`](crate::Want::part).
    pub fn new(wanted: Range<u64>) -> Self {
        Self { wanted, there: Intervals::default(), parts: Vec::new() }
    }

    /// Takes what `source` brought from `start` on. What came first counts: of bytes that are there nothing is taken, nor of those that
    /// are not wanted. Returns whether all is there.
    pub fn add(&mut self, start: u64, bytes: &Bytes, source: &SourceId) -> bool {
        let end = start.saturating_add(bytes.len() as u64).min(self.wanted.end);
        let brought = start.max(self.wanted.start)..end;
        if !brought.is_empty() {
            for gap in self.there.gaps(&brought) {
                let bytes = bytes.slice((gap.start - start) as usize..(gap.end - start) as usize);
                let after = self.parts.partition_point(|part| part.start < gap.start);
                self.parts.insert(after, PiecePart { start: gap.start, bytes, source: source.clone() });
            }
            self.there.insert(brought);
        }
        self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.there.covers(&self.wanted)
    }

    /// The bytes that did not come yet.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.there.gaps(&self.wanted)
    }

    /// The whole, to be delivered, and a source of it; `None` as long as something is missing, or if nothing was wanted.
    pub fn into_payload(mut self) -> Option<(Payload, SourceId)> {
        let source = self.parts.first().filter(|_| self.is_whole())?.source.clone();
        let payload = match self.parts.len() {
            1 => Payload::Bytes(self.parts.remove(0).bytes),
            _ => Payload::Gathered(self.parts),
        };
        Some((payload, source))
    }
}

/// A part of what was wrong as a whole: it may have been right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubtedPart {
    range: Range<u64>,
    source: SourceId,
    hash: Oid,
}

/// What is kept of the parts of something wrong: whose they were, and their hashes.
pub(crate) fn doubt(parts: &[PiecePart]) -> Vec<DoubtedPart> {
    let doubted = |part: &PiecePart| DoubtedPart {
        range: part.range(),
        source: part.source.clone(),
        hash: Oid::of(&part.bytes),
    };
    parts.iter().map(doubted).collect()
}

/// The sources, each once, whose parts differ from the right bytes.
pub(crate) fn liars(doubted: &[DoubtedPart], right: &[u8]) -> Vec<SourceId> {
    let is_wrong = |part: &&DoubtedPart| {
        let right = right.get(part.range.start as usize..part.range.end as usize);
        right.is_none_or(|right| Oid::of(right) != part.hash)
    };
    let mut liars: Vec<SourceId> = doubted.iter().filter(is_wrong).map(|part| part.source.clone()).collect();
    liars.sort();
    liars.dedup();
    liars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(who: &str) -> SourceId {
        SourceId::other(who, None)
    }

    /// Ten bytes of which each says where it lies.
    static WHOLE: [u8; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

    /// Adds the true bytes of these ranges. Returns the parts, with their sources.
    fn gathered(wanted: Range<u64>, brought: &[(Range<u64>, &str)]) -> (bool, Vec<(Range<u64>, String)>) {
        let mut parts = PieceParts::new(wanted);
        let mut is_whole = false;
        for (range, who) in brought {
            let bytes = Bytes::copy_from_slice(&WHOLE[range.start as usize..range.end as usize]);
            is_whole = parts.add(range.start, &bytes, &name(who));
        }
        let right = |part: &PiecePart| part.bytes == WHOLE[part.start as usize..part.range().end as usize];
        assert!(parts.parts.iter().all(right), "{parts:?}");
        assert_eq!(parts.missing().is_empty(), is_whole);
        (is_whole, parts.parts.iter().map(|part| (part.range(), part.source.to_string())).collect())
    }

    #[test]
    fn what_came_first_counts_and_what_is_not_wanted_is_left() {
        type Brought<'a> = &'a [(Range<u64>, &'a str)];
        let cases: [(&str, Range<u64>, Brought<'_>, bool, Brought<'_>); 9] = [
            ("nothing", 0..10, &[], false, &[]),
            ("all of one", 0..10, &[(0..10, "a")], true, &[(0..10, "a")]),
            ("two halves", 0..10, &[(5..10, "a"), (0..5, "b")], true, &[(0..5, "b"), (5..10, "a")]),
            ("a hole", 0..10, &[(0..4, "a"), (5..10, "b")], false, &[(0..4, "a"), (5..10, "b")]),
            ("twice", 0..10, &[(0..5, "a"), (0..5, "b")], false, &[(0..5, "a")]),
            (
                "they overlap",
                0..10,
                &[(2..6, "a"), (0..10, "b")],
                true,
                &[(0..2, "b"), (2..6, "a"), (6..10, "b")],
            ),
            ("only a part is wanted", 3..5, &[(0..10, "a")], true, &[(3..5, "a")]),
            ("none of what is wanted", 3..5, &[(5..10, "a"), (0..3, "a")], false, &[]),
            ("nothing at all", 0..10, &[(4..4, "a")], false, &[]),
        ];
        for (what, wanted, brought, is_whole, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|(range, who)| (range.clone(), name(who).to_string())).collect();
            assert_eq!(gathered(wanted, brought), (is_whole, expected), "{what}");
        }
    }

    #[test]
    fn a_part_beyond_all_bounds_is_left() {
        let mut parts = PieceParts::new(0..10);
        assert!(!parts.add(u64::MAX - 1, &Bytes::from_static(&WHOLE), &name("a")));
        assert!(!parts.add(10, &Bytes::from_static(&WHOLE), &name("a")));
        assert!(parts.missing().into_iter().eq(std::iter::once(0..10)), "all of it");
        assert!(parts.into_payload().is_none());
    }

    #[test]
    fn who_lied_shows_by_the_right_bytes() {
        for (what, brought, expected) in [
            ("nobody", [(0, &WHOLE[..5], "a"), (5, &WHOLE[5..], "b")], &[][..]),
            ("one", [(0, &WHOLE[..5], "a"), (5, &WHOLE[..5], "b")], &["b"]),
            ("both", [(0, &WHOLE[5..], "a"), (5, &WHOLE[..5], "b")], &["a", "b"]),
            ("one twice", [(0, &WHOLE[5..], "a"), (5, &WHOLE[..5], "a")], &["a"]),
        ] {
            let part = |(start, bytes, who)| PiecePart {
                start,
                bytes: Bytes::from_static(bytes),
                source: name(who),
            };
            let doubted = doubt(&brought.map(part));
            assert_eq!(
                liars(&doubted, &WHOLE),
                expected.iter().map(|who| name(who)).collect::<Vec<_>>(),
                "{what}"
            );
        }
    }
}
