//! Targets of a session's checked bytes: a file beside its final name, an object in the store.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use towpath_content::Oid;
use towpath_content::live::Statement;
use towpath_content::pieces::Value;
use towpath_store::{About, Store};

use crate::following::BaseReader;

/// Told what a live object became: the statement, and its issuer's signature.
pub type BoundSink = Arc<dyn Fn(&Statement, &[u8]) + Send + Sync>;

/// How an object on its way is announced.
#[derive(Clone)]
pub struct Announcing {
    /// Where.
    pub store: Arc<dyn Store>,
    /// While this is true, what is there whole stays announced until somebody else ends that: it has no name yet by which it
    /// could be read.
    pub stays: Arc<AtomicBool>,
    /// Told once a live object is announced under the name of its content, too. Without this no live object is announced: whoever
    /// serves it has to hand on what its issuer signed.
    pub bound: Option<BoundSink>,
}

impl Announcing {
    /// In `store`, until it is whole.
    pub fn until_whole(store: Arc<dyn Store>) -> Self {
        Self { store, stays: Arc::default(), bound: None }
    }
}

/// Takes one object's bytes. Methods block and are called from worker threads, `write` from
/// several at once for different runs of bytes; `begin` comes first and `complete` last.
pub trait Target: Send + Sync {
    /// The object is known. `size` is `None` while it is live, and tells no more than a stranger's
    /// word: take no memory by it.
    fn begin(&self, size: Option<u64>, about: &About) -> io::Result<()>;

    /// Bytes that an earlier, interrupted transfer may have left here; ascending and apart. They
    /// are checked before they count.
    fn existing(&self) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// The only bytes that are wanted, if that is not all of the object. The pieces in which they lie are
    /// fetched, each checked against the OID, and the request is over when they are written: there is no
    /// prefix, and [`Self::complete`] is not called, but for an object of one piece. Of a live object
    /// all is fetched.
    fn part(&self) -> Option<Range<u64>> {
        None
    }

    /// True if its bytes are used before it is complete. Then they come as pieces: chunks of a recipe are
    /// a claim until the pieces that they fill are checked.
    fn is_read_early(&self) -> bool {
        false
    }

    /// How its pieces are announced as they come, so that others may read them before it is complete; `None` if nobody may.
    fn announces(&self) -> Option<Announcing> {
        None
    }

    /// Reads back bytes that were written, or lie in [`Self::existing`] if that is in the target itself.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Reads bytes that lie in [`Self::existing`].
    fn read_existing(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(offset, buf)
    }

    /// Older version that it replaces, if that can be read anywhere, also while the target is written to.
    fn base(&self) -> Option<&dyn BaseReader> {
        None
    }

    /// True if [`Self::base`] lies on a disk that reading it would have to wait for.
    fn base_is_cold(&self) -> bool {
        false
    }

    /// Bytes that [`Self::read_existing`] gave are right. A target that has them from somewhere else takes
    /// them now.
    fn keep(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Takes checked bytes.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Takes a run of zeros, checked; may leave a hole.
    fn write_zeros(&self, range: Range<u64>) -> io::Result<()>;

    /// Takes all bytes of an object of one piece, checked, in place of [`Self::begin`], [`Self::write`] and
    /// [`Self::complete`], for a target that can do so in fewer steps.
    fn take(&self, oid: &Oid, bytes: &[u8], about: &About) -> io::Result<()> {
        let size = bytes.len() as u64;
        self.begin(Some(size), about)?;
        self.write(0, bytes)?;
        self.complete(oid, size, vec![*oid.digest()])
    }

    /// All bytes from the front up to `end` are here. Called each time that grows, in order.
    fn prefix(&self, _end: u64) {}

    /// All bytes are here and match `oid`; `values` are those of its pieces, in the layout for
    /// objects of that size.
    fn complete(&self, oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()>;
}
