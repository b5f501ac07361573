//! Which content of each entry this machine put or got last: what its person's changes were made on.

use std::collections::BTreeMap;

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::Digest;

use crate::catalogue::MAX_ENTRIES;

/// Names that are noted at most: some that the vault has no more.
const MOST: usize = 4 * MAX_ENTRIES;

/// What is noted of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenEntry {
    /// Number of the version.
    pub number: u64,
    /// Hash of the content's file root there.
    pub content: Digest,
}

/// Entries by their names' marks ([`name_mark`](crate::keys::VaultKeys::name_mark)).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenEntries {
    entries: BTreeMap<[u8; 32], SeenEntry>,
}

impl SeenEntries {
    /// What is noted of the name of this mark.
    pub fn get(&self, mark: Digest) -> Option<&SeenEntry> {
        self.entries.get(&mark.0)
    }

    /// Notes a content. Of too many one is forgotten: a put of that name asks for `--overwrite`.
    pub fn note(&mut self, mark: Digest, number: u64, content: Digest) {
        if self.entries.len() >= MOST && !self.entries.contains_key(&mark.0) {
            self.entries.pop_first();
        }
        self.entries.insert(mark.0, SeenEntry { number, content });
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u8(1).varint(self.entries.len() as u64);
        for (mark, SeenEntry { number, content }) in &self.entries {
            out.raw(mark).varint(*number).raw(&content.0);
        }
        out.into_bytes()
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("seen entries")? != 1 {
            return Err(invalid("seen entries", "are of another version"));
        }
        let count = reader.bounded("seen entries", MOST as u64)?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let mark = reader.array("entry")?;
            let number = reader.varint("version")?;
            entries.insert(mark, SeenEntry { number, content: Digest(reader.array("content")?) });
        }
        reader.finish().map(|()| Self { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_are_noted_they_can_be_read() {
        let mut seen = SeenEntries::default();
        let mark = |number: usize| Digest::of(&number.to_le_bytes());
        for number in 0..MOST + 10 {
            seen.note(mark(number), number as u64, Digest([7; 32]));
        }
        let back = SeenEntries::from_bytes(&seen.to_bytes()).unwrap();
        assert_eq!(back, seen);
        assert!((0..MOST + 10).filter(|number| back.get(mark(*number)).is_some()).count() == MOST);
    }
}
