//! TLS connections beside ssh's pipe, dialled from both sides: whichever stands first takes the
//! data over, since it is faster than a pipe through two more processes.
//!
//! Each side listens, sends its addresses to the other (over the control stream), and dials those received.
//! The side that asks for data chooses: the first connection on which the other one has said hello
//! is offered to its [`Takeover`], further ones are closed. The side that only answers keeps what
//! it has. Node ids came over ssh, so only the other side of this copy gets in.
//!
//! Where the person named links of their machine, their side dials by each of these instead (`links`, `dialled_links`).
//!
//! A long, fast path needs several (`plugins::direct::long_path`). Whoever dialled the one that was chosen dials the others
//! where that one led (`further`). If that was the side that answers, it is told how many ([`Race::asks`], [`Race::reach`]).

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_content::NodeId;
use towpath_content::lock::lock;
use towpath_link::Identity;
use towpath_link::tcp::{Listener, LocalEnd, Timeouts};
use towpath_plugins::direct::{DirectConfig, LedTo};
use towpath_plugins::{Direct, Takeover};
use towpath_protocol::{Peer, PeerConfig, Service};

use crate::addresses::{bind, interfaces};
use crate::attempts::DialAttempts;
use crate::dialled_links::{LinkDialler, dial_by_each};
use crate::error::SshError;
use crate::far_side::{LINK_SILENCE, Other, RaceConnection, greeted};
use crate::further::FurtherConnections;
use crate::link_wishes::{LinkWishes, MOST_FURTHER, WishReader};
use crate::links::{ChosenWays, LinkKeeper, MOST_LINKS, sort};
use crate::moving::OwnAddresses;
use crate::race_status::RaceStatus;
use crate::told_addresses::{addresses_to_dial, addresses_to_send, of_links};

pub use crate::moving::lead_to;
pub use crate::told_addresses::{MAX_ADDRESSES, SshConnection};

/// Time that a copy which may use nothing else waits for a connection.
pub const STAND_LIMIT: Duration = Duration::from_secs(30);

/// Handshakes at once; further callers wait in the kernel.
const MAX_PENDING: usize = 16;
/// Connections that a copy uses at most.
pub const MOST_CONNECTIONS: usize = 16;
/// Connections of the other side at once: those, or by links, and some that were not chosen.
const MAX_STANDING: usize = MOST_LINKS + MOST_FURTHER + 4;
/// After a failed accept (out of descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);

