//! How much a get may send to others while it runs: no more of what it fetches than it took itself, at a rate, and only as long
//! as its own download does not suffer. Pure: it is handed the time.
//!
//! A machine can't see whether what it sends takes from what it gets: that depends on a line far away. So it compares. While it
//! sends and gets much less than it got before, it pauses for a period. If it gets more in that period, what it sent was in the
//! way: it pauses ever longer. If not, something else was the reason, such as others who fetch: it goes on, and measures by what it gets now.
//!
//! | a period | what it got | then |
//! |---|---|---|
//! | nothing was sent | | this is what it gets alone |
//! | something was sent | about as much as alone | it goes on; the next pause is short again |
//! | something was sent | less | a pause of one period, to compare |
//! | the pause after that | as little | it goes on, and measures by that |
//! | the pause after that | more | the pause lasts twice as long as the last one that came so |

use std::time::{Duration, Instant};

use crate::upload_budget::UploadBudget;

/// Time over which what is got is measured.
const PERIOD: Duration = Duration::from_secs(1);
/// Part of what it gets alone that counts as about as much.
const ABOUT: f64 = 0.9;
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(32);
/// Delay before asking again for what was not taken yet.
const NOT_YET: Duration = Duration::from_millis(250);

/// See the head of this module.
#[derive(Debug)]
pub struct Lending {
    /// Bytes per second that others are sent at most; 0 for no limit.
    rate: u64,
    budget: UploadBudget,
    taken: u64,
    lent: u64,
    period: LendingPeriod,
    /// Bytes per second that it gets while nothing is sent.
    alone: Option<f64>,
    pause: Option<LendingPause>,
    /// Length of the next pause for which there is a reason.
    next: Duration,
}

/// A period that has begun.
#[derive(Debug)]
struct LendingPeriod {
    since: Option<Instant>,
    taken: u64,
    lent: u64,
}

/// A time without sending.
#[derive(Debug)]
struct LendingPause {
    until: Instant,
    /// Bytes per second that it got before, if that is to be compared.
    before: Option<f64>,
}

impl Lending {
    /// Nothing was taken yet; others get at most `rate` bytes per second, 0 for no limit.
    pub fn new(rate: u64) -> Self {
        let period = LendingPeriod { since: None, taken: 0, lent: 0 };
        let (taken, lent, next) = (0, 0, 2 * PERIOD);
        Self { rate, budget: UploadBudget::default(), taken, lent, period, alone: None, pause: None, next }
    }

    /// So many bytes were taken from others so far.
    pub fn took(&mut self, taken: u64, now: Instant) {
        self.taken = self.taken.max(taken);
        let Some(since) = self.period.since else { return self.begin(now) };
        let time = now.saturating_duration_since(since);
        if time < PERIOD {
            return;
        }
        let rate = (self.taken - self.period.taken) as f64 / time.as_secs_f64();
        let was_sent = self.lent > self.period.lent;
        match self.pause.take_if(|pause| pause.until <= now) {
            Some(LendingPause { before: Some(before), .. }) => self.compare(before, rate, now),
            _ if !was_sent => self.alone = Some(rate),
            _ => self.look(rate, now),
        }
        self.begin(now);
    }

    /// Lets `bytes` be sent, or says how long to wait.
    pub fn take(&mut self, bytes: u64, now: Instant) -> Result<(), Duration> {
        if let Some(pause) = self.pause.as_ref().filter(|pause| pause.until > now) {
            return Err(pause.until - now);
        }
        let lent = self.lent.checked_add(bytes).filter(|lent| *lent <= self.taken).ok_or(NOT_YET)?;
        self.budget.take(bytes, self.rate, now)?;
        self.lent = lent;
        Ok(())
    }

    /// So many bytes that were let through are not sent after all.
    pub const fn give_back(&mut self, bytes: u64) {
        self.lent = self.lent.saturating_sub(bytes);
    }

    /// Bytes that were let through.
    pub const fn lent(&self) -> u64 {
        self.lent
    }

    fn begin(&mut self, now: Instant) {
        self.period = LendingPeriod { since: Some(now), taken: self.taken, lent: self.lent };
    }

    /// After a period in which something was sent.
    fn look(&mut self, rate: f64, now: Instant) {
        match self.alone {
            Some(alone) if rate < ABOUT * alone => {
                self.pause = Some(LendingPause { until: now + PERIOD, before: Some(rate) });
            }
            Some(_) => self.next = 2 * PERIOD,
            None => {}
        }
    }

