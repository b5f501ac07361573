//! Who is let in: connections from peers, counted in all, by address and by node, against the limits
//! that hold at the moment.
//!
//! A connection takes a place for its handshake, which is the only thing that is tested before
//! bytes are exchanged. Over another limit its handshake is done all the same, so that it can be
//! told why; such ones are few at a time and count for nothing else. Those who are there keep their
//! places when limits shrink.
//!
//! Two kinds have to go when places are short, so that somebody with a ticket gets in: who says nothing, and
//! *strangers*, who shook hands and had a right to nothing yet. Who goes for whom is decided by `table`.

mod table;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use towpath_content::NodeId;

use self::table::{DoorTable, Knocked};
use towpath_config::Live;
use towpath_content::lock::lock;

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
    /// Too many that had a right to nothing yet.
    Strangers,
}

impl Full {
    /// All reasons.
    pub const ALL: [Self; 5] = [Self::All, Self::Address, Self::Node, Self::Handshakes, Self::Strangers];

    /// The name of the limit.
    pub const fn limit(self) -> &'static str {
        match self {
            Self::All => "connections",
            Self::Address => "connections_per_address",
            Self::Node => "connections_per_node",
            Self::Handshakes => "handshakes",
            Self::Strangers => "strangers",
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
            Self::Strangers => "others came, and no ticket of this service was shown here; try again",
            Self::Node => "this service has as many connections from your node as it takes; try again later",
        }
    }
}

/// The doors of a service.
#[derive(Debug, Default)]
pub struct Doors {
    config: Live,
    guests: Mutex<Guests>,
    accepted: AtomicU64,
    refused: [AtomicU64; Full::ALL.len()],
}

#[derive(Debug, Default)]
struct Guests {
    table: DoorTable,
    /// Cancelled when one has to go.
    lost: HashMap<u64, CancellationToken>,
}

impl Guests {
    /// One has to go, if any has.
    fn lose(&mut self, id: Option<u64>) {
        id.and_then(|id| self.lost.remove(&id)).into_iter().for_each(|token| token.cancel());
    }
}

impl Doors {
    /// Doors that obey what `config` says at the moment.
    pub fn new(config: Live) -> Self {
        Self { config, ..Self::default() }
    }

    /// Connections now.
    pub fn connections(&self) -> u64 {
        lock(&self.guests).table.connections() as u64
    }

    /// Connections that were let in so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that were not let in so far, or had to go for others.
    pub fn refused(&self, full: Full) -> u64 {
        self.refused[full as usize].load(Ordering::Relaxed)
    }

    fn refuse(&self, full: Full) {
        self.refused[full as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A new connection from `ip`; `None` if it is to be hung up on.
    pub(crate) fn knock(self: &Arc<Self>, ip: IpAddr) -> Option<Knock> {
        let limits = &self.config.get().limits;
        let mut guests = lock(&self.guests);
        match guests.table.knock(limits, ip.into(), Instant::now()) {
            Ok(Knocked { id, full, loses }) => {
                loses.iter().for_each(|_| self.refuse(Full::Handshakes));
                guests.lose(loses);
                let lost = CancellationToken::new();
                guests.lost.insert(id, lost.clone());
                Some(Knock { place: DoorPermit { doors: Arc::clone(self), id, lost }, full })
            }
            Err(full) => {
                self.refuse(full);
                None
            }
        }
    }
}

/// A connection whose handshake is under way. Its place is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Knock {
    place: DoorPermit,
    /// Why it is turned away, if it is.
    full: Option<Full>,
}

impl Knock {
    /// Its first byte has come.
    pub(crate) fn spoke(&self) {
        lock(&self.place.doors.guests).table.spoke(self.place.id);
    }

    /// Completes when it has to go for another.
    pub(crate) async fn lost(&self) {
        self.place.lost.cancelled().await;
    }

