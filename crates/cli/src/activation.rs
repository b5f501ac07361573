//! Sockets that systemd, or whoever else speaks its protocol (`LISTEN_FDS`), listens on for the
//! daemon and hands over when it starts.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;
use towpath_api::{ApiError, ErrorKind};

/// Sockets that were handed over.
#[derive(Default)]
pub struct Inherited {
    /// Sockets that peers connect to.
    pub peers: Vec<TcpListener>,
    /// The local API's.
    pub local: Option<UnixListener>,
}

impl Inherited {
    /// Takes what was handed over. To be called before there are threads, as it changes the
    /// environment: programs that the daemon starts must not take them too.
    pub fn take() -> Result<Self, ApiError> {
        let (mut handed, mut inherited) = (ListenFd::from_env(), Self::default());
        for number in 0..handed.len() {
            match handed.take_tcp_listener(number) {
                Ok(socket) => inherited.peers.extend(socket),
                Err(_) => match handed.take_unix_listener(number) {
                    Ok(socket) if inherited.local.is_none() => inherited.local = socket,
                    _ => return Err(unknown(number)),
                },
            }
        }
        Ok(inherited)
    }
}

fn unknown(number: usize) -> ApiError {
    let message = format!("socket {number} of those handed over is not one that tow listens on");
    ApiError::new(ErrorKind::Usage, message).hint(
        "in the systemd unit use ListenStream= with a port for peers, and one with a path for the local API",
    )
}
