//! Bytes that nothing packs and that stand nowhere else, the same for the same seed.

/// `len` such bytes (splitmix64).
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mut word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| word()).collect();
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_has_bytes_of_its_own() {
        assert_eq!(noise(1, 100), noise(1, 100));
        assert_eq!(noise(1, 100)[..9], noise(1, 9));
        let windows = [noise(1, 1000), noise(2, 1000)].concat();
        let mut runs: Vec<_> = windows.windows(8).collect();
        runs.sort_unstable();
        runs.dedup();
        assert_eq!(runs.len(), windows.len() - 7);
    }
}
