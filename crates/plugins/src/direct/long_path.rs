//! Connections that a long, fast path needs, and those that are opened ahead. Pure: handed the time, the bytes that came and the round
//! trip.
//!
//! What one connection has under way is bounded by the buffers of both kernels, some 2.5 MB with Linux as it comes. At 1
//! Gbit/s and 100 ms that is a fifth of the path, and no loss tells of it. What is under way shows it, though: the rate times
//! the shortest round trip.
//!
//! | the path | connections |
//! |---|---|
//! | shorter than 30 ms | what [`super::widening`] says alone |
//! | has more than 2 MiB for each connection under way | half as many more: as long as each is full nobody knows how many would do |
//! | the same, over the first one | 2, from 60 ms on 4, from 120 ms on 8, from 180 ms on 12: each needs a second or two to become fast |
//! | has less than 1 MiB for each under way, twice in a row | one for each 1 MiB: with more than it needs BBR floods the path |
//!
//! A connection that is opened needs some round trips to become fast. As long nothing is taken back. To use several at once
//! before the first one is full was tried: on slower paths they lost packets to each other, and 70 MB took up to half as long again.
//! But round trips can be saved while what comes still doubles with each ([`PathGrowth`]):
//!
//! | while it grows so, and each connection has | then |
//! |---|---|
//! | 256 KiB under way | those of the next step are opened, and nothing is asked on them: they stand two round trips later |
//! | 1.5 MiB, and it is the first one | they are used: a round trip later it would have more than 2 MiB |
//!
//! Where it has ceased to grow for two round trips, those that are not used are closed again, and none are opened ahead until more are used: what
//! came in a burst behind a pause doubles, too, on any path.

use std::time::{Duration, Instant};

use super::path_growth::{PathGrowth, PathLook};

/// Shortest round trip of a long path.
const LONG: Duration = Duration::from_millis(30);
/// Bytes under way on each connection, as long as they double, with which the next ones are opened; and on the first one, with which they are
/// used.
const OPENS: u64 = 256 << 10;
const FILLS: u64 = 3 << 19;
/// Round trips without growth after which it is over.
const STILL: u32 = 2;
/// Bytes under way that a connection is counted on for.
const CARRIES: u64 = 2 << 20;
/// With fewer for each there are too many connections.
const IDLES: u64 = CARRIES / 2;
/// Connections once the first one is full, on paths of these shortest round trips.
const FIRST_STEP: [(Duration, usize); 3] =
    [(Duration::from_millis(180), 12), (Duration::from_millis(120), 8), (Duration::from_millis(60), 4)];
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
    growth: PathGrowth,
    /// Connections that are to stand while it grows, and round trips for which it has not.
    ahead: usize,
    still: u32,
    /// Those that were opened last were of no use.
    is_vain: bool,
}

impl LongPath {
    /// For as many connections as `most`.
    pub const fn new(most: usize) -> Self {
        let (since, grows_until, fewer) = (None, None, None);
        let (growth, ahead, still) = (PathGrowth::new(LONG), 1, 0);
        let is_vain = false;
        Self {
            most,
            needed: 1,
            since,
            look: LOOK,
            arrived: 0,
            grows_until,
            fewer,
            growth,
            ahead,
            still,
            is_vain,
        }
    }

    /// Connections that are needed at least.
    pub const fn needed(&self) -> usize {
        self.needed
    }

    /// Connections that are to stand: those that are needed, and some that may be soon.
    pub const fn ahead(&self) -> usize {
        if self.ahead > self.needed { self.ahead } else { self.needed }
    }

    /// So many bytes came at `now`. `is_waiting` says that the receiving side waits for the network. The path is asked for now and then.
    pub fn arrived(&mut self, bytes: u64, is_waiting: bool, now: Instant, path: impl Fn() -> PathLook) {
        self.arrived += bytes;
        let Some((since, before)) = self.since.filter(|_| is_waiting) else {
            self.since = Some((now, self.arrived));
            self.growth = PathGrowth::new(LONG);
            return;
        };
        if self.growth.is_due(now) {
            let look = path();
            if let Some(growth) = self.growth.look(look, now) {
                self.look_ahead((growth.under_way, growth.doubles), look.round_trip, now);
            }
        }
        let elapsed = now.saturating_duration_since(since);
        if elapsed < self.look {
            return;
        }
        let round_trip = path().round_trip;
        self.look = LOOK.max(round_trip * LOOK_ROUND_TRIPS);
        if elapsed < self.look {
            return;
        }
        self.since = Some((now, self.arrived));
        let rate = (self.arrived - before) as f64 / elapsed.as_secs_f64();
        self.judge((rate * round_trip.as_secs_f64()) as u64, round_trip, now);
    }

    /// So many bytes came in a round trip; `doubles`: about twice as many as in the one before.
    fn look_ahead(&mut self, (under_way, doubles): (u64, bool), round_trip: Duration, now: Instant) {
        self.still = if doubles { 0 } else { self.still + 1 };
        if self.still >= STILL && self.ahead > self.needed {
            (self.ahead, self.is_vain) = (self.needed, true);
        }
        let each = under_way / self.needed as u64;
        if !doubles || round_trip < LONG || each < OPENS {
            return;
        }
        let next = self.next_step(round_trip).min(self.most);
        match self.needed == 1 && each >= FILLS {
            true => self.raise(next, round_trip, now),
            false if self.is_vain => {}
            false => self.ahead = next,
        }
    }

