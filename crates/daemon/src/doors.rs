//! Who is let in: connections from peers, counted in all, by address and by node, against the limits
//! that hold at the moment.
//!
//! A connection takes a place for its handshake, which is the only thing that is tested before
//! bytes are exchanged. Over another limit its handshake is done all the same, so that it can be
//! told why; such ones are few at a time and count for nothing else. Those who are there keep their
//! places when limits shrink.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use towpath_content::NodeId;

use crate::config::{Limits, Live};
use crate::lock::lock;

/// Of the handshakes under way, at most one in so many may be of a peer that is turned away.
const TURNED_AWAY_SHARE: usize = 4;

/// Why a connection was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Too many in all.
    All,
    /// Too many from its address.
    Address,
    /// Too many from its node.
    Node,
    /// Too many that have not proved yet who they are.
    Handshakes,
}

impl Full {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::All, Self::Address, Self::Node, Self::Handshakes];

    /// The name of the limit.
    pub const fn limit(self) -> &'static str {
        match self {
            Self::All => "connections",
            Self::Address => "connections_per_address",
            Self::Node => "connections_per_node",
            Self::Handshakes => "handshakes",
        }
    }

    /// What the peer is told.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::All | Self::Handshakes => {
                "this service has as many connections as it takes; try again later"
            }
            Self::Address => {
                "this service has as many connections from your address as it takes; try again later"
            }
            Self::Node => "this service has as many connections from your node as it takes; try again later",
        }
    }
}

/// The doors of a service.
#[derive(Debug, Default)]
pub struct Doors {
    config: Live,
    counts: Mutex<Counts>,
    accepted: AtomicU64,
    refused: [AtomicU64; Full::ALL.len()],
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    handshakes: usize,
    turned_away: usize,
    by_address: HashMap<IpAddr, usize>,
    by_node: HashMap<NodeId, usize>,
}

/// What becomes of a connection that was just accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    LetIn,
    /// After the handshake.
    TurnAway(Full),
    /// At once.
    HangUp(Full),
}

impl Counts {
    fn entry(&self, limits: &Limits, ip: IpAddr) -> Entry {
        let handshakes = at_most(limits.handshakes.0);
        if self.handshakes >= handshakes {
            return Entry::HangUp(Full::Handshakes);
        }
        let here = self.by_address.get(&ip).copied().unwrap_or(0);
        let full = if self.all >= at_most(limits.connections.0) {
            Full::All
        } else if here >= at_most(limits.connections_per_address.0) {
            Full::Address
        } else {
            return Entry::LetIn;
        };
        match self.turned_away < handshakes.div_ceil(TURNED_AWAY_SHARE) {
            true => Entry::TurnAway(full),
            false => Entry::HangUp(full),
        }
    }
}

