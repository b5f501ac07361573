//! Pieces that lie in an older version, or most of them: how a worker takes them from there.

use std::ops::Range;

use towpath_content::pieces::Layout;

use super::events::RecipeFound;
use super::work::{Scratch, WriteTarget, check_piece, read_good};
use crate::following::PieceMatch;
use crate::object::ObjectInFlight;

/// Reads what may be piece `index`, and takes it over if it is.
pub(super) fn compare(object: &ObjectInFlight, index: u64, scratch: &mut Scratch) -> RecipeFound {
    match follow(object, index, scratch) {
        Some(found) => found,
        None if compare_in_place(object, index, scratch) => RecipeFound::All,
        None => RecipeFound::Nothing,
    }
}

fn compare_in_place(object: &ObjectInFlight, index: u64, scratch: &mut Scratch) -> bool {
    let read = |offset, buf: &mut [u8]| object.target.read_existing(offset, buf);
    let Some(bytes) = read_good(object, index, scratch, read) else { return false };
    let _turn = object.turn();
    object.target.keep(object.piece_range(index).start, bytes).is_ok()
}

/// Looks for a piece in the older version by its samples. None if there is no such version, or none are known.
fn follow(object: &ObjectInFlight, index: u64, scratch: &mut Scratch) -> Option<RecipeFound> {
    let older = object.target.base()?;
    let range = object.piece_range(index);
    let bytes = scratch.bytes((range.end - range.start) as usize);
    let piece_match = {
        let mut followed = object.followed();
        let followed = followed.as_mut()?;
        let samples = followed.samples.of(index)?;
        let Some(piece_match) = followed.following.find(range.start, samples, older, bytes) else {
            return Some(RecipeFound::Nothing);
        };
        if !piece_match.missing.is_empty() {
            let missing = piece_match.missing.clone();
            followed.piece_matches.insert(index, piece_match);
            return Some(RecipeFound::AllBut(missing));
        }
        piece_match
    };
    Some(take(object, index, &range, &piece_match, bytes))
}

/// Takes a piece over that was found whole, if it is right.
fn take(
    object: &ObjectInFlight,
    index: u64,
    range: &Range<u64>,
    piece_match: &PieceMatch,
    bytes: &[u8],
) -> RecipeFound {
    let is_right =
        object.layout().is_some_and(|layout| object.check_piece(&layout, index, bytes, None).is_ok());
    if !is_right {
        return RecipeFound::Nothing;
    }
    let _turn = object.turn();
    let taken = match piece_match.is_in_place() {
        true => object.target.keep(range.start, bytes),
        false => object.target.write(range.start, bytes),
    };
    if taken.is_ok() { RecipeFound::All } else { RecipeFound::Nothing }
}

/// Piece `index`, of which `part` has come and the rest lies in an older version. None if what they make is
/// something else: whose fault that is nobody knows.
pub(super) fn complete(to: &[WriteTarget], layout: &Layout, index: u64, part: &[u8]) -> Option<Vec<u8>> {
    to.iter().find_map(|destination| {
        let object = &destination.object;
        let piece_match = object.followed().as_mut()?.piece_matches.remove(&index)?;
        let range = layout.range(index);
        let mut piece = vec![0; (range.end - range.start) as usize];
        piece_match.read(range.start, object.target.base()?, &mut piece).ok()?;
        let missing = piece_match.missing.start as usize..piece_match.missing.end as usize;
        piece.get_mut(missing).filter(|missing| missing.len() == part.len())?.copy_from_slice(part);
        check_piece(to, layout, index, &piece, None).is_ok().then_some(piece)
    })
}
