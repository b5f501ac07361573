//! An object on its way that others may read already: the pieces that were checked and written are announced in a store, which
//! whoever serves looks into.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use towpath_content::Oid;
use towpath_content::pieces::{Layout, PieceTree};
use towpath_store::{About, Partial, Store, StoreError};

use crate::intervals::Intervals;
use crate::object::ObjectInFlight;

/// An announcement, which ends when this is dropped.
pub(super) struct Announcement {
    store: Arc<dyn Store>,
    oid: Oid,
    object: Arc<GrowingObject>,
}

impl Announcement {
    /// Announces `object`, of which nothing is there yet, if its target wants that. Live objects are not: their values are their
    /// node's to sign. Nor is what comes in one piece: it is complete as soon as it is there.
    pub(super) fn new(object: &Arc<ObjectInFlight>) -> Option<Self> {
        let layout = object.layout().filter(|layout| layout.count() > 1 && object.target.part().is_none())?;
        let (store, oid) = (object.target.announces()?, object.content()?);
        let (pieces, tree) = (Mutex::default(), OnceLock::new());
        let object = Arc::new(GrowingObject { object: Arc::clone(object), layout, pieces, tree });
        let announced = Self { store, oid, object };
        announced.tell();
        Some(announced)
    }

    /// A piece was checked and written.
    pub(super) fn grew(&self, index: u64) {
        self.object.pieces.lock().unwrap_or_else(PoisonError::into_inner).insert(index..index + 1);
        self.tell();
    }

    fn tell(&self) {
        self.store.announce(&self.oid, Some(Arc::clone(&self.object) as Arc<dyn Partial>));
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.store.announce(&self.oid, None);
    }
}

/// The object as those who read it see it.
struct GrowingObject {
    object: Arc<ObjectInFlight>,
    layout: Layout,
    /// Numbers of the pieces that are there.
    pieces: Mutex<Intervals>,
    /// All values, once all are known.
    tree: OnceLock<PieceTree>,
}

impl GrowingObject {
    fn tree(&self) -> Option<&PieceTree> {
        if self.tree.get().is_none() {
            let made = PieceTree::new(self.layout, self.object.all_values()?)?;
            // Another reader may have been as quick.
            let _ = self.tree.set(made);
        }
        self.tree.get()
    }
}

impl Partial for GrowingObject {
    fn available(&self) -> (Layout, Vec<Range<u64>>) {
        (self.layout, self.pieces.lock().unwrap_or_else(PoisonError::into_inner).iter().collect())
    }

    fn about(&self) -> About {
        self.object.about()
    }

    fn proof(&self, run: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let tree = self.tree().ok_or(StoreError::NotYet)?;
        tree.proof(run).map_err(|_| StoreError::NotHere)
    }

    fn read_piece(&self, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let is_there = self
            .pieces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .covers(&(index..index.saturating_add(1)));
        if !is_there || index >= self.layout.count() {
            return Err(StoreError::NotHere);
        }
        let (front, range) = (buf.len(), self.layout.range(index));
        buf.resize(front + (range.end - range.start) as usize, 0);
        // The file may just have got its name, and is to be asked for under that.
        self.object.target.read(range.start, &mut buf[front..]).map_err(|error| {
            tracing::debug!(%error, "a piece that was announced can't be read");
            buf.truncate(front);
            StoreError::NotHere
        })
    }
}
