//! A delta in two steps, where small changes are scattered over a file and the network is slow.
//!
//! ```text
//!   sender                                        receiver
//!   ── outline: what is copied ──────────────────►
//!   ◄───────── signature of what is not, finer ───
//!   ── the literals, as a delta of that ─────────►
//! ```
//!
//! Most of a literal is the block around a change, which the receiver has. The second step costs a round trip
//! and the signature. Pure.

use towpath_content::delta::{Delta, Outline, Signature, finer_block_len};

use super::deltas;

/// A finer signature has at most so many blocks: it goes in one message.
const MOST_BLOCKS: usize = 16 << 10;
/// Bytes that a block takes in a signature, about.
const SUM: f64 = 8.0;
/// Bytes that must be saved to be worth the round trip.
const LEAST_SAVED: f64 = (16 << 10) as f64;
/// What is saved is an estimate: where all of a file has changed, nothing is.
const SAVED_PER_COST: f64 = 3.0;

/// The outline and the literals of a delta that should come in two steps; as one it takes `packed` bytes.
pub fn split(made: &[u8], packed: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let (outline, literals) = Delta::from_bytes(made).ok()?.split();
    let worth = packed as f64 / made.len().max(1) as f64;
    pays(&outline, worth).then(|| (outline.to_bytes(), literals))
}

/// Whether the literals should come as a delta of their own, if bytes of them are `worth` so much.
fn pays(outline: &Outline, worth: f64) -> bool {
    let (literals, runs) = (outline.literals(), outline.runs());
    let wasted = |block: u32| (runs * block as usize).min(literals) as f64 * worth;
    // What the receiver has in their place is about as much.
    let block = finer_block_len(literals, runs, outline.block_len(), MOST_BLOCKS);
    let saved = wasted(outline.block_len());
    let cost = literals as f64 / f64::from(block) * SUM + wasted(block);
    saved >= LEAST_SAVED && saved >= SAVED_PER_COST * cost
}

/// The signature of what an outline leaves of `base`; none if that is no outline of it.
pub fn sign(outline: &[u8], base: &[u8]) -> Option<Vec<u8>> {
    let outline = Outline::from_bytes(outline).ok()?;
    let rest = outline.rest(base).ok()?;
    let block = finer_block_len(rest.len(), outline.runs(), outline.block_len(), MOST_BLOCKS);
    Some(Signature::of(&rest, block, outline.literals()).ok()?.to_bytes())
}

/// The `len` bytes that an outline makes of `base` with literals that are `delta`; none if it makes others.
pub fn apply(outline: &[u8], delta: &[u8], base: &[u8], len: u64) -> Option<Vec<u8>> {
    let outline = Outline::from_bytes(outline).ok()?;
    let literals = deltas::apply(delta, &outline.rest(base).ok()?, outline.literals() as u64)?;
    outline.with(literals).ok()?.apply(base, usize::try_from(len).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use towpath_content::Oid;

    use super::*;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let blocks = (0..len.div_ceil(32) as u64).map(|at| Oid::of(&(seed << 32 | at).to_le_bytes()));
        let mut bytes: Vec<u8> = blocks.flat_map(|oid| *oid.digest()).collect();
        bytes.truncate(len);
        bytes
    }

    /// A base, and the same with `len` new bytes in every `spacing`.
    fn edited(spacing: usize, len: usize) -> (Vec<u8>, Vec<u8>) {
        let base = noise(1, 4 << 20);
        let mut target = base.clone();
        for (seed, at) in (2..).zip((spacing / 2..target.len() - len).step_by(spacing)) {
            target[at..at + len].copy_from_slice(&noise(seed, len));
        }
        (base, target)
    }

    fn delta(base: &[u8], target: &[u8]) -> Vec<u8> {
        deltas::make(&deltas::sign(base, 20 << 20, target.len() as u64, true).unwrap(), target).unwrap()
    }

    #[test]
    fn scattered_changes_take_less_than_half_in_two_steps() {
        let (base, target) = edited(64 << 10, 650);
        let whole = delta(&base, &target);
        let (outline, literals) = split(&whole, whole.len()).unwrap();
        let signature = sign(&outline, &base).unwrap();
        let finer = deltas::make(&signature, &literals).unwrap();
        let both = outline.len() + signature.len() + finer.len();
        assert!(2 * both < whole.len(), "{both} {}", whole.len());
        let len = target.len() as u64;
        assert_eq!(apply(&outline, &finer, &base, len).unwrap(), target);
        assert_eq!(apply(&outline, &finer, &base, len - 1), None);
        assert_eq!(apply(&outline, &finer, &noise(9, base.len() / 2), len), None);
        assert_eq!(apply(&outline, b"no delta", &base, len), None);
        assert_eq!(sign(b"no outline", &base), None);
    }

    #[test]
    fn where_little_can_be_saved_a_delta_comes_in_one_step() {
        for (what, spacing, len, part) in [
            ("nearly all has changed", 64 << 10, 63 << 10, 1),
            ("literals pack to nearly nothing", 64 << 10, 650, 20),
            ("a few changes", 2 << 20, 650, 1),
            ("long changes", 256 << 10, 64 << 10, 1),
        ] {
            let (base, target) = edited(spacing, len);
            let whole = delta(&base, &target);
            assert_eq!(split(&whole, whole.len() / part), None, "{what}");
        }
    }
}
