//! An object on its way that others may read already: the pieces that were checked and written are announced in a store, which
//! whoever serves looks into. So are chunks of a recipe that a peer brought, before their pieces are whole. Those that were found on
//! this machine are not: a recipe may name, by its hash, what the object does not have and others must not see.
//!
//! A live object is announced under its own name: whoever asks knows the values that its issuer signed, and needs no proof. Once it
//! is bound it is so by the name of its content, too.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use towpath_content::Oid;
use towpath_content::live::Statement;
use towpath_content::lock::lock;
use towpath_content::pieces::{Layout, MAX_LIVE_SIZE, PieceTree};
use towpath_store::{About, MAX_SPAN, Partial, StoreError};

use crate::intervals::Intervals;
use crate::object::ObjectInFlight;
use crate::source_id::SourceId;
use crate::target::Announcing;

/// Stretches of bytes that are told, at least: shorter ones cost more than they are worth.
const LEAST_SPAN: u64 = 4 << 10;
/// Bytes of chunks that came since others were told last: so many, and they are told again.
const TELL_EACH: u64 = 256 << 10;

/// True if others may read chunks that `source` brought before their pieces were checked. A recipe is a claim: what was found on this
/// machine by the hash in it may not be the object's, and so nobody else's to have. Nor is what was made of such bytes: `saved` did
/// not have to come.
pub(super) fn may_be_read(source: &SourceId, saved: u64) -> bool {
    source.node().is_some() && saved == 0
}

/// An announcement, which ends when this is dropped.
pub(super) struct Announcement {
    how: Announcing,
    object: Arc<GrowingObject>,
}

impl Announcement {
    /// Announces `object`, of which nothing is there yet, if its target wants that. What comes in one piece is not: it is complete as
    /// soon as it is there.
    pub(super) fn new(object: &Arc<ObjectInFlight>) -> Option<Self> {
        let is_single = object.layout().is_some_and(|layout| layout.count() == 1);
        if is_single || object.target.part().is_some() {
            return None;
        }
        let how = object.target.announces()?;
        if object.oid.is_live() && how.bound.is_none() {
            return None;
        }
        let (there, tree) = (Mutex::default(), OnceLock::new());
        let object = Arc::new(GrowingObject { object: Arc::clone(object), there, tree });
        let announced = Self { how, object };
        announced.tell();
        Some(announced)
    }

    /// The live object is bound, as its issuer signed: from now on it can be read by the name of its content, too.
    pub(super) fn bound(&self, statement: &Statement, signature: &[u8]) {
        self.tell();
        self.how.bound.iter().for_each(|bound| bound(statement, signature));
    }

    /// A piece was checked and written.
    pub(super) fn grew(&self, index: u64) {
        lock(&self.object.there).pieces.insert(index..index + 1);
        self.tell();
    }

    /// A chunk that a peer brought was checked by its hash and written.
    pub(super) fn filled(&self, range: Range<u64>) {
        let mut there = lock(&self.object.there);
        there.untold += range.end - range.start;
        there.spans.insert(range);
        let is_enough = there.untold >= TELL_EACH;
        if is_enough {
            there.untold = 0;
            drop(there);
            self.tell();
        }
    }

    /// Chunks were not what they were said to be.
    pub(super) fn distrusted(&self, range: Range<u64>) {
        lock(&self.object.there).spans.remove(range);
    }

    fn tell(&self) {
        let partial = || Some(Arc::clone(&self.object) as Arc<dyn Partial>);
        self.object.names().for_each(|name| self.how.store.announce(&name, partial()));
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if !self.how.stays.load(Ordering::Acquire) || !self.object.is_all_there() {
            self.object.names().for_each(|name| self.how.store.announce(&name, None));
        }
    }
}

/// The object as those who read it see it.
struct GrowingObject {
    object: Arc<ObjectInFlight>,
    there: Mutex<PartsThere>,
    /// All values, once all are known.
    tree: OnceLock<PieceTree>,
}

/// The parts of an object that can be read.
#[derive(Default)]
struct PartsThere {
    /// Numbers of pieces.
    pieces: Intervals,
    /// Bytes of chunks.
    spans: Intervals,
    /// Bytes of chunks that others were not told of.
    untold: u64,
}

impl GrowingObject {
    /// Names under which it is announced: as it was asked for, and that of a live one's content, once known.
    fn names(&self) -> impl Iterator<Item = Oid> {
        let oid = self.object.oid;
        [Some(oid), self.object.content().filter(|content| *content != oid)].into_iter().flatten()
    }

    /// Its cutting; of a live object whose end is not known yet that of the longest there is, whose pieces are whole.
    fn layout(&self) -> Layout {
        let longest = || Layout::live(MAX_LIVE_SIZE).unwrap_or(Layout::EMPTY);
        self.object.layout().unwrap_or_else(longest)
    }

    fn is_all_there(&self) -> bool {
        lock(&self.there).pieces.covers(&(0..self.layout().count()))
    }

    fn tree(&self) -> Option<&PieceTree> {
        if self.tree.get().is_none() {
            let made = PieceTree::new(self.object.layout()?, self.object.all_values()?)?;
            // Another reader may have been as quick.
            let _ = self.tree.set(made);
        }
        self.tree.get()
    }

    /// Puts bytes of the target behind what `buf` holds.
    fn read(&self, range: &Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let front = buf.len();
        buf.resize(front + (range.end - range.start) as usize, 0);
        // The file may just have got its name, and is to be asked for under that.
        self.object.target.read(range.start, &mut buf[front..]).map_err(|error| {
            tracing::debug!(%error, "what was announced can't be read");
            buf.truncate(front);
            StoreError::NotHere
        })
    }
}

impl Partial for GrowingObject {
    fn available(&self) -> (Layout, Vec<Range<u64>>) {
        (self.layout(), lock(&self.there).pieces.iter().collect())
    }

    fn spans(&self) -> Vec<Range<u64>> {
        lock(&self.there).spans.iter().filter(|span| span.end - span.start >= LEAST_SPAN).collect()
    }

    fn read_span(&self, range: &Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        if range.end - range.start > MAX_SPAN || !lock(&self.there).spans.covers(range) {
            return Err(StoreError::NotYet);
        }
        buf.clear();
        self.read(range, buf)
    }

    fn about(&self) -> About {
        self.object.about()
    }

    fn proof(&self, run: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let tree = self.tree().ok_or(StoreError::NotYet)?;
        tree.proof(run).map_err(|_| StoreError::NotHere)
    }

    fn read_piece(&self, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let is_there = lock(&self.there).pieces.covers(&(index..index.saturating_add(1)));
        let layout = self.layout();
        if !is_there || index >= layout.count() {
            return Err(StoreError::NotHere);
        }
        self.read(&layout.range(index), buf)
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::NodeId;

    use super::*;

    #[test]
    fn what_was_found_on_this_machine_is_for_nobody_else_before_it_was_checked() {
        assert!(may_be_read(&SourceId::peer(NodeId([1; 32])), 0));
        assert!(!may_be_read(&SourceId::peer(NodeId([1; 32])), 1), "a delta of something here");
        assert!(!may_be_read(&SourceId::this_machine(), 0));
        assert!(!may_be_read(&SourceId::other("directory", Some("/media/stick")), 0));
    }
}
