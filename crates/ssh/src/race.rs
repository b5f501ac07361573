//! TLS connections beside ssh's pipe, dialled from both sides: whichever stands first takes the
//! data over, since it is faster than a pipe through two more processes.
//!
//! Each side listens, sends its addresses to the other (over the control stream), and dials those received.
//! The side that asks for data chooses: the first connection on which the other one has said hello
//! is offered to its [`Takeover`], further ones are closed. The side that only answers keeps what
//! it has. Node ids came over ssh, so only the other side of this copy gets in.
//!
//! Where the person named links of their machine, their side dials by each of these instead (`links`).
//!
//! A long, fast path needs several (`plugins::direct::long_path`). Whoever dialled the one that was chosen dials the others
//! where that one led (`further`). If that was the side that answers, it is told how many ([`Race::asks`], [`Race::reach`]).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_content::NodeId;
use towpath_content::lock::lock;
use towpath_link::Identity;
use towpath_link::tcp::{Listener, LocalEnd, Timeouts};
use towpath_plugins::direct::DirectConfig;
use towpath_plugins::{Direct, Takeover};
use towpath_protocol::{Peer, PeerConfig, Service};

use crate::addresses::{bind, interfaces};
use crate::attempts::DialAttempts;
use crate::error::SshError;
use crate::far_side::{Other, RaceConnection, greeted};
use crate::further::FurtherConnections;
use crate::links::{ChosenWays, dial_by_each, keep_links, sort};
use crate::race_status::RaceStatus;

/// Time that a copy which may use nothing else waits for a connection.
pub const STAND_LIMIT: Duration = Duration::from_secs(30);
/// Addresses sent, and dialled.
pub const MAX_ADDRESSES: usize = 16;

/// Handshakes at once; further callers wait in the kernel.
const MAX_PENDING: usize = 16;
/// Connections that a copy uses at most.
pub const MOST_CONNECTIONS: usize = 16;
/// Connections of the other side at once: those, and some that were not chosen.
const MAX_STANDING: usize = MOST_CONNECTIONS + 4;
/// After a failed accept (out of descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);

/// Addresses of sshd's connection, on the remote side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshConnection {
    /// Address that ssh came from, as seen here.
    pub client: IpAddr,
    /// Address that it came to.
    pub server: IpAddr,
}

impl SshConnection {
    /// Out of the environment. Only for the remote side: elsewhere it is about another connection.
    pub fn from_env() -> Option<Self> {
        Self::parse(&std::env::var("SSH_CONNECTION").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut address = || {
            let address: IpAddr = words.next()?.parse().ok()?;
            words.next()?.parse::<u16>().ok()?;
            Some(address.to_canonical())
        };
        Some(Self { client: address()?, server: address()? })
    }
}

/// A listener for the other side, and the search for a connection. Dropping it ends both, and
/// closes what stands.
pub struct Race {
    racer: Option<Racer>,
    status: watch::Receiver<RaceStatus>,
    /// Connections that the other side is to dial, and those that it wants of this one.
    asks: watch::Receiver<usize>,
    reach: watch::Sender<usize>,
    token: CancellationToken,
    _end: DropGuard,
}

impl Race {
    /// Listens on every interface for `peer` alone, whose requests `service` answers. `ssh` is
    /// given on the remote side, `links` on the person's: those that were named, if any were. Returns the addresses to send to the
    /// other side, best first.
    pub async fn listen(
        identity: &Identity,
        service: Arc<Service>,
        peer: NodeId,
        config: PeerConfig,
        ssh: Option<SshConnection>,
        links: &[LocalEnd],
    ) -> Result<(Self, Vec<SocketAddr>), SshError> {
        let listener = bind(identity, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)).await?;
        let local = listener.address().map_err(|source| SshError::NoAddress { source })?;
        let addresses = addresses_to_send(local, of_links(interfaces(local.is_ipv4()), links), ssh);
        let token = CancellationToken::new();
        let other = Other { peer, service, config: PeerConfig { control: true, tells_link: true, ..config } };
        let (came_in, came) = mpsc::channel(MAX_STANDING);
        tokio::spawn(accept(listener, other.clone(), came_in.clone(), token.clone()));
        let (status_in, status) = watch::channel(RaceStatus::default());
        let (asks_in, asks) = watch::channel(1);
        let (reach, reach_out) = watch::channel(1);
        let identity = identity.clone();
        let racer = Racer {
            identity,
            other,
            ssh,
            links: links.to_vec(),
            came,
            came_in,
            status: status_in,
            asks: asks_in,
            reach: reach_out,
            brought: Vec::new(),
        };
        let (racer, end) = (Some(racer), token.clone().drop_guard());
        Ok((Self { racer, status, asks, reach, token, _end: end }, addresses))
    }

