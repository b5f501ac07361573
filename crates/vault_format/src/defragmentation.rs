//! Fewest bytes now, or less to store and to read later: which stretches of a file had better be written anew.
//!
//! What is deleted of a block stays in it (§4.3 of the paper), and patches lengthen what has to be read. To write the rest of
//! a block anew costs its bytes once on the way up; it saves what is dead in it each time that somebody reads, on the way down.

use std::collections::HashMap;

use crate::names::BlockId;
use crate::tuple::Tuple;

/// What bytes cost, as it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCosts {
    /// Bytes a second to the server. 0: not known, nothing is written anew.
    pub up: u64,
    /// Bytes a second from the server. 0: not known, nothing is written anew.
    pub down: u64,
    /// How often the file is read as a whole before it is written anew in any case.
    pub reads: u32,
}

/// A stretch that is to be written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewrittenStretch {
    /// Where it begins.
    pub at: u64,
    /// Its bytes.
    pub length: u64,
}

/// What is to be written anew, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DefragmentationPlan {
    /// In order and apart from each other.
    pub rewrites: Vec<RewrittenStretch>,
    /// Bytes that have to be sent for it, without padding.
    pub sent: u64,
    /// Bytes of ciphertext that nobody has to read or store then.
    pub saved: u64,
    /// Of those, bytes of blocks that stay, since they are not worth it.
    pub left: u64,
}

/// A block with its patches, as a file uses it.
#[derive(Debug, Clone, Copy, Default)]
struct BlockUse {
    stored: u64,
    live: u64,
}

impl BlockUse {
    fn wasted(self) -> u64 {
        self.stored.saturating_sub(self.live)
    }

    /// True if what is saved in all reads takes longer than sending the rest.
    fn is_worth_it(self, costs: &LinkCosts) -> bool {
        let saved = u128::from(self.wasted()) * u128::from(costs.reads) * u128::from(costs.up);
        saved > u128::from(self.live) * u128::from(costs.down)
    }
}

/// Chooses for the runs of a file, in order, each with where it begins. A block that is written anew is so in all its runs, else
/// nothing of it could go.
pub fn plan(runs: &[(u64, Tuple)], costs: &LinkCosts) -> DefragmentationPlan {
    let mut uses: HashMap<Vec<BlockId>, BlockUse> = HashMap::new();
    for (_, run) in runs {
        let used = uses.entry(ids(run)).or_default();
        used.stored = run.chain.iter().map(|block| u64::from(block.stored)).sum();
        used.live = used.live.saturating_add(run.length);
    }
    let is_known = costs.up > 0 && costs.down > 0;
    let is_chosen = |used: &BlockUse| is_known && used.wasted() > 0 && used.is_worth_it(costs);
    let mut plan = DefragmentationPlan::default();
    for used in uses.values() {
        match is_chosen(used) {
            true => {
                plan.sent += used.live;
                plan.saved += used.wasted();
            }
            false => plan.left += used.wasted(),
        }
    }
    let chosen = runs.iter().filter(|(_, run)| uses.get(&ids(run)).is_some_and(is_chosen));
    chosen.for_each(|(at, run)| add(&mut plan.rewrites, *at, run.length));
    plan
}

fn ids(run: &Tuple) -> Vec<BlockId> {
    run.chain.iter().map(|block| block.id).collect()
}

fn add(rewrites: &mut Vec<RewrittenStretch>, at: u64, length: u64) {
    match rewrites.last_mut() {
        Some(last) if last.at + last.length == at => last.length += length,
        _ => rewrites.push(RewrittenStretch { at, length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Digest;
    use crate::tuple::BlockRef;

    const SYMMETRIC: LinkCosts = LinkCosts { up: 1_000_000, down: 1_000_000, reads: 1 };

    fn block(number: u8) -> BlockRef {
        BlockRef { id: BlockId([number; 16]), hash: Digest([number; 32]), stored: 10_000, epoch: 0 }
    }

    fn run(number: u8, offset: u32, length: u64) -> Tuple {
        Tuple { length, offset, plain: 10_000, chain: vec![block(number)] }
    }

    fn placed(runs: Vec<Tuple>) -> Vec<(u64, Tuple)> {
        let mut at = 0;
        let place = |run: Tuple| {
            at += run.length;
            (at - run.length, run)
        };
        runs.into_iter().map(place).collect()
    }

    #[test]
    fn blocks_that_are_mostly_dead_are_written_anew_and_others_stay() {
        let runs = placed(vec![run(1, 0, 10_000), run(2, 0, 1000), run(3, 500, 2000), run(4, 0, 9000)]);
        let chosen = plan(&runs, &SYMMETRIC);
        assert_eq!(
            chosen.rewrites,
            [RewrittenStretch { at: 10_000, length: 3000 }],
            "neighbours are one stretch"
        );
        assert_eq!((chosen.sent, chosen.saved, chosen.left), (3000, 17_000, 1000));
    }

    #[test]
    fn a_slow_way_up_and_few_reads_leave_more_as_it_is() {
        let runs = placed(vec![run(1, 0, 10_000), run(2, 0, 1000), run(3, 500, 4000)]);
        let sent = |costs| plan(&runs, &costs).sent;
        assert_eq!(sent(SYMMETRIC), 5000);
        assert_eq!(sent(LinkCosts { up: 300_000, ..SYMMETRIC }), 1000);
        assert_eq!(sent(LinkCosts { up: 100_000, ..SYMMETRIC }), 0);
        assert_eq!(sent(LinkCosts { up: 100_000, reads: 20, ..SYMMETRIC }), 5000);
        for unknown in [LinkCosts { up: 0, ..SYMMETRIC }, LinkCosts { down: 0, ..SYMMETRIC }] {
            assert_eq!(sent(unknown), 0);
        }
    }

    #[test]
    fn a_block_counts_with_all_its_runs_and_its_patches() {
        // Two halves of one block, with another between them: nothing is dead.
        let runs = placed(vec![run(1, 0, 5000), run(2, 0, 10_000), run(1, 5000, 5000)]);
        assert_eq!(plan(&runs, &SYMMETRIC), DefragmentationPlan::default());
        // Patches on it are read each time.
        let patched = Tuple { chain: (1..=8).map(block).collect(), ..run(1, 0, 10_000) };
        let chosen = plan(&placed(vec![patched]), &SYMMETRIC);
        assert_eq!((chosen.sent, chosen.saved), (10_000, 70_000));
        assert_eq!(plan(&[], &SYMMETRIC), DefragmentationPlan::default());
    }
}
