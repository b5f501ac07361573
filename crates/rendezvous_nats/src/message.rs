//! What servers say to each other in NATS, and the subjects where. Pure. Layout: `docs/formats/rendezvous.md`.

use std::fmt;

use bytes::Bytes;
use towpath_content::codec::{DecodeError, Reader, Writer};
use towpath_rendezvous::entry::MAX_ENTRY;

/// Here all servers listen.
pub const ALL: &str = "tow.rendezvous.1.all.*";
/// Each entry that a client says, at once.
pub const ENTRY: &str = "tow.rendezvous.1.all.entry";
/// A server is there.
pub const HELLO: &str = "tow.rendezvous.1.all.hello";

/// A server, by a name that it draws when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerName(pub [u8; 16]);

impl ServerName {
    /// Here this server listens.
    pub fn all(self) -> String {
        format!("tow.rendezvous.1.server.{self}.*")
    }

    /// Here hello is said to this server alone.
    pub fn hello(self) -> String {
        format!("tow.rendezvous.1.server.{self}.hello")
    }

    /// Here it is asked for its entries.
    pub fn page(self) -> String {
        format!("tow.rendezvous.1.server.{self}.page")
    }

    /// Here guests of other servers come to its mailboxes.
    pub fn guest(self) -> String {
        format!("tow.rendezvous.1.server.{self}.guest")
    }

    /// Here go the letters of conversations that it is part of.
    pub fn letter(self) -> String {
        format!("tow.rendezvous.1.server.{self}.letter")
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A server is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerHello {
    /// Who it is.
    pub name: ServerName,
    /// Entries that it has published so far.
    pub published: u64,
    /// It would hear hello from each other.
    pub asks: bool,
}

impl ServerHello {
    /// The binary form.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(&self.name.0).varint(self.published).u8(self.asks.into());
        writer.into_bytes()
    }

    /// Reads it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (name, published) = (ServerName(reader.array("server name")?), reader.varint("published")?);
        let asks = reader.bounded("asks", 1)? == 1;
        reader.finish()?;
        Ok(Self { name, published, asks })
    }
}

/// An entry on its way to all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedEntry {
    /// The server where it was said.
    pub name: ServerName,
    /// How many it has published with this one.
    pub published: u64,
    /// The entry's binary form, which was not checked.
    pub entry: Bytes,
}

impl PublishedEntry {
    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(&self.name.0).varint(self.published).bytes(&self.entry);
        writer.into_bytes()
    }

    /// Reads it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (name, published) = (ServerName(reader.array("server name")?), reader.varint("published")?);
        // In memory of its own: a message shares its memory with others.
        let entry = Bytes::copy_from_slice(reader.bytes("entry", MAX_ENTRY)?);
        reader.finish()?;
        Ok(Self { name, published, entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: ServerName = ServerName([0xab; 16]);

    #[test]
    fn messages_come_back() {
        for asks in [true, false] {
            let hello = ServerHello { name: NAME, published: 300, asks };
            assert_eq!(ServerHello::from_bytes(&hello.to_bytes()), Ok(hello));
        }
        let entry = PublishedEntry { name: NAME, published: 300, entry: vec![7; MAX_ENTRY].into() };
        assert_eq!(PublishedEntry::from_bytes(&entry.to_bytes()), Ok(entry.clone()));
        let long = PublishedEntry { entry: vec![7; MAX_ENTRY + 1].into(), ..entry };
        assert!(PublishedEntry::from_bytes(&long.to_bytes()).is_err());
        assert_eq!(NAME.page(), format!("tow.rendezvous.1.server.{}.page", "ab".repeat(16)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = (ServerHello::from_bytes(&bytes), PublishedEntry::from_bytes(&bytes));
        }
    }
}
