//! Costs in seconds, measured as operations take them: moving averages (§6.2.1, §6.2.3).
//!
//! Until something was measured, an assumption stands in. The assumptions are those of a plain
//! solid-state disk and one core; the first measurement replaces them.

use std::time::Duration;

use towpath_transfer::rate::Average;

/// Most STATs do not lead to a perfect match (the paper's w, optional there): such that the old version in
/// the destination, with p = 0.6, is read before the directory above is listed, with p up to 1 the deeper it lies.
const STAT_WEIGHT: f64 = 1.8;
/// Files below this tell more of opening than of reading.
const TELLING_BYTES: u64 = 64 << 10;
/// Bytes of a chunk, on average, in recipes of most objects.
const CHUNK: u64 = 16 << 10;
/// Reading and hashing before anything was measured, bytes a second.
const ASSUMED_RATE: f64 = 500e6;
/// Rate that a good disk and several cores reach: until it is measured it can't be ruled out.
const HOPED_RATE: f64 = 1.5e9;

/// Costs of the disk's operations.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    stat: Average,
    chunk: Average,
    byte: Average,
    /// Bytes of a chunk as the recipe cuts them on average.
    chunk_bytes: u64,
    stat_weight: f64,
}

impl Default for Costs {
    /// Nothing measured; chunks as recipes of most objects cut them.
    fn default() -> Self {
        Self::new(CHUNK)
    }
}

impl Costs {
    /// Nothing measured; chunks of about so many bytes.
    pub fn new(chunk_bytes: u64) -> Self {
        let chunk_bytes = chunk_bytes.max(1);
        Self {
            stat: Average::assumed(200e-6),
            chunk: Average::assumed(chunk_bytes as f64 / ASSUMED_RATE + 50e-6),
            byte: Average::assumed(1.0 / ASSUMED_RATE),
            chunk_bytes,
            stat_weight: STAT_WEIGHT,
        }
    }

    /// With another weight of the cost of STATs (the paper's w).
    #[cfg(test)]
    pub(super) fn with_stat_weight(self, stat_weight: f64) -> Self {
        Self { stat_weight, ..self }
    }

    /// By how much a STAT counts as more costly than it is.
    pub fn stat_weight(&self) -> f64 {
        self.stat_weight
    }

    /// A directory was read, with a `stat` of each entry.
    pub fn listed(&mut self, took: Duration) {
        self.stat.add(took.as_secs_f64());
    }

    /// So much of a file was read on end, cut and hashed.
    pub fn hashed(&mut self, bytes: u64, took: Duration) {
        if bytes >= TELLING_BYTES {
            self.byte.add(took.as_secs_f64() / bytes as f64);
        }
    }

    /// Single chunks were read and hashed.
    pub fn read(&mut self, chunks: u64, took: Duration) {
        if chunks > 0 {
            self.chunk.add(took.as_secs_f64() / chunks as f64);
        }
    }

    /// OpCost(STAT).
    pub fn stat(&self) -> f64 {
        self.stat.get()
    }

    /// OpCost(CHUNK_HASH) of a chunk within a file that is read on end.
    pub fn chunk_in_passing(&self) -> f64 {
        self.byte.get() * self.chunk_bytes as f64
    }

    /// The same for a chunk that is read alone: with finding the place.
    pub fn chunk_alone(&self) -> f64 {
        self.chunk.get().max(self.chunk_in_passing())
    }

    /// OpCost(HASH) of a file of so many bytes, one chunk at least.
    pub fn hash(&self, size: u64) -> f64 {
        self.byte.get() * size.max(self.chunk_bytes) as f64
    }

    /// Bytes a second that could be read and hashed.
    pub fn hoped_rate(&self) -> f64 {
        if self.byte.is_measured() { self.hash_rate() } else { HOPED_RATE }
    }

    /// Bytes a second that are read and hashed.
    pub fn hash_rate(&self) -> f64 {
        1.0 / self.byte.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_do_not_tell_the_rate_of_the_disk() {
        let mut costs = Costs::new(16384);
        let before = costs.hash_rate();
        costs.hashed(100, Duration::from_secs(1));
        assert_eq!(costs.hash_rate(), before);
        costs.hashed(1 << 20, Duration::from_secs(1));
        assert!((costs.hash_rate() - 1_048_576.0).abs() < 1.0);
        assert!(costs.chunk_alone() >= costs.chunk_in_passing());
    }
}