    /// Begins to dial the addresses that the other side sent. The side that asks for data gives its `takeover`. Once only.
    pub fn run(&mut self, theirs: &[SocketAddr], takeover: Option<Arc<Takeover>>) {
        if let Some(racer) = self.racer.take() {
            let token = self.token.clone();
            let theirs = addresses_to_dial(theirs, racer.ssh);
            tokio::spawn(async move { racer.run(theirs, takeover, token).await });
        }
    }

    /// Connections that the other side is to have dialled, on the side that asks for data. It is to be told each change.
    pub fn asks(&self) -> watch::Receiver<usize> {
        self.asks.clone()
    }

    /// The other side, which asks for data, wants so many connections.
    pub fn reach(&self, count: usize) {
        self.reach.send_replace(count.min(MOST_CONNECTIONS));
    }

    /// Waits until a connection stands; an error after `limit`.
    pub async fn stands(&self, limit: Duration) -> Result<(), SshError> {
        let stands = tokio::time::timeout(limit, self.standing()).await.unwrap_or(false);
        if stands { Ok(()) } else { Err(none_stands(&self.status.borrow(), limit)) }
    }

    /// Completes when a connection stands; false if the race is over.
    pub fn standing(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut status = self.status.clone();
        async move { status.wait_for(RaceStatus::any_stands).await.is_ok() }
    }
}

fn none_stands(status: &RaceStatus, limit: Duration) -> SshError {
    SshError::NoConnection {
        limit,
        tried: status.tried.clone(),
        last: status.last.clone().map(|last| last as _),
    }
}

