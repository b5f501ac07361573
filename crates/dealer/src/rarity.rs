//! Which bytes how many sources have. The root's space is cut into lots: stretches that the same sources have. What waits
//! to be asked for lies in lots, and lots lie in queues by their rarity, so that neither a source that says what it has
//! nor one that comes or goes costs work for each run.
//!
//! Sources that have everything count together as one holder beside the others, and have one queue together: first what
//! they alone have, in file order, then what one, two, three and more others have, too, by seeded chance. The others have a queue each
//! for lots of up to three of them. Those of more lie in one set by place, in which each looks from a seeded place on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::event::SourceNumber;
use super::runs::RunId;

/// Holders of a lot that are known by name. Of more there is only the number.
const NAMED: usize = 16;
/// Rarities of what others have beside those that have everything: none, one, two, three, more.
pub const RARITIES: usize = 5;
const MORE: usize = RARITIES - 1;
/// Lots at most. What a source says beyond that counts only for lots that it has all of. About 100 bytes each.
pub const LOTS: usize = 1 << 16;
/// Places that are looked at for lots that many sources have, at a time.
const LEAPS: usize = 24;
/// Lots of each rarity that are looked at.
const LOOKED_AT: usize = 3;
/// Lots of those that many have that are taken into account, as they differ in who has them.
const COMMON: usize = 8;
/// Runs of a lot that are brought one behind the other.
const HOP: u32 = 8;

/// Stretch of the root's space that the same sources have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lot {
    end: u64,
    /// Sources that have it, without those that have everything.
    holders: u32,
    /// Up to [`NAMED`] of them, ascending.
    named: Vec<SourceNumber>,
    /// Runs that wait, and their bytes.
    runs: u32,
    bytes: u64,
}

impl Lot {
    /// Its holders, up to sixteen.
    pub fn named(&self) -> &[SourceNumber] {
        &self.named
    }

    /// Share of its bytes that wait.
    pub fn share_waiting(&self, begin: u64) -> f64 {
        self.bytes as f64 / (self.end - begin).max(1) as f64
    }

    /// Number of other holders that the queue is named for.
    pub fn rarity(&self) -> usize {
        if self.named.len() as u32 == self.holders { self.named.len().min(MORE) } else { MORE }
    }

    /// Bytes as they count in sums: of many holders each one's share.
    const fn counted(&self, rarity: usize) -> u64 {
        if rarity == MORE { self.bytes / (self.holders as u64 + 1) } else { self.bytes }
    }
}

/// Lots with what waits in them, and their queues.
#[derive(Debug)]
pub struct Lots {
    seed: u64,
    /// By their first byte.
    lots: BTreeMap<u64, Lot>,
    /// Runs that wait by their first byte, with their bytes.
    waiting: BTreeMap<(u64, RunId), u64>,
    /// Lots with waiting runs by rarity and order: for those that have everything.
    complete: [BTreeSet<(u64, u64)>; RARITIES],
    /// Those that more than three have, or not all are known who have them.
    common: BTreeSet<u64>,
    /// Those of up to three, for each of the three.
    rare: BTreeMap<SourceNumber, [BTreeSet<(u64, u64)>; RARITIES]>,
    /// Bytes of lots that a source is named in, and of all; of lots of many holders a share.
    rare_bytes: BTreeMap<SourceNumber, [u64; RARITIES]>,
    complete_bytes: [u64; RARITIES],
    /// Bytes of all that waits.
    bytes: u64,
}

