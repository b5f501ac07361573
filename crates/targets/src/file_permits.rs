//! Permits for files under way: the bound of those requested and not in place yet.
//!
//! A file takes its permit when it is requested and leaves it when it has its name or is given up.
//! The thread that waits for one, or for the last ones, sleeps until something happens to one of them.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;

/// Bytes of paths and attributes of all files under way, at most: a sender may give each file 256 KiB of them.
pub const MOST_BYTES: usize = 16 << 20;
/// Interval of looks whether all files under way wait for their names.
const LOOK: Duration = Duration::from_millis(20);
/// Time that moves are waited for together.
const MOVES: Duration = Duration::from_millis(1);

/// All permits of a copy.
pub struct FilePermits {
    count: usize,
    free: Semaphore,
    free_bytes: Semaphore,
    moved: OnceLock<SyncSender<()>>,
}

/// Moves of files, for the one thread that waits for them.
pub struct FileMoves(Receiver<()>);

/// One file's permit, left when it is dropped.
pub struct FilePermit {
    permits: Arc<FilePermits>,
    bytes: usize,
}

impl FilePermits {
    /// So many permits, all free.
    pub fn new(count: usize) -> Arc<Self> {
        let (free, free_bytes) = (Semaphore::new(count), Semaphore::new(MOST_BYTES));
        Arc::new(Self { count, free, free_bytes, moved: OnceLock::new() })
    }

    /// Begins to tell of moves: once.
    pub fn moves(&self) -> FileMoves {
        let (moved, moves) = sync_channel(1);
        let _ = self.moved.set(moved);
        FileMoves(moves)
    }

    /// Takes a permit for a file of which so many bytes are kept, if one is free.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<FilePermit> {
        let bytes = bytes.min(MOST_BYTES);
        let free = self.free.try_acquire().ok()?;
        self.free_bytes.try_acquire_many(bytes as u32).ok()?.forget();
        free.forget();
        Some(FilePermit { permits: Arc::clone(self), bytes })
    }

    /// Gives out no more permits: the copy is over.
    pub fn close(&self) {
        self.free.close();
        self.free_bytes.close();
        self.move_on();
    }

    /// Number of those taken.
    pub fn taken(&self) -> usize {
        self.count.saturating_sub(self.free.available_permits())
    }

    /// A file came a step further without leaving its permit.
    pub fn move_on(&self) {
        // Whoever waits was told already, or nobody does.
        let _ = self.moved.get().map(|moved| moved.try_send(()));
    }
}

impl FileMoves {
    /// Waits until a file moved since the last time this returned, but not longer than 20 ms. Thousands move at once: being
    /// woken for each costs more than waiting for some.
    pub fn wait(&self) {
        let _ = self.0.recv_timeout(LOOK);
        std::thread::sleep(MOVES);
    }
}

impl Drop for FilePermit {
    fn drop(&mut self) {
        self.permits.free.add_permits(1);
        self.permits.free_bytes.add_permits(self.bytes);
        self.permits.move_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_the_last_file_is_woken_when_it_leaves() {
        let permits = FilePermits::new(2);
        let moves = permits.moves();
        let (one, two) = (permits.try_take(0).unwrap(), permits.try_take(9).unwrap());
        assert!(permits.try_take(0).is_none());
        drop(one);
        assert_eq!(moves.0.try_recv(), Ok(()), "moves that happened before are not missed");
        assert_eq!(permits.taken(), 1);
        let leaving = std::thread::spawn(move || drop(two));
        moves.0.recv().unwrap();
        assert_eq!(permits.taken(), 0);
        leaving.join().unwrap();
    }

    #[test]
    fn closing_wakes_whoever_waits_and_gives_out_no_more() {
        let permits = FilePermits::new(2);
        let (moves, held) = (permits.moves(), permits.try_take(1));
        permits.close();
        assert!(held.is_some() && moves.0.try_recv().is_ok());
        drop(held);
        assert!(permits.try_take(1).is_none());
    }

    #[test]
    fn files_of_which_much_is_kept_are_fewer() {
        let permits = FilePermits::new(100);
        let held: Vec<_> = std::iter::from_fn(|| permits.try_take(MOST_BYTES / 4)).collect();
        assert_eq!((held.len(), permits.taken()), (4, 4));
        assert!(permits.try_take(1).is_none() && permits.try_take(0).is_some());
        drop(held);
        assert!(permits.try_take(usize::MAX).is_some(), "one alone has all");
    }
}
