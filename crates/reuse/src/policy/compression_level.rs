//! Compression of what goes to the receiver: as hard as it asks while bytes wait for the network, and
//! no harder than costs hardly anything on a fast one for which none wait. Pure.

use std::time::Duration;

use towpath_protocol::Delivered;

/// Delay from which messages wait for the network, or the receiver is slower; less comes of busy machines.
const LATE: Duration = Duration::from_millis(50);
/// On a network that is slower than this, in bytes a second, whatever becomes less is worth the time.
const SLOW: f64 = 4e6;
/// On one that is faster, hardly anything is.
const FAST: f64 = 12e6;
/// zstd's levels in between, and before anything is known of the network; and beyond.
const EASY: i32 = 3;
const QUICK: i32 = 1;

/// True if a round trip more may save bytes.
pub fn likes_outlines(delivered: &Delivered) -> bool {
    delivered.fastest.is_none_or(|fastest| fastest < SLOW)
}

/// zstd's level for what goes next, where the receiver asks for `hardest`.
pub fn compression_level(hardest: u32, delivered: &Delivered) -> i32 {
    let hardest = i32::try_from(hardest).unwrap_or(i32::MAX);
    match delivered.fastest {
        None => hardest.min(EASY),
        Some(FAST..) if delivered.late < LATE => hardest.min(QUICK),
        Some(SLOW..) if delivered.late < LATE => hardest.min(EASY),
        _ => hardest,
    }
}

#[cfg(test)]
mod tests {
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
