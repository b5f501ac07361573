//! For how much of the time something on this machine waits for a processor or for a disk, as the kernel tells it
//! (pressure stall information, `Documentation/accounting/psi.rst` of Linux). A kernel that does not tell has enough of
//! both.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const PROCESSORS: &str = "/proc/pressure/cpu";
const DISKS: &str = "/proc/pressure/io";
/// The kernel is asked no more often.
const PAUSE: Duration = Duration::from_millis(10);
/// Age at which a measurement counts a third of a new one.
const MEMORY: Duration = Duration::from_millis(150);

/// The waiting for one of them, looked at now and then.
#[derive(Debug)]
pub struct Stalls {
    file: &'static str,
    waiting: Mutex<StalledTime>,
}

impl Stalls {
    /// Of what waits for a processor.
    pub fn of_processors() -> Self {
        Self { file: PROCESSORS, waiting: Mutex::default() }
    }

    /// Of what waits for a disk.
    pub fn of_disks() -> Self {
        Self { file: DISKS, waiting: Mutex::default() }
    }

    /// The share of the time of late in which something waited, in percent.
    pub fn wait(&self, now: Duration) -> u64 {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_due(now)
            && let Some(total) = fs::read_to_string(self.file).ok().and_then(|file| total(&file))
        {
            waiting.look(now, total);
        }
        (100.0 * waiting.share) as u64
    }

    /// The same as it was; the time until the next look does not count, as whoever asks keeps the disk busy meanwhile.
    pub fn wait_before(&self) -> u64 {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.last = None;
        (100.0 * waiting.share) as u64
    }
}

/// The time in which something waited since the machine began, by the file's first line.
fn total(text: &str) -> Option<Duration> {
    let some = text.lines().next()?.strip_prefix("some ")?;
    let total = some.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

/// A moving average of that time's growth.
#[derive(Debug, Default)]
struct StalledTime {
    last: Option<(Duration, Duration)>,
    share: f64,
}

impl StalledTime {
    fn is_due(&self, now: Duration) -> bool {
        self.last.is_none_or(|(at, _)| now.saturating_sub(at) >= PAUSE)
    }

    fn look(&mut self, now: Duration, total: Duration) {
        if let Some((at, before)) = self.last.replace((now, total)) {
            let passed = now.saturating_sub(at).as_secs_f64().max(f64::MIN_POSITIVE);
            let share = (total.saturating_sub(before).as_secs_f64() / passed).min(1.0);
            let weight = 1.0 - (-passed / MEMORY.as_secs_f64()).exp();
            self.share += weight * (share - self.share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells_the_time() {
        let text = "some avg10=3.21 avg60=36.12 avg300=60.14 total=30557324974\nfull avg10=0.00 total=7\n";
        assert_eq!(total(text), Some(Duration::from_micros(30_557_324_974)));
        for text in ["", "some", "some total=", "some total=x", "full total=3", "some avg10=1.0"] {
            assert_eq!(total(text), None, "{text}");
        }
    }

    #[test]
    fn what_somebody_waits_for_while_the_asker_reads_does_not_count() {
        let stalls = Stalls::of_disks();
        let look = |at, total| {
            stalls.waiting.lock().unwrap().look(Duration::from_millis(at), Duration::from_millis(total));
        };
        look(0, 1000);
        look(100, 1000);
        stalls.wait_before();
        look(10_000, 9000);
        assert_eq!(stalls.wait_before(), 0);
        look(10_010, 9000);
        look(20_000, 19_000);
        assert!(stalls.wait_before() > 90);
    }

    #[test]
    fn waiting_counts_by_how_long_ago_it_was() {
        let (mut waiting, ms) = (StalledTime::default(), Duration::from_millis);
        waiting.look(ms(0), ms(5000));
        assert_eq!(waiting.share, 0.0, "nothing is known yet");
        (1..=30).for_each(|tick| waiting.look(ms(10 * tick), ms(5000 + 10 * tick)));
        assert!(waiting.share > 0.85, "{}", waiting.share);
        (31..=45).for_each(|tick| waiting.look(ms(10 * tick), ms(5300)));
        assert!((0.25..0.4).contains(&waiting.share), "{}", waiting.share);
        waiting.look(ms(10_000), ms(5300));
        assert!(waiting.share < 0.01);
        assert!(!waiting.is_due(ms(10_005)) && waiting.is_due(ms(10_010)));
    }
}
