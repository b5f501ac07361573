//! A delta in steps, where changes are scattered over a file and the network is slow.
//!
//! ```text
//!   sender                                        receiver
//!   ── outline: what is copied ──────────────────►
//!   ◄───────── signature of what is not, finer ───
//!   ── the literals, as an outline of that ──────►   where that pays once more
//!   ◄──────── signature of its edges, still finer
//!   ── the literals, as a delta of that ─────────►
//! ```
//!
//! Most of a literal of a few bytes is the block around a change, which the receiver has. Each step costs a round
//! trip and a signature. The second one signs all that is not copied: a short stretch between two changes may have no whole
//! block. A third one only has to find how far a copy goes beyond its last block. Pure.

use crate::delta::{CopyOps, Delta, Signature, Unmatched, refined_block_len};

use super::{MAX_OUTLINES, MAX_SIGNED_BLOCKS, parts};

/// Bytes that a block takes in a signature, about.
const SUM: f64 = 8.0;
/// Bytes that must be saved to be worth the round trip.
const LEAST_SAVED: f64 = (16 << 10) as f64;
/// Saved bytes are an estimate: where all of a file has changed, nothing is.
const SAVED_PER_COST: f64 = 3.0;
/// Shorter blocks leave too little for a step more.
const LEAST_FOLLOWED: u32 = 1 << 10;
/// Signatures of edges go while literals of other parts come, if there are many: so they count for a fourth.
const EDGES_PER_BYTE: usize = 4;

/// A delta that comes in two steps.
pub struct Split {
    /// The copies, which come first.
    pub outline: CopyOps,
    /// Number of further ones that may follow.
    pub further: usize,
}

/// A delta of what `before` outlines left as an outline, if its literals should come otherwise; as it is, it takes
/// `packed` bytes. `most`: so many outlines of a part the receiver takes.
pub fn split(made: &[u8], packed: usize, before: usize, most: usize) -> Option<Split> {
    let further = most.min(MAX_OUTLINES).checked_sub(before + 1)?;
    let (outline, _) = Delta::from_bytes(made).ok()?.split();
    let worth = packed as f64 / made.len().max(1) as f64;
    pays(&outline, worth, before, further).then_some(Split { outline, further })
}

/// True if the literals should come as a delta of their own, if bytes of them are `worth` so much.
fn pays(outline: &CopyOps, worth: f64, before: usize, further: usize) -> bool {
    let (literals, runs, longest) = (outline.literals(), outline.runs(), outline.block_len());
    let wasted = |bytes: f64| (runs as f64 * bytes).min(literals as f64) * worth;
    // The receiver's bytes in their place are about as many, and edges lie on two sides.
    let (rest, dearer) = match before {
        0 => (literals, 1),
        _ => (2 * runs * longest as usize, EDGES_PER_BYTE),
    };
    let block = block_len(rest, runs, longest, before, further);
    let is_followed = further > 0 && block >= LEAST_FOLLOWED;
    let left = f64::from(block);
    // With one step more, signature and waste of that: as much again, each.
    let left = if is_followed { SUM * left.sqrt() } else { left };
    let saved = wasted(longest.into());
    let cost = rest as f64 / f64::from(block) * SUM / dearer as f64 + wasted(left);
    saved >= LEAST_SAVED && saved >= SAVED_PER_COST * cost
}

/// The length of blocks in which to sign `rest` bytes that resemble so many runs of literals, behind `before` outlines
/// besides the one of blocks of `longest`.
///
/// In blocks of `b` bytes `n` bytes cost 8 n/b. If another step follows, each run costs 8 sqrt(b) there, and the sum is least
/// at b = (2 n/runs)^(2/3).
fn block_len(rest: usize, runs: usize, longest: u32, before: usize, further: usize) -> u32 {
    if before > 0 {
        return refined_block_len(rest / EDGES_PER_BYTE, runs, longest, MAX_SIGNED_BLOCKS / EDGES_PER_BYTE);
    }
    let spacing = 2.0 * rest as f64 / runs.max(1) as f64;
    let followed = (spacing.powf(2.0 / 3.0) as u32).max(1);
    let followed = (1 << followed.ilog2()).min(longest / 2);
    let is_followed =
        further > 0 && followed >= LEAST_FOLLOWED && runs as f64 * f64::from(followed) >= LEAST_SAVED;
    match is_followed && rest.div_ceil(followed as usize) <= MAX_SIGNED_BLOCKS {
        true => followed,
        false => refined_block_len(rest, runs, longest, MAX_SIGNED_BLOCKS),
    }
}

/// Regions that each of these outlines is of, and at last what they leave: all of a base of `len` bytes, what is not
/// copied of that, and then the edges of what is not.
fn rests(outlines: &[CopyOps], len: usize) -> Option<Vec<Unmatched>> {
    let mut rests = vec![Unmatched::whole(len)];
    for (before, outline) in outlines.iter().enumerate() {
        let rest = rests.last()?.without(outline).ok()?;
        rests.push(if before > 0 { rest.edges(outline.block_len() as usize) } else { rest });
    }
    Some(rests)
}

/// Bytes of the regions that each of these outlines is of; none if they are no outlines of a base of `len` bytes.
pub(super) fn regions(outlines: &[Vec<u8>], len: u64) -> Option<Vec<usize>> {
    let rests = rests(&read(outlines)?, usize::try_from(len).ok()?)?;
    Some(rests.iter().take(outlines.len()).map(Unmatched::len).collect())
}

