//! Content-defined chunks by Rabin fingerprints, as LBFS places them.
//!
//! A fingerprint is the remainder of the last 48 bytes, read as a polynomial over GF(2), by an
//! irreducible polynomial. A chunk ends behind a window whose fingerprint has a fixed value in its
//! low bits, but not before the least length, and at the greatest at the latest.

/// x^53 + x^52 + x^51 + x^50 + x^48 + … + 1, irreducible; part of the format.
const POLYNOMIAL: u64 = 0x3d_a335_8b4d_c173;
const DEGREE: u32 = 53;
/// Bytes of the window.
const WINDOW: usize = 48;
/// The low bits that end a chunk; not 0, so that runs of zeros do not end one at each byte.
const BREAK: u64 = 0x78;

/// Values that the fingerprint's highest byte becomes when it is pushed over its top, and that a byte has by the
/// time that it is pushed out of the window.
static CARRIED: [u64; 256] = table(DEGREE);
static LEAVING: [u64; 256] = table(8 * WINDOW as u32);

/// Each byte value times x^shift, modulo the polynomial.
const fn table(shift: u32) -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u64;
        let mut step = 0;
        while step < shift {
            remainder = times_x(remainder);
            step += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

const fn times_x(remainder: u64) -> u64 {
    let shifted = remainder << 1;
    if shifted >> DEGREE == 1 { shifted ^ POLYNOMIAL } else { shifted }
}

/// Rule for the ends of chunks, by lengths that were checked by [`super::Parameters::check`].
#[derive(Debug, Clone)]
pub(super) struct RabinRule {
    min: usize,
    max: usize,
    mask: u64,
}

impl RabinRule {
    pub(super) const fn new(min: u32, avg: u32, max: u32) -> Self {
        Self { min: min as usize, max: max as usize, mask: avg as u64 - 1 }
    }

    /// Length of the first chunk. A length below that of `bytes` holds whatever follows them.
    ///
    /// The least length is above that of the window, so the bytes of a chunk alone decide.
    pub(super) fn find(&self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.max)];
        let Some(first) = bytes.get(self.min.saturating_sub(WINDOW)..self.min) else {
            return bytes.len();
        };
        let mut print = first.iter().fold(0, |print, byte| enter(print, *byte));
        let leaving = &bytes[self.min - WINDOW..];
        for (at, (entering, leaving)) in bytes[self.min..].iter().zip(leaving).enumerate() {
            if print & self.mask == BREAK {
                return self.min + at;
            }
            // The byte that leaves needs nothing of the fingerprint, so it is at hand when that is.
            print = enter(print, *entering) ^ LEAVING[usize::from(*leaving)];
        }
        bytes.len()
    }
}

/// The fingerprint with one byte more.
const fn enter(print: u64, byte: u8) -> u64 {
    let top = (print >> (DEGREE - 8)) as usize;
    ((print << 8) & ((1 << DEGREE) - 1) | byte as u64) ^ CARRIED[top]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fingerprint by its definition, bit by bit.
    fn remainder(bytes: &[u8]) -> u64 {
        let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| u64::from(byte >> bit & 1)));
        bits.fold(0, |remainder, bit| times_x(remainder) ^ bit)
    }

    fn times(a: u64, b: u64) -> u64 {
        (0..DEGREE).rev().fold(0, |product, bit| times_x(product) ^ if b >> bit & 1 == 1 { a } else { 0 })
    }

    #[test]
    fn the_polynomial_is_irreducible() {
        // Of prime degree p, so it is if x^(2^p) = x and it has no factor of degree 1.
        let power = (0..DEGREE).fold(2, |power, _| times(power, power));
        assert_eq!(power, 2);
        assert_eq!(64 - POLYNOMIAL.leading_zeros(), DEGREE + 1);
        assert_eq!((POLYNOMIAL & 1, POLYNOMIAL.count_ones() % 2), (1, 1), "neither x nor x + 1 divides it");
    }

    #[test]
    fn a_rolled_fingerprint_is_that_of_the_window() {
        let bytes = super::super::tests::noise(b"rolled", 1000);
        let mut print = bytes[..WINDOW].iter().fold(0, |print, byte| enter(print, *byte));
        for at in WINDOW..bytes.len() {
            assert_eq!(print, remainder(&bytes[at - WINDOW..at]), "before {at}");
            print = enter(print, bytes[at]) ^ LEAVING[usize::from(bytes[at - WINDOW])];
        }
    }

    #[test]
    fn a_chunk_ends_behind_the_first_window_that_breaks() {
        let (min, avg, max) = (64, 256, 1024);
        for seed in 0..50u8 {
            let bytes = super::super::tests::noise(&[seed], 3000);
            let breaks = |len: &usize| remainder(&bytes[len - WINDOW..*len]) % avg == BREAK;
            let expected = (min..max).find(breaks).unwrap_or(max);
            assert_eq!(
                RabinRule::new(min as u32, avg as u32, max as u32).find(&bytes),
                expected,
                "seed {seed}"
            );
        }
    }
}
