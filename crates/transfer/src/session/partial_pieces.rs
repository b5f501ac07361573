//! The front of a piece that was given up for its object's recipe when some of it was here: the chunks that lie in
//! it do not come again.
//!
//! A network so slow that a piece takes it a second has brought half of one when the recipe comes. As
//! many parts are kept as requests can have been under way, none larger than a piece, until their object is complete.

use std::ops::Range;

use super::active::Active;
use super::requests::PartialPiece;
use super::table::ObjectTable;
use crate::want::{Delivery, ObjectKey, Payload, Tag, WantId};

impl ObjectTable {
    /// No more of a piece comes than this.
    pub(super) fn partial_piece(&mut self, delivery: Delivery) {
        let Some(want) = self.ledger.get(delivery.tag) else { return };
        if !matches!(want.id, WantId::Piece { .. }) || want.part.is_some() {
            return;
        }
        for position in &want.positions {
            let len = delivery.payload.bytes().len() as u64;
            if let Some(active) = self.objects.get_mut(&position.object) {
                let range = position.offset..position.offset + len.min(want.id.len());
                active.partial_pieces.push(PartialPiece { range, delivery: delivery.clone() });
            }
        }
    }

    /// Takes a chunk that is wanted at `range` from the front of a piece, if one has it.
    pub(super) fn take_from_partial_pieces(&mut self, key: ObjectKey, tag: Tag, range: &Range<u64>) {
        let found = self.objects.get(&key).and_then(|active| active.in_partial_pieces(tag, range));
        if let Some(delivery) = found {
            self.delivery(delivery, None);
        }
    }
}

impl Active {
    fn in_partial_pieces(&self, tag: Tag, range: &Range<u64>) -> Option<Delivery> {
        let has_all =
            |piece: &&PartialPiece| piece.range.start <= range.start && range.end <= piece.range.end;
        let PartialPiece { range: whole, delivery } = self.partial_pieces.iter().find(has_all)?;
        let Payload::Bytes(bytes) = &delivery.payload else { return None };
        let bytes = bytes.slice((range.start - whole.start) as usize..(range.end - whole.start) as usize);
        Some(Delivery { tag, payload: Payload::Bytes(bytes), ..delivery.clone() })
    }
}