fn at_most(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Doors {
    /// Doors that obey what `config` says at the moment.
    pub fn new(config: Live) -> Self {
        Self { config, ..Self::default() }
    }

    /// Connections now.
    pub fn connections(&self) -> u64 {
        lock(&self.counts).all as u64
    }

    /// Connections that were let in so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that were not let in so far.
    pub fn refused(&self, full: Full) -> u64 {
        self.refused[full as usize].load(Ordering::Relaxed)
    }

    fn refuse(&self, full: Full) {
        self.refused[full as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A new connection from `ip`; `None` if it is to be hung up on.
    pub(crate) fn knock(self: &Arc<Self>, ip: IpAddr) -> Option<Knock> {
        let limits = &self.config.get().limits;
        let mut counts = lock(&self.counts);
        let turned_away = match counts.entry(limits, ip) {
            Entry::HangUp(full) => {
                self.refuse(full);
                return None;
            }
            Entry::TurnAway(full) => {
                counts.turned_away += 1;
                Some(full)
            }
            Entry::LetIn => {
                counts.all += 1;
                *counts.by_address.entry(ip).or_default() += 1;
                None
            }
        };
        counts.handshakes += 1;
        drop(counts);
        let place = match turned_away {
            Some(full) => Err(full),
            None => Ok(Place { doors: Arc::clone(self), ip, node: None }),
        };
        Some(Knock { doors: Arc::clone(self), place: Some(place), was_turned_away: turned_away.is_some() })
    }
}

/// A connection whose handshake is under way.
#[derive(Debug)]
pub(crate) struct Knock {
    doors: Arc<Doors>,
    place: Option<Result<Place, Full>>,
    was_turned_away: bool,
}

impl Knock {
    /// The handshake is done, and this is the peer: its place, or why there is none. The place of the
    /// handshake is given back when this is dropped.
    pub(crate) fn enter(&mut self, node: NodeId) -> Result<Place, Full> {
        let entered = self.place.take().unwrap_or(Err(Full::All)).and_then(|place| place.of(node));
        match &entered {
            Ok(_) => drop(self.doors.accepted.fetch_add(1, Ordering::Relaxed)),
            Err(full) => self.doors.refuse(*full),
        }
        entered
    }
}

impl Drop for Knock {
    fn drop(&mut self) {
        // It locks by itself.
        self.place = None;
        let mut counts = lock(&self.doors.counts);
        counts.handshakes -= 1;
        counts.turned_away -= usize::from(self.was_turned_away);
    }
}

/// A place among the connections.
#[derive(Debug)]
pub(crate) struct Place {
    doors: Arc<Doors>,
    ip: IpAddr,
    node: Option<NodeId>,
}

impl Place {
    fn of(mut self, node: NodeId) -> Result<Self, Full> {
        let limit = at_most(self.doors.config.get().limits.connections_per_node.0);
        let mut counts = lock(&self.doors.counts);
        let here = counts.by_node.entry(node).or_default();
        if *here < limit {
            *here += 1;
            self.node = Some(node);
        }
        drop(counts);
        if self.node.is_some() { Ok(self) } else { Err(Full::Node) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.doors.counts);
        counts.all -= 1;
        leave(&mut counts.by_address, &self.ip);
        if let Some(node) = &self.node {
            leave(&mut counts.by_node, node);
        }
    }
}

fn leave<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
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
    use crate::config::{Config, Count};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn limits(all: u64, address: u64, node: u64, handshakes: u64) -> Config {
        let mut config = Config::default();
        config.limits.connections = Count(all);
        config.limits.connections_per_address = Count(address);
        config.limits.connections_per_node = Count(node);
        config.limits.handshakes = Count(handshakes);
        config
    }

    fn doors(config: Config) -> (Arc<Doors>, Live) {
        let live = Live::new(config);
        (Arc::new(Doors::new(live.clone())), live)
    }

    fn enter(doors: &Arc<Doors>, ip: IpAddr, node: u8) -> Result<Place, Full> {
        doors.knock(ip).unwrap().enter(NodeId([node; 32]))
    }

    #[test]
    fn one_address_cannot_take_every_place() {
        let (doors, _) = doors(limits(100, 3, 100, 100));
        let mut greedy: Vec<_> = (0..3).map(|node| enter(&doors, HERE, node).unwrap()).collect();
        assert_eq!(enter(&doors, HERE, 4).unwrap_err(), Full::Address);
        assert!(enter(&doors, THERE, 4).is_ok());
        greedy.pop();
        assert!(enter(&doors, HERE, 4).is_ok());
        assert_eq!((doors.refused(Full::Address), doors.accepted()), (1, 5));
        drop(greedy);
        let counts = doors.counts.lock().unwrap();
        assert!(counts.all == 0 && counts.by_address.is_empty() && counts.by_node.is_empty());
        assert_eq!((counts.handshakes, counts.turned_away), (0, 0), "nothing is left behind");
    }

    #[test]
    fn one_node_cannot_take_every_place_from_many_addresses() {
        let (doors, _) = doors(limits(100, 100, 2, 100));
        let _places = [enter(&doors, HERE, 7).unwrap(), enter(&doors, THERE, 7).unwrap()];
        assert_eq!(enter(&doors, [192, 0, 2, 3].into(), 7).unwrap_err(), Full::Node);
        assert!(enter(&doors, [192, 0, 2, 3].into(), 8).is_ok());
        assert_eq!(doors.connections(), 2, "whoever was refused has no place");
    }

    #[test]
    fn those_who_say_nothing_take_only_the_places_of_handshakes() {
        let (doors, _) = doors(limits(100, 100, 100, 4));
        let mut silent: Vec<_> = (0..4).map(|_| doors.knock(HERE).unwrap()).collect();
        assert!(doors.knock(THERE).is_none());
        assert_eq!(doors.refused(Full::Handshakes), 1);
        silent.pop();
        assert!(enter(&doors, THERE, 1).is_ok());
    }

    #[test]
    fn those_who_are_turned_away_leave_room_for_handshakes() {
        let (doors, _) = doors(limits(100, 1, 100, 8));
        let _place = enter(&doors, HERE, 1).unwrap();
        let greedy: Vec<_> = (0..10).filter_map(|_| doors.knock(HERE)).collect();
        assert_eq!(greedy.len(), 2, "a quarter of the handshakes");
        assert!(enter(&doors, THERE, 2).is_ok());
    }

    #[test]
    fn new_limits_hold_for_whoever_comes() {
        let (doors, live) = doors(limits(3, 3, 3, 9));
        let places: Vec<_> = (0..3).map(|node| enter(&doors, HERE, node).unwrap()).collect();
        live.set(limits(1, 3, 3, 9));
        assert_eq!(enter(&doors, THERE, 9).unwrap_err(), Full::All);
        assert_eq!((doors.connections(), places.len()), (3, 3), "nobody is thrown out");
        live.set(limits(4, 3, 3, 9));
        assert!(enter(&doors, THERE, 9).is_ok());
    }
}
