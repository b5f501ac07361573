//! Entries: what a node says of itself under a topic. The body is sealed for those who have the ticket; around it stands what a
//! server has to know, signed by the node. Layout: `docs/formats/rendezvous.md`.

use std::net::SocketAddr;

use bytes::Bytes;
use ring::aead::NONCE_LEN;
use towpath_content::codec::{DecodeError, Reader, Writer, invalid};
use towpath_content::{NodeId, hint};
use towpath_link::Identity;

use crate::topic::{Topic, TopicKeys};

const DOMAIN: &[u8] = b"towpath rendezvous entry v1\0";
const VERSION: u64 = 1;
/// The longest binary form, in bytes.
pub const MAX_ENTRY: usize = 1920;
/// The longest sealed body.
const MAX_BODY: usize = 1664;
/// Bytes of it that sealing adds.
const SEALING: usize = 28;
/// The most addresses in an entry.
pub const MAX_ADDRESSES: usize = 16;
/// The most relays in an entry.
pub const MAX_RELAYS: usize = 4;
/// The most addresses in an entry that it has outside.
pub const MAX_OUTSIDE: usize = 4;
const SIGNATURE: usize = 64;

const HAS_ALL: u8 = 1;
const SERVES: u8 = 2;
const AWAITS_CALLS: u8 = 4;

/// What those who have the ticket are told of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HolderEntry {
    /// It has everything.
    pub has_all: bool,
    /// It serves what it has.
    pub serves: bool,
    /// It reaches nobody who serves, and would be dialled by them.
    pub awaits_calls: bool,
    /// Thousandths of the bytes that it has, about.
    pub has: u16,
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// Addresses that it has outside, as servers see it: from behind each it opens connections while others open them to it.
    pub outside: Vec<SocketAddr>,
    /// Relays that carry calls to it: `NODE@HOST:PORT`.
    pub relays: Vec<String>,
}

impl HolderEntry {
    fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        let flags = [(self.has_all, HAS_ALL), (self.serves, SERVES), (self.awaits_calls, AWAITS_CALLS)];
        let flags = flags.into_iter().filter_map(|(is_so, flag)| is_so.then_some(flag)).sum();
        writer.u8(flags).varint(self.has.min(1000).into());
        for (addresses, most) in [(&self.addresses, MAX_ADDRESSES), (&self.outside, MAX_OUTSIDE)] {
            let addresses = &addresses[..addresses.len().min(most)];
            writer.varint(addresses.len() as u64);
            for address in addresses {
                writer.bytes(address.to_string().as_bytes());
            }
        }
        let mut room = MAX_BODY - SEALING - writer.len() - 1;
        // A relay takes its text and at most two bytes for the length.
        let fits = |relay: &&String| {
            room = room.saturating_sub(relay.len() + 2);
            room > 0
        };
        let relays: Vec<&String> = self.relays.iter().take(MAX_RELAYS).take_while(fits).collect();
        writer.varint(relays.len() as u64);
        for relay in relays {
            writer.bytes(relay.as_bytes());
        }
        writer.into_bytes()
    }

    /// Reads the binary form. Flags of later versions are passed over.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u8("entry flags")?;
        let has = reader.bounded("entry part", 1000)? as u16;
        let addresses = read_addresses(&mut reader, MAX_ADDRESSES)?;
        let outside = read_addresses(&mut reader, MAX_OUTSIDE)?;
        let count = reader.bounded("entry relays", MAX_RELAYS as u64)?;
        let relays = (0..count).map(|_| text(&mut reader).map(str::to_owned)).collect::<Result<_, _>>()?;
        reader.finish()?;
        let [has_all, serves, awaits_calls] = [HAS_ALL, SERVES, AWAITS_CALLS].map(|flag| flags & flag != 0);
        Ok(Self { has_all, serves, awaits_calls, has, addresses, outside, relays })
    }
}

/// The body of an entry, read and written again: a door for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub fn body_again(bytes: &[u8]) -> Option<(HolderEntry, Vec<u8>)> {
    let entry = HolderEntry::from_bytes(bytes).ok()?;
    let again = entry.to_bytes();
    Some((entry, again))
}

