//! Who fetches what by which ticket, and which of them serve it, too: a ticket's issuer tells them of each other. Pure: handed
//! what comes over connections, it says what to tell on which.
//!
//! Only who proved a ticket's secret is told of others that proved it, and only of those that said that they serve. So nobody is told of
//! who does not want to be known. An address that another node can't reach is not told it (`AddressReach`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid};

/// Holders that a node is told of, and nodes that are told of one when it begins to serve, at most: more would hardly bring more.
pub const MOST_TOLD: usize = 16;
/// Addresses of its own that a service tells a node of, at most.
const MOST_OWN: usize = 32;

/// What is fetched: a root, by the ticket with this secret.
pub type FetchedRoot = (Oid, BoundSecret);

/// A node that serves, for another that fetches the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServingNode {
    /// The node.
    pub node: NodeId,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A holder that is to be told of on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Introduction {
    /// The connection.
    pub connection: u64,
    /// The holder.
    pub holder: ServingNode,
}

/// Range in which an address means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AddressReach {
    Machine,
    Site,
    Everywhere,
}

impl AddressReach {
    fn of(address: IpAddr) -> Self {
        let (is_loopback, is_site) = match address {
            IpAddr::V4(ip) => (ip.is_loopback(), ip.is_private() || ip.is_link_local()),
            IpAddr::V6(ip) => (ip.is_loopback(), ip.is_unique_local() || ip.is_unicast_link_local()),
        };
        match (is_loopback, is_site) {
            (true, _) => Self::Machine,
            (false, true) => Self::Site,
            (false, false) => Self::Everywhere,
        }
    }
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct Introductions {
    fetched: HashMap<FetchedRoot, BTreeMap<NodeId, Fetcher>>,
    by_connection: HashMap<u64, (NodeId, HashSet<FetchedRoot>)>,
}

/// A node that fetches a root.
#[derive(Debug)]
struct Fetcher {
    address: IpAddr,
    connections: BTreeSet<u64>,
    /// Where it serves, with the connection on which it said so.
    serves: Option<(u64, u16)>,
    /// Nodes that it was told of.
    told: BTreeSet<NodeId>,
    /// Times that others were told of it.
    introduced: usize,
    /// Addresses of this service that it was told.
    told_own: usize,
}

impl Fetcher {
    fn holder(&self, node: NodeId) -> Option<ServingNode> {
        let (_, port) = self.serves?;
        Some(ServingNode { node, address: SocketAddr::new(self.address, port) })
    }

    /// True if it is to be told of this holder, if there is room.
    fn lacks(&self, own: NodeId, holder: &ServingNode) -> bool {
        let can_reach = AddressReach::of(holder.address.ip()) >= AddressReach::of(self.address);
        own != holder.node && can_reach && self.told.len() < MOST_TOLD && !self.told.contains(&holder.node)
    }
}

impl Introductions {
    /// `node` proved the right to what it fetches, on a connection from this address.
    pub fn joined(
        &mut self,
        connection: u64,
        (node, address): (NodeId, IpAddr),
        fetched: FetchedRoot,
    ) -> Vec<Introduction> {
        self.by_connection.entry(connection).or_insert_with(|| (node, HashSet::new())).1.insert(fetched);
        let fetchers = self.fetched.entry(fetched).or_default();
        let fetcher = fetchers.entry(node).or_insert_with(|| Fetcher {
            address: address.to_canonical(),
            connections: BTreeSet::new(),
            serves: None,
            told: BTreeSet::new(),
            introduced: 0,
            told_own: 0,
        });
        fetcher.connections.insert(connection);
        // Those of whom few were told first.
        let mut holders: Vec<_> = fetchers
            .iter()
            .filter_map(|(other, fetcher)| Some((fetcher.introduced, fetcher.holder(*other)?)))
            .collect();
        holders.sort_unstable();
        let tell = |(_, holder)| Self::tell(fetchers, node, holder);
        holders.into_iter().filter_map(tell).collect()
    }

    /// On this connection the node says that it serves what it fetches, at this port; 0: no more.
    pub fn serves(&mut self, connection: u64, fetched: FetchedRoot, port: u16) -> Vec<Introduction> {
        let node = self.by_connection.get(&connection).filter(|(_, all)| all.contains(&fetched));
        let Some((node, fetchers)) = node.map(|(node, _)| *node).zip(self.fetched.get_mut(&fetched)) else {
            return Vec::new();
        };
        let Some(fetcher) = fetchers.get_mut(&node) else { return Vec::new() };
        fetcher.serves = Some((connection, port)).filter(|_| port != 0);
        let Some(holder) = fetcher.holder(node) else { return Vec::new() };
        // Those who were told of few first.
        let mut others: Vec<_> =
            fetchers.iter().map(|(other, fetcher)| (fetcher.told.len(), *other)).collect();
        others.sort_unstable();
        let tell = |(_, other)| Self::tell(fetchers, other, holder);
        others.into_iter().filter_map(tell).take(MOST_TOLD).collect()
    }