    /// After a pause that was to show whether what was sent is in the way.
    fn compare(&mut self, before: f64, alone: f64, now: Instant) {
        self.alone = Some(alone);
        if before < ABOUT * alone {
            self.pause = Some(LendingPause { until: now + self.next, before: None });
            self.next = (2 * self.next).min(LONGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// A get that is played second by second.
    struct Played {
        lending: Lending,
        start: Instant,
        seconds: u64,
        taken: u64,
    }

    impl Played {
        fn new(rate: u64) -> Self {
            let start = Instant::now();
            let mut lending = Lending::new(rate);
            lending.took(0, start);
            Self { lending, start, seconds: 0, taken: 0 }
        }

        fn now(&self) -> Instant {
            self.start + Duration::from_secs(self.seconds)
        }

        /// A second in which it gets `alone`, or `sending` if `wanted` bytes may be sent; true if so.
        fn second(&mut self, wanted: u64, (alone, sending): (u64, u64)) -> bool {
            let is_sent = wanted > 0 && self.lending.take(wanted, self.now()).is_ok();
            self.taken += if is_sent { sending } else { alone };
            self.seconds += 1;
            self.lending.took(self.taken, self.now());
            is_sent
        }

        /// Seconds of so many in which something was sent.
        fn seconds(&mut self, count: usize, wanted: u64, gets: (u64, u64)) -> usize {
            (0..count).filter(|_| self.second(wanted, gets)).count()
        }
    }

    #[test]
    fn no_more_is_sent_than_was_taken() {
        let now = Instant::now();
        for (taken, before, bytes, may) in [
            (0, 0, 0, true),
            (0, 0, 1, false),
            (100, 0, 100, true),
            (100, 0, 101, false),
            (100, 60, 40, true),
            (100, 60, 41, false),
            (100, 100, 1, false),
            (u64::MAX, u64::MAX, 1, false),
        ] {
            let mut lending = Lending::new(0);
            lending.took(taken, now);
            assert_eq!(lending.take(before, now), Ok(()));
            let answer = lending.take(bytes, now);
            assert_eq!(answer.is_ok(), may, "{before} and {bytes} of {taken}");
            assert!(lending.lent() <= taken);
        }
    }

    #[test]
    fn what_is_not_sent_after_all_may_be_sent_later() {
        let (mut lending, now) = (Lending::new(0), Instant::now());
        lending.took(100, now);
        assert_eq!(lending.take(100, now), Ok(()));
        lending.give_back(40);
        assert_eq!((lending.take(41, now).is_ok(), lending.take(40, now).is_ok()), (false, true));
    }

    #[test]
    fn what_was_taken_never_shrinks() {
        let (mut lending, now) = (Lending::new(0), Instant::now());
        lending.took(100, now);
        lending.took(10, now);
        assert_eq!(lending.take(100, now), Ok(()));
    }

    #[test]
    fn however_it_is_asked_it_sends_no_more_than_it_took_and_its_rate_allows() {
        let (mut lending, start) = (Lending::new(100_000), Instant::now());
        let mut random = 7_u64;
        for millis in 0..100_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (taken, now) = (millis * 50, start + Duration::from_millis(millis));
            lending.took(taken, now);
            let _ = lending.take(random >> 47, now);
            assert!(lending.lent() <= taken);
            // A second and one request are promised ahead.
            assert!(lending.lent() <= 100 * millis + 100_000 + (1 << 17), "at {millis}");
        }
        assert!(lending.lent() > 4_000_000, "and it does send: {}", lending.lent());
    }

    #[test]
    fn who_is_not_slowed_sends_all_the_time() {
        let mut get = Played::new(0);
        get.seconds(3, 0, (MB, MB));
        assert_eq!(get.seconds(100, MB / 2, (MB, MB)), 100);
        assert_eq!(get.seconds(100, MB / 2, (MB, MB * 95 / 100)), 100, "nearly as much is as much");
    }

    #[test]
    fn who_is_slowed_sends_ever_more_seldom() {
        let mut get = Played::new(0);
        get.seconds(3, 0, (MB, MB / 2));
        let sent = get.seconds(200, MB / 10, (MB, MB / 2));
        assert!((5..=10).contains(&sent), "{sent} of 200 seconds");
    }

    #[test]
    fn what_others_take_is_no_reason_to_stop() {
        let mut get = Played::new(0);
        get.seconds(3, 0, (MB, MB));
        // Somebody else comes and takes half of the line, whether this one sends or not.
        let sent = get.seconds(100, MB / 10, (MB / 2, MB / 2));
        assert_eq!(sent, 99, "one second shows that");
    }

    #[test]
    fn who_is_slowed_no_more_sends_again() {
        let mut get = Played::new(0);
        get.seconds(3, 0, (MB, MB / 2));
        get.seconds(50, MB / 10, (MB, MB / 2));
        let sent = get.seconds(100, MB / 10, (MB, MB));
        assert!(sent > 60, "{sent}");
    }
}
