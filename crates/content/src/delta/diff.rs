//! Finds a signature's blocks in a target.

use super::index::WeakIndex;
use super::ops::{Delta, Maker};
use super::shape::{MAX_TARGET_LEN, ShapeError, check_len};
use super::weak::{Roller, WeakState};
use super::{BlockSum, Signature};

/// Bytes that may be hashed for each byte of target at places where the sums disagree, before
/// the rest of the target is taken as literals. Data not made to use it up need a thousandth of it.
const HASHED_IN_VAIN: usize = 4;

/// Delta that makes `target`: blocks of the signed region and literals.
///
/// From left to right, the first block found at a place is taken; a shorter last block is found at the
/// target's end only. Time is proportional to signature and target, whatever their bytes.
pub fn diff(signature: &Signature, target: &[u8]) -> Result<Delta, ShapeError> {
    check_len("target", target.len(), MAX_TARGET_LEN)?;
    let mut maker = Maker::new(signature.block_len());
    let mut search = MatchSearch::new(signature, target);
    let mut done = 0;
    while let Some((at, block)) = search.next(done, maker.expected()) {
        maker.literal(&target[done..at]);
        maker.copy(block);
        done = at + signature.block_len() as usize;
    }
    finish(signature, &target[done..], &mut maker);
    Ok(maker.finish())
}

/// Makes the target's end of the region's shorter last block, if it is there.
fn finish(signature: &Signature, rest: &[u8], maker: &mut Maker) {
    let shape = signature.shape();
    let tail = shape.tail() as usize;
    let split = rest.len().checked_sub(tail).map(|at| rest.split_at(at));
    match (split, signature.sums().last()) {
        (Some((literal, end)), Some(sum)) if tail > 0 && is_block(signature, end, sum) => {
            maker.literal(literal);
            maker.copy(shape.full_blocks());
        }
        _ => maker.literal(rest),
    }
}

fn is_block(signature: &Signature, bytes: &[u8], sum: &BlockSum) -> bool {
    WeakState::of(bytes).weak() == sum.weak && signature.strong(bytes) == sum.strong
}

/// Moves a window over the target.
struct MatchSearch<'a> {
    target: &'a [u8],
    index: WeakIndex<'a>,
    roller: Roller,
    /// Bytes of the window.
    block: usize,
    /// Bytes that may still be hashed in vain.
    budget: usize,
}

impl<'a> MatchSearch<'a> {
    fn new(signature: &'a Signature, target: &'a [u8]) -> Self {
        let block = signature.block_len();
        Self {
            target,
            index: WeakIndex::new(signature),
            roller: Roller::new(block),
            block: block as usize,
            budget: target.len() * HASHED_IN_VAIN,
        }
    }

    /// The first place from `from` on where a block is, and the block.
    fn next(&mut self, from: usize, wanted: u32) -> Option<(usize, u32)> {
        let mut at = from;
        let mut state = WeakState::of(self.target.get(at..at + self.block)?);
        while !self.index.is_empty() && self.budget > 0 {
            (at, state) = self.next_candidate(at, state)?;
            let window = &self.target[at..at + self.block];
            if let Some(block) = self.index.find(state, window, wanted, &mut self.budget) {
                return Some((at, block));
            }
            state = self.roller.roll(state, self.target[at], *self.target.get(at + self.block)?);
            at += 1;
        }
        None
    }

    /// The first place from `at` on that passes the filter, with its sum. `state` is the sum at `at`.
    fn next_candidate(&self, at: usize, mut state: WeakState) -> Option<(usize, WeakState)> {
        let leaving = &self.target[at..];
        let entering = &self.target[at + self.block..];
        for (passed, (old, new)) in leaving.iter().zip(entering).enumerate() {
            if self.index.may_have(state.weak()) {
                return Some((at + passed, state));
            }
            state = self.roller.roll(state, *old, *new);
        }
        // The last window, which no byte follows.
        self.index.may_have(state.weak()).then_some((self.target.len() - self.block, state))
    }
}