    /// This service, `own`, is at these addresses now, too: all who fetch from it are told on each of their connections, as nobody knows
    /// which of them still stand.
    pub fn moved(&mut self, own: NodeId, addresses: &[SocketAddr]) -> Vec<(Introduction, FetchedRoot)> {
        let mut told = Vec::new();
        for (fetched, fetchers) in &mut self.fetched {
            for fetcher in fetchers.values_mut() {
                let means = |address: &&SocketAddr| {
                    AddressReach::of(address.ip()) >= AddressReach::of(fetcher.address)
                };
                let new = addresses.iter().filter(means).take(MOST_OWN - fetcher.told_own);
                let holders = new.map(|address| ServingNode { node: own, address: *address });
                for holder in holders.collect::<Vec<_>>() {
                    fetcher.told_own += 1;
                    let on = |connection: &u64| (Introduction { connection: *connection, holder }, *fetched);
                    told.extend(fetcher.connections.iter().map(on));
                }
            }
        }
        told
    }

    /// A connection is gone, and with it what was said on it.
    pub fn left(&mut self, connection: u64) {
        let Some((node, all)) = self.by_connection.remove(&connection) else { return };
        for fetched in all {
            let Some(fetchers) = self.fetched.get_mut(&fetched) else { continue };
            if let Some(fetcher) = fetchers.get_mut(&node) {
                fetcher.connections.remove(&connection);
                fetcher.serves.take_if(|(said_on, _)| *said_on == connection);
                if fetcher.connections.is_empty() {
                    fetchers.remove(&node);
                }
            }
            if fetchers.is_empty() {
                self.fetched.remove(&fetched);
            }
        }
    }

    /// True if nobody fetches anything.
    pub fn is_empty(&self) -> bool {
        self.fetched.is_empty() && self.by_connection.is_empty()
    }

