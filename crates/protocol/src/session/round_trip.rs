//! The round trip of a connection of which the kernel tells nothing, such as ssh's pipe: a few pings that the peer
//! answers. Pure: handed the time.

use std::time::{Duration, Instant};

use super::effect::Effect;
use super::outbox::SessionOutbox;
use crate::wire::{Body, Ping};

/// Pings that are answered on a connection. Who sends more gets no answers.
pub const MOST_ANSWERS: u32 = 8;
/// One ping may be late since a machine is busy, of so many hardly all are.
const ENOUGH: u32 = 3;
/// A peer that answers so late is taken for far away until others come sooner: who waits for it would wait long.
const LIKELY_FAR: Duration = Duration::from_millis(20);

/// Measurement of the round trip.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundTrip {
    /// This side measures.
    measures: bool,
    sent_at: Option<Instant>,
    /// Pings of this side that were answered.
    measured: u32,
    shortest: Option<Duration>,
    /// Pings of the peer that were.
    answered: u32,
}

impl RoundTrip {
    /// The shortest round trip, once enough were measured, or the first one if it is long.
    pub fn get(&self) -> Option<Duration> {
        self.shortest.filter(|shortest| self.measured >= ENOUGH || *shortest >= LIKELY_FAR)
    }

    /// Not measured yet, and only to be if `measures`.
    pub fn new(measures: bool) -> Self {
        Self { measures, ..Self::default() }
    }

    /// The connection's first ping, if it measures.
    pub(super) fn measure(&mut self, now: Instant, outbox: &mut SessionOutbox) {
        if self.measures {
            outbox.send(Body::Ping(self.ask(now)));
        }
    }

    /// The peer's ping: answers what it asks, and goes on measuring if it answers.
    pub(super) fn ping(&mut self, now: Instant, ping: &Ping, outbox: &mut SessionOutbox) {
        if let Some(answer) = self.answer(ping.asks) {
            outbox.send(Body::Ping(answer));
        }
        let is_asked = self.sent_at.is_some();
        self.answered(now, ping.answers);
        if is_asked && self.sent_at.is_none() {
            if self.get().is_some() {
                outbox.push(Effect::Measured);
            }
            if self.measured < ENOUGH {
                self.measure(now, outbox);
            }
        }
    }

    /// The next ping, at `now`.
    fn ask(&mut self, now: Instant) -> Ping {
        self.sent_at = Some(now);
        Ping { asks: self.measured + 1, answers: 0 }
    }

    /// The peer says that it got that. What it says of others is of no interest.
    fn answered(&mut self, now: Instant, number: u32) {
        if number == self.measured + 1
            && let Some(sent_at) = self.sent_at.take()
        {
            let took = now.saturating_duration_since(sent_at);
            self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
            self.measured = number;
        }
    }

    /// The answer to a ping of the peer, unless it had enough.
    fn answer(&mut self, number: u32) -> Option<Ping> {
        let is_due = number > 0 && self.answered < MOST_ANSWERS;
        self.answered += u32::from(is_due);
        is_due.then_some(Ping { asks: 0, answers: number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measurement after pings that took so long, and the number of the next one.
    fn after(took: &[u64]) -> (Option<Duration>, u32) {
        let (mut round_trip, mut now) = (RoundTrip::default(), Instant::now());
        for ms in took {
            let ping = round_trip.ask(now);
            now += Duration::from_millis(*ms);
            round_trip.answered(now, ping.asks + 1);
            round_trip.answered(now, ping.asks);
            round_trip.answered(now + Duration::from_secs(1), ping.asks);
        }
        (round_trip.get(), round_trip.ask(now).asks)
    }

    #[test]
    fn it_is_the_shortest_of_a_few() {
        assert_eq!(after(&[]), (None, 1));
        assert_eq!(after(&[9, 1]), (None, 3));
        assert_eq!(after(&[9, 1, 5]), (Some(Duration::from_millis(1)), 4));
        assert_eq!(after(&[40]), (Some(Duration::from_millis(40)), 2));
        assert_eq!(after(&[40, 1]), (None, 3), "it was a busy machine");
        assert_eq!(after(&[40, 1, 2]), (Some(Duration::from_millis(1)), 4));
    }

    #[test]
    fn a_peer_that_asks_without_end_is_answered_a_few_times() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.answer(0), None, "it did not ask");
        assert_eq!(round_trip.answer(7), Some(Ping { asks: 0, answers: 7 }));
        assert_eq!(
            (1..100).filter_map(|number| round_trip.answer(number)).count(),
            MOST_ANSWERS as usize - 1
        );
    }
}