fn read_addresses(reader: &mut Reader<'_>, most: usize) -> Result<Vec<SocketAddr>, DecodeError> {
    let count = reader.bounded("entry addresses", most as u64)?;
    (0..count).map(|_| text(reader)?.parse().map_err(|_| invalid("entry address", "is none"))).collect()
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let bytes = reader.bytes("entry text", hint::MAX_METHOD)?;
    std::str::from_utf8(bytes).map_err(|_| invalid("entry text", "is not UTF-8"))
}

/// An entry as a server keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedEntry {
    /// What it is found under.
    pub topic: Topic,
    /// The node that it is of.
    pub node: NodeId,
    /// Of two of one node the one with the larger number holds: milliseconds since 1970 as the node has them.
    pub number: u64,
    /// When it is over, in seconds since 1970.
    pub expires: u64,
    /// For those who have the ticket; empty: the node is there no more.
    sealed: Vec<u8>,
    signature: [u8; SIGNATURE],
}

impl SignedEntry {
    /// The entry of `identity`, or its word that it is there no more. `nonce` is random.
    pub fn new(
        identity: &Identity,
        keys: &TopicKeys,
        (number, expires): (u64, u64),
        entry: Option<&HolderEntry>,
        nonce: [u8; NONCE_LEN],
    ) -> Self {
        let (topic, node) = (keys.topic(), identity.node_id());
        let mut signed = Self { topic, node, number, expires, sealed: Vec::new(), signature: [0; SIGNATURE] };
        signed.sealed = entry.map_or(Vec::new(), |entry| keys.seal(nonce, &signed.head(), &entry.to_bytes()));
        signed.signature = identity.sign(&signed.message());
        signed
    }

    /// True if the node says that it is there no more.
    pub const fn is_end(&self) -> bool {
        self.sealed.is_empty()
    }

    /// What it says, if it was written by somebody who has the ticket.
    pub fn open(&self, keys: &TopicKeys) -> Option<HolderEntry> {
        HolderEntry::from_bytes(&keys.open(&self.head(), &self.sealed)?).ok()
    }

    /// The same body under another topic, signed by somebody else: what a liar writes who has no ticket.
    #[cfg(test)]
    pub(crate) fn moved(mut self, by: &Identity, topic: Topic) -> Self {
        (self.node, self.topic) = (by.node_id(), topic);
        self.signature = by.sign(&self.message());
        self
    }

    /// All in front of the sealed body.
    fn head(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.varint(VERSION).raw(&self.topic.0).raw(&self.node.0).varint(self.number).varint(self.expires);
        writer.into_bytes()
    }

    /// What is signed.
    fn message(&self) -> Vec<u8> {
        [DOMAIN, &self.head(), &self.sealed].concat()
    }

    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(&self.head()).bytes(&self.sealed).raw(&self.signature);
        writer.into_bytes()
    }

    /// Topic and node of an entry that was checked before.
    pub(crate) fn place(bytes: &[u8]) -> Result<(Topic, NodeId), DecodeError> {
        let mut reader = Reader::new(bytes);
        reader.varint("entry")?;
        Ok((Topic(reader.array("topic")?), NodeId(reader.array("node id")?)))
    }

    /// Reads an entry, of which the signature must be its node's.
    pub fn verified(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_ENTRY {
            let (found, limit) = (bytes.len() as u64, MAX_ENTRY as u64);
            return Err(DecodeError::TooLarge { field: "entry", found, limit });
        }
        let mut reader = Reader::new(bytes);
        let found = reader.varint("entry")?;
        if found != VERSION {
            return Err(DecodeError::Version { field: "entry", found, known: VERSION });
        }
        let (topic, node) = (Topic(reader.array("topic")?), NodeId(reader.array("node id")?));
        let (number, expires) = (reader.varint("entry number")?, reader.varint("entry expiry")?);
        let sealed = reader.bytes("sealed entry", MAX_BODY)?.to_vec();
        let signature = reader.array("signature")?;
        reader.finish()?;
        let entry = Self { topic, node, number, expires, sealed, signature };
        match node.verify(&entry.message(), &entry.signature) {
            true => Ok(entry),
            false => Err(invalid("entry", "is not signed by its node")),
        }
    }
}

/// An entry for other servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEntry {
    /// What it is found under.
    pub topic: Topic,
    /// The node that it is of: there is one entry of each under a topic.
    pub node: NodeId,
    /// Its binary form.
    pub bytes: Bytes,
}