async fn accept(
    listener: Listener,
    other: Other,
    came: mpsc::Sender<RaceConnection>,
    token: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(MAX_PENDING));
    let work = async {
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let pending = match listener.accept().await {
                Ok(pending) => pending,
                Err(error) => {
                    tracing::debug!(%error, "could not accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (other, came, token) = (other.clone(), came.clone(), token.clone());
            tokio::spawn(async move {
                let shaking = pending.handshake(Timeouts::default().handshake);
                let shaken = tokio::select! {
                    shaken = shaking => shaken,
                    () = token.cancelled() => return,
                };
                drop(slot);
                match shaken {
                    // One too many is closed by being dropped.
                    Ok(connection) if connection.peer == other.peer => {
                        drop(came.try_send(RaceConnection { peer: other.start(connection), dialled: None }));
                    }
                    Ok(connection) => tracing::debug!(peer = %connection.peer.short(), "a stranger"),
                    Err(error) => tracing::debug!(%error, "a handshake failed"),
                }
            });
        }
    };
    tokio::select! {
        () = work => {}
        () = token.cancelled() => {}
    }
}

/// The search, once the other side's addresses are known.
struct Racer {
    identity: Identity,
    other: Other,
    ssh: Option<SshConnection>,
    /// Links of this machine that were named; then nothing is dialled but by these.
    links: Vec<LocalEnd>,
    /// Connections from either side, with the end to put dialled ones in.
    came: mpsc::Receiver<RaceConnection>,
    came_in: mpsc::Sender<RaceConnection>,
    status: watch::Sender<RaceStatus>,
    asks: watch::Sender<usize>,
    reach: watch::Receiver<usize>,
    /// Further connections, which are the chosen one's.
    brought: Vec<Weak<Peer>>,
}

impl Racer {
    async fn run(
        mut self,
        theirs: Vec<SocketAddr>,
        takeover: Option<Arc<Takeover>>,
        token: CancellationToken,
    ) {
        self.status.send_modify(|status| status.tried.clone_from(&theirs));
        let (mut standing, linked) = (Vec::new(), Mutex::default());
        let chosen = takeover.map(|takeover| ChosenWays::new(takeover, self.status.clone()));
        let beside = self.beside(&theirs, chosen.clone(), &linked);
        let theirs = if self.links.is_empty() { theirs } else { Vec::new() };
        tokio::select! {
            () = self.search(&theirs, chosen, &mut standing) => {}
            () = beside => {}
            () = token.cancelled() => {}
        }
        let brought =
            self.brought.iter().chain(&*lock(&linked)).filter_map(Weak::upgrade).collect::<Vec<_>>();
        standing.into_iter().chain(brought).for_each(|peer: Arc<Peer>| peer.close("the copy has ended"));
    }

    /// Dials by the links that were named, and on the side that asks keeps those by which the other one dialled.
    fn beside<'a>(
        &mut self,
        theirs: &[SocketAddr],
        chosen: Option<Arc<ChosenWays>>,
        linked: &'a Mutex<Vec<Weak<Peer>>>,
    ) -> impl Future<Output = ()> + Send + use<'a> {
        let (other, identity, theirs) = (self.other.clone(), self.identity.clone(), theirs.to_vec());
        let (links, status, came_in) = (self.links.clone(), self.status.clone(), self.came_in.clone());
        let sorted = chosen.map(|chosen| {
            let ((single_in, single), (by_link_in, by_link)) =
                (mpsc::channel(MAX_STANDING), mpsc::channel(MAX_STANDING));
            let sorting = sort(std::mem::replace(&mut self.came, single), single_in, by_link_in);
            (sorting, by_link, chosen)
        });
        async move {
            let dialling = dial_by_each(links, (other, identity.clone()), theirs, came_in, status);
            let keeping = async {
                match sorted {
                    Some((sorting, by_link, chosen)) => {
                        tokio::join!(sorting, keep_links(by_link, &chosen, &identity, linked));
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::join!(dialling, keeping);
        }
    }

    /// Finds a connection, keeps it, finds another when it is lost.
    async fn search(
        &mut self,
        theirs: &[SocketAddr],
        chosen: Option<Arc<ChosenWays>>,
        standing: &mut Vec<Arc<Peer>>,
    ) {
        let mut attempts = DialAttempts::new();
        loop {
            let RaceConnection { peer, dialled } = self.find(theirs, chosen.is_some(), &mut attempts).await;
            let since = Instant::now();
            let further = FurtherConnections::new(self.other.clone(), self.identity.clone(), dialled);
            standing.push(Arc::clone(&peer));
            self.status.send_modify(|status| status.stands = true);
            match &chosen {
                Some(chosen) => {
                    let config =
                        DirectConfig { most_connections: MOST_CONNECTIONS, ..DirectConfig::default() };
                    let direct = Arc::new(Direct::over_several(peer, self.identity.clone(), config));
                    chosen.offer(&direct);
                    self.keep_chosen(&direct, further, standing).await;
                }
                None => self.keep(further, standing).await,
            }
            self.status.send_modify(|status| status.stands = false);
            attempts.lost(since.elapsed());
        }
    }

    /// A connection from either side; waits for the other one's when this one gave up.
    async fn find(
        &mut self,
        theirs: &[SocketAddr],
        chooses: bool,
        attempts: &mut DialAttempts,
    ) -> RaceConnection {
        let Self { identity, other, came, came_in, status, .. } = self;
        let dialling = async {
            while let Some(wait) = attempts.next().filter(|_| !theirs.is_empty()) {
                tokio::time::sleep(wait).await;
                match other.dial(theirs, identity).await {
                    Ok(came) => {
                        let closed = came.peer.closed();
                        let _ = came_in.send(came).await;
                        closed.await;
                    }
                    Err(error) => status.send_modify(|status| status.last = Some(Arc::new(error))),
                }
            }
            std::future::pending::<RaceConnection>().await
        };
        tokio::select! {
            biased;
            found = choose(came, chooses) => found,
            found = dialling => found,
        }
    }

    /// Waits until nothing stands any more, and dials what the other side wants.
    async fn keep(&mut self, mut further: FurtherConnections, standing: &mut Vec<Arc<Peer>>) {
        while let Some(first) = standing.first() {
            let closed = first.closed();
            tokio::select! {
                () = closed => standing.retain(|peer| peer.ended().is_none()),
                Some(came) = self.came.recv() => {
                    standing.retain(|peer| peer.ended().is_none());
                    further.leads_to(came.dialled);
                    match standing.len() >= MAX_STANDING {
                        true => came.peer.close("another connection stands"),
                        false => standing.push(came.peer),
                    }
                }
                Ok(()) = self.reach.changed() => {
                    standing.retain(|peer| peer.ended().is_none());
                    further.dial(self.reach.borrow_and_update().saturating_sub(standing.len()));
                }
                Some(peer) = further.next() => standing.extend(peer),
            }
        }
    }

    /// Waits until the connection that was chosen is lost, and brings `direct` those that it wants.
    async fn keep_chosen(
        &mut self,
        direct: &Direct,
        mut further: FurtherConnections,
        standing: &mut Vec<Arc<Peer>>,
    ) {
        let Some((first, mut wanted)) = standing.first().zip(direct.wanted()) else { return };
        let closed = first.closed();
        tokio::pin!(closed);
        if direct.lacks() > 0 {
            wanted.mark_changed();
        }
        let mut lost = JoinSet::new();
        loop {
            let is_changed = tokio::select! {
                () = &mut closed => return standing.clear(),
                Some(came) = self.came.recv() => {
                    match direct.lacks() > 0 {
                        true => further.greet(came.peer),
                        false => came.peer.close("another connection stands"),
                    }
                    false
                }
                Ok(()) = wanted.changed() => true,
                Some(_) = lost.join_next() => {
                    let is_missed = direct.lacks() > 0;
                    if is_missed {
                        further.lost();
                    }
                    is_missed
                }
                Some(peer) = further.next() => match peer {
                    Some(peer) => {
                        lost.spawn(peer.closed());
                        self.bring(direct, peer);
                        false
                    }
                    None => true,
                },
            };
            if is_changed && further.is_worthwhile() {
                match further.can_dial() {
                    true => further.dial(direct.lacks()),
                    false => drop(self.asks.send_replace(*wanted.borrow_and_update())),
                }
            }
        }
    }

    /// Gives `direct` a further connection.
    fn bring(&mut self, direct: &Direct, peer: Arc<Peer>) {
        self.brought.retain(|peer| peer.strong_count() > 0);
        self.brought.push(Arc::downgrade(&peer));
        if !direct.join(Arc::clone(&peer)) {
            peer.close("enough connections stand");
        }
    }
}

/// The first connection. A side that chooses waits for the other one's hello, for only then was it
/// accepted; a side that does not must not close what the other may have chosen.
async fn choose(came: &mut mpsc::Receiver<RaceConnection>, chooses: bool) -> RaceConnection {
    let mut candidates = JoinSet::new();
    loop {
        tokio::select! {
            Some(came) = came.recv() => match chooses {
                true => drop(candidates.spawn(async { greeted(&came.peer).await.then_some(came) })),
                false => return came,
            },
            Some(ended) = candidates.join_next() => if let Ok(Some(came)) = ended {
                return came;
            },
            else => std::future::pending().await,
        }
    }
}

/// Addresses to send to the other side: first where ssh came to, then the interfaces. Loopback addresses
/// mean something there only if ssh came from one. If nothing is left, the port alone is sent.
fn addresses_to_send(
    local: SocketAddr,
    interfaces: Vec<IpAddr>,
    ssh: Option<SshConnection>,
) -> Vec<SocketAddr> {
    let is_near = ssh.is_some_and(|ssh| ssh.client.is_loopback());
    let others = interfaces.into_iter().filter(|ip| is_near || !ip.is_loopback());
    let fits = |ip: &IpAddr| ip.is_ipv4() || local.is_ipv6();
    let addresses = distinct(ssh.map(|ssh| ssh.server).into_iter().chain(others).filter(fits), local.port());
    if addresses.is_empty() { vec![local] } else { addresses }
}

/// Addresses to dial among those received. On the remote side where ssh came from goes first,
/// and what lies on this machine only if ssh came from it.
fn addresses_to_dial(addresses: &[SocketAddr], ssh: Option<SshConnection>) -> Vec<SocketAddr> {
    let Some(port) = addresses.first().map(SocketAddr::port).filter(|&port| port != 0) else {
        return Vec::new();
    };
    let is_near = ssh.is_none_or(|ssh| ssh.client.is_loopback());
    let may = |ip: &IpAddr| is_dialable(*ip) && (is_near || !ip.is_loopback());
    let addresses =
        addresses.iter().filter(|address| address.port() == port).map(|address| address.ip().to_canonical());
    distinct(ssh.map(|ssh| ssh.client).into_iter().chain(addresses.filter(may)), port)
}

/// A peer's word is not enough to send anything to all hosts of a network, or to those services
/// that are found at link-local addresses.
fn is_dialable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_link_local())
        }
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local()),
    }
}

