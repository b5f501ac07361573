//! What the receiver has of files that it is about to ask for: kept until it does.

use std::collections::BTreeMap;

use bytes::Bytes;
use towpath_content::Oid;

use crate::message::Base;
use crate::reading::Signed;
use towpath_content::delta::exchange::parts as deltas;

/// Bytes of signatures of files that were not answered yet, at most.
const MOST_BASES: usize = 16 << 20;
/// What a base takes besides.
const COST: usize = 256;

/// What the receiver has of files, by entry.
#[derive(Default)]
pub(super) struct Bases {
    bases: BTreeMap<u64, Base>,
    bytes: usize,
}

impl Bases {
    /// False: they are too many, or not what they should be.
    pub(super) fn add(&mut self, base: Base) -> bool {
        let (parts, ahead) = (base.parts, base.ahead);
        let is_one = base.oid.is_empty() || Oid::from_bytes(&base.oid).is_ok();
        let is_fit = u64::from(parts) <= deltas::MAX_PARTS && ahead <= parts && (ahead > 0 || parts == 0);
        let is_fit = is_fit && is_one;
        // Shared with its message, a byte of it would keep all of that.
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let base = match is_fit {
            true => Base { signature: own(&base.signature), oid: own(&base.oid), ..base },
            false => return false,
        };
        self.bytes += COST + base.signature.len();
        self.bytes <= MOST_BASES && self.bases.insert(base.entry, base).is_none()
    }

    /// For an ask; its signature still counts.
    pub(super) fn take(&mut self, entry: u64) -> Base {
        let Some(base) = self.bases.remove(&entry) else { return Base::default() };
        self.bytes -= COST;
        base
    }

    /// These are of no more use.
    pub(super) fn answered(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Base {
    /// What was signed, if it was.
    pub(super) fn signed(&self) -> Option<Signed> {
        match (self.parts, &self.signature) {
            (0, none) if none.is_empty() => None,
            (0, signature) => Some(Signed::Whole(signature.clone())),
            (parts, _) => Some(Signed::InParts { parts: parts.into(), ahead: self.ahead.into() }),
        }
    }

    /// Its name, if that was told instead.
    pub(super) fn named(&self) -> Option<Oid> {
        Oid::from_bytes(&self.oid).ok().filter(|_| self.signed().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_that_are_none_or_too_many_are_refused() {
        for (parts, ahead, is_taken) in [
            (0, 0, true),
            (16, 1, true),
            (16, 16, true),
            (17, 1, false),
            (2, 3, false),
            (2, 0, false),
            (0, 1, false),
        ] {
            let base = Base { parts, ahead, ..Base::default() };
            assert_eq!(Bases::default().add(base), is_taken, "{parts} {ahead}");
        }
        let mut bases = Bases::default();
        let named = |entry| Base { entry, ..Base::default() };
        assert!(bases.add(named(1)) && !bases.add(named(1)));
        bases.take(1);
        assert!(bases.add(named(1)), "it was asked for, and is lacking");
        assert!((2..).take_while(|entry| bases.add(named(*entry))).count() <= MOST_BASES / COST);
        let signature = Bytes::from(vec![0; MOST_BASES]);
        assert!(!Bases::default().add(Base { signature, ..Base::default() }));
        let oid = Bytes::from(vec![0; 34]);
        assert!(!Bases::default().add(Base { oid, ..Base::default() }), "no OID is so long");
    }

    #[test]
    fn a_base_keeps_nothing_else_of_its_message() {
        let message = Bytes::from(vec![7; 100_000]);
        let mut bases = Bases::default();
        assert!(bases.add(Base { entry: 1, signature: message.slice(..3), ..Base::default() }));
        assert!(message.is_unique());
        assert_eq!(bases.take(1).signature, message[..3]);
    }
}
