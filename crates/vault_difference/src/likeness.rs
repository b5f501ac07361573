//! Old chunks that have bytes in common with a new one, wherever they lie: of a program that was linked again nearly every chunk
//! changes, and what was inserted before moves them all.
//!
//! Some windows of each old chunk are kept by their hashes: those that a hash itself chooses, so the same bytes are chosen wherever they
//! stand. The old chunk that has most windows of a new one is likely its older version. Nothing of it leaves this machine.

use std::collections::HashMap;

/// Bytes of a window.
const WINDOW: usize = 16;
/// One window of two to the power of this is kept, or fewer.
const LEAST_BITS: u32 = 5;
/// Windows that are kept, about: 8 bytes each.
const WINDOWS: u64 = 1 << 21;
/// A window that is in more chunks says nothing: zeros and the like.
const MOST_CHUNKS: usize = 8;
/// Windows in common, at least.
const LEAST_COMMON: u32 = 2;
/// Old chunks that are named for a new one, at most.
const NAMED: usize = 2;

/// Windows of some old chunks.
#[derive(Debug, Default)]
pub struct LikeChunks {
    bits: u32,
    /// Hashes of windows, and numbers of chunks: in order once all are there.
    windows: Vec<(u32, u32)>,
}

impl LikeChunks {
    /// Windows of chunks that are given one after the other, each with its number, and have about `length` bytes.
    pub fn of(length: u64) -> Self {
        let bits = (length / WINDOWS).max(1).ilog2() + 1;
        let bits = bits.max(LEAST_BITS);
        Self { bits, windows: Vec::with_capacity((length >> bits) as usize) }
    }

    /// Adds an old chunk.
    pub fn add(&mut self, number: u32, chunk: &[u8]) {
        let chosen = chosen(chunk, self.bits);
        self.windows.extend(chosen.into_iter().map(|hash| (hash, number)));
    }

    /// All are there.
    pub fn sorted(mut self) -> Self {
        self.windows.sort_unstable();
        self
    }

    /// Numbers of the old chunks that have most in common with this one, the nearest first.
    pub fn find(&self, chunk: &[u8]) -> Vec<u32> {
        if self.windows.is_empty() {
            return Vec::new();
        }
        let mut common = HashMap::<u32, u32>::new();
        for hash in chosen(chunk, self.bits) {
            let first = self.windows.partition_point(|(other, _)| *other < hash);
            let same =
                self.windows[first..].iter().take(MOST_CHUNKS + 1).take_while(|(other, _)| *other == hash);
            if same.clone().count() <= MOST_CHUNKS {
                same.for_each(|(_, number)| *common.entry(*number).or_default() += 1);
            }
        }
        let mut common: Vec<_> = common.into_iter().filter(|(_, count)| *count >= LEAST_COMMON).collect();
        common.sort_unstable_by_key(|(number, count)| (std::cmp::Reverse(*count), *number));
        common.into_iter().take(NAMED).map(|(number, _)| number).collect()
    }
}

/// Hashes of a chunk's windows that are chosen, in order, each once.
fn chosen(chunk: &[u8], bits: u32) -> Vec<u32> {
    let mask = (1 << bits) - 1;
    let mut chosen: Vec<u32> = chunk
        .windows(WINDOW)
        .map(hash)
        .filter(|hash| hash & mask == 0)
        .map(|hash| (hash >> u32::BITS) as u32)
        .collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

fn hash(window: &[u8]) -> u64 {
    let (words, _) = window.as_chunks::<8>();
    let mixed = words.iter().fold(0u64, |mixed, word| {
        (mixed.rotate_left(29) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..length).map(|_| random.u8(..)).collect()
    }

    fn of(chunks: &[Vec<u8>]) -> LikeChunks {
        let mut like = LikeChunks::of(chunks.iter().map(|chunk| chunk.len() as u64).sum());
        chunks.iter().zip(0..).for_each(|(chunk, number)| like.add(number, chunk));
        like.sorted()
    }

    #[test]
    fn an_old_version_is_found_wherever_it_lies_and_whatever_was_inserted() {
        let old: Vec<_> = (0..50).map(|seed| noise(seed, 8000)).collect();
        let like = of(&old);
        for (number, chunk) in (0..).zip(&old) {
            let mut new = noise(1000, 777);
            // Every 100th byte differs, as addresses do.
            new.extend(
                chunk[1000..].iter().enumerate().map(|(at, byte)| if at % 100 == 0 { !byte } else { *byte }),
            );
            assert_eq!(like.find(&new).first(), Some(&number));
        }
        assert_eq!(like.find(&noise(2000, 8000)), []);
    }

    #[test]
    fn what_all_chunks_have_says_nothing() {
        let mut old: Vec<_> = (0..20).map(|_| vec![0; 8000]).collect();
        old.push(noise(1, 8000));
        assert_eq!(of(&old).find(&[0; 8000]), []);
        assert_eq!(of(&old).find(&old[20]), [20]);
        assert_eq!(of(&[]).find(&[0; 8000]), []);
        assert_eq!(of(&[Vec::new(), vec![1]]).find(b"short"), []);
    }

    #[test]
    fn of_long_contents_fewer_windows_are_kept() {
        let mut like = LikeChunks::of(WINDOWS << 10);
        like.add(0, &noise(1, 1 << 20));
        let kept = like.windows.len();
        assert!((256..1024).contains(&kept), "{kept} of a mebibyte");
    }
}
