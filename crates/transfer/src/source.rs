//! The seam of sources: one place chunks come from (`papers/dot.txt` §4.2, a transfer plugin as used).
//!
//! A source is a peer, a store, a directory; or it wraps others: tries them in order, spreads wants over them. Strategy is
//! not its business: what the session asks about that is the [`Root`](crate::Root)'s.
//!
//! # Contract
//!
//! * **One end for each want.** After [`Source::get`] returned, each want was
//!   either delivered to the sink or given one [`Outcome`]. Duplicates of a delivery are legal;
//!   order is free.
//! * **Nothing is trusted.** The session checks every delivery; a source hands on what it got.
//!   It never delivers under a tag that was not requested.
//! * **What it can't prove it says.** Pieces come with their proofs, unless its state says that it proves nothing: then the session
//!   learns from others how to check them. Wrong bytes are blamed on it either way.
//! * **The sink is bounded.** `deliver` waits while the receiving side is behind; a source that
//!   respects it needs no buffers of its own. [`Sink::backpressure`] tells how far behind.
//! * **Cancellation is acknowledged.** After [`Source::cancel`] each named want
//!   still ends once: delivered if the bytes were already on their way, else
//!   [`Outcome::Cancelled`]. Others go on, also those of the same call. A source that cannot cancel leaves the method out.
//! * **Calls run at once.** Any number of calls may be under way; dropping a call's future gives
//!   it up, with no further deliveries from it.
//! * **Errors are outcomes.** A source that loses its peer reconnects or answers
//!   [`Outcome::RetryLater`]; it never panics on what a peer sends.
//! * **Pressure from below.** [`SourceState::window`] is how many bytes of wants the source
//!   likes to have under way: enough to keep its connections busy, no queue beyond that (dsync §4
//!   and §6.1: the sender's suggested outstanding bytes). What it can take now is the window less
//!   what was asked and has not ended.
//! * **Its state is asked for often**, several times for each delivery: [`Source::state`] must be quick.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use towpath_content::live::Statement;
use towpath_content::pieces::Layout;
use towpath_content::ticket::BoundSecret;
use towpath_content::{Hint, NodeId, Oid};
use towpath_store::About;

pub use crate::boxed::BoxFuture;
use crate::metadata::Metadata;
use crate::source_id::SourceId;
use crate::want::{Coverage, Delivery, Outcome, Proof, Tag, Want};

/// Sources that a transfer may draw from, and by what right. Sources come and go in mid-transfer, so
/// the hints are a stream of lists.
#[derive(Debug, Clone)]
pub struct Context {
    /// Name in the ticket: the object itself, or the tree that mentions it.
    pub root: Oid,
    /// The ticket's issuer, whose signature live objects need.
    pub node: Option<NodeId>,
    /// The ticket's secret, bound to the ticket's terms.
    pub secret: Option<BoundSecret>,
    /// The current hints.
    pub hints: watch::Receiver<Vec<Hint>>,
}

/// An object's first piece, as whoever asks about the object sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstPiece {
    /// Nothing is said of it.
    Unsaid,
    /// It will be wanted as soon as the answer has come: who can bring it sooner by that may begin.
    Wanted,
    /// It is compared with what is here first: who began to bring it may stop.
    MayBeHere,
}

/// A question about an object.
#[derive(Debug, Clone)]
pub struct Query {
    /// Object that is asked about.
    pub oid: Oid,
    /// The right to it, unless it is the ticket's own.
    pub coverage: Option<Coverage>,
    /// Pieces whose values are wanted: of a content object as proofs in runs of any size, of a
    /// live one as signed statements from the range's start on.
    pub proofs: Option<Range<u64>>,
    /// Go on answering while a live object grows, until it is bound.
    pub follow: bool,
    /// The recipe of a content object is wanted. Whoever has none answers the rest.
    pub recipe: bool,
    /// What is said of the first piece, which may come before the answer.
    pub first: FirstPiece,
    /// Samples of all pieces of a content object are wanted ([`crate::following`]). Whoever has none answers
    /// the rest.
    pub samples: bool,
}

impl Query {
    /// Asks what it is, and nothing else.
    pub const fn about(oid: Oid) -> Self {
        Self {
            oid,
            coverage: None,
            proofs: None,
            follow: false,
            recipe: false,
            first: FirstPiece::Unsaid,
            samples: false,
        }
    }
}

/// One answer to a [`Query`]; more may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Description {
    /// The object is known: always the first answer.
    Object {
        /// Description of it besides bytes.
        about: About,
        /// Its layout; `None` while it is live.
        layout: Option<Layout>,
        /// Metadata from the source's processors.
        metadata: Metadata,
    },
    /// Values of pieces that were requested.
    Proof(Proof),
    /// A statement about a live object, with its signature.
    Live {
        /// Statement about the live object.
        statement: Statement,
        /// Ed25519 signature of the ticket's node over [`Statement::message`].
        signature: Vec<u8>,
    },
    /// A part of the recipe that was requested.
    Recipe(RecipePart),
    /// Samples that were requested, in runs of any size: a claim that nobody can check.
    Samples {
        /// The first of the pieces that they are of.
        first: u64,
        /// Theirs, one piece behind the other.
        bytes: Bytes,
    },
}

/// A part of an object's recipe (`docs/formats/recipe.md`), a claim that nobody has checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipePart {
    /// Source to blame if the recipe is wrong.
    pub maker: SourceId,
    /// The root's bytes, in the first part and in no other.
    pub root: Option<Bytes>,
    /// Nodes in the order in which `content::recipe::walk` looks them up, those that occur again
    /// included.
    pub nodes: Vec<Bytes>,
}

