//! Which content of each entry this machine put or got last: what its person's changes were made on.

use std::collections::BTreeMap;

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::Digest;

use crate::catalogue::{MAX_ENTRIES, MAX_NAME};

/// What is noted of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenEntry {
    /// Number of the version.
    pub number: u64,
    /// Hash of the content's file root there.
    pub content: Digest,
}

/// Entries by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    entries: BTreeMap<Vec<u8>, SeenEntry>,
}

impl Seen {
    /// What is noted of `name`.
    pub fn get(&self, name: &[u8]) -> Option<&SeenEntry> {
        self.entries.get(name)
    }

    /// Notes a content.
    pub fn note(&mut self, name: &[u8], number: u64, content: Digest) {
        self.entries.insert(name.to_vec(), SeenEntry { number, content });
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u8(1).varint(self.entries.len() as u64);
        for (name, SeenEntry { number, content }) in &self.entries {
            out.bytes(name).varint(*number).raw(&content.0);
        }
        out.into_bytes()
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("seen entries")? != 1 {
            return Err(invalid("seen entries", "are of another version"));
        }
        let count = reader.bounded("seen entries", 4 * MAX_ENTRIES as u64)?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let name = reader.bytes("entry name", MAX_NAME)?.to_vec();
            let number = reader.varint("version")?;
            entries.insert(name, SeenEntry { number, content: Digest(reader.array("content")?) });
        }
        reader.finish().map(|()| Self { entries })
    }
}
