//! The other side of a copy, and connections to it beside ssh's pipe.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use towpath_content::NodeId;
use towpath_link::tcp::{DialConfig, DialError, LocalEnd, dial_any};
use towpath_link::{Connection, Identity};
use towpath_protocol::{Peer, PeerConfig, Service};

/// Not a byte by a named link for this long: what it owes is asked of the others, and it is dialled again. Both sides say twice a
/// second that they are there.
pub const LINK_SILENCE: Duration = Duration::from_secs(3);
/// Time that the other side has for its hello.
pub const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// A connection, and where it was dialled if this side did.
pub struct RaceConnection {
    /// The connection.
    pub peer: Arc<Peer>,
    /// The address, if this side dialled it.
    pub dialled: Option<SocketAddr>,
    /// Address of the other side.
    pub address: Option<IpAddr>,
}

/// The other side, as its connections are started.
#[derive(Clone)]
pub struct Other {
    /// Its node id, which came over ssh.
    pub peer: NodeId,
    /// What answers it.
    pub service: Arc<Service>,
    /// Configuration of each connection.
    pub config: PeerConfig,
}

impl Other {
    /// Dials it at the first of these addresses that leads to it.
    pub async fn dial(
        &self,
        addresses: &[SocketAddr],
        identity: &Identity,
    ) -> Result<RaceConnection, DialError> {
        let connection = dial_any(addresses, identity, self.peer, &DialConfig::default()).await?;
        let port = addresses.first().map(SocketAddr::port);
        let dialled = connection.address.zip(port).map(SocketAddr::from);
        Ok(RaceConnection { dialled, ..self.take(connection) })
    }

    /// Takes a connection that the other side dialled.
    pub fn take(&self, connection: Connection) -> RaceConnection {
        let address = connection.address;
        RaceConnection { peer: self.start(connection), dialled: None, address }
    }

    /// The same out by one of this machine's links, which the other side is told, with the number of this connection among those
    /// of the link. Returns where it led, too.
    pub async fn dial_by(
        &self,
        (link, link_number): (&LocalEnd, u32),
        addresses: &[SocketAddr],
        identity: &Identity,
    ) -> Result<(Arc<Peer>, SocketAddr), DialError> {
        let how = DialConfig { from: Some(link.clone()), ..DialConfig::default() };
        let connection = dial_any(addresses, identity, self.peer, &how).await?;
        let first = *addresses.first().ok_or(DialError::NoAddress)?;
        let led = connection.address.map_or(first, |ip| SocketAddr::new(ip, first.port()));
        let (way, silence) = (Some(link.to_string()), LINK_SILENCE.min(self.config.silence));
        let config = PeerConfig { way, link_number, silence, ..self.config.clone() };
        Ok((Peer::start(connection, config, Some(Arc::clone(&self.service))), led))
    }

    /// Begins to talk on a connection.
    pub fn start(&self, connection: Connection) -> Arc<Peer> {
        Peer::start(connection, self.config.clone(), Some(Arc::clone(&self.service)))
    }
}

/// True once the other side said hello.
pub async fn greeted(peer: &Peer) -> bool {
    tokio::time::timeout(HELLO_LIMIT, peer.greeted()).await == Ok(true)
}
