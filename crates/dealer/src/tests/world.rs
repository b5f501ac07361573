//! A world: sources that come, go, stall, lie, share links and hold parts. `docs/design/sources.md` describes how they are
//! drawn.

use std::ops::Range;

/// Equal stretches of the object that partial sources have or gain.
pub const STRETCHES: usize = 48;
/// Share of the sum from which on a source that has a part only stays from begin to end, and none begins to lie in between.
const LARGE: f64 = 1.0 / 6.0;
const MIB: f64 = (1 << 20) as f64;

/// What worlds are drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foresight {
    /// What happens to one source does not decide on all.
    NotNeeded,
    /// It may: who knew it beforehand would deal otherwise.
    Needed,
}

/// What a source answers to what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Honesty {
    /// The right bytes.
    Honest,
    /// Wrong bytes, from this time on.
    Wrong(f64),
    /// That it does not have it, though it says so.
    Denies,
}

/// A source of a world.
#[derive(Debug, Clone)]
pub struct WorldSource {
    /// Bytes a second that it has for itself.
    pub rate: f64,
    pub round_trip: f64,
    /// Link that it shares.
    pub link: Option<usize>,
    /// Time from which on it has each stretch; none if it has everything.
    pub gains: Option<Vec<f64>>,
    /// Times in which it is there.
    pub present: Vec<Range<f64>>,
    /// Time in which it brings nothing.
    pub stalls: Range<f64>,
    pub honesty: Honesty,
    /// What it sends is judged by itself.
    pub proves: bool,
}

impl WorldSource {
    /// True if it brings something at this time.
    pub fn works(&self, at: f64) -> bool {
        self.is_present(at) && !self.stalls.contains(&at)
    }

    pub fn is_present(&self, at: f64) -> bool {
        self.present.iter().any(|times| times.contains(&at))
    }

    /// Times at which something about it changes.
    pub fn changes(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.present.iter().flat_map(|times| [times.start, times.end]).collect();
        times.extend([self.stalls.start, self.stalls.end]);
        times.extend(self.gains.iter().flatten());
        times.retain(|time| time.is_finite());
        times
    }

    /// True if it is there from the begin on, brings everything, and never lies.
    pub fn could_do_it_alone(&self) -> bool {
        self.gains.is_none() && self.honesty == Honesty::Honest
    }
}

#[derive(Debug, Clone)]
pub struct World {
    pub size: u64,
    /// Bytes a second of each shared link.
    pub links: Vec<f64>,
    pub sources: Vec<WorldSource>,
    /// Bytes of a want.
    pub want: u64,
}

pub fn log_uniform(random: &mut fastrand::Rng, low: f64, high: f64) -> f64 {
    (low.ln() + random.f64() * (high / low).ln()).exp()
}

fn between(random: &mut fastrand::Rng, low: f64, high: f64) -> f64 {
    low + random.f64() * (high - low)
}

impl World {
    /// The world of a seed.
    pub fn of(seed: u64, foresight: Foresight) -> Self {
        let random = &mut fastrand::Rng::with_seed(seed);
        let size = log_uniform(random, 64.0 * MIB, 512.0 * MIB);
        let time = log_uniform(random, 5.0, 300.0);
        let count = log_uniform(random, 1.0, 50.99) as usize;
        // In a fifth of the worlds nobody has everything.
        let has_sender = count < 4 || random.f64() < 0.8;
        let alike = !has_sender && foresight == Foresight::NotNeeded;
        let slowest = if alike { 0.3 } else { [0.3, 0.05, 0.003][random.usize(..3)] };
        let weights: Vec<f64> = (0..count).map(|_| log_uniform(random, slowest, 1.0)).collect();
        let sum: f64 = weights.iter().sum();
        let rates: Vec<f64> = weights.iter().map(|weight| weight / sum * size / time).collect();
        let may_share = has_sender || foresight == Foresight::Needed;
        let links = if may_share && random.bool() { random.usize(1..4) } else { 0 };
        let large = if foresight == Foresight::NotNeeded { LARGE } else { f64::INFINITY };
        let source = |&rate| Self::source(random, rate, (time, rate * time > large * size), links);
        let mut sources: Vec<WorldSource> = rates.iter().map(source).collect();
        if has_sender {
            let sender = &mut sources[0];
            (sender.gains, sender.honesty) = (None, Honesty::Honest);
            sender.present = vec![0.0..f64::INFINITY];
        } else {
            Self::without_sender(random, &mut sources);
        }
        let mut caps = vec![0.0; links];
        for source in &sources {
            if let Some(link) = source.link {
                caps[link] += source.rate;
            }
        }
        let links = caps.into_iter().map(|cap| cap * between(random, 0.3, 1.0)).collect();
        let want = if random.f64() < 0.8 { 256 << 10 } else { 24 << 10 };
        World { size: size as u64, links, sources, want }
    }

