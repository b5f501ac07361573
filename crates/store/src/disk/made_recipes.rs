//! Recipes in the making, and the bytes of all that are made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use towpath_content::Oid;
use towpath_content::lock::lock;

use crate::error::StoreError;

/// Bytes of the files of recipes that were made.
pub(super) const MADE_LIMIT: u64 = 256 << 20;

/// The recipes that were made, besides their files.
#[derive(Debug, Default)]
pub(super) struct MadeRecipes {
    /// Held by those who make a recipe.
    turns: Mutex<HashMap<Oid, Weak<Mutex<()>>>>,
    /// Bytes of the recipes that were made, once they were counted.
    pub(super) bytes: Mutex<Option<u64>>,
}

impl MadeRecipes {
    /// To be locked by who makes the recipe of `oid`.
    pub(super) fn turn(&self, oid: &Oid) -> Arc<Mutex<()>> {
        let mut turns = lock(&self.turns);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(oid).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        turns.insert(*oid, Arc::downgrade(&turn));
        turn
    }

    /// Notes `more` bytes; if that may be too much in all, `evict` looks, and returns what is left.
    pub(super) fn grow(
        &self,
        more: u64,
        evict: impl FnOnce() -> Result<u64, StoreError>,
    ) -> Result<(), StoreError> {
        let mut made = lock(&self.bytes);
        let total = made.map_or(u64::MAX, |made| made.saturating_add(more));
        *made = Some(if total > MADE_LIMIT { evict()? } else { total });
        Ok(())
    }
}
