//! Ranges of an object's bytes, wherever its pieces begin and end.

use std::ops::Range;

use crate::error::StoreError;

/// The greatest length of a span that [`Store::read_span`](crate::Store::read_span) reads at once, 16 MiB: as a chunk, it is
/// held in memory whole.
pub const MAX_SPAN: u64 = 1 << 24;

/// The refusal of a run that no object has.
pub(crate) const OUTSIDE: StoreError = StoreError::Refused { why: "pieces outside the object" };

/// The refusal of more bytes than are read at once.
pub(crate) const TOO_LONG_A_SPAN: StoreError = StoreError::Refused { why: "at most 16 MiB are read at once" };

/// Checks a range by itself, before anything is looked for.
pub(crate) const fn check(range: &Range<u64>) -> Result<(), StoreError> {
    if range.start > range.end {
        return Err(OUTSIDE);
    }
    if range.end - range.start > MAX_SPAN { Err(TOO_LONG_A_SPAN) } else { Ok(()) }
}