/// Of the machine's addresses those of the links that were named, if any were.
fn of_links(interfaces: Vec<IpAddr>, links: &[LocalEnd]) -> Vec<IpAddr> {
    if links.is_empty() {
        return interfaces;
    }
    let named: Vec<IpAddr> = links.iter().flat_map(LocalEnd::addresses).collect();
    interfaces.into_iter().filter(|ip| named.contains(ip)).collect()
}

fn distinct(ips: impl Iterator<Item = IpAddr>, port: u16) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for ip in ips {
        let address = SocketAddr::new(ip, port);
        if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far_side::HELLO_LIMIT;
    use towpath_content::Oid;
    use towpath_content::ticket::BoundSecret;
    use towpath_link::doubles::connected;
    use towpath_protocol::Issuer;
    use towpath_store::MemoryStore;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn at(texts: &[&str]) -> Vec<SocketAddr> {
        ips(texts).into_iter().map(|ip| SocketAddr::new(ip, 7)).collect()
    }

    fn ssh(client: &str, server: &str) -> Option<SshConnection> {
        SshConnection::parse(&format!("{client} 1024 {server} 22"))
    }

    #[test]
    fn what_sshd_says_is_read() {
        let both = ssh("::ffff:192.0.2.1", "2001:db8::1").unwrap();
        assert_eq!(
            (both.client, both.server),
            ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap())
        );
        for odd in ["", "192.0.2.1", "192.0.2.1 22 x 22", "fe80::1%eth0 1 fe80::2%eth0 22", "192.0.2.1  22"] {
            assert_eq!(SshConnection::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_address_that_ssh_knows_is_told_first_and_loopback_only_to_the_same_machine() {
        let local = at(&["::"])[0];
        let all = ips(&["10.0.0.1", "192.0.2.9", "2001:db8::9", "127.0.0.1", "::1"]);
        assert_eq!(
            addresses_to_send(local, all.clone(), None),
            at(&["10.0.0.1", "192.0.2.9", "2001:db8::9"])
        );
        assert_eq!(
            addresses_to_send(local, all.clone(), ssh("192.0.2.1", "192.0.2.9")),
            at(&["192.0.2.9", "10.0.0.1", "2001:db8::9"])
        );
        let near = addresses_to_send(local, all.clone(), ssh("127.0.0.1", "127.0.0.1"));
        assert_eq!(near, at(&["127.0.0.1", "10.0.0.1", "192.0.2.9", "2001:db8::9", "::1"]));
        let only_v4 = at(&["0.0.0.0"])[0];
        assert_eq!(
            addresses_to_send(only_v4, all, ssh("2001:db8::1", "2001:db8::9")),
            at(&["10.0.0.1", "192.0.2.9"])
        );
        assert_eq!(addresses_to_send(local, ips(&["127.0.0.1"]), None), [local], "the port alone");
    }

    #[test]
    fn where_ssh_came_from_is_dialled_first_and_odd_addresses_never() {
        let odd =
            at(&["0.0.0.0", "::", "169.254.169.254", "224.0.0.1", "255.255.255.255", "fe80::1", "ff02::1"]);
        assert_eq!(addresses_to_dial(&odd, None), []);
        assert_eq!(addresses_to_dial(&odd, ssh("192.0.2.1", "192.0.2.9")), at(&["192.0.2.1"]));
        let addresses = at(&["10.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.1", "192.0.2.1"]);
        assert_eq!(
            addresses_to_dial(&addresses, ssh("192.0.2.1", "192.0.2.9")),
            at(&["192.0.2.1", "10.0.0.1"])
        );
        assert_eq!(
            addresses_to_dial(&addresses, ssh("::1", "::1")),
            at(&["::1", "10.0.0.1", "127.0.0.1", "192.0.2.1"])
        );
        assert_eq!(addresses_to_dial(&addresses, None).len(), 4);
        assert_eq!(addresses_to_dial(&[], ssh("192.0.2.1", "192.0.2.9")), [], "without a port");
        let many: Vec<SocketAddr> = (1..100).map(|n| SocketAddr::new([192, 0, 2, n].into(), 7)).collect();
        assert_eq!(addresses_to_dial(&many, None).len(), MAX_ADDRESSES);
        let mut ports = many[..3].to_vec();
        ports[1].set_port(22);
        assert_eq!(addresses_to_dial(&ports, None), [many[0], many[2]], "one listener has one port");
    }

    /// Gives nothing to anybody.
    struct NobodysIssuer(Identity);

    impl Issuer for NobodysIssuer {
        fn secret(&self, _root: &Oid) -> Option<BoundSecret> {
            None
        }

        fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
            false
        }

        fn sign(&self, message: &[u8]) -> [u8; 64] {
            self.0.sign(message)
        }
    }

    async fn side(own: &Identity, other: &Identity) -> (Race, Vec<SocketAddr>) {
        let service = Service::new(Arc::new(MemoryStore::new()), Arc::new(NobodysIssuer(own.clone())));
        let near = ssh("127.0.0.1", "127.0.0.1");
        Race::listen(own, Arc::new(service), other.node_id(), PeerConfig::default(), near, &[]).await.unwrap()
    }

    /// What the side that asks chose, of which four connections are wanted.
    async fn chosen(
        racer: &mut Racer,
        theirs: &[SocketAddr],
    ) -> (Direct, FurtherConnections, Vec<Arc<Peer>>) {
        let RaceConnection { peer, dialled } = racer.find(theirs, true, &mut DialAttempts::new()).await;
        let further = FurtherConnections::new(racer.other.clone(), racer.identity.clone(), dialled);
        let config = DirectConfig { connections: 4, ..DirectConfig::default() };
        (Direct::over_several(Arc::clone(&peer), racer.identity.clone(), config), further, vec![peer])
    }

    async fn until(done: impl Fn() -> bool) {
        while !done() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn whoever_dialled_the_one_that_was_chosen_dials_the_others() {
        let (asks, answers) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        for asker_dials in [true, false] {
            let (mut near, ours) = side(&asks, &answers).await;
            let (mut far, theirs) = side(&answers, &asks).await;
            far.run(if asker_dials { &[] } else { &ours }, None);
            let mut racer = near.racer.take().unwrap();
            let (direct, further, mut standing) =
                chosen(&mut racer, if asker_dials { &theirs[..] } else { &[] }).await;
            let mut wishes = near.asks();
            let telling = async {
                while wishes.changed().await.is_ok() {
                    assert!(!asker_dials, "the other side is asked to dial");
                    far.reach(*wishes.borrow_and_update());
                }
            };
            let looking = tokio::time::timeout(HELLO_LIMIT, until(|| direct.lacks() == 0));
            tokio::select! {
                () = racer.keep_chosen(&direct, further, &mut standing) => panic!("the first was lost"),
                () = telling => panic!("the race is over"),
                looked = looking => looked.expect("too few connections"),
            }
            let brought: Vec<_> = racer.brought.iter().filter_map(Weak::upgrade).collect();
            assert_eq!(brought.len(), 3);
            brought.iter().for_each(|peer| peer.close("lost"));
            assert_eq!(direct.lacks(), 3);
        }
    }

    #[tokio::test]
    async fn no_more_connections_are_dialled_than_a_copy_uses() {
        let (own, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let (race, _addresses) = side(&own, &other).await;
        race.reach(usize::MAX);
        assert_eq!(*race.reach.borrow(), MOST_CONNECTIONS);
    }

    #[tokio::test]
    async fn a_connection_that_ends_without_a_hello_does_not_hide_the_one_that_says_it_later() {
        let node = NodeId([7; 32]);
        let ([near, ends], [second, far]) = tokio::join!(connected([node; 2]), connected([node; 2]));
        drop(ends);
        let (came_in, mut came) = mpsc::channel(MAX_STANDING);
        let [first, second] =
            [near, second].map(|connection| Peer::start(connection, PeerConfig::default(), None));
        let first_ends = first.closed();
        for peer in [first, second] {
            came_in.send(RaceConnection { peer, dialled: None }).await.unwrap();
        }
        let greeting = async {
            first_ends.await;
            let _far = Peer::start(far, PeerConfig::default(), None);
            std::future::pending::<()>().await;
        };
        let choosing = tokio::time::timeout(HELLO_LIMIT, choose(&mut came, true));
        tokio::select! {
            chosen = choosing => assert!(chosen.is_ok_and(|came| came.peer.ended().is_none())),
            () = greeting => {}
        }
    }
}
