//! What a `.tow` tells of its file: description, values and recipe. A source that has none of the bytes.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Source, SourceId, Want};

use crate::published::Published;
use crate::similar::SimilarSource;

/// Kind of source.
const TOLD: &str = "published file";

/// See the head of this module.
pub struct ToldValues {
    published: Arc<Published>,
    /// What an older version has: where one is known the recipe is of no more use, and costs bytes.
    similar: Arc<SimilarSource>,
    name: SourceId,
}

impl ToldValues {
    /// What this one tells. No older version is known yet.
    pub fn new(published: Arc<Published>) -> Self {
        let similar = SimilarSource::new(Arc::clone(&published));
        Self { published, similar, name: SourceId::other(TOLD, None) }
    }

    /// What an older version has.
    pub fn similar(&self) -> &Arc<SimilarSource> {
        &self.similar
    }
}

impl Source for ToldValues {
    fn name(&self) -> &str {
        TOLD
    }

    fn state(&self) -> SourceState {
        SourceState::of_window(0)
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        _context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            let query = Query { recipe: query.recipe && !self.similar.is_known(), ..query };
            match query.oid == *self.published.oid() {
                true => self.published.describe(&query, &self.name, answers).await,
                false => Err(Outcome::NotHere),
            }
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
        })
    }

    /// Nothing, which has to be said: whoever says nothing has everything.
    fn have<'a>(
        &'a self,
        _oid: Oid,
        _context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move { drop(ranges.send(Vec::new()).await) })
    }
}
