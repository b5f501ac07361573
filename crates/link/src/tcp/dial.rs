//! Dialling: to one address, or to several of one node at once.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use towpath_content::NodeId;

use super::pacing::Pacing;
use super::{LocalEnd, SharedPort, Timeouts, connection, socket};
use crate::connection::Connection;
use crate::identity::Identity;
use crate::protocol::Protocol;
use crate::tls::{self, HandshakeError};

/// Time that an address has to itself before the next is tried beside it (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);

/// How an address is dialled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DialConfig {
    /// Longest times.
    pub timeouts: Timeouts,
    /// This machine's end. Default: the system chooses.
    pub from: Option<LocalEnd>,
    /// This machine's port, which other connections may have, too. Default: one that is free, which is also taken where a
    /// connection from this port to the same address is there already.
    pub port: Option<SharedPort>,
    /// What is to be spoken. Default: [`Protocol::PEER`].
    pub protocol: Protocol,
}

impl From<Timeouts> for DialConfig {
    fn from(timeouts: Timeouts) -> Self {
        Self { timeouts, ..Self::default() }
    }
}

/// Reason why there is no connection.
#[derive(Debug, Error)]
pub enum DialError {
    /// There was no address to dial.
    #[error("no address to dial")]
    NoAddress,
    /// This machine has no such end, or may not choose it.
    #[error("{end}: no connection can begin there")]
    NoSuchEnd {
        /// The end.
        end: LocalEnd,
        /// The system's error.
        source: io::Error,
    },
    /// No way leads there.
    #[error("{address}: can't be reached")]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The machine is there, but no service listens, or a firewall says no.
    #[error("{address}: refused the connection")]
    Refused {
        /// The address.
        address: SocketAddr,
    },
    /// Nothing answered.
    #[error("{address}: no answer within {waited:?}")]
    ConnectTimeout {
        /// The address.
        address: SocketAddr,
        /// For how long.
        waited: Duration,
    },
    /// Something answered, but did not finish the handshake.
    #[error("{address}: handshake not done within {waited:?}")]
    HandshakeTimeout {
        /// The address.
        address: SocketAddr,
        /// For how long.
        waited: Duration,
    },
    /// Another node answered. `found` was shown, not proved.
    #[error("{address}: found node {found}, wanted {expected}")]
    WrongNode {
        /// The address.
        address: SocketAddr,
        /// The node asked for.
        expected: NodeId,
        /// The node that answered.
        found: NodeId,
    },
    /// The answer is from no Towpath service, or from one that refuses us.
    #[error("{address}: no connection: {source}")]
    Handshake {
        /// The address.
        address: SocketAddr,
        /// The handshake's error.
        source: HandshakeError,
    },
    /// This side could not even try.
    #[error("{address}: can't dial")]
    Local {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// Connects to `expected` at `address`.
///
/// The responder's acceptance of our key shows with the first frame it sends, as TLS 1.3 has it.
pub async fn dial(
    address: SocketAddr,
    identity: &Identity,
    expected: NodeId,
    how: &DialConfig,
) -> Result<Connection, DialError> {
    dial_one(address, identity, Some(expected), how).await
}

/// Connects to whatever node is at `address`. Who it is has to be found out by what is said.
pub async fn dial_whoever(
    address: SocketAddr,
    identity: &Identity,
    how: &DialConfig,
) -> Result<Connection, DialError> {
    dial_one(address, identity, None, how).await
}

async fn dial_one(
    address: SocketAddr,
    identity: &Identity,
    expected: Option<NodeId>,
    how: &DialConfig,
) -> Result<Connection, DialError> {
    let (timeouts, protocol) = (how.timeouts, how.protocol);
    let config = tls::client_config(identity, expected, protocol)
        .map_err(|source| DialError::Handshake { address, source: HandshakeError::Tls { source } })?;
    let stream = connect_if_need_be_from_another_port(address, how).await?;
    let shaking = tls::connect(config, protocol, address.ip().into(), &stream);
    let shaken = timeout(timeouts.handshake, shaking)
        .await
        .map_err(|_| DialError::HandshakeTimeout { address, waited: timeouts.handshake })?;
    let shaken = shaken.map_err(|error| not_shaken(address, error))?;
    tracing::debug!(%address, peer = %shaken.agreed.peer.short(), "dialled");
    Ok(connection(stream, shaken))
}

/// Connects to `expected` at whichever of `addresses` answers first.
///
/// They are begun in their order, each a little after the one before it or as soon as one fails.
/// If all fail, the error is that of the address that came furthest.
pub async fn dial_any(
    addresses: &[SocketAddr],
    identity: &Identity,
    expected: NodeId,
    how: &DialConfig,
) -> Result<Connection, DialError> {
    let reaches = |address: &SocketAddr| how.from.as_ref().is_none_or(|end| end.reaches(*address));
    let addresses: Vec<SocketAddr> = addresses.iter().copied().filter(reaches).collect();
    let mut untried = addresses.into_iter();
    let mut dialling = JoinSet::new();
    let mut worst = DialError::NoAddress;
    loop {
        if let Some(address) = untried.next() {
            let (identity, how) = (identity.clone(), how.clone());
            dialling.spawn(async move { dial(address, &identity, expected, &how).await });
        }
        let wait = if untried.len() > 0 { HEAD_START } else { Duration::MAX };
        match timeout(wait, dialling.join_next()).await {
            // All others are dropped with the set.
            Ok(Some(Ok(Ok(connection)))) => return Ok(connection),
            Ok(Some(Ok(Err(error)))) => worst = further(worst, error),
            Ok(Some(Err(_panicked_or_cancelled))) => {}
            Ok(None) if untried.len() == 0 => return Err(worst),
            Ok(None) | Err(_) => {}
        }
    }
}

/// A connection from any port where the one that was asked for has one to `address` already, or had it a minute ago: the system
/// allows no second one.
async fn connect_if_need_be_from_another_port(
    address: SocketAddr,
    how: &DialConfig,
) -> Result<TcpStream, DialError> {
    match connect(address, how).await {
        Err(DialError::Unreachable { source, .. })
            if how.port.is_some() && source.kind() == io::ErrorKind::AddrNotAvailable =>
        {
            connect(address, &DialConfig { port: None, ..how.clone() }).await
        }
        stream => stream,
    }
}

pub(super) async fn connect(address: SocketAddr, how: &DialConfig) -> Result<TcpStream, DialError> {
    let limit = how.timeouts.connect;
    let local = |source| DialError::Local { address, source };
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(local)?;
    if let Some(port) = &how.port {
        port.bind(&socket, address).map_err(local)?;
    } else if let Some(end) = &how.from {
        end.bind(&socket, address).map_err(|source| DialError::NoSuchEnd { end: end.clone(), source })?;
    }
    let pacing = Pacing::postpone(&socket);
    let stream = timeout(limit, socket.connect(address))
        .await
        .map_err(|_| DialError::ConnectTimeout { address, waited: limit })?
        .map_err(|source| not_connected(address, source))?;
    pacing.decide(&stream);
    socket::set_up(&stream).map_err(local)?;
    Ok(stream)
}

fn not_connected(address: SocketAddr, source: io::Error) -> DialError {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => DialError::Refused { address },
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::TimedOut => DialError::Unreachable { address, source },
        _ => DialError::Local { address, source },
    }
}

pub(super) fn not_shaken(address: SocketAddr, error: HandshakeError) -> DialError {
    match error {
        HandshakeError::WrongNode { expected, found } => DialError::WrongNode { address, expected, found },
        source => DialError::Handshake { address, source },
    }
}

/// The error that says more about what is wrong.
fn further(one: DialError, other: DialError) -> DialError {
    let rank = |error: &DialError| match error {
        DialError::NoAddress => 0,
        DialError::Local { .. } | DialError::NoSuchEnd { .. } => 1,
        DialError::Unreachable { .. } => 2,
        DialError::ConnectTimeout { .. } => 3,
        DialError::Refused { .. } => 4,
        DialError::HandshakeTimeout { .. } => 5,
        DialError::Handshake { .. } => 6,
        DialError::WrongNode { .. } => 7,
    };
    if rank(&other) > rank(&one) { other } else { one }
}