    fn tell(
        fetchers: &mut BTreeMap<NodeId, Fetcher>,
        node: NodeId,
        holder: ServingNode,
    ) -> Option<Introduction> {
        let fetcher = fetchers.get_mut(&node).filter(|fetcher| fetcher.lacks(node, &holder))?;
        let connection = *fetcher.connections.first()?;
        fetcher.told.insert(holder.node);
        fetchers.get_mut(&holder.node)?.introduced += 1;
        Some(Introduction { connection, holder })
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::Secret;

    use super::*;

    const NEAR: [&str; 3] = ["127.0.0.1", "10.0.0.7", "203.0.113.7"];

    fn node(number: u64) -> NodeId {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        NodeId(key)
    }

    fn root(secret: u8) -> FetchedRoot {
        (Oid::of(b"root"), Secret([secret; 16]).into())
    }

    fn peer(number: u64, address: &str) -> (NodeId, IpAddr) {
        (node(number), address.parse().unwrap())
    }

    fn told(introductions: &[Introduction]) -> Vec<(u64, u64)> {
        let number = |node: NodeId| (0..1000).find(|number| self::node(*number) == node).unwrap();
        introductions.iter().map(|told| (told.connection, number(told.holder.node))).collect()
    }

    #[test]
    fn who_fetches_is_told_where_this_service_is_now_on_each_connection() {
        let (mut all, own) = (Introductions::default(), node(99));
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let [site, public] = [at("10.0.0.9:7"), at("203.0.113.9:7")];
        for (connection, number, address) in [(1, 1, "10.0.0.7"), (2, 1, "10.0.0.7"), (3, 3, "203.0.113.7")] {
            all.joined(connection, peer(number, address), root(1));
        }
        let told = |all: &mut Introductions, addresses: &[SocketAddr]| {
            let mut told: Vec<_> = all
                .moved(own, addresses)
                .into_iter()
                .map(|(told, fetched)| {
                    assert_eq!((told.holder.node, fetched), (own, root(1)));
                    (told.connection, told.holder.address)
                })
                .collect();
            told.sort_unstable();
            told
        };
        let both = [(1, site), (1, public), (2, site), (2, public), (3, public)];
        assert_eq!(told(&mut all, &[site, public]), both, "nobody far away is told of a site's address");
        assert_eq!(told(&mut all, &vec![public; 99]).len(), 2 * (MOST_OWN - 2) + MOST_OWN - 1);
        assert_eq!(told(&mut all, &[public]), [], "often enough");
        all.left(3);
        all.joined(4, peer(3, "203.0.113.7"), root(1));
        assert_eq!(told(&mut all, &[public]), [(4, public)]);
    }

    #[test]
    fn who_fetches_the_same_is_told_of_who_serves_it_once() {
        let mut all = Introductions::default();
        assert!(all.joined(1, peer(1, NEAR[0]), root(1)).is_empty());
        assert!(all.joined(2, peer(2, NEAR[0]), root(1)).is_empty(), "nobody serves");
        let introductions = all.serves(1, root(1), 700);
        assert_eq!(introductions[0].holder.address, "127.0.0.1:700".parse().unwrap());
        assert_eq!(told(&introductions), [(2, 1)]);
        assert_eq!(told(&all.joined(3, peer(3, NEAR[0]), root(1))), [(3, 1)], "and who comes later");
        assert!(all.serves(1, root(1), 700).is_empty(), "they know");
        assert!(all.joined(4, peer(2, NEAR[0]), root(1)).is_empty(), "on whichever connection");
        assert_eq!(told(&all.serves(4, root(1), 9)), [(1, 2), (3, 2)]);
    }

    #[test]
    fn neither_another_ticket_nor_another_connection_makes_known() {
        let mut all = Introductions::default();
        all.joined(1, peer(1, NEAR[0]), root(1));
        all.joined(2, peer(2, NEAR[0]), root(2));
        assert!(all.serves(1, root(1), 700).is_empty(), "the other has another ticket");
        assert!(all.serves(2, root(1), 700).is_empty(), "it did not prove this one");
        assert!(all.serves(9, root(1), 700).is_empty(), "it proved nothing");
        assert_eq!(told(&all.joined(3, peer(3, NEAR[0]), root(1))), [(3, 1)]);
    }

    #[test]
    fn an_address_is_told_to_who_can_reach_it() {
        for (holder, is_told) in [
            (NEAR[0], [true, false, false]),
            (NEAR[1], [true, true, false]),
            (NEAR[2], [true, true, true]),
            ("::1", [true, false, false]),
            ("fd00::1", [true, true, false]),
            ("::ffff:10.0.0.7", [true, true, false]),
            ("2001:db8::1", [true, true, true]),
        ] {
            for (peer_at, is_told) in NEAR.iter().zip(is_told) {
                let mut all = Introductions::default();
                all.joined(1, peer(1, holder), root(1));
                all.serves(1, root(1), 700);
                let introductions = all.joined(2, peer(2, peer_at), root(1));
                assert_eq!(introductions.len() == 1, is_told, "{holder} for {peer_at}");
            }
        }
    }

    #[test]
    fn who_stopped_or_is_gone_is_told_of_no_more() {
        let mut all = Introductions::default();
        for connection in [1, 2] {
            all.joined(connection, peer(1, NEAR[0]), root(1));
        }
        all.serves(1, root(1), 700);
        all.serves(1, root(1), 0);
        assert!(all.joined(3, peer(3, NEAR[0]), root(1)).is_empty(), "it stopped");
        all.serves(2, root(1), 700);
        all.left(2);
        assert!(
            all.joined(4, peer(4, NEAR[0]), root(1)).is_empty(),
            "what was said went with its connection"
        );
        [1, 3, 4].into_iter().for_each(|connection| all.left(connection));
        assert!(all.is_empty(), "nothing is kept");
    }

    #[test]
    fn nobody_is_told_of_more_than_so_many_and_all_are_told_of_by_turns() {
        let mut all = Introductions::default();
        for number in 0..100 {
            all.joined(number, peer(number, NEAR[0]), root(1));
            assert!(all.serves(number, root(1), 700).len() <= MOST_TOLD);
        }
        let mut of = BTreeMap::<u64, usize>::new();
        for number in 100..200 {
            let introductions = told(&all.joined(number, peer(number, NEAR[0]), root(1)));
            assert_eq!(introductions.len(), MOST_TOLD);
            introductions.iter().for_each(|(_, holder)| *of.entry(*holder).or_default() += 1);
        }
        assert!(of.len() == 100 && of.values().all(|times| *times <= 2 * MOST_TOLD), "{of:?}");
    }
}
