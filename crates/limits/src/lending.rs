//! How much a get may send to others while it runs: no more of what it fetches than it took itself, at a rate, and only as long
//! as its own download does not suffer. Pure: it is handed the time.
//!
//! A machine can't see whether what it sends takes from what it gets: that depends on a line far away. So it compares. While it
//! sends and gets much less than it got before, it pauses for a period. If it gets more in that period, what it sent was in the
//! way: it pauses ever longer. If not, something else was the reason, such as others who fetch: it goes on, and measures by what it gets now.
//! A period without sending counts only if nothing was still on its way when it began: that comes out meanwhile, and is as much in the way.
//!
//! | a period | what it got | then |
//! |---|---|---|
//! | nothing was sent, nor on its way | | this is what it gets alone |
//! | something was sent | about as much as alone | it goes on, and compares all the same now and then; the next pause is short again |
//! | something was sent | less | a pause until nothing is on its way, and of one period, to compare |
//! | the pause after that | as little | it goes on, and measures by that |
//! | the pause after that | more | the pause lasts twice as long as the last one that came so |

use std::time::{Duration, Instant};

use crate::upload_budget::UploadBudget;

/// Time over which what is got is measured.
const PERIOD: Duration = Duration::from_secs(1);
/// Part of what it gets alone that counts as about as much.
const ABOUT: f64 = 0.9;
/// The first pause for which there is a reason, and the longest.
const FIRST: Duration = Duration::from_secs(4);
const LONGEST: Duration = Duration::from_secs(32);
/// It compares after sending for so long, whatever it gets: the last comparison may have met a bad moment.
const AGAIN: Duration = Duration::from_secs(16);
/// Time after which what was let through counts as gone: what is still on its way then comes out too slowly to be in the way.
const COMES_OUT: Duration = Duration::from_secs(5);
/// Delay before asking again for what was not taken yet.
const NOT_YET: Duration = Duration::from_millis(250);

/// How a get that lends does at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LendingLook {
    /// Bytes that were taken from others so far.
    pub taken: u64,
    /// Bytes that came so far of all peers, also of pieces that are not whole: their rate is what counts.
    pub came: u64,
    /// Something that was let through is still on its way to others.
    pub is_late: bool,
}

/// See the head of this module.
#[derive(Debug)]
pub struct Lending {
    /// Bytes per second that others are sent at most; 0 for no limit.
    rate: u64,
    budget: UploadBudget,
    taken: u64,
    lent: u64,
    /// Time at which something was let through last.
    last: Option<Instant>,
    period: LendingPeriod,
    /// Bytes per second that it gets while nothing is sent: it grows at once, and falls by half of the difference in a period, as a
    /// source that comes or goes is no other line.
    alone: Option<f64>,
    /// Time of the last comparison, or at which it began to send.
    compared: Option<Instant>,
    pause: Option<LendingPause>,
    /// Length of the next pause for which there is a reason.
    next: Duration,
}

