//! The front of a piece that was given up for its object's recipe when some of it was here: the chunks that lie in
//! it do not come again.
//!
//! A network so slow that a piece takes it a second has brought half of one when the recipe comes. As
//! many parts are kept as requests can have been under way, none larger than a piece, until their object is complete.

use std::collections::HashMap;
use std::ops::Range;

use crate::want::{Delivery, ObjectKey, Payload, Tag, Want, WantId};

/// The first bytes of a piece, checked by nobody.
struct PartialPiece {
    /// Their range in the object.
    range: Range<u64>,
    delivery: Delivery,
}

/// Those of all objects in flight.
#[derive(Default)]
pub(super) struct PartialPieces {
    objects: HashMap<ObjectKey, Vec<PartialPiece>>,
}

impl PartialPieces {
    /// No more of a piece comes than this.
    pub(super) fn keep(&mut self, want: &Want, delivery: &Delivery) {
        if !matches!(want.id, WantId::Piece { .. }) || want.part.is_some() {
            return;
        }
        let len = (delivery.payload.bytes().len() as u64).min(want.id.len());
        for position in &want.positions {
            let (range, delivery) = (position.offset..position.offset + len, delivery.clone());
            self.objects.entry(position.object).or_default().push(PartialPiece { range, delivery });
        }
    }

    /// A chunk that is wanted at `range`, if one has it.
    pub(super) fn chunk(&self, object: ObjectKey, tag: Tag, range: &Range<u64>) -> Option<Delivery> {
        let has_all =
            |piece: &&PartialPiece| piece.range.start <= range.start && range.end <= piece.range.end;
        let PartialPiece { range: whole, delivery } = self.objects.get(&object)?.iter().find(has_all)?;
        let Payload::Bytes(bytes) = &delivery.payload else { return None };
        let bytes = bytes.slice((range.start - whole.start) as usize..(range.end - whole.start) as usize);
        Some(Delivery { tag, payload: Payload::Bytes(bytes), ..delivery.clone() })
    }

    /// An object leaves.
    pub(super) fn forget(&mut self, object: ObjectKey) {
        self.objects.remove(&object);
    }
}
