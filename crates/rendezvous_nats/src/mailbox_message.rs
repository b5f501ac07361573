//! What servers say to each other of mailboxes. Pure. Layout: `docs/formats/rendezvous.md`.

use std::net::{IpAddr, Ipv6Addr};

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_content::codec::{DecodeError, Reader, Writer, invalid};
use towpath_rendezvous::message::MAX_LETTER;

use crate::message::ServerName;

/// All servers are asked for a number.
pub const NUMBER: &str = "tow.rendezvous.1.all.number";
/// Messages that carry more are no letters.
const MAX_BODY: usize = MAX_LETTER + 256;

/// A conversation of a guest with a mailbox at another server, by a name that the guest's server draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConversationName(pub [u8; 16]);

/// What is asked about a number. Who can say yes answers with its name; nobody says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberQuestion {
    /// Does somebody wait under it, to whom nobody has come in?
    Waits,
    /// Has another node than this one a mailbox under it?
    IsAnothers,
}

/// A question about a number, for a client's sake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedNumber {
    /// What is asked.
    pub question: NumberQuestion,
    /// The number.
    pub number: u32,
    /// The client.
    pub node: NodeId,
}

impl AskedNumber {
    /// The binary form.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut writer = Writer::new();
        let question = match self.question {
            NumberQuestion::Waits => 1,
            NumberQuestion::IsAnothers => 2,
        };
        writer.u8(question).varint(self.number.into()).raw(&self.node.0);
        writer.into_bytes()
    }

    /// Reads it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let question = match reader.u8("question")? {
            1 => NumberQuestion::Waits,
            2 => NumberQuestion::IsAnothers,
            _ => return Err(invalid("question", "is none")),
        };
        let number = reader.bounded("number", u32::MAX.into())? as u32;
        let node = NodeId(reader.array("node id")?);
        reader.finish()?;
        Ok(Self { question, number, node })
    }
}

/// A guest comes to the server where somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComingGuest {
    /// Its own server.
    pub server: ServerName,
    /// What is said from now on.
    pub conversation: ConversationName,
    /// Its node.
    pub node: NodeId,
    /// Its address.
    pub from: IpAddr,
    /// Where it comes in.
    pub number: u32,
}

impl ComingGuest {
    /// The binary form.
    pub fn to_bytes(self) -> Vec<u8> {
        let from = match self.from.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut writer = Writer::new();
        writer.raw(&self.server.0).raw(&self.conversation.0).raw(&self.node.0).raw(&from.octets());
        writer.varint(self.number.into());
        writer.into_bytes()
    }

    /// Reads it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let server = ServerName(reader.array("server name")?);
        let conversation = ConversationName(reader.array("conversation")?);
        let node = NodeId(reader.array("node id")?);
        let from = IpAddr::V6(Ipv6Addr::from(reader.array("address")?)).to_canonical();
        let number = reader.bounded("number", u32::MAX.into())? as u32;
        reader.finish()?;
        Ok(Self { server, conversation, node, from, number })
    }
}

/// A message of a mailbox on its way between two servers: a frame as clients and servers have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedFrame {
    /// The conversation that it is part of.
    pub conversation: ConversationName,
    /// Its number in this direction, from 1: what was lost is noticed.
    pub count: u64,
    /// Kind of the frame.
    pub kind: u8,
    /// Its body.
    pub body: Bytes,
}

impl CarriedFrame {
    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(&self.conversation.0).varint(self.count).u8(self.kind).bytes(&self.body);
        writer.into_bytes()
    }

    /// Reads it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let conversation = ConversationName(reader.array("conversation")?);
        let (count, kind) = (reader.varint("count")?, reader.u8("kind")?);
        // In memory of its own: a message shares its memory with others.
        let body = Bytes::copy_from_slice(reader.bytes("letter", MAX_BODY)?);
        reader.finish()?;
        Ok(Self { conversation, count, kind, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONVERSATION: ConversationName = ConversationName([7; 16]);

    #[test]
    fn messages_come_back() {
        for question in [NumberQuestion::Waits, NumberQuestion::IsAnothers] {
            let asked = AskedNumber { question, number: u32::MAX, node: NodeId([3; 32]) };
            assert_eq!(AskedNumber::from_bytes(&asked.to_bytes()), Ok(asked));
        }
        for from in ["192.0.2.1", "2001:db8::1"] {
            let (server, node) = (ServerName([1; 16]), NodeId([2; 32]));
            let from = from.parse().unwrap();
            let guest = ComingGuest { server, conversation: CONVERSATION, node, from, number: 7 };
            assert_eq!(ComingGuest::from_bytes(&guest.to_bytes()), Ok(guest));
        }
        let body = Bytes::from(vec![7; MAX_LETTER]);
        let frame = CarriedFrame { conversation: CONVERSATION, count: 300, kind: 6, body };
        assert_eq!(CarriedFrame::from_bytes(&frame.to_bytes()), Ok(frame.clone()));
        let long = CarriedFrame { body: vec![7; MAX_BODY + 1].into(), ..frame };
        assert!(CarriedFrame::from_bytes(&long.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = (AskedNumber::from_bytes(&bytes), ComingGuest::from_bytes(&bytes));
            let _ = CarriedFrame::from_bytes(&bytes);
        }
    }
}
