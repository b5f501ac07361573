//! Who else is there under a topic, from what one or several servers told: the newest word of each node, until it is over. Pure.

use std::collections::BTreeMap;

use towpath_content::NodeId;

use crate::entry::{HolderEntry, SignedEntry};
use crate::topic::TopicKeys;

/// Nodes that are kept for one topic.
const MOST_NODES: usize = 512;

/// See the head of this module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundNodes {
    nodes: BTreeMap<NodeId, FoundNode>,
    /// Servers that told all they had.
    pub told: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FoundNode {
    number: u64,
    expires: u64,
    /// `None`: it said that it is there no more.
    entry: Option<HolderEntry>,
}

impl FoundNodes {
    /// Those that are there.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &HolderEntry)> {
        self.nodes.iter().filter_map(|(node, found)| Some((node, found.entry.as_ref()?)))
    }

    /// Takes in an entry; true if it is news. One that was not written by somebody with the ticket is none.
    pub(super) fn take(&mut self, now: u64, keys: &TopicKeys, signed: &SignedEntry) -> bool {
        let is_newer = self.nodes.get(&signed.node).is_none_or(|found| found.number < signed.number);
        if !is_newer || signed.expires <= now {
            return false;
        }
        let entry = match signed.is_end() {
            true => None,
            false => match signed.open(keys) {
                Some(entry) => Some(entry),
                None => return false,
            },
        };
        if !self.nodes.contains_key(&signed.node) && !self.has_room(entry.is_some()) {
            return false;
        }
        let SignedEntry { number, expires, .. } = *signed;
        self.nodes.insert(signed.node, FoundNode { number, expires, entry });
        true
    }

    /// True if one more node can be remembered. Who is there goes before ends: a server can make those up without the ticket, of nodes that
    /// nobody ever heard of.
    fn has_room(&mut self, is_there: bool) -> bool {
        if self.nodes.len() < MOST_NODES {
            return true;
        }
        let end = self.nodes.iter().find(|(_, found)| found.entry.is_none()).map(|(node, _)| *node);
        is_there && end.is_some_and(|end| self.nodes.remove(&end).is_some())
    }

    /// Forgets what is over; true if there was something.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|_, found| found.expires > now);
        before != self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::Oid;
    use towpath_content::ticket::Secret;
    use towpath_link::Identity;

    fn keys(secret: u8) -> TopicKeys {
        TopicKeys::new(&Oid::of(b"root"), &Secret([secret; 16]).into())
    }

    #[test]
    fn the_newest_word_of_a_node_holds_until_it_is_over_whichever_server_told_it() {
        let (mut found, node) = (FoundNodes::default(), Identity::generate().unwrap());
        let entry = |has| HolderEntry { has, ..HolderEntry::default() };
        let signed = |times, entry: Option<HolderEntry>| {
            SignedEntry::new(&node, &keys(1), times, entry.as_ref(), [0; 12])
        };
        let has = |found: &FoundNodes| found.iter().map(|(_, entry)| entry.has).collect::<Vec<_>>();
        assert!(found.take(0, &keys(1), &signed((5, 100), Some(entry(5)))));
        assert!(!found.take(0, &keys(1), &signed((5, 100), Some(entry(9)))), "told again");
        assert!(!found.take(0, &keys(1), &signed((4, 900), Some(entry(4)))), "older");
        assert!(!found.take(50, &keys(1), &signed((6, 50), Some(entry(6)))), "over");
        assert!(!found.take(0, &keys(2), &signed((7, 100), Some(entry(7)))), "without the ticket");
        assert_eq!(has(&found), [5]);
        assert!(found.take(0, &keys(1), &signed((8, 200), None)), "its end");
        assert_eq!(has(&found), []);
        assert!(!found.take(0, &keys(1), &signed((7, 300), Some(entry(7)))), "from before its end");
        assert!(!found.expire(199) && found.expire(200));
        assert!(found.take(200, &keys(1), &signed((9, 300), Some(entry(9)))));
        assert_eq!(has(&found), [9]);
    }

    /// A server that hides nobody but tells of ends that it made up keeps nobody else out either.
    #[test]
    fn ends_that_were_made_up_leave_room_for_who_is_there() {
        let mut found = FoundNodes::default();
        let end = || SignedEntry::new(&Identity::generate().unwrap(), &keys(9), (1, 100), None, [0; 12]);
        let ends: Vec<_> = (0..MOST_NODES + 9).map(|_| found.take(0, &keys(1), &end())).collect();
        assert_eq!((ends.iter().filter(|is_news| **is_news).count(), found.iter().count()), (MOST_NODES, 0));
        let entry = HolderEntry { has: 7, ..HolderEntry::default() };
        let there = |node: &Identity| SignedEntry::new(node, &keys(1), (1, 100), Some(&entry), [0; 12]);
        for _ in 0..MOST_NODES {
            assert!(found.take(0, &keys(1), &there(&Identity::generate().unwrap())));
            found.take(0, &keys(1), &end());
        }
        assert_eq!((found.iter().count(), found.nodes.len()), (MOST_NODES, MOST_NODES));
        assert!(!found.take(0, &keys(1), &there(&Identity::generate().unwrap())), "all are there");
    }
}
