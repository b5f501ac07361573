//! Servers for everybody's sake, as programs of their own: where peers find each other (`tow rendezvous`), and what carries bytes
//! for those who can't reach each other (`tow relay`). Both may share a port.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_api::{ApiError, ErrorKind};
use towpath_content::NodeId;
use towpath_link::own_addresses;
use towpath_link::tcp::{BindError, Listener};
use towpath_link::{Connection, Identity, Protocol};
use towpath_peer_server::relayed;
pub use towpath_relay::{Quotas as RelayQuotas, RelayRules};
use towpath_relay::{RELAY_PROTOCOL, RelayServer};
use towpath_rendezvous::server::ServerLimits;
use towpath_rendezvous::{PROTOCOL, RendezvousServer, ServerPlace, listening};
use towpath_words as words;

use crate::cluster::{Cluster, SharingStatus};

/// The port of a server that is told no other.
pub const PORT: u16 = 4433;

/// What a server is for.
#[derive(Debug, Clone, Default)]
pub struct PublicDuties {
    /// Peers find each other here.
    pub rendezvous: bool,
    /// Entries are shared with other servers.
    pub cluster: Option<Cluster>,
    /// It relays, by these rules.
    pub relay: Option<RelayRules>,
}

/// A server that listens; dropping it ends it.
pub struct PublicServer {
    serving: PublicServing,
    places: Vec<ServerPlace>,
    sharing: Option<watch::Receiver<SharingStatus>>,
    _end: DropGuard,
}

/// What answers those who come.
#[derive(Clone)]
struct PublicServing {
    rendezvous: Arc<RendezvousServer>,
    relay: RelayServer,
    ending: CancellationToken,
}

impl PublicServing {
    async fn serve(self, connection: Connection, address: SocketAddr) {
        match connection.protocol == RELAY_PROTOCOL {
            true => self.relay.serve(connection, address.ip(), self.ending).await,
            false => self.rendezvous.serve(connection, address, &self.ending).await,
        }
    }
}

impl PublicServer {
    /// Listens on `addresses`, or on all of the machine, as `identity`.
    pub async fn start(
        identity: &Identity,
        addresses: &[SocketAddr],
        duties: PublicDuties,
    ) -> Result<Self, ApiError> {
        let everywhere = [SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT)];
        let protocols = [(duties.rendezvous, PROTOCOL), (duties.relay.is_some(), RELAY_PROTOCOL)];
        let protocols: Vec<_> =
            protocols.into_iter().filter_map(|(is_on, protocol)| is_on.then_some(protocol)).collect();
        let serving = PublicServing {
            rendezvous: RendezvousServer::new(ServerLimits::default()),
            relay: RelayServer::new(duties.relay.unwrap_or_default()),
            ending: CancellationToken::new(),
        };
        let (mut places, node) = (Vec::new(), identity.node_id());
        for address in if addresses.is_empty() { &everywhere } else { addresses } {
            let listener = bind(*address, identity, &protocols).await?;
            let local = listener.address();
            let local = local.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
            places.extend(reachable(local).map(|address| ServerPlace { node, address: address.to_string() }));
            let for_each = serving.clone();
            let accepting =
                listening::accept(listener, serving.ending.clone(), move |connection, address| {
                    for_each.clone().serve(connection, address)
                });
            tokio::spawn(accepting);
        }
        let end = serving.ending.clone().drop_guard();
        let sharing = duties.cluster.map(|cluster| cluster.join(Arc::clone(&serving.rendezvous)));
        Ok(Self { serving, places, sharing, _end: end })
    }

    /// Where it can be reached, best first.
    pub fn places(&self) -> &[ServerPlace] {
        &self.places
    }

    /// How its entries are shared with other servers; `None` if they are not meant to be.
    pub fn sharing(&self) -> Option<watch::Receiver<SharingStatus>> {
        self.sharing.clone()
    }

    /// Keeps it tidy, for as long as it is polled.
    pub async fn run(&self) -> Infallible {
        self.serving.rendezvous.keep_tidy().await
    }
}

/// Where IPv6 is missing IPv4 alone is listened on.
pub(crate) async fn bind(
    address: SocketAddr,
    identity: &Identity,
    protocols: &[Protocol],
) -> Result<Listener, ApiError> {
    match Listener::bind_for(address, identity, protocols).await {
        Err(BindError::Io { source, .. }) if is_without_v6(address, &source) => {
            let address = SocketAddr::new([0, 0, 0, 0].into(), address.port());
            Listener::bind_for(address, identity, protocols).await
        }
        bound => bound,
    }
    .map_err(|error| words::ssh::bind(&error))
}

fn is_without_v6(address: SocketAddr, error: &std::io::Error) -> bool {
    let is_everywhere = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    is_everywhere && error.kind() != std::io::ErrorKind::AddrInUse
}

/// Addresses under which others may reach `local`: itself if it is one, else those of the machine's interfaces.
pub(crate) fn reachable(local: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let all = match local.ip().is_unspecified() {
        true => own_addresses::for_others(&own_addresses::of_this_machine(), local.is_ipv4()),
        false => vec![local.ip()],
    };
    all.into_iter().map(move |ip| SocketAddr::new(ip, local.port()))
}

/// Who may wait at a relay: these nodes, who has the pass in this file, or everybody.
pub fn relay_rules(nodes: &[String], pass: Option<&Path>, public: bool) -> Result<RelayRules, ApiError> {
    let pass = pass.map(relayed::pass).transpose()?;
    if nodes.is_empty() && pass.is_none() && !public {
        let error = ApiError::new(ErrorKind::Usage, "nobody may be called through this relay");
        return Err(
            error.hint("name nodes with --node, give a file with a pass by --pass, or open it with --public")
        );
    }
    let node = |text: &String| {
        let wrong =
            |_| ApiError::new(ErrorKind::Usage, format!("'{text}' is no node: 64 hexadecimal digits"));
        text.parse::<NodeId>().map_err(wrong)
    };
    let nodes = nodes.iter().map(node).collect::<Result<_, _>>()?;
    Ok(RelayRules { nodes, pass, public, ..RelayRules::default() })
}
