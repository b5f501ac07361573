//! How much is likely to be wanted later: what is left of the object wanted last, and at least as much as lately.

use std::time::Duration;

use towpath_transfer::want::ObjectKey;
use towpath_transfer::{Want, WantId};

/// What was wanted in the last so long shows what will be wanted.
const RECENT: Duration = Duration::from_millis(500);

/// See the head of this module.
#[derive(Default)]
pub(super) struct BytesToCome {
    /// Object that was wanted last, and its bytes that were not wanted yet.
    rest: (ObjectKey, u64),
    /// Bytes that were wanted lately, and since when.
    recent: (u64, Duration),
}

impl BytesToCome {
    /// Notes how much of its object a want leaves to be wanted. The object that was wanted last stands for all: of small ones, what
    /// was wanted lately tells more.
    pub(super) fn note(&mut self, want: &Want) {
        let Some(position) = want.positions.first() else { return };
        let size = match want.id {
            WantId::Piece { layout, .. } => layout.size(),
            WantId::Chunk { .. } | WantId::Block { .. } => want.group.size.unwrap_or(0),
        };
        let rest = size.saturating_sub(position.offset + want.id.len());
        let known = if self.rest.0 == position.object { self.rest.1 } else { rest };
        self.rest = (position.object, rest.min(known));
    }

    /// Bytes that are likely to follow, now that so many were wanted.
    pub(super) fn bytes(&mut self, now: Duration, wanted: u64) -> u64 {
        let (sum, since) = self.recent;
        self.recent = match now.saturating_sub(since) > RECENT {
            true => (wanted, now),
            false => (sum + wanted, since),
        };
        self.rest.1.max(self.recent.0)
    }
}

#[cfg(test)]
pub(super) mod tests {

    use towpath_content::Oid;
    use towpath_content::pieces::Layout;
    use towpath_transfer::ObjectOffset;

    use super::*;

    /// A piece of an object of so many bytes.
    pub(in crate::many) fn want(object: ObjectKey, size: u64, index: u64) -> Want {
        let layout = Layout::of(size).unwrap();
        let id = WantId::Piece { oid: Oid::of(&object.to_le_bytes()), layout, index };
        let positions = vec![ObjectOffset { object, offset: layout.range(index).start }];
        Want { positions, ..Want::new(index, id) }
    }

    #[test]
    fn the_last_object_tells_how_much_is_to_come() {
        let mut to_come = BytesToCome::default();
        for (object, index, rest) in [(1, 0, 768), (1, 2, 256), (1, 1, 256), (2, 0, 768), (2, 3, 0)] {
            to_come.note(&want(object, 1 << 20, index));
            assert_eq!(to_come.bytes(Duration::ZERO, 0), rest << 10, "piece {index} of {object}");
        }
    }

    #[test]
    fn what_was_wanted_lately_is_the_least() {
        let mut to_come = BytesToCome::default();
        assert_eq!(to_come.bytes(Duration::ZERO, 5), 5);
        assert_eq!(to_come.bytes(RECENT, 6), 11);
        assert_eq!(to_come.bytes(2 * RECENT, 0), 0, "long ago");
    }
}
