//! Ids of new blocks: a place drawn at random when a vault is opened, and those behind it, one after the other. Nobody draws the same, and an
//! update names the first id alone.

use std::cell::Cell;
use std::rc::Rc;

use towpath_vault_format::BlockId;

use crate::keys::{VaultKeyError, random};

/// Ids that were not given yet. Clones give from the same ones.
#[derive(Debug, Clone)]
pub struct BlockIds(Rc<Cell<u128>>);

impl BlockIds {
    /// From a random place on.
    pub fn random() -> Result<Self, VaultKeyError> {
        random().map(|first| Self(Rc::new(Cell::new(u128::from_be_bytes(first)))))
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
        let ids = BlockIds(Rc::new(Cell::new(u128::MAX)));
        let other = ids.clone();
        let given = [ids.next(), other.next(), ids.next()].map(|id| u128::from_be_bytes(id.0));
        assert_eq!(given, [u128::MAX, 0, 1]);
        assert_ne!(BlockIds::random().unwrap().next(), BlockIds::random().unwrap().next());
    }
}
