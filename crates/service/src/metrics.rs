//! Counters of the service. Its page is [`crate::metrics_page`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use towpath_api::{Event, SourceBytes, SourceList, Summary};
use towpath_content::lock::lock;
use towpath_protocol::Traffic;

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Into this machine.
    Get,
    /// Into the store, for others.
    Put,
    /// From path to path.
    Copy,
}

impl Direction {
    pub(crate) const ALL: [Self; 3] = [Self::Get, Self::Put, Self::Copy];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Copy => "copy",
        }
    }
}

/// Counts since the service started.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) transfers: [TransferCounts; Direction::ALL.len()],
    /// Over connections from peers.
    pub(crate) served: Arc<Traffic>,
    /// Over connections to peers.
    pub(crate) fetched: Arc<Traffic>,
    pub(crate) from_peers: AtomicU64,
    pub(crate) from_this_machine: AtomicU64,
    pub(crate) evicted_objects: AtomicU64,
    pub(crate) evicted_bytes: AtomicU64,
    pub(crate) reloads: [AtomicU64; 2],
    pub(crate) local_requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

#[derive(Debug, Default)]
pub(crate) struct TransferCounts {
    pub(crate) begun: AtomicU64,
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) refused: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Metrics {
    pub(crate) fn begun(&self, direction: Direction) {
        add(&self.transfers[direction as usize].begun, 1);
    }

    pub(crate) fn refused(&self, direction: Direction) {
        add(&self.transfers[direction as usize].refused, 1);
    }

    pub(crate) fn ended(&self, direction: Direction, is_done: bool) {
        let transfers = &self.transfers[direction as usize];
        add(if is_done { &transfers.done } else { &transfers.failed }, 1);
    }

    pub(crate) fn evicted(&self, evicted: &towpath_store::Evicted) {
        add(&self.evicted_objects, evicted.objects);
        add(&self.evicted_bytes, evicted.bytes);
    }

    /// The configuration was read again, and taken or not.
    pub fn reloaded(&self, is_done: bool) {
        add(&self.reloads[usize::from(is_done)], 1);
    }

    /// Counts a request of the local API: `call` is the pattern of its route.
    pub fn local_request(&self, call: &'static str, status: u16) {
        *lock(&self.local_requests).entry((call, status)).or_default() += 1;
    }

    fn brought(&self, source: &SourceBytes, bytes: u64) {
        let counter = if source.is_this_machine() { &self.from_this_machine } else { &self.from_peers };
        add(counter, bytes);
    }
}

/// Counts the bytes of one get by its events, which tell sums.
#[derive(Debug)]
pub struct Watch {
    metrics: Arc<Metrics>,
    seen: SourceList,
}

impl Watch {
    /// Nothing was seen yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, seen: SourceList::default() }
    }

    /// Looks at an event.
    pub fn event(&mut self, event: &Event) {
        if let Event::Transfer(progress) = event {
            self.sums(&progress.sources);
        }
    }

    /// Looks at the end.
    pub fn summary(&mut self, summary: &Summary) {
        self.sums(&summary.sources);
    }

    /// A get that begins anew counts from 0 in its events; its summary has it all.
    pub(crate) fn sums(&mut self, sources: &SourceList) {
        for source in &sources.0 {
            let new = source.bytes.saturating_sub(self.seen.bytes_of(source));
            self.metrics.brought(source, new);
            self.seen.add(SourceBytes { bytes: new, ..source.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_api::{PEER, Progress, THIS_MACHINE};

    #[test]
    fn bytes_are_counted_once_though_events_tell_sums() {
        let metrics: Arc<Metrics> = Arc::default();
        let mut watch = Watch::new(Arc::clone(&metrics));
        let sums = |peer: u64, here: u64| {
            let source =
                |kind: &str, bytes| SourceBytes { kind: kind.into(), bytes, ..SourceBytes::default() };
            SourceList(vec![source(PEER, peer), source(THIS_MACHINE, here)])
        };
        for (peer, here) in [(10, 0), (30, 7), (5, 7)] {
            watch.event(&Event::Transfer(Progress { sources: sums(peer, here), ..Progress::default() }));
        }
        watch.summary(&Summary { sources: sums(42, 8), ..Summary::default() });
        assert_eq!((read(&metrics.from_peers), read(&metrics.from_this_machine)), (42, 8));
    }
}
