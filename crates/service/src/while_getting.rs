//! A plain get serves others while it runs: who fetches by the same ticket gets from it what has come, within what [`Lending`] allows.
//! Others hear of it from the ticket's issuer, whom it tells where it listens; and so it hears of others.
//!
//! A short get does none of this: it listens, and tells so, once it has run for a while. When it ends nothing more is served.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use towpath_api::GetRequest;
use towpath_config::Switch;
use towpath_content::hint::{MAX_HINTS, PeerAddress};
use towpath_content::lock::lock;
use towpath_content::pieces::Layout;
use towpath_content::{Hint, NodeId, Oid, Ticket};
use towpath_limits::lending::Lending;
use towpath_link::Connection;
use towpath_plugins::direct::{PeerHost, PeerPool};
use towpath_protocol::wire::WireHolder;
use towpath_protocol::{HolderSink, Peer, PeerConfig};
use towpath_transfer::progress::Progress;

use crate::state::Service;
use towpath_peer_server::grants::{Grants, PassOn, PassingOn};
use towpath_peer_server::standing::StandingPeers;

/// A get that is over sooner serves nobody: nothing is made for it.
const RUNS_FOR: Duration = Duration::from_secs(1);
/// Interval at which it is noted how much has come, and new connections are told where this get serves.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Shorter files are hardly worth a connection.
const LEAST: u64 = 4 << 20;
/// Holders that become hints, at most.
const MOST_HOLDERS: usize = 16;

/// What a get may serve others by.
#[derive(Debug)]
pub(crate) struct LendingGet {
    ticket: Ticket,
    /// How much that may be; `None` if what it gets is passed on anyway.
    lending: Option<Arc<Mutex<Lending>>>,
}

impl LendingGet {
    /// Of a get by `ticket`, if it may serve others: the request, the ticket and the configuration allow it.
    pub(crate) fn new(service: &Service, request: &GetRequest, ticket: &Ticket) -> Option<Self> {
        let is_passed_on = service.grants.passes_on(&ticket.oid);
        let is_on = is_passed_on || service.config().sharing.while_getting == Switch::On;
        let lending = || Arc::new(Mutex::new(Lending::new(request.upload_rate)));
        let lends = is_on && may_lend(request, ticket);
        lends.then(|| Self { ticket: ticket.clone(), lending: (!is_passed_on).then(lending) })
    }

    /// From now on others get what is here, if the file is worth it, until what is returned is dropped.
    pub(crate) fn begin(&self, grants: &Arc<Grants>, layout: Option<&Layout>) -> Option<PassingOn> {
        let lending =
            self.lending.as_ref().filter(|_| layout.is_some_and(|layout| layout.size() >= LEAST))?;
        let why = PassOn::WhileGetting(Arc::clone(lending));
        Some(PassingOn::begin(grants, self.ticket.oid, self.ticket.bound_secret(), why))
    }

    /// Notes what comes, and lets others know where it can be had, until it is dropped: the issuer, and by `tell`, with
    /// thousandths that are here, whoever is met elsewhere.
    pub(crate) async fn run(
        &self,
        service: &Service,
        peers: &GetPeers,
        progress: &Progress,
        tell: impl Fn(u16, &[SocketAddr]),
    ) -> Infallible {
        let (start, mut ticks) = (Instant::now(), tokio::time::interval(LOOK_EVERY));
        let mut port = None;
        loop {
            ticks.tick().await;
            if let Some(lending) = &self.lending {
                lock(lending).took(from_others(progress), Instant::now());
            }
            if start.elapsed() < RUNS_FOR || !service.grants.passes_on(&self.ticket.oid) {
                continue;
            }
            if port.is_none() {
                let listened = service.door.listen_for_a_while(service.grants.honours_leases()).await;
                port = Some(listened.inspect_err(|error| tracing::debug!(%error, "nobody is served")).ok());
            }
            if let Some(Some(port)) = port {
                peers.tell(&self.ticket, port);
                tell(thousandths(progress), &service.door.addresses());
            }
        }
    }
}

/// Thousandths of what is wanted that are here, in steps of a twentieth: each is told to everybody who is there.
fn thousandths(progress: &Progress) -> u16 {
    let now = progress.snapshot();
    let twentieths = u128::from(now.done) * 20 / u128::from(now.expected.max(1));
    u16::try_from(twentieths.min(20) * 50).unwrap_or_default()
}

