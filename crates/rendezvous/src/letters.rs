//! One end of a mailbox: it waits under a number, or comes in at one, and then sends letters to the other end and gets its.

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_link::{FrameReader, FrameWriter, Identity};

use crate::dialling::ServerWay;
use crate::message::{Refusal, ToClient, ToServer};
use crate::place::KnownServer;

/// An end of a mailbox. Dropping it leaves.
pub struct Letters {
    reader: FrameReader,
    writer: FrameWriter,
}

/// What comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterEvent {
    /// The other end is there, and this is its node, as the server says.
    Joined(NodeId),
    /// A letter of it.
    Letter(Bytes),
    /// It is gone, and the mailbox is closed.
    Left,
}

/// Reason why there is no mailbox, or no more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LetterError {
    /// The server can't be reached.
    #[error("{0}")]
    NoServer(String),
    /// It refuses.
    #[error("{}", .0.reason())]
    Refused(Refusal),
    /// The connection broke.
    #[error("the connection with the rendezvous broke")]
    Lost,
}

impl Letters {
    /// Waits under a number at `server`: the wanted one if it is free; 0: any. Returns it.
    pub async fn open(
        server: &KnownServer,
        identity: &Identity,
        wanted: u32,
    ) -> Result<(Self, u32), LetterError> {
        let mut letters = Self::dial(server, identity).await?;
        letters.write(&ToServer::Open(wanted)).await?;
        loop {
            if let ToClient::Opened(number) = letters.read().await? {
                return Ok((letters, number));
            }
        }
    }

    /// Comes in under `number` at `server`. Returns the node that waits there, as the server says.
    pub async fn join(
        server: &KnownServer,
        identity: &Identity,
        number: u32,
    ) -> Result<(Self, NodeId), LetterError> {
        let mut letters = Self::dial(server, identity).await?;
        letters.write(&ToServer::Join(number)).await?;
        loop {
            if let ToClient::Joined(node) = letters.read().await? {
                return Ok((letters, node));
            }
        }
    }

    async fn dial(server: &KnownServer, identity: &Identity) -> Result<Self, LetterError> {
        let way = ServerWay { server: server.clone(), identity: identity.clone(), port: None };
        let mut connection = way.dial().await.map_err(LetterError::NoServer)?;
        connection.reader.hold_short(true);
        let (reader, writer) = connection.split();
        Ok(Self { reader, writer })
    }

    /// What comes next. Cancel-safe.
    pub async fn next(&mut self) -> Result<LetterEvent, LetterError> {
        loop {
            match self.read().await? {
                ToClient::Joined(node) => return Ok(LetterEvent::Joined(node)),
                ToClient::Letter(letter) => return Ok(LetterEvent::Letter(letter)),
                ToClient::Left => return Ok(LetterEvent::Left),
                _ => {}
            }
        }
    }

    /// Sends a letter to the other end. One that waits finds up to four when it comes.
    pub async fn send(&mut self, letter: Bytes) -> Result<(), LetterError> {
        self.write(&ToServer::Letter(letter)).await
    }

    async fn write(&mut self, message: &ToServer) -> Result<(), LetterError> {
        let (kind, body) = message.to_frame();
        self.writer.send_bytes(kind, &[], body).await.map_err(|_| LetterError::Lost)?;
        self.writer.flush().await.map_err(|_| LetterError::Lost)
    }

    async fn read(&mut self) -> Result<ToClient, LetterError> {
        loop {
            let frame = self.reader.next().await.ok().flatten().ok_or(LetterError::Lost)?;
            match ToClient::from_frame(frame.kind, &frame.body) {
                Ok(Some(ToClient::Refused(why))) => return Err(LetterError::Refused(why)),
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(_) => return Err(LetterError::Lost),
            }
        }
    }
}
