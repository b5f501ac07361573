//! Connections from peers: sockets that are listened on, a deadline for each handshake, and a place
//! for each connection (see `connection_limits`).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_api::{ApiError, ErrorKind};
use towpath_content::NodeId;
use towpath_link::tcp::{Listener, Pending, Timeouts};
use towpath_link::{Connection, Identity, own_addresses};
use towpath_plugins::direct::PeerPool;
use towpath_protocol::{Peer, PeerConfig, Service};

use crate::fetches::Fetches;
use crate::moving::tell_moves;
use towpath_config::shares::Shares;
use towpath_limits::connection_limits::{ConnectionLimits, ConnectionPermit, Excess, HandshakePermit};
use towpath_ssh::addresses::bind;
use towpath_words as words;

/// After a failed accept (out of descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time that a peer may be there without showing a right to anything.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// The reason sent to it then.
pub(crate) const NOTHING_SHOWN: &str = "no ticket of this service was shown for too long";
/// Time for a peer that is one too many to send its requests.
const LISTEN_TIME: Duration = Duration::from_millis(200);

/// Sockets that are listened on; dropping it stops that and closes the connections.
pub struct Listening {
    /// Those of the sockets.
    local: Vec<SocketAddr>,
    addresses: Vec<SocketAddr>,
    open: CancellationToken,
    closed: CancellationToken,
    end: CancellationToken,
    _end: DropGuard,
}

impl Listening {
    /// The addresses that a ticket names: best first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Lets callers in; until then they wait in the kernel.
    pub fn open(&self) {
        self.open.cancel();
    }

    /// Runs `work` until this is dropped.
    pub fn attend<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) {
        let ended = self.end.clone();
        tokio::spawn(async move { ended.run_until_cancelled(work).await });
    }

    /// Lets nobody in any more. Connections that are there stay.
    pub fn close(&self) {
        self.closed.cancel();
    }

    /// Listens on `sockets`, for callers that `serving` knows what to do with.
    pub fn start(sockets: Vec<Listener>, serving: Arc<ListenerServing>) -> Result<Self, ApiError> {
        let local = sockets.iter().map(Listener::address).collect::<Result<Vec<_>, _>>();
        let local = local.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
        let [token, open, closed] = std::array::from_fn(|_| CancellationToken::new());
        for socket in sockets {
            let accepting = accept(socket, Arc::clone(&serving), closed.clone(), token.clone());
            let (opened, ended) = (open.clone(), token.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = opened.cancelled() => accepting.await,
                    () = ended.cancelled() => {}
                }
            });
        }
        let addresses = all_reachable(&local);
        Ok(Self { local, addresses, open, closed, end: token.clone(), _end: token.drop_guard() })
    }

    /// Tells whoever fetches from `service`, of this node, of further addresses of this machine until this is dropped.
    pub(crate) fn tell_moves(&self, own: NodeId, service: Arc<Service>) {
        let local = self.local.clone();
        self.attend(tell_moves(own, service, self.addresses.clone(), move || all_reachable(&local)));
    }
}

/// Services for callers.
pub struct ListenerServing {
    /// Answers them.
    pub service: Arc<Service>,
    /// Configuration of their connections.
    pub config: Box<dyn Fn() -> PeerConfig + Send + Sync>,
    /// Lets them in.
    pub connection_limits: Arc<ConnectionLimits>,
    /// Told what they fetch.
    pub fetches: Arc<Fetches>,
    /// Has those that showed a right to something: this service may ask there, too.
    pub pool: Arc<PeerPool>,
    /// Longest time that they may be there without showing a right to anything.
    pub wait_limit: Duration,
}

/// Sockets to listen on: at the `addresses` that a person gave, else on every interface, at the port
/// that `user` had last time if it is free.
pub async fn sockets(
    identity: &Identity,
    shares: &Shares,
    user: &[u8],
    addresses: &[SocketAddr],
) -> Result<Vec<Listener>, ApiError> {
    let everywhere = [SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)];
    let mut sockets = Vec::new();
    for address in if addresses.is_empty() { &everywhere } else { addresses } {
        let last = shares.port(user).filter(|_| address.port() == 0 && sockets.is_empty());
        let socket = match last {
            Some(port) => match bind(identity, SocketAddr::new(address.ip(), port)).await {
                Ok(socket) => socket,
                Err(_) => bind(identity, *address).await.map_err(|error| words::ssh::bind(&error))?,
            },
            None => bind(identity, *address).await.map_err(|error| words::ssh::bind(&error))?,
        };
        sockets.push(socket);
    }
    if let Some(Ok(local)) = sockets.first().map(Listener::address)
        && let Err(error) = shares.keep_port(user, local.port())
    {
        tracing::warn!(%error, "the port can't be kept for next time");
    }
    Ok(sockets)
}