impl SharedEntry {
    /// Of bytes that were checked before.
    pub(crate) fn of(bytes: &Bytes) -> Option<Self> {
        let (topic, node) = SignedEntry::place(bytes).ok()?;
        Some(Self { topic, node, bytes: bytes.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use towpath_content::Oid;
    use towpath_content::ticket::Secret;

    fn keys() -> TopicKeys {
        TopicKeys::new(&Oid::of(b"root"), &Secret([7; 16]).into())
    }

    fn entry() -> HolderEntry {
        let addresses = vec!["192.0.2.1:7000".parse().unwrap(), "[2001:db8::1]:7000".parse().unwrap()];
        let relays = vec![format!("{}@relay.example.org:4433", NodeId([9; 32]))];
        let outside = vec!["198.51.100.1:7001".parse().unwrap()];
        HolderEntry {
            serves: true,
            awaits_calls: true,
            has: 250,
            addresses,
            outside,
            relays,
            ..HolderEntry::default()
        }
    }

    #[test]
    fn an_entry_comes_back_for_who_has_the_ticket() {
        let identity = Identity::generate().unwrap();
        let signed = SignedEntry::new(&identity, &keys(), (5, 60), Some(&entry()), [3; NONCE_LEN]);
        let read = SignedEntry::verified(&signed.to_bytes()).unwrap();
        assert_eq!((&read, read.open(&keys())), (&signed, Some(entry())));
        let stranger = TopicKeys::new(&Oid::of(b"root"), &Secret([8; 16]).into());
        assert_eq!(read.open(&stranger), None);
        let end = SignedEntry::new(&identity, &keys(), (6, 60), None, [3; NONCE_LEN]);
        assert!(SignedEntry::verified(&end.to_bytes()).unwrap().is_end() && !read.is_end());
    }

    /// A server that moves a body to another time, node or topic has an entry that nobody opens.
    #[test]
    fn a_body_is_bound_to_what_stands_around_it() {
        let identity = Identity::generate().unwrap();
        let signed = SignedEntry::new(&identity, &keys(), (5, 60), Some(&entry()), [3; NONCE_LEN]);
        let liar = Identity::generate().unwrap();
        for change in [
            |entry: &mut SignedEntry| entry.expires += 1,
            |entry: &mut SignedEntry| entry.number += 1,
            |entry: &mut SignedEntry| entry.topic.0[0] ^= 1,
        ] {
            let mut moved = signed.clone();
            change(&mut moved);
            assert!(SignedEntry::verified(&moved.to_bytes()).is_err(), "another's signature");
            moved.node = liar.node_id();
            moved.signature = liar.sign(&moved.message());
            let moved = SignedEntry::verified(&moved.to_bytes()).unwrap();
            assert_eq!(moved.open(&keys()), None);
        }
    }

    #[test]
    fn the_largest_entry_is_within_the_limit() {
        let address = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap();
        let relay = format!("{}@{}:4433", NodeId([9; 32]), "a".repeat(60));
        let largest = HolderEntry {
            addresses: vec![address; MAX_ADDRESSES + 1],
            outside: vec![address; MAX_OUTSIDE + 1],
            relays: vec![relay; MAX_RELAYS + 1],
            ..entry()
        };
        let identity = Identity::generate().unwrap();
        let times = (u64::MAX, u64::MAX);
        let signed = SignedEntry::new(&identity, &keys(), times, Some(&largest), [3; NONCE_LEN]);
        let read = SignedEntry::verified(&signed.to_bytes()).unwrap().open(&keys()).unwrap();
        assert_eq!((read.addresses.len(), read.relays.len()), (MAX_ADDRESSES, MAX_RELAYS));
        assert!(SignedEntry::verified(&[1; MAX_ENTRY + 1]).is_err());
        let far = HolderEntry { relays: vec!["a".repeat(300); MAX_RELAYS], ..largest };
        let signed = SignedEntry::new(&identity, &keys(), times, Some(&far), [3; NONCE_LEN]);
        let read = SignedEntry::verified(&signed.to_bytes()).unwrap().open(&keys()).unwrap();
        assert_eq!(read.relays.len(), 2, "as many as there is room for");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = SignedEntry::verified(&bytes);
            let _ = HolderEntry::from_bytes(&bytes);
        }
    }
}
