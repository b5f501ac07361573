//! Resources that can be used without slowing the transfer down (§4), by explicit queues.

use std::time::Duration;

use super::network::RUN;
use crate::policy::table::{PROCESSORS_FREE_BELOW, PROCESSORS_SHORT_FROM};

/// Bytes waiting for the writer above which the disk is left to it. What is merely in passing from the
/// network to the disk is below.
const BACKLOG_BUSY: u64 = 2 << 20;
/// The disk is free again below this: apart from the above, so that it does not flutter.
const BACKLOG_FREE: u64 = 512 << 10;
/// The same for bytes that wait in the kernel's receive queues.
const QUEUE_BUSY: u64 = 1 << 20;
const QUEUE_FREE: u64 = 256 << 10;
/// At least one in so many parts of the window is asked for at once, if that is less than a run.
const LEAST_SHARE: u64 = 16;
/// A queue that grows by this between two looks is building up.
const QUEUE_GROWTH: u64 = 128 << 10;

/// The queues as they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queues {
    /// Delivered and not written yet.
    pub writer_backlog: u64,
    /// Waiting in the kernel's receive queues.
    pub receive_queue: u64,
    /// Bytes that the network's connections can carry under way.
    pub window: u64,
    /// The network's round trip.
    pub round_trip: Duration,
    /// The share of the time in which something waits for a processor, in percent; 0 if nobody tells.
    pub processors: u64,
    /// The same for a disk, while nothing is searched.
    pub disks: u64,
}

/// State of the queues.
#[derive(Debug, Clone, Copy, Default)]
pub struct Backpressure {
    queues: Queues,
    writer_is_behind: bool,
    receiver_is_behind: bool,
    is_building_up: bool,
    processors_are_short: bool,
    disks_are_short: bool,
}

impl Backpressure {
    /// A look at the queues.
    pub fn look(&mut self, queues: Queues) {
        let above = |was, value, busy, free| if was { value > free } else { value > busy };
        self.is_building_up = queues.receive_queue > self.queues.receive_queue.saturating_add(QUEUE_GROWTH);
        self.writer_is_behind =
            above(self.writer_is_behind, queues.writer_backlog, BACKLOG_BUSY, BACKLOG_FREE);
        self.receiver_is_behind =
            above(self.receiver_is_behind, queues.receive_queue, QUEUE_BUSY, QUEUE_FREE);
        self.processors_are_short =
            above(self.processors_are_short, queues.processors, PROCESSORS_SHORT_FROM, PROCESSORS_FREE_BELOW);
        self.disks_are_short =
            above(self.disks_are_short, queues.disks, PROCESSORS_SHORT_FROM, PROCESSORS_FREE_BELOW);
        self.queues = queues;
    }

    /// True if the writer keeps up and the receive queue does not build up, so that reading and
    /// hashing are in nobody's way.
    pub fn disk_is_free(&self) -> bool {
        !self.writer_is_behind && !self.receiver_is_behind && !self.is_building_up
    }

    /// True if the receive queue builds up: no time for new schedules.
    pub fn receiver_is_behind(&self) -> bool {
        self.receiver_is_behind || self.is_building_up
    }

    /// True if the writer does not keep up.
    pub fn writer_is_behind(&self) -> bool {
        self.writer_is_behind
    }

    /// True if whatever is done keeps something else waiting for a processor.
    pub fn processors_are_short(&self) -> bool {
        self.processors_are_short
    }

    /// True if something waits for a processor or a disk most of the time.
    pub fn others_wait(&self) -> bool {
        self.processors_are_short || self.disks_are_short
    }

    /// Bytes that the network can be asked for now without a queue. None while they are few: each question would be for
    /// a chunk, and a peer takes only so many at once.
    pub fn room(&self, outstanding: u64) -> u64 {
        let Queues { window, .. } = self.queues;
        let room = window.saturating_sub(outstanding);
        if room < RUN.min(window / LEAST_SHARE) { 0 } else { room }
    }

    /// The network's round trip, seconds.
    pub fn round_trip(&self) -> f64 {
        self.queues.round_trip.as_secs_f64()
    }
}

/// Times at which the order of the operations is computed anew: only if it changed by a tenth, and for a tenth of
/// the time at most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recomputing {
    chunks: u64,
    operations: u64,
    spent: Duration,
    times: u64,
    is_asked: bool,
}

impl Recomputing {
    /// Share of chunks or operations that must have changed, and of the time that may be spent: one
    /// in so many.
    const TENTH: u64 = 10;

