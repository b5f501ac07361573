//! The door of a service: the sockets where peers come in, the configuration of connections with them, the limits on
//! who may stay, and who is told what they fetch.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OnceCell, mpsc};
use towpath_api::{ApiError, ErrorKind, Event};
use towpath_config::Live;
use towpath_config::fetch_log::FetchLog;
use towpath_content::Hint;
use towpath_content::hint::MAX_HINTS;
use towpath_link::Identity;
use towpath_link::tcp::Listener;
use towpath_plugins::direct::PeerHost;
use towpath_protocol::processors::Processors;
use towpath_protocol::{Pace, PeerConfig, PeerNews, Service as PeerService, Traffic, WithdrawalSink};
use towpath_store::{DiskStore, Store};

use crate::ending;
use crate::fetches::Fetches;
use crate::listen::{self, ListenerServing, Listening};
use crate::meetings::Meetings;
use crate::relayed;
use crate::standing::StandingPeers;
use crate::withdrawals::Withdrawals;
use towpath_config::shares::Shares;
use towpath_limits::connection_limits::ConnectionLimits;

/// Time for sending peers the last message: an interrupted command ends within a second.
const LEAVE: Duration = Duration::from_millis(600);

/// See the head of this module.
pub struct Door {
    /// The node that the service is.
    pub identity: Identity,
    /// What it shares.
    pub shares: Arc<Shares>,
    /// Answers peers.
    pub peers: Arc<PeerService>,
    /// Configuration of connections.
    pub connections: Connections,
    /// Limits on who may stay.
    pub limits: Arc<ConnectionLimits>,
    /// Who fetches what.
    pub fetches: Arc<Fetches>,
    /// The sockets, once it listens.
    pub listening: OnceCell<Listening>,
    /// Connections that transfers may use, whoever dialled them.
    pub standing: Arc<StandingPeers>,
    /// Where others find it, and it finds them.
    pub meetings: Arc<Meetings>,
}

/// Configuration of connections with peers.
#[derive(Clone)]
pub struct Connections {
    /// The configuration as it is now.
    pub config: Live,
    /// Those of this program.
    pub processors: Processors,
    /// Pace of all that is sent.
    pub send_pace: Arc<Pace>,
    /// Counts what callers are sent.
    pub served: Arc<Traffic>,
    /// Told which tickets were withdrawn.
    pub withdrawals: Arc<Withdrawals>,
}

impl Connections {
    /// Of those that this side dials.
    pub fn dialled(&self) -> PeerConfig {
        let wishes = self.config.get().processors.wishes();
        let withdrawals = Some(Arc::clone(&self.withdrawals) as Arc<dyn WithdrawalSink>);
        let news = PeerNews { withdrawals, holders: None };
        PeerConfig { processors: self.processors.clone(), wishes, news, ..PeerConfig::default() }
    }

    /// Of those that come in.
    fn callers(&self) -> PeerConfig {
        let (send_pace, traffic) = (Arc::clone(&self.send_pace), Arc::clone(&self.served));
        PeerConfig { send_pace, traffic, from_anyone: true, ..self.dialled() }
    }
}

impl Door {
    /// Nobody comes in yet.
    pub fn new(
        identity: &Identity,
        (shares, log): (&Arc<Shares>, FetchLog),
        store: &Arc<DiskStore>,
        peers: Arc<PeerService>,
        connections: Connections,
        meetings: Meetings,
    ) -> Self {
        let limits = Arc::new(ConnectionLimits::new(connections.config.clone()));
        let fetches = Arc::new(Fetches::new(Arc::clone(store) as Arc<dyn Store>).noted_in(log));
        let standing = StandingPeers {
            pool: Arc::default(),
            service: Arc::clone(&peers),
            send_pace: Arc::clone(&connections.send_pace),
            limits: Arc::clone(&limits),
            fetches: Arc::clone(&fetches),
            config: connections.config.clone(),
        };
        Self {
            identity: identity.clone(),
            meetings: Arc::new(meetings),
            shares: Arc::clone(shares),
            peers,
            connections,
            limits,
            fetches,
            listening: OnceCell::new(),
            standing: Arc::new(standing),
        }
    }

