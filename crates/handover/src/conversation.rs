//! One way between host and guest, on which messages of a code go both ways.

use std::time::Duration;

use bytes::Bytes;
use towpath_codes::exchange::CodeWay;
use towpath_content::NodeId;
use towpath_link::{Connection, FrameReader, FrameWriter};
use towpath_rendezvous::letters::{LetterEvent, Letters};

/// Kind of the frames on one network.
const MESSAGE: u8 = 1;
/// Time for the other end to read the last message.
const LINGER: Duration = Duration::from_secs(2);

/// See the head of this module.
pub(crate) enum CodeConversation {
    /// A mailbox with both ends in it, and the node of the other one, as the server says.
    Letters(Letters, NodeId),
    /// A connection between the two.
    Direct {
        /// What the other end says.
        reader: FrameReader,
        /// What it is told.
        writer: FrameWriter,
        /// What the exchange is bound to.
        way: CodeWay,
    },
}

impl CodeConversation {
    /// Over a connection with the other end.
    pub(crate) fn direct(connection: Connection) -> Self {
        let way = CodeWay::Direct { peer: connection.peer, binding: connection.binding };
        let (mut reader, writer) = connection.split();
        reader.hold_short(true);
        Self::Direct { reader, writer, way }
    }

    /// True if nobody carries what is said.
    pub(crate) const fn is_direct(&self) -> bool {
        matches!(self, Self::Direct { .. })
    }

    /// The node at the other end, in a mailbox as the server says.
    pub(crate) const fn peer(&self) -> Option<NodeId> {
        match self {
            Self::Letters(_, node) => Some(*node),
            Self::Direct { way: CodeWay::Direct { peer, .. }, .. } => Some(*peer),
            Self::Direct { .. } => None,
        }
    }

    /// The way, as the exchange has to know it.
    pub(crate) const fn way(&self) -> CodeWay {
        match self {
            Self::Letters(..) => CodeWay::Carried,
            Self::Direct { way, .. } => *way,
        }
    }

    /// The next message; `None` when the other end is gone. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Letters(letters, _) => loop {
                match letters.next().await.ok()? {
                    LetterEvent::Letter(letter) => return Some(letter),
                    LetterEvent::Joined(_) => {}
                    LetterEvent::Left => return None,
                }
            },
            Self::Direct { reader, .. } => {
                let frame = reader.next().await.ok()??;
                (frame.kind == MESSAGE).then(|| Bytes::copy_from_slice(&frame.body))
            }
        }
    }

    /// Sends messages in their order; false if the other end is gone.
    pub(crate) async fn send(&mut self, messages: Vec<Vec<u8>>) -> bool {
        for message in messages {
            let sent = match self {
                Self::Letters(letters, _) => letters.send(message.into()).await.is_ok(),
                Self::Direct { writer, .. } => writer.send_bytes(MESSAGE, &[], message.into()).await.is_ok(),
            };
            if !sent {
                return false;
            }
        }
        match self {
            Self::Letters(..) => true,
            Self::Direct { writer, .. } => writer.flush().await.is_ok(),
        }
    }

    /// Gives the other end time to read what was said, and leaves.
    pub(crate) async fn end(mut self) {
        let _ = tokio::time::timeout(LINGER, async { while self.next().await.is_some() {} }).await;
    }
}
