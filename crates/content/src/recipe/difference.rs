//! Chunks of a new object that an old one lacks, at a cost that goes with the difference.
//!
//! Both trees are narrowed level by level, from the top: subtrees that stand in both, wherever they
//! lie, are struck from both, and what is left is replaced by its children. What remains of either
//! tree in the end is its *differing part*: the old one's chunk hashes are gathered, and the new
//! one's runs are named unless their chunk was gathered.

use std::collections::HashSet;

use super::cursor::Cursor;
use super::fetch::{self, NodePosition};
use super::{Child, Entries, Extent, NodeHash, RecipeError, RecipeRoot};
use crate::chunking::{ChunkHash, Parameters};

/// A limit for [`difference`] that lets it take some 256 MiB at most, which only objects of many
/// gigabytes with little in common need; what is used goes with the difference.
pub const DEFAULT_LIMIT: usize = 1 << 19;

/// Runs of `new` that `old` lacks: every run of the new object's differing part whose chunk hash
/// does not occur in the old object's differing part, in order, with offsets in the new object.
///
/// The *differing part* of a tree is what is left when, level by level from the top, every subtree
/// that stands in both, wherever it lies, was struck from both. So only differing nodes are looked
/// up, and
///
/// - no chunk that the old object lacks is ever left out, and each is named at every position;
/// - a chunk that only moved is not named, nor is one that stands in another number of repeats;
/// - where no chunk occurs twice in an object (repeats in a row aside), exactly the chunks that
///   the old one lacks are named; otherwise a chunk may be named whose other copies are in a
///   struck subtree.
///
/// `lookup` serves the nodes of both recipes; the two top nodes are looked up at once, unless they
/// are one. `limit` bounds the subtrees that are held of each tree and the chunk hashes that are
/// held of the old one, up to 500 bytes for the three; beyond it more chunks are named than need
/// be, never fewer.
pub fn difference<E, F>(
    old: &RecipeRoot,
    new: &RecipeRoot,
    limit: usize,
    mut lookup: F,
) -> Result<RecipeDifference<F>, RecipeError<E>>
where
    F: FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
{
    let is_same = old.top == new.top && old.size == new.size;
    let (old, new) = match is_same {
        true => (RecipeSide::nothing(old), RecipeSide::nothing(new)),
        false => (RecipeSide::all(old, &mut lookup)?, RecipeSide::all(new, &mut lookup)?),
    };
    Ok(RecipeDifference { limit, old, new, walks: None, known: HashSet::new(), lookup })
}

/// Runs of the new object in order; made by [`difference`].
///
/// After an error the next call goes on at the same node, so that a missing one can be fetched
/// meanwhile. Errors that blame the maker stay.
#[derive(Debug)]
pub struct RecipeDifference<F> {
    limit: usize,
    old: RecipeSide,
    new: RecipeSide,
    /// Once all is narrowed: walks over what is left of the old and the new tree.
    walks: Option<(Cursor, Cursor)>,
    /// Chunks of the old object's differing part.
    known: HashSet<ChunkHash>,
    lookup: F,
}

impl<E, F: FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>> Iterator for RecipeDifference<F> {
    type Item = Result<Extent, RecipeError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

impl<E, F: FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>> RecipeDifference<F> {
    fn advance(&mut self) -> Result<Option<Extent>, RecipeError<E>> {
        let (old, new) = match &mut self.walks {
            Some(walks) => walks,
            none => {
                narrow(&mut self.old, &mut self.new, self.limit, &mut self.lookup)?;
                none.insert((self.old.rest(), self.new.rest()))
            }
        };
        gather(old, &mut self.known, self.limit, &mut self.lookup)?;
        loop {
            let next = new.next(&mut self.lookup)?;
            if next.is_none_or(|extent| !self.known.contains(&extent.run.hash)) {
                return Ok(next);
            }
        }
    }
}

/// Rest of one tree: subtrees of one level, in order.
#[derive(Debug)]
struct RecipeSide {
    parameters: Parameters,
    level: u8,
    positions: Vec<NodePosition>,
    /// The children of the first `expanded` positions.
    below: Vec<NodePosition>,
    expanded: usize,
}

impl RecipeSide {
    const fn nothing(root: &RecipeRoot) -> Self {
        Self { parameters: root.parameters, level: 0, positions: Vec::new(), below: Vec::new(), expanded: 0 }
    }

    fn all<E>(
        root: &RecipeRoot,
        lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Self, RecipeError<E>> {
        let (position, _) = fetch::top(root, lookup)?;
        Ok(Self { level: position.level, positions: vec![position], ..Self::nothing(root) })
    }

    /// Replaces the subtrees by their children, unless there would be more than `limit`.
    fn expand<E>(
        &mut self,
        limit: usize,
        lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<bool, RecipeError<E>> {
        while let Some(position) = self.positions.get(self.expanded) {
            if let Entries::Children(children) = fetch::subtree(position, lookup)?.entries() {
                if self.below.len() + children.len() > limit {
                    return Ok(false);
                }
                self.below.extend(fetch::positions(position, children));
            }
            self.expanded += 1;
        }
        self.positions = std::mem::take(&mut self.below);
        self.expanded = 0;
        self.level = self.level.saturating_sub(1);
        Ok(true)
    }

    fn strike(&mut self, common: &HashSet<Child>) {
        self.positions.retain(|position| !common.contains(&position.child));
    }

    /// A walk over what is left.
    fn rest(&mut self) -> Cursor {
        Cursor::below(self.parameters, std::mem::take(&mut self.positions))
    }
}

/// Strikes common subtrees down to the leaves, as far as the limit allows.
fn narrow<E>(
    old: &mut RecipeSide,
    new: &mut RecipeSide,
    limit: usize,
    lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
) -> Result<(), RecipeError<E>> {
    loop {
        if old.level == new.level {
            strike_common(old, new);
            if old.level == 0 || old.positions.is_empty() || new.positions.is_empty() {
                return Ok(());
            }
        }
        let higher = if old.level > new.level { &mut *old } else { &mut *new };
        if !higher.expand(limit, lookup)? {
            return Ok(());
        }
    }
}

fn strike_common(old: &mut RecipeSide, new: &mut RecipeSide) {
    let in_old: HashSet<_> = old.positions.iter().map(|position| position.child).collect();
    let in_new = new.positions.iter().map(|position| position.child);
    let common: HashSet<_> = in_new.filter(|child| in_old.contains(child)).collect();
    old.strike(&common);
    new.strike(&common);
}

/// Adds the hashes of `old`'s chunks to `known`, up to the limit; nothing once that is done.
fn gather<E>(
    old: &mut Cursor,
    known: &mut HashSet<ChunkHash>,
    limit: usize,
    lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
) -> Result<(), RecipeError<E>> {
    while known.len() < limit {
        let Some(extent) = old.next(lookup)? else {
            break;
        };
        known.insert(extent.run.hash);
    }
    Ok(())
}