/// A listener for the other side, and the search for a connection. Dropping it ends both, and
/// closes what stands.
pub struct Race {
    racer: Option<Racer>,
    status: watch::Receiver<RaceStatus>,
    /// Connections that the other side is to dial, and those that it wants of this one.
    asks: watch::Receiver<usize>,
    reach: watch::Sender<usize>,
    /// The same by links, of which this side has these.
    wishes: LinkWishes,
    links: Vec<String>,
    own: OwnAddresses,
    /// Configuration of connections by further ways.
    further: PeerConfig,
    /// Where the other side is, as far as it has told by now.
    theirs: watch::Sender<Vec<SocketAddr>>,
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
        let (identity, wishes) = (identity.clone(), LinkWishes::default());
        let silence = LINK_SILENCE.min(other.config.silence);
        let further = PeerConfig { silence, ..other.config.clone() };
        let (theirs, own) = (watch::Sender::default(), OwnAddresses::of(local, ssh, addresses.clone()));
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
            wishes: wishes.clone(),
            theirs: theirs.subscribe(),
            brought: Vec::new(),
        };
        let (racer, end) = (Some(racer), token.clone().drop_guard());
        let links = links.iter().map(ToString::to_string).collect();
        let race = Self { racer, status, asks, reach, wishes, links, own, further, theirs, token, _end: end };
        Ok((race, addresses))
    }

    /// Begins to dial the addresses that the other side sent. The side that asks for data gives its `takeover`. Once only.
    pub fn run(&mut self, theirs: &[SocketAddr], takeover: Option<Arc<Takeover>>) {
        if let Some(racer) = self.racer.take() {
            let token = self.token.clone();
            let theirs = addresses_to_dial(theirs, racer.ssh);
            self.theirs.send_replace(theirs.clone());
            tokio::spawn(async move { racer.run(theirs, takeover, token).await });
        }
    }

    /// The other side is at these addresses now: by named links it is dialled there from now on.
    pub fn lead_to(&self, theirs: &[SocketAddr]) {
        self.theirs.send_replace(addresses_to_dial(theirs, None));
    }

    /// This side's addresses, of which the other one is to be told each change.
    pub fn own_addresses(&self) -> OwnAddresses {
        self.own.clone()
    }

    /// Where the connection leads that was chosen, for who finds further ways beside it; and how those are to be configured. None where
    /// links were named: then there are no others.
    pub fn led(&self) -> Option<(LedTo, PeerConfig)> {
        let status = self.status.clone();
        self.links.is_empty().then(|| {
            let led: LedTo = Arc::new(move || status.borrow().led());
            (led, self.further.clone())
        })
    }

    /// Addresses of the other side, as far as it has told by now.
    pub fn their_addresses(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.theirs.subscribe()
    }

    /// Connections that the other side is to have dialled, on the side that asks for data. It is to be told each change.
    pub fn asks(&self) -> watch::Receiver<usize> {
        self.asks.clone()
    }

    /// The other side, which asks for data, wants so many connections.
    pub fn reach(&self, count: usize) {
        self.reach.send_replace(count.min(MOST_CONNECTIONS));
    }

    /// The same by links of the other side. Where this side has links it dials by itself, and there is nothing to tell.
    pub fn asks_by_links(&self) -> WishReader {
        let nothing = LinkWishes::default();
        WishReader::of(if self.links.is_empty() { &self.wishes } else { &nothing })
    }

    /// The other side, which asks for data, wants so many connections by this link. One that this side does not have is passed over.
    pub fn reach_by(&self, link: &str, count: usize) {
        if self.links.iter().any(|own| own == link) {
            self.wishes.set(link, count);
        }
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
                        let connection = other.take(connection);
                        let peer = Arc::clone(&connection.peer);
                        let taken = came.try_send(connection);
                        // Who dialled by a link gives it up as soon.
                        if taken.is_ok() && greeted(&peer).await && peer.source().path().is_some() {
                            peer.set_silence(LINK_SILENCE);
                        }
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
    wishes: LinkWishes,
    theirs: watch::Receiver<Vec<SocketAddr>>,
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
        let beside = self.beside(chosen.clone(), &linked);
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
        chosen: Option<Arc<ChosenWays>>,
        linked: &'a Mutex<Vec<Weak<Peer>>>,
    ) -> impl Future<Output = ()> + Send + use<'a> {
        let (other, identity, theirs) = (self.other.clone(), self.identity.clone(), self.theirs.clone());
        let (links, wishes) = (self.links.clone(), self.wishes.clone());
        let (status, came) = (self.status.clone(), self.came_in.clone());
        let sorted = chosen.map(|chosen| {
            let ((single_in, single), (by_link_in, by_link)) =
                (mpsc::channel(MAX_STANDING), mpsc::channel(MAX_STANDING));
            let sorting = sort(std::mem::replace(&mut self.came, single), single_in, by_link_in);
            (sorting, by_link, chosen)
        });
        async move {
            let to = (other, identity.clone());
            let dialler = LinkDialler { to, came, status, wishes: wishes.clone() };
            let dialling = dial_by_each(dialler, links, theirs);
            let keeping = async {
                match sorted {
                    Some((sorting, by_link, chosen)) => {
                        let keeper = LinkKeeper::new(&chosen, &identity, wishes, linked);
                        tokio::join!(sorting, keeper.keep(by_link));
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
            let RaceConnection { peer, dialled, address } =
                self.find(theirs, chosen.is_some(), &mut attempts).await;
            let since = Instant::now();
            let further = FurtherConnections::new(self.other.clone(), self.identity.clone(), dialled);
            standing.push(Arc::clone(&peer));
            let port = theirs.first().map(SocketAddr::port);
            let led = dialled.or_else(|| Some(SocketAddr::new(address?.to_canonical(), port?)));
            self.status.send_modify(|status| (status.stands, status.led) = (true, led));
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
            self.status.send_modify(|status| (status.stands, status.led) = (false, None));
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
                    // The other side dials by further ways of its own beside those that it wants.
                    let own = standing.iter().filter(|peer| peer.source().path().is_none()).count();
                    further.dial(self.reach.borrow_and_update().saturating_sub(own));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doubles::service;
    use crate::far_side::HELLO_LIMIT;
    use towpath_link::doubles::connected;

    async fn side(own: &Identity, other: &Identity) -> (Race, Vec<SocketAddr>) {
        let here = "127.0.0.1".parse().unwrap();
        let near = Some(SshConnection { client: here, server: here });
        Race::listen(own, service(own), other.node_id(), PeerConfig::default(), near, &[]).await.unwrap()
    }

    /// What the side that asks chose, of which four connections are wanted.
    async fn chosen(
        racer: &mut Racer,
        theirs: &[SocketAddr],
    ) -> (Direct, FurtherConnections, Vec<Arc<Peer>>) {
        let RaceConnection { peer, dialled, .. } = racer.find(theirs, true, &mut DialAttempts::new()).await;
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

    /// The side that accepts kept dead links for a minute, and with them their place among those that may stand.
    #[tokio::test]
    async fn a_link_that_carries_nothing_any_more_is_given_up_by_the_side_that_accepted_it() {
        let (person, remote) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let (mut far, addresses) = side(&remote, &person).await;
        let port = addresses[0].port();
        let racer = far.racer.as_mut().unwrap();
        let line = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (leads, cut) = (line.local_addr().unwrap(), tokio::sync::Notify::new());
        let carrying = async {
            let (mut near, _) = line.accept().await.unwrap();
            let mut there = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut there) => panic!("somebody closed it"),
                () = cut.notified() => {}
            }
            // Both ends stand, and nothing comes.
            let _ends = (near, there);
            std::future::pending::<()>().await;
        };
        let config = PeerConfig { control: true, tells_link: true, ..PeerConfig::default() };
        let other = Other { peer: remote.node_id(), service: service(&person), config };
        let looking = async {
            let link = LocalEnd::Address(leads.ip());
            let _near = other.dial_by((&link, 1), &[leads], &person).await.unwrap();
            let RaceConnection { peer, .. } = racer.came.recv().await.unwrap();
            assert!(greeted(&peer).await);
            cut.notify_one();
            let given_up = tokio::time::timeout(HELLO_LIMIT, peer.closed()).await;
            given_up.expect("a dead link is kept");
        };
        tokio::select! {
            () = carrying => {}
            () = looking => {}
        }
    }

    #[tokio::test]
    async fn no_more_connections_are_dialled_than_a_copy_uses() {
        let (own, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let (race, _addresses) = side(&own, &other).await;
        race.reach(usize::MAX);
        assert_eq!(*race.reach.borrow(), MOST_CONNECTIONS);
        race.reach_by("eth0", 9);
        assert_eq!(race.wishes.of("eth0"), 1, "this side has no such link");
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
            came_in.send(RaceConnection { peer, dialled: None, address: None }).await.unwrap();
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
