//! The round trip of a connection of which the kernel tells nothing, such as ssh's pipe: a few pings that the peer
//! answers. Pure: handed the time.

use std::time::{Duration, Instant};

use super::{Effect, Session};
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

impl Session {
    /// The shortest round trip of the first ones, if this connection measures it and enough are known.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.get()
    }

    /// The connection's first ping, if it measures.
    pub(super) fn measure(&mut self, now: Instant) {
        if self.config.measures {
            let ping = self.round_trip.ask(now);
            self.effects.push_back(Effect::Send(Body::Ping(ping)));
        }
    }

    pub(super) fn ping(&mut self, now: Instant, ping: &Ping) -> Result<(), String> {
        let answer = self.round_trip.answer(ping.asks);
        self.effects.extend(answer.map(|answer| Effect::Send(Body::Ping(answer))));
        let is_asked = self.round_trip.sent_at.is_some();
        self.round_trip.answered(now, ping.answers);
        if is_asked && self.round_trip.sent_at.is_none() {
            if self.round_trip.get().is_some() {
                self.effects.push_back(Effect::Measured);
            }
            if self.round_trip.measured < ENOUGH {
                self.measure(now);
            }
        }
        Ok(())
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
