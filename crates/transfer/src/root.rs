//! The root: what the session talks to. A source, and what it advises: whether an object comes in pieces, along an older
//! version, as a delta of that, or by its recipe.
//!
//! [`Single`] makes a root of any source. `adaptive` is the other root: it searches this machine, and so has something to
//! advise.

use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::Oid;

use crate::boxed::BoxFuture;
use crate::source::{Context, Description, Query, Sink, Source, SourceState};
use crate::want::{Group, Outcome, Want};

/// Facts of an object that is under way.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFacts<'a> {
    /// The object's content.
    pub oid: Oid,
    /// The name by which some of its pieces may have been requested: a live object's, before its content
    /// was known.
    pub asked_as: Oid,
    /// Its bytes.
    pub size: u64,
    /// Bytes of it that are not here and not requested of anybody.
    pub missing: u64,
    /// Bytes a second at which what lies in its place was read and hashed; 0 if nothing was.
    pub read_rate: f64,
    /// Bytes that lay in its place and were right.
    pub kept: u64,
    /// The file that it is.
    pub group: &'a Group,
    /// The ways besides pieces that are open to it now.
    pub open: OpenWays,
}

/// Ways besides pieces that are open to an object. The session follows advice to no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenWays {
    /// An older version lies in its place and was not followed yet.
    pub samples: bool,
    /// Its recipe was not asked for yet.
    pub recipe: bool,
    /// It can be wanted as one run, which was not tried yet.
    pub whole: bool,
}

impl OpenWays {
    /// Samples alone.
    pub const SAMPLES: Self = Self { samples: true, recipe: false, whole: false };
    /// The recipe alone.
    pub const RECIPE: Self = Self { samples: false, recipe: true, whole: false };
    /// As one run alone.
    pub const WHOLE: Self = Self { samples: false, recipe: false, whole: true };
}

/// The way in which the rest of an object comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestWay {
    /// Piece by piece.
    #[default]
    Pieces,
    /// From an older version that lies in its place, by samples of the object: the session asks for these, once.
    Samples,
    /// Chunk by chunk: the session asks for the recipe, once, and if it gets one wants chunks where it wanted pieces.
    Recipe,
    /// As one run, which is a delta of an older version: the session wants a chunk that is all of it where it wanted pieces, once.
    Whole,
}

/// What a root advises for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Advice {
    /// The way for its rest.
    pub way: RestWay,
    /// Chunks that are wanted come all at once and in one call, whatever the window says,
    /// rather than in batches like the rest: for a root that chooses among them itself.
    pub chunks_at_once: bool,
}

/// What the session talks to.
pub trait Root: Source {
    /// Advises how the rest of an object comes. Asked time and again while the object's pieces are under way, so the answer
    /// must be quick; it may differ from one time to the next. Advice to take a way that is open is followed.
    fn advise(&self, facts: &ObjectFacts<'_>) -> Advice;
}

/// One source as the root.
pub struct Single {
    source: Arc<dyn Source>,
    adviser: Option<Arc<dyn Root>>,
}

impl Single {
    /// The root that draws from `source`: all comes in pieces.
    pub fn root(source: Arc<dyn Source>) -> Arc<dyn Root> {
        Arc::new(Self { source, adviser: None })
    }

    /// The same for a source that wraps a root, whose advice holds.
    pub fn advised(source: Arc<dyn Source>, adviser: Arc<dyn Root>) -> Arc<dyn Root> {
        Arc::new(Self { source, adviser: Some(adviser) })
    }
}

impl Root for Single {
    fn advise(&self, facts: &ObjectFacts<'_>) -> Advice {
        self.adviser.as_ref().map(|adviser| adviser.advise(facts)).unwrap_or_default()
    }
}

impl Source for Single {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.source)
    }

    fn state(&self) -> SourceState {
        self.source.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        self.source.describe(query, context, answers)
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.source.get(wants, context, sink)
    }
}
