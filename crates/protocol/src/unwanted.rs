//! Pieces of a `Get` that is being answered and that its peer cancelled. What has not been read is not read; of a piece that
//! is on its way no further frame goes out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::wire::{WantPiece, WireWant, want_pieces};

/// Shared by whoever takes messages of the peer and whoever reads the pieces, in their order.
#[derive(Clone)]
pub(super) struct UnwantedPieces(Arc<Mutex<PieceStates>>);

struct PieceStates {
    /// For each want the number of its first piece, if all pieces of the `Get` are counted through; and that of the end.
    firsts: Box<[u32]>,
    /// By these numbers: it was cancelled.
    cancelled: Box<[bool]>,
    /// Those before this number have been read, or passed over.
    read: usize,
}

impl UnwantedPieces {
    /// None of the pieces of these wants.
    pub(super) fn of(wants: &[WireWant]) -> Self {
        let ends = wants.iter().scan(0_u32, |end, want| {
            *end = end.saturating_add(want.parts());
            Some(*end)
        });
        let firsts: Box<[u32]> = std::iter::once(0).chain(ends).collect();
        let count = firsts.last().map_or(0, |count| *count as usize);
        let states = PieceStates { firsts, cancelled: vec![false; count].into(), read: 0 };
        Self(Arc::new(Mutex::new(states)))
    }

    /// Bytes that it keeps.
    pub(super) fn len(&self) -> usize {
        let states = self.states();
        size_of_val(&*states.firsts) + states.cancelled.len()
    }

    /// The peer cancels these, named as [`want_pieces`] reads them. Returns those that will not be read. `None` if any is
    /// none of the `Get`, or was cancelled before.
    pub(super) fn name(&self, pieces: &[u32]) -> Option<Vec<u32>> {
        let (mut states, mut unread) = (self.states(), Vec::new());
        for (want, piece) in want_pieces(pieces)? {
            let number = states.number((want, piece))?;
            if std::mem::replace(&mut states.cancelled[number], true) {
                return None;
            }
            unread.extend((number >= states.read).then_some([want, piece]));
        }
        Some(unread.concat())
    }

    /// The next piece is to be read; false if it was cancelled, as the peer was told.
    pub(super) fn reads(&self, piece: WantPiece) -> bool {
        let mut states = self.states();
        let Some(number) = states.number(piece) else { return true };
        states.read = number + 1;
        !states.cancelled[number]
    }

    /// True if the peer cancelled a piece.
    pub(super) fn contains(&self, piece: WantPiece) -> bool {
        let states = self.states();
        states.number(piece).is_some_and(|number| states.cancelled[number])
    }

    fn states(&self) -> MutexGuard<'_, PieceStates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PieceStates {
    fn number(&self, (want, piece): WantPiece) -> Option<usize> {
        let bounds = self.firsts.get(want as usize..)?;
        let [first, end, ..] = bounds else { return None };
        first.checked_add(piece).filter(|number| number < end).map(|number| number as usize)
    }
}
