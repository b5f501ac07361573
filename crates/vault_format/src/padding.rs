//! Padmé padding: lengths are rounded up so that few of them exist, for at most 12 % more bytes.
//!
//! A length of which the exponent has s bits keeps s + 1 significant bits (Nikitin et al., "Reducing Metadata Leakage from
//! Encrypted Files and Communication with PURBs", 2019).

/// The length that `length` is padded to: as long or longer.
pub const fn padded_len(length: usize) -> usize {
    if length < 2 {
        return length;
    }
    let exponent = length.ilog2();
    let significant = exponent.ilog2() + 1;
    let mask = (1usize << exponent.saturating_sub(significant)) - 1;
    (length + mask) & !mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_adds_at_most_twelve_percent_and_leaves_few_lengths() {
        let mut lengths = std::collections::BTreeSet::new();
        for length in 0..=(1usize << 17) {
            let padded = padded_len(length);
            assert!(padded >= length && (padded - length) * 100 <= length * 12, "{length} -> {padded}");
            assert_eq!(padded_len(padded), padded);
            if (4096..16_384).contains(&length) {
                lengths.insert(padded);
            }
        }
        assert!(lengths.len() <= 34, "{}", lengths.len());
    }

    #[test]
    fn known_lengths() {
        for (length, padded) in [(0, 0), (1, 1), (9, 10), (100, 104), (1000, 1024), (10_000, 10_240)] {
            assert_eq!(padded_len(length), padded, "{length}");
        }
    }
}