    /// The handshake is done, and this is the peer, which `is_known` if it need not show a ticket: its
    /// place, or why there is none.
    pub(crate) fn enter(self, node: NodeId, is_known: bool) -> Result<DoorPermit, (Full, Self)> {
        let doors = Arc::clone(&self.place.doors);
        match self.full.map_or_else(|| self.place.enter(node, is_known), Err) {
            Ok(()) => {
                doors.accepted.fetch_add(1, Ordering::Relaxed);
                Ok(self.place)
            }
            Err(full) => {
                doors.refuse(full);
                Err((full, self))
            }
        }
    }
}

/// A place among the connections.
#[derive(Debug)]
pub(crate) struct DoorPermit {
    doors: Arc<Doors>,
    id: u64,
    lost: CancellationToken,
}

impl DoorPermit {
    fn enter(&self, node: NodeId, is_known: bool) -> Result<(), Full> {
        let limits = &self.doors.config.get().limits;
        let mut guests = lock(&self.doors.guests);
        let loses = guests.table.enter(limits, self.id, node, is_known)?;
        loses.iter().for_each(|_| self.doors.refuse(Full::Strangers));
        guests.lose(loses);
        Ok(())
    }

    /// Completes when it is lost to another.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Its peer had a right to something: it is kept. False if it is lost already.
    pub(crate) fn keep(&self) -> bool {
        lock(&self.doors.guests).table.know(self.id)
    }
}

impl Drop for DoorPermit {
    fn drop(&mut self) {
        let mut guests = lock(&self.doors.guests);
        guests.table.leave(self.id);
        guests.lost.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_config::{Config, Count};

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

    /// With a ticket.
    fn enter(doors: &Arc<Doors>, ip: IpAddr, node: u8) -> Result<DoorPermit, Full> {
        doors.knock(ip).unwrap().enter(NodeId([node; 32]), true).map_err(|(full, _)| full)
    }

    fn stranger(doors: &Arc<Doors>, ip: IpAddr, node: u8) -> DoorPermit {
        doors.knock(ip).unwrap().enter(NodeId([node; 32]), false).unwrap()
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
        let guests = doors.guests.lock().unwrap();
        assert_eq!((guests.table.connections(), guests.table.handshakes()), (0, 0), "nothing is left behind");
        assert!(guests.lost.is_empty());
    }

    #[test]
    fn one_node_cannot_take_every_place_from_many_addresses() {
        let (doors, _) = doors(limits(100, 100, 2, 100));
        let _places = [enter(&doors, HERE, 7).unwrap(), enter(&doors, THERE, 7).unwrap()];
        assert_eq!(enter(&doors, [192, 0, 2, 3].into(), 7).unwrap_err(), Full::Node);
        assert!(enter(&doors, [192, 0, 2, 3].into(), 8).is_ok());
        assert_eq!(doors.connections(), 2, "whoever was refused has no place");
    }

    #[tokio::test]
    async fn those_who_say_nothing_lose_their_places_to_others() {
        let (doors, _) = doors(limits(100, 100, 100, 4));
        let silent: Vec<_> = (0..4).map(|_| doors.knock(HERE).unwrap()).collect();
        assert!(enter(&doors, THERE, 1).is_ok());
        silent[0].lost().await;
        assert_eq!(doors.refused(Full::Handshakes), 1);
        assert_eq!(silent.into_iter().filter(|knock| knock.place.lost.is_cancelled()).count(), 1);
    }

    #[tokio::test]
    async fn strangers_lose_their_places_to_others_unless_they_show_a_ticket_in_time() {
        let (doors, _) = doors(limits(2, 100, 100, 4));
        let (first, second) = (stranger(&doors, HERE, 1), stranger(&doors, HERE, 2));
        assert!(first.keep());
        let third = enter(&doors, THERE, 3).unwrap();
        second.lost().await;
        assert!(!second.keep() && first.keep() && third.keep());
        assert_eq!((doors.refused(Full::Strangers), doors.connections()), (1, 2));
        drop(second);
        assert_eq!(doors.connections(), 2, "its place was not given back twice");
        let late = doors.knock(THERE).unwrap();
        assert_eq!(late.enter(NodeId([4; 32]), true).unwrap_err().0, Full::All);
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