    /// Connections of the next step.
    fn next_step(&self, round_trip: Duration) -> usize {
        match FIRST_STEP.iter().find(|(from, _)| self.needed == 1 && round_trip >= *from) {
            Some((_, first)) => *first,
            None => self.needed + self.needed.div_ceil(2),
        }
    }

    /// So many bytes are under way.
    fn judge(&mut self, under_way: u64, round_trip: Duration, now: Instant) {
        let (enough, at_most) = (connections(under_way, CARRIES), connections(under_way, IDLES));
        let fewer = self.fewer.take();
        if round_trip >= LONG && enough > self.needed {
            return self.raise(enough.max(self.next_step(round_trip)), round_trip, now);
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
            (self.needed, self.is_vain) = (needed, false);
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
        let (mut seen, mut heard) = (vec![path.needed()], 0);
        for tick in 0..seconds * 100 {
            let bytes = (rate(path.needed()) * 1e4) as u64;
            heard += bytes;
            path.arrived(bytes, true, start + 10 * tick * MS, || PathLook { round_trip, heard });
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
            ("1 Gbit/s, 200 ms", 200, 125.0, &[1, 12]),
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
            let look = || PathLook { round_trip: 100 * MS, heard: u64::from(tick) * (10 << 20) };
            path.arrived(10 << 20, false, start + 10 * tick * MS, look);
        }
        assert_eq!((path.needed(), path.ahead()), (1, 1));
    }

    /// Numbers of connections that stand, and that are used, with the round trip in which they change, where each connection begins with 15
    /// KB in a round trip and doubles that until it has 2.6 MB or the line, in Mbit/s, is full.
    fn begun(line: u32, round_trip: Duration) -> Vec<(u32, usize, usize)> {
        let (mut path, start) = (LongPath::new(16), Instant::now());
        let (mut seen, mut heard, mut begins) = (vec![(0, 1, 1)], 0, vec![0.0]);
        let of_line = f64::from(line) * 125.0 * round_trip.as_millis() as f64;
        for tick in 0..2000_u32 {
            let at = f64::from(tick) / 100.0;
            begins.resize(path.needed(), at);
            let each = |begin: &f64| (15e3 * (at - begin).exp2()).min(2.6e6);
            heard += (begins.iter().map(each).sum::<f64>().min(of_line) / 100.0) as u64;
            path.arrived(0, true, start + round_trip * tick / 100, || PathLook { round_trip, heard });
            let last = seen.last().map(|(_, ahead, needed)| (*ahead, *needed));
            if last != Some((path.ahead(), path.needed())) {
                seen.push((tick / 100, path.ahead(), path.needed()));
            }
        }
        seen
    }

    /// Only what comes in a round trip tells here; what is under way over longer times is told no bytes.
    #[test]
    fn connections_are_opened_while_the_first_still_doubles_and_closed_again_where_it_ceases() {
        for (what, line, round_trip, expected) in [
            (
                "1 Gbit/s, 200 ms",
                1000,
                200,
                &[(0, 1, 1), (5, 12, 1), (8, 12, 12), (15, 16, 12), (17, 12, 12)][..],
            ),
            ("1 Gbit/s, 100 ms", 1000, 100, &[(0, 1, 1), (5, 4, 1), (8, 4, 4)]),
            ("1 Gbit/s, 50 ms", 1000, 50, &[(0, 1, 1), (5, 2, 1), (8, 2, 2)]),
            ("1 Gbit/s, 20 ms", 1000, 20, &[(0, 1, 1)]),
            ("150 Mbit/s, 100 ms", 150, 100, &[(0, 1, 1), (5, 4, 1), (9, 1, 1)]),
            ("100 Mbit/s, 100 ms", 100, 100, &[(0, 1, 1), (5, 4, 1), (9, 1, 1)]),
            ("20 Mbit/s, 150 ms", 20, 150, &[(0, 1, 1), (5, 8, 1), (7, 1, 1)]),
        ] {
            assert_eq!(begun(line, round_trip * MS), expected, "{what}");
        }
    }

    #[test]
    fn what_comes_in_bursts_has_connections_opened_ahead_once() {
        let (mut path, start, mut heard, mut opened) = (LongPath::new(16), Instant::now(), 0, 0);
        for trip in 0..200_u64 {
            // Four round trips with bytes, the third with twice as many, and four with few.
            heard += [400_000, 400_000, 900_000, 900_000, 1000, 1000, 1000, 1000][trip as usize % 8];
            let before = path.ahead();
            path.arrived(0, true, start + 60 * trip as u32 * MS, || PathLook { round_trip: 60 * MS, heard });
            opened += usize::from(path.ahead() > before);
        }
        assert_eq!((opened, path.ahead()), (1, 1));
    }

    #[test]
    fn a_moment_without_bytes_takes_no_connection_away() {
        let (mut path, start) = (LongPath::new(16), Instant::now());
        let mut seen = Vec::new();
        for tick in 0..1000_u32 {
            // A whole look with nothing, now and then.
            let stalls = tick > 500 && (1..=20).contains(&(tick % 100));
            let bytes = if stalls { 0 } else { 250_000 };
            let look = || PathLook { round_trip: 100 * MS, heard: 0 };
            path.arrived(bytes, true, start + 10 * tick * MS, look);
            seen.push(path.needed());
        }
        assert!(seen[500] >= 2 && seen[500..].iter().all(|needed| *needed == seen[500]), "{path:?}");
    }

    #[test]
    fn an_unknown_round_trip_is_none() {
        assert_eq!(run(Duration::ZERO, 5, |_| 1000.0), [1]);
    }
}
