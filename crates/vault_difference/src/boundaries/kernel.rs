//! The search for a chunk's end on processors with AVX-512 and its AES: the digests of some places are made by other parts of the
//! processor while it encrypts those of the places before. The crate `aes` encrypts 64 blocks in a row, which is too much for that.
//!
//! The only unsafe code of this crate: it asks the processor what it has, and then uses it.

/// The cipher of a key, on a processor that has what the search needs.
pub struct VectorSearch {
    #[cfg(target_arch = "x86_64")]
    rounds: [std::arch::x86_64::__m128i; 11],
    #[cfg(not(target_arch = "x86_64"))]
    never: std::convert::Infallible,
}

/// There is none on other processors.
#[cfg(not(target_arch = "x86_64"))]
impl VectorSearch {
    /// None.
    pub const fn new(_: &[u8; 16]) -> Option<Self> {
        None
    }

    pub(super) fn search(
        &self,
        _: &super::RollingHash,
        _: &[u8],
        _: (usize, u64),
    ) -> Result<usize, (usize, u64)> {
        match self.never {}
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod wide {
    use std::arch::x86_64::*;

    use zeroize::Zeroize;

    use super::super::{MASK, RollingHash, WINDOW};
    use super::VectorSearch;

    /// Places that are digested together: two halves side by side, as each digest waits for the one before.
    const SPAN: usize = 256;
    const HALF: usize = SPAN / 2;
    /// Digests that are encrypted together.
    const GROUP: usize = 16;

    impl VectorSearch {
        /// That of a key, if the processor has what it needs.
        pub fn new(secret: &[u8; 16]) -> Option<Self> {
            let has_all = is_x86_feature_detected!("aes")
                && is_x86_feature_detected!("vaes")
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw");
            // SAFETY: the processor has AES.
            has_all.then(|| Self { rounds: unsafe { round_keys(u128::from_le_bytes(*secret)) } })
        }

        /// The first end at or behind a place, in front of which is a window with this digest. `Err`: there is none in front of
        /// another place.
        pub fn search(
            &self,
            hash: &RollingHash,
            bytes: &[u8],
            first: (usize, u64),
        ) -> Result<usize, (usize, u64)> {
            // SAFETY: `new` saw that the processor has AVX-512 and its AES.
            unsafe { search(&self.rounds, hash, bytes, first) }
        }
    }

    impl Drop for VectorSearch {
        fn drop(&mut self) {
            self.rounds.zeroize();
        }
    }

    /// The key schedule of AES-128.
    #[target_feature(enable = "aes")]
    fn round_keys(secret: u128) -> [__m128i; 11] {
        let first = _mm_set_epi64x((secret >> 64) as i64, secret as i64);
        let mut keys = [first; 11];
        macro_rules! rounds {
            ($($round:literal: $constant:literal),*) => { $(
                let mut key = keys[$round - 1];
                let last = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$constant>(key));
                for _ in 0..3 {
                    key = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
                }
                keys[$round] = _mm_xor_si128(key, last);
            )* };
        }
        rounds!(1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 32, 7: 64, 8: 128, 9: 27, 10: 54);
        keys
    }

    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    fn search(
        rounds: &[__m128i; 11],
        hash: &RollingHash,
        bytes: &[u8],
        (from, mut first): (usize, u64),
    ) -> Result<usize, (usize, u64)> {
        let keys = rounds.map(|key| _mm512_broadcast_i32x4(key));
        let (mut before, mut next) = (&mut [0; SPAN], &mut [0; SPAN]);
        let mut at = from;
        while let (Some(old), Some(new)) =
            (bytes[at - WINDOW..].first_chunk::<SPAN>(), bytes[at..].first_chunk())
        {
            let mut second = hash.digest(&old[HALF..HALF + WINDOW]);
            for (group, half) in (0..SPAN).step_by(GROUP).zip((0..HALF).step_by(GROUP / 2)) {
                if at > from
                    && let Some(found) = first_end(&keys, before, group)
                {
                    return Ok(at - SPAN + found);
                }
                for place in half..half + GROUP / 2 {
                    (next[place], next[place + HALF]) = (first, second);
                    first = roll(hash, first, (old, new), place);
                    second = roll(hash, second, (old, new), place + HALF);
                }
            }
            (first, at) = (second, at + SPAN);
            std::mem::swap(&mut before, &mut next);
        }
        let mut last = (0..SPAN).step_by(GROUP).filter(|_| at > from);
        let found = last.find_map(|group| first_end(&keys, before, group));
        found.map(|found| at - SPAN + found).ok_or((at, first))
    }

    #[inline(always)]
    fn roll(hash: &RollingHash, digest: u64, (old, new): (&[u8; SPAN], &[u8; SPAN]), place: usize) -> u64 {
        hash.roll(digest, old[place], new[place])
    }

    /// The first of the digests of a group behind which a chunk ends.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    fn first_end(keys: &[__m512i; 11], digests: &[u64; SPAN], group: usize) -> Option<usize> {
        let ([low, high], []) = digests[group..group + GROUP].as_chunks::<8>() else { return None };
        let (low, high, zero) = (words(low), words(high), _mm512_setzero_si512());
        // A block is a digest and zeros: of the even digests of a half, then of the odd ones.
        let mut blocks = [
            _mm512_unpacklo_epi64(low, zero),
            _mm512_unpackhi_epi64(low, zero),
            _mm512_unpacklo_epi64(high, zero),
            _mm512_unpackhi_epi64(high, zero),
        ];
        blocks = blocks.map(|block| _mm512_xor_si512(block, keys[0]));
        for key in &keys[1..10] {
            blocks = blocks.map(|block| _mm512_aesenc_epi128(block, *key));
        }
        let [even, odd, high_even, high_odd] = blocks.map(|block| _mm512_aesenclast_epi128(block, keys[10]));
        let mask = _mm512_set1_epi64(i64::from(MASK));
        let low = _mm512_testn_epi64_mask(_mm512_unpacklo_epi64(even, odd), mask);
        let high = _mm512_testn_epi64_mask(_mm512_unpacklo_epi64(high_even, high_odd), mask);
        let ends = u16::from_le_bytes([low, high]);
        (ends != 0).then(|| group + ends.trailing_zeros() as usize)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn words(words: &[u64; 8]) -> __m512i {
        // SAFETY: all its 64 bytes are there, and it need not be aligned.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }
}
