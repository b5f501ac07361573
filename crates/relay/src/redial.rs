//! Which relay is tried next after a loss, and when. Pure.
//!
//! Both ends begin with the relay that carried the circuit and take the others in turn. The end that called stays at each
//! for a short time, the other one for long: so they meet.

use std::time::{Duration, Instant};

use towpath_link::Backoff;
use towpath_link::backoff::BackoffConfig;

/// So long the end that called waits at a relay for the other.
pub const CALLER_STAYS: Duration = Duration::from_secs(3);
/// So long the end that was called does.
pub const CALLEE_STAYS: Duration = Duration::from_secs(10);

const BACKOFF: BackoffConfig = BackoffConfig {
    first: Duration::from_millis(100),
    longest: Duration::from_secs(2),
    shortest: Duration::from_millis(20),
    forget_after: Duration::from_secs(60),
};

/// See the head of this module.
pub struct Redial {
    /// Relays in their order; those that refuse for good are not tried again.
    is_refused: Vec<bool>,
    at: usize,
    /// Attempts since the last one that succeeded.
    tried: usize,
    backoff: Backoff,
}

impl Redial {
    /// For so many relays, of which the one at `at` carries the circuit.
    pub fn new(relays: usize, at: usize) -> Self {
        Self { is_refused: vec![false; relays], at, tried: 0, backoff: Backoff::new(BACKOFF) }
    }

    /// The relay to try next, and how long to wait before; `None` if there is none. `random` is evenly distributed.
    pub fn next(&mut self, now: Instant, random: u64) -> Option<(usize, Duration)> {
        let relays = self.is_refused.len();
        let willing = self.is_refused.iter().filter(|&&is_refused| !is_refused).count();
        if willing == 0 {
            return None;
        }
        if self.tried > 0 {
            self.at = (self.at + 1) % relays;
        }
        while self.is_refused[self.at] {
            self.at = (self.at + 1) % relays;
        }
        let is_new_round = self.tried > 0 && self.tried.is_multiple_of(willing);
        let wait = if is_new_round { self.backoff.next(now, random) } else { Duration::ZERO };
        self.tried += 1;
        Some((self.at, wait))
    }

    /// That relay refuses for good.
    pub fn refused(&mut self) {
        self.is_refused[self.at] = true;
    }

    /// That relay carries the circuit now.
    pub const fn succeeded(&mut self) {
        self.tried = 0;
        self.backoff.succeeded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_relay_first_then_the_others_then_a_wait() {
        let (mut redial, now) = (Redial::new(3, 1), Instant::now());
        let next = |redial: &mut Redial| redial.next(now, u64::MAX).unwrap();
        assert_eq!([0; 3].map(|_| next(&mut redial).0), [1, 2, 0]);
        let (at, wait) = next(&mut redial);
        assert!(at == 1 && wait > Duration::from_millis(50), "{at} {wait:?}");
        redial.succeeded();
        assert_eq!(next(&mut redial), (1, Duration::ZERO));
        assert_eq!(next(&mut redial).0, 2);
        redial.refused();
        assert_eq!([0; 3].map(|_| next(&mut redial).0), [0, 1, 0]);
        redial.refused();
        assert_eq!([0; 2].map(|_| next(&mut redial).0), [1, 1]);
        redial.refused();
        assert_eq!(redial.next(now, 0), None);
    }
}
