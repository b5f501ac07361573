//! Pages: some entries of a server in one message to another server, and where the next ones begin. Pure. Layout: `docs/formats/rendezvous.md`.

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_content::codec::{DecodeError, Reader, Writer, invalid};

use crate::entry::MAX_ENTRY;
use crate::entry::SharedEntry;
use crate::topic::Topic;

/// Bytes of entries in a page at most: with all around it, it is below 64 KiB.
pub const MAX_BYTES: usize = 60_000;
/// The most entries in a page: none is shorter than its head and signature.
const MAX_ENTRIES: usize = MAX_BYTES / 128;

/// Behind which topic and node a page begins.
pub type PageCursor = (Topic, NodeId);

/// See the head of this module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryPage {
    /// Entries, in binary form. They were not checked.
    pub entries: Vec<Bytes>,
    /// Behind this one goes it on; `None`: there are no more.
    pub next: Option<PageCursor>,
}

impl EntryPage {
    /// Of entries that a server has behind a cursor; there are no more if these are none.
    pub fn of(entries: Vec<SharedEntry>) -> Self {
        let next = entries.last().map(|entry| (entry.topic, entry.node));
        Self { entries: entries.into_iter().map(|entry| entry.bytes).collect(), next }
    }

    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.bytes(&cursor_to_bytes(self.next));
        writer.varint(self.entries.len() as u64);
        for entry in &self.entries {
            writer.bytes(entry);
        }
        writer.into_bytes()
    }

    /// Reads the binary form of the page behind `after`. The next one must begin further on.
    pub fn from_bytes(bytes: &Bytes, after: Option<PageCursor>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let next = cursor_from_bytes(reader.bytes("cursor", 64)?)?;
        if next.is_some() && next <= after {
            return Err(invalid("cursor", "does not lead on"));
        }
        let count = reader.bounded("entries of a page", MAX_ENTRIES as u64)?;
        let entry = |_| reader.bytes("entry", MAX_ENTRY).map(Bytes::copy_from_slice);
        let entries = (0..count).map(entry).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Self { entries, next })
    }
}

/// What a server is asked with: nothing for its first page.
pub fn cursor_to_bytes(cursor: Option<PageCursor>) -> Vec<u8> {
    cursor.map_or(Vec::new(), |(topic, node)| [topic.0, node.0].concat())
}

/// Reads it.
pub fn cursor_from_bytes(bytes: &[u8]) -> Result<Option<PageCursor>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(bytes);
    let cursor = (Topic(reader.array("topic")?), NodeId(reader.array("node id")?));
    reader.finish()?;
    Ok(Some(cursor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cursor(byte: u8) -> PageCursor {
        (Topic([byte; 32]), NodeId([byte; 32]))
    }

    #[test]
    fn a_page_comes_back_and_leads_on() {
        let entry = |byte| {
            let (topic, node) = cursor(byte);
            SharedEntry { topic, node, bytes: Bytes::from(vec![byte; 200]) }
        };
        let page = EntryPage::of(vec![entry(1), entry(2)]);
        let bytes = Bytes::from(page.to_bytes());
        assert_eq!(page.next, Some(cursor(2)));
        assert_eq!(EntryPage::from_bytes(&bytes, None), Ok(page.clone()));
        assert_eq!(EntryPage::from_bytes(&bytes, Some(cursor(1))), Ok(page));
        for after in [2, 3] {
            assert!(EntryPage::from_bytes(&bytes, Some(cursor(after))).is_err(), "in a circle");
        }
        let last = EntryPage::of(Vec::new());
        assert_eq!(EntryPage::from_bytes(&last.to_bytes().into(), Some(cursor(2))), Ok(last));
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let long = EntryPage { entries: vec![vec![0; MAX_ENTRY + 1].into()], next: None };
        let many = EntryPage { entries: vec![Bytes::new(); MAX_ENTRIES + 1], next: None };
        for page in [long, many] {
            assert!(EntryPage::from_bytes(&page.to_bytes().into(), None).is_err());
        }
        assert!(cursor_from_bytes(&[0; 63]).is_err() && cursor_from_bytes(&[0; 65]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = (EntryPage::from_bytes(&bytes.clone().into(), None), cursor_from_bytes(&bytes));
        }
    }
}
