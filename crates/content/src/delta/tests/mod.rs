//! Deltas make their target, stay small, and take whatever bytes a stranger sends.

mod copy_ops;
mod hostile;
mod measure;
mod refine;
mod round_trip;

use super::*;

/// The first `len` bytes that belong to `seed`: no structure, the same in every run.
pub(super) fn noise(seed: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(seed).finalize_xof().fill(&mut out);
    out
}

/// The delta from `base` to `target`, once it was written, read and found to make the target.
fn checked(base: &[u8], target: &[u8], block: u32) -> Delta {
    let signature = Signature::of(base, block, target.len()).unwrap();
    let signature = Signature::from_bytes(&signature.to_bytes()).unwrap();
    let delta = diff(&signature, target).unwrap();
    assert_eq!(Delta::from_bytes(&delta.to_bytes()).as_ref(), Ok(&delta));
    assert!(delta.apply(base, target.len()).unwrap() == target, "another target");
    delta
}
