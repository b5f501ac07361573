//! Permits for files under way: the bound of those requested and not in place yet.
//!
//! A file takes its permit when it is requested and leaves it when it has its name or is given up.
//! Whoever waits for the last ones sleeps until something happens to one of them.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

/// Bytes of paths and attributes of all files under way, at most: a sender may give each file 256 KiB of them.
pub const MOST_BYTES: usize = 16 << 20;

/// All permits of a copy.
pub struct FilePermits {
    count: usize,
    free: Semaphore,
    free_bytes: Semaphore,
    moved: Notify,
}

/// One file's permit, left when it is dropped.
pub struct FilePermit {
    permits: Arc<FilePermits>,
    bytes: usize,
}

impl FilePermits {
    /// So many permits, all free.
    pub fn new(count: usize) -> Arc<Self> {
        let (free, free_bytes) = (Semaphore::new(count), Semaphore::new(MOST_BYTES));
        Arc::new(Self { count, free, free_bytes, moved: Notify::new() })
    }

    /// Takes a permit for a file of which so many bytes are kept, if one is free.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<FilePermit> {
        let bytes = bytes.min(MOST_BYTES);
        let free = self.free.try_acquire().ok()?;
        self.free_bytes.try_acquire_many(bytes as u32).ok()?.forget();
        free.forget();
        Some(FilePermit { permits: Arc::clone(self), bytes })
    }

    /// Takes a permit as soon as one is free; none when they are closed.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> Option<FilePermit> {
        let bytes = bytes.min(MOST_BYTES);
        let free = self.free.acquire().await.ok()?;
        self.free_bytes.acquire_many(bytes as u32).await.ok()?.forget();
        free.forget();
        Some(FilePermit { permits: Arc::clone(self), bytes })
    }

    /// Gives out no more permits: the copy is over.
    pub fn close(&self) {
        self.free.close();
        self.free_bytes.close();
        self.moved.notify_one();
    }

    /// Number of those taken.
    pub fn taken(&self) -> usize {
        self.count.saturating_sub(self.free.available_permits())
    }

    /// A file came a step further without leaving its permit.
    pub fn move_on(&self) {
        self.moved.notify_one();
    }

    /// Completes when a file moved since the last time this completed. For one caller at a time.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }
}

impl Drop for FilePermit {
    fn drop(&mut self) {
        self.permits.free.add_permits(1);
        self.permits.free_bytes.add_permits(self.bytes);
        self.permits.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_for_the_last_file_is_woken_when_it_leaves() {
        let permits = FilePermits::new(2);
        let (one, two) = (permits.try_take(0).unwrap(), permits.try_take(9).unwrap());
        assert!(permits.try_take(0).is_none());
        drop(one);
        // Moves that happened before are not missed.
        permits.moved().await;
        assert_eq!(permits.taken(), 1);
        let waiting = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move {
                while permits.taken() > 0 {
                    permits.moved().await;
                }
            }
        });
        drop(two);
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn closing_wakes_everyone_and_gives_out_no_more() {
        let permits = FilePermits::new(1);
        let held = permits.take(1).await;
        permits.close();
        permits.moved().await;
        drop(held);
        assert!(permits.take(1).await.is_none() && permits.try_take(1).is_none());
    }

    #[tokio::test]
    async fn files_of_which_much_is_kept_are_fewer() {
        let permits = FilePermits::new(100);
        let held: Vec<_> = std::iter::from_fn(|| permits.try_take(MOST_BYTES / 4)).collect();
        assert_eq!((held.len(), permits.taken()), (4, 4));
        assert!(permits.try_take(1).is_none() && permits.try_take(0).is_some());
        drop(held);
        assert!(permits.try_take(usize::MAX).is_some(), "one alone has all");
    }
}
