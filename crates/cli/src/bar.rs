//! The line that a terminal shows while something goes on: what is there, a bar, the network's rate, the
//! time left, where bytes come from. It never is wider than the terminal, as a line that is wrapped
//! could not be drawn over. Pure: handed the time, the width and the facts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, HumanDuration};
use towpath_api::Progress;
use towpath_service::display_text;

/// A rate is that of this long.
const WINDOW: Duration = Duration::from_secs(3);
/// A rate of a shorter time says nothing.
const SHORTEST: Duration = Duration::from_millis(500);
/// A bar of fewer columns is none.
const LEAST_BAR: usize = 8;
/// A wider bar is no better.
const MOST_BAR: usize = 40;

/// Rate at which a number grows.
#[derive(Debug, Default)]
pub struct RateMeter(VecDeque<(Instant, u64)>);

impl RateMeter {
    /// The number is now this; how much it grew per second of late, if that is known.
    pub fn rate(&mut self, now: Instant, number: u64) -> Option<f64> {
        if self.0.back().is_some_and(|(_, last)| *last > number) {
            self.0.clear();
        }
        self.0.push_back((now, number));
        // One that is older than the window stays: so it is whole.
        while self.0.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            self.0.pop_front();
        }
        let (begin, before) = self.0.front()?;
        let took = now.duration_since(*begin);
        (took >= SHORTEST).then(|| (number - before) as f64 / took.as_secs_f64())
    }
}

/// Bytes that the network brought; within one machine all, as no sources are reported there.
pub fn from_network(progress: &Progress) -> u64 {
    if progress.sources.0.is_empty() { progress.done } else { progress.sources.from_elsewhere() }
}

/// The line for `width` columns.
pub fn line(progress: &Progress, rate: Option<f64>, width: usize) -> String {
    let Progress { done, expected, objects, .. } = progress;
    let mut begin = format!("{} of {}", HumanBytes(*done), HumanBytes(*expected));
    if *objects > 1 {
        begin = format!("{begin}, {} files", HumanCount(*objects));
    }
    let ends = ends(progress, rate);
    let room = |end: &String| width.saturating_sub(columns(&begin) + columns(end) + 2);
    let end = ends.iter().find(|end| room(end) >= LEAST_BAR);
    match end {
        Some(end) => {
            let bar = bar(*done, *expected, room(end).min(MOST_BAR));
            format!("{begin} {bar} {end}").trim_end().to_owned()
        }
        None => begin.chars().take(width).collect(),
    }
}

/// A source's part of what came, in words.
pub fn from_source((name, bytes): (String, u64)) -> String {
    format!("{} from {}", HumanBytes(bytes), display_text(&name))
}

/// Texts that stand behind the bar, the longest first.
fn ends(progress: &Progress, rate: Option<f64>) -> Vec<String> {
    if let Some(trouble) = &progress.trouble {
        return vec![format!("waiting: {}", display_text(trouble)), "waiting".into(), String::new()];
    }
    let rate = rate.filter(|rate| *rate >= 1.0);
    let speed = rate.map(|rate| format!("{}/s", HumanBytes(rate as u64))).unwrap_or_default();
    let left = progress.expected.saturating_sub(progress.done);
    let time = rate.filter(|_| left > 0).map(|rate| Duration::from_secs_f64((left as f64 / rate).min(1e9)));
    let timed = match time {
        Some(time) => format!("{speed} {} left", short(time)),
        None => speed.clone(),
    };
    let sources = progress.sources.shown();
    // Of one alone it is what is said already.
    let sources = sources.into_iter().filter(|_| progress.sources.0.len() > 1);
    let sources = sources.map(from_source).collect::<Vec<_>>().join(", ");
    let all = format!("{timed} {sources}").trim().to_owned();
    vec![all, timed, speed, String::new()]
}

/// A time in one or two words, rounded up: nothing is left of it only at the end.
fn short(time: Duration) -> String {
    match time.as_secs_f64().ceil() as u64 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds @ 3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => HumanDuration(time).to_string(),
    }
}

/// Full when all is there, and empty as long as nothing is known.
fn bar(done: u64, expected: u64, width: usize) -> String {
    let part = if expected == 0 { 0.0 } else { (done as f64 / expected as f64).min(1.0) };
    let full = (part * width as f64) as usize;
    "█".repeat(full) + &"░".repeat(width - full)
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use towpath_api::{SourceBytes, SourceList, THIS_MACHINE};

    use super::*;

    fn progress(done: u64, expected: u64, sources: &[(&str, u64)]) -> Progress {
        let source = |(kind, bytes): &(&str, u64)| SourceBytes {
            kind: (*kind).to_owned(),
            bytes: *bytes,
            ..SourceBytes::default()
        };
        let sources = sources.iter().map(source).collect::<SourceList>();
        Progress { done, expected, sources, ..Progress::default() }
    }

    /// Two sources made it 98 columns wide, and each redraw moved up a line.
    #[test]
    fn it_fits_any_width() {
        let full = Progress {
            objects: 15_000,
            ..progress(12 << 20, 19 << 20, &[("the sender", 800_000), ("this machine", 11 << 20)])
        };
        let stuck =
            Progress { trouble: Some("127.0.0.1:45761: refused the connection".into()), ..full.clone() };
        for width in 0..200 {
            for progress in [&full, &stuck, &Progress::default()] {
                let line = line(progress, Some(15.84e6), width);
                assert!(columns(&line) <= width, "{width}: {line}");
            }
        }
        let line = |width| line(&full, Some(1e6), width);
        assert!(line(80).contains('░') && line(80).contains("15,000 files"), "{}", line(80));
        assert!(
            line(150).contains("781.25 KiB from the sender, 11.00 MiB from this machine"),
            "{}",
            line(150)
        );
    }

    #[test]
    fn it_begins_empty_and_ends_full() {
        let line = |progress: &Progress| line(progress, None, 80);
        assert!(!line(&Progress::default()).contains('█'));
        assert!(!line(&progress(5, 5, &[])).contains('░'));
    }

    #[test]
    fn rate_and_time_left_are_the_networks() {
        let progress = progress(90 << 20, 100 << 20, &[("peer", 10 << 20), (THIS_MACHINE, 80 << 20)]);
        assert_eq!(from_network(&progress), 10 << 20);
        let line = line(&progress, Some(f64::from(1 << 20)), 80);
        assert!(line.contains("1.00 MiB/s 10 s left"), "{line}");
        for (millis, text) in [(1, "1 s"), (1000, "1 s"), (1001, "2 s"), (59_001, "1 min 0 s")] {
            assert_eq!(short(Duration::from_millis(millis)), text);
        }
        let (mut meter, start) = (RateMeter::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(meter.rate(at(0), 0), None);
        assert_eq!(meter.rate(at(1000), 100), Some(100.0));
        assert_eq!(meter.rate(at(3000), 600), Some(200.0));
        assert_eq!(meter.rate(at(4000), 600), Some(500.0 / 3.0), "of late");
        assert_eq!(meter.rate(at(9000), 600), Some(0.0));
    }
}
