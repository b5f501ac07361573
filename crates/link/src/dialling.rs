//! Decision to dial: a connection that stands is used, one that was lost is dialled again after a
//! wait that grows until a connection proves useful. Pure: handed the time, the facts and the dice.

use std::time::{Duration, Instant};

use crate::backoff::{Backoff, BackoffConfig};

/// Decision about a connection that is needed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It stands.
    Use,
    /// Not now: ask again after this long.
    Wait(Duration),
    /// Dial now.
    Dial,
}

/// Time from which one connection may be dialled again.
#[derive(Debug, Clone)]
pub struct Dialling {
    backoff: Backoff,
    not_before: Option<Instant>,
}

impl Dialling {
    /// Nothing was dialled yet.
    pub const fn new(config: BackoffConfig) -> Self {
        Self { backoff: Backoff::new(config), not_before: None }
    }

    /// Decides what to do, given whether there is a connection.
    pub fn decide(&self, now: Instant, stands: bool) -> Decision {
        if stands {
            return Decision::Use;
        }
        match self.not_before.map(|at| at.saturating_duration_since(now)) {
            Some(wait) if !wait.is_zero() => Decision::Wait(wait),
            _ => Decision::Dial,
        }
    }

    /// An attempt is over, whether a connection came of it or not: it may be of no use. Returns how
    /// long to wait before the next one. `random` is evenly distributed over all of `u64`.
    pub fn dialled(&mut self, now: Instant, random: u64) -> Duration {
        let wait = self.backoff.next(now, random);
        self.not_before = now.checked_add(wait);
        wait
    }

    /// A short attempt is over, of which nothing came: the next one is due after `pause`, and counts as no failure.
    pub fn missed(&mut self, now: Instant, pause: Duration) -> Duration {
        self.not_before = now.checked_add(pause);
        pause
    }

    /// The connection brought what was asked: should it be lost, it is dialled again at once.
    pub const fn useful(&mut self) {
        self.backoff.succeeded();
        self.not_before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 1 << 63;

    fn millis(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn dialling() -> Dialling {
        Dialling::new(BackoffConfig { longest: millis(3000), ..BackoffConfig::default() })
    }

    #[test]
    fn the_first_time_is_now_and_what_stands_is_used() {
        let (dialling, now) = (dialling(), Instant::now());
        assert_eq!(dialling.decide(now, false), Decision::Dial);
        assert_eq!(dialling.decide(now, true), Decision::Use);
    }

    #[test]
    fn a_peer_that_is_away_is_dialled_more_and_more_seldom() {
        let (mut dialling, mut now) = (dialling(), Instant::now());
        for wanted in [250, 500, 1000, 1500, 1500] {
            let wait = dialling.dialled(now, HALF);
            assert_eq!(wait, millis(wanted));
            assert_eq!(dialling.decide(now, false), Decision::Wait(wait));
            assert_eq!(dialling.decide(now + wait - millis(1), false), Decision::Wait(millis(1)));
            now += wait;
            assert_eq!(dialling.decide(now, false), Decision::Dial);
        }
    }

    #[test]
    fn a_peer_that_accepts_only_to_hang_up_is_waited_for_like_one_that_is_away() {
        let (mut dialling, now) = (dialling(), Instant::now());
        dialling.dialled(now, HALF);
        assert_eq!(dialling.decide(now, true), Decision::Use, "while it stands");
        assert_eq!(dialling.decide(now, false), Decision::Wait(millis(250)));
        assert_eq!(dialling.dialled(now + millis(250), HALF), millis(500));
    }

    #[test]
    fn a_short_attempt_makes_no_later_one_wait() {
        let (mut dialling, now) = (dialling(), Instant::now());
        dialling.dialled(now, HALF);
        assert_eq!(dialling.missed(now + millis(250), millis(100)), millis(100));
        assert_eq!(dialling.decide(now + millis(300), false), Decision::Wait(millis(50)));
        assert_eq!(dialling.decide(now + millis(350), false), Decision::Dial);
        assert_eq!(dialling.dialled(now + millis(350), HALF), millis(500), "the second of the long ones");
    }

    #[test]
    fn a_connection_that_was_useful_is_dialled_again_at_once() {
        let (mut dialling, now) = (dialling(), Instant::now());
        dialling.dialled(now, HALF);
        dialling.dialled(now, HALF);
        dialling.useful();
        assert_eq!(dialling.decide(now, false), Decision::Dial);
        assert_eq!(dialling.dialled(now, HALF), millis(250), "and waited for as after the first time");
    }
}