    fn source(
        random: &mut fastrand::Rng,
        rate: f64,
        (time, is_large): (f64, bool),
        links: usize,
    ) -> WorldSource {
        let gains = (random.f64() < 0.6).then(|| Self::gains(random, time));
        let may_move = !is_large || gains.is_none();
        let begin = if may_move && random.f64() < 0.2 { between(random, 0.0, 0.6) * time } else { 0.0 };
        let mut present = vec![begin..f64::INFINITY];
        if may_move && random.f64() < 0.15 {
            let end = begin + between(random, 0.2, 1.0) * time;
            present = vec![begin..end];
            if random.bool() {
                present.push(end + between(random, 0.05, 0.3) * time..f64::INFINITY);
            }
        }
        let stalls = if random.f64() < 0.15 {
            let begin = random.f64() * time;
            begin..begin + between(random, 0.02, 0.3) * time
        } else {
            f64::INFINITY..f64::INFINITY
        };
        let honesty = match random.f64() {
            0.0..0.04 => Honesty::Wrong(0.0),
            0.04..0.08 if !is_large => Honesty::Wrong(random.f64() * time),
            0.08..0.1 => Honesty::Denies,
            _ => Honesty::Honest,
        };
        let link = (links > 0 && random.f64() < 0.6).then(|| random.usize(0..links));
        let round_trip = log_uniform(random, 0.2e-3, 0.2);
        let proves = random.f64() < 0.8;
        WorldSource { rate, round_trip, link, gains, present, stalls, honesty, proves }
    }

    /// Times at which a source has each stretch: some from the begin on, the others never, or one after the other in any
    /// order, once to eight times as fast as this transfer will be.
    fn gains(random: &mut fastrand::Rng, time: f64) -> Vec<f64> {
        let share = between(random, 0.05, 0.9);
        let mut gains: Vec<f64> =
            (0..STRETCHES).map(|_| if random.f64() < share { 0.0 } else { f64::INFINITY }).collect();
        if random.bool() {
            let speed = log_uniform(random, 1.0, 8.0);
            let mut missing: Vec<usize> = (0..STRETCHES).filter(|&at| gains[at] > 0.0).collect();
            random.shuffle(&mut missing);
            let each = time / STRETCHES as f64 / speed;
            for (number, at) in missing.into_iter().enumerate() {
                gains[at] = (number + 1) as f64 * each;
            }
        }
        gains
    }

    /// Nobody has everything, but of each stretch two have it who stay and do not lie.
    fn without_sender(random: &mut fastrand::Rng, sources: &mut [WorldSource]) {
        for source in sources.iter_mut() {
            let has = |_| if random.f64() < 0.3 { 0.0 } else { f64::INFINITY };
            source.gains.get_or_insert_with(|| (0..STRETCHES).map(has).collect());
        }
        let count = sources.len();
        for source in &mut sources[..count.div_ceil(2).max(2)] {
            (source.present, source.honesty) = (vec![0.0..f64::INFINITY], Honesty::Honest);
        }
        for stretch in 0..STRETCHES {
            for _ in 0..2 {
                let holder = random.usize(..count.div_ceil(2).max(2));
                if let Some(gains) = &mut sources[holder].gains {
                    gains[stretch] = 0.0;
                }
            }
        }
    }

    /// Bytes a second of one source alone.
    pub fn alone(&self, source: usize) -> f64 {
        let it = &self.sources[source];
        it.link.map_or(it.rate, |link| self.links[link].min(it.rate))
    }

    /// Bytes of a stretch.
    pub fn stretch(&self, number: usize) -> Range<u64> {
        let at = |number: usize| (u128::from(self.size) * number as u128 / STRETCHES as u128) as u64;
        at(number)..at(number + 1)
    }
}
