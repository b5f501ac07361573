//! A connection on a stream of bytes: TCP's, or any other that brings bytes both ways.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use towpath_content::NodeId;

use super::handshake::{Shaken, accept, connect};
use super::socket::RecordSocket;
use super::stream::{TlsReceiver, TlsSender, split};
use super::{Agreed, HandshakeError, Protocol, client_config, server_config};
use crate::connection::{Connection, PeerProof, ReadHalf, Transport, WriteHalf};
use crate::identity::Identity;
use crate::path::PathProbe;

/// The responder's name where there is no address. None is sent in any case.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Becomes a connection to `expected` by a handshake on `stream`, within `limit`, to speak `protocol`. `probe` is asked
/// about the path.
pub async fn open_over(
    stream: impl RecordSocket,
    identity: &Identity,
    expected: NodeId,
    protocol: Protocol,
    limit: Duration,
    probe: PathProbe,
) -> Result<Connection, HandshakeError> {
    let config = client_config(identity, Some(expected), protocol).map_err(unusable)?;
    let shaken = timeout(limit, connect(config, protocol, NOWHERE.into(), &stream)).await;
    let shaken = shaken.map_err(|_| HandshakeError::TimedOut { limit })??;
    Ok(connection(Arc::new(stream), shaken, probe))
}

/// Becomes a connection by a handshake on `stream`, within `limit`, with anyone who speaks one of `protocols`.
pub async fn accept_over(
    stream: impl RecordSocket,
    identity: &Identity,
    protocols: &[Protocol],
    limit: Duration,
    probe: PathProbe,
) -> Result<Connection, HandshakeError> {
    let config = server_config(identity, protocols).map_err(unusable)?;
    let shaken = timeout(limit, accept(&config, protocols, &stream)).await;
    let shaken = shaken.map_err(|_| HandshakeError::TimedOut { limit })??;
    Ok(connection(Arc::new(stream), shaken, probe))
}

const fn unusable(source: rustls::Error) -> HandshakeError {
    HandshakeError::Tls { source }
}

/// The connection that follows a handshake. The stream is closed when both halves are gone.
pub(crate) fn connection<Socket: RecordSocket>(
    socket: Arc<Socket>,
    shaken: Shaken,
    probe: PathProbe,
) -> Connection {
    let agreed = shaken.agreed;
    let (receiver, sender) = split(socket, shaken);
    let transport = TlsTransport { receiver, sender, agreed, probe };
    Connection { protocol: agreed.protocol, ..Connection::new(Box::new(transport)) }
}

/// TLS that has shaken hands.
struct TlsTransport<Socket> {
    receiver: TlsReceiver<Socket>,
    sender: TlsSender<Socket>,
    agreed: Agreed,
    probe: PathProbe,
}

impl<Socket: RecordSocket> Transport for TlsTransport<Socket> {
    fn peer(&self) -> NodeId {
        self.agreed.peer
    }

    fn proof(&self) -> PeerProof {
        PeerProof::Key
    }

    fn binding(&self) -> [u8; 32] {
        self.agreed.binding
    }

    fn probe(&self) -> PathProbe {
        self.probe.clone()
    }

    fn split(self: Box<Self>) -> (ReadHalf, WriteHalf) {
        (Box::new(self.receiver), Box::pin(self.sender))
    }
}
