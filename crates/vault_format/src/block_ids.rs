//! Ids of new blocks: a place drawn at random when a vault is opened, and those behind it, one after the other. Nobody draws the same, and an
//! update names the first id alone.

use std::cell::Cell;
use std::rc::Rc;

use crate::BlockId;

/// Ids that were not given yet. Clones give from the same ones.
#[derive(Debug, Clone)]
pub struct BlockIds(Rc<Cell<u128>>);

impl BlockIds {
    /// From a place on that was drawn at random.
    pub fn from_first(first: [u8; 16]) -> Self {
        Self(Rc::new(Cell::new(u128::from_be_bytes(first))))
    }

    /// The next one.
    pub fn next(&self) -> BlockId {
        let id = self.0.get();
        self.0.set(id.wrapping_add(1));
        BlockId(id.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_given_twice() {
        let ids = BlockIds::from_first([0xff; 16]);
        let other = ids.clone();
        let given = [ids.next(), other.next(), ids.next()].map(|id| u128::from_be_bytes(id.0));
        assert_eq!(given, [u128::MAX, 0, 1]);
    }
}
