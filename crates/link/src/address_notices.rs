//! Notices that addresses of this machine may have changed. Linux sends them to whoever listens, over a netlink socket. Elsewhere, and
//! where such a socket is refused, it is time to look once a second.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::UdpSocket;

/// Time between two looks where nobody tells of changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Changes mostly come several at once: what follows within this time is one notice with the first.
const TOGETHER: Duration = Duration::from_millis(50);

/// See the head of this module. To the runtime one socket of datagrams is as another, so it is a UDP socket by name.
#[derive(Debug)]
pub struct AddressNotices(Option<UdpSocket>);

impl AddressNotices {
    /// Listens from now on. To be called within a runtime.
    pub fn new() -> Self {
        let socket = open().and_then(UdpSocket::from_std);
        Self(
            socket.inspect_err(|error| tracing::debug!(%error, "addresses are looked at once a second")).ok(),
        )
    }

    /// Completes when it is time to look at the addresses. Cancel-safe.
    pub async fn next(&self) {
        let told = match &self.0 {
            Some(socket) => told(socket).await.is_ok(),
            None => false,
        };
        if !told {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Default for AddressNotices {
    fn default() -> Self {
        Self::new()
    }
}

/// Completes some time after the kernel told something. What it told is not read: the addresses are looked at anyway.
async fn told(socket: &UdpSocket) -> io::Result<()> {
    socket.readable().await?;
    tokio::time::sleep(TOGETHER).await;
    loop {
        match socket.try_recv(&mut [0; 16]) {
            Ok(_) => {}
            // Some were too many to be kept.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// A socket to which the kernel tells interfaces that go up and down, and addresses of each kind.
#[cfg(target_os = "linux")]
fn open() -> io::Result<std::net::UdpSocket> {
    use rustix::net::netlink::SocketAddrNetlink;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

    /// Groups of messages (`linux/rtnetlink.h`).
    const GROUPS: u32 = 0x1 | 0x10 | 0x100;

    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol it is that of routes.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    Ok(socket.into())
}

#[cfg(not(target_os = "linux"))]
fn open() -> io::Result<std::net::UdpSocket> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn where_nobody_tells_it_is_looked_once_a_second() {
        let begin = tokio::time::Instant::now();
        AddressNotices(None).next().await;
        assert_eq!(begin.elapsed(), LOOK_EVERY);
    }

    /// That it tells of changes is seen end to end, where a machine's address changes (`link_changes`).
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_lets_anybody_listen() {
        assert!(AddressNotices::new().0.is_some());
    }
}
