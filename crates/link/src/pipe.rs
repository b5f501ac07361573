//! A pair of byte streams that something else protects: ssh's, or two ends in one process.
//!
//! There is no TLS here. Node ids and nonces are exchanged in clear, ids are taken as claimed, and
//! the channel binding is a hash over both. Layout: `docs/formats/link.md`.

use std::io;
use std::time::Duration;

use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use towpath_content::NodeId;

use crate::connection::{Connection, PeerProof, ReadHalf, Transport, WriteHalf};
use crate::path::PathProbe;

const MAGIC: &[u8; 8] = b"towpipe\x01";
const HELLO_LEN: usize = MAGIC.len() + 1 + 32 + 32;
const BINDING_DOMAIN: &[u8] = b"towpath pipe binding v1\0";

/// End of the pipe; someone must be first in the channel binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that started the other.
    Initiator,
    /// The end that was started.
    Responder,
}

/// Reason why a pipe did not become a connection.
#[derive(Debug, Error)]
pub enum PipeError {
    /// Something else than Towpath speaks at the other end: often a login script that prints.
    #[error("the other end does not speak Towpath's protocol: it began with {:?}", begin.escape_ascii().to_string())]
    NotTowpath {
        /// Its first bytes.
        begin: [u8; 8],
    },
    /// The other end is a version of this protocol that is not known here.
    #[error("the other end speaks version {found} of the pipe protocol, this program 1")]
    Version {
        /// Its version.
        found: u8,
    },
    /// Both ends think they are the same one, or the pipe leads back to this end.
    #[error("both ends of the pipe claim the same role")]
    SameRole,
    /// The hello did not come in time.
    #[error("no hello within {limit:?}")]
    HandshakeTimeout {
        /// The time there was.
        limit: Duration,
    },
    /// The pipe ended during the hello.
    #[error("the other end hung up")]
    Closed,
    /// The system gave no random bytes.
    #[error("the system gave no random bytes")]
    NoRandomness,
    /// Anything else the system reports.
    #[error("the pipe failed")]
    Io {
        /// The system's error.
        source: io::Error,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PipeHello {
    role: Role,
    node: NodeId,
    nonce: [u8; 32],
}

struct PipeTransport {
    read: ReadHalf,
    write: WriteHalf,
    peer: NodeId,
    binding: [u8; 32],
}

/// Opens a connection as `node` over the pipe that `read` and `write` are this end of.
///
/// The hellos of both ends must be through within `limit`.
pub async fn open(
    read: impl AsyncRead + Send + 'static,
    write: impl AsyncWrite + Send + 'static,
    node: NodeId,
    role: Role,
    limit: Duration,
) -> Result<Connection, PipeError> {
    let (mut read, mut write) = (Box::pin(read), Box::pin(write));
    let ours = PipeHello { role, node, nonce: nonce()? };
    let theirs = timeout(limit, exchange(&mut read, &mut write, &ours))
        .await
        .map_err(|_| PipeError::HandshakeTimeout { limit })??;
    if theirs.role == ours.role || theirs.nonce == ours.nonce {
        return Err(PipeError::SameRole);
    }
    let binding = match role {
        Role::Initiator => binding(&ours, &theirs),
        Role::Responder => binding(&theirs, &ours),
    };
    let transport = PipeTransport { read: Box::new(read), write, peer: theirs.node, binding };
    Ok(Connection::new(Box::new(transport)))
}

impl Transport for PipeTransport {
    fn peer(&self) -> NodeId {
        self.peer
    }

    fn proof(&self) -> PeerProof {
        PeerProof::Claim
    }

    fn binding(&self) -> [u8; 32] {
        self.binding
    }

    fn probe(&self) -> PathProbe {
        PathProbe::none()
    }

    fn split(self: Box<Self>) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }
}

/// Sends and receives at once, so that it does not matter how little the pipe holds.
async fn exchange(
    read: &mut (impl AsyncRead + Unpin),
    write: &mut (impl AsyncWrite + Unpin),
    ours: &PipeHello,
) -> Result<PipeHello, PipeError> {
    let sending = async {
        write.write_all(&encode(ours)).await?;
        write.flush().await
    };
    let receiving = async {
        let mut magic = [0; MAGIC.len()];
        read.read_exact(&mut magic).await.map_err(failed)?;
        check_magic(magic)?;
        let mut rest = [0; HELLO_LEN - MAGIC.len()];
        read.read_exact(&mut rest).await.map_err(failed)?;
        decode(&rest).ok_or(PipeError::NotTowpath { begin: magic })
    };
    let sending = async { sending.await.map_err(failed) };
    let ((), theirs) = tokio::try_join!(sending, receiving)?;
    Ok(theirs)
}

fn failed(source: io::Error) -> PipeError {
    match source.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::WriteZero
        | io::ErrorKind::ConnectionReset => PipeError::Closed,
        _ => PipeError::Io { source },
    }
}

fn check_magic(begin: [u8; MAGIC.len()]) -> Result<(), PipeError> {
    if begin == *MAGIC {
        return Ok(());
    }
    match begin {
        [b't', b'o', b'w', b'p', b'i', b'p', b'e', found] => Err(PipeError::Version { found }),
        _ => Err(PipeError::NotTowpath { begin }),
    }
}

fn encode(hello: &PipeHello) -> Vec<u8> {
    let role = match hello.role {
        Role::Initiator => 0,
        Role::Responder => 1,
    };
    [&MAGIC[..], &[role], &hello.node.0, &hello.nonce].concat()
}

/// Decodes what follows the magic.
fn decode(rest: &[u8; HELLO_LEN - MAGIC.len()]) -> Option<PipeHello> {
    let (&role, rest) = rest.split_first()?;
    let role = match role {
        0 => Role::Initiator,
        1 => Role::Responder,
        _ => return None,
    };
    let (&node, nonce) = rest.split_first_chunk()?;
    Some(PipeHello { role, node: NodeId(node), nonce: nonce.try_into().ok()? })
}

fn binding(initiator: &PipeHello, responder: &PipeHello) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(BINDING_DOMAIN);
    for part in [&initiator.node.0, &responder.node.0, &initiator.nonce, &responder.nonce] {
        hash.update(part);
    }
    let mut binding = [0; 32];
    // SHA-256 always has 32 bytes.
    binding.copy_from_slice(hash.finish().as_ref());
    binding
}

fn nonce() -> Result<[u8; 32], PipeError> {
    let mut nonce = [0; 32];
    SystemRandom::new().fill(&mut nonce).map_err(|_| PipeError::NoRandomness)?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_vector_of_the_format() {
        let initiator = PipeHello { role: Role::Initiator, node: NodeId([1; 32]), nonce: [3; 32] };
        let responder = PipeHello { role: Role::Responder, node: NodeId([2; 32]), nonce: [4; 32] };
        let wanted = "14f859ed7fcc613d9029567e0385859439f9b035f2ba9457b340461ba1071044";
        assert_eq!(towpath_content::node_id::hex(&binding(&initiator, &responder)), wanted);
        assert_eq!(encode(&responder)[..10], *b"towpipe\x01\x01\x02");
    }

    #[test]
    fn a_hello_comes_back_and_an_unknown_role_does_not() {
        let hello = PipeHello { role: Role::Responder, node: NodeId([2; 32]), nonce: [4; 32] };
        let mut rest: [u8; 65] = encode(&hello)[8..].try_into().unwrap();
        assert_eq!(decode(&rest), Some(hello));
        rest[0] = 2;
        assert_eq!(decode(&rest), None);
    }
}
