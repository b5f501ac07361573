//! Connections that both ends open at the same time, each from a port that the other one knows (RFC 793 §3.4, RFC 5382). Where
//! each is behind a router that lets in what answers something that went out, neither can be dialled, and this gets through.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use towpath_content::NodeId;

use super::dial::{DialConfig, DialError, connect, not_shaken};
use super::{Timeouts, connection};
use crate::connection::Connection;
use crate::identity::Identity;
use crate::tls::{self, HandshakeError};

/// Time for one attempt. What a router let in a moment too early may be refused.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(150);

/// Connects to `expected`, which does the same from `address` to this end's port ([`DialConfig::port`]) within `limit`.
///
/// Neither end is called, so that of the smaller node id is TLS's client.
pub async fn cross(
    address: SocketAddr,
    identity: &Identity,
    expected: NodeId,
    how: &DialConfig,
    limit: Duration,
) -> Result<Connection, DialError> {
    let deadline = Instant::now() + limit;
    let how = DialConfig { timeouts: Timeouts { connect: ATTEMPT, ..how.timeouts }, ..how.clone() };
    loop {
        let attempt = async {
            let stream = connect(address, &how).await?;
            shake(stream, (address, identity, expected), &how).await
        };
        let error = match timeout_at(deadline, attempt).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => return Err(DialError::ConnectTimeout { address, waited: limit }),
        };
        if Instant::now() + PAUSE >= deadline {
            return Err(error);
        }
        sleep(PAUSE).await;
    }
}

async fn shake(
    stream: TcpStream,
    (address, identity, expected): (SocketAddr, &Identity, NodeId),
    how: &DialConfig,
) -> Result<Connection, DialError> {
    let (protocol, waited) = (how.protocol, how.timeouts.handshake);
    let not_tls = |source| DialError::Handshake { address, source: HandshakeError::Tls { source } };
    let shaking = async {
        match identity.node_id() < expected {
            true => {
                let config = tls::client_config(identity, Some(expected), protocol).map_err(not_tls)?;
                let shaken = tls::connect(config, protocol, address.ip().into(), &stream).await;
                shaken.map_err(|error| not_shaken(address, error))
            }
            false => {
                let config = tls::server_config(identity, &[protocol]).map_err(not_tls)?;
                let shaken = tls::accept(&config, &[protocol], &stream).await;
                shaken.map_err(|error| not_shaken(address, error))
            }
        }
    };
    let shaken = timeout(waited, shaking).await;
    let shaken = shaken.map_err(|_| DialError::HandshakeTimeout { address, waited })??;
    let found = shaken.agreed.peer;
    match found == expected {
        true => Ok(connection(stream, shaken)),
        false => Err(DialError::WrongNode { address, expected, found }),
    }
}
