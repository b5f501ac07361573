//! Ranges that wait for a connection: those that follow each other are asked for at once. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use towpath_content::Oid;

/// So many bytes that nobody wants are read between two ranges: a question of its own costs about as much.
pub(crate) const JOINED: u64 = 4 << 10;

/// Ranges of files that wait, with what belongs to each.
#[derive(Debug)]
pub(crate) struct RangeQueue<T> {
    waiting: BTreeMap<(Oid, u64, u64), WaitingRange<T>>,
    next: u64,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WaitingRange<T> {
    /// Its bytes in the file.
    pub(crate) range: Range<u64>,
    /// What belongs to it.
    pub(crate) of: T,
}

impl<T> Default for RangeQueue<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), next: 0 }
    }
}

impl<T> RangeQueue<T> {
    /// One more waits.
    pub(crate) fn push(&mut self, oid: Oid, range: Range<u64>, of: T) {
        self.waiting.insert((oid, range.start, self.next), WaitingRange { range, of });
        self.next += 1;
    }

    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.waiting.values().map(|waiting| waiting.range.end - waiting.range.start).sum()
    }

    /// Keeps those for which `keep` holds.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.waiting.retain(|_, waiting| keep(&waiting.of));
    }

    /// The one that waits longest, with those around it, in their order: of `limit` bytes together at most, unless it has more
    /// alone. No two overlap.
    pub(crate) fn take(&mut self, limit: u64) -> Option<(Oid, Vec<WaitingRange<T>>)> {
        let oldest = *self.waiting.keys().min_by_key(|(_, _, number)| number)?;
        let oid = oldest.0;
        let first = self.waiting.remove(&oldest)?;
        let Range { mut start, mut end } = first.range;
        let mut run = std::collections::VecDeque::from([first]);
        while let Some((key, next)) = self.waiting.range((oid, end, 0)..).next()
            && key.0 == oid
            && next.range.start - end <= JOINED
            && next.range.end - start <= limit
        {
            let key = *key;
            end = next.range.end;
            run.extend(self.waiting.remove(&key));
        }
        while let Some((key, before)) = self.waiting.range(..(oid, start, 0)).next_back()
            && key.0 == oid
            && before.range.end <= start
            && start - before.range.end <= JOINED
            && end - before.range.start <= limit
        {
            let key = *key;
            start = before.range.start;
            if let Some(before) = self.waiting.remove(&key) {
                run.push_front(before);
            }
        }
        Some((oid, run.into()))
    }

    /// The next one of a file from byte `from` on: for whoever reads it to its end.
    pub(crate) fn take_from(&mut self, oid: &Oid, from: u64) -> Option<WaitingRange<T>> {
        let (key, _) = self.waiting.range((*oid, from, 0)..).next().filter(|(key, _)| key.0 == *oid)?;
        let key = *key;
        self.waiting.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(name: &[u8]) -> Oid {
        Oid::of(name)
    }

    fn queue(ranges: &[Range<u64>]) -> RangeQueue<usize> {
        let mut queue = RangeQueue::default();
        for (number, range) in ranges.iter().enumerate() {
            queue.push(oid(b"a"), range.clone(), number);
        }
        queue
    }

    fn taken(queue: &mut RangeQueue<usize>, limit: u64) -> Vec<usize> {
        let run = queue.take(limit).map(|(_, run)| run).unwrap_or_default();
        assert!(run.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start), "{run:?}");
        run.iter().map(|waiting| waiting.of).collect()
    }

    const K: u64 = 1 << 10;

    #[test]
    fn the_oldest_goes_first_with_its_neighbours_on_both_sides() {
        let mut queue = queue(&[20 * K..30 * K, 100 * K..110 * K, 10 * K..20 * K, 33 * K..40 * K, 0..5 * K]);
        assert_eq!(
            taken(&mut queue, 1000 * K),
            [2, 0, 3],
            "5 KiB in front are too far, 3 KiB behind are not"
        );
        assert_eq!(taken(&mut queue, 1000 * K), [1]);
        assert_eq!(taken(&mut queue, 1000 * K), [4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_run_is_no_longer_than_it_may_be() {
        let mut queue = queue(&[0..10 * K, 10 * K..20 * K, 20 * K..30 * K]);
        assert_eq!(taken(&mut queue, 20 * K), [0, 1]);
        assert_eq!(taken(&mut queue, K), [2], "one alone may be longer");
    }

    #[test]
    fn what_overlaps_is_asked_for_apart() {
        let mut queue = queue(&[0..10, 0..10, 5..15, 10..20]);
        assert_eq!(taken(&mut queue, 100), [0, 3]);
        assert_eq!(taken(&mut queue, 100), [1]);
        assert_eq!(taken(&mut queue, 100), [2]);
    }

    #[test]
    fn files_are_asked_for_apart() {
        let mut queue = RangeQueue::default();
        queue.push(oid(b"a"), 0..10, 0);
        queue.push(oid(b"b"), 10..20, 7);
        assert_eq!(taken(&mut queue, 100), [0]);
        assert_eq!(queue.take_from(&oid(b"a"), 0), None);
        assert_eq!(queue.take_from(&oid(b"b"), 11), None);
        assert_eq!(queue.take_from(&oid(b"b"), 3).map(|waiting| waiting.of), Some(7));
    }
}
