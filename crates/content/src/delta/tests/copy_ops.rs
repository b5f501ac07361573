//! Regions that an outline leaves are signed finer, and both together make the target.

use super::*;
use crate::delta::{Unmatched, refined_block_len};

/// 1 MiB, and the same with a few bytes changed every so often.
fn edited(spacing: usize) -> (Vec<u8>, Vec<u8>) {
    let base = noise(b"outline", 1 << 20);
    let mut target = base.clone();
    (spacing / 2..target.len()).step_by(spacing).for_each(|at| target[at] ^= 1);
    (base, target)
}

#[test]
fn scattered_changes_come_as_little_more_than_themselves() {
    let (base, target) = edited(16 << 10);
    let whole = checked(&base, &target, 2048);
    let (outline, literals) = whole.clone().split();
    let read = CopyOps::from_bytes(&outline.to_bytes()).unwrap();
    assert_eq!(read, outline);
    assert_eq!((read.literals(), read.runs(), read.block_len()), (64 * 2048, 64, 2048));
    let rest = Unmatched::whole(base.len()).without(&read).unwrap().bytes(&base);
    assert_eq!(read.literals_of(&target, base.len()).unwrap(), literals);
    assert_eq!(rest.len(), 64 * 2048);
    let finer = checked(&rest, &literals, refined_block_len(rest.len(), 64, 2048, 1 << 16));
    assert!(finer.literals().len() <= 64 * 128, "{}", finer.literals().len());
    let made = finer.apply(&rest, read.literals()).unwrap();
    assert!(read.with(made).unwrap().apply(&base, target.len()).unwrap() == target);
}

#[test]
fn an_outline_that_lies_makes_nothing() {
    let (base, target) = edited(64 << 10);
    let (outline, mut literals) = checked(&base, &target, 1024).split();
    assert!(Unmatched::whole(base.len() / 2).without(&outline).is_err(), "blocks that are not there");
    assert!(outline.literals_of(&target, base.len() / 2).is_err(), "blocks that were not signed");
    assert!(
        outline.literals_of(&target[1..], base.len()).is_err()
            && outline.literals_of(&[], base.len()).is_err()
    );
    literals.pop();
    assert!(outline.clone().with(literals).is_err());
    let mut bytes = outline.to_bytes();
    bytes.push(0);
    assert!(CopyOps::from_bytes(&bytes).is_err());
    assert!(CopyOps::from_bytes(&bytes[..bytes.len() - 2]).is_err());
    assert!(Delta::from_bytes(&outline.to_bytes()).is_err(), "its literals are missing");
}

#[test]
fn finer_blocks_suit_what_is_left() {
    for (rest, runs, longest, most, block) in [
        (0, 0, 2048, 1 << 16, 64),
        (600_000, 300, 2048, 1 << 16, 128),
        (200_000, 18, 2048, 1 << 16, 256),
        (10_000_000, 10, 2048, 1 << 16, 2048),
        (1 << 24, 1 << 16, 2048, 1 << 14, 1024),
        (1 << 24, 1, 64, 1, 1 << 24),
    ] {
        assert_eq!(refined_block_len(rest, runs, longest, most), block, "{rest} {runs}");
    }
}

#[test]
fn what_two_outlines_leave_is_told_by_the_regions_bytes() {
    let base = noise(b"rest", 10_000);
    // Two blocks of 1024 from number 2 on, and the shorter last one.
    let target = [&base[2048..4096], b"new", &base[9216..]].concat();
    let (outline, _) = checked(&base, &target, 1024).split();
    let rest = Unmatched::whole(base.len()).without(&outline).unwrap();
    assert_eq!(rest.bytes(&base), [&base[..2048], &base[4096..9216]].concat());
    // One of 512 that lies across the gap, and one behind it.
    let inner = rest.bytes(&base);
    let (outline, _) = checked(&inner, &inner[1536..2560], 512).split();
    let rest = rest.without(&outline).unwrap();
    assert_eq!(rest.bytes(&base), [&base[..1536], &base[4608..9216]].concat());
    let edges = rest.edges(100);
    let expected = [&base[..100], &base[1436..1536], &base[4608..4708], &base[9116..9216]].concat();
    assert_eq!((edges.bytes(&base), edges.len()), (expected, 400));
    assert_eq!(rest.edges(1 << 20), rest);
    assert!(!rest.is_empty() && Unmatched::whole(0).is_empty() && Unmatched::whole(0).edges(5).is_empty());
}
