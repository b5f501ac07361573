//! Connections from peers, counted in all, by address and by node, against the limits
//! that hold at the moment.
//!
//! A connection takes a place for its handshake, which is the only thing that is tested before
//! bytes are exchanged. Over another limit its handshake is done all the same, so that it can be
//! given the reason; such ones are few at a time and count for nothing else. Those who are there keep their
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

use self::table::{ConnectionTable, Handshake};
use towpath_config::Live;
use towpath_content::lock::lock;

/// Reason why a connection was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
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

impl Excess {
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

    /// The message for the peer.
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

/// The limits on a service's connections, and who holds a place within them.
#[derive(Debug, Default)]
pub struct ConnectionLimits {
    config: Live,
    callers: Mutex<LiveCallers>,
    accepted: AtomicU64,
    refused: [AtomicU64; Excess::ALL.len()],
}

#[derive(Debug, Default)]
struct LiveCallers {
    table: ConnectionTable,
    /// Cancelled when one has to go.
    lost: HashMap<u64, CancellationToken>,
}

impl LiveCallers {
    /// One has to go, if any has.
    fn lose(&mut self, id: Option<u64>) {
        id.and_then(|id| self.lost.remove(&id)).into_iter().for_each(|token| token.cancel());
    }
}

impl ConnectionLimits {
    /// Limits as `config` has them at the moment.
    pub fn new(config: Live) -> Self {
        Self { config, ..Self::default() }
    }

    /// Connections now.
    pub fn connections(&self) -> u64 {
        lock(&self.callers).table.connections() as u64
    }

    /// Connections that were let in so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that were not let in so far, or had to go for others.
    pub fn refused(&self, excess: Excess) -> u64 {
        self.refused[excess as usize].load(Ordering::Relaxed)
    }

    /// A place for the peer of a connection that this side dialled, which may ask there; `None`: it may not. Such a connection counts
    /// against the limits, but takes no caller's place.
    pub fn dialled(self: &Arc<Self>, node: NodeId) -> Option<ConnectionPermit> {
        let limits = &self.config.get().limits;
        let id = lock(&self.callers).table.dialled(limits, node)?;
        Some(ConnectionPermit { limits: Arc::clone(self), id, lost: CancellationToken::new() })
    }

