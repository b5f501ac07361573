//! The parts of a file as patches of an older version: the next ones are made on all cores while the last
//! ones travel, as hard as the network leaves time for.

use std::ops::Range;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::error::CopyError;

/// zstd's level while the network would wait for a harder one.
const EASY: i32 = 1;

/// Parts that are made at one time, at most: each takes some 35 MB.
const TOGETHER: usize = 4;

/// How hard parts are packed.
pub struct PatchLevels<W> {
    /// zstd's level of the first ones.
    pub first: i32,
    /// And of those for which there is time.
    pub hardest: i32,
    /// True if bytes that were sent wait for the network, so that there is time.
    pub waits: W,
}

/// Makes `count` parts by `make`, of a part and a level of zstd; `send` is handed
/// them in order until it wants no more. False: one could not be made. Blocks.
pub fn make_all<T: Send>(
    count: u64,
    levels: &PatchLevels<impl Fn() -> bool>,
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
    let mut level = levels.first;
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
        level = levels.next(making, sent.1);
    }
    Ok(true)
}

impl<W: Fn() -> bool> PatchLevels<W> {
    /// The level for what is made next, by how long the last ones took to be made and to be sent. Sending takes no time while
    /// the connection's window has room; then it shows by what waits that the network is the slower part.
    fn next(&self, making: Duration, sending: Duration) -> i32 {
        if sending > making || (self.waits)() { self.hardest } else { EASY }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn up_to<W: Fn() -> bool>(hardest: i32, waits: W) -> PatchLevels<W> {
        PatchLevels { first: EASY, hardest, waits }
    }

    #[test]
    fn all_are_sent_in_order() {
        for count in [1, 2, 7, 50] {
            let mut sent = Vec::new();
            let make = |part, _| Some(vec![part as u8]);
            let is_made = make_all(count, &up_to(9, || false), make, |patch| {
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
        assert!(!make_all(50, &up_to(9, || false), fails_at(0), |_| Ok(true)).unwrap());
        assert!(!make_all(50, &up_to(9, || false), fails_at(40), |_| Ok(true)).unwrap());
        assert!(
            make_all(50, &up_to(9, || false), fails_at(40), |_| Ok(false)).unwrap(),
            "no more was wanted"
        );
        let refuse = |_| Err(CopyError::HungUp);
        assert!(make_all(50, &up_to(9, || false), |_, _| Some(()), refuse).is_err());
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
        make_all(count, &up_to(9, || false), make, slowly).unwrap();
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
        let is_made = pool.install(|| make_all(200, &up_to(9, || false), make, |_| Ok(true)));
        assert!(is_made.unwrap());
        assert!((1..=TOGETHER).contains(&most.into_inner()));
    }

    #[test]
    fn a_table_of_levels() {
        let ms = Duration::from_millis;
        for (making, sending, hardest, waits, level) in
            [(10, 1, 9, false, 1), (10, 11, 9, false, 9), (1, 9, 1, false, 1), (10, 1, 9, true, 9)]
        {
            let found = up_to(hardest, || waits).next(ms(making), ms(sending));
            assert_eq!(found, level, "{making} {sending} {hardest} {waits}");
        }
    }
}
