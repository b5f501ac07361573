//! TCP with TLS: dialling and listening.
//!
//! Sockets send at once (`TCP_NODELAY`; frames are gathered above), find out by keepalive when
//! the peer is gone, leave the size of their buffers to the kernel, which knows the path, and are not
//! paced if the peer is near.

mod crossing;
mod dial;
mod listen;
mod local_end;
mod pacing;
mod shared_port;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use towpath_content::NodeId;

use crate::connection::{Connection, PeerProof, ReadHalf, Transport, WriteHalf};
use crate::path::PathProbe;
use crate::tls::{self, Agreed, Shaken};

pub use crossing::cross;
pub use dial::{DialConfig, DialError, dial, dial_any, dial_whoever};
pub use listen::{AcceptError, BindError, Listener, Pending};
pub use local_end::{LocalEnd, NoLocalEnd};
pub use shared_port::SharedPort;

/// Longest times for the steps of opening a connection.
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
    receiver: tls::TlsReceiver,
    sender: tls::TlsSender,
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
        (Box::new(self.receiver), Box::pin(self.sender))
    }
}

/// The socket is closed when both halves of the connection are gone, whoever still has a probe.
fn connection(socket: TcpStream, shaken: Shaken) -> Connection {
    let address = socket.peer_addr().ok().map(|address| address.ip());
    let (socket, agreed) = (Arc::new(socket), shaken.agreed);
    let protocol = agreed.protocol;
    let probe = socket::probe(&socket);
    let (receiver, sender) = tls::split(socket, shaken);
    let connection = Connection::new(Box::new(TcpTransport { receiver, sender, agreed, probe }));
    Connection { address, protocol, ..connection }
}
