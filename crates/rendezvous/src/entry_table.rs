//! Entries under their topics, and who watches them. Pure: handed entries, connections and the time.
//!
//! Everything is soft: an entry is over at its time, and a server that begins anew has all again when its clients have come back.
//! So nothing is written to a disk.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use towpath_content::NodeId;

use crate::address_group::AddressGroup;
use crate::entry::SignedEntry;
use crate::message::Refusal;
use crate::topic::Topic;

/// A connection, as the server counts them.
pub type ConnectionNumber = u64;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLimits {
    /// Entries in all. Default: 100,000, some 100 MB at most.
    pub entries: usize,
    /// Entries under one topic. Default: 512.
    pub per_topic: usize,
    /// Entries of one node. Default: 4096.
    pub per_node: usize,
    /// Entries from one address. Default: 16,384.
    pub per_address: usize,
    /// Topics that a connection watches. Default: 4096.
    pub watched: usize,
    /// Seconds that an entry may live. Default: an hour.
    pub longest: u64,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self {
            entries: 100_000,
            per_topic: 512,
            per_node: 4096,
            per_address: 16_384,
            watched: 4096,
            longest: 3600,
        }
    }
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct EntryTable {
    limits: TableLimits,
    topics: HashMap<Topic, HashMap<NodeId, KeptEntry>>,
    expiring: BTreeSet<(u64, Topic, NodeId)>,
    of_nodes: HashMap<NodeId, usize>,
    from_addresses: HashMap<AddressGroup, usize>,
    watchers: HashMap<Topic, HashSet<ConnectionNumber>>,
    watched: HashMap<ConnectionNumber, HashSet<Topic>>,
}

#[derive(Debug)]
struct KeptEntry {
    bytes: Bytes,
    number: u64,
    expires: u64,
    from: AddressGroup,
}

