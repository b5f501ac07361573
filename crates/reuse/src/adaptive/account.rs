//! Figures for `--explain`: where bytes came from, what was searched, and what was the bottleneck when.

use std::time::Duration;

/// Changes of the bottleneck that are kept; later ones are counted.
const CHANGES: usize = 256;
/// Bottlenecks shorter than this tell a person nothing.
const SHORT: Duration = Duration::from_millis(200);

/// The resource that held the transfer up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// As much is under way as the connections carry.
    Network,
    /// The writer does not keep up.
    Disk,
    /// Arriving bytes are not taken up in time, though the writer keeps up.
    Processor,
    /// The network waits: the disk is about to find what is missing.
    Search,
}

/// One scheduler's account.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// Directories listed.
    pub stats: u64,
    /// Files hashed.
    pub hashes: u64,
    /// Bytes of them.
    pub hashed_bytes: u64,
    /// Chunks looked up in the index.
    pub checks: u64,
    /// Time that operations on the disk took.
    pub disk_time: Duration,
    /// Bytes from the network.
    pub from_network: u64,
    /// Bytes of these that did not have to come: made of regions of local files, by deltas.
    pub by_delta: u64,
    /// Bytes from hashed files.
    pub from_files: u64,
    /// Bytes from places that the index named.
    pub from_index: u64,
    /// Bytes that came from the network though they were here already.
    pub in_vain: u64,
    /// The budget kept the search from looking at more, if only for a while.
    pub is_limited: bool,
    /// Candidates forgotten because of the limits.
    pub forgotten: u64,
    /// Times the order was computed anew.
    pub recomputations: u64,
    /// Time that took.
    pub recomputing: Duration,
    /// Since when which resource was the bottleneck; those of less than 0.2 s are left out.
    pub changes: Vec<(Duration, Bottleneck)>,
    /// Changes that are not among them.
    pub changes_left_out: u64,
    pub(super) current: Option<(Duration, Bottleneck)>,
    pub(super) noted: Option<Bottleneck>,
}

impl Account {
    /// Notes what is the bottleneck now.
    pub(super) fn bottleneck(&mut self, now: Duration, bottleneck: Bottleneck) {
        if let Some((since, current)) = self.current
            && now.saturating_sub(since) >= SHORT
            && self.noted.replace(current) != Some(current)
        {
            match self.changes.len() {
                CHANGES => self.changes_left_out += 1,
                _ => self.changes.push((since, current)),
            }
        }
        if self.current.is_none_or(|(_, current)| current != bottleneck) {
            self.current = Some((now, bottleneck));
        }
    }

    /// Bytes that the disk brought.
    pub fn from_disk(&self) -> u64 {
        self.from_files + self.from_index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_noted_and_not_without_end() {
        let mut account = Account::default();
        for at in 0..10 {
            account.bottleneck(Duration::from_secs(at), Bottleneck::Network);
        }
        assert_eq!(account.changes, [(Duration::ZERO, Bottleneck::Network)]);
        for at in 0..1000 {
            let bottleneck = if at % 2 == 0 { Bottleneck::Disk } else { Bottleneck::Search };
            account.bottleneck(Duration::from_secs(at), bottleneck);
        }
        // The last one has not lasted yet.
        assert_eq!((account.changes.len(), account.changes_left_out), (CHANGES, 744));
    }

    #[test]
    fn what_lasts_a_moment_is_left_out() {
        let (network, disk) = (Bottleneck::Network, Bottleneck::Disk);
        let mut account = Account::default();
        for (at, bottleneck) in [
            (0, disk),
            (10, network),
            (100, network),
            (300, network),
            (310, disk),
            (500, network),
            (900, disk),
        ] {
            account.bottleneck(Duration::from_millis(at), bottleneck);
        }
        assert_eq!(account.changes, [(Duration::from_millis(10), network)]);
        account.bottleneck(Duration::from_millis(1200), disk);
        assert_eq!(account.changes[1..], [(Duration::from_millis(900), disk)]);
    }
}
