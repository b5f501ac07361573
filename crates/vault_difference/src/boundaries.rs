//! Where plaintext is cut: keyed, so that neither sizes nor contents tell where else a boundary would be.
//!
//! A rolling hash with a secret table is not enough: its key can be found from observed sizes (eprint 2025/532, 2025/558).
//! Here a universal hash over polynomials over GF(2) digests the last 64 bytes and AES-128 hides the digest. A chunk ends where the cipher's
//! low bits are 0. Chunks have 4 to 16 KiB, 8 KiB in the mean. Layout and vectors: `docs/formats/vault-blocks.md`.

use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use zeroize::Zeroize;

/// The fewest bytes of a chunk, but for the last one.
pub const MIN_CHUNK: usize = 4 << 10;
/// The most bytes of a chunk.
pub const MAX_CHUNK: usize = 16 << 10;
/// Bytes that decide whether a chunk ends behind them.
const WINDOW: usize = 64;
/// A chunk ends where these bits are 0: once in 4,096 places beyond the minimum, so 8 KiB in the mean.
const MASK: u16 = 0xfff;
/// The polynomial x^64 + x^4 + x^3 + x + 1, without its highest term.
const POLYNOMIAL: u64 = 0b11011;
/// Digests that are encrypted together: the processor works on several at a time.
const BATCH: usize = 64;

/// The places where chunks end, for one key.
pub struct KeyedBoundaries {
    enters: Box<[u64; 256]>,
    /// What a byte adds to the digest of the window that it has just left.
    leaves: Box<[u64; 256]>,
    cipher: Aes128,
}

impl KeyedBoundaries {
    /// Those of a key.
    pub fn new(key: &[u8; 32]) -> Self {
        let mut words = [0; 256 * 8 + 16];
        blake3::Hasher::new_keyed(key).finalize_xof().fill(&mut words);
        let (table, cipher) = words.split_at(256 * 8);
        let mut enters = Box::new([0; 256]);
        let mut leaves = Box::new([0; 256]);
        for (at, word) in table.as_chunks::<8>().0.iter().enumerate() {
            enters[at] = u64::from_le_bytes(*word);
            leaves[at] = (0..WINDOW).fold(enters[at], |word, _| times_x(word));
        }
        let mut secret = [0; 16];
        secret.copy_from_slice(cipher);
        let cipher = Aes128::new(&Array::from(secret));
        secret.zeroize();
        words.zeroize();
        Self { enters, leaves, cipher }
    }

    /// Bytes of the chunk that `bytes` begin with. There must be [`MAX_CHUNK`] of them, or all that is left.
    pub fn first_chunk(&self, bytes: &[u8]) -> usize {
        let end = bytes.len().min(MAX_CHUNK);
        let mut at = MIN_CHUNK.min(end);
        let mut digest = self.digest(&bytes[at.saturating_sub(WINDOW)..at]);
        let mut ciphers = [Array([0; 16]); BATCH];
        while at < end {
            let batch = BATCH.min(end - at);
            for (at, cipher) in (at..).zip(&mut ciphers[..batch]) {
                cipher.0 = u128::from(digest).to_le_bytes();
                digest = self.roll(digest, bytes[at - WINDOW], bytes[at]);
            }
            self.cipher.encrypt_blocks(&mut ciphers[..batch]);
            let is_end = |cipher: &Array<u8, _>| u16::from_le_bytes([cipher[0], cipher[1]]) & MASK == 0;
            if let Some(found) = ciphers[..batch].iter().position(is_end) {
                return at + found;
            }
            at += batch;
        }
        end
    }

    /// That of a window: the sum of x^(n-1-j) times the word of byte j.
    fn digest(&self, window: &[u8]) -> u64 {
        window.iter().fold(0, |digest, byte| times_x(digest) ^ self.enters[usize::from(*byte)])
    }

    fn roll(&self, digest: u64, old: u8, new: u8) -> u64 {
        times_x(digest) ^ self.enters[usize::from(new)] ^ self.leaves[usize::from(old)]
    }
}

impl Drop for KeyedBoundaries {
    /// The cipher zeroes its own key.
    fn drop(&mut self) {
        self.enters.zeroize();
        self.leaves.zeroize();
    }
}

const fn times_x(word: u64) -> u64 {
    // No branch: nothing about the key shows in how long it takes.
    (word << 1) ^ (POLYNOMIAL & 0u64.wrapping_sub(word >> 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that look random and are the same in each run.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn cut(boundaries: &KeyedBoundaries, mut bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while !bytes.is_empty() {
            let len = boundaries.first_chunk(bytes);
            lengths.push(len);
            bytes = &bytes[len..];
        }
        lengths
    }

    #[test]
    fn a_window_that_rolled_has_the_digest_of_its_bytes() {
        let boundaries = KeyedBoundaries::new(&[7; 32]);
        let bytes = noise(1, 1000);
        let mut digest = boundaries.digest(&bytes[..WINDOW]);
        for at in WINDOW..bytes.len() {
            digest = boundaries.roll(digest, bytes[at - WINDOW], bytes[at]);
            assert_eq!(digest, boundaries.digest(&bytes[at + 1 - WINDOW..=at]), "{at}");
        }
    }

    #[test]
    fn chunks_have_the_lengths_that_are_said() {
        let lengths = cut(&KeyedBoundaries::new(&[1; 32]), &noise(2, 8 << 20));
        let (last, all) = lengths.split_last().unwrap();
        assert!(all.iter().all(|len| (MIN_CHUNK..=MAX_CHUNK).contains(len)) && *last <= MAX_CHUNK);
        let mean = (8 << 20) / lengths.len();
        assert!((7 << 10..9 << 10).contains(&mean), "{mean}");
        for short in [0, 1, 63, 64, MIN_CHUNK, MIN_CHUNK + 1] {
            assert_eq!(cut(&KeyedBoundaries::new(&[1; 32]), &noise(2, short)).iter().sum::<usize>(), short);
        }
    }

    #[test]
    fn a_byte_put_in_changes_one_or_two_chunks() {
        let boundaries = KeyedBoundaries::new(&[1; 32]);
        let old = noise(3, 1 << 20);
        let new = [&old[..500_000], b"x", &old[500_000..]].concat();
        let (old, new) = (cut(&boundaries, &old), cut(&boundaries, &new));
        let front = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let back = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        assert!(old.len() - front - back <= 3, "{} of {}", old.len() - front - back, old.len());
    }

    #[test]
    fn another_key_cuts_elsewhere() {
        let bytes = noise(4, 1 << 20);
        let ends = |key| {
            let mut end = 0;
            let chunks = cut(&KeyedBoundaries::new(&[key; 32]), &bytes).into_iter();
            let ends = chunks.map(|len| {
                end += len;
                end
            });
            ends.collect::<Vec<_>>()
        };
        let (one, other) = (ends(1), ends(2));
        let same = one.iter().filter(|end| other.contains(end)).count();
        assert!(same <= 3, "{same} of {}", one.len());
    }

    /// The vector of `docs/formats/vault-blocks.md`.
    #[test]
    fn the_documented_boundaries() {
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        let mut bytes = vec![0; 65_536];
        blake3::Hasher::new().update(b"towpath").finalize_xof().fill(&mut bytes);
        assert_eq!(
            cut(&KeyedBoundaries::new(&key), &bytes),
            [4459, 9811, 5567, 16384, 15291, 5798, 6617, 1609]
        );
    }
}
