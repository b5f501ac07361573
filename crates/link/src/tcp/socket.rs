//! Setup of TCP sockets.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

use crate::path::PathProbe;

/// A silent peer is asked after this long, then thrice more, and given up within 70 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 4;

/// Sets `stream` up for frames.
pub(super) fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

/// Looks at `stream` while it is in use.
pub(super) fn probe(stream: &Arc<TcpStream>) -> PathProbe {
    let stream: Weak<TcpStream> = Arc::downgrade(stream);
    PathProbe::of(stream as Weak<dyn AsFd + Send + Sync>)
}
