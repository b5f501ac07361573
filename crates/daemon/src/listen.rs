//! Connections from peers, within limits: a deadline for the handshake, a cap on connections in
//! all and from one address. Beyond a cap a connection is closed before it costs anything.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_api::{ApiError, ErrorKind};
use towpath_link::Identity;
use towpath_link::tcp::{BindError, Listener, Pending, Timeouts};
use towpath_plugins::direct::{Peer, PeerConfig, Service};

use crate::lock::lock;
use crate::shares::Shares;

/// Connections at once.
const MAX_CONNECTIONS: usize = 256;
/// Connections at once from one address.
const MAX_PER_ADDRESS: usize = 32;
/// After a failed accept (out of descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);

/// A running listener; dropping it stops listening and closes its connections.
pub struct Listening {
    addresses: Vec<SocketAddr>,
    count: Arc<Mutex<Counts>>,
    open: CancellationToken,
    _end: DropGuard,
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
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

    /// Connections now.
    pub fn connections(&self) -> u64 {
        lock(&self.count).all as u64
    }
}

/// Starts to listen: at `address` if a person gave one, else on every interface, at the port that
/// `user` had last time if it is free.
pub async fn listen(
    identity: &Identity,
    shares: &Shares,
    user: &[u8],
    address: Option<SocketAddr>,
    service: Arc<Service>,
    config: PeerConfig,
) -> Result<Listening, ApiError> {
    let wanted = address.filter(|address| address.port() != 0);
    let ip = address.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |address| address.ip());
    let listener = match (wanted, shares.port(user)) {
        (Some(address), _) => bind(identity, address).await?,
        (None, Some(port)) => match bind(identity, SocketAddr::new(ip, port)).await {
            Ok(listener) => listener,
            Err(_) => bind(identity, SocketAddr::new(ip, 0)).await?,
        },
        (None, None) => bind(identity, SocketAddr::new(ip, 0)).await?,
    };
    let local = listener.address().map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    if let Err(error) = shares.keep_port(user, local.port()) {
        tracing::warn!(%error, "the port can't be kept for next time");
    }
    let token = CancellationToken::new();
    let count = Arc::new(Mutex::new(Counts::default()));
    let open = CancellationToken::new();
    let accepting = accept(listener, service, config, Arc::clone(&count), token.clone());
    let opened = open.clone();
    tokio::spawn(async move {
        opened.cancelled().await;
        accepting.await;
    });
    Ok(Listening { addresses: reachable(local), count, open, _end: token.drop_guard() })
}

pub(crate) async fn bind(identity: &Identity, address: SocketAddr) -> Result<Listener, ApiError> {
    let mut result = Listener::bind(address, identity).await;
    // A machine without IPv6.
    if result.is_err() && address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        result = Listener::bind(SocketAddr::new([0, 0, 0, 0].into(), address.port()), identity).await;
    }
    result.map_err(|error| {
        let detail = match &error {
            BindError::Io { source, .. } => format!("{error}: {source}"),
            BindError::Tls { .. } => error.to_string(),
        };
        ApiError::new(ErrorKind::Failed, detail).hint("choose another address with --listen")
    })
}

/// The addresses under which others may reach `local`: itself if it is one, else those of the
/// machine's interfaces, loopback last.
fn reachable(local: SocketAddr) -> Vec<SocketAddr> {
    if !local.ip().is_unspecified() {
        return vec![local];
    }
    interfaces(local.is_ipv4()).into_iter().map(|ip| SocketAddr::new(ip, local.port())).collect()
}

/// The addresses of the machine's interfaces that mean something elsewhere, loopback last.
pub(crate) fn interfaces(only_v4: bool) -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut addresses: Vec<IpAddr> = interfaces.iter().map(if_addrs::Interface::ip).collect();
    addresses.retain(|ip| is_usable(*ip, only_v4));
    addresses.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    addresses.dedup();
    addresses
}

/// Link-local addresses of IPv6 need a zone that means nothing elsewhere.
fn is_usable(ip: IpAddr, only_v4: bool) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !only_v4 && !ip.is_unicast_link_local(),
    }
}

async fn accept(
    listener: Listener,
    service: Arc<Service>,
    config: PeerConfig,
    count: Arc<Mutex<Counts>>,
    token: CancellationToken,
) {
    loop {
        let pending = tokio::select! {
            pending = listener.accept() => pending,
            () = token.cancelled() => return,
        };
        match pending {
            Ok(pending) => {
                let Some(slot) = Slot::take(&count, pending.address().ip()) else { continue };
                tokio::spawn(serve(pending, Arc::clone(&service), config.clone(), slot, token.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(
    pending: Pending,
    service: Arc<Service>,
    config: PeerConfig,
    slot: Slot,
    token: CancellationToken,
) {
    match pending.handshake(Timeouts::default().handshake).await {
        Ok(connection) => {
            let peer = Peer::start(connection, config, Some(service));
            tokio::select! {
                () = peer.closed() => {}
                () = token.cancelled() => peer.close("the service is ending"),
            }
            tracing::debug!(peer = %peer.node().short(), why = peer.ended(), "connection ended");
        }
        Err(error) => tracing::debug!(%error, "a handshake failed"),
    }
    drop(slot);
}

/// A place among the connections.
struct Slot {
    count: Arc<Mutex<Counts>>,
    ip: IpAddr,
}

impl Slot {
    fn take(count: &Arc<Mutex<Counts>>, ip: IpAddr) -> Option<Self> {
        let mut counts = lock(count);
        let here = counts.by_address.get(&ip).copied().unwrap_or(0);
        if counts.all >= MAX_CONNECTIONS || here >= MAX_PER_ADDRESS {
            return None;
        }
        counts.all += 1;
        counts.by_address.insert(ip, here + 1);
        Some(Self { count: Arc::clone(count), ip })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = lock(&self.count);
        counts.all -= 1;
        if let Some(here) = counts.by_address.get_mut(&self.ip) {
            *here -= 1;
            if *here == 0 {
                counts.by_address.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_every_slot() {
        let count = Arc::new(Mutex::new(Counts::default()));
        let greedy: Vec<_> = (0..100).filter_map(|_| Slot::take(&count, [192, 0, 2, 1].into())).collect();
        assert_eq!(greedy.len(), MAX_PER_ADDRESS);
        assert!(Slot::take(&count, [192, 0, 2, 2].into()).is_some());
        drop(greedy);
        assert!(Slot::take(&count, [192, 0, 2, 1].into()).is_some());
        assert!(count.lock().unwrap().by_address.is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_given_address_is_the_only_hint() {
        let local = "127.0.0.1:7000".parse().unwrap();
        assert_eq!(reachable(local), [local]);
    }
}
