//! Where plaintext is cut: keyed, so that neither sizes nor contents tell where else a boundary would be.
//!
//! A rolling hash with a secret table is not enough: its key can be found from observed sizes (eprint 2025/532, 2025/558).
//! Here a universal hash over polynomials over GF(2) digests the last 64 bytes and AES-128 hides the digest. A chunk ends where the cipher's
//! low bits are 0. Chunks have 4 to 16 KiB, 8 KiB in the mean. Layout and vectors: `docs/formats/vault-blocks.md`.

mod kernel;

use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use zeroize::Zeroize;

use kernel::VectorSearch;

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
/// Parts of a window that are digested side by side, as each step waits for the one before.
const PARTS: usize = 4;

/// The places where chunks end, for one key.
pub struct KeyedBoundaries {
    hash: RollingHash,
    cipher: Aes128,
    /// The same cipher, if the processor has what that needs.
    wide: Option<VectorSearch>,
}

/// Digests of windows.
struct RollingHash {
    enters: Box<[u64; 256]>,
    /// What a byte adds to the digest of the window that it has just left.
    leaves: Box<[u64; 256]>,
}

impl KeyedBoundaries {
    /// Those of a key.
    pub fn new(key: &[u8; 32]) -> Self {
        let mut words = [0; 256 * 8 + 16];
        blake3::Hasher::new_keyed(key).finalize_xof().fill(&mut words);
        let (table, cipher) = words.split_at(256 * 8);
        let hash = RollingHash::new(table);
        let mut secret = [0; 16];
        secret.copy_from_slice(cipher);
        let (cipher, wide) = (Aes128::new(&Array::from(secret)), VectorSearch::new(&secret));
        secret.zeroize();
        words.zeroize();
        Self { hash, cipher, wide }
    }

    /// Bytes of the chunk that `bytes` begin with. There must be [`MAX_CHUNK`] of them, or all that is left.
    pub fn first_chunk(&self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(MAX_CHUNK)];
        let Some(window) = bytes.get(MIN_CHUNK - WINDOW..MIN_CHUNK) else { return bytes.len() };
        let first = (MIN_CHUNK, self.hash.digest(window));
        let searched = self.wide.as_ref().map_or(Err(first), |wide| wide.search(&self.hash, bytes, first));
        searched.unwrap_or_else(|next| self.search(bytes, next))
    }

    /// The first end at or behind a place, in front of which is a window with this digest.
    fn search(&self, bytes: &[u8], (mut at, mut digest): (usize, u64)) -> usize {
        let mut ciphers = [Array([0; 16]); BATCH];
        while at < bytes.len() {
            let batch = BATCH.min(bytes.len() - at);
            for (at, cipher) in (at..).zip(&mut ciphers[..batch]) {
                cipher.0 = u128::from(digest).to_le_bytes();
                digest = self.hash.roll(digest, bytes[at - WINDOW], bytes[at]);
            }
            self.cipher.encrypt_blocks(&mut ciphers[..batch]);
            let is_end = |cipher: &Array<u8, _>| u16::from_le_bytes([cipher[0], cipher[1]]) & MASK == 0;
            if let Some(found) = ciphers[..batch].iter().position(is_end) {
                return at + found;
            }
            at += batch;
        }
        bytes.len()
    }
}

impl RollingHash {
    fn new(table: &[u8]) -> Self {
        let (mut enters, mut leaves) = (Box::new([0; 256]), Box::new([0; 256]));
        for (at, word) in table.as_chunks::<8>().0.iter().enumerate() {
            enters[at] = u64::from_le_bytes(*word);
            leaves[at] = (0..WINDOW).fold(enters[at], |word, _| times_x(word));
        }
        Self { enters, leaves }
    }

    /// That of a window: the sum of x^(n-1-j) times the word of byte j.
    // By itself: within the wide search the compiler would gather the words by slow instructions.
    #[inline(never)]
    fn digest(&self, window: &[u8]) -> u64 {
        let mut parts = [0; PARTS];
        for step in 0..WINDOW / PARTS {
            for (part, sum) in parts.iter_mut().enumerate() {
                *sum = times_x(*sum) ^ self.enters[usize::from(window[part * WINDOW / PARTS + step])];
            }
        }
        parts.into_iter().fold(0, |digest, part| times_x16(digest) ^ part)
    }

    #[inline(always)]
    fn roll(&self, digest: u64, old: u8, new: u8) -> u64 {
        times_x(digest) ^ self.enters[usize::from(new)] ^ self.leaves[usize::from(old)]
    }
}

impl Drop for RollingHash {
    /// The ciphers zero their own keys.
    fn drop(&mut self) {
        self.enters.zeroize();
        self.leaves.zeroize();
    }
}

const fn times_x(word: u64) -> u64 {
    // No branch: nothing about the key shows in how long it takes.
    (word << 1) ^ (POLYNOMIAL & 0u64.wrapping_sub(word >> 63))
}

/// Times x^16, as many as the bytes of a part.
const fn times_x16(word: u64) -> u64 {
    let over = word >> 48;
    (word << 16) ^ over ^ (over << 1) ^ (over << 3) ^ (over << 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    /// The digest of a window by its definition.
    fn plain_digest(hash: &RollingHash, window: &[u8]) -> u64 {
        window.iter().fold(0, |digest, byte| times_x(digest) ^ hash.enters[usize::from(*byte)])
    }

    /// The first end by the definition of the format, one place after the other.
    fn plain_first_chunk(boundaries: &KeyedBoundaries, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(MAX_CHUNK)];
        let is_end = |at: &usize| {
            let digest = plain_digest(&boundaries.hash, &bytes[at - WINDOW..*at]);
            let mut cipher = Array(u128::from(digest).to_le_bytes());
            boundaries.cipher.encrypt_block(&mut cipher);
            u16::from_le_bytes([cipher[0], cipher[1]]) & MASK == 0
        };
        (MIN_CHUNK..bytes.len()).find(is_end).unwrap_or(bytes.len())
    }

    #[test]
    fn a_window_that_rolled_has_the_digest_of_its_bytes() {
        let hash = KeyedBoundaries::new(&[7; 32]).hash;
        let bytes = noise(1, 1000);
        let mut digest = hash.digest(&bytes[..WINDOW]);
        for at in WINDOW..bytes.len() {
            digest = hash.roll(digest, bytes[at - WINDOW], bytes[at]);
            assert_eq!(digest, plain_digest(&hash, &bytes[at + 1 - WINDOW..=at]), "{at}");
            assert_eq!(digest, hash.digest(&bytes[at + 1 - WINDOW..=at]), "{at}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Wide or not, a chunk ends where the definition says, at whatever length the bytes end.
        #[test]
        fn each_search_finds_the_end_that_the_definition_says(key: [u8; 32], seed: u64, length in 0..=MAX_CHUNK, values in 1..=255u8) {
            let mut boundaries = KeyedBoundaries::new(&key);
            let bytes: Vec<u8> = noise(seed, length).into_iter().map(|byte| byte % values).collect();
            let end = plain_first_chunk(&boundaries, &bytes);
            prop_assert_eq!(boundaries.first_chunk(&bytes), end);
            boundaries.wide = None;
            prop_assert_eq!(boundaries.first_chunk(&bytes), end);
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
