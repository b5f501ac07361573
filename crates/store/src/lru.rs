//! A cache bounded by the weight of what is in it; what was unused longest goes first.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

#[derive(Debug)]
struct CacheEntry<V> {
    value: V,
    weight: usize,
    used: u64,
}

/// The cache. The unit of weight is the caller's: bytes, or 1 per entry.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    entries: HashMap<K, CacheEntry<V>>,
    by_use: BTreeMap<u64, K>,
    clock: u64,
    weight: usize,
    limit: usize,
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    /// An empty cache that holds at most `limit` of weight.
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: HashMap::new(), by_use: BTreeMap::new(), clock: 0, weight: 0, limit }
    }

    /// Finds a value and notes its use.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let entry = self.entries.get_mut(key)?;
        self.by_use.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.by_use.insert(self.clock, key.clone());
        Some(&entry.value)
    }

    /// Adds or replaces a value; one heavier than the limit is kept alone until the next comes.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        self.clock += 1;
        self.weight += weight;
        self.by_use.insert(self.clock, key.clone());
        self.entries.insert(key, CacheEntry { value, weight, used: self.clock });
        self.shrink();
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.by_use.remove(&entry.used);
        self.weight -= entry.weight;
        Some(entry.value)
    }

    fn shrink(&mut self) {
        while self.weight > self.limit
            && self.entries.len() > 1
            && let Some((_, oldest)) = self.by_use.pop_first()
            && let Some(entry) = self.entries.remove(&oldest)
        {
            self.weight -= entry.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_unused_longest_goes_first() {
        let mut cache = Lru::new(2);
        cache.insert('a', 1, 1);
        cache.insert('b', 2, 1);
        cache.get(&'a');
        cache.insert('c', 3, 1);
        let left = ['a', 'b', 'c'].map(|key| cache.get(&key).copied());
        assert_eq!(left, [Some(1), None, Some(3)]);
    }

    proptest! {
        #[test]
        fn the_weight_is_the_sum_and_only_one_entry_may_exceed_the_limit(steps: Vec<(u8, u8, u16)>) {
            let mut cache = Lru::new(300);
            for (action, key, weight) in steps {
                match action % 3 {
                    0 => cache.insert(key, (), weight.into()),
                    1 => drop(cache.remove(&key)),
                    _ => drop(cache.get(&key)),
                }
                let sum: usize = cache.entries.values().map(|entry| entry.weight).sum();
                prop_assert_eq!(cache.weight, sum);
                prop_assert!(sum <= 300 || cache.entries.len() == 1);
                prop_assert_eq!(cache.entries.len(), cache.by_use.len());
            }
        }
    }
}
