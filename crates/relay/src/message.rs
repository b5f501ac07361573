//! Messages between a node and a relay: each is a frame of `link`. Layout: `docs/formats/relay.md`.

use std::fmt;

use bytes::{Buf, Bytes};
use thiserror::Error;
use towpath_content::NodeId;
use towpath_content::node_id::hex;
use towpath_link::frame::{FrameWriter, WriteError};

use crate::pass::PassProof;

/// The most bytes that a block holds: with the heads of frame and block it fills four records of the encryption.
pub const MAX_BLOCK: usize = (64 << 10) - 13;
/// The longest frame, its kind included: a full block.
pub const MAX_FRAME: usize = 1 + 8 + MAX_BLOCK;

/// Name of a circuit: random, drawn by who calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CircuitId(pub [u8; 16]);

impl fmt::Debug for CircuitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CircuitId({})", hex(&self.0[..4]))
    }
}

/// Reason why a relay does not do what it was asked for, or ends a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum FailReason {
    /// The node that was called does not wait at this relay.
    #[error("the other node does not wait at this relay")]
    NotWaiting,
    /// The other end did not come within the limit.
    #[error("the other node did not answer")]
    NoAnswer,
    /// A limit of the relay is reached.
    #[error("a limit of the relay is reached")]
    OverQuota,
    /// The relay is about to end.
    #[error("the relay shuts down")]
    ShuttingDown,
    /// The relay does not serve this node.
    #[error("the relay does not serve this node")]
    NotAllowed,
    /// What was sent is against the protocol.
    #[error("the relay was sent something against its protocol")]
    Violation,
    /// Nobody called by this name.
    #[error("the relay knows no such circuit")]
    NoCircuit,
    /// A reason of a later version.
    #[error("the relay refused, reason {0}")]
    Other(u8),
}

impl FailReason {
    /// All with a name, in the order of their numbers, which begin with 1.
    const NAMED: [Self; 7] = [
        Self::NotWaiting,
        Self::NoAnswer,
        Self::OverQuota,
        Self::ShuttingDown,
        Self::NotAllowed,
        Self::Violation,
        Self::NoCircuit,
    ];

    fn number(self) -> u8 {
        let at = Self::NAMED.iter().position(|&reason| reason == self);
        match (self, at) {
            (Self::Other(number), _) => number,
            (_, at) => at.map_or(0, |at| at as u8 + 1),
        }
    }

    fn from_number(number: u8) -> Self {
        let named = usize::from(number).checked_sub(1).and_then(|at| Self::NAMED.get(at));
        named.copied().unwrap_or(Self::Other(number))
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayMessage {
    /// Node: I can be called here.
    Wait {
        /// Proof that this node has the relay's pass.
        pass: Option<PassProof>,
    },
    /// Node: connect me with this one.
    Call {
        /// The node to call.
        node: NodeId,
        /// The new circuit.
        circuit: CircuitId,
    },
    /// Node that was called: this connection is for that circuit.
    Take {
        /// The circuit.
        circuit: CircuitId,
    },
    /// Either end, after a loss: go on with this circuit.
    Resume {
        /// The circuit.
        circuit: CircuitId,
        /// The node at its other end.
        node: NodeId,
        /// The last block that this end has taken in.
        received: u64,
        /// As in `Wait`.
        pass: Option<PassProof>,
    },
    /// Relay: done.
    Ok {
        /// The last block that the other end of the circuit has taken in.
        received: u64,
    },
    /// Relay: not done, and nothing follows.
    Fail {
        /// The reason.
        why: FailReason,
    },
    /// Relay, to a waiting node: you are called.
    Incoming {
        /// The circuit.
        circuit: CircuitId,
        /// The node that calls.
        caller: NodeId,
    },
    /// Bytes of a circuit.
    Block {
        /// One more than that of the block before it; the first is 1.
        number: u64,
        /// 1 to [`MAX_BLOCK`] bytes.
        bytes: Bytes,
    },
    /// All blocks up to this one were handed on.
    Ack {
        /// The last of them.
        through: u64,
    },
    /// Nothing follows in this direction. It has a number as a block has, and is acknowledged like one.
    Close {
        /// One more than that of the last block.
        number: u64,
    },
    /// The circuit is over; nobody shall keep anything for it.
    Abort,
    /// Are you there? The other end of a circuit answers with `Ack`, a relay with `Ok`.
    Ping,
}

/// Reason why a frame is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadMessage {
    /// No message has this kind.
    #[error("a message of the unknown kind {kind}")]
    Kind {
        /// The frame's kind.
        kind: u8,
    },
    /// The body's length fits no message of its kind.
    #[error("a message of kind {kind} with {len} bytes")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// The body's length.
        len: usize,
    },
    /// A block's number is zero.
    #[error("a block without a number")]
    Number,
}

const WAIT: u8 = 1;
const CALL: u8 = 2;
const TAKE: u8 = 3;
const RESUME: u8 = 4;
const OK: u8 = 5;
const FAIL: u8 = 6;
const INCOMING: u8 = 7;
const BLOCK: u8 = 8;
const ACK: u8 = 9;
const CLOSE: u8 = 10;
const ABORT: u8 = 11;
const PING: u8 = 12;

