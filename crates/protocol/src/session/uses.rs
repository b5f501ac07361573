//! Transfers of this side that use a connection, which may be several: what each asks it may cancel alone, and the peer is told that
//! a root is needed no more once none of them needs it. Pure.

use std::collections::BTreeMap;

use towpath_content::Oid;

use crate::wire::{WireFinished, oid_field};

/// See the head of this module.
#[derive(Default)]
pub(crate) struct PeerUses {
    by_root: BTreeMap<Oid, RootUses>,
    /// The number that was given last.
    last: u64,
}

/// Those that need one root.
#[derive(Default)]
struct RootUses {
    count: usize,
    /// How those ended that have, as the peer is told: the best of it.
    how: u32,
}

impl PeerUses {
    /// Those that are under way.
    pub(crate) fn len(&self) -> usize {
        self.by_root.values().map(|uses| uses.count).sum()
    }

    /// One more begins, of `root`; its number: 0, if it is alone. Others that begin meanwhile have one of their own.
    pub(crate) fn begin(&mut self, root: Oid) -> u64 {
        self.last = if self.by_root.is_empty() { 0 } else { self.last + 1 };
        self.by_root.entry(root).or_default().count += 1;
        self.last
    }

    /// One of `root` ends, as `how` says; returns what the peer is to be told, if it was the last one.
    pub(crate) fn end(&mut self, root: &Oid, how: u32) -> Option<WireFinished> {
        let uses = self.by_root.get_mut(root)?;
        uses.count -= 1;
        // Of those that did not give up the lower one is the better one.
        uses.how = [uses.how, how].into_iter().filter(|how| *how > 0).min().unwrap_or(0);
        let ended = (uses.count == 0).then(|| self.by_root.remove(root)).flatten()?;
        Some(WireFinished { root: oid_field(root), how: ended.how })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_told_that_a_root_is_needed_no_more_once_nobody_needs_it() {
        let roots = [Oid::of(b"one"), Oid::of(b"other")];
        // How those of the first root end, in their order, and what is said.
        for (ends, said) in [
            (&[1][..], 1),
            (&[0], 0),
            (&[2, 1], 1),
            (&[1, 2], 1),
            (&[1, 0], 1),
            (&[0, 2], 2),
            (&[0, 0, 0], 0),
        ] {
            let mut uses = PeerUses::default();
            let numbers: Vec<u64> = ends.iter().map(|_| uses.begin(roots[0])).collect();
            assert_eq!(numbers, (0..ends.len() as u64).collect::<Vec<_>>());
            assert_eq!(uses.begin(roots[1]), ends.len() as u64);
            let (last, before) = ends.split_last().unwrap();
            assert!(before.iter().all(|how| uses.end(&roots[0], *how).is_none()), "{ends:?}");
            let finished = WireFinished { root: oid_field(&roots[0]), how: said };
            assert_eq!(uses.end(&roots[0], *last), Some(finished), "{ends:?}");
            assert_eq!(uses.len(), 1, "the other root is still needed");
        }
    }

    #[test]
    fn no_two_uses_that_are_under_way_have_one_number() {
        let (mut uses, root) = (PeerUses::default(), Oid::of(b"any"));
        assert_eq!([0, 1, 2].map(|_| uses.begin(root)), [0, 1, 2]);
        assert!(uses.end(&root, 1).is_none());
        assert_eq!(uses.begin(root), 3, "the first may be the one that ended");
        (0..3).for_each(|_| drop(uses.end(&root, 1)));
        assert_eq!((uses.len(), uses.begin(root)), (0, 0));
    }
}
