//! The examination that every transfer plugin passes: each rule of the contract in
//! [`plugin`](crate::plugin) as a named check.
//!
//! ```no_run
//! use towpath_transfer::conformance::{self, Fixture, Subject};
//! # struct Mine;
//! # impl Mine { fn over(_: Vec<Vec<u8>>) -> std::sync::Arc<dyn towpath_transfer::TransferPlugin> { todo!() } }
//! # async fn example() {
//! conformance::run(async |fixture: Fixture| {
//!     let context = fixture.context();
//!     Subject::new(Mine::over(fixture.objects), context)
//! })
//! .await;
//! # }
//! ```
//!
//! A check gets a fresh plugin over the objects of its [`Fixture`]. One that fails panics; the
//! rule's name is printed before. Needs a tokio runtime with time; each check has a minute.

mod asking;
mod describing;
mod ending;
mod sinks;

use std::any::Any;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use towpath_content::Oid;
use towpath_content::pieces::{self, Layout};

use crate::plugin::{Context, TransferPlugin};
use crate::want::{ObjectOffset, Origin, Tag, Want, WantId};

/// Bytes of a piece of the objects that the checks ask for.
pub const PIECE: usize = 1 << pieces::MIN_LOG2;
/// Time that a check may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Objects that a plugin must be able to bring.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The objects' bytes, one or more. The first one is the root; a plugin that asks for a right to each object
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

/// A plugin under examination.
pub struct Subject {
    plugin: Arc<dyn TransferPlugin>,
    context: Context,
    _kept: Option<Box<dyn Any + Send>>,
}

impl Subject {
    /// A plugin that brings a fixture's objects by the rights and hints of `context`.
    pub fn new(plugin: Arc<dyn TransferPlugin>, context: Context) -> Self {
        Self { plugin, context, _kept: None }
    }

    /// Keeps what the plugin needs (a service, a directory) until the check is over.
    #[must_use]
    pub fn keeping(self, kept: impl Any + Send) -> Self {
        Self { _kept: Some(Box::new(kept)), ..self }
    }
}

type SeamCheck = fn(Bench) -> Pin<Box<dyn Future<Output = ()>>>;

/// One rule: its words, the objects it needs, the check.
struct SeamRule {
    words: &'static str,
    sizes: &'static [usize],
    check: SeamCheck,
}

/// A subject with the objects it is over.
struct Bench {
    subject: Subject,
    objects: Vec<Vec<u8>>,
}

/// Runs all checks, each on a plugin that `make` returns.
pub async fn run(make: impl AsyncFn(Fixture) -> Subject) {
    let parts = [asking::rules(), describing::rules(), ending::rules(), sinks::rules()];
    for rule in parts.into_iter().flatten() {
        let _guard = Broken(rule.words);
        let objects: Vec<_> = rule.sizes.iter().zip(1..).map(|(&len, seed)| pattern(len, seed)).collect();
        let subject = make(Fixture { objects: objects.clone() }).await;
        let check = (rule.check)(Bench { subject, objects });
        assert!(tokio::time::timeout(LIMIT, check).await.is_ok(), "not done after {LIMIT:?}");
    }
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

fn piece<'a>(data: &'a [u8], layout: &Layout, index: u64) -> &'a [u8] {
    let range = layout.range(index);
    &data[range.start as usize..range.end as usize]
}

fn want(tag: Tag, data: &[u8], index: u64) -> Want {
    let layout = layout_of(data);
    let positions = vec![ObjectOffset { object: 1, offset: layout.range(index).start }];
    let id = WantId::Piece { oid: Oid::of(data), layout, index };
    Want { tag, id, positions, group: Arc::default(), origin: None, base: None, part: None }
}

/// A want for some bytes of an object as a chunk.
fn chunk(tag: Tag, data: &[u8], span: Range<usize>) -> Want {
    let (oid, offset) = (Oid::of(data), span.start as u64);
    let bytes = &data[span];
    let id = WantId::Chunk { hash: *Oid::of(bytes).digest(), len: bytes.len() as u32 };
    let positions = vec![ObjectOffset { object: 1, offset }];
    Want {
        tag,
        id,
        positions,
        group: Arc::default(),
        origin: Some(Origin { oid, offset }),
        base: None,
        part: None,
    }
}

/// A want for each piece of each object, tagged from `first` on.
fn wants(objects: &[Vec<u8>], first: Tag) -> Vec<Want> {
    let pieces = objects.iter().flat_map(|data| (0..layout_of(data).count()).map(move |index| (data, index)));
    pieces.zip(first..).map(|((data, index), tag)| want(tag, data, index)).collect()
}
