//! The handshake, and the encrypted stream that follows it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::{Agreed, HandshakeError, WrongNode, agreed};

/// Encrypted bytes that may wait for the socket, written in one system call. Four records still lie
/// in the core's own cache when the kernel copies them; more cost up to a third more CPU time.
const SEND_BUFFER: usize = 64 * 1024;

/// Shakes hands as initiator.
pub(crate) async fn connect<Io>(
    config: ClientConfig,
    address: IpAddr,
    io: Io,
) -> Result<(TlsStream<Io>, Agreed), HandshakeError>
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(ServerName::from(address), io).await.map_err(failed)?;
    let (_, session) = stream.get_mut();
    session.set_buffer_limit(Some(SEND_BUFFER));
    let agreed = agreed(session)?;
    Ok((stream.into(), agreed))
}

/// Shakes hands as responder.
pub(crate) async fn accept<Io>(
    config: Arc<ServerConfig>,
    io: Io,
) -> Result<(TlsStream<Io>, Agreed), HandshakeError>
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = TlsAcceptor::from(config).accept(io).await.map_err(failed)?;
    let (_, session) = stream.get_mut();
    session.set_buffer_limit(Some(SEND_BUFFER));
    let agreed = agreed(session)?;
    Ok((stream.into(), agreed))
}

/// Tells apart what the stream library folds into one kind of error.
fn failed(error: io::Error) -> HandshakeError {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return tls_failed(tls);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            HandshakeError::Closed
        }
        _ => HandshakeError::Io { source: error },
    }
}

fn tls_failed(error: &rustls::Error) -> HandshakeError {
    match error {
        rustls::Error::Other(other) => match other.0.downcast_ref::<WrongNode>() {
            Some(&WrongNode { expected, found }) => HandshakeError::WrongNode { expected, found },
            None => HandshakeError::Tls { source: error.clone() },
        },
        rustls::Error::NoApplicationProtocol
        | rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol) => {
            HandshakeError::NoProtocol
        }
        _ => HandshakeError::Tls { source: error.clone() },
    }
}
