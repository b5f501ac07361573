//! Reports of the daemon to systemd: the `sd_notify` protocol, a datagram to the socket
//! that `NOTIFY_SOCKET` names. Without it nobody asked, and nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// It serves.
pub const READY: &str = "READY=1";
/// It is about to end.
pub const STOPPING: &str = "STOPPING=1";

/// Tells `state`, and what a person would like to read.
pub fn notify(state: &str, status: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, &format!("{state}\nSTATUS={status}\n")) {
        tracing::warn!(%error, "could not tell the supervisor: {state}");
    }
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_told(listener: &UnixDatagram, socket: &str) {
        send(OsStr::new(socket), "READY=1\n").unwrap();
        let mut message = [0; 100];
        listener.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let len = listener.recv(&mut message).unwrap();
        assert_eq!(&message[..len], b"READY=1\n");
    }

    #[test]
    fn a_supervisor_hears_at_a_path_and_at_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        assert_told(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
        let name = format!("towpath test {}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        assert_told(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
    }

    #[test]
    fn nobody_there_is_an_error() {
        assert!(send(OsStr::new("/nowhere/notify"), "READY=1\n").is_err());
    }
}
