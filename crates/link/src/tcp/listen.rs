//! Listening. A connection is first pending: its handshake is run by whoever took it, under a
//! deadline that began when it was accepted, so a caller can bound how many are pending.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::pacing::Pacing;
use super::{connection, socket};
use crate::connection::Connection;
use crate::identity::Identity;
use crate::protocol::Protocol;
use crate::tls::{self, HandshakeError};

/// Waits for peers at one address.
pub struct Listener {
    listener: TcpListener,
    pacing: Pacing,
    speaking: Arc<Speaking>,
}

/// How those that come are spoken with.
struct Speaking {
    config: ServerConfig,
    protocols: Vec<Protocol>,
}

/// A peer that connected and has not proved anything yet. Dropping it hangs up. Its handshake
/// takes some 100 KiB of memory.
pub struct Pending {
    stream: TcpStream,
    speaking: Arc<Speaking>,
    address: SocketAddr,
    accepted: Instant,
}

/// Reason why an address can't be listened on.
#[derive(Debug, Error)]
pub enum BindError {
    /// The system refused.
    #[error("can't listen on {address}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The key is of no use to the TLS library.
    #[error("TLS: {source}")]
    Tls {
        /// The TLS library's error.
        source: rustls::Error,
    },
}

/// Reason why a pending peer did not become a connection.
#[derive(Debug, Error)]
pub enum AcceptError {
    /// The handshake was not done in time.
    #[error("{address}: handshake not done within {limit:?}")]
    HandshakeTimeout {
        /// The peer's address.
        address: SocketAddr,
        /// The time there was.
        limit: Duration,
    },
    /// The handshake failed.
    #[error("{address}: {source}")]
    Handshake {
        /// The peer's address.
        address: SocketAddr,
        /// The handshake's error.
        source: HandshakeError,
    },
    /// The socket failed before the handshake.
    #[error("{address}: the connection failed")]
    Io {
        /// The peer's address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

impl Listener {
    /// Listens on `address` as `identity`, for other services; port 0 lets the system choose.
    pub async fn bind(address: SocketAddr, identity: &Identity) -> Result<Self, BindError> {
        Self::bind_for(address, identity, &[Protocol::PEER]).await
    }

    /// The same for who speaks one of `protocols`: the connection says which.
    pub async fn bind_for(
        address: SocketAddr,
        identity: &Identity,
        protocols: &[Protocol],
    ) -> Result<Self, BindError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| BindError::Io { address, source })?;
        Self::new(listener, identity, protocols)
    }

    /// Takes over a socket that another program, such as systemd, listens on already.
    pub fn inherit(listener: std::net::TcpListener, identity: &Identity) -> Result<Self, BindError> {
        let address = listener.local_addr().unwrap_or(SocketAddr::from(([0; 4], 0)));
        let taken = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
        let listener = taken.map_err(|source| BindError::Io { address, source })?;
        Self::new(listener, identity, &[Protocol::PEER])
    }

    fn new(listener: TcpListener, identity: &Identity, protocols: &[Protocol]) -> Result<Self, BindError> {
        let config = tls::server_config(identity, protocols).map_err(|source| BindError::Tls { source })?;
        let pacing = Pacing::postpone(&listener);
        let speaking = Arc::new(Speaking { config, protocols: protocols.to_vec() });
        Ok(Self { listener, pacing, speaking })
    }

    /// Address on which it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next peer. Cancel-safe.
    ///
    /// An error is about one connection or a lack of resources, never the end of listening: wait a
    /// little and go on.
    pub async fn accept(&self) -> io::Result<Pending> {
        let (stream, address) = self.listener.accept().await?;
        self.pacing.decide(&stream);
        Ok(Pending { stream, speaking: Arc::clone(&self.speaking), address, accepted: Instant::now() })
    }
}

impl Pending {
    /// Address that the peer connected from.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the peer's first byte, or for its leaving; at most `limit` after it was accepted.
    pub async fn spoken(&self, limit: Duration) -> Result<(), AcceptError> {
        let address = self.address;
        // A report that it is readable says little: it may be wrong.
        timeout_at(self.deadline(limit), self.stream.peek(&mut [0]))
            .await
            .map_err(|_| AcceptError::HandshakeTimeout { address, limit })?
            .map(drop)
            .map_err(|source| AcceptError::Io { address, source })
    }

    /// A limit beyond what the clock can say is none; a day is long enough for that.
    fn deadline(&self, limit: Duration) -> Instant {
        self.accepted.checked_add(limit).unwrap_or(self.accepted + Duration::from_secs(86_400))
    }

    /// Shakes hands, within `limit` of having been accepted (see [`super::Timeouts`]).
    pub async fn handshake(self, limit: Duration) -> Result<Connection, AcceptError> {
        let (address, deadline) = (self.address, self.deadline(limit));
        let stream = self.stream;
        socket::set_up(&stream).map_err(|source| AcceptError::Io { address, source })?;
        let shaking = tls::accept(&self.speaking.config, &self.speaking.protocols, &stream);
        let shaken = timeout_at(deadline, shaking)
            .await
            .map_err(|_| AcceptError::HandshakeTimeout { address, limit })?
            .map_err(|source| AcceptError::Handshake { address, source })?;
        tracing::debug!(%address, peer = %shaken.agreed.peer.short(), "accepted");
        Ok(connection(stream, shaken))
    }
}
