//! A connection between two services, and the seam below it.
//!
//! A [`Transport`] moves bytes and knows who is at the other end; a [`Connection`] makes frames of
//! them. Its halves may live in different tasks; dropping both closes it.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;

use tokio::io::AsyncWrite;
use towpath_content::NodeId;

use crate::frame::{FrameReader, FrameWriter};
use crate::path::PathProbe;
use crate::protocol::Protocol;
pub use crate::recv_buffer::ReadHalf;

/// The sending half of a transport. Flushed with nothing behind the last flush, it gives back memory that it holds.
pub type WriteHalf = Pin<Box<dyn AsyncWrite + Send>>;

/// Proof of a peer's node id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerProof {
    /// The peer proved to hold the private key.
    Key,
    /// The peer said so, on a stream that something else protects, such as ssh.
    Claim,
}

/// Something that carries bytes both ways between two services that know each other's node id.
///
/// # Contract
///
/// - By the time there is a value, the peer is known and the opening is over.
/// - Bytes arrive as they were sent, in order, or reading fails. What a stranger on the way could
///   read or change is the transport's affair to prevent.
/// - `binding` is the same at both ends and, but for chance, on no other connection.
/// - The halves work from different tasks, and neither waits for the other's progress.
/// - Shutting the sending half down ends that direction alone, and the peer reads everything sent
///   before it. An end that the peer did not ask for reads as `UnexpectedEof` if the transport can
///   tell it.
/// - Reading loses nothing if it is given up while it waits (see [`Receive`](crate::recv_buffer::Receive)).
pub trait Transport: Send {
    /// The service at the other end.
    fn peer(&self) -> NodeId;

    /// Proof of `peer`.
    fn proof(&self) -> PeerProof;

    /// The channel binding: what proofs made on this connection are tied to.
    fn binding(&self) -> [u8; 32];

    /// Asks the kernel about the path; [`PathProbe::none`] where there is nothing to ask.
    fn probe(&self) -> PathProbe;

    /// The two directions.
    fn split(self: Box<Self>) -> (ReadHalf, WriteHalf);
}

/// Frames to and from one peer.
pub struct Connection {
    /// The service at the other end.
    pub peer: NodeId,
    /// Proof of `peer`.
    pub proof: PeerProof,
    /// The channel binding: equal at both ends, different on every connection.
    pub binding: [u8; 32],
    /// Frames from the peer.
    pub reader: FrameReader,
    /// Frames to the peer.
    pub writer: FrameWriter,
    /// Probe of the path.
    pub info: PathProbe,
    /// Address of the other end, if it has one.
    pub address: Option<IpAddr>,
    /// What is spoken.
    pub protocol: Protocol,
}

impl Connection {
    /// Puts frames on `transport`.
    pub fn new(transport: Box<dyn Transport>) -> Self {
        let (peer, proof, binding) = (transport.peer(), transport.proof(), transport.binding());
        let info = transport.probe();
        let (read, write) = transport.split();
        let (reader, writer) = (FrameReader::new(read), FrameWriter::new(write));
        Self { peer, proof, binding, reader, writer, info, address: None, protocol: Protocol::PEER }
    }

    /// The two halves alone.
    pub fn split(self) -> (FrameReader, FrameWriter) {
        (self.reader, self.writer)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .field("proof", &self.proof)
            .finish_non_exhaustive()
    }
}
