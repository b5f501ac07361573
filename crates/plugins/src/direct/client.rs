//! The plugin itself, [`Direct`]: its configuration, its connections to one peer, and what these tell of the way there.
//!
//! | module | story |
//! |---|---|
//! | `reaching` | how it reaches the peer: dials, calls, or finds a connection, and may share one |
//! | `asking` | what it is as a source: what it is asked for it asks of the peer |

mod asking;
mod reaching;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use towpath_content::NodeId;
use towpath_content::lock::lock;
use towpath_link::Identity;
use towpath_link::tcp::DialConfig;
use towpath_protocol::{Arrived, Peer, PeerConfig};
use towpath_transfer::source::{NETWORK_PRICE, PathState, RELAYED_PRICE, UNREACHED_PRICE};

use super::pool::PeerHost;
use super::slots::{Slot, Slots};
use super::unasked::Unasked;

pub(super) use self::reaching::dialled_addresses;

/// Time for which wants are left alone after the connection was lost.
const PAUSE: Duration = Duration::from_millis(100);

/// Interval at which a connection that was found is looked at, and hints are where none tells an address.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Time in which a peer that can be dialled is reached, mostly.
const LATE: Duration = Duration::from_millis(150);

/// Time for which a path counts as measured.
const MEASURED: Duration = Duration::from_millis(1);

/// Configuration of how the plugin reaches peers.
#[derive(Clone)]
pub struct DirectConfig {
    /// Connections to the peer at first. Default 1.
    pub connections: usize,
    /// Connections to the peer at most, if more of them bring more. Default 16.
    pub most_connections: usize,
    /// How addresses are dialled. From one of several ends of this machine, it is named so in what comes.
    pub dial: DialConfig,
    /// Configuration of each connection.
    pub peer: PeerConfig,
    /// The peer is called through relays, and not dialled.
    pub is_relayed: bool,
    /// The only address that is dialled. Default: those that hints name.
    pub only: Option<SocketAddr>,
}

impl Default for DirectConfig {
    fn default() -> Self {
        let (dial, peer) = (DialConfig::default(), PeerConfig::default());
        Self { connections: 1, most_connections: 16, dial, peer, is_relayed: false, only: None }
    }
}

/// Brings objects from another service. See the head of [`super`].
pub struct Direct {
    identity: Identity,
    /// The service that it asks; `None`: the one that issued the ticket.
    node: Option<NodeId>,
    config: DirectConfig,
    slots: Arc<Slots>,
    unasked: Unasked,
    /// Has connections that stand already, and answers what the peer asks on those that are dialled.
    host: Option<Arc<dyn PeerHost>>,
    /// A connection that was found brought nothing, and none was dialled since.
    shuns: AtomicBool,
    last_error: Mutex<Option<String>>,
    /// The address at which the peer was reached last.
    led: Mutex<Option<SocketAddr>>,
    /// Time since which there is no connection: from the beginning, or as far as somebody looked.
    unreached: Mutex<Option<Instant>>,
    /// The path as it was measured last.
    measured: Mutex<Option<(Instant, PathState)>>,
}

impl Direct {
    /// A plugin that dials the ticket's issuer, as `identity`, unless `host` has a connection that may be used.
    pub fn new(identity: Identity, config: DirectConfig, host: Option<Arc<dyn PeerHost>>) -> Self {
        let slots = Arc::new(Slots::new(config.connections, config.most_connections));
        Self {
            identity,
            node: None,
            config,
            slots,
            unasked: Unasked::default(),
            host,
            shuns: AtomicBool::new(false),
            last_error: Mutex::default(),
            led: Mutex::default(),
            unreached: Mutex::new(Some(Instant::now())),
            measured: Mutex::default(),
        }
    }

    /// The same for another holder of what is asked for, at the addresses of the hints that name it.
    #[must_use]
    pub fn to(self, node: NodeId) -> Self {
        Self { node: Some(node), ..self }
    }

    /// A plugin that asks over a connection that stands already, whoever dialled it, and never
    /// dials.
    pub fn over(peer: Arc<Peer>, identity: Identity) -> Self {
        Self::over_several(peer, identity, DirectConfig { most_connections: 1, ..DirectConfig::default() })
    }

    /// The same, over several: how many are wanted it says ([`Self::wanted`]), and whoever has them brings them
    /// ([`Self::join`]).
    pub fn over_several(peer: Arc<Peer>, identity: Identity, config: DirectConfig) -> Self {
        let slots = Arc::new(Slots::standing(peer, config.connections, config.most_connections));
        Self { slots, ..Self::new(identity, config, None) }
    }

    /// The address at which the peer was reached last, if it was dialled.
    pub fn led(&self) -> Option<SocketAddr> {
        *lock(&self.led)
    }

    /// Number of connections that are wanted; none where it dials by itself.
    pub fn wanted(&self) -> Option<watch::Receiver<usize>> {
        self.slots.are_brought().then(|| self.slots.wanted())
    }

    /// Connections that are wanted and do not stand.
    pub fn lacks(&self) -> usize {
        self.slots.lacks()
    }

    /// Takes in a further connection to the same node; false if none is wanted.
    pub fn join(&self, peer: Arc<Peer>) -> bool {
        self.slots.join(peer)
    }

    fn set_last_error(&self, last_error: Option<String>) {
        *lock(&self.last_error) = last_error;
    }

    /// Notes how a connection did. Those that were brought say nothing of the first, without which there is no way.
    fn note(&self, slot: &Slot, error: Option<String>) {
        if !self.slots.are_brought() || self.slots.is_first(slot) {
            self.set_last_error(error);
        }
    }

    /// Price of what it brings. Where it has not been reached for a moment, others come first.
    fn price(&self) -> u32 {
        let (mut since, now) = (lock(&self.unreached), Instant::now());
        *since = match self.slots.peers().next() {
            Some(_) => None,
            None => Some(since.unwrap_or(now)),
        };
        let is_late = since.is_some_and(|since| now.saturating_duration_since(since) > LATE);
        match (is_late, self.config.is_relayed) {
            (true, _) => UNREACHED_PRICE,
            (false, true) => RELAYED_PRICE,
            (false, false) => NETWORK_PRICE,
        }
    }

    /// Amounts that came of the peer, by all connections together.
    pub(crate) fn heard(&self) -> Arrived {
        self.slots.peers().map(|peer| peer.heard()).fold(Arrived::default(), Arrived::with)
    }

    /// The ways to the peer, all connections together. The kernel is asked now and then only: states are asked for often.
    fn path(&self) -> PathState {
        let (mut measured, now) = (lock(&self.measured), Instant::now());
        if let Some((at, path)) = *measured
            && now.saturating_duration_since(at) < MEASURED
        {
            return path;
        }
        let heard = self.heard();
        let bare = PathState { arrived: heard.bytes, is_due: heard.awaits_data, ..PathState::default() };
        let paths = self.slots.peers().filter_map(|peer| peer.path());
        let path = paths.fold(bare, |all, path| PathState {
            round_trip: all.round_trip.max(path.rtt),
            shortest: all.shortest.max(path.min_rtt),
            receive_queue: all.receive_queue + path.receive_queue_bytes,
            ..all
        });
        *measured = Some((now, path));
        path
    }
}
