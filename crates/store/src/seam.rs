//! The store seam: the trait every way of keeping objects implements, and its contract.
//!
//! **Objects are immutable.** An object is *complete* (named by its content OID), *live* (still
//! being put, named by a random OID, its pieces readable as soon as they are whole) or *partial*
//! (named by its content OID, some pieces missing, backed by an announced [`Partial`]).
//! A complete object stays while a [`Lease`](crate::Lease) names it or its content; without one it is cache, and
//! may go.
//!
//! **What may run at once.** Every method may be called from any number of threads; methods block
//! on the disk, so asynchronous callers use blocking threads. Puts of different objects do not
//! disturb each other; `put_data` of one object is called by one thread at a time.
//!
//! **What may be retried.** Everything: a put of bytes that are already here is not an error.
//!
//! **After a crash.** What `put_commit`, `put_chunk` or `lease` returned `Ok` for is still there
//! (unless the file that an object refers to was changed since, or nobody leases the object and it
//! was evicted); a put that was not committed is gone; no call ever returns other bytes than those
//! that were put.
//!
//! **What errors mean** is told by [`StoreError`], one variant per different next step.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use towpath_content::Oid;
use towpath_content::pieces::{Layout, Value};
use towpath_content::recipe::{NodeHash, RecipeRoot};
use towpath_content::tree::Time;

use crate::error::StoreError;
use crate::spans::{self, OUTSIDE};

/// Way in which an object is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ObjectKind {
    /// Plain bytes.
    #[default]
    Blob,
    /// A tree descriptor, whose files are objects of their own.
    Tree,
}

/// Description that a put gives of its object besides the bytes; travels with a description, never with the
/// OID. A receiver treats it as a stranger's word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Way in which it is to be read.
    pub kind: ObjectKind,
    /// A name for people: one path component, raw bytes; empty if there is none.
    pub name: Vec<u8>,
    /// Permission bits, if it was put from a file.
    pub mode: Option<u32>,
    /// Time of last modification, if it was put from a file.
    pub modified: Option<Time>,
}

/// Amount of an object that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All of it.
    Complete,
    /// Some pieces of an object of known size.
    Partial,
    /// Still being put: what is there so far, in which production.
    Live {
        /// Differs from one production of the same live OID to the next.
        generation: u64,
    },
    /// A live object that is complete now and is to be read under its content OID. Under the live
    /// name it can be read to the end too, with proofs against the content OID.
    Bound(Oid),
    /// A live object whose producer gave up.
    Abandoned,
}

/// Availability of an object at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// Amount that there is.
    pub state: State,
    /// The layout; for a live object the size so far, in whole pieces, until it is bound. Before
    /// the first piece that size is 0, so go by `pieces`, not by the layout's count.
    pub layout: Layout,
    /// Indexes of the pieces that can be read now, ascending, apart, not empty.
    pub pieces: Vec<Range<u64>>,
    /// Of a partial object: bytes that can be read besides whole pieces, ascending, apart, not empty.
    pub spans: Vec<Range<u64>>,
    /// Description that the put gave.
    pub about: About,
}

/// Result of [`Store::get_descriptors`] for a run of pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Descriptors {
    /// A proof that leads to the content OID (`pieces::verify`).
    Proof(Vec<u8>),
    /// Bare values, of a live object: they count for others only once its node signed them.
    Values(Vec<Value>),
}

/// An object that is being received: readable while it grows.
pub trait Partial: Send + Sync {
    /// Pieces that can be read now, and the object's layout.
    fn available(&self) -> (Layout, Vec<Range<u64>>);
    /// Bytes that can be read besides whole pieces ([`Availability::spans`]).
    fn spans(&self) -> Vec<Range<u64>> {
        Vec::new()
    }
    /// Replaces the contents of `buf` with bytes that one of the spans covers; `NotYet` if none does.
    fn read_span(&self, range: &Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let _ = (range, buf);
        Err(StoreError::NotYet)
    }
    /// What its source says of it.
    fn about(&self) -> About {
        About::default()
    }
    /// The proof of a run; `NotYet` unless all that it needs is known.
    fn proof(&self, run: Range<u64>) -> Result<Vec<u8>, StoreError>;
    /// Puts piece `index` behind what `buf` holds.
    fn read_piece(&self, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError>;
}

/// A recipe that a store has: its root, and the nodes below it by name.
///
/// Nodes handed out were checked against their names. They stay readable while this is held, also when
/// the store forgets the recipe meanwhile.
pub trait RecipeNodes: Send + Sync {
    /// Object, layout, and the name of the top node.
    fn root(&self) -> &RecipeRoot;
    /// The bytes of a node; `None` if the recipe has none of that name. An error means that the
    /// recipe cannot be read to its end; ask [`Store::recipe`] anew.
    ///
    /// Fits `recipe::walk` as its source of nodes: `walk(nodes.root(), |hash| nodes.node(hash))`.
    fn node(&self, hash: &NodeHash) -> io::Result<Option<Vec<u8>>>;
}

/// A change to come, and then the object's version.
pub type StoreChange = Pin<Box<dyn Future<Output = u64> + Send>>;

/// Called with the OID of every object that becomes complete; must not block.
pub type Listener = Box<dyn Fn(&Oid) + Send + Sync>;

/// A way of keeping objects. The contract is at the head of this module.
pub trait Store: Send + Sync {
    /// Opens a put under the random name `live`; its pieces become readable as they fill.
    /// Starting a name again begins a new generation, unless it is bound: bindings are for good.
    fn put_init(&self, live: &Oid, about: &About) -> Result<(), StoreError>;