impl RelayMessage {
    /// The frame's kind, the body, and what follows of a body that is large.
    pub fn encode(&self) -> (u8, Vec<u8>, Bytes) {
        let none = Bytes::new();
        match self {
            Self::Wait { pass } => (WAIT, pass_bytes(pass), none),
            Self::Call { node, circuit } => (CALL, [&node.0[..], &circuit.0].concat(), none),
            Self::Take { circuit } => (TAKE, circuit.0.to_vec(), none),
            Self::Resume { circuit, node, received, pass } => {
                let named = [&circuit.0[..], &node.0, &received.to_le_bytes()].concat();
                (RESUME, [named, pass_bytes(pass)].concat(), none)
            }
            Self::Ok { received } => (OK, received.to_le_bytes().to_vec(), none),
            Self::Fail { why } => (FAIL, vec![why.number()], none),
            Self::Incoming { circuit, caller } => (INCOMING, [&circuit.0[..], &caller.0].concat(), none),
            Self::Block { number, bytes } => (BLOCK, number.to_le_bytes().to_vec(), bytes.clone()),
            Self::Ack { through } => (ACK, through.to_le_bytes().to_vec(), none),
            Self::Close { number } => (CLOSE, number.to_le_bytes().to_vec(), none),
            Self::Abort => (ABORT, Vec::new(), none),
            Self::Ping => (PING, Vec::new(), none),
        }
    }

    /// Reads a frame.
    pub fn decode(kind: u8, body: Bytes) -> Result<Self, BadMessage> {
        let fields = &mut MessageFields { kind, len: body.len(), body };
        let message = Self::fields(kind, fields)?;
        match fields.body.is_empty() {
            true => Ok(message),
            false => Err(fields.wrong_length()),
        }
    }

    fn fields(kind: u8, fields: &mut MessageFields) -> Result<Self, BadMessage> {
        Ok(match kind {
            WAIT => Self::Wait { pass: fields.pass()? },
            CALL => Self::Call { node: fields.node()?, circuit: fields.circuit()? },
            TAKE => Self::Take { circuit: fields.circuit()? },
            RESUME => Self::Resume {
                circuit: fields.circuit()?,
                node: fields.node()?,
                received: fields.number()?,
                pass: fields.pass()?,
            },
            OK => Self::Ok { received: fields.number()? },
            FAIL => Self::Fail { why: FailReason::from_number(fields.array::<1>()?[0]) },
            INCOMING => Self::Incoming { circuit: fields.circuit()?, caller: fields.node()? },
            BLOCK => Self::Block { number: fields.counted()?, bytes: fields.content()? },
            ACK => Self::Ack { through: fields.number()? },
            CLOSE => Self::Close { number: fields.counted()? },
            ABORT => Self::Abort,
            PING => Self::Ping,
            _ => return Err(BadMessage::Kind { kind }),
        })
    }

    /// Puts it into a writer's queue.
    pub(crate) fn queue(&self, writer: &mut FrameWriter) -> Result<(), WriteError> {
        let (kind, body, more) = self.encode();
        writer.queue_bytes(kind, &body, more)
    }

    /// Sends it now.
    pub(crate) async fn send(&self, writer: &mut FrameWriter) -> Result<(), WriteError> {
        self.queue(writer)?;
        writer.flush().await
    }
}

fn pass_bytes(pass: &Option<PassProof>) -> Vec<u8> {
    pass.map_or(Vec::new(), |proof| proof.0.to_vec())
}

/// What is still to be read of a body.
struct MessageFields {
    kind: u8,
    len: usize,
    body: Bytes,
}

impl MessageFields {
    const fn wrong_length(&self) -> BadMessage {
        BadMessage::Length { kind: self.kind, len: self.len }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let array = *self.body.first_chunk().ok_or(self.wrong_length())?;
        self.body.advance(N);
        Ok(array)
    }

    fn node(&mut self) -> Result<NodeId, BadMessage> {
        self.array().map(NodeId)
    }

    fn circuit(&mut self) -> Result<CircuitId, BadMessage> {
        self.array().map(CircuitId)
    }

    fn number(&mut self) -> Result<u64, BadMessage> {
        self.array().map(u64::from_le_bytes)
    }

    fn counted(&mut self) -> Result<u64, BadMessage> {
        match self.number()? {
            0 => Err(BadMessage::Number),
            number => Ok(number),
        }
    }

    fn pass(&mut self) -> Result<Option<PassProof>, BadMessage> {
        match self.body.is_empty() {
            true => Ok(None),
            false => Ok(Some(PassProof(self.array()?))),
        }
    }

    fn content(&mut self) -> Result<Bytes, BadMessage> {
        match self.body.len() {
            1..=MAX_BLOCK => Ok(std::mem::take(&mut self.body)),
            _ => Err(self.wrong_length()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reasons_have_numbers_and_unknown_ones_stay() {
        for number in 0..=255 {
            assert_eq!(FailReason::from_number(number).number(), number);
        }
    }

    proptest! {
        #[test]
        fn any_frame_is_a_message_or_refused(kind in 0u8..14, body in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(message) = RelayMessage::decode(kind, Bytes::from(body.clone())) {
                let (again, head, rest) = message.encode();
                prop_assert_eq!((again, [head, rest.to_vec()].concat()), (kind, body));
            }
        }
    }

    #[test]
    fn blocks_are_neither_empty_nor_oversized() {
        let block = |len| RelayMessage::decode(BLOCK, Bytes::from(vec![1; 8 + len]));
        assert!(block(1).is_ok() && block(MAX_BLOCK).is_ok());
        for len in [0, MAX_BLOCK + 1] {
            assert_eq!(block(len), Err(BadMessage::Length { kind: BLOCK, len: 8 + len }));
        }
        assert_eq!(RelayMessage::decode(BLOCK, Bytes::from(vec![0; 9])), Err(BadMessage::Number));
    }
}