/// Amount that the receiving side is behind, in bytes (dsync §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Delivered and not written yet.
    pub writer_backlog: u64,
    /// Waiting in the kernel's receive queues, where a source knows it.
    pub receive_queue: u64,
}

/// Price of a byte that crosses a network.
pub const NETWORK_PRICE: u32 = 1;
/// [`SourceState::price`] of what comes by a third machine, which carries each byte in and out.
pub const RELAYED_PRICE: u32 = 2;
/// The same of what could not be reached for a moment: it is relied on where there is nothing else.
pub const UNREACHED_PRICE: u32 = 1000;

/// Round trip below which a sender is near.
const NEAR: Duration = Duration::from_millis(1);

/// True if a sender of this round trip, which is zero if nobody knows it, is so near that the network is most likely fast.
pub fn is_near(round_trip: Duration) -> bool {
    round_trip > Duration::ZERO && round_trip < NEAR
}

/// State of the path that a source's bytes come by, as far as it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathState {
    /// The round trip; zero if it is not known, or there is none.
    pub round_trip: Duration,
    /// The shortest round trip seen: how far the other side is, also when the two are busy. Zero as above.
    pub shortest: Duration,
    /// Bytes that arrived in the kernel and were not read yet.
    pub receive_queue: u64,
    /// Bytes that came so far, also of chunks that are not whole yet.
    pub arrived: u64,
    /// Bytes that were requested are due, and this side is ready to read them.
    pub is_due: bool,
}

/// A source as it is at the moment, as far as it can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState {
    /// Bytes of wants it likes to have under way in all; 0 if it likes no more requests now, which
    /// is looked at again when something happens, and twice a second.
    pub window: u64,
    /// Of these, what comes by a way that no more is asked of: it says nothing of how much the way that is used takes.
    pub beside: u64,
    /// The way that its bytes come.
    pub path: PathState,
    /// Trouble that keeps it from delivering, in words for people.
    pub trouble: Option<String>,
    /// True if all that it brings and asks crosses networks encrypted, or crosses none. What something else protects, such
    /// as ssh, it can't tell.
    pub is_encrypted: bool,
    /// True if each piece that it delivers comes with its proof, and proofs that are asked for come. What proves nothing, a
    /// plain copy of the bytes say, is checked by values that others tell: the session asks for these first.
    pub proves: bool,
    /// True if what it is asked for with a base comes as a delta of that, or not at all where the base is a guess
    /// ([`SignedBase`](crate::SignedBase)).
    pub makes_deltas: bool,
    /// Price of a byte: what costs more is asked only for what nothing cheaper has. [`NETWORK_PRICE`], or 0 of what is on this machine
    /// and wanted before anything is asked of a network.
    pub price: u32,
    /// Sources that it draws from at once. A call of [`Source::get`] lasts until the slowest of them has brought its part:
    /// with more of them more calls may be under way.
    pub sources: usize,
}

impl SourceState {
    /// One source of this window that proves what it brings, and of which nothing else is known.
    pub fn of_window(window: u64) -> Self {
        let path = PathState::default();
        let (trouble, is_encrypted, proves, makes_deltas) = (None, false, true, false);
        let (price, sources, beside) = (NETWORK_PRICE, 1, 0);
        Self { window, beside, path, trouble, is_encrypted, proves, makes_deltas, price, sources }
    }
}

/// Destination of what a source obtained.
pub trait Sink: Send + Sync {
    /// Hands over bytes; waits while the receiving side is behind.
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()>;
    /// Hands over the first bytes of a piece that will not come whole, before its outcome: a recipe may make use of
    /// them. They are dropped where nothing is known of that.
    fn partial_piece(&self, _delivery: Delivery) {}
    /// Ends a want that was not delivered.
    fn outcome(&self, tag: Tag, outcome: Outcome);
    /// Amount that the receiving side is behind.
    fn backpressure(&self) -> Backlog;
}

/// One place chunks come from. The contract is at the head of this module.
pub trait Source: Send + Sync {
    /// Its name in configuration, messages and `--json`.
    fn name(&self) -> &str;

    /// The one source that this one wraps, if it does: methods that it leaves out are that one's.
    fn inner(&self) -> Option<&dyn Source> {
        None
    }

    /// Its state now. A wrapper changes what it knows better of the state of the one it wraps.
    fn state(&self) -> SourceState;

    /// Answers a question about an object through `answers`; returns when nothing more will
    /// come, or how the question ended. Answers stop when the receiver is dropped.
    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>>;

    /// Obtains wants; returns when each of them has ended.
    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()>;

    /// Gives up wants. See "Cancellation is acknowledged".
    fn cancel(&self, tags: &[Tag]) {
        if let Some(inner) = self.inner() {
            inner.cancel(tags);
        }
    }

    /// Tells which bytes of `oid` can be had, now and, beside those told before, whenever there are more, until the receiver
    /// is dropped. A source that cannot know says nothing and returns.
    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        match self.inner() {
            Some(inner) => inner.have(oid, context, ranges),
            None => Box::pin(async {}),
        }
    }

    /// The session found wrong what `source` delivered. A source that has others turns to
    /// them.
    fn report_corrupt(&self, source: &SourceId) {
        if let Some(inner) = self.inner() {
            inner.report_corrupt(source);
        }
    }

    /// Nothing more is needed of it: whoever gave gets `how` that ended, if that is possible. Others who
    /// use the same way must not be disturbed.
    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        match self.inner() {
            Some(inner) => inner.finish(how),
            None => Box::pin(std::future::ready(())),
        }
    }
}
