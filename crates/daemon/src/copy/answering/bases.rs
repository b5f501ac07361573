//! What the receiver has of files that it is about to ask for: kept until it does.

use std::collections::BTreeMap;

use bytes::Bytes;
use towpath_content::Oid;

use crate::copy::deltas;
use crate::copy::message::Base;

/// Bytes of signatures of files that were not answered yet, at most.
const MOST_BASES: usize = 16 << 20;

/// What the receiver has of a file.
#[derive(Default)]
pub(super) struct Told {
    pub(super) signatures: Vec<Bytes>,
    pub(super) older: Option<Oid>,
    pub(super) in_parts: bool,
    pub(super) is_guess: bool,
}

/// Signatures of older versions' parts, by entry.
#[derive(Default)]
pub(super) struct Signed {
    parts: BTreeMap<u64, Told>,
    bytes: usize,
}

impl Signed {
    /// False: they are too many.
    pub(super) fn add(&mut self, Base { entry, signatures, oid, in_parts, is_guess }: Base) -> bool {
        self.bytes += signatures.iter().map(Bytes::len).sum::<usize>();
        let told = self.parts.entry(entry).or_default();
        told.signatures.extend(signatures);
        told.older = Oid::from_bytes(&oid).ok().filter(|_| told.signatures.is_empty());
        told.in_parts = in_parts;
        told.is_guess = is_guess;
        self.bytes <= MOST_BASES && told.signatures.len() as u64 <= deltas::MAX_PARTS
    }

    /// For an ask; they still count.
    pub(super) fn take(&mut self, entry: u64) -> Told {
        self.parts.remove(&entry).unwrap_or_default()
    }

    /// These are of no more use.
    pub(super) fn answered(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
