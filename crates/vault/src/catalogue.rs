//! The catalogue: what a vault's entries are called, and which of its files they are. It is a vault file itself, the one with
//! the id 0, so a server sees none of it. Layout: `docs/formats/vault-blocks.md`.
//!
//! A single file's description stands here; that of a tree is a file of the vault. Both are tree descriptors
//! (`docs/formats/tree.md`), so all metadata that copies keep are kept.

use std::collections::BTreeMap;

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::{Digest, FileId, VaultRoot};

/// The most bytes of a name.
pub const MAX_NAME: usize = 1024;
/// The most bytes of a catalogue.
pub const MAX_CATALOGUE: u64 = 64 << 20;
/// The most bytes of a description that stands in the catalogue.
pub const MAX_INLINE: usize = 1 << 20;
/// The most entries: each is a file at least.
pub const MAX_ENTRIES: usize = 4096;

/// Where an entry's descriptor is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryDescription {
    /// Here: a single file's.
    Inline(Vec<u8>),
    /// In a file of the vault: a tree's.
    File(FileId),
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// The bytes of its files, one behind the other in the order of the descriptor.
    pub content: FileId,
    /// How many.
    pub length: u64,
    /// Names, metadata and hashes.
    pub description: EntryDescription,
}

/// Entries by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue {
    /// In order of their names.
    pub entries: BTreeMap<Vec<u8>, CatalogueEntry>,
}

impl Catalogue {
    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u8(1).varint(self.entries.len() as u64);
        for (name, CatalogueEntry { content, length, description }) in &self.entries {
            out.bytes(name).raw(&content.0).varint(*length);
            match description {
                EntryDescription::Inline(bytes) => out.u8(0).bytes(bytes),
                EntryDescription::File(file) => out.u8(1).raw(&file.0),
            };
        }
        out.into_bytes()
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("catalogue")? != 1 {
            return Err(invalid("catalogue", "is of another version"));
        }
        let count = reader.bounded("entries", MAX_ENTRIES as u64)?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let (name, entry) = read_entry(&mut reader)?;
            if entries.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(invalid("entry name", "is not in order"));
            }
            entries.insert(name, entry);
        }
        reader.finish().map(|()| Self { entries })
    }

    /// All files of the vault that entries name.
    pub fn files(&self) -> impl Iterator<Item = FileId> {
        self.entries.values().flat_map(|entry| match entry.description {
            EntryDescription::File(file) => vec![entry.content, file],
            EntryDescription::Inline(_) => vec![entry.content],
        })
    }
}

/// What an entry is in a version: its content and its description, names and metadata of a tree included.
pub fn entry_digest(root: &VaultRoot, entry: &CatalogueEntry) -> Digest {
    let of = |file: &FileId| root.base_of(file);
    let content = of(&entry.content);
    match &entry.description {
        EntryDescription::Inline(description) => Digest::of(&[&content.0, &description[..]].concat()),
        EntryDescription::File(file) => Digest::of(&[content.0, of(file).0].concat()),
    }
}

/// Reason why a name can't be an entry's.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        [] => Err("is empty"),
        _ if name.len() > MAX_NAME => Err("is longer than 1024 bytes"),
        _ if name.contains(&0) => Err("has a zero byte"),
        _ => Ok(()),
    }
}

fn read_entry(reader: &mut Reader<'_>) -> Result<(Vec<u8>, CatalogueEntry), DecodeError> {
    let name = reader.bytes("entry name", MAX_NAME)?.to_vec();
    check_name(&name).map_err(|why| invalid("entry name", why))?;
    let content = FileId(reader.array("content")?);
    let length = reader.varint("content length")?;
    let description = match reader.bounded("kind of description", 1)? {
        0 => EntryDescription::Inline(reader.bytes("description", MAX_INLINE)?.to_vec()),
        _ => EntryDescription::File(FileId(reader.array("description")?)),
    };
    Ok((name, CatalogueEntry { content, length, description }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn catalogue() -> Catalogue {
        let file = |description| CatalogueEntry { content: FileId([2; 16]), length: 1 << 33, description };
        let entries = [
            (b"a tree".to_vec(), file(EntryDescription::File(FileId([3; 16])))),
            (b"notes".to_vec(), file(EntryDescription::Inline(vec![1, 2, 3]))),
        ];
        Catalogue { entries: entries.into() }
    }

    #[test]
    fn it_comes_back_and_never_cut_short() {
        let bytes = catalogue().to_bytes();
        assert_eq!(Catalogue::from_bytes(&bytes), Ok(catalogue()));
        assert!((0..bytes.len()).all(|end| Catalogue::from_bytes(&bytes[..end]).is_err()));
        assert_eq!(catalogue().files().count(), 3);
    }

    #[test]
    fn names_are_checked_and_in_order() {
        let mut bytes = catalogue().to_bytes();
        bytes[3] = b'z';
        assert_eq!(Catalogue::from_bytes(&bytes), Err(invalid("entry name", "is not in order")));
        bytes[3] = 0;
        assert_eq!(Catalogue::from_bytes(&bytes), Err(invalid("entry name", "has a zero byte")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Ok(catalogue) = Catalogue::from_bytes(&bytes) {
                prop_assert_eq!(catalogue.to_bytes(), bytes);
            }
        }
    }

    /// The vector of `docs/formats/vault-blocks.md`.
    #[test]
    fn the_documented_catalogue() {
        assert_eq!(
            towpath_content::node_id::hex(&catalogue().to_bytes()),
            "0102066120747265650202020202020202020202020202020280808080200103030303030303030303030303030303056e6f7465730202020202020202020202020202020280808080200003010203"
        );
    }
}
