//! Tables of found and missing chunks, and the regions that correspond to them.

use std::ops::Range;

use super::*;

const KIB: u64 = 1 << 10;

/// A chunk of `kib` KiB found in a file at an offset in KiB.
fn found(kib: u64, file: char, at: u64) -> RefinedChunk<char> {
    RefinedChunk { len: (kib << 10) as u32, found: Some(FoundAt { file, offset: at << 10 }) }
}

fn missing(kib: u64) -> RefinedChunk<char> {
    RefinedChunk { len: (kib << 10) as u32, found: None }
}

/// A gap's chunks, and the file and range in KiB that correspond to it.
type Found = (Range<usize>, Option<(char, Range<u64>)>);

/// Every gap, in files of 100 MiB.
fn gaps(chunks: &[RefinedChunk<char>]) -> Vec<Found> {
    let gaps = refine(chunks, |_| 100 << 20);
    let mut covered = 0..0;
    for gap in &gaps {
        assert_eq!(gap.offset, chunks[..gap.chunks.start].iter().map(|chunk| u64::from(chunk.len)).sum());
        assert_eq!(gap.len, chunks[gap.chunks.clone()].iter().map(|chunk| u64::from(chunk.len)).sum());
        assert!(gap.chunks.start >= covered.end && !gap.chunks.is_empty());
        covered = gap.chunks.clone();
    }
    let kib = |range: Range<u64>| range.start / KIB..range.end / KIB;
    let region = |gap: &Gap<char>| gap.region.clone().map(|region| (region.file, kib(region.range)));
    gaps.iter().map(|gap| (gap.chunks.clone(), region(gap))).collect()
}

#[test]
fn regions_between_anchors() {
    for (what, chunks, expected) in [
        ("replaced", [found(10, 'a', 0), missing(16), found(10, 'a', 26)], Some(('a', 10..26))),
        ("bytes inserted", [found(10, 'a', 0), missing(20), found(10, 'a', 26)], Some(('a', 10..26))),
        ("bytes removed", [found(10, 'a', 0), missing(16), found(10, 'a', 40)], Some(('a', 10..40))),
        ("only inserted", [found(10, 'a', 0), missing(16), found(10, 'a', 10)], None),
        ("much removed", [found(10, 'a', 0), missing(16), found(10, 'a', 9000)], Some(('a', 10..138))),
        (
            "other files, left is longer",
            [found(10, 'a', 0), missing(16), found(9, 'b', 90)],
            Some(('a', 10..42)),
        ),
        (
            "other files, right is longer",
            [found(9, 'a', 0), missing(16), found(10, 'b', 90)],
            Some(('b', 58..90)),
        ),
        ("wrong way round", [found(9, 'a', 500), missing(16), found(10, 'a', 90)], Some(('a', 58..90))),
        ("at its file's start", [found(9, 'a', 500), missing(16), found(10, 'a', 20)], Some(('a', 0..20))),
        ("behind its file's end", [found(9, 'a', 200_000), missing(16), found(2, 'b', 20)], None),
    ] {
        assert_eq!(gaps(&chunks), [(1..2, expected)], "{what}");
    }
}

#[test]
fn regions_at_the_ends() {
    let before = |at| gaps(&[missing(8), missing(8), found(10, 'a', at)]);
    assert_eq!(before(16), [(0..2, Some(('a', 0..16)))]);
    assert_eq!(before(0), [(0..2, None)]);
    assert_eq!(before(1000), [(0..2, Some(('a', 872..1000)))], "nearest to the anchor");
    let behind = |at| gaps(&[found(10, 'a', at), missing(8), missing(8)]);
    let end = 100 << 10;
    assert_eq!(behind(end - 30), [(1..3, Some(('a', end - 20..end)))]);
    assert_eq!(behind(end - 10), [(1..3, None)]);
    assert_eq!(behind(0), [(1..3, Some(('a', 10..138)))], "nearest to the anchor");
    assert_eq!(gaps(&[missing(8), missing(8)]), [(0..2, None)]);
    assert_eq!(gaps(&[]), []);
    assert_eq!(gaps(&[found(8, 'a', 0), found(8, 'b', 0)]), []);
}

#[test]
fn a_run_counts_as_a_whole_and_gaps_are_maximal() {
    // The right neighbour is small but goes on; the left one was found by chance.
    let chunks = [
        found(50, 'a', 0),
        found(9, 'x', 3),
        missing(5),
        missing(6),
        found(6, 'a', 70),
        found(6, 'a', 76),
        missing(4),
        found(1, 'a', 86),
    ];
    let expected = [(2..4, Some(('a', 43..70))), (6..7, Some(('a', 82..86)))];
    assert_eq!(gaps(&chunks), expected);
}

#[test]
fn a_long_gap_comes_in_parts() {
    let mut chunks = vec![missing(1 << 10); 12];
    chunks.insert(0, found(10, 'a', 0));
    chunks.push(found(10, 'a', 10 + (12 << 10)));
    // Each part lies where it would if nothing had moved, and a chunk's length more.
    let replaced = [
        (1..5, Some(('a', 10..10 + 4096 + 16))),
        (5..9, Some(('a', 10 + 4096 - 16..10 + 8192 + 16))),
        (9..13, Some(('a', 10 + 8192 - 16..10 + 12_288))),
    ];
    assert_eq!(gaps(&chunks), replaced);
    // 100 KiB were inserted somewhere.
    chunks[13] = found(10, 'a', 10 + (12 << 10) - 100);
    let inserted = [
        (1..5, Some(('a', 10..10 + 4096 + 16))),
        (5..9, Some(('a', 10 + 4096 - 116..10 + 8192 + 16))),
        (9..13, Some(('a', 10 + 8192 - 116..10 + 12_188))),
    ];
    assert_eq!(gaps(&chunks), inserted);
    // A lot was removed somewhere.
    chunks[13] = found(10, 'a', 60_000);
    let removed = [
        (1..5, Some(('a', 10..10 + 16_384))),
        (5..9, Some(('a', 10 + 4096 - 16..10 + 4096 - 16 + 16_384))),
        (9..13, Some(('a', 60_000 - 16_384..60_000))),
    ];
    assert_eq!(gaps(&chunks), removed);
}

#[test]
fn offsets_that_lie_overflow_nothing() {
    let place = |offset| RefinedChunk { len: u32::MAX, found: Some(FoundAt { file: 'a', offset }) };
    let gap = RefinedChunk { len: u32::MAX, found: None };
    for (left, right) in [(u64::MAX, u64::MAX), (u64::MAX, 0), (0, u64::MAX), (u64::MAX - 9, 9)] {
        for size in [0, 1, u64::MAX] {
            let found = refine(&[place(left), gap, place(right), gap], |_| size);
            let regions = found.iter().filter_map(|gap| gap.region.as_ref());
            regions.for_each(|region| assert!(region.range.end <= size && !region.range.is_empty()));
        }
    }
}