/// True if a get serves others as far as it and its ticket are concerned: it is of all of something whose name is known, and neither
/// its person nor the ticket's issuer forbids it.
fn may_lend(request: &GetRequest, ticket: &Ticket) -> bool {
    let is_whole = request.paths.is_empty() && request.filters.is_empty() && request.update.is_none();
    let is_named = !ticket.oid.is_live() && ticket.enclosed.is_none();
    is_whole && !request.list && is_named && !request.no_upload && !ticket.terms.no_swarm
}

/// Bytes that came from other machines.
fn from_others(progress: &Progress) -> u64 {
    progress
        .with(|now| now.by_source.iter().filter(|(by, _)| by.node().is_some()).map(|(_, bytes)| bytes).sum())
}

/// The connections of one get that it dialled itself.
pub(crate) struct GetPeers {
    standing: Arc<StandingPeers>,
    dialled: Mutex<Vec<DialledPeer>>,
}

/// One of them.
struct DialledPeer {
    peer: Weak<Peer>,
    /// It was told where this get serves.
    is_told: bool,
}

impl GetPeers {
    /// None was dialled yet.
    pub(crate) const fn new(standing: Arc<StandingPeers>) -> Self {
        Self { standing, dialled: Mutex::new(Vec::new()) }
    }

    /// True if a connection that it dialled stands, or one with `issuer` that somebody else did.
    pub(crate) fn reaches_somebody(&self, issuer: &NodeId) -> bool {
        let dialled = lock(&self.dialled);
        let peers = dialled.iter().filter_map(|dialled| dialled.peer.upgrade());
        peers.into_iter().any(|peer| peer.ended().is_none()) || self.standing.pool.reaches(issuer)
    }

    /// Tells the ticket's issuer where this get serves what it fetches, on connections on which that was not said.
    fn tell(&self, ticket: &Ticket, port: u16) {
        let mut dialled = lock(&self.dialled);
        dialled.retain(|dialled| dialled.peer.strong_count() > 0);
        for dialled in dialled.iter_mut().filter(|dialled| !dialled.is_told) {
            let issuer = dialled.peer.upgrade().filter(|peer| peer.node() == ticket.node);
            dialled.is_told = issuer.is_some_and(|peer| peer.serve(&ticket.oid, port));
        }
    }

    /// Tells those that were told that it serves no more: a connection may outlive the get.
    pub(crate) fn take_back(&self, root: &Oid) {
        for dialled in lock(&self.dialled).iter_mut() {
            let told = std::mem::take(&mut dialled.is_told).then(|| dialled.peer.upgrade()).flatten();
            told.map(|peer| peer.serve(root, 0));
        }
    }
}

impl PeerHost for GetPeers {
    fn start(&self, connection: Connection, config: PeerConfig) -> Arc<Peer> {
        let peer = self.standing.start(connection, config);
        lock(&self.dialled).push(DialledPeer { peer: Arc::downgrade(&peer), is_told: false });
        peer
    }

    fn pool(&self) -> &PeerPool {
        self.standing.pool()
    }

    fn chose(&self, relay: &NodeId) -> bool {
        self.standing.chose(relay)
    }
}

/// Holders that a ticket's issuer tells of become hints of the get.
#[derive(Debug)]
pub(crate) struct ToldHolders {
    root: Oid,
    /// Nobody else's word counts: it could have this machine dial anything.
    issuer: NodeId,
    own: NodeId,
    hints: watch::Sender<Vec<Hint>>,
    told: Mutex<usize>,
}

impl ToldHolders {
    /// Of a get by `ticket` on the node `own`, whose hints these are.
    pub(crate) const fn new(ticket: &Ticket, own: NodeId, hints: watch::Sender<Vec<Hint>>) -> Self {
        Self { root: ticket.oid, issuer: ticket.node, own, hints, told: Mutex::new(0) }
    }

    /// The hint of what `peer` says, if that counts.
    fn hint(&self, peer: &NodeId, told: &WireHolder) -> Option<Hint> {
        let is_right = *peer == self.issuer && Oid::from_bytes(&told.root) == Ok(self.root);
        let node = NodeId(told.node[..].try_into().ok().filter(|_| is_right)?);
        let address: SocketAddr = told.address.parse().ok()?;
        let ip = address.ip();
        let is_one = address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast();
        if node == self.own || node == self.issuer || !is_one {
            return None;
        }
        let place = PeerAddress { node: Some(node), address: address.to_string() };
        Hint::new(format!("tow://{place}"), 0, 1).ok()
    }
}

