//! Rate at which pieces come, measured while some are requested.

use std::time::{Duration, Instant};

use crate::rate::Rate;

/// The network as a session sees it. Its clock begins with the session.
pub(super) struct NetworkGauge {
    start: Instant,
    pieces: Rate,
}

impl NetworkGauge {
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

    /// Pieces are asked for.
    pub(super) fn asked(&mut self) {
        let now = self.now();
        self.pieces.requested(now);
    }

    /// A piece came.
    pub(super) fn came(&mut self, bytes: u64) {
        let now = self.now();
        self.pieces.arrived(now, bytes, false);
    }

    /// No piece is asked for any more.
    pub(super) fn rests(&mut self) {
        let now = self.now();
        self.pieces.arrived(now, 0, true);
    }

    /// Bytes a second, while so many are asked for; 0 if nothing is known.
    pub(super) fn rate(&self, asked: u64) -> f64 {
        let rate = self.pieces.get(self.now(), asked);
        if rate > 0.0 { rate } else { self.pieces.so_far() }
    }
}
