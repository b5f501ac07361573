//! What a client and a rendezvous server say to each other, each in a frame of its own. Layout: `docs/formats/rendezvous.md`.
//!
//! Nothing here is longer than [`MAX_LETTER`] and a little: a server takes memory for short frames only.

use std::net::SocketAddr;

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_content::codec::{DecodeError, Reader, Writer, invalid};

use crate::entry::MAX_ENTRY;
use crate::topic::Topic;

/// The longest letter, in bytes.
pub const MAX_LETTER: usize = 8192;
/// The longest reason, in bytes.
const MAX_REASON: usize = 200;
/// The longest address as text.
const MAX_ADDRESS: usize = 64;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToServer {
    /// An entry of this client: [`crate::SignedEntry`].
    Announce(Bytes),
    /// Tell of all entries under a topic, and of those that come.
    Watch(Topic),
    /// Tell no more of them.
    Unwatch(Topic),
    /// Open a mailbox, under this number if it is free; 0: any.
    Open(u32),
    /// Come in at the mailbox of this number.
    Join(u32),
    /// For the other end of the mailbox.
    Letter(Bytes),
    /// The mailbox is left.
    Leave,
    /// Is the server there?
    Ping,
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToClient {
    /// First of all: the address that the client has from here.
    Seen(SocketAddr),
    /// An entry under a topic that is watched.
    Entry(Bytes),
    /// All entries that there were when watching began have been told.
    Told(Topic),
    /// A mailbox is open under this number.
    Opened(u32),
    /// The other end of the mailbox is there, and this is its node.
    Joined(NodeId),
    /// From the other end of the mailbox.
    Letter(Bytes),
    /// The other end of the mailbox is gone.
    Left,
    /// What was asked for is not done.
    Refused(Refusal),
    /// The server is there.
    Pong,
}

/// Why something is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Bytes that can't be understood, or not now.
    Malformed,
    /// An entry of another node than the client, or one that is over, or too far from over.
    Entry,
    /// There are as many as the server takes, of this node or address or in all.
    TooMany,
    /// Nobody waits under this number.
    NobodyWaits,
    /// Too many have come in from this address lately; later it goes.
    TooOften,
    /// The server is ending.
    Ending,
}

impl Refusal {
    const ALL: [(u8, Self, &'static str); 6] = [
        (1, Self::Malformed, "the message can't be understood"),
        (2, Self::Entry, "the entry is not the client's own, or its end is past or too far away"),
        (3, Self::TooMany, "the server has as many as it takes"),
        (4, Self::NobodyWaits, "nobody waits under this number"),
        (5, Self::TooOften, "too many tries from this address; try again in a minute"),
        (6, Self::Ending, "the server is ending"),
    ];

    /// The reason, for people.
    pub fn reason(self) -> &'static str {
        Self::ALL.iter().find(|(_, refusal, _)| *refusal == self).map_or("", |(.., reason)| reason)
    }

    fn number(self) -> u8 {
        Self::ALL.iter().find(|(_, refusal, _)| *refusal == self).map_or(1, |(number, ..)| *number)
    }

    /// One of a later version reads as [`Self::Malformed`].
    fn from_number(number: u8) -> Self {
        Self::ALL
            .iter()
            .find(|(known, ..)| *known == number)
            .map_or(Self::Malformed, |(_, refusal, _)| *refusal)
    }
}

impl ToServer {
    /// Kind and body of its frame.
    pub fn to_frame(&self) -> (u8, Bytes) {
        let number = |number: u32| {
            let mut writer = Writer::new();
            writer.varint(number.into());
            Bytes::from(writer.into_bytes())
        };
        let topic = |topic: &Topic| Bytes::copy_from_slice(&topic.0);
        match self {
            Self::Announce(entry) => (1, entry.clone()),
            Self::Watch(of) => (2, topic(of)),
            Self::Unwatch(of) => (3, topic(of)),
            Self::Open(at) => (4, number(*at)),
            Self::Join(at) => (5, number(*at)),
            Self::Letter(letter) => (6, letter.clone()),
            Self::Leave => (7, Bytes::new()),
            Self::Ping => (8, Bytes::new()),
        }
    }

    /// Reads a frame; `None` for a kind of a later version, which is passed over.
    pub fn from_frame(kind: u8, body: &Bytes) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(body);
        let message = match kind {
            1 => return limited("entry", body, MAX_ENTRY).map(|entry| Some(Self::Announce(entry))),
            6 => return limited("letter", body, MAX_LETTER).map(|letter| Some(Self::Letter(letter))),
            2 => Self::Watch(Topic(reader.array("topic")?)),
            3 => Self::Unwatch(Topic(reader.array("topic")?)),
            4 => Self::Open(reader.bounded("number", u32::MAX.into())? as u32),
            5 => Self::Join(reader.bounded("number", u32::MAX.into())? as u32),
            7 => Self::Leave,
            8 => Self::Ping,
            _ => return Ok(None),
        };
        reader.finish().map(|()| Some(message))
    }
}

