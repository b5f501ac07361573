//! Choice to pack further messages, by what became of those that were packed. Pure.

/// Messages that go as they are, at most, before it is tried again to pack one.
const MOST_PASSED_OVER: u32 = 32;

/// Backoff of packing: after each that hardly became less, twice as many are passed over.
#[derive(Default)]
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

    /// One of so many bytes became one of so many.
    pub fn packed(&mut self, from: usize, to: usize) {
        let is_worth_it = to < from - from / 16;
        self.to_pass_over = if is_worth_it { 0 } else { (2 * self.to_pass_over).clamp(1, MOST_PASSED_OVER) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_become_less_is_packed_more_and_more_seldom() {
        let tried = |backoff: &mut PackBackoff, to| {
            (0..200)
                .filter(|_| {
                    let is_due = backoff.is_due();
                    if is_due {
                        backoff.packed(1000, to);
                    }
                    is_due
                })
                .count()
        };
        let mut backoff = PackBackoff::default();
        assert_eq!(tried(&mut backoff, 500), 200);
        let noise = tried(&mut backoff, 990);
        assert!((5..=11).contains(&noise), "{noise}");
        assert!(tried(&mut backoff, 500) >= 200 - MOST_PASSED_OVER as usize, "it is tried again");
    }
}
