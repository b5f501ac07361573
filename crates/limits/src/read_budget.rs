//! Limit on the memory of content on its way to applications, over all bodies.
//!
//! ```text
//!   limits.content_memory ─┬─ one half: a pool, for who comes first: whole pieces, which is fast
//!                          └─ the other: a share for each connection that there may be
//! ```
//!
//! A reader that stalls keeps what it was given, at most `AHEAD` parts. When such readers have
//! taken the pool, each other one still has its share, in smaller parts: slower, and never stuck.
//! A part's memory is given back when the last of its bytes was handed to the kernel.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use towpath_api::{ApiError, ErrorKind};

use towpath_config::{Limits, Live};

/// Parts that one body holds at most: one being written, one ready.
const AHEAD: usize = 2;
/// The smallest part; below it a share is no use.
const SMALLEST: u64 = 4 << 10;
/// Pieces that are read at once only to cut a small part out of each.
const CUTTING: usize = 16;
/// Recipes that are sent at once: each has a thread, and the positions of its nodes in memory.
const RECIPES: usize = 8;
/// Longest time that one more waits for its turn.
const LONGEST_LINE: Duration = Duration::from_secs(60);

/// A part of a connection's own share.
fn small_part(limits: &Limits) -> u64 {
    let share = limits.content_memory.0 / 2 / limits.local_connections.0;
    (share / AHEAD as u64).max(SMALLEST)
}

/// The memory of all bodies of a service.
#[derive(Debug)]
pub struct ReadBudget {
    config: Live,
    held: Arc<HeldMemory>,
    cutting: Semaphore,
    recipes: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct HeldMemory {
    pool: AtomicU64,
    shares: AtomicU64,
}

impl ReadBudget {
    /// Obeys what `config` says at the moment.
    pub fn new(config: Live) -> Self {
        let (cutting, recipes) = (Semaphore::new(CUTTING), Arc::new(Semaphore::new(RECIPES)));
        Self { config, held: Arc::default(), cutting, recipes }
    }

    /// Bytes that they hold.
    pub fn held(&self) -> u64 {
        self.held.pool.load(Ordering::Relaxed) + self.held.shares.load(Ordering::Relaxed)
    }

    /// A permit to be among the few who read more than they keep.
    pub async fn cutting(&self) -> Option<SemaphorePermit<'_>> {
        self.cutting.acquire().await.ok()
    }

    /// A permit to be among those to whom a recipe is sent; waits in line for it.
    pub async fn recipe(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = tokio::time::timeout(LONGEST_LINE, Arc::clone(&self.recipes).acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            let message = format!("{RECIPES} recipes are being read, and none of them came to its end");
            ApiError::new(ErrorKind::Busy, message).hint("try again later")
        })
    }

    /// Room in the pool, if there is.
    fn take(&self, len: u64) -> bool {
        let most = self.config.get().limits.content_memory.0 / 2;
        let grown = |pool: u64| pool.checked_add(len).filter(|pool| *pool <= most);
        self.held.pool.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }
}

/// Memory that one body may hold.
#[derive(Debug)]
pub struct HeldBody {
    budget: Arc<ReadBudget>,
    slots: Arc<Semaphore>,
}

impl HeldBody {
    /// Begins one.
    pub fn new(budget: &Arc<ReadBudget>) -> Self {
        Self { budget: Arc::clone(budget), slots: Arc::new(Semaphore::new(AHEAD)) }
    }

    /// Room for a part of up to `most` bytes; waits until the reader has taken an earlier one.
    pub async fn room(&self, most: u64) -> Option<BodyRoom> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        let held = Arc::clone(&self.budget.held);
        if self.budget.take(most) {
            return Some(BodyRoom { len: most, is_pool: true, held, _slot: slot });
        }
        let len = small_part(&self.budget.config.get().limits).min(most);
        held.shares.fetch_add(len, Ordering::Relaxed);
        Some(BodyRoom { len, is_pool: false, held, _slot: slot })
    }

    /// Room for all of a part, if there is some in the pool at this moment.
    pub fn room_now(&self, len: u64) -> Option<BodyRoom> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let held = Arc::clone(&self.budget.held);
        self.budget.take(len).then(|| BodyRoom { len, is_pool: true, held, _slot: slot })
    }
}

/// Room for one part, until it is dropped.
#[derive(Debug)]
pub struct BodyRoom {
    len: u64,
    is_pool: bool,
    held: Arc<HeldMemory>,
    _slot: OwnedSemaphorePermit,
}

