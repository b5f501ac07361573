//! Choice to pack further messages or frames, by what became of those that were packed. Pure. The values are rows of the
//! table in `docs/design/policy.md`.

/// Bytes a second from which on nothing is compressed unasked: the network takes more than one processor compresses.
pub const UNASKED_BELOW: u64 = 40_000_000;
/// Messages that go as they are, at most, before it is tried again to pack one: of data that begin to shrink, no more pass
/// unpacked than 1 MiB in frames of 64 KiB, and of noise one in 16 is packed in vain.
pub const MOST_PASSED_OVER: u32 = 15;
/// Of how many parts one must be saved: both ends' processors work for it.
pub const LEAST_SAVED: usize = 20;

/// Backoff of packing: after each message that hardly became less, twice as many are passed over.
#[derive(Debug, Default)]
pub struct PackBackoff {
    passed_over: u32,
    to_pass_over: u32,
}

impl PackBackoff {
    /// True if the next message is to be packed.
    pub const fn is_due(&mut self) -> bool {
        let is_due = self.passed_over >= self.to_pass_over;
        self.passed_over = if is_due { 0 } else { self.passed_over + 1 };
        is_due
    }

    /// One of so many bytes became one of so many. Tells whether that was worth it.
    pub fn packed(&mut self, from: usize, to: usize) -> bool {
        let is_worth_it = to <= from - from / LEAST_SAVED && to < from;
        self.to_pass_over = if is_worth_it { 0 } else { (2 * self.to_pass_over).clamp(1, MOST_PASSED_OVER) };
        is_worth_it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of the messages that are packed, of `count` that would all become this much of 1000.
    fn packed(backoff: &mut PackBackoff, count: usize, to: usize) -> Vec<usize> {
        let is_packed = |_: &usize| {
            let is_due = backoff.is_due();
            if is_due {
                backoff.packed(1000, to);
            }
            is_due
        };
        (0..count).filter(is_packed).collect()
    }

    #[test]
    fn a_table_of_savings() {
        for (from, to, is_worth_it) in [
            (100, 100, false),
            (100, 96, false),
            (100, 95, true),
            (100, 5, true),
            (1, 1, false),
            (1, 0, true),
            (0, 0, false),
        ] {
            assert_eq!(PackBackoff::default().packed(from, to), is_worth_it, "{from} {to}");
        }
    }

    #[test]
    fn what_does_not_become_less_is_packed_more_and_more_seldom() {
        let mut backoff = PackBackoff::default();
        assert_eq!(packed(&mut backoff, 200, 500).len(), 200);
        assert_eq!(packed(&mut backoff, 64, 990), [0, 2, 5, 10, 19, 35, 51]);
        let again = packed(&mut backoff, 64, 500);
        assert!(again[0] <= MOST_PASSED_OVER as usize, "it is tried again");
        assert_eq!(again.len(), 64 - again[0], "and goes on");
        assert_eq!(packed(&mut backoff, 3, 990), [0, 2], "from the beginning");
    }
    /// With a fixed number that are passed over, four of them were.
    #[test]
    fn of_what_shrinks_in_every_second_run_of_four_three_quarters_are_packed() {
        let mut backoff = PackBackoff::default();
        let shrinks = |n: &usize| (n / 4).is_multiple_of(2);
        let packed = (0..12_800).filter(|n| {
            let is_due = backoff.is_due();
            is_due && backoff.packed(1000, if shrinks(n) { 500 } else { 1000 })
        });
        assert_eq!(packed.count(), 4801);
    }
}
