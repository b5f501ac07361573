//! Trees that an application describes itself: the descriptor is read as it comes, and only what is
//! one to its end is committed as a tree.

use towpath_api::{ApiError, ErrorKind};
use towpath_content::DecodeError;
use towpath_content::tree::{Decoder, Event, Kind};

/// Reads along what a put of a tree brings. Holds one block of it.
#[derive(Debug, Default)]
pub(crate) struct TreePut {
    decoder: Decoder,
    /// Bytes of the files.
    bytes: u64,
}

impl TreePut {
    /// Takes the next bytes of the descriptor. Errors in them are reported by [`Self::finish`].
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.decoder.feed(bytes);
            bytes = &bytes[taken..];
            while let Ok(Some(located)) = self.decoder.next_event() {
                if let Event::Leaf(entry) = &located.event
                    && let Kind::File { size, .. } = entry.kind
                {
                    self.bytes = self.bytes.saturating_add(size);
                }
            }
        }
    }

    /// The bytes of all files, if what was read is a whole descriptor.
    pub(crate) fn finish(&self) -> Result<u64, ApiError> {
        if self.decoder.is_live() == Some(true) {
            let message = "the tree descriptor is a live one, which may leave names of files unknown";
            return Err(ApiError::new(ErrorKind::Usage, message).hint("write it with the names of all files"));
        }
        self.decoder.clone().finish().map(|()| self.bytes).map_err(|error| refusal(&error))
    }
}

fn refusal(error: &DecodeError) -> ApiError {
    ApiError::new(ErrorKind::Usage, format!("what was put is no tree descriptor: {error}"))
        .hint("docs/formats/tree.md describes one; without 'kind' any bytes can be put")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], at_once: usize) -> Result<u64, ApiError> {
        let mut put = TreePut::default();
        bytes.chunks(at_once).for_each(|part| put.read(part));
        put.finish()
    }

    fn vector(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/vectors/tree");
        std::fs::read(format!("{folder}/{name}.tree")).unwrap()
    }

    #[test]
    fn a_whole_descriptor_is_one_however_it_comes() {
        for name in ["single", "kinds", "blocks", "content"] {
            let bytes = vector(name);
            assert!(read(&bytes, 1).is_ok(), "{name}");
            assert_eq!(read(&bytes, 1), read(&bytes, 1 << 20), "{name}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_words() {
        for name in ["refused-truncated", "refused-trailing", "refused-dot-dot", "refused-unsorted"] {
            let error = read(&vector(name), 1000).unwrap_err();
            assert!(error.message.contains("no tree descriptor: "), "{name}: {error}");
        }
        assert!(read(&vector("live"), 1000).unwrap_err().message.contains("live"));
        assert!(read(b"", 1).is_err() && read(b"words", 1).is_err());
    }
}