impl BodyRoom {
    /// Bytes that it has room for.
    pub const fn bytes(&self) -> u64 {
        self.len
    }

    /// As much of `range` of `bytes` as there is room for. The room is taken as long as that lives.
    pub fn hold(self, bytes: Vec<u8>, range: Range<usize>) -> Bytes {
        let room = usize::try_from(self.len).unwrap_or(usize::MAX);
        if bytes.len() <= room {
            return Bytes::from_owner(BodyPart { bytes, _room: self }).slice(range);
        }
        let end = range.end.min(range.start.saturating_add(room));
        Bytes::from_owner(BodyPart { bytes: bytes[range.start..end].to_vec(), _room: self })
    }
}

impl Drop for BodyRoom {
    fn drop(&mut self) {
        let counter = if self.is_pool { &self.held.pool } else { &self.held.shares };
        counter.fetch_sub(self.len, Ordering::Relaxed);
    }
}

struct BodyPart {
    bytes: Vec<u8>,
    _room: BodyRoom,
}

impl AsRef<[u8]> for BodyPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_config::{Bytes as Size, Config, Count};

    fn budget(memory: u64, connections: u64) -> Arc<ReadBudget> {
        let mut config = Config::default();
        config.limits.content_memory = Size(memory);
        config.limits.local_connections = Count(connections);
        Arc::new(ReadBudget::new(Live::new(config)))
    }

    #[tokio::test]
    async fn readers_that_stall_leave_each_other_one_its_share() {
        const PIECE: u64 = 256 << 10;
        let budget = budget(4 << 20, 32);
        let readers: Vec<_> = (0..32).map(|_| HeldBody::new(&budget)).collect();
        let mut kept = Vec::new();
        for reader in &readers {
            for _ in 0..AHEAD {
                kept.push(reader.room(PIECE).await.unwrap());
            }
        }
        let large = kept.iter().filter(|room| room.bytes() == PIECE).count();
        assert_eq!(large, 8, "half of the memory, for who came first");
        assert!(kept.iter().all(|room| room.bytes() == PIECE || room.bytes() == 32 << 10));
        assert!(budget.held() <= 4 << 20);
        let late = readers[0].room(PIECE);
        assert!(tokio::time::timeout(Duration::from_millis(20), late).await.is_err(), "it has its parts");
        drop(kept);
        assert_eq!(budget.held(), 0);
        assert_eq!(readers[0].room(PIECE).await.unwrap().bytes(), PIECE);
    }

    #[tokio::test]
    async fn room_at_this_moment_is_whole_or_none() {
        let budget = budget(2000, 1);
        let (reader, other) = (HeldBody::new(&budget), HeldBody::new(&budget));
        let room = reader.room_now(800).unwrap();
        assert!(other.room_now(300).is_none(), "the pool has no room for all of it");
        assert_eq!(budget.held(), 800, "and nothing was taken");
        let _second = reader.room_now(100).unwrap();
        assert!(reader.room_now(1).is_none(), "it has its parts");
        drop(room);
        assert_eq!((budget.held(), other.room_now(300).map(|room| room.bytes())), (100, Some(300)));
    }

    #[tokio::test]
    async fn room_is_taken_as_long_as_any_of_its_bytes_are_held() {
        let budget = budget(2 << 20, 2);
        let reader = HeldBody::new(&budget);
        let room = reader.room(1000).await.unwrap();
        let mut part = room.hold((0..=255).cycle().take(1000).collect(), 10..900);
        let rest = part.split_off(100);
        assert_eq!((part[0], part.len(), rest.len()), (10, 100, 790));
        drop(part);
        assert_eq!(budget.held(), 1000);
        drop(rest);
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn a_part_that_is_cut_out_of_a_piece_does_not_keep_the_piece() {
        let budget = budget(1, 1);
        let room = HeldBody::new(&budget).room(100_000).await.unwrap();
        assert_eq!(room.bytes(), SMALLEST);
        assert_eq!(&room.hold(vec![7; 100_000], 99_998..100_000)[..], [7, 7]);
        let room = HeldBody::new(&budget).room(100_000).await.unwrap();
        assert_eq!(room.hold(vec![7; 100_000], 5..100_000).len() as u64, SMALLEST);
        assert_eq!(budget.held(), 0);
    }
}
