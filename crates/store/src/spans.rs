//! Ranges of an object's bytes, wherever its pieces begin and end.

use std::ops::Range;

use towpath_content::Oid;

use crate::productions::OUTSIDE;
use crate::seam::{MAX_SPAN, State, Store, StoreError};

/// The refusal of more bytes than are read at once.
pub(crate) const TOO_LONG_A_SPAN: StoreError = StoreError::Refused { why: "at most 16 MiB are read at once" };

/// Checks a range by itself, before anything is looked for.
pub(crate) const fn check(range: &Range<u64>) -> Result<(), StoreError> {
    if range.start > range.end {
        return Err(OUTSIDE);
    }
    if range.end - range.start > MAX_SPAN { Err(TOO_LONG_A_SPAN) } else { Ok(()) }
}

/// Replaces the contents of `buf` with a range of `oid`, read piece by piece.
pub(crate) fn read_pieces<S: Store + ?Sized>(
    store: &S,
    oid: &Oid,
    range: Range<u64>,
    buf: &mut Vec<u8>,
) -> Result<(), StoreError> {
    check(&range)?;
    buf.clear();
    let found = store.have(oid)?;
    if range.end > found.layout.size() {
        let may_grow = matches!(found.state, State::Live { .. });
        return Err(if may_grow { StoreError::NotYet } else { OUTSIDE });
    }
    let (mut at, mut piece) = (range.start, Vec::new());
    while at < range.end {
        let index = at / found.layout.piece_len();
        store.read_piece(oid, index, &mut piece)?;
        let Range { start, end } = found.layout.range(index);
        let (from, to) = ((at - start) as usize, (range.end.min(end) - start) as usize);
        // A production that was begun anew meanwhile may have cut its pieces otherwise.
        buf.extend_from_slice(piece.get(from..to).ok_or(StoreError::NotYet)?);
        at = range.end.min(end);
    }
    Ok(())
}
