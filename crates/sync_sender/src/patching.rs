//! The parts of a file as patches of an older version: the next ones are made on all cores while the last
//! ones travel, as hard as the network leaves time for.

use std::ops::Range;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::error::CopyError;

/// zstd's level at first, and while the network would wait for a harder one.
const EASY: i32 = 1;

/// Makes `count` parts by `make`, of a part and a level of zstd, at most `hardest`; `send` is handed
/// them in order until it wants no more. False: one could not be made. Blocks.
pub fn make_all<T: Send>(
    count: u64,
    hardest: i32,
    make: impl Fn(u64, i32) -> Option<T> + Sync,
    mut send: impl FnMut(T) -> Result<bool, CopyError>,
) -> Result<bool, CopyError> {
    let together = rayon::current_num_threads() as u64;
    let batch = |start: u64| start..count.min(start + together);
    let made = |parts: Range<u64>, level| {
        let started = Instant::now();
        let made: Option<Vec<T>> = parts.into_par_iter().map(|part| make(part, level)).collect();
        Some((made?, started.elapsed()))
    };
    let mut level = EASY;
    let mut next = made(batch(0), level);
    for start in (0..count).step_by(together as usize) {
        let Some((ready, _)) = next else { return Ok(false) };
        let following = batch(start + together);
        let mut sent = (Ok(true), Duration::ZERO);
        // Not on a thread of the pool, as it waits for the network.
        next = std::thread::scope(|scope| {
            let making = scope.spawn(|| made(following, level));
            let started = Instant::now();
            sent.0 =
                ready.into_iter().map(&mut send).find(|sent| !matches!(sent, Ok(true))).unwrap_or(Ok(true));
            sent.1 = started.elapsed();
            making.join().ok().flatten()
        });
        if !sent.0? {
            return Ok(true);
        }
        let making = next.as_ref().map_or(Duration::ZERO, |(_, making)| *making);
        level = next_level(making, sent.1, hardest);
    }
    Ok(true)
}

/// The level for what is made next, by how long the last ones took to be made and to be sent.
fn next_level(making: Duration, sending: Duration, hardest: i32) -> i32 {
    if sending > making { hardest } else { EASY }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn all_are_sent_in_order() {
        for count in [1, 2, 7, 50] {
            let mut sent = Vec::new();
            let make = |part, _| Some(vec![part as u8]);
            let is_made = make_all(count, 9, make, |patch| {
                sent.extend(patch);
                Ok(true)
            });
            assert!(is_made.unwrap());
            assert_eq!(sent, (0..count as u8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_can_not_be_made_or_sent_is_the_end() {
        let fails_at = |at| move |part, _| (part != at).then_some(());
        assert!(!make_all(50, 9, fails_at(0), |_| Ok(true)).unwrap());
        assert!(!make_all(50, 9, fails_at(40), |_| Ok(true)).unwrap());
        assert!(make_all(50, 9, fails_at(40), |_| Ok(false)).unwrap(), "no more was wanted");
        let refuse = |_| Err(CopyError::HungUp);
        assert!(make_all(50, 9, |_, _| Some(()), refuse).is_err());
    }

    #[test]
    fn a_network_that_keeps_everybody_waiting_gets_harder_ones() {
        let levels = Mutex::new(Vec::new());
        let make = |_, level| {
            towpath_content::lock::lock(&levels).push(level);
            Some(())
        };
        let slowly = |_| {
            std::thread::sleep(Duration::from_millis(5));
            Ok(true)
        };
        let count = 8 * rayon::current_num_threads() as u64;
        make_all(count, 9, make, slowly).unwrap();
        let levels = levels.into_inner().unwrap();
        assert_eq!(levels.first(), Some(&1));
        assert!(levels.contains(&9), "{levels:?}");
        let ms = Duration::from_millis;
        assert_eq!(
            (next_level(ms(10), ms(1), 9), next_level(ms(10), ms(11), 9), next_level(ms(1), ms(9), 1)),
            (1, 9, 1)
        );
    }
}