/// A period that has begun.
#[derive(Debug)]
struct LendingPeriod {
    since: Option<Instant>,
    came: u64,
    lent: u64,
    /// Something that was let through before is on its way.
    is_late: bool,
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
        let period = LendingPeriod { since: None, came: 0, lent: 0, is_late: false };
        let (taken, lent, last, next) = (0, 0, None, FIRST);
        Self {
            rate,
            budget: UploadBudget::default(),
            taken,
            lent,
            last,
            period,
            alone: None,
            compared: None,
            pause: None,
            next,
        }
    }

    /// Looks how the get does: some times a second.
    pub fn look(&mut self, look: LendingLook, now: Instant) {
        let LendingLook { taken, came, is_late } = look;
        self.taken = self.taken.max(taken);
        let Some(since) = self.period.since else { return self.begin(came, false, now) };
        let is_late = is_late && self.last.is_some_and(|last| now < last + COMES_OUT);
        if let Some(pause) = self.pause.as_mut().filter(|pause| is_late && pause.before.is_some()) {
            pause.until = now + PERIOD;
            return self.begin(came, is_late, now);
        }
        let time = now.saturating_duration_since(since);
        if time < PERIOD {
            return;
        }
        let rate = came.saturating_sub(self.period.came) as f64 / time.as_secs_f64();
        let was_sent = self.lent > self.period.lent || self.period.is_late;
        match self.pause.take_if(|pause| pause.until <= now) {
            Some(LendingPause { before: Some(before), .. }) => self.compare(before, rate, now),
            _ if !was_sent => {
                self.alone = Some(self.alone.map_or(rate, |alone| rate.max((alone + rate) / 2.0)))
            }
            _ => self.sent(rate, now),
        }
        self.begin(came, is_late, now);
    }

    /// Lets `bytes` be sent, or says how long to wait.
    pub fn take(&mut self, bytes: u64, now: Instant) -> Result<(), Duration> {
        // One that is to compare lasts until it has compared, which is looked for a moment later.
        if let Some(pause) = self.pause.as_ref().filter(|pause| pause.until > now || pause.before.is_some()) {
            return Err(pause.until.saturating_duration_since(now).max(NOT_YET));
        }
        let lent = self.lent.checked_add(bytes).filter(|lent| *lent <= self.taken).ok_or(NOT_YET)?;
        self.budget.take(bytes, self.rate, now)?;
        (self.lent, self.last) = (lent, Some(now));
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

    fn begin(&mut self, came: u64, is_late: bool, now: Instant) {
        self.period = LendingPeriod { since: Some(now), came, lent: self.lent, is_late };
    }

    /// After a period in which something was sent.
    fn sent(&mut self, rate: f64, now: Instant) {
        let Some(alone) = self.alone else { return };
        let is_less = rate < ABOUT * alone;
        if is_less || self.is_due(now) {
            self.pause = Some(LendingPause { until: now + PERIOD, before: Some(rate) });
        }
        if !is_less {
            self.next = FIRST;
        }
    }

    /// True if it sent for so long without a comparison that the line may be another one.
    fn is_due(&mut self, now: Instant) -> bool {
        now >= *self.compared.get_or_insert(now) + AGAIN
    }

    /// After a pause that was to show whether what was sent is in the way.
    fn compare(&mut self, before: f64, alone: f64, now: Instant) {
        (self.alone, self.compared) = (Some(alone), Some(now));
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

    /// A get to which nothing comes in parts.
    fn got(taken: u64, is_late: bool) -> LendingLook {
        LendingLook { taken, came: taken, is_late }
    }

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
            lending.look(got(0, false), start);
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
            self.lending.look(got(self.taken, false), self.now());
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
            lending.look(got(taken, false), now);
            assert_eq!(lending.take(before, now), Ok(()));
            let answer = lending.take(bytes, now);
            assert_eq!(answer.is_ok(), may, "{before} and {bytes} of {taken}");
            assert!(lending.lent() <= taken);
        }
    }

    #[test]
    fn what_is_not_sent_after_all_may_be_sent_later() {
        let (mut lending, now) = (Lending::new(0), Instant::now());
        lending.look(got(100, false), now);
        assert_eq!(lending.take(100, now), Ok(()));
        lending.give_back(40);
        assert_eq!((lending.take(41, now).is_ok(), lending.take(40, now).is_ok()), (false, true));
    }

    #[test]
    fn what_was_taken_never_shrinks() {
        let (mut lending, now) = (Lending::new(0), Instant::now());
        lending.look(got(100, false), now);
        lending.look(got(10, false), now);
        assert_eq!(lending.take(100, now), Ok(()));
    }

    #[test]
    fn however_it_is_asked_it_sends_no_more_than_it_took_and_its_rate_allows() {
        let (mut lending, start) = (Lending::new(100_000), Instant::now());
        let mut random = 7_u64;
        for millis in 0..100_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (taken, now) = (millis * 50, start + Duration::from_millis(millis));
            lending.look(got(taken, false), now);
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
        assert_eq!(get.seconds(16, MB / 2, (MB, MB)), 16);
        assert!(get.seconds(100, MB / 2, (MB, MB)) >= 94, "it compares now and then");
        assert!(get.seconds(100, MB / 2, (MB, MB * 95 / 100)) >= 94, "nearly as much is as much");
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
        assert!((93..100).contains(&sent), "one second shows that, and one now and then: {sent}");
    }

    /// A line that both directions share, of so many bytes a second: what is let through goes to a queue, which takes half of the
    /// line until it is empty.
    struct SharedLine {
        lending: Lending,
        start: Instant,
        rate: u64,
        queued: u64,
        taken: u64,
        ticks: u32,
    }

    impl SharedLine {
        /// A quarter of a second, in which others want pieces as long as fewer than `window` bytes wait for them. True if they got one.
        fn tick(&mut self, window: u64, tells: bool) -> bool {
            let now = self.start + PERIOD / 4 * self.ticks;
            self.ticks += 1;
            self.lending.look(got(self.taken, tells && self.queued > 0), now);
            let before = self.queued;
            while self.queued < window && self.lending.take(MB / 4, now).is_ok() {
                self.queued += MB / 4;
            }
            let is_sent = self.queued > before;
            let sent = (self.rate / 8).min(self.queued);
            self.queued -= sent;
            self.taken += self.rate / 4 - sent;
            is_sent
        }

        /// How many times as long a get of so many bytes takes as one that serves nobody.
        fn play(rate: u64, window: u64, size: u64, tells: bool) -> f64 {
            let (lending, start) = (Lending::new(0), Instant::now());
            let mut line = Self { lending, start, rate, queued: 0, taken: 0, ticks: 0 };
            for _ in 0..16 {
                // Nobody else is there yet.
                line.tick(0, tells);
            }
            while line.taken < size {
                line.tick(window, tells);
            }
            f64::from(line.ticks) / 4.0 / (size as f64 / rate as f64)
        }
    }

    #[test]
    fn on_a_line_that_both_directions_share_a_get_takes_hardly_longer() {
        let cases = [(5 * MB / 2, MB / 2, 40 * MB), (5 * MB / 2, MB / 4, 40 * MB), (10 * MB, MB, 400 * MB)];
        for (rate, window, size) in cases {
            let times = SharedLine::play(rate, window, size, true);
            assert!(times < 1.1, "{times:.3} with {window} under way");
        }
    }

    #[test]
    fn what_still_comes_out_would_hide_the_difference() {
        // As it was: what was let through filled the pause that was to show it.
        assert!(SharedLine::play(MB, 2 * MB, 40 * MB, false) > 1.3);
        assert!(SharedLine::play(MB, 2 * MB, 40 * MB, true) < 1.3);
    }

    #[test]
    fn what_never_comes_out_keeps_nobody_from_comparing() {
        let (mut lending, start) = (Lending::new(0), Instant::now());
        let mut taken = 0;
        let sent = (0..400_u32).filter(|tick| {
            let now = start + PERIOD / 4 * *tick;
            lending.look(got(taken, *tick > 16), now);
            let is_sent = *tick >= 16 && lending.take(MB / 100, now).is_ok();
            taken += if is_sent { MB / 8 } else { MB / 4 };
            is_sent
        });
        let sent = sent.count();
        assert!((8..100).contains(&sent), "{sent} of 384 quarters");
    }

    #[test]
    fn a_comparison_that_met_a_bad_moment_is_made_good() {
        let mut get = Played::new(0);
        get.seconds(3, 0, (MB, MB));
        // A moment in which nothing comes for another reason.
        get.seconds(2, MB / 10, (MB / 2, MB / 2));
        let sent = get.seconds(200, MB / 10, (MB, MB / 2));
        assert!(sent < 60, "{sent} of 200 seconds");
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
