//! A delta makes the target, and is as small as the changes are.

use proptest::prelude::*;

use super::*;

/// A change of a stretch of bytes; positions are in 2^16ths of the length.
#[derive(Debug, Clone)]
enum Edit {
    Insert { at: u16, bytes: Vec<u8> },
    Remove { at: u16, len: usize },
    Replace { at: u16, bytes: Vec<u8> },
    Move { from: u16, len: usize, to: u16 },
}

impl Edit {
    fn make(&self, data: &mut Vec<u8>) {
        let place = |share: u16, len: usize| (len * usize::from(share)) >> 16;
        let stretch = |data: &Vec<u8>, at: u16, len: usize| {
            let start = place(at, data.len());
            start..data.len().min(start + len)
        };
        match self {
            Self::Insert { at, bytes } => {
                let at = place(*at, data.len());
                drop(data.splice(at..at, bytes.iter().copied()));
            }
            Self::Remove { at, len } => drop(data.drain(stretch(data, *at, *len))),
            Self::Replace { at, bytes } => {
                let range = stretch(data, *at, bytes.len());
                data[range.clone()].copy_from_slice(&bytes[..range.len()]);
            }
            Self::Move { from, len, to } => {
                let moved: Vec<u8> = data.drain(stretch(data, *from, *len)).collect();
                let to = place(*to, data.len());
                drop(data.splice(to..to, moved));
            }
        }
    }
}

fn bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (any::<u64>(), len.clone()).prop_map(|(seed, len)| noise(&seed.to_le_bytes(), len)),
        (any::<u8>(), len.clone()).prop_map(|(byte, len)| vec![byte; len]),
        (1usize..200, len).prop_map(|(period, len)| noise(b"period", period).repeat(len / period)),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (any::<u16>(), bytes(0..700)).prop_map(|(at, bytes)| Edit::Insert { at, bytes }),
        (any::<u16>(), 0usize..3000).prop_map(|(at, len)| Edit::Remove { at, len }),
        (any::<u16>(), bytes(0..700)).prop_map(|(at, bytes)| Edit::Replace { at, bytes }),
        (any::<u16>(), 0usize..3000, any::<u16>()).prop_map(|(from, len, to)| Edit::Move { from, len, to }),
    ]
}

proptest! {
    #[test]
    fn the_target_comes_back(
        base in prop::collection::vec(bytes(0..6000), 0..4),
        edits in prop::collection::vec(edit(), 0..6),
        log in 6u32..=16,
    ) {
        let base = base.concat();
        let mut target = base.clone();
        edits.iter().for_each(|edit| edit.make(&mut target));
        checked(&base, &target, 1 << log);
    }

    #[test]
    fn unrelated_data_are_literals(base in bytes(0..5000), seed: u64, log in 6u32..=16) {
        let target = noise(&seed.to_le_bytes(), 5000);
        let delta = checked(&base, &target, 1 << log);
        prop_assert_eq!(delta.literals(), &target[..]);
    }

    #[test]
    fn a_signature_has_the_length_foretold(
        len in 0usize..70_000, target in 0usize..1 << 24, log in 6u32..=16,
    ) {
        let written = Signature::of(&noise(b"", len), 1 << log, target).unwrap().to_bytes().len();
        let foretold = signature_len(len, 1 << log, target);
        prop_assert!((written..=written + 3).contains(&foretold));
    }

    /// Each edit costs its own bytes and no more than two blocks beside them.
    #[test]
    fn literals_are_the_changes_and_blocks_around_them(
        edits in prop::collection::vec((any::<u16>(), 1usize..2000), 1..6),
        log in 6u32..=9,
    ) {
        let base = noise(b"base", 40_000);
        let mut target = base.clone();
        for (at, len) in &edits {
            Edit::Insert { at: *at, bytes: noise(&len.to_le_bytes(), *len) }.make(&mut target);
        }
        let added: usize = edits.iter().map(|(_, len)| len).sum();
        let delta = checked(&base, &target, 1 << log);
        prop_assert!(delta.literals().len() <= added + edits.len() * (1 << log));
        prop_assert!(delta.ops().len() <= edits.len() + 2);
    }
}

#[test]
fn equal_data_are_one_copy() {
    for len in [1, 63, 64, 65, 512, 1000, 100_000] {
        let data = noise(b"same", len);
        let delta = checked(&data, &data, 64);
        let count = len.div_ceil(64) as u32;
        assert_eq!(delta.ops(), [Op { literal: 0, first: 0, count }]);
        assert!(delta.to_bytes().len() <= 8 && delta.literals().is_empty());
    }
}

#[test]
fn nothing_is_made_of_something_and_something_of_nothing() {
    assert_eq!(checked(b"some base", b"", 64).ops(), []);
    assert_eq!(checked(b"", b"", 64).to_bytes(), [1, 6, 0]);
    assert_eq!(checked(b"", b"target", 64).ops(), [Op { literal: 6, first: 0, count: 0 }]);
}

#[test]
fn a_shorter_last_block_is_found_at_the_end() {
    let base = noise(b"base", 1000);
    let target = [b"new", &base[..], b"longer", &base[500..]].concat();
    let delta = checked(&base, &target, 64);
    assert_eq!(delta.ops().first(), Some(&Op { literal: 3, first: 0, count: 15 }));
    assert_eq!(delta.ops().last(), Some(&Op { literal: 40 + 6 + 12, first: 8, count: 8 }));
}

#[test]
fn blocks_of_which_there_are_many_are_copied_in_long_runs() {
    let zeros = vec![0; 100_000];
    let other = noise(b"other", 640);
    // Zeros in the base's middle, then more of them in the target than in the base.
    let base = [&other, &zeros[..64_000], &other[..320]].concat();
    let target = [&zeros[..], &base[..]].concat();
    let delta = checked(&base, &target, 64);
    assert!(delta.literals().len() <= 64 && delta.ops().len() <= 5, "{:?}", delta.ops());
}

#[test]
fn moved_blocks_are_found_in_any_order() {
    let base = noise(b"base", 64 * 10);
    let order = [7, 8, 9, 0, 1, 5, 5, 2];
    let target: Vec<u8> = order.iter().flat_map(|block| &base[block * 64..][..64]).copied().collect();
    let copies: Vec<_> = checked(&base, &target, 64).ops().iter().map(|op| (op.first, op.count)).collect();
    assert_eq!(copies, [(7, 3), (0, 2), (5, 1), (5, 1), (2, 1)]);
}
