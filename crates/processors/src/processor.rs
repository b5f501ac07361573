//! The processor seam: what looks at, or changes, every chunk that goes through this host
//! (`papers/dot.txt` §2), whichever plugin brings it and whoever asks for it.
//!
//! ```text
//!   store ── admit, inspect ── encode ──► frame ··· frame ──► decode ── admit, inspect ── session
//! ```
//!
//! # Contract
//!
//! * **Pure for each chunk.** What comes of a chunk depends on it and its object alone, not on the
//!   chunks before or the time: chunks come in any order, more than once, on many threads. What an
//!   encoder keeps from one to the next (tables, room) must not show.
//! * **Inspectors see the bytes themselves**: on their way out before they are encoded, on their way
//!   in after they are decoded, in the second case not checked against any hash yet. What one
//!   refuses does not pass; the receiver gets the error "refused by", the processor's name, and why. A file
//!   whose tree's descriptor or ticket holds its bytes is inspected like any other; the descriptor
//!   itself is only admitted.
//! * **Encodings are agreed on.** Each side names in its hello those it can take, and those it
//!   wishes for. Data are sent encoded only if the other side takes the encoding and either wishes
//!   for it, and each frame tells its encoding. An encoder may leave a payload alone. Compression is
//!   also used unasked, where that is quicker.
//! * **A decoder is handed a stranger's bytes.** It knows how long the payload must be, takes no
//!   more memory than that, and answers anything else with an error, which ends the connection.
//! * **Nothing blocks.** A processor works on the bytes at hand; it does not wait for disks or
//!   networks.
//!
//! [`conformance`] examines an encoding in a line. An example outside of this crate:
//! `examples/refusing_processor`.

pub mod conformance;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_transfer::Metadata;

/// The object that a chunk belongs to, as far as it is known where the chunk is.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// Its name: content or live.
    pub oid: &'a Oid,
    /// Its path in its tree, or its own name; empty if it is not known. A stranger's words.
    pub name: &'a [u8],
    /// Bytes; `None` while it is live.
    pub size: Option<u64>,
    /// Its sender's metadata.
    pub metadata: &'a Metadata,
}

/// Looks at or changes chunks. The contract is at the head of this module.
pub trait Processor: Send + Sync {
    /// Its name in configuration, messages and `--json`.
    fn name(&self) -> &str;

    /// Its inspector of chunks, if it has one.
    fn inspector(&self) -> Option<&dyn Inspector> {
        None
    }

    /// Its encoding of chunks between two hosts, if it has one.
    fn encoding(&self) -> Option<&dyn Encoding> {
        None
    }
}

/// Lets chunks pass or refuses them, in words for people.
pub trait Inspector: Send + Sync {
    /// Checks that an object may pass at all: called before any of its bytes are read or requested.
    fn admit(&self, _object: &Object<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Checks that these bytes of it, from `offset` on, may pass.
    fn inspect(&self, _object: &Object<'_>, _offset: u64, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Metadata for receivers of an object that this host serves, within the limits of [`Metadata`].
    fn describe(&self, _object: &Object<'_>) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }
}

/// A form of payloads on the way between two hosts.
pub trait Encoding: Send + Sync {
    /// Its name, by which a side says that it takes it.
    fn capability(&self) -> &str;
    /// The name by which a side asks for it.
    fn wish(&self) -> &str;
    /// Encodes one request's payloads.
    fn encoder(&self) -> Box<dyn Encode>;
    /// Decodes one connection's payloads.
    fn decoder(&self) -> Box<dyn Decode>;
}

/// Encodes payloads.
pub trait Encode: Send {
    /// The encoded payload, not empty and at most as long as a frame takes; `None` to send it as it
    /// is.
    fn encode(&mut self, payload: &[u8]) -> Option<Bytes>;
}

/// Decodes payloads.
pub trait Decode: Send + Sync {
    /// The payload, which must have `expected` bytes; else what the peer did wrong, as in "sent
    /// damaged data".
    fn decode(&mut self, payload: &[u8], expected: usize) -> Result<Bytes, String>;
}
