//! Bytes that wait for peers, of all connections together. Each connection has a short queue of its own; thousands of peers that
//! take nothing would still hold much memory. So where a lot waits in all, a connection queues no more before its own queue is empty.
//! None waits for another that takes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Bytes that wait in all before a connection has one batch in its queue alone.
const MOST: usize = 64 << 20;

/// What waits in all queues.
#[derive(Debug)]
pub struct QueuedBytes {
    most: usize,
    all: AtomicUsize,
    less: Notify,
}

impl Default for QueuedBytes {
    fn default() -> Self {
        Self { most: MOST, all: AtomicUsize::new(0), less: Notify::new() }
    }
}

/// What waits in the queue of one connection.
#[derive(Debug, Clone)]
pub struct OwnQueue {
    all: Arc<QueuedBytes>,
    own: Arc<AtomicUsize>,
}

/// A batch of so many bytes that waits, until this is dropped.
#[derive(Debug)]
pub struct QueuedBatch {
    queue: OwnQueue,
    bytes: usize,
}

impl OwnQueue {
    /// An empty queue beside `all` others.
    pub fn new(all: &Arc<QueuedBytes>) -> Self {
        Self { all: Arc::clone(all), own: Arc::default() }
    }

    /// A batch of so many bytes waits from now on.
    pub fn add(&self, bytes: usize) -> QueuedBatch {
        self.own.fetch_add(bytes, Ordering::AcqRel);
        self.all.all.fetch_add(bytes, Ordering::AcqRel);
        QueuedBatch { queue: self.clone(), bytes }
    }

    /// True if one more batch may wait.
    pub fn has_room(&self) -> bool {
        self.own.load(Ordering::Acquire) == 0 || self.all.all.load(Ordering::Acquire) < self.all.most
    }

    /// Waits until one more batch may wait.
    pub async fn room(&self) {
        loop {
            let mut less = std::pin::pin!(self.all.less.notified());
            less.as_mut().enable();
            if self.has_room() {
                return;
            }
            less.await;
        }
    }
}

impl Drop for QueuedBatch {
    fn drop(&mut self) {
        let OwnQueue { all, own } = &self.queue;
        own.fetch_sub(self.bytes, Ordering::AcqRel);
        all.all.fetch_sub(self.bytes, Ordering::AcqRel);
        all.less.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if one more batch may wait at once.
    async fn has_room_now(queue: &OwnQueue) -> bool {
        tokio::select! {
            biased;
            () = queue.room() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn a_thousand_peers_that_take_nothing_hold_one_batch_each_and_what_all_may() {
        let (batch, all) = (256 << 10, Arc::<QueuedBytes>::default());
        let queues: Vec<_> = (0..1000).map(|_| OwnQueue::new(&all)).collect();
        let mut held = Vec::new();
        for _ in 0..5 {
            for queue in queues.iter().filter(|queue| queue.has_room()) {
                held.push(queue.add(batch));
            }
        }
        let waiting = all.all.load(Ordering::Acquire);
        assert!((MOST..MOST + 1000 * batch).contains(&waiting), "{waiting}");
        let new = OwnQueue::new(&all);
        assert!(has_room_now(&new).await, "one that takes what it gets is not held up");
        let only = new.add(batch);
        assert!(!has_room_now(&new).await);
        let (waited, ()) = tokio::join!(new.room(), async { drop(only) });
        assert_eq!(waited, (), "it goes on as soon as that is gone");
        drop(held);
        assert_eq!(all.all.load(Ordering::Acquire), 0);
    }
}