impl ToClient {
    /// Kind and body of its frame.
    pub fn to_frame(&self) -> (u8, Bytes) {
        let mut writer = Writer::new();
        let kind = match self {
            Self::Seen(address) => {
                writer.raw(address.to_string().as_bytes());
                33
            }
            Self::Entry(entry) => return (34, entry.clone()),
            Self::Told(topic) => {
                writer.raw(&topic.0);
                35
            }
            Self::Opened(number) => {
                writer.varint((*number).into());
                36
            }
            Self::Joined(node) => {
                writer.raw(&node.0);
                37
            }
            Self::Letter(letter) => return (38, letter.clone()),
            Self::Left => 39,
            Self::Refused(why) => {
                writer.u8(why.number()).raw(why.reason().as_bytes());
                40
            }
            Self::Pong => 41,
        };
        (kind, writer.into_bytes().into())
    }

    /// Reads a frame; `None` for a kind of a later version, which is passed over.
    pub fn from_frame(kind: u8, body: &Bytes) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(body);
        let message = match kind {
            33 => return address(body).map(|address| Some(Self::Seen(address))),
            34 => return limited("entry", body, MAX_ENTRY).map(|entry| Some(Self::Entry(entry))),
            38 => return limited("letter", body, MAX_LETTER).map(|letter| Some(Self::Letter(letter))),
            40 => {
                limited("refusal", body, 1 + MAX_REASON)?;
                return Ok(Some(Self::Refused(Refusal::from_number(reader.u8("refusal")?))));
            }
            35 => Self::Told(Topic(reader.array("topic")?)),
            36 => Self::Opened(reader.bounded("number", u32::MAX.into())? as u32),
            37 => Self::Joined(NodeId(reader.array("node id")?)),
            39 => Self::Left,
            41 => Self::Pong,
            _ => return Ok(None),
        };
        reader.finish().map(|()| Some(message))
    }
}

/// A body that is kept as it is, in memory of its own: a frame shares its memory with others.
fn limited(field: &'static str, body: &Bytes, limit: usize) -> Result<Bytes, DecodeError> {
    match body.len() <= limit {
        true => Ok(Bytes::copy_from_slice(body)),
        false => Err(DecodeError::TooLarge { field, found: body.len() as u64, limit: limit as u64 }),
    }
}

fn address(body: &Bytes) -> Result<SocketAddr, DecodeError> {
    limited("address", body, MAX_ADDRESS)?;
    let text = std::str::from_utf8(body).ok();
    text.and_then(|text| text.parse().ok()).ok_or(invalid("address", "is none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_come_back() {
        let topic = Topic([5; 32]);
        for message in [
            ToServer::Announce(vec![1; MAX_ENTRY].into()),
            ToServer::Watch(topic),
            ToServer::Unwatch(topic),
            ToServer::Open(0),
            ToServer::Join(u32::MAX),
            ToServer::Letter(vec![1; MAX_LETTER].into()),
            ToServer::Leave,
            ToServer::Ping,
        ] {
            let (kind, body) = message.to_frame();
            assert_eq!(ToServer::from_frame(kind, &body), Ok(Some(message)));
        }
        let seen = ["192.0.2.1:1", "[2001:db8::1]:65535"].map(|text| ToClient::Seen(text.parse().unwrap()));
        let refused = Refusal::ALL.map(|(_, refusal, _)| ToClient::Refused(refusal));
        let others = [
            ToClient::Entry(vec![1; 9].into()),
            ToClient::Told(topic),
            ToClient::Opened(7),
            ToClient::Joined(NodeId([9; 32])),
            ToClient::Letter(Bytes::new()),
            ToClient::Left,
            ToClient::Pong,
        ];
        for message in seen.into_iter().chain(refused).chain(others) {
            let (kind, body) = message.to_frame();
            assert_eq!(ToClient::from_frame(kind, &body), Ok(Some(message)));
        }
    }

    #[test]
    fn what_is_too_long_or_has_bytes_left_over_is_refused_and_a_later_kind_passed_over() {
        let long = |len: usize| Bytes::from(vec![0; len]);
        for (kind, body) in
            [(1, long(MAX_ENTRY + 1)), (6, long(MAX_LETTER + 1)), (7, long(1)), (2, long(31)), (5, long(0))]
        {
            assert!(ToServer::from_frame(kind, &body).is_err(), "{kind}");
        }
        for (kind, body) in
            [(34, long(MAX_ENTRY + 1)), (33, long(9)), (40, long(0)), (40, long(300)), (37, long(33))]
        {
            assert!(ToClient::from_frame(kind, &body).is_err(), "{kind}");
        }
        assert_eq!(ToServer::from_frame(99, &long(9)), Ok(None));
        assert_eq!(ToClient::from_frame(99, &long(9)), Ok(None));
        assert_eq!(ToClient::from_frame(40, &long(1)), Ok(Some(ToClient::Refused(Refusal::Malformed))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(kind: u8, body: Vec<u8>) {
            let body = Bytes::from(body);
            let _ = (ToServer::from_frame(kind, &body), ToClient::from_frame(kind, &body));
        }
    }
}
