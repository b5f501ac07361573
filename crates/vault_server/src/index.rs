//! Where objects lie, by half of their hash: a sorted list of most, 28 bytes each, and a table of those that came lately.

use std::collections::HashMap;

use crate::changes::ShortHash;

/// Objects that came lately, at least, before they go into the list.
const LATELY: usize = 1 << 14;
/// They go into it when they are a part of the whole: so the work for each is bounded.
const PART: usize = 32;
/// In [`ListedObject::pack`]: the object lies in the log, and the other bits are the high ones of its place.
const IN_LOG: u32 = 1 << 31;

/// Where an object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredAt {
    /// Number of its pack, below 2^31; none: the log.
    pub pack: Option<u32>,
    /// Where it begins: in a pack below 2^32, in the log below 2^63.
    pub at: u64,
    /// Its bytes.
    pub len: u32,
}

/// The index.
#[derive(Debug, Default)]
pub struct PlaceIndex {
    sorted: Vec<ListedObject>,
    lately: HashMap<ShortHash, StoredAt>,
}

#[derive(Debug, Clone, Copy)]
struct ListedObject {
    hash: ShortHash,
    pack: u32,
    at: u32,
    len: u32,
}

impl PlaceIndex {
    /// Where an object lies; `None`: it is not here.
    pub fn get(&self, name: &ShortHash) -> Option<StoredAt> {
        self.lately.get(name).copied().or_else(|| Some(self.sorted[self.place(name).ok()?].stored_at()))
    }

    /// Notes where an object lies. What was known of it before.
    pub fn insert(&mut self, hash: ShortHash, stored: StoredAt) -> Option<StoredAt> {
        let before = self.get(&hash);
        match self.place(&hash) {
            Ok(place) => self.sorted[place] = ListedObject::new(hash, stored),
            Err(_) => drop(self.lately.insert(hash, stored)),
        }
        if self.lately.len() >= LATELY.max(self.sorted.len() / PART) {
            let lately = std::mem::take(&mut self.lately).into_iter();
            let mut lately: Vec<_> = lately.map(|(hash, stored)| ListedObject::new(hash, stored)).collect();
            lately.sort_unstable_by_key(|listed| listed.hash);
            merge(&mut self.sorted, lately);
        }
        before
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (ShortHash, StoredAt)> {
        let sorted = self.sorted.iter().map(|listed| (listed.hash, listed.stored_at()));
        sorted.chain(self.lately.iter().map(|(hash, stored)| (*hash, *stored)))
    }

    fn place(&self, hash: &ShortHash) -> Result<usize, usize> {
        self.sorted.binary_search_by_key(hash, |listed| listed.hash)
    }
}

/// Puts `new` objects into a sorted list, both in order. From the end on, so that the list is moved once and no other is needed.
fn merge(sorted: &mut Vec<ListedObject>, new: Vec<ListedObject>) {
    let mut old = sorted.len();
    sorted.reserve_exact(new.len());
    sorted.extend_from_slice(&new);
    for (before, listed) in new.iter().enumerate().rev() {
        let count = before + 1;
        // Objects that come behind this one: they make room for it and all before it.
        let behind = old - sorted[..old].partition_point(|other| other.hash < listed.hash);
        sorted.copy_within(old - behind..old, old - behind + count);
        old -= behind;
        sorted[old + before] = *listed;
    }
}

impl ListedObject {
    fn new(hash: ShortHash, StoredAt { pack, at, len }: StoredAt) -> Self {
        let pack = pack.unwrap_or(IN_LOG | (at >> 32) as u32);
        Self { hash, pack, at: at as u32, len }
    }

    fn stored_at(&self) -> StoredAt {
        let Self { pack, at, len, .. } = *self;
        match pack & IN_LOG {
            0 => StoredAt { pack: Some(pack), at: at.into(), len },
            _ => StoredAt { pack: None, at: u64::from(pack & !IN_LOG) << 32 | u64::from(at), len },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::short;
    use towpath_vault_format::Digest;

    #[test]
    fn places_come_back() {
        let packs = [0, 1, 77, IN_LOG - 1].map(|pack| (Some(pack), u64::from(u32::MAX) - u64::from(pack)));
        let log = [0, 1, u64::from(u32::MAX), 1 << 32, (5 << 32) + 9, (1 << 63) - 1].map(|at| (None, at));
        for (pack, at) in packs.into_iter().chain(log) {
            let stored = StoredAt { pack, at, len: 9000 };
            assert_eq!(ListedObject::new([7; 16], stored).stored_at(), stored);
        }
    }

    #[test]
    fn it_is_a_table_however_many_come_and_takes_28_bytes_each() {
        let (mut index, mut table) = (PlaceIndex::default(), HashMap::new());
        for number in 0..300_000u32 {
            // Every third was there before.
            let hash = short(&Digest::of(&(number - number % 3 * (number % 2)).to_le_bytes()));
            let stored =
                StoredAt { pack: (number % 5 > 0).then_some(number / 100), at: number.into(), len: number };
            assert_eq!(index.insert(hash, stored), table.insert(hash, stored));
        }
        assert!(table.iter().all(|(hash, stored)| index.get(hash) == Some(*stored)));
        assert_eq!((index.get(&[1; 16]), index.iter().count()), (None, table.len()));
        let bytes = index.sorted.capacity() * size_of::<ListedObject>();
        assert_eq!(size_of::<ListedObject>(), 28);
        assert!(index.lately.len() <= LATELY.max(index.sorted.len() / PART) && bytes <= 28 * table.len());
    }
}
