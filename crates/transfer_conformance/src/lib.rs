//! The examination that every transfer source passes: each rule of the contract in
//! [`source`](towpath_transfer::source) as a named check.
//!
//! ```no_run
//! use towpath_transfer_conformance::{self as conformance, Fixture, Subject};
//! # struct Mine;
//! # impl Mine { fn over(_: Vec<Vec<u8>>) -> std::sync::Arc<dyn towpath_transfer::Source> { todo!() } }
//! # async fn example() {
//! conformance::run(async |fixture: Fixture| {
//!     let context = fixture.context();
//!     Subject::new(Mine::over(fixture.objects), context)
//! })
//! .await;
//! # }
//! ```
//!
//! A check gets a fresh source over the objects of its [`Fixture`]. One that fails panics; the
//! rule's name is printed before. Needs a tokio runtime with time; each check has a minute.
//!
//! What a source can do beyond what all must, its [`Subject`] says. Rules that need what it does not say are passed over, and
//! the output names them.
//!
//! | module | rules of |
//! |---|---|
//! | `asking` | what is wanted: it comes, whole and provable, each want once |
//! | `special` | wants that say more: parts of pieces, bases, one piece twice |
//! | `describing` | descriptors: what an object is, and proofs |
//! | `ending` | cancellation, calls at once, calls given up, tags used again, what comes later |
//! | `beside` | what happens beside a call: other calls, other roots, changing hints, reports |
//! | `telling` | what a source says of itself: its window and path, what it has |
//! | `growing` | live objects |
//! | `wrapping` | wrappers: what they leave out is the wrapped one's |
//! | `sinks` | the sink |
//! | [`finders`] | finders: an examination of its own |

mod asking;
mod beside;
mod describing;
mod ending;
pub mod finders;
mod growing;
mod inmost;
mod sinks;
mod special;
mod telling;
mod wrapping;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use towpath_content::Oid;
use towpath_content::pieces::{self, Layout, PieceTree};

use towpath_transfer::source::{Context, Source};
use towpath_transfer::want::{ObjectOffset, Origin, Tag, Want, WantId};

/// Bytes of a piece of the objects that the checks ask for.
pub const PIECE: usize = 1 << pieces::MIN_LOG2;
/// Time that a check may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Objects that a source must be able to bring.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The objects' bytes, one or more. The first one is the root; a source that asks for a right to each object
    /// grants the others all the same.
    pub objects: Vec<Vec<u8>>,
}

impl Fixture {
    /// A context that names the first object and nothing else.
    pub fn context(&self) -> Context {
        let root = self.objects.first().map_or_else(|| Oid::of(b""), |data| Oid::of(data));
        Context { root, node: None, secret: None, hints: watch::channel(Vec::new()).1 }
    }
}

/// An object that grows at a source's source while it is asked for.
pub trait GrowingFixture: Send + Sync {
    /// Its live name.
    fn oid(&self) -> Oid;
    /// More bytes of it are there.
    fn append(&self, bytes: &[u8]);
    /// It is complete: what was appended is its content.
    fn complete(&self);
}

/// Puts a wrapper around a source.
type Wrapping = Box<dyn Fn(Arc<dyn Source>) -> Arc<dyn Source> + Send>;

/// A source under examination, and what it can do.
pub struct Subject {
    source: Arc<dyn Source>,
    context: Context,
    growing: Option<Arc<dyn GrowingFixture>>,
    wrapping: Option<Wrapping>,
    tells: bool,
    postpones: bool,
    proves_nothing: bool,
    shares_a_stream: bool,
    _kept: Option<Box<dyn Any + Send>>,
}

impl Subject {
    /// A source that brings a fixture's objects by the rights and hints of `context`.
    pub fn new(source: Arc<dyn Source>, context: Context) -> Self {
        Self {
            source,
            context,
            growing: None,
            wrapping: None,
            tells: false,
            postpones: false,
            proves_nothing: false,
            shares_a_stream: false,
            _kept: None,
        }
    }

    /// It tells what can be had ([`Source::have`]).
    #[must_use]
    pub fn telling(self) -> Self {
        Self { tells: true, ..self }
    }

    /// It brings live objects; this one is empty at first.
    #[must_use]
    pub fn growing(self, object: Arc<dyn GrowingFixture>) -> Self {
        Self { growing: Some(object), ..self }
    }

    /// Some of what is wanted it postpones ([`Outcome::RetryLater`](towpath_transfer::Outcome::RetryLater)), though nothing is wrong.
    #[must_use]
    pub fn postponing(self) -> Self {
        Self { postpones: true, ..self }
    }

    /// It proves nothing: what it delivers is checked by values that others know.
    #[must_use]
    pub fn proving_nothing(self) -> Self {
        Self { proves_nothing: true, ..self }
    }

    /// All its calls share one stream or queue of bytes: one whose sink blocks stops the others as well.
    #[must_use]
    pub fn sharing_a_stream(self) -> Self {
        Self { shares_a_stream: true, ..self }
    }

    /// It wraps one source; `wrap` puts it around another.
    #[must_use]
    pub fn wrapping<F>(self, wrap: F) -> Self
    where
        F: Fn(Arc<dyn Source>) -> Arc<dyn Source> + Send + 'static,
    {
        Self { wrapping: Some(Box::new(wrap)), ..self }
    }

