//! What follows a wrong guess, and how often an address may try: counting that is handed the time.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::code::{MAX_WORDS, USUAL_WORDS};

/// New codes that a host makes by itself.
pub const RENEWALS: u32 = 3;
/// Words of the code that follows them, at least.
pub const STANDING_WORDS: usize = 3;
/// Wrong guesses that this one stands. All together are as likely to be right as one guess at two words.
pub const STANDING_GUESSES: u32 = 1024;

/// What a host does after a wrong guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Show a new code: a new [`crate::Code::random`] and a new [`crate::CodeHost`] for it.
    NewCode {
        /// How many words it has.
        words: usize,
        /// True if people compare fingerprints from now on.
        is_verified: bool,
    },
    /// Show nothing: the code stays as it is. From now on each guest that comes has a new [`crate::CodeHost`] of its
    /// own for it, so that a guesser spoils nobody else's; when one has sold the ticket, the others are dropped.
    SameCode,
    /// End, and say that somebody guesses.
    End,
}

/// The wrong guesses at one host's codes.
///
/// A code is void after one wrong guess, and is followed by a new one, three times. Whoever still guesses then
/// counts mailboxes on purpose, and would spoil every code of that kind before the guest has typed it. So the next one
/// is longer, is compared by its fingerprint, and stands many guesses; with these used up, the host ends. A guesser is
/// right once in 2^17 at best, all codes taken together.
#[derive(Debug, Clone)]
pub struct Renewals {
    words: usize,
    is_verified: bool,
    wrong: u32,
}

impl Renewals {
    /// For a host whose codes have so many words, and compare fingerprints or do not.
    pub const fn new(words: usize, is_verified: bool) -> Self {
        Self { words, is_verified, wrong: 0 }
    }

    /// A guess was wrong ([`crate::exchange::HostStep::Void`]).
    pub fn void(&mut self) -> Renewal {
        self.wrong = self.wrong.saturating_add(1);
        let words = self.words.clamp(USUAL_WORDS, MAX_WORDS);
        match self.wrong {
            ..=RENEWALS => Renewal::NewCode { words, is_verified: self.is_verified },
            FIRST_STANDING => Renewal::NewCode { words: words.max(STANDING_WORDS), is_verified: true },
            wrong if wrong - FIRST_STANDING < STANDING_GUESSES => Renewal::SameCode,
            _ => Renewal::End,
        }
    }
}

const FIRST_STANDING: u32 = RENEWALS + 1;

/// Limits of a [`TryLimiter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryLimits {
    /// Tries of one source in one window.
    pub tries: u32,
    /// How long tries count.
    pub window: Duration,
    /// Sources that are counted apart, each about 100 bytes of memory. All others count as one.
    pub sources: usize,
}

impl Default for TryLimits {
    /// Ten a minute, and at most 1 MiB for 8,192 sources.
    fn default() -> Self {
        Self { tries: 10, window: Duration::from_secs(60), sources: 8192 }
    }
}

/// Counts tries by their source: an IPv4 address, or the /64 of an IPv6 address, which one subscriber has whole.
#[derive(Debug)]
pub struct TryLimiter {
    limits: TryLimits,
    counts: HashMap<TrySource, TryWindow>,
    /// The sources in the order in which their windows end.
    ends: VecDeque<(Instant, TrySource)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TrySource {
    V4(u32),
    V6(u64),
    /// All for which there is no room.
    Others,
}

impl TrySource {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[derive(Debug)]
struct TryWindow {
    tries: u32,
    end: Instant,
}

impl TryLimiter {
    /// With nothing counted yet.
    pub fn new(limits: TryLimits) -> Self {
        Self { limits, counts: HashMap::new(), ends: VecDeque::new() }
    }

    /// Counts a try; or says how long the source has to wait for one. What is refused does not count.
    pub fn admit(&mut self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        self.forget(now);
        let source = TrySource::of(from);
        let has_room = self.counts.contains_key(&source) || self.counts.len() < self.limits.sources;
        let source = if has_room { source } else { TrySource::Others };
        let window = self.counts.entry(source).or_insert_with(|| {
            let end = now + self.limits.window;
            self.ends.push_back((end, source));
            TryWindow { tries: 0, end }
        });
        if window.tries >= self.limits.tries {
            return Err(window.end.saturating_duration_since(now));
        }
        window.tries += 1;
        Ok(())
    }

