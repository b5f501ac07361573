//! Number of connections to keep to one peer: more as long as each step brings more bytes, else as
//! many as before. Pure: handed the time, the bytes that came and what was lost on the way.
//!
//! One connection is all that most networks need. Where packets are lost at random, a loss-based
//! congestion control (cubic) takes each loss for a full queue and leaves most of the link idle;
//! several connections lose their packets one by one and together keep it busy. Whether that is so
//! shows only when it is tried: the number is doubled, and stays if the rate goes up by a quarter within a
//! few periods.
//!
//! A try that was in vain costs: the new connection fills the queue that the old one had just learned to
//! keep short, both lose packets, and both slow down. So the first step waits until the rate is steady, for
//! growth by itself would pass for the merit of the step, and until packets were lost in two periods in
//! a row, more than when a queue runs full now and then. A path that loses nothing is tried, too, but late. So is one whose sender
//! goes by a rate that it measures (BBR): a loss does not slow it down, and further connections only lose packets to each other.

use std::time::{Duration, Instant};

use towpath_link::PathInfo;

/// A rate is measured over so long.
const PERIOD: Duration = Duration::from_millis(400);
/// After a change the rate settles for so long: dialling, TLS, and the congestion window's growth.
const SETTLING: Duration = Duration::from_millis(400);
/// A step is worth it if the rate grows by so much at least.
const WORTH: f64 = 1.25;
/// A step is given up if it was not worth it in so many periods: where packets are lost at random, the
/// rate of one period tells little, and the new connection may still be finding its own.
const TRIAL_PERIODS: u32 = 4;
/// Evenness of the rate: if it was as even as this before the step, one period is enough: nothing is left to chance there.
const EVEN: f64 = 1.05;
/// A rate that grew by no more than this since the period before, and fell by no more than that, is steady.
const STEADY: f64 = 1.1;
const FALLING: f64 = 1.6;
/// A path that loses nothing is tried only after so long, and after a step in vain not before this: that was no chance, and a
/// connection of BBR's that began beside a full one is slow for many seconds, which shows at the end.
const LOSSLESS: Duration = Duration::from_secs(15);
const LOSSLESS_REST: Duration = Duration::from_secs(90);
/// ... nor before so many bytes came: on a slow path what the new connection is asked for takes seconds, in which both lose packets to each
/// other.
const LOSSLESS_BYTES: u64 = 64 << 20;
/// A step that was not worth it is tried again after so long, and then after twice that, ... Soon at
/// first: where packets are lost at random, it may have seemed so by chance.
const FIRST_REST: Duration = Duration::from_secs(3);
/// ... but no later than after this.
const LONGEST_REST: Duration = Duration::from_secs(240);

/// Phase of widening.
#[derive(Debug, Clone, Copy, PartialEq)]
enum WidthPhase {
    /// Nothing came yet.
    Idle,
    /// The rate settles until then.
    Settling(Instant),
    /// The rate is measured since then, from this many bytes, and this, on.
    Measuring(Instant, u64, PathCounts),
    /// Enough connections, until then.
    Resting(Instant),
}

/// Counts of what came so far, as the kernel has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathCounts {
    /// Segments with data. What is handed on comes in whole pieces, of which a slow network has two at once and then none for
    /// seconds.
    pub segments: Option<u64>,
    /// Packets that were lost, and made the sender send less.
    pub lost: Option<u64>,
}

impl PathCounts {
    /// Of these connections, each count as far as all of them can tell. What is lost of a peer that `paces` does not slow it down.
    pub fn of(paths: &[PathInfo], paces: bool) -> Self {
        let sum = |count: fn(&PathInfo) -> Option<u64>| {
            (!paths.is_empty()).then(|| paths.iter().map(count).sum::<Option<u64>>()).flatten()
        };
        let lost = if paces { Some(0) } else { sum(|path| path.out_of_order) };
        Self { segments: sum(|path| path.data_segments), lost }
    }
}

/// Measurement over a period.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WidthMeasure {
    /// Segments a second, or bytes where nobody counts those. Only compared with each other.
    rate: f64,
    /// Packets were lost, or nobody can tell.
    is_lossy: bool,
}

/// A step that is being tried.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WidthStep {
    /// The width before it.
    from: usize,
    /// The rate then, in bytes a second.
    rate: f64,
    /// Periods that it has left to be worth it.
    left: u32,
}

