//! Fewest bytes now, or less to store and to read later: which stretches of a file had better be written anew.
//!
//! What is deleted of a block stays in it (§4.3 of the paper), and patches lengthen what has to be read. To write the rest of
//! a block anew costs its bytes once, on the way up; it saves what is more than that each time that somebody reads, on the way down. So
//! a line that is slower up than down leaves more as it is, and nobody waits longer than their patience for what only pays later.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::names::BlockId;
use crate::tuple::{BlockRef, Tuple};

/// The most bytes that are written anew at once, however fast the line is: what they take in an update is bounded so.
pub const MOST_REWRITTEN: u64 = 16 << 20;

/// What bytes cost, as it was measured, and what they are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCosts {
    /// Bytes a second to the server. 0: not known, nothing is written anew.
    pub up: u64,
    /// Bytes a second from the server. 0: not known, nothing is written anew.
    pub down: u64,
    /// How often the file is read as a whole before it is written anew in any case.
    pub reads: u32,
    /// So long a new version may take more than it must.
    pub patience: Duration,
}

impl LinkCosts {
    /// Those of a line of so many bytes a second up and down: four reads to come, and a quarter of a second more for a new version.
    pub const fn of(up: u64, down: u64) -> Self {
        Self { up, down, reads: 4, patience: Duration::from_millis(250) }
    }

    /// Bytes that may be sent more than must be.
    fn budget(&self) -> u64 {
        let bytes = u128::from(self.up).saturating_mul(self.patience.as_millis()) / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX).min(MOST_REWRITTEN)
    }

    /// True if to send so many bytes takes less time than so many fewer save in all reads.
    fn are_worth(&self, sent: u64, saved: u64) -> bool {
        let later = u128::from(saved) * u128::from(self.reads) * u128::from(self.up);
        later > u128::from(sent) * u128::from(self.down)
    }
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
    /// Bytes of ciphertext that are sent for it, about.
    pub sent: u64,
    /// Bytes of ciphertext that nobody has to read then, nor the server to keep once older versions are dropped.
    pub saved: u64,
    /// The same of blocks that stay, since they are not worth it.
    pub left: u64,
}

/// A block with its patches, as a file uses it.
#[derive(Debug, Clone, Copy, Default)]
struct BlockUse {
    /// Of the block and its patches.
    stored: u64,
    /// Of the block.
    whole: u64,
    plain: u64,
    live: u64,
}

impl BlockUse {
    fn add(&mut self, run: &Tuple) {
        let stored = |block: &BlockRef| u64::from(block.stored);
        self.stored = run.chain.iter().map(stored).sum();
        self.whole = run.chain.first().map_or(0, stored);
        self.plain = run.plain.into();
        self.live = self.live.saturating_add(run.length);
    }

    /// Ciphertext of a new block with what is used of it, about: packed as well as the old one was.
    fn anew(self) -> u64 {
        let live = u128::from(self.live.min(self.plain));
        let anew = (u128::from(self.whole) * live).div_ceil(u128::from(self.plain.max(1)));
        u64::try_from(anew).unwrap_or(self.whole)
    }

    fn wasted(self) -> u64 {
        self.stored.saturating_sub(self.anew())
    }
}

/// Chooses for the runs of a file, in order, each with where it begins; runs that give all of a block without patches may be left out. A
/// block that is written anew is so in all its runs, else nothing of it could go. What saves most for its bytes comes first.
pub fn plan(runs: &[(u64, Tuple)], costs: &LinkCosts) -> DefragmentationPlan {
    let mut uses: BTreeMap<Vec<BlockId>, BlockUse> = BTreeMap::new();
    runs.iter().for_each(|(_, run)| uses.entry(ids(run)).or_default().add(run));
    let mut plan = DefragmentationPlan::default();
    let chosen = choose(&uses, costs, &mut plan);
    let chosen = runs.iter().filter(|(_, run)| chosen.contains(&ids(run)));
    chosen.for_each(|(at, run)| add(&mut plan.rewrites, *at, run.length));
    plan
}

