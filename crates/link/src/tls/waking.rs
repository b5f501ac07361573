//! For how many received bytes a task is worth waking: a decision of its own, without I/O.
//!
//! A network brings packets of some 1,400 bytes, a record holds 16 KiB, and a frame up to 1 MiB. To wake costs a process more
//! than the bytes of a packet do, so one that is woken by each of them spends most of its time on that.

use std::time::{Duration, Instant};

use super::record::{CONTENT, RECORD, record_len};
use crate::kernel::MOST_WAITING;

/// The bytes of a packet, about: so many come at once in any case.
const PACKET: usize = 1200;
/// Where reads follow each other as fast as this, a whole frame is waited for; else each record, for who listens wants to
/// see that something comes.
const SOON: Duration = Duration::from_millis(5);
/// What is around a record's content.
const AROUND: usize = RECORD - CONTENT;

/// See the head of this module.
pub(super) struct Waking {
    bytes: usize,
    /// The most bytes that are waited for at once, where reads follow each other as fast as this.
    most: usize,
    soon: Duration,
    read_at: Instant,
    is_fast: bool,
}

impl Waking {
    /// Every byte is worth it.
    pub(super) const fn new(now: Instant) -> Self {
        Self { bytes: 1, most: MOST_WAITING, soon: SOON, read_at: now, is_fast: false }
    }

    /// So many bytes may be waited for at once from now on, where reads follow each other as fast as this.
    pub(super) const fn wait_for(&mut self, most: usize, soon: Duration) {
        (self.most, self.soon) = (most, soon);
    }

    /// Something was read at `now`.
    pub(super) fn has_read(&mut self, now: Instant) {
        self.is_fast = now.saturating_duration_since(self.read_at) < self.soon;
        self.read_at = now;
    }

    /// Bytes worth waking for where `least` bytes of content are wanted, of whose records `raw` has come; `None` if the
    /// socket knows that already.
    pub(super) fn at(&mut self, raw: &[u8], least: usize) -> Option<usize> {
        let missing = missing(raw, if self.is_fast { least } else { 1 });
        self.set(if missing > PACKET { missing.min(self.most) } else { 1 })
    }

    /// The same where anything is worth it.
    pub(super) fn at_once(&mut self) -> Option<usize> {
        self.set(1)
    }

    fn set(&mut self, bytes: usize) -> Option<usize> {
        (std::mem::replace(&mut self.bytes, bytes) != bytes).then_some(bytes)
    }
}

/// Bytes that have to come at least before there is `least` content, if `raw` is what came of its records.
fn missing(raw: &[u8], least: usize) -> usize {
    let begun = record_len(raw).ok().flatten();
    let content = begun.map_or(0, |len| len.saturating_sub(AROUND));
    let behind = least.saturating_sub(content);
    let records = begun.unwrap_or(0) + behind + behind.div_ceil(CONTENT) * AROUND;
    records.saturating_sub(raw.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first `come` bytes of a record with so much content.
    fn begun(content: usize, come: usize) -> Vec<u8> {
        let [high, low] = ((content + AROUND - 5) as u16).to_be_bytes();
        [&[0x17, 3, 3, high, low][..], &vec![9; content + AROUND - 5]].concat()[..come].to_vec()
    }

    #[test]
    fn what_is_waited_for_is_what_has_to_come_in_any_case() {
        for (name, raw, least, bytes) in [
            ("nothing yet, a frame's head", begun(100, 0), 4, 4 + AROUND),
            ("nothing yet, a full record", begun(100, 0), CONTENT, RECORD),
            ("nothing yet, two records", begun(100, 0), CONTENT + 1, RECORD + 1 + AROUND),
            ("half of a record's head", begun(100, 3), 4, 1 + AROUND),
            ("a record that is enough", begun(CONTENT, 1000), 4, RECORD - 1000),
            ("a record that is not enough", begun(100, 50), 300, 100 + AROUND - 50 + 200 + AROUND),
            ("all but its last byte", begun(CONTENT, RECORD - 1), CONTENT, 1),
            ("what is no record", b"GET / HTTP/1.1".to_vec(), 4, 4 + AROUND - 14),
            ("much of what is no record", vec![b'G'; 999], 4, 1),
        ] {
            assert_eq!(missing(&raw, least), bytes, "{name}");
        }
    }

    #[test]
    fn a_whole_frame_is_waited_for_only_while_bytes_come_fast() {
        let start = Instant::now();
        let mut waking = Waking::new(start);
        let (raw, frame) = (begun(CONTENT, 2000), 200_000);
        assert_eq!(waking.at(&raw, frame), Some(RECORD - 2000));
        assert_eq!(waking.at(&raw, frame), None, "the socket knows");
        waking.has_read(start + SOON);
        assert_eq!(waking.at(&raw, frame), None, "slow: each record");
        waking.has_read(start + SOON * 2 - Duration::from_nanos(1));
        assert_eq!(waking.at(&raw, frame), Some(MOST_WAITING), "fast: as much as its window allows");
        assert_eq!(waking.at(&raw, CONTENT), Some(RECORD - 2000), "or as is of use");
        waking.wait_for(100_000, SOON * 2);
        assert_eq!(waking.at(&raw, frame), Some(100_000), "or as one who gathers may wait for");
        assert_eq!(waking.at(&raw[..0], 4), Some(1), "a frame's head comes with any packet");
        assert_eq!(waking.at_once(), None);
    }
}
