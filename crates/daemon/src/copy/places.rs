//! Places for files under way: what bounds how many are asked for and not in place yet.
//!
//! A file takes its place when it is asked for and leaves it when it has its name or is given up.
//! Whoever waits for the last ones sleeps until something happens to one of them.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

/// All places of a copy.
pub struct Places {
    count: usize,
    free: Semaphore,
    moved: Notify,
}

/// One file's place, left when it is dropped.
pub struct Place(Arc<Places>);

impl Places {
    /// So many places, all free.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { count, free: Semaphore::new(count), moved: Notify::new() })
    }

    /// Takes a place if one is free.
    pub fn try_take(self: &Arc<Self>) -> Option<Place> {
        self.free.try_acquire().ok()?.forget();
        Some(Place(Arc::clone(self)))
    }

    /// Takes a place as soon as one is free; none when they are closed.
    pub async fn take(self: &Arc<Self>) -> Option<Place> {
        self.free.acquire().await.ok()?.forget();
        Some(Place(Arc::clone(self)))
    }

    /// Gives out no more places: the copy is over.
    pub fn close(&self) {
        self.free.close();
        self.moved.notify_one();
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.count.saturating_sub(self.free.available_permits())
    }

    /// A file came a step further without leaving its place.
    pub fn move_on(&self) {
        self.moved.notify_one();
    }

    /// Completes when a file moved since the last time this completed. For one caller at a time.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.free.add_permits(1);
        self.0.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_for_the_last_file_is_woken_when_it_leaves() {
        let places = Places::new(2);
        let (one, two) = (places.try_take().unwrap(), places.try_take().unwrap());
        assert!(places.try_take().is_none());
        drop(one);
        // What happened before is not missed.
        places.moved().await;
        assert_eq!(places.taken(), 1);
        let waiting = tokio::spawn({
            let places = Arc::clone(&places);
            async move {
                while places.taken() > 0 {
                    places.moved().await;
                }
            }
        });
        drop(two);
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn closing_wakes_everyone_and_gives_out_no_more() {
        let places = Places::new(1);
        let held = places.take().await;
        places.close();
        places.moved().await;
        drop(held);
        assert!(places.take().await.is_none() && places.try_take().is_none());
    }
}