impl Lots {
    /// One lot, which nobody has.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            lots: BTreeMap::from([(0, Lot { end: u64::MAX, ..Lot::default() })]),
            waiting: BTreeMap::new(),
            complete: Default::default(),
            common: BTreeSet::new(),
            rare: BTreeMap::new(),
            rare_bytes: BTreeMap::new(),
            complete_bytes: [0; RARITIES],
            bytes: 0,
        }
    }

    /// Begin of the lot with this byte.
    pub fn begin(&self, at: u64) -> u64 {
        self.lots.range(..=at).next_back().map_or(0, |(&begin, _)| begin)
    }

    /// The lot that begins here.
    pub fn get(&self, begin: u64) -> Option<&Lot> {
        self.lots.get(&begin)
    }

    /// End of the lot with this byte.
    pub fn end(&self, at: u64) -> u64 {
        self.get(self.begin(at)).map_or(u64::MAX, |lot| lot.end)
    }

    /// Bytes that wait, by the number of other holders: for those that have everything. Of what many have, a share.
    pub const fn complete_bytes(&self) -> [u64; RARITIES] {
        self.complete_bytes
    }

    /// The same of what one source has.
    pub fn bytes_of(&self, source: SourceNumber) -> [u64; RARITIES] {
        self.rare_bytes.get(&source).copied().unwrap_or_default()
    }

    /// Bytes that wait.
    pub const fn waiting(&self) -> u64 {
        self.bytes
    }

    /// True if anything waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A run waits. It lies in the lot of its first byte.
    pub fn wait(&mut self, start: u64, run: RunId, bytes: u64) {
        if self.waiting.insert((start, run), bytes).is_none() {
            self.bytes += bytes;
            self.edit(self.begin(start), |lot| {
                lot.runs += 1;
                lot.bytes += bytes;
            });
        }
    }

    /// A run waits no more.
    pub fn take(&mut self, start: u64, run: RunId) {
        if let Some(bytes) = self.waiting.remove(&(start, run)) {
            self.bytes -= bytes;
            self.edit(self.begin(start), |lot| {
                lot.runs -= 1;
                lot.bytes -= bytes;
            });
        }
    }

    /// The waiting run that begins before `at`, last of those.
    pub fn before(&self, at: u64) -> Option<RunId> {
        self.waiting.range(..(at, 0)).next_back().map(|(&(_, run), _)| run)
    }

    /// Runs that wait in a lot from `from` on, and then those before.
    pub fn runs_from(&self, begin: u64, from: u64) -> impl Iterator<Item = RunId> + '_ {
        let end = self.end(begin);
        let from = from.clamp(begin, end);
        let behind = self.waiting.range((from, 0)..(end, 0));
        behind.chain(self.waiting.range((begin, 0)..(from, 0))).map(|(&(_, run), _)| run)
    }

    /// Some lots of each rarity in which something waits that a source that has everything may take. Which ones of many, `chance`
    /// decides; of what nobody else has the first.
    pub fn for_complete(&self, chance: u64) -> impl Iterator<Item = u64> + '_ {
        self.complete.iter().enumerate().flat_map(move |(rarity, queue)| {
            let from = if rarity == 0 { 0 } else { chance };
            let looked_at = if rarity == MORE { COMMON } else { LOOKED_AT };
            some_from(queue, from, looked_at)
        })
    }

    /// The same for a source that has a part, of lots of up to three holders.
    pub fn for_holder(&self, source: SourceNumber, chance: u64) -> impl Iterator<Item = u64> + '_ {
        let queues = self.rare.get(&source).into_iter().flatten();
        queues.flat_map(move |queue| some_from(queue, chance, LOOKED_AT))
    }

    /// Lots of many holders of which `next` says that a source has them: it is handed a place and answers with the first place from
    /// there on that the source has. Looks at a few places from `from` on, and tells where to look on, and how many there were.
    pub fn common_from(&self, from: u64, next: impl Fn(u64) -> Option<u64>) -> (Vec<u64>, u64, usize) {
        let (mut at, mut found) = (from, Vec::new());
        for leaps in 0..LEAPS {
            let had = next(at).map(|had| self.begin(had));
            let lot = had.and_then(|had| self.common.range(had..).next());
            match (had, lot) {
                (Some(had), Some(&lot)) if had == lot => {
                    found.push(lot);
                    at = self.end(lot);
                }
                (Some(_), Some(&lot)) => at = lot,
                // Once around.
                _ if at > from || from == 0 => return (found, 0, leaps),
                _ => at = 0,
            }
            if found.len() == COMMON {
                break;
            }
        }
        (found, at, LEAPS)
    }

    /// A seeded place in a lot that something else than file order decides on.
    pub fn seeded_place(&self, source: SourceNumber, begin: u64) -> u64 {
        let Some(lot) = self.get(begin) else { return begin };
        let end = self.waiting.range(..(lot.end, 0)).next_back().map_or(begin, |(&(start, _), _)| start);
        let turn = u64::from(lot.runs / HOP) << 32;
        let chance = mix(self.seed ^ begin, turn + u64::from(source) + 1);
        begin + ((u128::from(end.saturating_sub(begin)) * u128::from(chance)) >> 64) as u64
    }

    /// Number that follows from the seed alone.
    pub const fn chance(&self, of: u64) -> u64 {
        mix(self.seed, of)
    }

    /// Makes an edge at `at`, unless there are too many lots. Waiting runs that cross it must have been cut before, if they
    /// can be; else they stay before it. How much work it was.
    pub fn split(&mut self, at: u64) -> usize {
        let begin = self.begin(at);
        if begin == at || at == 0 || at == u64::MAX || self.lots.len() >= LOTS {
            return 1;
        }
        let Some(lot) = self.lots.get(&begin).cloned() else { return 1 };
        let (runs, bytes, steps) = self.count(begin..lot.end, at);
        self.edit(begin, |left| {
            left.end = at;
            left.runs -= runs;
            left.bytes -= bytes;
        });
        self.lots.insert(at, Lot { runs: 0, bytes: 0, ..lot });
        self.edit(at, |right| {
            right.runs = runs;
            right.bytes = bytes;
        });
        steps
    }

    /// Waiting runs and bytes of a lot from `at` on, counted from `at` both ways until one side is at its end.
    fn count(&self, lot: Range<u64>, at: u64) -> (u32, u64, usize) {
        let mut behind = self.waiting.range((at, 0)..(lot.end, 0));
        let mut before = self.waiting.range((lot.start, 0)..(at, 0)).rev();
        let (mut counted, mut other, mut steps) = ((0, 0), (0, 0), 1);
        let all = self.get(lot.start).map_or((0, 0), |lot| (lot.runs, lot.bytes));
        loop {
            steps += 1;
            match behind.next() {
                Some((_, bytes)) => counted = (counted.0 + 1, counted.1 + bytes),
                None => return (counted.0, counted.1, steps),
            }
            match before.next() {
                Some((_, bytes)) => other = (other.0 + 1, other.1 + bytes),
                None => return (all.0 - other.0, all.1 - other.1, steps),
            }
        }
    }

    /// The source has the lot that begins here now, or has it no more. The next lot's begin.
    pub fn hold(&mut self, begin: u64, source: SourceNumber, has: bool) -> u64 {
        self.edit(begin, |lot| {
            let is_named = lot.named.binary_search(&source);
            if has {
                lot.holders += 1;
                if let (Err(at), true) = (is_named, lot.named.len() < NAMED) {
                    lot.named.insert(at, source);
                }
            } else {
                lot.holders = lot.holders.saturating_sub(1);
                if let Ok(at) = is_named {
                    lot.named.remove(at);
                }
            }
        });
        let end = self.end(begin);
        self.join(begin);
        end
    }

    /// Makes one lot of this one and the one before, if the same sources are known to have both.
    pub fn join(&mut self, begin: u64) {
        let Some((&before, left)) = self.lots.range(..begin).next_back() else { return };
        let Some(right) = self.lots.get(&begin) else { return };
        let known = |lot: &Lot| lot.named.len() as u32 == lot.holders;
        if left.named != right.named || !known(left) || !known(right) {
            return;
        }
        let Lot { end, runs, bytes, .. } = right.clone();
        self.edit(begin, |lot| (lot.runs, lot.bytes) = (0, 0));
        self.lots.remove(&begin);
        self.edit(before, |lot| {
            lot.end = end;
            lot.runs += runs;
            lot.bytes += bytes;
        });
    }

    /// A source is gone. What it had is taken from it lot by lot.
    pub fn close(&mut self, source: SourceNumber) {
        self.rare.remove(&source);
        self.rare_bytes.remove(&source);
    }

    /// Changes a lot, and its place in all queues.
    fn edit(&mut self, begin: u64, change: impl FnOnce(&mut Lot)) {
        let Some(mut lot) = self.lots.remove(&begin) else { return };
        self.queue(begin, &lot, false);
        change(&mut lot);
        self.queue(begin, &lot, true);
        self.lots.insert(begin, lot);
    }

    fn queue(&mut self, begin: u64, lot: &Lot, enters: bool) {
        if lot.runs == 0 {
            return;
        }
        let rarity = lot.rarity();
        let order = if rarity == 0 { begin } else { mix(self.seed, begin) };
        place(&mut self.complete[rarity], (order, begin), enters);
        count(&mut self.complete_bytes[rarity], lot.counted(rarity), enters);
        if rarity == MORE {
            place(&mut self.common, begin, enters);
        }
        for source in &lot.named {
            if rarity < MORE {
                let order = mix(self.seed ^ begin, u64::from(*source) + 1);
                place(&mut self.rare.entry(*source).or_default()[rarity], (order, begin), enters);
            }
            count(&mut self.rare_bytes.entry(*source).or_default()[rarity], lot.counted(rarity), enters);
        }
    }
}

/// Some lots of a queue from a place in its order on.
fn some_from(queue: &BTreeSet<(u64, u64)>, from: u64, count: usize) -> impl Iterator<Item = u64> + '_ {
    queue.range((from, 0)..).chain(queue.range(..(from, 0))).take(count).map(|&(_, lot)| lot)
}

fn place<T: Ord>(queue: &mut BTreeSet<T>, entry: T, enters: bool) {
    if enters {
        queue.insert(entry)
    } else {
        queue.remove(&entry)
    };
}

const fn count(sum: &mut u64, bytes: u64, enters: bool) {
    *sum = if enters { *sum + bytes } else { sum.saturating_sub(bytes) };
}

/// Mixes two numbers into one that looks like chance (the finish of SplitMix64).
const fn mix(seed: u64, of: u64) -> u64 {
    let mut mixed = seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