/// Number of connections to use now, and the step that is being tried.
#[derive(Debug)]
pub struct Widening {
    most: usize,
    width: usize,
    /// The step that is being tried.
    step: Option<WidthStep>,
    /// The period before this one, at the same width.
    last: Option<WidthMeasure>,
    phase: WidthPhase,
    rest: Duration,
    arrived: u64,
    /// Time and bytes at which a path that loses nothing is tried, too.
    late: Option<(Instant, u64)>,
}

impl Widening {
    /// Begins with `first` connections, and goes up to `most`.
    pub fn new(first: usize, most: usize) -> Self {
        let width = first.max(1);
        Self {
            most: most.max(width),
            width,
            step: None,
            last: None,
            phase: WidthPhase::Idle,
            rest: FIRST_REST,
            arrived: 0,
            late: None,
        }
    }

    /// Connections to use now.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// So many are needed, for another reason than loss; `before` were until now.
    pub fn needs(&mut self, needed: usize, before: usize, now: Instant) {
        let needed = needed.min(self.most);
        if needed > self.width || (needed < before && self.width == before.min(self.most)) {
            self.width = needed;
            self.step = None;
            self.settle(now);
        }
    }

    /// So many bytes came at `now`. `is_waiting` says that the receiving side waits for the network,
    /// not the network for it: only then can more connections help. `counted` is asked now and then.
    pub fn arrived(
        &mut self,
        bytes: u64,
        is_waiting: bool,
        now: Instant,
        counted: impl FnOnce() -> PathCounts,
    ) {
        self.arrived += bytes;
        match self.phase {
            WidthPhase::Idle => {
                self.late = Some((now + LOSSLESS, self.arrived + LOSSLESS_BYTES));
                self.settle(now);
            }
            WidthPhase::Settling(until) | WidthPhase::Resting(until) if now >= until => {
                self.measure(now, counted())
            }
            // This measures the machine, not the network.
            WidthPhase::Measuring(since, ..) if !is_waiting => self.settle(now.max(since)),
            WidthPhase::Measuring(since, bytes, before) => {
                let elapsed = now.saturating_duration_since(since);
                if elapsed >= PERIOD {
                    let counted = counted();
                    match self.came_since(bytes, before, counted) {
                        Some(came) => {
                            let rate = came as f64 / elapsed.as_secs_f64();
                            let lost = counted.lost.zip(before.lost);
                            let is_lossy = lost.is_none_or(|(lost, before)| lost > before);
                            self.judge(WidthMeasure { rate, is_lossy }, now, counted);
                        }
                        None => self.settle(now),
                    }
                }
            }
            WidthPhase::Settling(_) | WidthPhase::Resting(_) => {}
        }
    }

    fn settle(&mut self, now: Instant) {
        self.last = None;
        self.phase = WidthPhase::Settling(now + SETTLING);
    }

    const fn measure(&mut self, now: Instant, counted: PathCounts) {
        self.phase = WidthPhase::Measuring(now, self.arrived, counted);
    }

    /// Arrivals since then, in segments, or bytes where nobody counts those. None if one of the connections that had brought
    /// some is gone.
    fn came_since(&self, bytes: u64, before: PathCounts, counted: PathCounts) -> Option<u64> {
        match (before.segments, counted.segments) {
            (Some(before), Some(segments)) => segments.checked_sub(before),
            (None, None) => Some(self.arrived - bytes),
            _ => None,
        }
    }

    fn judge(&mut self, measured: WidthMeasure, now: Instant, counted: PathCounts) {
        let tried = self.step.take();
        if let Some(step) = tried.filter(|step| measured.rate < step.rate * WORTH) {
            return self.doubt(step, now, counted);
        }
        if self.width == self.most {
            self.phase = WidthPhase::Resting(now + LONGEST_REST);
            return;
        }
        let last = self.last.replace(measured);
        let steady = last.filter(|last| self.is_ripe(*last, measured, now)).map(|last| last.rate);
        let left = if steady.is_some_and(|last| is_even(last, measured.rate)) { 1 } else { TRIAL_PERIODS };
        // After a step that was worth it the next one is likely to be. More than so much for each
        // connection as before it is a burst.
        let expected = tried.map(|step| step.rate * self.width as f64 / step.from as f64);
        match expected.or(steady) {
            Some(rate) => {
                let rate = rate.min(measured.rate);
                self.step = Some(WidthStep { from: self.width, rate, left });
                self.width = (self.width * 2).min(self.most);
                self.settle(now);
            }
            None => self.measure(now, counted),
        }
    }

