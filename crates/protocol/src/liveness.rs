//! Liveness of the other side: when to show it that we are there, and when its silence is the
//! end. Pure: handed the time.

use std::time::{Duration, Instant};

/// A ping goes out after this part of the silence that loses a connection.
const PING_PART: u32 = 4;
/// And after no more than this where somebody watches.
const PING_WATCHED: Duration = Duration::from_millis(500);
/// Longer than any connection lasts, and short enough to be added to any time.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Times at which each side last sent something.
#[derive(Debug, Clone)]
pub struct Liveness {
    silence: Duration,
    is_watched: bool,
    received: Instant,
    spoke: Instant,
    is_lost: bool,
}

impl Liveness {
    /// A connection that begins at `now` and is lost after `silence` without a byte.
    pub fn new(silence: Duration, now: Instant) -> Self {
        Self { silence: silence.min(FOREVER), is_watched: false, received: now, spoke: now, is_lost: false }
    }

    /// Somebody at the other side wants to see within a second or two that nothing comes.
    pub const fn watched(self, is_watched: bool) -> Self {
        Self { is_watched, ..self }
    }

    /// From now on another silence is too long.
    pub fn set_silence(&mut self, silence: Duration) {
        self.silence = silence.min(FOREVER);
    }

    /// The silence after which the connection is lost.
    pub const fn silence(&self) -> Duration {
        self.silence
    }

    /// After this long without a word a ping is due. Whoever waits for bytes looks up as often, as
    /// the limit may change meanwhile.
    pub fn part(&self) -> Duration {
        let part = self.silence / PING_PART;
        if self.is_watched { part.min(PING_WATCHED) } else { part }
    }

    /// Bytes came, or this side has only now begun to listen.
    pub fn received(&mut self, at: Instant) {
        self.received = self.received.max(at);
    }

    /// Bytes went out. Without a call of this, pings go out all the same.
    pub fn spoke(&mut self, at: Instant) {
        self.spoke = self.spoke.max(at);
    }

    /// Time at which a ping is due.
    pub fn ping_due(&self) -> Instant {
        self.spoke + self.part()
    }

    /// Time at which the connection is lost if nothing comes.
    pub fn lost_at(&self) -> Instant {
        self.received + self.silence
    }

    /// True if nothing came for too long, which is noted.
    pub fn lose(&mut self, now: Instant) -> bool {
        self.is_lost |= now >= self.lost_at();
        self.is_lost
    }

    /// True if the connection was lost because nothing came.
    pub const fn is_lost(&self) -> bool {
        self.is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn four_pings_fit_into_the_silence_that_is_too_long() {
        let now = Instant::now();
        let mut live = Liveness::new(20 * SECOND, now);
        assert_eq!((live.ping_due(), live.lost_at()), (now + 5 * SECOND, now + 20 * SECOND));
        live.spoke(now + 3 * SECOND);
        live.received(now + 4 * SECOND);
        assert_eq!((live.ping_due(), live.lost_at()), (now + 8 * SECOND, now + 24 * SECOND));
        live.received(now);
        assert_eq!(live.lost_at(), now + 24 * SECOND, "what was heard later counts");
    }

    #[test]
    fn a_limit_without_end_does_no_harm() {
        let now = Instant::now();
        let mut live = Liveness::new(Duration::MAX, now);
        assert!(live.lost_at() > now + 1000 * SECOND && live.ping_due() > now);
        live.set_silence(SECOND);
        assert_eq!(live.lost_at(), now + SECOND);
    }

    #[test]
    fn who_is_watched_shows_that_it_is_there_twice_a_second() {
        let now = Instant::now();
        let mut live = Liveness::new(60 * SECOND, now).watched(true);
        assert_eq!((live.ping_due(), live.lost_at()), (now + SECOND / 2, now + 60 * SECOND));
        live.set_silence(SECOND);
        assert_eq!(live.ping_due(), now + SECOND / 4, "four in any silence");
    }
}