/// A socket on every interface, at a port that is free: nobody asks for the same one again.
pub async fn anywhere(identity: &Identity) -> Result<Listener, ApiError> {
    let everywhere = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    bind(identity, everywhere).await.map_err(|error| words::ssh::bind(&error))
}

/// Sockets at those of `addresses` that are to be had; the error is why the last of none was not.
pub async fn again(identity: &Identity, addresses: &[SocketAddr]) -> Result<Vec<Listener>, ApiError> {
    let (mut sockets, mut why) = (Vec::new(), None);
    for address in addresses {
        match bind(identity, *address).await {
            Ok(socket) => sockets.push(socket),
            Err(error) => why = Some(words::ssh::bind(&error)),
        }
    }
    match why {
        Some(why) if sockets.is_empty() => Err(why),
        _ => Ok(sockets),
    }
}

/// Takes over a socket that another program, such as systemd, listens on already.
pub fn inherit(identity: &Identity, socket: std::net::TcpListener) -> Result<Listener, ApiError> {
    Listener::inherit(socket, identity).map_err(|error| words::ssh::bind(&error))
}

/// The addresses under which others may reach these sockets, each once.
fn all_reachable(local: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut addresses: Vec<_> = local.iter().copied().flat_map(reachable).collect();
    let mut seen = std::collections::HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    addresses
}

/// The addresses under which others may reach `local`: itself if it is one, else those of the
/// machine that are of use to others.
fn reachable(local: SocketAddr) -> Vec<SocketAddr> {
    if !local.ip().is_unspecified() {
        return vec![local];
    }
    let own = own_addresses::for_others(&own_addresses::of_this_machine(), local.is_ipv4());
    own.into_iter().map(|ip| SocketAddr::new(ip, local.port())).collect()
}

async fn accept(
    socket: Listener,
    serving: Arc<ListenerServing>,
    closed: CancellationToken,
    token: CancellationToken,
) {
    loop {
        let pending = tokio::select! {
            pending = socket.accept() => pending,
            () = closed.cancelled() => return,
            () = token.cancelled() => return,
        };
        match pending {
            Ok(pending) => {
                let Some(handshake) = serving.connection_limits.admit(pending.address().ip()) else {
                    continue;
                };
                tokio::spawn(serve(pending, Arc::clone(&serving), handshake, token.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Shakes hands with one that came, unless it loses its place to another meanwhile.
async fn shake(pending: Pending, handshake: &HandshakePermit) -> Option<Connection> {
    let limit = Timeouts::default().handshake;
    let shaking = async {
        pending.spoken(limit).await?;
        handshake.spoke();
        pending.handshake(limit).await
    };
    tokio::select! {
        shaken = shaking => shaken.inspect_err(|error| tracing::debug!(%error, "a handshake failed")).ok(),
        () = handshake.lost() => None,
    }
}

async fn serve(
    pending: Pending,
    serving: Arc<ListenerServing>,
    handshake: HandshakePermit,
    token: CancellationToken,
) {
    let address = pending.address().ip();
    // In memory of its own, which a connection that stands does not hold.
    let Some(connection) = Box::pin(shake(pending, &handshake)).await else { return };
    let (config, node) = ((serving.config)(), connection.peer);
    match handshake.enter(node, serving.service.knows(&node)) {
        Ok(permit) => {
            let peer = Peer::start(connection, config, Some(Arc::clone(&serving.service)));
            tokio::select! {
                () = serving.fetches.attend(&peer, Some(address)) => {}
                () = token.cancelled() => peer.close("the service is ending"),
                why = overstayed(&permit, &peer, &serving) => peer.close(why),
            }
            tracing::debug!(peer = %node.short(), why = peer.ended(), "connection ended");
            drop(peer);
            serving.pool.tidy();
        }
        Err((excess, _permit)) => {
            tracing::info!(peer = %node.short(), limit = excess.limit(), "a connection was one too many");
            // Not before it has said what it came for: a connection that is closed while the peer still
            // writes is reset, and the reason is lost. Only it knows when it has said all: there is no event.
            tokio::time::sleep(LISTEN_TIME).await;
            Peer::start(connection, config, None).close(excess.reason());
        }
    }
}

/// Reason why a peer has to go that has shown no right to anything; never completes for one that has, which may be asked from
/// then on.
async fn overstayed(permit: &ConnectionPermit, peer: &Arc<Peer>, serving: &ListenerServing) -> &'static str {
    let showing = tokio::time::timeout(serving.wait_limit, peer.until_known());
    let shown = tokio::select! {
        shown = showing => shown,
        () = permit.lost() => return Excess::Strangers.reason(),
    };
    match shown {
        Err(_) => NOTHING_SHOWN,
        Ok(()) if !permit.keep() => Excess::Strangers.reason(),
        Ok(()) => {
            serving.pool.add(peer);
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_address_is_the_only_hint() {
        let local = "127.0.0.1:7000".parse().unwrap();
        assert_eq!(reachable(local), [local]);
    }
}
