//! How many nodes fetch by one ticket: the first so many that prove it, and no other. Pure: it is told who proves the ticket, and
//! who has all of what it names.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use towpath_content::NodeId;

/// Nodes that may fetch by a ticket, and which of them have all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchBudget {
    most: NonZeroU32,
    /// By node: it has all.
    nodes: BTreeMap<NodeId, bool>,
}

/// What comes of a node that proves the ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchTurn {
    /// It may fetch from now on.
    New,
    /// It might before: it goes on.
    Known,
    /// Others were first.
    Refused,
}

impl FetchBudget {
    /// Lets `most` nodes fetch; `nodes` are those that were let in before.
    pub fn new(most: NonZeroU32, nodes: impl IntoIterator<Item = (NodeId, bool)>) -> Self {
        Self { most, nodes: nodes.into_iter().collect() }
    }

    /// The number of nodes that may fetch.
    pub const fn most(&self) -> NonZeroU32 {
        self.most
    }

    /// A node proves the ticket.
    pub fn proves(&mut self, node: NodeId) -> FetchTurn {
        if self.nodes.contains_key(&node) {
            return FetchTurn::Known;
        }
        if self.nodes.len() >= self.limit() {
            return FetchTurn::Refused;
        }
        self.nodes.insert(node, false);
        FetchTurn::New
    }

    /// A node says that it has all. True if that is news; of one that was not let in it means nothing.
    pub fn has_all(&mut self, node: &NodeId) -> bool {
        self.nodes.get_mut(node).is_some_and(|has_all| !std::mem::replace(has_all, true))
    }

    /// True once as many as may fetch have all: the ticket is of no more use.
    pub fn is_spent(&self) -> bool {
        self.nodes.values().filter(|has_all| **has_all).count() >= self.limit()
    }

    /// The nodes that were let in; true for those that have all.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, bool)> {
        self.nodes.iter().map(|(node, has_all)| (node, *has_all))
    }

    fn limit(&self) -> usize {
        usize::try_from(self.most.get()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn node(number: u8) -> NodeId {
        NodeId([number; 32])
    }

    fn budget(most: u32) -> FetchBudget {
        FetchBudget::new(NonZeroU32::new(most).unwrap(), [])
    }

    /// What happens, and what is to come of it.
    enum Step {
        Proves(u8, FetchTurn),
        HasAll(u8, bool),
    }

    #[test]
    fn the_first_ones_fetch_and_come_back_and_nobody_else() {
        use FetchTurn::{Known, New, Refused};
        use Step::{HasAll, Proves};
        let table: [(&str, u32, &[Step], bool); 7] = [
            ("nobody came", 1, &[], false),
            ("one comes back", 1, &[Proves(1, New), Proves(1, Known)], false),
            ("one has all", 1, &[Proves(1, New), HasAll(1, true)], true),
            (
                "a further one, before and after",
                1,
                &[Proves(1, New), Proves(2, Refused), HasAll(1, true), Proves(2, Refused), Proves(1, Known)],
                true,
            ),
            ("one says it twice", 2, &[Proves(1, New), HasAll(1, true), HasAll(1, false)], false),
            (
                "two of two",
                2,
                &[
                    Proves(1, New),
                    Proves(2, New),
                    Proves(3, Refused),
                    HasAll(2, true),
                    Proves(3, Refused),
                    HasAll(1, true),
                ],
                true,
            ),
            ("one that was refused", 1, &[Proves(1, New), Proves(2, Refused), HasAll(2, false)], false),
        ];
        for (case, most, steps, is_spent) in table {
            let mut budget = budget(most);
            for step in steps {
                match *step {
                    Proves(number, expected) => assert_eq!(budget.proves(node(number)), expected, "{case}"),
                    HasAll(number, expected) => assert_eq!(budget.has_all(&node(number)), expected, "{case}"),
                }
            }
            assert_eq!(budget.is_spent(), is_spent, "{case}");
        }
    }

    #[test]
    fn those_of_the_last_time_still_count() {
        let mut before = budget(2);
        before.proves(node(1));
        before.proves(node(2));
        before.has_all(&node(1));
        let known = before.nodes().map(|(node, has_all)| (*node, has_all));
        let mut budget = FetchBudget::new(before.most(), known);
        assert_eq!(budget, before);
        assert_eq!(budget.proves(node(3)), FetchTurn::Refused);
        assert_eq!(budget.proves(node(2)), FetchTurn::Known);
        assert!(!budget.is_spent() && budget.has_all(&node(2)) && budget.is_spent());
        let fewer = FetchBudget::new(NonZeroU32::MIN, [(node(1), true), (node(2), false)]);
        assert!(fewer.is_spent(), "a smaller number than before");
    }
}
