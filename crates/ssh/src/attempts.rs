//! When the other side is dialled again, and when that is given up: in rounds over all its addresses, or by one link of this machine.

use std::time::{Duration, Instant};

use towpath_link::Backoff;
use towpath_link::backoff::BackoffConfig;
use towpath_link::tcp::DialError;

/// Attempts in a row that may fail; of a link, as long as nothing has held by it.
const MAX_FAILURES: u32 = 5;
/// A connection that was lost sooner counts as failed.
const HELD: Duration = Duration::from_secs(10);
/// The longest wait between attempts by a link.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Times to dial, and to give it up.
pub(crate) struct DialAttempts {
    backoff: Backoff,
    failures: u32,
}

impl DialAttempts {
    /// None was made.
    pub(crate) fn new() -> Self {
        Self { backoff: Backoff::new(BackoffConfig::default()), failures: 0 }
    }

    /// Time to wait before the next round; `None` if there have been enough.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        self.failures += 1;
        match self.failures {
            1 => Some(Duration::ZERO),
            2..=MAX_FAILURES => Some(self.backoff.next(Instant::now(), random())),
            _ => None,
        }
    }

    /// A connection was lost after it `held` for so long.
    pub(crate) const fn lost(&mut self, held: Duration) {
        if held.as_secs() >= HELD.as_secs() {
            self.failures = 1;
            self.backoff.succeeded();
        }
    }
}

/// Times to dial by a link. That this machine's side of it is missing counts for nothing: it may come.
#[derive(Default)]
pub(crate) struct LinkAttempts {
    backoff: Option<Backoff>,
    failures: u32,
    has_held: bool,
}

impl LinkAttempts {
    /// Attempts that may lead nowhere before anything has held.
    #[cfg(test)]
    pub(crate) const MOST_FAILURES: u32 = MAX_FAILURES;

    /// Time to wait before the next attempt; `None` if there have been enough.
    pub(crate) fn next(&mut self, now: Instant, random: u64) -> Option<Duration> {
        if !self.has_held && self.failures >= MAX_FAILURES {
            return None;
        }
        // The first one, and one after a connection that held, is due at once.
        let wait = self.backoff.as_mut().map(|backoff| backoff.next(now, random));
        let config = BackoffConfig { longest: LONGEST_WAIT, ..BackoffConfig::default() };
        self.backoff.get_or_insert_with(|| Backoff::new(config));
        Some(wait.unwrap_or_default())
    }

    /// An attempt led nowhere.
    pub(crate) fn failed(&mut self, error: &DialError) {
        let is_missing = matches!(
            error,
            DialError::NoSuchEnd { .. } | DialError::Unreachable { .. } | DialError::Local { .. }
        );
        self.failures += u32::from(!is_missing);
    }

    /// A connection was lost after it held for so long.
    pub(crate) fn lost(&mut self, held: Duration) {
        if held < HELD {
            self.failures += 1;
            return;
        }
        (self.has_held, self.failures, self.backoff) = (true, 0, None);
    }
}

/// A number for jitter; nothing secret depends on it.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use towpath_link::tcp::LocalEnd;

    use super::*;

    #[test]
    fn dialling_is_given_up_and_begins_anew_after_a_connection_that_held() {
        let mut attempts = DialAttempts::new();
        assert_eq!(attempts.next(), Some(Duration::ZERO));
        assert_eq!(std::iter::from_fn(|| attempts.next()).count(), MAX_FAILURES as usize - 1);
        attempts.lost(Duration::from_secs(1));
        assert_eq!(attempts.next(), None);
        attempts.lost(HELD);
        assert!(attempts.next().is_some_and(|wait| !wait.is_zero()));
    }

    fn refused() -> DialError {
        DialError::Refused { address: ([192, 0, 2, 1], 7).into() }
    }

    fn missing() -> DialError {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        DialError::NoSuchEnd { end: LocalEnd::Device("dock0".into()), source }
    }

    #[test]
    fn a_link_is_dialled_as_long_as_there_is_hope() {
        let (mut attempts, now) = (LinkAttempts::default(), Instant::now());
        let next = |attempts: &mut LinkAttempts| attempts.next(now, u64::MAX);
        assert_eq!(next(&mut attempts), Some(Duration::ZERO));
        for _ in 0..100 {
            attempts.failed(&missing());
            assert!(next(&mut attempts).is_some_and(|wait| !wait.is_zero() && wait <= LONGEST_WAIT));
        }
        for left in (0..MAX_FAILURES).rev() {
            attempts.failed(&refused());
            assert_eq!(next(&mut attempts).is_some(), left > 0);
        }
        let mut attempts = LinkAttempts::default();
        for _ in 0..MAX_FAILURES {
            attempts.lost(Duration::from_secs(1));
        }
        assert_eq!(next(&mut attempts), None, "the other side does not want it");
        attempts.lost(HELD);
        assert_eq!(next(&mut attempts), Some(Duration::ZERO));
        for _ in 0..100 {
            attempts.failed(&refused());
            assert!(next(&mut attempts).is_some(), "it led there once");
        }
    }
}
