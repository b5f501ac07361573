//! Pieces that came without a proof before anybody told their values. They are kept until then, so many as there is room for.
//! Pure.

use std::collections::VecDeque;

use crate::want::{Delivery, ObjectKey, Tag};

/// Pieces that are kept, at most.
pub(super) const MOST_PIECES: usize = 64;
/// Bytes of them, at most.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// One of them. Its want is not asked for again while it is here.
struct UnprovedPiece {
    /// The object whose values tell whether it is right.
    object: ObjectKey,
    index: u64,
    delivery: Delivery,
}

/// Those of all objects in flight, in the order in which they came.
#[derive(Default)]
pub(super) struct UnprovedPieces {
    pieces: VecDeque<UnprovedPiece>,
    bytes: usize,
}

impl UnprovedPieces {
    /// True if there is room for what came.
    pub(super) fn fits(&self, delivery: &Delivery) -> bool {
        let bytes = self.bytes.saturating_add(delivery.payload.memory());
        self.pieces.len() < MOST_PIECES && bytes <= MOST_BYTES
    }

    /// Keeps piece `index`, for which there is room.
    pub(super) fn keep(&mut self, object: ObjectKey, index: u64, delivery: Delivery) {
        self.bytes += delivery.payload.memory();
        self.pieces.push_back(UnprovedPiece { object, index, delivery });
    }

    /// Takes out those of an object that `is_due` says so of.
    pub(super) fn take(&mut self, object: ObjectKey, is_due: impl Fn(u64) -> bool) -> Vec<Delivery> {
        let mut taken = Vec::new();
        for piece in std::mem::take(&mut self.pieces) {
            if piece.object == object && is_due(piece.index) {
                self.bytes -= piece.delivery.payload.memory();
                taken.push(piece.delivery);
            } else {
                self.pieces.push_back(piece);
            }
        }
        taken
    }

    /// An object leaves; returns the wants whose pieces were kept.
    pub(super) fn forget(&mut self, object: ObjectKey) -> Vec<Tag> {
        self.take(object, |_| true).into_iter().map(|delivery| delivery.tag).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::source_id::SourceId;
    use crate::want::Payload;

    fn delivery(tag: Tag, bytes: usize) -> Delivery {
        let (payload, source) = (Payload::Bytes(vec![0; bytes].into()), SourceId::other("somebody", None));
        Delivery { tag, payload, proof: None, source, timing: (Instant::now(), Instant::now()), saved: 0 }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        for (what, bytes, most) in [
            ("pieces of the usual size", 256 << 10, 64),
            ("large ones", 1 << 20, 16),
            ("one that fills it", 16 << 20, 1),
            ("one that is too large", (16 << 20) + 1, 0),
            ("holes, which take no memory", 0, 64),
        ] {
            let mut kept = UnprovedPieces::default();
            let mut count = 0;
            while kept.fits(&delivery(count, bytes)) {
                kept.keep(1, count, delivery(count, bytes));
                count += 1;
            }
            assert_eq!(count, most, "{what}");
            let taken = kept.take(1, |index| index % 2 == 0).len() as u64;
            assert_eq!((taken, kept.fits(&delivery(0, bytes))), (most.div_ceil(2), most > 0), "{what}");
        }
    }

    #[test]
    fn what_is_taken_out_is_the_objects_and_due_in_the_order_in_which_it_came() {
        let mut kept = UnprovedPieces::default();
        for (tag, (object, index)) in (0..).zip([(1, 5), (2, 5), (1, 2), (1, 9), (2, 7)]) {
            kept.keep(object, index, delivery(tag, 10));
        }
        let tags = |taken: Vec<Delivery>| taken.into_iter().map(|delivery| delivery.tag).collect::<Vec<_>>();
        assert_eq!(tags(kept.take(1, |index| index > 4)), [0, 3]);
        assert_eq!(tags(kept.take(1, |index| index > 4)), [] as [Tag; 0]);
        assert_eq!(kept.forget(2), [1, 4]);
        assert_eq!((kept.forget(2), kept.bytes), (vec![], 10));
    }
}
