//! Entries under their topics, and who watches them. Pure: handed entries, connections and the time.
//!
//! Everything is soft: an entry is over at its time, and a server that begins anew has all again when its clients have come back.
//! So nothing is written to a disk.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;

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
    /// Those that were said here, ...
    here: BTreeSet<(Topic, NodeId)>,
    /// ... and those that were said at other servers.
    elsewhere: BTreeSet<(Topic, NodeId)>,
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
    /// `None`: it was said at another server.
    from: Option<AddressGroup>,
}

/// Who is to be told of an entry; `None` if it is no news.
type Watching = Option<Vec<ConnectionNumber>>;

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

    /// Takes an entry of `node`, whose connection comes from this address. Returns who is to be told of it, or `None` if it is
    /// no news. An older one than is here is none.
    pub fn announce(
        &mut self,
        now: u64,
        (node, from): (NodeId, AddressGroup),
        bytes: Bytes,
    ) -> Result<Watching, Refusal> {
        let entry = self.verified(now, &bytes)?;
        match entry.node == node {
            true => self.keep(&entry, Some(from), bytes),
            false => Err(Refusal::Entry),
        }
    }

    /// Takes an entry that was said at another server, as [`EntryTable::announce`] does. What is said here goes first where there
    /// is no room for both.
    pub fn take(&mut self, now: u64, bytes: Bytes) -> Result<Watching, Refusal> {
        // Many are here already, for other servers tell all they have: no signature is looked at twice.
        let place = SignedEntry::place(&bytes).map_err(|_| Refusal::Malformed)?;
        if self.kept(&place).is_some_and(|kept| kept.bytes == bytes) {
            return Ok(None);
        }
        let entry = self.verified(now, &bytes)?;
        self.keep(&entry, None, bytes)
    }

    /// Entries that were said here and hold, in the order of topic and node, behind this one.
    pub fn said_here(&self, after: Option<(Topic, NodeId)>) -> impl Iterator<Item = (Topic, NodeId, &Bytes)> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let places = self.here.range((begin, Bound::Unbounded));
        places.filter_map(|place| Some((place.0, place.1, &self.kept(place)?.bytes)))
    }

    fn verified(&mut self, now: u64, bytes: &[u8]) -> Result<SignedEntry, Refusal> {
        self.expire(now);
        let entry = SignedEntry::verified(bytes).map_err(|_| Refusal::Malformed)?;
        let is_in_time = entry.expires > now && entry.expires <= now.saturating_add(self.limits.longest);
        if is_in_time { Ok(entry) } else { Err(Refusal::Entry) }
    }

    fn keep(
        &mut self,
        entry: &SignedEntry,
        from: Option<AddressGroup>,
        bytes: Bytes,
    ) -> Result<Watching, Refusal> {
        let place = (entry.topic, entry.node);
        let kept = self.kept(&place).map(|kept| (kept.number, kept.from));
        let before = kept.and_then(|(_, before)| before);
        match kept {
            Some((number, _)) if number >= entry.number => return Ok(None),
            // One that moves to another address counts there like a new one.
            Some(_) if from.is_none() || before == from || self.may_come_from(from) => self.remove(&place),
            None if self.has_room(&place, from) => {}
            _ => return Err(Refusal::TooMany),
        }
        // What a client said here stays one of this server's when its node says more elsewhere: it speaks to several.
        let from = from.or(before);
        self.insert(place, KeptEntry { bytes, number: entry.number, expires: entry.expires, from });
        Ok(Some(self.watchers.get(&entry.topic).into_iter().flatten().copied().collect()))
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

    /// True if one more entry fits in; one that was said elsewhere is forgotten for one that is said here.
    fn has_room(&mut self, (topic, node): &(Topic, NodeId), from: Option<AddressGroup>) -> bool {
        let of_node = self.of_nodes.get(node).copied().unwrap_or(0);
        if of_node >= self.limits.per_node || !self.may_come_from(from) {
            return false;
        }
        if self.topics.get(topic).map_or(0, HashMap::len) >= self.limits.per_topic {
            let under_topic = (*topic, NodeId([0; 32]))..=(*topic, NodeId([u8::MAX; 32]));
            let other = self.elsewhere.range(under_topic).next().copied();
            return self.gives_way(other, from);
        }
        self.len() < self.limits.entries || self.gives_way(self.elsewhere.first().copied(), from)
    }

    fn may_come_from(&self, from: Option<AddressGroup>) -> bool {
        let there = |from| self.from_addresses.get(&from).copied().unwrap_or(0);
        from.is_none_or(|from| there(from) < self.limits.per_address)
    }

    fn gives_way(&mut self, other: Option<(Topic, NodeId)>, to: Option<AddressGroup>) -> bool {
        match (other, to) {
            (Some(other), Some(_)) => {
                self.remove(&other);
                true
            }
            _ => false,
        }
    }

    fn insert(&mut self, (topic, node): (Topic, NodeId), kept: KeptEntry) {
        self.expiring.insert((kept.expires, topic, node));
        *self.of_nodes.entry(node).or_default() += 1;
        match kept.from {
            Some(from) => {
                self.here.insert((topic, node));
                *self.from_addresses.entry(from).or_default() += 1;
            }
            None => _ = self.elsewhere.insert((topic, node)),
        }
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
        match kept.from {
            Some(from) => {
                self.here.remove(&(*topic, *node));
                count_down(&mut self.from_addresses, &from);
            }
            None => _ = self.elsewhere.remove(&(*topic, *node)),
        }
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
        assert_eq!(table.announce(50, id, first.clone()), Ok(Some(vec![])));
        assert_eq!(table.watch(50, 7, topic), Ok(vec![first.clone()]));
        assert_eq!(table.watch(50, 8, keys(2).topic()), Ok(vec![]));
        let second = entry(&node, 1, (2, 200));
        assert_eq!(table.announce(50, id, second.clone()), Ok(Some(vec![7])));
        assert_eq!(table.announce(50, id, first), Ok(None), "replayed");
        assert_eq!(table.watch(150, 9, topic), Ok(vec![second]), "the newer one's end holds");
        table.gone(7);
        table.unwatch(9, &topic);
        assert_eq!(table.announce(150, id, entry(&node, 1, (3, 300))), Ok(Some(vec![])));
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
        assert_eq!(table.announce(50, id, entry(&nodes[0], 1, (1, 100))), Ok(Some(vec![])));
        assert_eq!(table.announce(50, id, entry(&nodes[0], 2, (1, 100))), Err(Refusal::TooMany));
        assert!(table.watch(50, 1, keys(1).topic()).is_ok() && table.watch(50, 1, keys(1).topic()).is_ok());
        assert_eq!(table.watch(50, 1, keys(2).topic()), Err(Refusal::TooMany));
    }

    #[test]
    fn what_was_said_elsewhere_is_checked_told_and_never_said_again() {
        let (mut table, node) = (EntryTable::default(), Identity::generate().unwrap());
        let (id, topic) = ((node.node_id(), from(HERE)), keys(1).topic());
        let here =
            |table: &EntryTable| table.said_here(None).map(|(.., bytes)| bytes.clone()).collect::<Vec<_>>();
        assert_eq!(table.watch(50, 7, topic), Ok(vec![]));
        let first = entry(&node, 1, (1, 100));
        let mut forged = first.to_vec();
        forged[40] ^= 1;
        for (bytes, refusal) in
            [(forged.into(), Refusal::Malformed), (vec![1; 4000].into(), Refusal::Malformed)]
        {
            assert_eq!(table.take(50, bytes), Err(refusal));
        }
        assert_eq!(table.take(50, entry(&node, 1, (1, 50))), Err(Refusal::Entry), "over");
        assert_eq!(table.take(50, entry(&node, 1, (1, 50 + 3601))), Err(Refusal::Entry), "for too long");
        assert_eq!(table.take(50, first.clone()), Ok(Some(vec![7])));
        assert_eq!(table.take(50, first), Ok(None), "again");
        assert!(here(&table).is_empty());
        let second = entry(&node, 1, (2, 100));
        assert_eq!(table.announce(50, id, second.clone()), Ok(Some(vec![7])));
        assert_eq!(here(&table), [second]);
        let third = entry(&node, 1, (3, 100));
        assert_eq!(table.take(50, third.clone()), Ok(Some(vec![7])));
        assert_eq!(here(&table), [third], "its node speaks to this server, too");
        assert_eq!((table.elsewhere.len(), table.from_addresses.len()), (0, 1));
        table.expire(100);
        assert!(table.is_empty() && table.elsewhere.is_empty() && table.here.is_empty());
    }

    /// Whoever writes to the engine can fill what is free, and keeps nobody out who speaks to this server.
    #[test]
    fn what_is_said_here_goes_before_what_was_said_elsewhere() {
        let nodes: Vec<Identity> = (0..4).map(|_| Identity::generate().unwrap()).collect();
        let wide = TableLimits::default();
        for limits in [TableLimits { entries: 2, ..wide }, TableLimits { per_topic: 2, ..wide }] {
            let mut table = EntryTable::new(limits);
            let bytes = |node: usize, number| entry(&nodes[node], 1, (number, 100));
            assert!([0, 1].into_iter().all(|node| table.take(50, bytes(node, 1)).is_ok()));
            assert_eq!(table.take(50, bytes(2, 1)), Err(Refusal::TooMany), "{limits:?}");
            let mut announce = |node: usize, number| {
                table.announce(50, (nodes[node].node_id(), from(HERE)), bytes(node, number)).map(drop)
            };
            let told = [(2, 1), (3, 1), (0, 2), (2, 2)].map(|(node, number)| announce(node, number));
            assert_eq!(told, [Ok(()), Ok(()), Err(Refusal::TooMany), Ok(())], "{limits:?}");
            assert_eq!((table.len(), table.elsewhere.len()), (2, 0));
        }
        let mut table = EntryTable::new(TableLimits { per_address: 1, ..wide });
        assert!([0, 1].into_iter().all(|node| table.take(50, entry(&nodes[node], 1, (1, 100))).is_ok()));
        let mut announce = |node: usize| {
            let id = (nodes[node].node_id(), from(HERE));
            table.announce(50, id, entry(&nodes[node], 1, (2, 100))).map(drop)
        };
        assert_eq!((announce(0), announce(1)), (Ok(()), Err(Refusal::TooMany)), "from one address");
    }

    /// Else two addresses would fill the whole table, by moving what the one said to the other again and again.
    #[test]
    fn what_moves_to_another_address_counts_there() {
        let nodes: Vec<Identity> = (0..3).map(|_| Identity::generate().unwrap()).collect();
        let mut table = EntryTable::new(TableLimits { per_address: 1, ..TableLimits::default() });
        let mut announce = |node: usize, number, address: &str| {
            let id = (nodes[node].node_id(), from(address));
            table.announce(50, id, entry(&nodes[node], 1, (number, 100))).map(drop)
        };
        let other = "192.0.2.2";
        assert_eq!((announce(0, 1, HERE), announce(1, 1, other)), (Ok(()), Ok(())));
        assert_eq!((announce(0, 2, other), announce(0, 2, HERE)), (Err(Refusal::TooMany), Ok(())));
        assert_eq!(announce(0, 3, "192.0.2.3"), Ok(()), "where there is room");
        assert_eq!(announce(2, 1, HERE), Ok(()), "what moved away");
        assert_eq!(table.from_addresses.values().copied().collect::<Vec<_>>(), [1; 3]);
    }

    #[test]
    fn all_that_was_said_here_is_told_in_parts() {
        let (mut table, node) = (EntryTable::default(), Identity::generate().unwrap());
        for secret in 0..5 {
            table.announce(50, (node.node_id(), from(HERE)), entry(&node, secret, (1, 100))).unwrap();
        }
        let (mut after, mut seen) = (None, Vec::new());
        while let Some((topic, node, bytes)) = table.said_here(after).next() {
            seen.push(bytes.clone());
            after = Some((topic, node));
        }
        assert_eq!(seen, table.said_here(None).map(|(.., bytes)| bytes.clone()).collect::<Vec<_>>());
        assert_eq!(seen.len(), 5);
    }
}
