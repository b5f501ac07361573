//! Compression of what goes to the receiver: as hard as it asks while bytes wait for the network, and
//! no harder than costs hardly anything on a fast one for which none wait. Pure.

use towpath_protocol::Delivered;

use super::table::{EASY_LEVEL, LATE, OUTLINES_BELOW, PACKED_LESS_FROM, PACKED_LITTLE_FROM, QUICK_LEVEL};

/// True if a round trip more may save bytes.
pub fn likes_outlines(delivered: &Delivered) -> bool {
    delivered.fastest.is_none_or(|fastest| fastest < OUTLINES_BELOW)
}

/// zstd's level for what goes next, where the receiver asks for `hardest`.
pub fn compression_level(hardest: u32, delivered: &Delivered) -> i32 {
    let hardest = i32::try_from(hardest).unwrap_or(i32::MAX);
    match delivered.fastest {
        None => hardest.min(EASY_LEVEL),
        Some(PACKED_LITTLE_FROM..) if delivered.late < LATE => hardest.min(QUICK_LEVEL),
        Some(PACKED_LESS_FROM..) if delivered.late < LATE => hardest.min(EASY_LEVEL),
        _ => hardest,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_fast_network_has_no_time_for_round_trips() {
        for (fastest, is_liked) in [(None, true), (Some(1e6), true), (Some(1e7), false)] {
            assert_eq!(
                likes_outlines(&Delivered { fastest, ..Delivered::default() }),
                is_liked,
                "{fastest:?}"
            );
        }
    }

    #[test]
    fn what_a_fast_network_does_not_wait_for_is_packed_hard() {
        for (hardest, late, fastest, level) in [
            (9, 0, None, 3),
            (1, 0, None, 1),
            (9, 0, Some(1e6), 9),
            (9, 0, Some(1e7), 3),
            (9, 49, Some(1e8), 1),
            (9, 50, Some(1e8), 9),
            (9, 49, Some(1e7), 3),
            (9, 50, Some(1e7), 9),
            (1, 0, Some(1e7), 1),
            (0, 0, Some(1e7), 0),
        ] {
            let delivered = Delivered { late: Duration::from_millis(late), fastest };
            assert_eq!(compression_level(hardest, &delivered), level, "{hardest} {delivered:?}");
        }
    }
}
