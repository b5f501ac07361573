//! TCP with TLS: dialling and listening.
//!
//! Sockets send at once (`TCP_NODELAY`; frames are gathered above), find out by keepalive when
//! the peer is gone, and leave the size of their buffers to the kernel, which knows the path.

mod dial;
mod listen;
mod socket;

use std::time::Duration;

use tokio_rustls::TlsStream;
use towpath_content::NodeId;

use crate::connection::{Connection, PeerProof, ReadHalf, Transport, WriteHalf};
use crate::path::PathProbe;
use crate::tls::Agreed;
use socket::Socket;

pub use dial::{DialError, dial, dial_any};
pub use listen::{AcceptError, BindError, Listener, Pending};

/// How long the steps of opening a connection may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From dialling to a TCP connection. Default: 10 s.
    pub connect: Duration,
    /// From the TCP connection to the end of the TLS handshake, whatever trickles in meanwhile.
    /// Default: 10 s.
    pub handshake: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), handshake: Duration::from_secs(10) }
    }
}

/// TLS over TCP, shaken hands.
struct TcpTransport {
    stream: TlsStream<Socket>,
    agreed: Agreed,
    probe: PathProbe,
}

impl Transport for TcpTransport {
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
        let (read, write) = tokio::io::split(self.stream);
        (Box::pin(read), Box::pin(write))
    }
}

fn connection(stream: TlsStream<Socket>, agreed: Agreed, probe: PathProbe) -> Connection {
    Connection::new(Box::new(TcpTransport { stream, agreed, probe }))
}