    /// True once, if the order is worth computing anew: for chunks missing of `total`, candidates,
    /// and the time since the transfer began.
    pub fn is_due(
        &mut self,
        now: Duration,
        chunks: u64,
        total: u64,
        operations: u64,
        load: &Backpressure,
    ) -> bool {
        let changed = |from: u64, to: u64, of: u64| from.abs_diff(to).saturating_mul(Self::TENTH) > of;
        let is_due = !self.is_asked
            && !load.receiver_is_behind()
            && self.spent * 10 <= now
            && (changed(self.chunks, chunks, total)
                || changed(self.operations, operations, self.operations.max(operations)));
        if is_due {
            (self.chunks, self.operations, self.is_asked) = (chunks, operations, true);
        }
        is_due
    }

    /// Something changed that concerns all candidates: new wants, a move that was found out.
    pub fn changed(&mut self) {
        self.chunks = u64::MAX;
    }

    /// It was done and took so long.
    pub fn took(&mut self, time: Duration) {
        self.spent += time;
        self.times += 1;
        self.is_asked = false;
    }

    /// Number of times it was done, and the time it took in all.
    pub fn spent(&self) -> (u64, Duration) {
        (self.times, self.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(writer_backlog: u64, receive_queue: u64) -> Queues {
        Queues { writer_backlog, receive_queue, window: 1 << 20, ..Queues::default() }
    }

    #[test]
    fn a_writer_that_is_behind_keeps_the_disk_until_it_caught_up() {
        let mut backpressure = Backpressure::default();
        for (backlog, is_free) in
            [(0, true), (1 << 20, true), (3 << 20, false), (1 << 20, false), (1 << 18, true)]
        {
            backpressure.look(queues(backlog, 0));
            assert_eq!(backpressure.disk_is_free(), is_free, "{backlog}");
        }
    }

    #[test]
    fn a_receive_queue_that_builds_up_stops_the_search() {
        let mut backpressure = Backpressure::default();
        for (queue, is_free) in
            [(0, true), (200 << 10, false), (210 << 10, true), (2 << 20, false), (300 << 10, false)]
        {
            backpressure.look(queues(0, queue));
            assert_eq!(backpressure.disk_is_free(), is_free, "{queue}");
        }
        assert_eq!(backpressure.room(1 << 19), 1 << 19);
        assert_eq!(backpressure.room(9 << 20), 0);
    }

    #[test]
    fn a_question_is_for_a_run_and_of_a_small_window_for_less() {
        for (window, least) in [(16 << 20, RUN), (1 << 20, 64 << 10), (64 << 10, 4 << 10)] {
            let mut backpressure = Backpressure::default();
            backpressure.look(Queues { window, ..Queues::default() });
            let asked =
                [0, window - least, window - least + 1].map(|outstanding| backpressure.room(outstanding));
            assert_eq!(asked, [window, least, 0]);
        }
    }

    #[test]
    fn processors_are_short_while_something_waits_for_one_most_of_the_time() {
        let mut backpressure = Backpressure::default();
        for (processors, are_short) in [(0, false), (60, false), (71, true), (50, true), (39, false)] {
            backpressure.look(Queues { processors, ..Queues::default() });
            assert_eq!(backpressure.processors_are_short(), are_short, "{processors}");
        }
    }

    #[test]
    fn the_order_is_computed_after_a_change_of_a_tenth_and_for_a_tenth_of_the_time() {
        let (mut recomputing, backpressure) = (Recomputing::default(), Backpressure::default());
        let at = Duration::from_secs;
        assert!(recomputing.is_due(at(1), 100, 100, 10, &backpressure));
        assert!(!recomputing.is_due(at(1), 100, 100, 99, &backpressure), "it is under way");
        recomputing.took(Duration::from_secs(1));
        assert!(!recomputing.is_due(at(9), 50, 100, 10, &backpressure), "no time for it yet");
        assert!(!recomputing.is_due(at(11), 90, 100, 11, &backpressure), "little changed");
        assert!(recomputing.is_due(at(11), 89, 100, 10, &backpressure));
        recomputing.took(Duration::ZERO);
        assert!(recomputing.is_due(at(11), 89, 100, 12, &backpressure));
        recomputing.took(Duration::ZERO);
        let mut busy = backpressure;
        busy.look(queues(0, 9 << 20));
        assert!(!recomputing.is_due(at(99), 1, 100, 1, &busy));
    }
}
