//! A port of this machine that several outgoing connections have. A router in front of it gives all of them the same port outside,
//! if it goes by where they come from and not by where they go; so what one of them is seen as, another one can be reached by.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpSocket;

/// The port is held for as long as one of these is there. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SharedPort {
    number: u16,
    /// Bound, and never used.
    _held: Arc<Vec<Socket>>,
}

impl PartialEq for SharedPort {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for SharedPort {}

impl SharedPort {
    /// One that is free, for IPv4, and for IPv6 where there is that.
    pub fn new() -> io::Result<Self> {
        let v4 = hold(Domain::IPV4, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        let number = v4.local_addr()?.as_socket().map_or(0, |address| address.port());
        let v6 = hold(Domain::IPV6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, number)));
        Ok(Self { number, _held: Arc::new([Ok(v4), v6].into_iter().flatten().collect()) })
    }

    /// Its number.
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Has `socket`, which isn't connected to `remote` yet, go out there.
    pub(super) fn bind(&self, socket: &TcpSocket, remote: SocketAddr) -> io::Result<()> {
        socket.set_reuseport(true)?;
        let local = match remote {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.number)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.number)),
        };
        socket.bind(local)
    }
}

fn hold(domain: Domain, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