    fn refuse(&self, excess: Excess) {
        self.refused[excess as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A new connection from `ip`; `None` if it is to be hung up on.
    pub fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<HandshakePermit> {
        let limits = &self.config.get().limits;
        let mut callers = lock(&self.callers);
        match callers.table.admit(limits, ip.into(), Instant::now()) {
            Ok(Handshake { id, excess, loses }) => {
                loses.iter().for_each(|_| self.refuse(Excess::Handshakes));
                callers.lose(loses);
                let lost = CancellationToken::new();
                callers.lost.insert(id, lost.clone());
                let permit = ConnectionPermit { limits: Arc::clone(self), id, lost };
                Some(HandshakePermit { permit, excess })
            }
            Err(excess) => {
                self.refuse(excess);
                None
            }
        }
    }
}

/// A connection whose handshake is under way. Its place is given back when it is dropped.
#[derive(Debug)]
pub struct HandshakePermit {
    permit: ConnectionPermit,
    /// Reason why it is turned away, if it is.
    excess: Option<Excess>,
}

impl HandshakePermit {
    /// Its first byte has come.
    pub fn spoke(&self) {
        lock(&self.permit.limits.callers).table.spoke(self.permit.id);
    }

    /// Completes when it has to go for another.
    pub async fn lost(&self) {
        self.permit.lost.cancelled().await;
    }

    /// The handshake is done, and this is the peer, which `is_known` if it need not show a ticket: its
    /// place, or why there is none.
    pub fn enter(self, node: NodeId, is_known: bool) -> Result<ConnectionPermit, (Excess, Self)> {
        let connection_limits = Arc::clone(&self.permit.limits);
        match self.excess.map_or_else(|| self.permit.enter(node, is_known), Err) {
            Ok(()) => {
                connection_limits.accepted.fetch_add(1, Ordering::Relaxed);
                Ok(self.permit)
            }
            Err(excess) => {
                connection_limits.refuse(excess);
                Err((excess, self))
            }
        }
    }
}

/// A place among the connections.
#[derive(Debug)]
pub struct ConnectionPermit {
    limits: Arc<ConnectionLimits>,
    id: u64,
    lost: CancellationToken,
}

impl ConnectionPermit {
    fn enter(&self, node: NodeId, is_known: bool) -> Result<(), Excess> {
        let limits = &self.limits.config.get().limits;
        let mut callers = lock(&self.limits.callers);
        let loses = callers.table.enter(limits, self.id, node, is_known)?;
        loses.iter().for_each(|_| self.limits.refuse(Excess::Strangers));
        callers.lose(loses);
        Ok(())
    }

    /// Completes when it is lost to another.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Its peer had a right to something: it is kept. False if it is lost already.
    pub fn keep(&self) -> bool {
        lock(&self.limits.callers).table.know(self.id)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut callers = lock(&self.limits.callers);
        callers.table.leave(self.id);
        callers.lost.remove(&self.id);
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

    fn connection_limits(config: Config) -> (Arc<ConnectionLimits>, Live) {
        let live = Live::new(config);
        (Arc::new(ConnectionLimits::new(live.clone())), live)
    }

    /// With a ticket.
    fn enter(
        connection_limits: &Arc<ConnectionLimits>,
        ip: IpAddr,
        node: u8,
    ) -> Result<ConnectionPermit, Excess> {
        connection_limits.admit(ip).unwrap().enter(NodeId([node; 32]), true).map_err(|(excess, _)| excess)
    }

    fn stranger(connection_limits: &Arc<ConnectionLimits>, ip: IpAddr, node: u8) -> ConnectionPermit {
        connection_limits.admit(ip).unwrap().enter(NodeId([node; 32]), false).unwrap()
    }

    #[test]
    fn one_address_cannot_take_every_place() {
        let (connection_limits, _) = connection_limits(limits(100, 3, 100, 100));
        let mut greedy: Vec<_> = (0..3).map(|node| enter(&connection_limits, HERE, node).unwrap()).collect();
        assert_eq!(enter(&connection_limits, HERE, 4).unwrap_err(), Excess::Address);
        assert!(enter(&connection_limits, THERE, 4).is_ok());
        greedy.pop();
        assert!(enter(&connection_limits, HERE, 4).is_ok());
        assert_eq!((connection_limits.refused(Excess::Address), connection_limits.accepted()), (1, 5));
        drop(greedy);
        let callers = connection_limits.callers.lock().unwrap();
        assert_eq!(
            (callers.table.connections(), callers.table.handshakes()),
            (0, 0),
            "nothing is left behind"
        );
        assert!(callers.lost.is_empty());
    }

    #[test]
    fn one_node_cannot_take_every_place_from_many_addresses() {
        let (connection_limits, _) = connection_limits(limits(100, 100, 2, 100));
        let _permits =
            [enter(&connection_limits, HERE, 7).unwrap(), enter(&connection_limits, THERE, 7).unwrap()];
        assert_eq!(enter(&connection_limits, [192, 0, 2, 3].into(), 7).unwrap_err(), Excess::Node);
        assert!(enter(&connection_limits, [192, 0, 2, 3].into(), 8).is_ok());
        assert_eq!(connection_limits.connections(), 2, "whoever was refused has no place");
    }

    #[tokio::test]
    async fn those_who_say_nothing_lose_their_places_to_others() {
        let (connection_limits, _) = connection_limits(limits(100, 100, 100, 4));
        let silent: Vec<_> = (0..4).map(|_| connection_limits.admit(HERE).unwrap()).collect();
        assert!(enter(&connection_limits, THERE, 1).is_ok());
        silent[0].lost().await;
        assert_eq!(connection_limits.refused(Excess::Handshakes), 1);
        assert_eq!(silent.into_iter().filter(|handshake| handshake.permit.lost.is_cancelled()).count(), 1);
    }

    #[tokio::test]
    async fn strangers_lose_their_places_to_others_unless_they_show_a_ticket_in_time() {
        let (connection_limits, _) = connection_limits(limits(2, 100, 100, 4));
        let (first, second) = (stranger(&connection_limits, HERE, 1), stranger(&connection_limits, HERE, 2));
        assert!(first.keep());
        let third = enter(&connection_limits, THERE, 3).unwrap();
        second.lost().await;
        assert!(!second.keep() && first.keep() && third.keep());
        assert_eq!((connection_limits.refused(Excess::Strangers), connection_limits.connections()), (1, 2));
        drop(second);
        assert_eq!(connection_limits.connections(), 2, "its place was not given back twice");
        let late = connection_limits.admit(THERE).unwrap();
        assert_eq!(late.enter(NodeId([4; 32]), true).unwrap_err().0, Excess::All);
    }

    #[test]
    fn those_who_are_turned_away_leave_room_for_handshakes() {
        let (connection_limits, _) = connection_limits(limits(100, 1, 100, 8));
        let _place = enter(&connection_limits, HERE, 1).unwrap();
        let greedy: Vec<_> = (0..10).filter_map(|_| connection_limits.admit(HERE)).collect();
        assert_eq!(greedy.len(), 2, "a quarter of the handshakes");
        assert!(enter(&connection_limits, THERE, 2).is_ok());
    }

    #[test]
    fn new_limits_hold_for_whoever_comes() {
        let (connection_limits, live) = connection_limits(limits(3, 3, 3, 9));
        let permits: Vec<_> = (0..3).map(|node| enter(&connection_limits, HERE, node).unwrap()).collect();
        live.set(limits(1, 3, 3, 9));
        assert_eq!(enter(&connection_limits, THERE, 9).unwrap_err(), Excess::All);
        assert_eq!((connection_limits.connections(), permits.len()), (3, 3), "nobody is thrown out");
        live.set(limits(4, 3, 3, 9));
        assert!(enter(&connection_limits, THERE, 9).is_ok());
    }
}
