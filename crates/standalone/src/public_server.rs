//! The server where peers find each other, as a program of its own: `tow rendezvous`.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_api::{ApiError, ErrorKind};
use towpath_link::tcp::{BindError, Listener};
use towpath_link::{Identity, Protocol};
use towpath_rendezvous::server::ServerLimits;
use towpath_rendezvous::{PROTOCOL, RendezvousServer, ServerPlace, listening};
use towpath_ssh::addresses::interfaces;
use towpath_words as words;

/// The port of a server that is told no other.
pub const PORT: u16 = 4433;

/// A server that listens; dropping it ends it.
pub struct PublicServer {
    server: Arc<RendezvousServer>,
    places: Vec<ServerPlace>,
    _end: DropGuard,
}

impl PublicServer {
    /// Listens on `addresses`, or on all of the machine, as `identity`.
    pub async fn start(identity: &Identity, addresses: &[SocketAddr]) -> Result<Self, ApiError> {
        let everywhere = [SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT)];
        let (server, token) = (RendezvousServer::new(ServerLimits::default()), CancellationToken::new());
        let mut places = Vec::new();
        for address in if addresses.is_empty() { &everywhere } else { addresses } {
            let listener = bind(*address, identity, &[PROTOCOL]).await?;
            let local =
                listener.address().map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
            let node = identity.node_id();
            places.extend(reachable(local).map(|address| ServerPlace { node, address: address.to_string() }));
            let (serving, ending) = (Arc::clone(&server), token.clone());
            tokio::spawn(listening::accept(listener, token.clone(), move |connection, address| {
                let (serving, ending) = (Arc::clone(&serving), ending.clone());
                async move { serving.serve(connection, address, &ending).await }
            }));
        }
        Ok(Self { server, places, _end: token.drop_guard() })
    }

    /// Where it can be reached, best first.
    pub fn places(&self) -> &[ServerPlace] {
        &self.places
    }

    /// Keeps it tidy, for as long as it is polled.
    pub async fn run(&self) -> Infallible {
        self.server.keep_tidy().await
    }
}

/// Where IPv6 is missing IPv4 alone is listened on.
async fn bind(
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
fn reachable(local: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let all = match local.ip().is_unspecified() {
        true => interfaces(local.is_ipv4()),
        false => vec![local.ip()],
    };
    all.into_iter().map(move |ip| SocketAddr::new(ip, local.port()))
}
