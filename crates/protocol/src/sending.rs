//! Frames of data on a path: their size, and whether they are compressed unasked. Pure:
//! handed what the kernel says and what came of earlier frames.
//!
//! On a slow path frames are small, so that what is urgent soon has its turn, and data that shrink are
//! compressed: there each byte costs the network more time than it costs a processor here. Where a limit is shared frames are small,
//! too: those who share it take turns by frames, and whoever asks for little at a time, the chunks that its disk lacks say, would get
//! a sixteenth of what one gets who asks for pieces.

use towpath_link::{PathInfo, frame_len, frame_len_at, suggested_outstanding};

use super::pack_backoff::{PackBackoff, UNASKED_BELOW};
use super::wire::MAX_PAYLOAD;

/// Least bytes that are compressed at once: of fewer, too little shrinks. The frame is shorter then.
const COMPRESSED_TOGETHER: usize = 64 << 10;

/// State of one connection's outgoing data.
#[derive(Debug, Default)]
pub(super) struct Sending {
    path: Option<PathInfo>,
    /// Bytes per second that all answers may take together.
    limit: Option<u64>,
    backoff: PackBackoff,
}

impl Sending {
    /// Takes the state of the path, `None` if the kernel knows nothing of it, and the limit on what is sent.
    pub(super) const fn look(&mut self, path: Option<PathInfo>, limit: Option<u64>) {
        (self.path, self.limit) = (path, limit);
    }

    /// Bytes to keep outstanding, as data frames carry it; 0 for no opinion.
    pub(super) fn suggested(&self) -> u32 {
        let suggested = self.path.as_ref().map_or(0, suggested_outstanding);
        u32::try_from(suggested).unwrap_or(u32::MAX)
    }

    /// Bytes of payload in a frame.
    pub(super) fn frame_len(&self) -> usize {
        let lens = [self.path.as_ref().map(frame_len), self.limit.map(frame_len_at)];
        lens.into_iter().flatten().fold(MAX_PAYLOAD, usize::min)
    }

    /// Bytes of payload in the next frame of something of which `left` are left. A little rest goes along: a head of
    /// its own would cost a slow path more than whatever is urgent then waits.
    pub(super) fn next_len(&self, left: usize) -> usize {
        let len = self.frame_len();
        if left <= (len + len / 2).min(MAX_PAYLOAD) { left } else { len }
    }

    /// Bytes to compress as one payload.
    pub(super) fn compressed_len(&self) -> usize {
        self.frame_len().max(COMPRESSED_TOGETHER)
    }

    /// True if the next frame is to be compressed, though nobody asked: only while data wait for a slow network, and not
    /// if others did not shrink.
    pub(super) fn tries(&mut self) -> bool {
        let is_slow =
            |path: &PathInfo| path.delivery_rate_bytes_per_s.is_some_and(|rate| rate < UNASKED_BELOW);
        self.path.is_some_and(|path| path.unsent_bytes > 0 && is_slow(&path)) && self.backoff.is_due()
    }

    /// Takes the result of one that was tried; `packed` is `None` if it did not shrink. Tells whether it was
    /// worth it.
    pub(super) fn tried(&mut self, plain: usize, packed: Option<usize>) -> bool {
        self.backoff.packed(plain, packed.unwrap_or(plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(rate: Option<u64>, unsent: u64) -> Sending {
        let path = PathInfo { delivery_rate_bytes_per_s: rate, unsent_bytes: unsent, ..PathInfo::default() };
        Sending { path: Some(path), ..Sending::default() }
    }

    #[test]
    fn frames_are_as_small_as_the_slower_of_path_and_limit_wants_them() {
        let len = |rate: Option<u64>, limit| {
            let path = rate.map(|rate| on(Some(rate), 0).path).unwrap_or_default();
            Sending { path, limit, ..Sending::default() }.frame_len() >> 10
        };
        let (slow, fast) = (Some(200_000), Some(1 << 30));
        assert_eq!([len(None, None), len(fast, None), len(None, fast)], [256; 3]);
        assert_eq!([len(slow, None), len(slow, fast), len(fast, slow), len(None, slow)], [16; 4]);
        assert_eq!(len(fast, Some(4 << 20)), 64);
    }

    #[test]
    fn only_a_network_that_is_slow_and_has_much_to_do_compresses() {
        let table = [
            ("DSL", Some(193_000), 9000, true),
            ("DSL, nothing waits: the disk or the other side is slower", Some(193_000), 0, false),
            ("100 Mbit/s", Some(12_500_000), 1, true),
            ("300 Mbit/s", Some(37_500_000), 100_000, true),
            ("350 Mbit/s", Some(43_750_000), 100_000, false),
            ("1 Gbit/s", Some(125_000_000), 1 << 20, false),
            ("not measured", None, 1 << 20, false),
        ];
        for (name, rate, unsent, is_tried) in table {
            assert_eq!(on(rate, unsent).tries(), is_tried, "{name}");
        }
        assert!(!Sending::default().tries(), "a pipe");
    }

    #[test]
    fn only_frames_that_could_be_tried_count_as_passed_over() {
        let mut line = on(Some(193_000), 1);
        assert!(line.tried(100, Some(95)) && line.tries());
        assert!(!line.tried(100, None));
        let busy = line.path.take();
        assert!((0..9).all(|_| !line.tries()));
        line.path = busy;
        assert_eq!([line.tries(), line.tries()], [false, true]);
    }

    #[test]
    fn frames_are_whole_where_nothing_is_known_and_small_where_it_is_slow() {
        let nothing = Sending::default();
        assert_eq!(
            (nothing.frame_len(), nothing.compressed_len(), nothing.suggested()),
            (256 << 10, 256 << 10, 0)
        );
        let slow = on(Some(193_000), 0);
        assert_eq!(
            (slow.frame_len(), slow.compressed_len(), slow.suggested()),
            (16 << 10, 64 << 10, 1 << 20)
        );
        assert_eq!([1000, 24 << 10, 25 << 10].map(|left| slow.next_len(left)), [1000, 24 << 10, 16 << 10]);
        assert_eq!([1000, 300 << 10].map(|left| nothing.next_len(left)), [1000, 256 << 10]);
    }
}
