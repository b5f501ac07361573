//! Requests to the network: how much is under way, how fast it comes, and how long the network
//! stood idle because the disk was about to find the rest.

use std::time::Duration;

use towpath_transfer::rate::Rate;

use super::benefit::wait_limit;

/// Bytes of one run that the network is asked for.
pub const RUN: u64 = 256 << 10;

/// The network as the scheduler sees it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkSide {
    rate: Rate,
    outstanding: u64,
    idle: Duration,
    idle_since: Option<Duration>,
}

impl NetworkSide {
    /// As measured so far, with nothing under way.
    pub fn new(rate: Rate) -> Self {
        Self { rate, ..Self::default() }
    }

    /// Bytes that were asked for and have not come.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Bytes a second; 0 before anything was measured.
    pub fn rate(&self, now: Duration) -> f64 {
        self.rate.get(now, self.outstanding.min(64 << 10))
    }

    /// Seconds for so many bytes; endless before anything was measured.
    pub fn time_for(&self, now: Duration, bytes: u64) -> f64 {
        let rate = self.rate(now);
        if rate > 0.0 { bytes as f64 / rate } else { f64::INFINITY }
    }

    /// Bytes were asked for.
    pub fn requested(&mut self, now: Duration, bytes: u64) {
        self.rate.requested(now);
        self.outstanding += bytes;
        self.stop_idling(now);
    }

    /// Bytes that were asked for came.
    pub fn arrived(&mut self, now: Duration, bytes: u64) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
        self.rate.arrived(now, bytes, self.outstanding == 0);
    }

    /// Bytes that were asked for will not come.
    pub fn given_up(&mut self, now: Duration, bytes: u64) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
        if self.outstanding == 0 {
            self.rate.arrived(now, 0, true);
        }
    }

    /// Nothing is asked for now, though something is missing: true if that may go on. `saved` is the
    /// time that the disk has saved so far.
    pub fn may_wait(&mut self, now: Duration, network_time: f64, saved: f64) -> bool {
        if self.outstanding == 0 {
            self.idle_since.get_or_insert(now);
        }
        self.idled(now).as_secs_f64() <= wait_limit(now.as_secs_f64(), network_time, saved)
    }

    /// Time that it stood idle.
    pub fn idled(&self, now: Duration) -> Duration {
        self.idle + self.idle_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    fn stop_idling(&mut self, now: Duration) {
        self.idle = self.idled(now);
        self.idle_since = None;
    }
}
