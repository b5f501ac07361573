//! TCP with TLS: dialling and listening.
//!
//! Sockets send at once (`TCP_NODELAY`; frames are gathered above), find out by keepalive when
//! the peer is gone, leave the size of their buffers to the kernel, which knows the path, and are not
//! paced if the peer is near.

mod crossing;
mod dial;
mod listen;
mod local_end;
mod other_ends;
mod pacing;
mod shared_port;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::connection::Connection;
use crate::tls::{self, Shaken};

pub use crossing::cross;
pub use dial::{DialConfig, DialError, dial, dial_any, dial_whoever};
pub use listen::{AcceptError, BindError, Listener, Pending};
pub use local_end::{LocalEnd, NoLocalEnd};
pub use other_ends::other_ends;
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

/// The socket is closed when both halves of the connection are gone, whoever still has a probe.
fn connection(socket: TcpStream, shaken: Shaken) -> Connection {
    let address = socket.peer_addr().ok().map(|address| address.ip());
    let socket = Arc::new(socket);
    let probe = socket::probe(&socket);
    Connection { address, ..tls::connection(socket, shaken, probe) }
}
