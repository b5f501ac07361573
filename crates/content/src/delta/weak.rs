//! The rolling sum by which blocks are found at any place of the target.
//!
//! A polynomial in the bytes of a window, modulo 2^64, of which the upper 32 bits are the sum. It
//! rolls with three multiplications, of which one is on the critical path, so a byte takes about
//! four cycles. rsync's pair of sums is no faster and fills its 32 bits badly on short blocks (the
//! upper half of a sum of 64 bytes has few values), a cyclic polynomial cancels data that repeats
//! after its word's length, and gear hashes remember no more than 64 bytes. The lower bits of such
//! a polynomial are as weak as theirs (the lowest is a parity): every bit of the state flows into
//! the upper half, which is why only that half is used. For the same reason the last byte is
//! multiplied too: alone it would hardly reach the upper half.

/// The multiplier, chosen by Knuth for MMIX. Its powers pass the spectral test: small combinations of them,
/// which is what the sums of two similar blocks differ by, are far from 0.
const FACTOR: u64 = 6_364_136_223_846_793_005;

/// The polynomial's value for a window of a fixed length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WeakState(u64);

impl WeakState {
    /// The value for `window`.
    pub fn of(window: &[u8]) -> Self {
        const SQUARE: u64 = FACTOR.wrapping_mul(FACTOR);
        const CUBE: u64 = SQUARE.wrapping_mul(FACTOR);
        const FOURTH: u64 = CUBE.wrapping_mul(FACTOR);
        // Four bytes at a time, as the chain of multiplications is what takes the time.
        let (fours, rest) = window.as_chunks::<4>();
        let four = |state: u64, bytes: &[u8; 4]| {
            let [a, b, c, d] = bytes.map(u64::from);
            let new = a.wrapping_mul(FOURTH).wrapping_add(b.wrapping_mul(CUBE));
            let new = new.wrapping_add(c.wrapping_mul(SQUARE)).wrapping_add(d.wrapping_mul(FACTOR));
            state.wrapping_mul(FOURTH).wrapping_add(new)
        };
        let state = fours.iter().fold(0, four);
        let one = |state: u64, byte: &u8| state.wrapping_add((*byte).into()).wrapping_mul(FACTOR);
        Self(rest.iter().fold(state, one))
    }

    /// The sum.
    pub const fn weak(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Moves a window of one length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Roller {
    /// Factor of the byte that leaves.
    leaving: u64,
}

impl Roller {
    /// For windows of `len` bytes.
    pub const fn new(len: u32) -> Self {
        Self { leaving: FACTOR.wrapping_pow(len + 1) }
    }

    /// Moves on by one byte: `old` leaves, `new` enters.
    #[inline(always)]
    pub fn roll(self, state: WeakState, old: u8, new: u8) -> WeakState {
        let entering = u64::from(new).wrapping_mul(FACTOR);
        let change = entering.wrapping_sub(u64::from(old).wrapping_mul(self.leaving));
        WeakState(state.0.wrapping_mul(FACTOR).wrapping_add(change))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_rolled_sum_is_that_of_its_window(bytes: Vec<u8>, len in 1usize..70) {
            prop_assume!(bytes.len() > len);
            let mut state = WeakState::of(&bytes[..len]);
            for end in len..bytes.len() {
                state = Roller::new(len as u32).roll(state, bytes[end - len], bytes[end]);
                prop_assert_eq!(state, WeakState::of(&bytes[end - len + 1..=end]));
            }
        }
    }

    /// Distinct windows of 64 bytes that share a sum with another.
    fn collisions(windows: impl Iterator<Item = [u8; 64]>) -> usize {
        let windows: HashSet<_> = windows.collect();
        let mut sums = HashMap::new();
        windows.iter().for_each(|window| *sums.entry(WeakState::of(window).weak()).or_insert(0) += 1);
        sums.values().filter(|count| **count > 1).count()
    }

    /// Once the last byte was not multiplied, and all windows that differ in it alone had one sum.
    #[test]
    fn every_byte_reaches_the_sum() {
        for at in 0..64 {
            let window = |byte| std::array::from_fn(|i| if i == at { byte } else { 7 });
            assert_eq!(collisions((0..=255).map(window)), 0, "byte {at}");
        }
    }

    /// Sums of random data would give about one collision for 2^16.5 windows; each kind here has
    /// about 2^16.
    #[test]
    fn data_with_structure_collides_no_more_than_noise() {
        let numbers = (0..1u32 << 16).map(|n| {
            let mut window = [0; 64];
            window[30..34].copy_from_slice(&n.wrapping_mul(257).to_le_bytes());
            window
        });
        assert!(collisions(numbers) < 8, "one number among zeros");

        let text = (0..1u32 << 16).map(|n| {
            let mut window = [b' '; 64];
            let line = format!("{n:05} name = {:>8} ; value = {:x}", n / 7, n % 1000);
            window[..line.len()].copy_from_slice(line.as_bytes());
            window
        });
        assert!(collisions(text) < 8, "lines of a table");

        let swaps = (0..64 * 64).flat_map(|pair| {
            let swapped = |scale: u8| {
                let mut window: [u8; 64] = std::array::from_fn(|i| (i as u8).wrapping_mul(scale));
                window.swap(pair / 64, pair % 64);
                window
            };
            [1, 3, 4, 7, 8, 16, 31, 64].map(swapped)
        });
        assert!(collisions(swaps) < 8, "two bytes swapped");

        let two_bytes = (0..64 * 64 * 16).map(|n: usize| {
            let mut window = [0; 64];
            (window[n % 64], window[n / 64 % 64]) = (1 + (n / 4096) as u8, 255 - (n / 4096) as u8);
            window
        });
        assert!(collisions(two_bytes) < 8, "two bytes among zeros");
    }
}