    /// The step was not worth it in one more period.
    fn doubt(&mut self, step: WidthStep, now: Instant, counted: PathCounts) {
        if step.left > 1 {
            self.step = Some(WidthStep { left: step.left - 1, ..step });
            return self.measure(now, counted);
        }
        self.width = step.from;
        self.last = None;
        self.late = Some((now + LOSSLESS_REST, self.arrived + LOSSLESS_BYTES));
        self.phase = WidthPhase::Resting(now + self.rest);
        self.rest = (self.rest * 2).min(LONGEST_REST);
    }

    /// True if a step is to be tried after these two periods.
    fn is_ripe(&self, last: WidthMeasure, this: WidthMeasure, now: Instant) -> bool {
        let is_late = self.late.is_some_and(|(time, bytes)| now >= time && self.arrived >= bytes);
        let is_lossy = last.is_lossy && this.is_lossy;
        let is_steady = this.rate <= last.rate * STEADY && last.rate <= this.rate * FALLING;
        is_steady && (is_lossy || is_late)
    }
}

/// True if two periods' rates are as good as the same.
fn is_even(one: f64, other: f64) -> bool {
    one <= other * EVEN && other <= one * EVEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_that_paces_loses_is_no_reason_for_another_connection() {
        let path =
            |segments, lost| PathInfo { data_segments: segments, out_of_order: lost, ..PathInfo::default() };
        let both = [path(Some(10), Some(1)), path(Some(20), Some(2))];
        for (name, paths, paces, segments, lost) in [
            ("by loss", &both[..], false, Some(30), Some(3)),
            ("by a rate", &both, true, Some(30), Some(0)),
            ("one can't tell", &[both[0], path(None, None)], false, None, None),
            ("none stands", &[], false, None, None),
        ] {
            assert_eq!(PathCounts::of(paths, paces), PathCounts { segments, lost }, "{name}");
        }
    }

    /// Runs for `seconds` with a rate that follows from the width and the time, and packets lost at
    /// each of the times that `loses` names; returns the widths, each once.
    fn run(
        widening: &mut Widening,
        seconds: u64,
        rate: impl Fn(usize, Duration) -> u64,
        loses: impl Fn(Duration) -> bool,
    ) -> Vec<usize> {
        let (start, mut lost) = (Instant::now(), 0);
        let mut seen = vec![widening.width()];
        for tick in 0..seconds * 100 {
            let at = Duration::from_millis(10 * tick);
            lost += u64::from(loses(at));
            widening.arrived(rate(widening.width(), at) / 100, true, start + at, || PathCounts {
                segments: None,
                lost: Some(lost),
            });
            if seen.last() != Some(&widening.width()) {
                seen.push(widening.width());
            }
        }
        seen
    }

    /// On a path that loses packets all the time.
    fn widths(widening: &mut Widening, seconds: u64, rate: impl Fn(usize) -> u64) -> Vec<usize> {
        run(widening, seconds, |width, _| rate(width), |_| true)
    }

    #[test]
    fn connections_are_added_while_each_step_brings_more() {
        let lossy = |width| 500_000 * width as u64;
        assert_eq!(widths(&mut Widening::new(1, 16), 4, lossy), [1, 2, 4, 8, 16], "soon");
    }

    #[test]
    fn a_link_that_one_connection_fills_gets_a_second_one_for_a_moment_only() {
        assert_eq!(widths(&mut Widening::new(1, 16), 3, |_| 12_500_000), [1, 2, 1]);
    }

    /// At 1.5 Mbit/s a piece takes 1.4 s, those of several connections end together, and the periods in which they do had the
    /// rate of several: there were up to eight connections, which had every tenth packet lost.
    #[test]
    fn what_comes_in_large_pieces_is_counted_by_the_segment() {
        let (mut widening, start) = (Widening::new(1, 16), Instant::now());
        let (mut arrived, mut most) = (0, 1);
        for tick in 0..12_000_u64 {
            let (at, came) = (Duration::from_millis(10 * tick), 1880 * tick);
            let together = (256 << 10) * widening.width() as u64;
            if came - arrived >= together {
                arrived += together;
                for _ in 0..widening.width() {
                    let counted = || PathCounts { segments: Some(came / 1448), lost: Some(tick) };
                    widening.arrived(256 << 10, true, start + at, counted);
                }
            }
            most = most.max(widening.width());
        }
        assert_eq!(most, 2, "two for a moment");
    }

    #[test]
    fn a_rate_that_fell_by_half_is_not_what_a_step_is_compared_with() {
        let falling = |_, at: Duration| match at.as_millis() {
            0..800 => 15_600_000,
            800..1210 => 8_400_000,
            _ => 11_900_000,
        };
        assert_eq!(run(&mut Widening::new(1, 16), 4, falling, |_| true), [1, 2, 1]);
    }

    #[test]
    fn what_four_connections_fill_gets_four() {
        let rate = |width: usize| 1_000_000 * width.min(4) as u64;
        assert_eq!(widths(&mut Widening::new(1, 16), 6, rate), [1, 2, 4, 8, 4]);
    }

    #[test]
    fn while_the_rate_grows_by_itself_nothing_is_tried() {
        let growing = |_, at: Duration| 1_000_000 * (1 + at.as_millis() as u64 / 400).pow(2).min(12);
        assert_eq!(run(&mut Widening::new(1, 16), 2, growing, |_| true), [1]);
    }

    #[test]
    fn a_path_that_loses_nothing_is_tried_late() {
        let widths = |seconds| {
            let rate = |width: usize, _| 6_000_000 * width.min(2) as u64;
            run(&mut Widening::new(1, 16), seconds, rate, |_| false)
        };
        assert_eq!(widths(14), [1]);
        assert_eq!(widths(19), [1, 2, 4, 2], "a window that is too small for the path");
    }

    /// 40 MiB by two lines of 10 Mbit/s took 27 s instead of 22: for five seconds each line carried twice what it could.
    #[test]
    fn a_slow_path_that_loses_nothing_is_tried_once_much_came() {
        let widths = |seconds| run(&mut Widening::new(1, 16), seconds, |_, _| 1_250_000, |_| false);
        assert_eq!(widths(50), [1]);
        assert_eq!(widths(60), [1, 2, 1]);
    }

    #[test]
    fn a_path_that_loses_nothing_and_was_tried_in_vain_is_left_alone_for_long() {
        for (seconds, expected) in [(100, &[1, 2, 1][..]), (120, &[1, 2, 1, 2, 1])] {
            let rate = |_, at: Duration| if (17..19).contains(&at.as_secs()) { 4_500_000 } else { 6_500_000 };
            let seen = run(&mut Widening::new(1, 16), seconds, rate, |_| false);
            assert_eq!(seen, expected, "{seconds}");
        }
    }

    #[test]
    fn a_queue_that_runs_full_now_and_then_is_no_reason() {
        let overflow = |at: Duration| at.as_millis() % 2000 == 700;
        assert_eq!(run(&mut Widening::new(1, 16), 14, |_, _| 12_500_000, overflow), [1]);
    }

    #[test]
    fn where_nobody_can_tell_what_is_lost_it_is_tried() {
        let (mut widening, start) = (Widening::new(1, 16), Instant::now());
        let mut widest = 1;
        for tick in 0..500 {
            widening.arrived(10_000, true, start + Duration::from_millis(10 * tick), PathCounts::default);
            widest = widest.max(widening.width());
        }
        assert_eq!((widest, widening.width()), (2, 1));
    }

    #[test]
    fn a_step_that_did_not_help_is_tried_ever_more_seldom() {
        let seen = widths(&mut Widening::new(1, 16), 150, |_| 1_000_000);
        assert_eq!(seen.iter().filter(|&&width| width == 2).count(), 6, "at 2, 6, 14, 28, 54, 104 s or so");
    }

    #[test]
    fn a_step_that_seems_to_be_of_no_use_by_chance_is_not_given_up_at_once() {
        let unlucky = |width: usize, at: Duration| match at.as_millis() {
            1000..2500 => 400_000,
            _ => 500_000 * width as u64,
        };
        assert_eq!(run(&mut Widening::new(1, 16), 6, unlucky, |_| true), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn a_burst_after_a_step_is_not_what_the_next_one_is_compared_with() {
        let bursting = |width: usize, at: Duration| match at.as_millis() {
            1300..2100 => 3_000_000,
            _ => 500_000 * width as u64,
        };
        assert_eq!(run(&mut Widening::new(1, 16), 6, bursting, |_| true), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn a_receiver_that_is_behind_tries_nothing() {
        let (mut widening, start) = (Widening::new(1, 16), Instant::now());
        for tick in 0..1000 {
            widening.arrived(1 << 20, false, start + Duration::from_millis(10 * tick), || PathCounts {
                lost: Some(tick),
                segments: None,
            });
        }
        assert_eq!(widening.width(), 1);
    }

    #[test]
    fn a_configured_number_is_where_it_begins() {
        assert_eq!(widths(&mut Widening::new(4, 4), 10, |_| 1_000_000), [4]);
        assert_eq!(Widening::new(0, 0).width(), 1);
    }
}