    /// Appends bytes to an open put: all of them, or none if there is an error.
    fn put_data(&self, live: &Oid, data: &[u8]) -> Result<(), StoreError>;

    /// Says that a chunk of an open put ends where its data so far end: the application knows its
    /// data's structure. Given before any data, or twice at one place, it says nothing new. A chunk
    /// that would be longer than 16 MiB is split every 16 MiB.
    ///
    /// Boundaries are advice. They show in [`Store::recipe`] once the put is committed, in stores that
    /// make recipes, unless they are so many that the recipe would be over its limit.
    fn put_boundary(&self, live: &Oid) -> Result<(), StoreError> {
        let _ = live;
        Ok(())
    }

    /// Ends a put: the object is synced, complete under its content OID, and `live` is bound to it.
    /// Said again of a bound name it returns the content OID again.
    fn put_commit(&self, live: &Oid) -> Result<Oid, StoreError>;

    /// Gives a put up; its bytes are dropped and its state becomes [`State::Abandoned`].
    fn put_abort(&self, live: &Oid);

    /// Availability of `oid` now.
    fn have(&self, oid: &Oid) -> Result<Availability, StoreError>;

    /// A counter that [`Store::change`] compares: it grows with each change of `oid`.
    fn version(&self, oid: &Oid) -> u64;

    /// Completes with the version of `oid` once that is not `seen`. Whoever drops it waits no more, and leaves nothing behind.
    fn change(&self, oid: &Oid, seen: u64) -> StoreChange;

    /// The proof, or for a live object the values, of a run of pieces.
    fn get_descriptors(&self, oid: &Oid, run: Range<u64>) -> Result<Descriptors, StoreError>;

    /// Puts piece `index` of `oid` behind what `buf` holds; after an error nothing is behind it.
    ///
    /// Bytes of a referred file are given out only if its stamp was still the same after reading.
    /// They are not hashed here: whoever takes them in checks them.
    fn read_piece(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError>;

    /// Replaces the contents of `buf` with a range of the bytes of `oid`, at most [`MAX_SPAN`](crate::MAX_SPAN) of them,
    /// across pieces. `NotYet` if some of them are not here yet.
    ///
    /// As with [`Self::read_piece`], bytes of a referred file are given out only if its stamp was still
    /// the same after reading, and nothing is hashed here.
    fn read_span(&self, oid: &Oid, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        read_pieces(self, oid, range, buf)
    }

    /// Recipe of a complete object, to build it from chunks. It is made by reading the object, unless it was
    /// made before and kept; whoever asks meanwhile waits for the same one.
    ///
    /// `NotHere` if there is none to be had: of objects that are unknown, partial, or still being put,
    /// that have too many bytes (`Parameters::for_size`), and always from stores that make none. Of
    /// an object that was put with boundaries it has those chunks (`Parameters::Given`).
    fn recipe(&self, oid: &Oid) -> Result<Arc<dyn RecipeNodes>, StoreError> {
        let _ = oid;
        Err(StoreError::NotHere)
    }

    /// True if piece `index` is known to hold zeros only, found without reading it (a hole in a
    /// file). False means only that it has to be read. A help for senders, not a statement:
    /// whoever takes the zeros in checks them like any bytes.
    fn is_zero(&self, oid: &Oid, index: u64) -> bool {
        let _ = (oid, index);
        false
    }

    /// Makes an object that is being received readable and announced, until it is complete here.
    /// Said again, it tells those who wait that the partial has grown; with `None` it ends.
    fn announce(&self, oid: &Oid, partial: Option<Arc<dyn Partial>>);

    /// Reads a chunk by its BLAKE3 hash; it is checked against that. `NotHere` always from stores that
    /// keep none ([`Chunks`](crate::Chunks)).
    fn get_chunk(&self, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
        let _ = hash;
        Err(StoreError::NotHere)
    }

    /// Asks to be told of every object that becomes complete (DOT's `register_push`).
    fn register_push(&self, listener: Listener);
}

/// Blocks until the version of `oid` is not `seen`, or `timeout` has passed; returns it.
pub fn wait_change(store: &(impl Store + ?Sized), oid: &Oid, seen: u64, timeout: Duration) -> u64 {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (begun, waker) = (Instant::now(), Waker::from(Arc::new(Unpark(thread::current()))));
    let mut change = store.change(oid, seen);
    loop {
        if let Poll::Ready(version) = change.as_mut().poll(&mut Context::from_waker(&waker)) {
            return version;
        }
        match timeout.saturating_sub(begun.elapsed()) {
            Duration::ZERO => return seen,
            left => thread::park_timeout(left),
        }
    }
}

/// Replaces the contents of `buf` with a range of `oid`, read piece by piece.
pub(crate) fn read_pieces<S: Store + ?Sized>(
    store: &S,
    oid: &Oid,
    range: Range<u64>,
    buf: &mut Vec<u8>,
) -> Result<(), StoreError> {
    spans::check(&range)?;
    buf.clear();
    let found = store.have(oid)?;
    if range.end > found.layout.size() {
        let may_grow = matches!(found.state, State::Live { .. });
        return Err(if may_grow { StoreError::NotYet } else { OUTSIDE });
    }
    let (mut at, mut piece) = (range.start, Vec::new());
    while at < range.end {
        let index = at / found.layout.piece_len();
        piece.clear();
        store.read_piece(oid, index, &mut piece)?;
        let Range { start, end } = found.layout.range(index);
        let (from, to) = ((at - start) as usize, (range.end.min(end) - start) as usize);
        // A production that was begun anew meanwhile may have cut its pieces otherwise.
        buf.extend_from_slice(piece.get(from..to).ok_or(StoreError::NotYet)?);
        at = range.end.min(end);
    }
    Ok(())
}
