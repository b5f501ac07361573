//! The parts of a file as patches of an older version: the next ones are made on all cores while the last
//! ones travel, as hard as the network leaves time for.

use std::ops::Range;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::error::CopyError;

/// Parts that are made at one time, at most: each takes some 41 MB.
const TOGETHER: usize = 4;

/// Makes `count` parts by `make`, of a part and the `level` of zstd, by whether the last ones took longer to be sent than to be
/// made: sending takes no time while the connection's window has room, and tells nothing of the network then. `send` is handed
/// them in order until it wants no more. False: one could not be made. Blocks.
pub fn make_all<T: Send>(
    count: u64,
    level: impl Fn(bool) -> i32,
    make: impl Fn(u64, i32) -> Option<T> + Sync,
    mut send: impl FnMut(T) -> Result<bool, CopyError>,
) -> Result<bool, CopyError> {
    let together = rayon::current_num_threads().min(TOGETHER) as u64;
    let batch = |start: u64| start..count.min(start + together);
    let made = |parts: Range<u64>, level| {
        let started = Instant::now();
        let made: Option<Vec<T>> = parts.into_par_iter().map(|part| make(part, level)).collect();
        Some((made?, started.elapsed()))
    };
    let mut next_level = level(false);
    let mut next = made(batch(0), next_level);
    for start in (0..count).step_by(together as usize) {
        let Some((ready, _)) = next else { return Ok(false) };
        let following = batch(start + together);
        let mut sent = (Ok(true), Duration::ZERO);
        // Not on a thread of the pool, as it waits for the network.
        next = std::thread::scope(|scope| {
            let making = scope.spawn(|| made(following, next_level));
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
        next_level = level(sent.1 > making);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const fn easy_or_hard(is_waited_for: bool) -> i32 {
        if is_waited_for { 9 } else { 1 }
    }

    #[test]
    fn all_are_sent_in_order() {
        for count in [1, 2, 7, 50] {
            let mut sent = Vec::new();
            let make = |part, _| Some(vec![part as u8]);
            let is_made = make_all(count, easy_or_hard, make, |patch| {
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
        assert!(!make_all(50, easy_or_hard, fails_at(0), |_| Ok(true)).unwrap());
        assert!(!make_all(50, easy_or_hard, fails_at(40), |_| Ok(true)).unwrap());
        assert!(make_all(50, easy_or_hard, fails_at(40), |_| Ok(false)).unwrap(), "no more was wanted");
        let refuse = |_| Err(CopyError::HungUp);
        assert!(make_all(50, easy_or_hard, |_, _| Some(()), refuse).is_err());
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
        make_all(count, easy_or_hard, make, slowly).unwrap();
        let levels = levels.into_inner().unwrap();
        assert_eq!(levels.first(), Some(&1));
        assert!(levels.contains(&9), "{levels:?}");
    }

    #[test]
    fn few_parts_are_made_at_one_time_however_many_cores_there_are() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let make = |part, _| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            Some(part)
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(16).build().unwrap();
        let is_made = pool.install(|| make_all(200, easy_or_hard, make, |_| Ok(true)));
        assert!(is_made.unwrap());
        assert!((1..=TOGETHER).contains(&most.into_inner()));
    }

    #[test]
    fn what_fits_the_window_is_packed_by_what_is_known_of_the_network() {
        let (known, levels) = (AtomicUsize::new(3), Mutex::new(Vec::new()));
        let level = |is_waited_for| if is_waited_for { 9 } else { known.load(Ordering::SeqCst) as i32 };
        let make = |_, level| {
            towpath_content::lock::lock(&levels).push(level);
            Some(())
        };
        let together = rayon::current_num_threads().min(TOGETHER) as u64;
        let mut sent = 0;
        let is_made = make_all(4 * together, level, make, |()| {
            sent += 1;
            if sent == together {
                known.store(7, Ordering::SeqCst);
            }
            Ok(true)
        });
        assert!(is_made.unwrap());
        let levels = levels.into_inner().unwrap();
        // Sending may have taken longer than making by chance.
        assert!(levels.first() == Some(&3) && levels.last() >= Some(&7), "{levels:?}");
    }
}