    /// The same within a wrapper.
    #[must_use]
    pub fn around<F>(self, wrap: F) -> Self
    where
        F: Fn(Arc<dyn Source>) -> Arc<dyn Source>,
    {
        Self { source: wrap(Arc::clone(&self.source)), ..self }
    }

    const fn can(&self, ability: Ability) -> bool {
        match ability {
            Ability::Prove => !self.proves_nothing,
            Ability::ProveNothing => self.proves_nothing,
            Ability::Tell => self.tells,
            Ability::Grow => self.growing.is_some(),
            Ability::TellGrowth => self.tells && self.growing.is_some(),
            Ability::Postpone => self.postpones,
            Ability::Wrap => self.wrapping.is_some(),
            Ability::PartCalls => !self.shares_a_stream,
        }
    }

    /// Keeps what the source needs (a service, a directory) until the check is over.
    #[must_use]
    pub fn keeping(self, kept: impl Any + Send) -> Self {
        Self { _kept: Some(Box::new(kept)), ..self }
    }
}

/// What a source may be able to do, and need not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ability {
    Prove,
    ProveNothing,
    Tell,
    Grow,
    TellGrowth,
    Postpone,
    Wrap,
    PartCalls,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prove => "proves what it delivers",
            Self::ProveNothing => "says that it proves nothing",
            Self::Tell => "tells what it has",
            Self::Grow => "has live objects",
            Self::TellGrowth => "tells what it has of live objects",
            Self::Postpone => "postpones what is wanted",
            Self::Wrap => "wraps another source",
            Self::PartCalls => "has a way for each call",
        })
    }
}

type SeamCheck = fn(Bench) -> Pin<Box<dyn Future<Output = ()>>>;

/// One rule: its words, the objects and the ability it needs, the check.
struct SeamRule {
    words: &'static str,
    sizes: &'static [usize],
    needs: Option<Ability>,
    check: SeamCheck,
}

/// A subject with the objects it is over.
struct Bench {
    subject: Subject,
    objects: Vec<Vec<u8>>,
}

/// Runs all checks, each on a source that `make` returns.
pub async fn run(make: impl AsyncFn(Fixture) -> Subject) {
    for rule in rules() {
        check(&rule, &make).await;
    }
}

fn rules() -> Vec<SeamRule> {
    let parts = [
        asking::rules(),
        special::rules(),
        describing::rules(),
        ending::rules(),
        beside::rules(),
        telling::rules(),
        growing::rules(),
        wrapping::rules(),
        sinks::rules(),
    ];
    parts.into_iter().flatten().collect()
}

async fn check(rule: &SeamRule, make: &impl AsyncFn(Fixture) -> Subject) {
    let _guard = Broken(rule.words);
    let objects: Vec<_> = rule.sizes.iter().zip(1..).map(|(&len, seed)| pattern(len, seed)).collect();
    let subject = make(Fixture { objects: objects.clone() }).await;
    if let Some(ability) = rule.needs.filter(|ability| !subject.can(*ability)) {
        eprintln!("transfer conformance: passed over, as no source that {ability}: {}", rule.words);
        return;
    }
    let check = (rule.check)(Bench { subject, objects });
    assert!(tokio::time::timeout(LIMIT, check).await.is_ok(), "not done after {LIMIT:?}");
}

/// Names the rule that was broken.
struct Broken(&'static str);

impl Drop for Broken {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("transfer conformance: this rule does not hold: {}", self.0);
        }
    }
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 249 + i) as u8 ^ seed).collect()
}

/// The layout of an object of these bytes.
fn layout_of(data: &[u8]) -> Layout {
    Layout::of(data.len() as u64).expect("checks use small objects")
}

/// The proof tree over these bytes.
fn tree_of(data: &[u8]) -> PieceTree {
    let layout = layout_of(data);
    let values = (0..layout.count()).map(|index| layout.value(index, piece(data, &layout, index)));
    PieceTree::new(layout, values.collect()).expect("as many values as pieces")
}

fn piece<'a>(data: &'a [u8], layout: &Layout, index: u64) -> &'a [u8] {
    let range = layout.range(index);
    &data[range.start as usize..range.end as usize]
}

fn want(tag: Tag, data: &[u8], index: u64) -> Want {
    let layout = layout_of(data);
    let positions = vec![ObjectOffset { object: 1, offset: layout.range(index).start }];
    let id = WantId::Piece { oid: Oid::of(data), layout, index };
    Want { positions, ..Want::new(tag, id) }
}

/// A want for some bytes of an object as a chunk.
fn chunk(tag: Tag, data: &[u8], span: Range<usize>) -> Want {
    let (oid, offset) = (Oid::of(data), span.start as u64);
    let bytes = &data[span];
    let id = WantId::Chunk { hash: *Oid::of(bytes).digest(), len: bytes.len() as u32 };
    let positions = vec![ObjectOffset { object: 1, offset }];
    Want { positions, origin: Some(Origin { oid, offset }), ..Want::new(tag, id) }
}

/// A want for each piece of each object, tagged from `first` on.
fn wants(objects: &[Vec<u8>], first: Tag) -> Vec<Want> {
    let pieces = objects.iter().flat_map(|data| (0..layout_of(data).count()).map(move |index| (data, index)));
    pieces.zip(first..).map(|((data, index), tag)| want(tag, data, index)).collect()
}