impl EntryTable {
    /// With nothing in it.
    pub fn new(limits: TableLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Entries that are kept.
    pub fn len(&self) -> usize {
        self.expiring.len()
    }

    /// True if none is kept.
    pub fn is_empty(&self) -> bool {
        self.expiring.is_empty()
    }

    /// Takes an entry of `node`, whose connection comes from this address. Returns who is to be told of it: nobody, if it is
    /// no news. An older one than is here is none.
    pub fn announce(
        &mut self,
        now: u64,
        (node, from): (NodeId, AddressGroup),
        bytes: Bytes,
    ) -> Result<Vec<ConnectionNumber>, Refusal> {
        self.expire(now);
        let entry = SignedEntry::verified(&bytes).map_err(|_| Refusal::Malformed)?;
        let is_in_time = entry.expires > now && entry.expires <= now.saturating_add(self.limits.longest);
        if entry.node != node || !is_in_time {
            return Err(Refusal::Entry);
        }
        let place = (entry.topic, node);
        match self.kept(&place).map(|kept| kept.number) {
            Some(number) if number >= entry.number => return Ok(Vec::new()),
            Some(_) => self.remove(&place),
            None if !self.has_room(&place, from) => return Err(Refusal::TooMany),
            None => {}
        }
        self.insert(place, KeptEntry { bytes, number: entry.number, expires: entry.expires, from });
        Ok(self.watchers.get(&entry.topic).into_iter().flatten().copied().collect())
    }

    /// From now on `connection` is told of what comes under `topic`. Returns what is there.
    pub fn watch(
        &mut self,
        now: u64,
        connection: ConnectionNumber,
        topic: Topic,
    ) -> Result<Vec<Bytes>, Refusal> {
        self.expire(now);
        let watched = self.watched.entry(connection).or_default();
        if watched.len() >= self.limits.watched && !watched.contains(&topic) {
            return Err(Refusal::TooMany);
        }
        watched.insert(topic);
        self.watchers.entry(topic).or_default().insert(connection);
        let there = self.topics.get(&topic).into_iter().flat_map(HashMap::values);
        Ok(there.map(|kept| kept.bytes.clone()).collect())
    }

    /// It is told no more of this topic.
    pub fn unwatch(&mut self, connection: ConnectionNumber, topic: &Topic) {
        if let Some(watched) = self.watched.get_mut(&connection) {
            watched.remove(topic);
        }
        self.forget_watcher(connection, topic);
    }

    /// The connection is gone. What it announced stays until it is over: its node may come back.
    pub fn gone(&mut self, connection: ConnectionNumber) {
        for topic in self.watched.remove(&connection).unwrap_or_default() {
            self.forget_watcher(connection, &topic);
        }
    }

    fn forget_watcher(&mut self, connection: ConnectionNumber, topic: &Topic) {
        if let Some(watchers) = self.watchers.get_mut(topic) {
            watchers.remove(&connection);
            if watchers.is_empty() {
                self.watchers.remove(topic);
            }
        }
    }

    /// Forgets what is over. Those who watch know its end themselves.
    pub fn expire(&mut self, now: u64) {
        while let Some(&(expires, topic, node)) = self.expiring.first()
            && expires <= now
        {
            self.remove(&(topic, node));
        }
    }

    fn kept(&self, (topic, node): &(Topic, NodeId)) -> Option<&KeptEntry> {
        self.topics.get(topic)?.get(node)
    }

    fn has_room(&self, (topic, node): &(Topic, NodeId), from: AddressGroup) -> bool {
        let under_topic = self.topics.get(topic).map_or(0, HashMap::len);
        let of_node = self.of_nodes.get(node).copied().unwrap_or(0);
        let from_address = self.from_addresses.get(&from).copied().unwrap_or(0);
        self.len() < self.limits.entries
            && under_topic < self.limits.per_topic
            && of_node < self.limits.per_node
            && from_address < self.limits.per_address
    }

    fn insert(&mut self, (topic, node): (Topic, NodeId), kept: KeptEntry) {
        self.expiring.insert((kept.expires, topic, node));
        *self.of_nodes.entry(node).or_default() += 1;
        *self.from_addresses.entry(kept.from).or_default() += 1;
        self.topics.entry(topic).or_default().insert(node, kept);
    }

    fn remove(&mut self, (topic, node): &(Topic, NodeId)) {
        let Some(entries) = self.topics.get_mut(topic) else { return };
        let Some(kept) = entries.remove(node) else { return };
        if entries.is_empty() {
            self.topics.remove(topic);
        }
        self.expiring.remove(&(kept.expires, *topic, *node));
        count_down(&mut self.of_nodes, node);
        count_down(&mut self.from_addresses, &kept.from);
    }
}

fn count_down<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HolderEntry, TopicKeys};
    use towpath_content::Oid;
    use towpath_content::ticket::Secret;
    use towpath_link::Identity;

    const HERE: &str = "192.0.2.1";

    fn keys(secret: u8) -> TopicKeys {
        TopicKeys::new(&Oid::of(b"root"), &Secret([secret; 16]).into())
    }

    fn entry(identity: &Identity, secret: u8, times: (u64, u64)) -> Bytes {
        SignedEntry::new(identity, &keys(secret), times, Some(&HolderEntry::default()), [0; 12])
            .to_bytes()
            .into()
    }

    fn from(address: &str) -> AddressGroup {
        AddressGroup::of(address.parse().unwrap())
    }

    #[test]
    fn who_watches_is_told_what_is_there_and_what_comes_until_it_leaves() {
        let (mut table, node) = (EntryTable::default(), Identity::generate().unwrap());
        let (id, topic) = ((node.node_id(), from(HERE)), keys(1).topic());
        let first = entry(&node, 1, (1, 100));
        assert_eq!(table.announce(50, id, first.clone()), Ok(vec![]));
        assert_eq!(table.watch(50, 7, topic), Ok(vec![first.clone()]));
        assert_eq!(table.watch(50, 8, keys(2).topic()), Ok(vec![]));
        let second = entry(&node, 1, (2, 200));
        assert_eq!(table.announce(50, id, second.clone()), Ok(vec![7]));
        assert_eq!(table.announce(50, id, first), Ok(vec![]), "replayed");
        assert_eq!(table.watch(150, 9, topic), Ok(vec![second]), "the newer one's end holds");
        table.gone(7);
        table.unwatch(9, &topic);
        assert_eq!(table.announce(150, id, entry(&node, 1, (3, 300))), Ok(vec![]));
        assert_eq!(table.watch(300, 9, topic), Ok(vec![]), "over");
        assert!(table.is_empty() && table.of_nodes.is_empty() && table.from_addresses.is_empty());
        table.gone(8);
        table.gone(9);
        assert!(table.watchers.is_empty() && table.watched.is_empty());
    }

    #[test]
    fn what_is_not_its_nodes_or_not_in_time_is_refused() {
        let (mut table, node) = (EntryTable::default(), Identity::generate().unwrap());
        let (id, other) = ((node.node_id(), from(HERE)), Identity::generate().unwrap());
        let rows = [
            (entry(&other, 1, (1, 100)), Refusal::Entry, "another node's"),
            (entry(&node, 1, (1, 50)), Refusal::Entry, "over"),
            (entry(&node, 1, (1, 50 + 3601)), Refusal::Entry, "for too long"),
            (Bytes::from_static(b"nonsense"), Refusal::Malformed, "nonsense"),
            (Bytes::from([&entry(&node, 1, (1, 100))[..], b"x"].concat()), Refusal::Malformed, "too long"),
        ];
        for (bytes, refusal, why) in rows {
            assert_eq!(table.announce(50, id, bytes), Err(refusal), "{why}");
        }
        let mut forged = entry(&node, 1, (1, 100)).to_vec();
        forged[40] ^= 1;
        assert_eq!(table.announce(50, id, forged.into()), Err(Refusal::Malformed));
        assert!(table.is_empty());
    }

    #[test]
    fn each_limit_holds_and_what_is_there_may_be_renewed() {
        let nodes: Vec<Identity> = (0..4).map(|_| Identity::generate().unwrap()).collect();
        let wide = TableLimits::default();
        let rows = [
            TableLimits { entries: 2, ..wide },
            TableLimits { per_topic: 2, ..wide },
            TableLimits { per_address: 2, ..wide },
        ];
        for limits in rows {
            let mut table = EntryTable::new(limits);
            let mut announce = |node: usize, number| {
                let id = (nodes[node].node_id(), from(HERE));
                table.announce(50, id, entry(&nodes[node], 1, (number, 100))).map(drop)
            };
            let told = [(0, 1), (1, 1), (2, 1), (0, 2)].map(|(node, number)| announce(node, number));
            assert_eq!(told, [Ok(()), Ok(()), Err(Refusal::TooMany), Ok(())], "{limits:?}");
        }
        let mut table = EntryTable::new(TableLimits { per_node: 1, watched: 1, ..wide });
        let id = (nodes[0].node_id(), from(HERE));
        assert_eq!(table.announce(50, id, entry(&nodes[0], 1, (1, 100))), Ok(vec![]));
        assert_eq!(table.announce(50, id, entry(&nodes[0], 2, (1, 100))), Err(Refusal::TooMany));
        assert!(table.watch(50, 1, keys(1).topic()).is_ok() && table.watch(50, 1, keys(1).topic()).is_ok());
        assert_eq!(table.watch(50, 1, keys(2).topic()), Err(Refusal::TooMany));
    }
}
