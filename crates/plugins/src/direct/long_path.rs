//! Connections that a long, fast path needs. Pure: handed the time, the bytes that came and the round trip.
//!
//! What one connection has under way is bounded by the buffers of both kernels, some 2.5 MB with Linux as it comes. At 1
//! Gbit/s and 100 ms that is a fifth of the path, and no loss tells of it. What is under way shows it, though: the rate times
//! the shortest round trip.
//!
//! | the path | connections |
//! |---|---|
//! | shorter than 30 ms | what [`super::widening`] says alone |
//! | has more than 2 MiB for each connection under way | half as many more: as long as each is full nobody knows how many would do |
//! | the same, over the first one | 2, from 60 ms on 4, from 120 ms on 8: each needs a second or two to become fast |
//! | has less than 1 MiB for each under way, twice in a row | one for each 1 MiB: with more than it needs BBR floods the path |
//!
//! A connection that is opened needs some round trips to become fast. As long nothing is taken back. To open several at once
//! before the first one is full was tried: on slower paths they lost packets to each other, and 70 MB took up to half as long again.

use std::time::{Duration, Instant};

/// Shortest round trip of a long path.
const LONG: Duration = Duration::from_millis(30);
/// Bytes under way that a connection is counted on for.
const CARRIES: u64 = 2 << 20;
/// With fewer for each there are too many connections.
const IDLES: u64 = CARRIES / 2;
/// Connections once the first one is full, on paths of these shortest round trips.
const FIRST_STEP: [(Duration, usize); 2] = [(Duration::from_millis(120), 8), (Duration::from_millis(60), 4)];
/// What is under way is measured over so long at least, and over two round trips.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_ROUND_TRIPS: u32 = 2;
/// Round trips until a new connection is as fast as it becomes.
const GROWTH: u32 = 12;

/// See the head of this module.
#[derive(Debug)]
pub struct LongPath {
    most: usize,
    needed: usize,
    /// Begin of this look, and the bytes that had come then.
    since: Option<(Instant, u64)>,
    /// Length of a look.
    look: Duration,
    arrived: u64,
    /// Nothing is taken back before.
    grows_until: Option<Instant>,
    /// The look before this one found that so many would do.
    fewer: Option<usize>,
}

impl LongPath {
    /// For as many connections as `most`.
    pub const fn new(most: usize) -> Self {
        let (since, grows_until, fewer) = (None, None, None);
        Self { most, needed: 1, since, look: LOOK, arrived: 0, grows_until, fewer }
    }

    /// Connections that are needed at least.
    pub const fn needed(&self) -> usize {
        self.needed
    }

    /// So many bytes came at `now`. `is_waiting` says that the receiving side waits for the network. The path has this shortest
    /// round trip, which is asked for now and then; zero is unknown.
    pub fn arrived(
        &mut self,
        bytes: u64,
        is_waiting: bool,
        now: Instant,
        round_trip: impl FnOnce() -> Duration,
    ) {
        self.arrived += bytes;
        let Some((since, before)) = self.since.filter(|_| is_waiting) else {
            self.since = Some((now, self.arrived));
            return;
        };
        let elapsed = now.saturating_duration_since(since);
        if elapsed < self.look {
            return;
        }
        let round_trip = round_trip();
        self.look = LOOK.max(round_trip * LOOK_ROUND_TRIPS);
        if elapsed < self.look {
            return;
        }
        self.since = Some((now, self.arrived));
        let rate = (self.arrived - before) as f64 / elapsed.as_secs_f64();
        self.judge((rate * round_trip.as_secs_f64()) as u64, round_trip, now);
    }