fn read(outlines: &[Vec<u8>]) -> Option<Vec<CopyOps>> {
    outlines.iter().map(|outline| CopyOps::from_bytes(outline).ok()).collect()
}

/// The signature of what outlines leave of `base`, which `further` ones may follow; none if they are no outlines of it.
pub fn sign(outlines: &[Vec<u8>], base: &[u8], further: usize) -> Option<Vec<u8>> {
    let outlines = read(outlines)?;
    let rest = rests(&outlines, base.len())?.pop()?.bytes(base);
    let outline = outlines.last()?;
    let block = block_len(rest.len(), outline.runs(), outline.block_len(), outlines.len() - 1, further);
    Some(Signature::of(&rest, block, outline.literals()).ok()?.to_bytes())
}

/// The `len` bytes that outlines make of `base` with literals that are `delta`; none if they make others.
pub fn apply(outlines: &[Vec<u8>], delta: &[u8], base: &[u8], len: u64) -> Option<Vec<u8>> {
    let outlines = read(outlines)?;
    let mut rests = rests(&outlines, base.len())?;
    let made = outlines.last().map_or(len, |outline| outline.literals() as u64);
    let mut made = parts::apply(delta, &rests.pop()?.bytes(base), made)?;
    for (number, outline) in outlines.iter().enumerate().rev() {
        let len = match number.checked_sub(1) {
            Some(before) => outlines[before].literals(),
            None => usize::try_from(len).ok()?,
        };
        made = outline.clone().with(made).ok()?.apply(&rests.pop()?.bytes(base), len).ok()?;
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

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
        parts::make(&parts::sign(base, 20 << 20, target.len() as u64, true).unwrap(), target).unwrap()
    }

    /// Bytes that come and bytes that go for what was made of `base` in as many steps as the sender likes, and the steps.
    fn in_steps(base: &[u8], target: &[u8], most: usize) -> (usize, usize, usize) {
        let mut signature = parts::sign(base, 50 << 20, target.len() as u64, true).unwrap();
        let (mut outlines, mut left, mut down, mut up) = (Vec::new(), target.to_vec(), 0, signature.len());
        loop {
            let made = parts::make(&signature, &left).unwrap();
            let Some(step) = split(&made, made.len(), outlines.len(), most) else {
                assert_eq!(apply(&outlines, &made, base, target.len() as u64).unwrap(), target);
                return (down + made.len(), up, outlines.len() + 1);
            };
            left = step.outline.literals_of(&left, parts::region_len(&signature).unwrap()).unwrap();
            outlines.push(step.outline.to_bytes());
            signature = sign(&outlines, base, step.further).unwrap();
            down += outlines.last().unwrap().len();
            up += signature.len();
        }
    }

    #[test]
    fn long_changes_that_lie_close_come_in_three_steps_as_little_more_than_themselves() {
        // Half of it is new, in 240 runs of 16 KiB or so, none at a block's edge.
        let base = noise(1, 8 << 20);
        let mut target = base.clone();
        let mut new = 0;
        for (seed, at) in (2..).zip((5_000..target.len() - (48 << 10)).step_by(34_567)) {
            let len = 10_000 + seed as usize * 997 % 14_000;
            target[at..at + len].copy_from_slice(&noise(seed, len));
            new += len;
        }
        let (down, up, steps) = in_steps(&base, &target, MAX_OUTLINES);
        assert_eq!(steps, 3);
        assert!(down < new + new / 100, "{down} came for {new}");
        assert!(up < new / 20, "{up} went for {new}");
        // A receiver that takes one outline gets one.
        let (more, _, steps) = in_steps(&base, &target, 1);
        assert!(steps == 2 && more > down, "{more} {down}");
        assert_eq!(in_steps(&base, &target, 0).2, 1);
    }

    #[test]
    fn scattered_changes_take_less_than_half_in_two_steps() {
        let (base, target) = edited(64 << 10, 650);
        let whole = delta(&base, &target);
        let outline = split(&whole, whole.len(), 0, 1).unwrap().outline;
        let literals = outline.literals_of(&target, base.len()).unwrap();
        let outlines = [outline.to_bytes()];
        let signature = sign(&outlines, &base, 0).unwrap();
        let finer = parts::make(&signature, &literals).unwrap();
        let both = outlines[0].len() + signature.len() + finer.len();
        assert!(2 * both < whole.len(), "{both} {}", whole.len());
        let len = target.len() as u64;
        assert_eq!(apply(&outlines, &finer, &base, len).unwrap(), target);
        assert_eq!(apply(&outlines, &finer, &base, len - 1), None);
        assert_eq!(apply(&outlines, &finer, &noise(9, base.len() / 2), len), None);
        assert_eq!(apply(&outlines, b"no delta", &base, len), None);
        assert_eq!(sign(&[b"no outline".to_vec()], &base, 0), None);
        assert_eq!(sign(&[outlines[0].clone(), outlines[0].clone()], &base, 0), None, "it is of the base");
    }

    #[test]
    fn where_little_can_be_saved_a_delta_comes_in_one_step() {
        for (what, spacing, len, part) in [
            ("nearly all has changed", 64 << 10, 63 << 10, 1),
            ("literals pack to nearly nothing", 64 << 10, 650, 20),
            ("a few changes", 2 << 20, 650, 1),
            ("a few long changes", 1 << 20, 512 << 10, 1),
        ] {
            let (base, target) = edited(spacing, len);
            let whole = delta(&base, &target);
            assert!(split(&whole, whole.len() / part, 0, MAX_OUTLINES).is_none(), "{what}");
        }
    }
}