impl HolderSink for ToldHolders {
    fn holder(&self, peer: &NodeId, told: &WireHolder) {
        let Some(hint) = self.hint(peer, told) else {
            tracing::debug!(peer = %peer.short(), "a holder was told that does not count");
            return;
        };
        let mut count = lock(&self.told);
        self.hints.send_if_modified(|hints| {
            let is_new = *count < MOST_HOLDERS && hints.len() < MAX_HINTS && !hints.contains(&hint);
            if is_new {
                *count += 1;
                hints.push(hint);
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};

    use super::*;

    const ISSUER: NodeId = NodeId([1; 32]);
    const OWN: NodeId = NodeId([2; 32]);
    const OTHER: NodeId = NodeId([3; 32]);

    fn ticket() -> Ticket {
        let (secret, terms) = (Secret([7; 16]), Terms::default());
        Ticket { oid: Oid::of(b"root"), node: ISSUER, secret, hints: Vec::new(), terms, enclosed: None }
    }

    fn told(root: &[u8], node: NodeId, address: &str) -> WireHolder {
        let root = Oid::of(root).to_bytes().to_vec().into();
        WireHolder { root, node: node.0.to_vec().into(), address: address.into() }
    }

    #[test]
    fn a_get_serves_unless_somebody_forbids_it_or_it_is_of_a_part() {
        let request = GetRequest::default();
        let live = Ticket { oid: Oid::Live([1; 32]), ..ticket() };
        let kept = Ticket { terms: Terms { no_swarm: true, expires: None }, ..ticket() };
        let ends = Ticket { terms: Terms { no_swarm: false, expires: Some(1) }, ..ticket() };
        let part = GetRequest { paths: vec!["a".into()], ..request.clone() };
        let filtered = GetRequest { filters: vec![b"- a".to_vec()], ..request.clone() };
        let rows = [
            (&request, ticket(), true, "nothing is in the way"),
            (&request, ends, true, "it holds until then"),
            (&request, kept, false, "the ticket forbids it"),
            (&request, live, false, "its name is not known yet"),
            (&GetRequest { no_upload: true, ..request.clone() }, ticket(), false, "the person forbids it"),
            (&GetRequest { list: true, ..request.clone() }, ticket(), false, "nothing comes"),
            (
                &GetRequest { update: Some(Default::default()), ..request.clone() },
                ticket(),
                false,
                "an update",
            ),
            (&part, ticket(), false, "a part"),
            (&filtered, ticket(), false, "a part"),
        ];
        for (request, ticket, may, why) in rows {
            assert_eq!(may_lend(request, &ticket), may, "{why}");
        }
    }

    #[test]
    fn only_the_issuers_word_about_this_root_makes_a_hint_of_another_node() {
        let (hints, _kept) = watch::channel(Vec::new());
        let holders = ToldHolders::new(&ticket(), OWN, hints);
        let good = told(b"root", OTHER, "192.0.2.1:7000");
        let expected = format!("tow://{OTHER}@192.0.2.1:7000");
        assert_eq!(holders.hint(&ISSUER, &good).unwrap().method, expected);
        let v6 = holders.hint(&ISSUER, &told(b"root", OTHER, "[2001:db8::1]:7000")).unwrap();
        assert_eq!(v6.rest().parse::<PeerAddress>().unwrap().address, "[2001:db8::1]:7000");
        for (peer, told, why) in [
            (OTHER, good.clone(), "somebody else says so"),
            (ISSUER, told(b"other", OTHER, "192.0.2.1:7000"), "another root"),
            (ISSUER, told(b"root", OWN, "192.0.2.1:7000"), "this node"),
            (ISSUER, told(b"root", ISSUER, "192.0.2.1:7000"), "the issuer, which is known"),
            (ISSUER, told(b"root", OTHER, "192.0.2.1:0"), "no port"),
            (ISSUER, told(b"root", OTHER, "0.0.0.0:7000"), "no address"),
            (ISSUER, told(b"root", OTHER, "224.0.0.1:7000"), "many addresses"),
            (ISSUER, told(b"root", OTHER, "example.org:7000"), "a name, which would be looked up"),
            (ISSUER, WireHolder { node: vec![3; 31].into(), ..good.clone() }, "no node"),
        ] {
            assert_eq!(holders.hint(&peer, &told), None, "{why}");
        }
    }

    #[test]
    fn so_many_holders_become_hints_and_each_once() {
        let (hints, kept) = watch::channel(Vec::new());
        let holders = ToldHolders::new(&ticket(), OWN, hints);
        for port in [1..=100_u16, 1..=100].into_iter().flatten() {
            holders.holder(&ISSUER, &told(b"root", OTHER, &format!("192.0.2.1:{port}")));
        }
        assert_eq!(kept.borrow().len(), MOST_HOLDERS);
    }
}