    /// Listens for peers; they wait until [`Self::open`]. `user` names who listens, so that the same one gets the same
    /// port again; `addresses` are what a person asked for.
    pub async fn listen(&self, user: &[u8], addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, ApiError> {
        self.listen_at(listen::sockets(&self.identity, &self.shares, user, addresses)).await
    }

    /// The same at sockets that another program, such as systemd, listens on already.
    pub async fn listen_inherited(
        &self,
        sockets: Vec<std::net::TcpListener>,
    ) -> Result<Vec<SocketAddr>, ApiError> {
        let inherited = sockets.into_iter().map(|socket| listen::inherit(&self.identity, socket));
        self.listen_at(async { inherited.collect() }).await
    }

    async fn listen_at(
        &self,
        sockets: impl Future<Output = Result<Vec<Listener>, ApiError>>,
    ) -> Result<Vec<SocketAddr>, ApiError> {
        let connections = self.connections.clone();
        let relays = relayed::waiting_places(&connections.config.get())?;
        let serving = Arc::new(ListenerServing {
            service: Arc::clone(&self.peers),
            config: Box::new(move || connections.callers()),
            connection_limits: Arc::clone(&self.limits),
            fetches: Arc::clone(&self.fetches),
            pool: Arc::clone(&self.standing.pool),
            wait_limit: listen::WAIT_LIMIT,
        });
        let (meetings, connections) = (Arc::clone(&self.meetings), self.connections.clone());
        let host = Arc::clone(&self.standing) as Arc<dyn PeerHost>;
        let caller = meetings.caller(&self.identity, host, move || connections.dialled());
        let start = async || {
            let listening = Listening::start(sockets.await?, Arc::clone(&serving))?;
            listening.tell_moves(self.identity.node_id(), Arc::clone(&serving.service));
            listening.attend(relayed::attend(relays, self.identity.clone(), serving));
            let addresses = listening.addresses().to_vec();
            listening.attend(async move { meetings.keep_announced(addresses, caller).await });
            Ok::<_, ApiError>(listening)
        };
        let listening = self.listening.get_or_try_init(start).await?;
        Ok(listening.addresses().to_vec())
    }

    /// Listens at those of `addresses` that this machine still has and nobody else took, for those who come back there.
    pub async fn listen_again(&self, addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, ApiError> {
        self.listen_at(listen::again(&self.identity, addresses)).await
    }

    /// The port at which a get is served to others while it runs. A daemon has one or does without; else it is any that is free.
    pub async fn listen_for_a_while(&self, is_daemon: bool) -> Result<u16, ApiError> {
        if !is_daemon {
            let anywhere = async { Ok(vec![listen::anywhere(&self.identity).await?]) };
            self.listen_at(anywhere).await?;
            self.open();
        }
        let nowhere = || ApiError::new(ErrorKind::Failed, "this service does not listen");
        self.addresses().first().map(SocketAddr::port).ok_or_else(nowhere)
    }

    /// Lets peers in that [`Self::listen`] listens for. To be called when what they may ask for is
    /// there: one that waits for this service to come back asks at once, and is refused only once.
    pub fn open(&self) {
        if let Some(listening) = self.listening.get() {
            listening.open();
        }
    }

    /// Lets nobody in any more. Connections that are there stay.
    pub fn close(&self) {
        if let Some(listening) = self.listening.get() {
            listening.close();
        }
    }

    /// Closes, and waits a moment for peers to get the last messages, as that of a producer that gave up: those who
    /// have nothing else to fetch leave.
    pub async fn take_leave(&self) {
        self.close();
        let start = Instant::now();
        while self.limits.connections() > 0 && start.elapsed() < LEAVE {
            tokio::time::sleep(ending::LOOK_EVERY).await;
        }
    }

    /// The addresses it listens on; none if it does not.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening.get().map(|listening| listening.addresses().to_vec()).unwrap_or_default()
    }

    /// These as tickets name them.
    pub fn hints(&self) -> Vec<Hint> {
        let hints = self.addresses().into_iter().enumerate().filter_map(|(rank, address)| {
            let priority = u16::try_from(rank).unwrap_or(u16::MAX);
            Hint::new(format!("tow://{address}"), priority, 1).ok()
        });
        let mut hints: Vec<Hint> = hints.collect();
        let mut others = self.meetings.hints(hints.len());
        others.extend(relayed::hints(&self.connections.config.get(), hints.len() + others.len()));
        hints.truncate(MAX_HINTS - others.len());
        hints.into_iter().chain(others).collect()
    }

    /// The limits on connections from peers.
    pub const fn limits(&self) -> &Arc<ConnectionLimits> {
        &self.limits
    }

    /// Tells from now on who fetches what from this service: `fetch` events. One watches at a time.
    pub fn watch_fetches(&self) -> mpsc::Receiver<Event> {
        self.fetches.watch()
    }
}