    /// So many bytes are under way.
    fn judge(&mut self, under_way: u64, round_trip: Duration, now: Instant) {
        let (enough, at_most) = (connections(under_way, CARRIES), connections(under_way, IDLES));
        let fewer = self.fewer.take();
        if round_trip >= LONG && enough > self.needed {
            let more = match FIRST_STEP.iter().find(|(from, _)| self.needed == 1 && round_trip >= *from) {
                Some((_, first)) => *first,
                None => self.needed + self.needed.div_ceil(2),
            };
            return self.raise(enough.max(more), round_trip, now);
        }
        if at_most >= self.needed || self.grows_until.is_some_and(|until| now < until) {
            return;
        }
        match fewer {
            Some(fewer) => self.needed = fewer.max(at_most),
            None => self.fewer = Some(at_most),
        }
    }

    fn raise(&mut self, needed: usize, round_trip: Duration, now: Instant) {
        let needed = needed.min(self.most);
        if needed > self.needed {
            self.needed = needed;
            self.grows_until = Some(now + round_trip * GROWTH);
        }
    }
}

/// Connections for these bytes under way, of which each has so many; one at least.
fn connections(under_way: u64, each: u64) -> usize {
    usize::try_from(under_way.div_ceil(each)).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Numbers of connections for `seconds`, each once, with a rate in MB/s that follows from the number.
    fn run(round_trip: Duration, seconds: u32, rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let (mut path, start) = (LongPath::new(16), Instant::now());
        let mut seen = vec![path.needed()];
        for tick in 0..seconds * 100 {
            let bytes = rate(path.needed()) * 1e4;
            path.arrived(bytes as u64, true, start + 10 * tick * MS, || round_trip);
            if seen.last() != Some(&path.needed()) {
                seen.push(path.needed());
            }
        }
        seen
    }

    /// One connection has 2.6 MB under way at most.
    fn of_line(line: f64, round_trip: Duration) -> impl Fn(usize) -> f64 {
        move |connections| line.min(2.6 * connections as f64 / round_trip.as_secs_f64())
    }

    #[test]
    fn a_path_gets_as_many_connections_as_it_needs() {
        for (what, round_trip, line, expected) in [
            ("1 Gbit/s, 20 ms", 20, 125.0, &[1][..]),
            ("1 Gbit/s, 50 ms", 50, 125.0, &[1, 2, 3]),
            ("1 Gbit/s, 100 ms", 100, 125.0, &[1, 4, 6]),
            ("1 Gbit/s, 200 ms", 200, 125.0, &[1, 8, 12]),
            ("300 Mbit/s, 100 ms", 100, 37.5, &[1, 4]),
            ("170 Mbit/s, 100 ms", 100, 21.5, &[1, 4, 3]),
            ("100 Mbit/s, 100 ms", 100, 12.5, &[1]),
            ("10 Mbit/s, 200 ms", 200, 1.25, &[1]),
        ] {
            let round_trip = round_trip * MS;
            let seen = run(round_trip, 20, of_line(line, round_trip));
            assert_eq!(seen, expected, "{what}");
        }
    }

    #[test]
    fn a_receiver_that_is_behind_measures_nothing() {
        let (mut path, start) = (LongPath::new(16), Instant::now());
        for tick in 0..1000 {
            path.arrived(10 << 20, false, start + 10 * tick * MS, || 100 * MS);
        }
        assert_eq!(path.needed(), 1);
    }

    #[test]
    fn a_moment_without_bytes_takes_no_connection_away() {
        let (mut path, start) = (LongPath::new(16), Instant::now());
        let mut seen = Vec::new();
        for tick in 0..1000_u32 {
            // A whole look with nothing, now and then.
            let stalls = tick > 500 && (1..=20).contains(&(tick % 100));
            let bytes = if stalls { 0 } else { 250_000 };
            path.arrived(bytes, true, start + 10 * tick * MS, || 100 * MS);
            seen.push(path.needed());
        }
        assert!(seen[500] >= 2 && seen[500..].iter().all(|needed| *needed == seen[500]), "{path:?}");
    }

    #[test]
    fn an_unknown_round_trip_is_none() {
        assert_eq!(run(Duration::ZERO, 5, |_| 1000.0), [1]);
    }
}