    /// Windows are all of one length, so they end in the order in which they began.
    fn forget(&mut self, now: Instant) {
        while let Some((_, source)) = self.ends.pop_front_if(|(end, _)| *end <= now) {
            self.counts.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_void_code_is_renewed_three_times_and_then_one_stands() {
        let usual = |words| Renewal::NewCode { words, is_verified: false };
        let standing = |words| Renewal::NewCode { words, is_verified: true };
        for (words, is_verified, first, then) in [
            (2, false, usual(2), standing(3)),
            (2, true, standing(2), standing(3)),
            (5, false, usual(5), standing(5)),
            (99, false, usual(MAX_WORDS), standing(MAX_WORDS)),
        ] {
            let mut renewals = Renewals::new(words, is_verified);
            let steps: Vec<Renewal> = (0..3).map(|_| renewals.void()).collect();
            assert_eq!((steps, renewals.void()), (vec![first; 3], then));
            let same = (1..STANDING_GUESSES).map(|_| renewals.void());
            assert!(same.collect::<Vec<_>>().iter().all(|step| *step == Renewal::SameCode));
            assert_eq!([renewals.void(), renewals.void()], [Renewal::End; 2]);
        }
    }

    #[test]
    fn all_guesses_together_are_right_less_often_than_once_in_two_to_the_sixteen() {
        let mut renewals = Renewals::new(USUAL_WORDS, false);
        let (mut words, mut chance) = (USUAL_WORDS, 0.0);
        loop {
            chance += (1024f64).powi(-(words as i32));
            match renewals.void() {
                Renewal::NewCode { words: next, .. } => words = next,
                Renewal::SameCode => {}
                Renewal::End => break,
            }
        }
        assert!(chance < 1.0 / f64::from(1 << 17), "{chance}");
    }

    fn limiter(tries: u32, seconds: u64, sources: usize) -> TryLimiter {
        TryLimiter::new(TryLimits { tries, window: Duration::from_secs(seconds), sources })
    }

    #[test]
    fn a_source_tries_so_often_in_a_window() {
        let (mut limiter, start) = (limiter(2, 60, 10), Instant::now());
        let mut at = |seconds, from: &str| {
            limiter
                .admit(from.parse().unwrap(), start + Duration::from_secs(seconds))
                .map_err(|wait| wait.as_secs())
        };
        let table = [
            (0, "192.0.2.1", Ok(())),
            (10, "192.0.2.1", Ok(())),
            (20, "192.0.2.1", Err(40)),
            (20, "::ffff:192.0.2.1", Err(40)),
            (20, "192.0.2.2", Ok(())),
            (20, "2001:db8:1:2::1", Ok(())),
            (20, "2001:db8:1:2:ffff::9", Ok(())),
            (21, "2001:db8:1:2:3:4:5:6", Err(59)),
            (21, "2001:db8:1:3::1", Ok(())),
            (59, "192.0.2.1", Err(1)),
            (60, "192.0.2.1", Ok(())),
            (79, "2001:db8:1:2::1", Err(1)),
            (80, "2001:db8:1:2::1", Ok(())),
        ];
        for (seconds, from, expected) in table {
            assert_eq!(at(seconds, from), expected, "{from} at {seconds}");
        }
    }

    #[test]
    fn many_sources_take_no_more_memory_and_gain_nothing() {
        let (mut limiter, now) = (limiter(3, 60, 100), Instant::now());
        let known: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(limiter.admit(known, now), Ok(()));
        let admitted =
            (0..10_000u32).filter(|number| limiter.admit(IpAddr::V4((*number).into()), now).is_ok());
        assert_eq!(admitted.count(), 99 + 3, "99 with a count of their own, the others have one together");
        assert!(limiter.counts.len() <= 101 && limiter.ends.len() <= 101);
        assert_eq!(limiter.admit(known, now), Ok(()), "who was there before is not pushed out");
        let later = now + Duration::from_secs(60);
        assert_eq!(limiter.admit(IpAddr::V4(77_777.into()), later), Ok(()));
        assert_eq!((limiter.counts.len(), limiter.ends.len()), (1, 1));
    }
}
