//! Bytes, signatures and bases that lie.

use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::codec::{DecodeError, Writer};

/// Bytes of a delta with blocks of 64 bytes.
fn delta_of(ops: &[u64], literals: &[u8]) -> Vec<u8> {
    let mut section = Writer::new();
    for number in ops {
        section.varint(*number);
    }
    let mut writer = Writer::new();
    writer.u8(1).u8(6).bytes(&section.into_bytes()).raw(literals);
    writer.into_bytes()
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_mean_one_thing(bytes: Vec<u8>, valid: bool, base: Vec<u8>) {
        // With a valid beginning, to get further.
        let bytes = if valid { [&[1, 6], &bytes[..]].concat() } else { bytes };
        if let Ok(signature) = Signature::from_bytes(&bytes) {
            prop_assert_eq!(signature.to_bytes(), &bytes[..]);
            prop_assert!(diff(&signature, &base).is_ok());
        }
        if let Ok(delta) = Delta::from_bytes(&bytes) {
            prop_assert_eq!(delta.to_bytes(), bytes);
            for expected in [0, 1, base.len(), usize::MAX] {
                let _ = delta.apply(&base, expected);
            }
        }
    }

    #[test]
    fn any_ops_stay_inside_base_and_length(
        ops in prop::collection::vec((0u64..20, 0u64..5, 0u64..6), 0..6),
        expected in 0usize..600,
    ) {
        let numbers: Vec<u64> = ops.iter().flat_map(|(a, b, c)| [*a, *b, *c]).collect();
        let literals = vec![7; ops.iter().map(|op| op.0 as usize).sum()];
        if let Ok(delta) = Delta::from_bytes(&delta_of(&numbers, &literals)) {
            match delta.apply(&[5; 300], expected) {
                Ok(target) => prop_assert_eq!(target.len(), expected),
                Err(ApplyError::Length { found, .. }) => prop_assert_ne!(found, expected as u64),
                Err(ApplyError::OutsideBase { first, count, blocks }) => prop_assert!(first + count > blocks),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn a_base_that_is_not_the_signed_one_gives_other_bytes_or_an_error(
        seed: u64, len in 0usize..5000, target_len in 0usize..5000,
    ) {
        let (base, target) = (noise(b"base", 4000), noise(b"base", target_len));
        let delta = diff(&Signature::of(&base, 64, target.len()).unwrap(), &target).unwrap();
        let other = noise(&seed.to_le_bytes(), len);
        if let Ok(found) = delta.apply(&other, target.len()) {
            prop_assert_eq!(found.len(), target.len());
        }
    }
}

#[test]
fn an_error_says_what_is_wrong() {
    let delta = Delta::from_bytes(&delta_of(&[1, 2, 2], b"x")).unwrap();
    assert_eq!(delta.ops(), [Op { literal: 1, first: 1, count: 2 }]);
    assert_eq!(delta.apply(&[0; 192], 129).map(|target| target.len()), Ok(129));
    let outside = ApplyError::OutsideBase { first: 1, count: 2, blocks: 2 };
    assert_eq!(delta.apply(&[0; 128], 129), Err(outside));
    let length = ApplyError::Length { expected: 128, found: 129 };
    assert_eq!(delta.apply(&[0; 192], 128), Err(length));
    let base = ApplyError::Base(ShapeError::TooManyBlocks(65_537));
    assert_eq!(delta.apply(&vec![0; (1 << 22) + 1], 129), Err(base));
}

/// A few bytes that copy a whole region again and again make nothing unless that was asked for.
#[test]
fn a_small_delta_of_a_huge_target_takes_no_memory() {
    let zigzag_back = 2 * 65_536 - 1;
    let ops: Vec<u64> = [0, 65_536, 0].into_iter().chain([0, 65_536, zigzag_back].repeat(100_000)).collect();
    let delta = Delta::from_bytes(&delta_of(&ops, b"")).unwrap();
    let (base, found) = (vec![1; 1 << 22], 100_001 << 22);
    assert_eq!(delta.apply(&base, 1000), Err(ApplyError::Length { expected: 1000, found }));
    let expected = found as usize;
    assert_eq!(delta.apply(&base, expected), Err(ApplyError::Length { expected, found }));
}

#[test]
fn lengths_beyond_the_input_take_no_memory() {
    let truncated = |found: Result<Delta, DecodeError>| matches!(found, Err(DecodeError::Truncated { .. }));
    assert!(truncated(Delta::from_bytes(&delta_of(&[1 << 24, 0], b"few"))));
    let mut writer = Writer::new();
    writer.u8(1).u8(8).u8(8).varint(1 << 24);
    let short = Signature::from_bytes(&writer.into_bytes());
    assert_eq!(short, Err(DecodeError::Truncated { field: "block sums", needed: 65_536 * 12 }));
}

#[test]
fn no_more_ops_than_a_target_can_have() {
    // Block 1 again and again, then the limit passed by one.
    let ops = |count: usize| [vec![0, 1, 2], [0, 1, 1].repeat(count - 1)].concat();
    assert!(Delta::from_bytes(&delta_of(&ops(1 << 18), b"")).is_ok());
    let over = Delta::from_bytes(&delta_of(&ops((1 << 18) + 1), b""));
    assert!(matches!(over, Err(DecodeError::TooLarge { field: "delta ops", .. })));
}

#[test]
fn what_is_too_long_is_refused() {
    let long = vec![0; MAX_TARGET_LEN + 1];
    let signature = Signature::of(b"base", 64, 4).unwrap();
    assert!(matches!(diff(&signature, &long), Err(ShapeError::TooLong { what: "target", .. })));
    assert!(matches!(Signature::of(&long, 1024, 4), Err(ShapeError::TooLong { what: "region", .. })));
}

const LONG: usize = 1 << 22;

/// Does the work, which must take no more than some hundred times what a plain delta of as many bytes
/// takes. If equal blocks were walked one by one, or each place hashed whose weak sum is some
/// block's, it would be many thousand times.
fn bounded<T>(work: impl FnOnce() -> T) -> T {
    let timed = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let (base, target) = (noise(b"base", LONG), noise(b"target", LONG));
    let plain = timed(&mut || drop(checked(&base, &target, 64)));
    let (mut work, mut result) = (Some(work), None);
    let took = timed(&mut || result = work.take().map(|work| work()));
    assert!(took < 300 * plain, "{took:?}, but {plain:?} for noise");
    result.unwrap()
}

#[test]
fn data_that_are_all_equal_take_linear_time() {
    let zeros = vec![0; LONG];
    let delta = bounded(|| checked(&zeros, &zeros, 64));
    assert_eq!(delta.ops().len(), 1);
    // One byte differs in each block: nothing is found.
    let mut ruined = zeros.clone();
    ruined.iter_mut().step_by(63).for_each(|byte| *byte = 1);
    assert_eq!(bounded(|| checked(&zeros, &ruined, 64)).literals().len(), zeros.len());
}

/// A signature with the right weak sum and a wrong strong one for every block.
#[test]
fn sums_that_disagree_are_not_looked_at_for_ever() {
    let zeros = vec![0; LONG];
    let mut bytes = Signature::of(&zeros, 1 << 16, zeros.len()).unwrap().to_bytes();
    bytes[7..].iter_mut().for_each(|byte| *byte ^= u8::from(*byte != 0));
    let lying = Signature::from_bytes(&bytes).unwrap();
    assert_eq!(lying.sums()[0].weak, 0, "still that of zeros");
    let delta = bounded(|| diff(&lying, &zeros).unwrap());
    assert_eq!(delta.literals().len(), zeros.len());
    assert_eq!(delta.apply(&zeros, zeros.len()), Ok(zeros));
}