/// The blocks that are worth it, as far as patience goes.
fn choose(
    uses: &BTreeMap<Vec<BlockId>, BlockUse>,
    costs: &LinkCosts,
    plan: &mut DefragmentationPlan,
) -> HashSet<Vec<BlockId>> {
    let is_known = costs.up > 0 && costs.down > 0;
    let mut wasteful: Vec<_> = uses.iter().filter(|(_, used)| used.wasted() > 0).collect();
    wasteful.sort_by_key(|(_, used)| Reverse(used.wasted().saturating_mul(1 << 20) / used.anew().max(1)));
    let mut chosen = HashSet::new();
    for (ids, used) in wasteful {
        let (sent, saved) = (used.anew(), used.wasted());
        let fits = plan.sent + sent <= costs.budget();
        match is_known && fits && costs.are_worth(sent, saved) {
            true => {
                plan.sent += sent;
                plan.saved += saved;
                chosen.insert(ids.clone());
            }
            false => plan.left += saved,
        }
    }
    chosen
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

    const FAST: LinkCosts = LinkCosts { reads: 1, ..LinkCosts::of(1_000_000, 1_000_000) };

    fn block(number: u8, stored: u32) -> BlockRef {
        BlockRef { id: BlockId([number; 16]), hash: Digest([number; 32]), stored, epoch: 0 }
    }

    fn run(number: u8, offset: u32, length: u64) -> Tuple {
        Tuple { length, offset, plain: 10_000, chain: vec![block(number, 10_000)] }
    }

    /// A whole block of 8,000 bytes, and patches with so many in all.
    fn patched(number: u8, patches: u32) -> Tuple {
        let chain = vec![block(number, 8000), block(number + 100, patches)];
        Tuple { length: 8000, offset: 0, plain: 8000, chain }
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
        let chosen = plan(&runs, &FAST);
        let both = [RewrittenStretch { at: 10_000, length: 3000 }];
        assert_eq!(chosen.rewrites, both, "neighbours are one stretch");
        assert_eq!((chosen.sent, chosen.saved, chosen.left), (3000, 17_000, 1000));
    }

    /// The networks of the paper's Table 1, in bytes a second, and a fast one; and what each does with a file whose chunks have patches of
    /// 500, 1,500, 3,000 and 7,000 bytes.
    #[test]
    fn each_line_has_a_choice_of_its_own() {
        let runs = placed(vec![patched(1, 500), patched(2, 1500), patched(3, 3000), patched(4, 7000)]);
        let table = [
            ("not measured", 0, 0, 0),
            ("cellular modem, 10 kb/s", 1250, 1250, 0),
            ("telephone modem, 56 kb/s", 7000, 7000, 0),
            ("cable modem, 384 kb/s down and 128 up", 16_000, 48_000, 0),
            ("100 Mb/s down, 33 up", 4_166_667, 12_500_000, 1),
            ("the same up, and down as fast", 4_166_667, 4_166_667, 2),
            ("LAN, 1,000 kb/s", 125_000, 125_000, 2),
            ("100 Mb/s", 12_500_000, 12_500_000, 2),
            ("100 Mb/s down, 400 kb/s up", 50_000, 12_500_000, 0),
            ("100 Mb/s down, 1 Gb/s up", 125_000_000, 12_500_000, 4),
        ];
        for (line, up, down, expected) in table {
            let chosen = plan(&runs, &LinkCosts::of(up, down));
            assert_eq!(chosen.sent, 8000 * expected, "{line}");
            assert_eq!(chosen.saved + chosen.left, 12_000, "{line}");
        }
    }

    #[test]
    fn what_saves_most_comes_first_and_patience_ends_it() {
        let runs = placed((1..=50).map(|number| patched(number, 2500 + 50 * u32::from(number))).collect());
        let chosen = plan(&runs, &LinkCosts::of(100_000, 100_000));
        let last_three = RewrittenStretch { at: 47 * 8000, length: 3 * 8000 };
        assert_eq!((chosen.rewrites, chosen.sent), (vec![last_three], 24_000));
        let more = LinkCosts { patience: Duration::from_secs(1), ..LinkCosts::of(100_000, 100_000) };
        assert_eq!(plan(&runs, &more).sent, 12 * 8000);
        let runs = placed((0..250).flat_map(|_| (1..=100).map(|number| patched(number, 7000))).collect());
        assert_eq!(
            plan(&runs, &LinkCosts::of(u64::MAX, 1)).sent,
            800_000,
            "a block that is used again counts once"
        );
        let most = LinkCosts { patience: Duration::MAX, ..LinkCosts::of(u64::MAX, 1) };
        assert_eq!(most.budget(), MOST_REWRITTEN);
    }

    #[test]
    fn a_block_counts_with_all_its_runs_and_as_it_is_packed() {
        // Two halves of one block, with another between them: nothing is dead.
        let runs = placed(vec![run(1, 0, 5000), run(2, 0, 10_000), run(1, 5000, 5000)]);
        assert_eq!(plan(&runs, &FAST), DefragmentationPlan::default());
        // Of a block that was packed to a fifth, a new one is, too.
        let packed = Tuple { chain: vec![block(1, 2000)], ..run(1, 0, 1000) };
        let chosen = plan(&placed(vec![packed]), &FAST);
        assert_eq!((chosen.sent, chosen.saved), (200, 1800));
        assert_eq!(plan(&[], &FAST), DefragmentationPlan::default());
    }
}
