//! What was heard of each other server: how many entries it has published. Whoever counts notices what was lost, on whatever way.
//! Pure.

use std::collections::HashMap;

use crate::message::ServerName;

/// Servers that are remembered.
const MOST_SERVERS: usize = 64;

/// See the head of this module.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    known: HashMap<ServerName, KnownPeer>,
    heard: u64,
}

#[derive(Debug, Clone, Copy)]
struct KnownPeer {
    published: u64,
    /// Larger for who was heard later.
    heard: u64,
}

impl Peers {
    /// A server says how many it has published; true if some of them did not come here.
    pub(crate) fn hello(&mut self, name: ServerName, published: u64) -> bool {
        self.hear(name, published) != Some(published)
    }

    /// An entry came, with which its server has published so many; true if some before did not come.
    pub(crate) fn entry(&mut self, name: ServerName, published: u64) -> bool {
        let expected = published.checked_sub(1);
        self.hear(name, published).is_none_or(|before| expected.is_none_or(|expected| before < expected))
    }

    /// It was not read to the end: it is when it says hello again.
    pub(crate) fn forget(&mut self, name: ServerName) {
        self.known.remove(&name);
    }

    /// Returns what it had said before. What is older than that changes nothing, and is no loss.
    fn hear(&mut self, name: ServerName, published: u64) -> Option<u64> {
        self.heard += 1;
        let before = self.known.get(&name).map(|peer| peer.published);
        if before.is_none() && self.known.len() >= MOST_SERVERS {
            let oldest = self.known.iter().min_by_key(|(_, peer)| peer.heard).map(|(name, _)| *name);
            oldest.map(|oldest| self.known.remove(&oldest));
        }
        let published = published.max(before.unwrap_or(0));
        self.known.insert(name, KnownPeer { published, heard: self.heard });
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u8) -> ServerName {
        ServerName([number; 16])
    }

    #[test]
    fn what_was_lost_is_noticed_once() {
        let mut peers = Peers::default();
        assert!(peers.hello(name(1), 5), "it was not known");
        assert!(!peers.hello(name(1), 5));
        assert!(!peers.entry(name(1), 6) && !peers.hello(name(1), 6));
        assert!(peers.entry(name(1), 8), "7 is lost");
        assert!(!peers.entry(name(1), 7), "or only late");
        assert!(!peers.entry(name(1), 9));
        assert!(peers.hello(name(1), 10) && !peers.hello(name(1), 10));
        assert!(peers.entry(name(2), 1), "it was not known");
        peers.forget(name(1));
        assert!(peers.hello(name(1), 10), "it was not read");
    }

    #[test]
    fn those_that_were_not_heard_for_longest_are_forgotten() {
        let mut peers = Peers::default();
        assert!((0..MOST_SERVERS as u8).all(|number| peers.hello(name(number), 1)));
        assert!(!peers.hello(name(0), 1));
        assert!(peers.hello(name(200), 1));
        assert_eq!(peers.known.len(), MOST_SERVERS);
        assert!(!peers.hello(name(0), 1));
        assert!(peers.hello(name(1), 1), "it was the one");
    }
}
