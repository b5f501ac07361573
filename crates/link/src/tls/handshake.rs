//! The handshake: the TLS library's, up to the record that ends it. What follows is for
//! [`super::stream`], so the library is never handed a byte of it.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, Error, ServerConfig, ServerConnection, SideData,
};

use super::keys::{Keys, Secrets, Suite};
use super::record::HEAD;
use super::socket::{RecordSocket, read, write_all};
use super::{Agreed, HandshakeError, Protocol, WrongNode, agreed};

/// Bytes received at once. The messages of a handshake are far smaller.
const READ: usize = 4096;

/// Result of a handshake.
pub(crate) struct Shaken {
    pub(crate) agreed: Agreed,
    /// For what this end sends.
    pub(super) sending: Keys,
    /// For what it receives.
    pub(super) receiving: Keys,
    /// Bytes that came behind the handshake.
    pub(super) early: Vec<u8>,
}

/// Shakes hands as initiator, to speak `protocol`, which is the configuration's.
pub(crate) async fn connect(
    mut config: ClientConfig,
    protocol: Protocol,
    name: ServerName<'static>,
    socket: &impl RecordSocket,
) -> Result<Shaken, HandshakeError> {
    let secrets = Arc::new(Secrets::default());
    config.key_log = Arc::<Secrets>::clone(&secrets);
    let session = ClientConnection::new(Arc::new(config), name).map_err(tls_failed)?;
    let (agreed, suite, early) = shake(session, &[protocol], socket).await?;
    let (sending, receiving) = secrets.keys(suite).map_err(tls_failed)?;
    Ok(Shaken { agreed, sending, receiving, early })
}

/// Shakes hands as responder, to speak one of `protocols`, which are the configuration's.
pub(crate) async fn accept(
    config: &ServerConfig,
    protocols: &[Protocol],
    socket: &impl RecordSocket,
) -> Result<Shaken, HandshakeError> {
    let secrets = Arc::new(Secrets::default());
    let mut config = config.clone();
    config.key_log = Arc::<Secrets>::clone(&secrets);
    let session = ServerConnection::new(Arc::new(config)).map_err(tls_failed)?;
    let (agreed, suite, early) = shake(session, protocols, socket).await?;
    let (receiving, sending) = secrets.keys(suite).map_err(tls_failed)?;
    Ok(Shaken { agreed, sending, receiving, early })
}

/// Runs a handshake to its end; returns also what came behind it.
async fn shake<Session, Side>(
    mut session: Session,
    offered: &[Protocol],
    socket: &impl RecordSocket,
) -> Result<(Agreed, Suite, Vec<u8>), HandshakeError>
where
    Session: DerefMut + Deref<Target = ConnectionCommon<Side>>,
    Side: SideData,
{
    let mut records = HandshakeRecords::default();
    loop {
        send(&mut session, socket).await.map_err(failed)?;
        if !session.is_handshaking() {
            break;
        }
        let part = records.next(socket).await.map_err(failed)?;
        if let Err(error) = take(&mut session, part) {
            // The reason to leave; the peer may have left already.
            let _ = send(&mut session, socket).await;
            return Err(tls_failed(error));
        }
    }
    let agreed = agreed(&session, offered)?;
    let suite = session.negotiated_cipher_suite().ok_or(Error::HandshakeNotComplete);
    let suite = suite.and_then(|suite| Suite::new(suite.suite())).map_err(tls_failed)?;
    Ok((agreed, suite, records.rest()))
}

async fn send<Side: SideData>(
    session: &mut ConnectionCommon<Side>,
    socket: &impl RecordSocket,
) -> io::Result<()> {
    let mut out = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut out)?;
    }
    write_all(socket, &out).await
}

fn take<Side: SideData>(session: &mut ConnectionCommon<Side>, mut part: &[u8]) -> Result<(), Error> {
    while !part.is_empty() {
        session.read_tls(&mut part).map_err(|error| Error::General(error.to_string()))?;
        session.process_new_packets()?;
    }
    Ok(())
}

/// Received bytes, cut where records end.
#[derive(Default)]
pub(super) struct HandshakeRecords {
    came: Vec<u8>,
    /// At the front of what came: handed out already.
    taken: usize,
    /// Bytes still to come of the record that was begun.
    left: usize,
}

impl HandshakeRecords {
    /// The next part of a record, never beyond its end.
    pub(super) async fn next(&mut self, socket: &impl RecordSocket) -> io::Result<&[u8]> {
        self.came.drain(..std::mem::take(&mut self.taken));
        let least = if self.left == 0 { HEAD } else { 1 };
        while self.came.len() < least {
            let mut space = [0; READ];
            match read(socket, &mut space).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.came.extend_from_slice(&space[..count]),
            }
        }
        if let (0, Some(&[_, _, _, high, low])) = (self.left, self.came.first_chunk::<HEAD>()) {
            self.left = HEAD + usize::from(u16::from_be_bytes([high, low]));
        }
        self.taken = self.left.min(self.came.len());
        self.left -= self.taken;
        Ok(&self.came[..self.taken])
    }

    /// Bytes that came behind the parts that were handed out.
    pub(super) fn rest(mut self) -> Vec<u8> {
        self.came.split_off(self.taken)
    }
}

fn failed(error: io::Error) -> HandshakeError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            HandshakeError::Closed
        }
        _ => HandshakeError::Io { source: error },
    }
}

fn tls_failed(error: Error) -> HandshakeError {
    match &error {
        Error::Other(other) => match other.0.downcast_ref::<WrongNode>() {
            Some(&WrongNode { expected, found }) => HandshakeError::WrongNode { expected, found },
            None => HandshakeError::Tls { source: error },
        },
        Error::NoApplicationProtocol
        | Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol) => HandshakeError::NoProtocol,
        _ => HandshakeError::Tls { source: error },
    }
}
