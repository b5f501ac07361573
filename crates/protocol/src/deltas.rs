//! Runs of bytes as deltas of what the asking side has: made by one side, applied by the other.
//!
//! A basis may lie, and so may a delta. Making one costs memory and time in proportion to what was asked
//! for; what is made of one is compared with the chunks' hashes by whoever asked.

use bytes::Bytes;
use towpath_content::delta::{Delta, Signature, diff};

use super::wire::{self, MAX_DELTA, MAX_DELTA_SPAN};
use crate::packing::{pack, unpack};

/// Deltas are for slow networks: worth some time.
const LEVEL: i32 = 3;
/// A delta that is much longer than its target is no use to anybody.
const MOST_UNPACKED: u64 = 2 * MAX_DELTA_SPAN as u64;

/// `target` as a delta of what was signed so, and whether it is packed. None if the signature is none, or if
/// the delta is not smaller by a tenth.
pub(super) fn make(signature: &[u8], target: &[u8]) -> Option<(Bytes, bool)> {
    let signature = Signature::from_bytes(signature).ok()?;
    let delta = diff(&signature, target).ok()?.to_bytes();
    let packed = pack(&delta, LEVEL);
    let is_packed = packed.is_some();
    let bytes = packed.unwrap_or(delta);
    let is_smaller = bytes.len() <= MAX_DELTA && bytes.len() < target.len() - target.len() / 10;
    is_smaller.then(|| (bytes.into(), is_packed))
}

/// The `len` bytes that a delta makes of `base`; none if it makes others. No more memory is taken than
/// the largest run of bytes and its delta may have.
pub(super) fn apply(message: &wire::Delta, base: &[u8], len: usize) -> Option<Bytes> {
    let unpacked = match message.packed {
        true => Some(unpack(&message.bytes, MOST_UNPACKED)?),
        false => None,
    };
    let delta = Delta::from_bytes(unpacked.as_deref().unwrap_or(&message.bytes)).ok()?;
    delta.apply(base, len).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::delta::block_len;
    use towpath_store::doubles::noise;

    fn signature(base: &[u8], target: usize) -> Vec<u8> {
        let block = block_len(base.len(), target, &Default::default());
        Signature::of(base, block, target).unwrap().to_bytes()
    }

    fn message((bytes, packed): (Bytes, bool)) -> wire::Delta {
        wire::Delta { request: 1, want: 0, bytes, packed }
    }

    #[test]
    fn what_resembles_comes_as_little_and_is_made_again() {
        let base = noise(1, 40_000);
        for middle in [noise(2, 3000), b"text that can be packed ".repeat(125)] {
            let target = [&base[..17_000], &middle, &base[19_000..]].concat();
            let made = make(&signature(&base, target.len()), &target).unwrap();
            assert!(made.0.len() < middle.len() + 1500, "{}", made.0.len());
            assert_eq!(apply(&message(made), &base, target.len()).unwrap(), target);
        }
    }

    #[test]
    fn what_does_not_resemble_goes_as_it_is() {
        let (base, target) = (noise(1, 40_000), noise(2, 40_000));
        assert_eq!(make(&signature(&base, target.len()), &target), None);
        assert_eq!(make(b"no signature", &target), None);
        assert_eq!(make(&[], &target), None);
    }

    #[test]
    fn deltas_that_lie_make_nothing() {
        let base = noise(1, 40_000);
        let target = [&base[..20_000], b"new", &base[20_000..]].concat();
        let good = message(make(&signature(&base, target.len()), &target).unwrap());
        assert_eq!(apply(&good, &base, target.len() + 1), None);
        assert_eq!(apply(&good, &base[..10_000], target.len()), None);
        for cut in 0..good.bytes.len() {
            let bytes = good.bytes.slice(..cut);
            assert_eq!(apply(&wire::Delta { bytes, ..good.clone() }, &base, target.len()), None, "{cut}");
        }
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
        assert_eq!(apply(&message((bomb.into(), true)), &base, target.len()), None);
    }
}
