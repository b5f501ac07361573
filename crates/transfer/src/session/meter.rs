//! Rate at which pieces come, measured while some are requested.

use std::time::{Duration, Instant};

use crate::rate::Rate;

/// The network as a session sees it. Its clock begins with the session.
pub(super) struct NetworkMeter {
    start: Instant,
    pieces: Rate,
}

impl NetworkMeter {
    /// Nothing was measured yet.
    pub(super) fn new(start: Instant) -> Self {
        Self { start, pieces: Rate::default() }
    }

    /// Since the session began.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The moment that is so long after the begin.
    pub(super) fn moment(&self, since_start: Duration) -> Instant {
        self.start + since_start
    }

    /// Pieces are requested.
    pub(super) fn requested(&mut self) {
        let now = self.now();
        self.pieces.requested(now);
    }

    /// A piece came.
    pub(super) fn came(&mut self, bytes: u64) {
        let now = self.now();
        self.pieces.arrived(now, bytes, false);
    }

    /// No piece is requested any more.
    pub(super) fn rests(&mut self) {
        let now = self.now();
        self.pieces.arrived(now, 0, true);
    }

    /// Bytes a second, while so many are requested; 0 if nothing is known.
    pub(super) fn rate(&self, requested: u64) -> f64 {
        let rate = self.pieces.get(self.now(), requested);
        if rate > 0.0 { rate } else { self.pieces.so_far() }
    }
}
