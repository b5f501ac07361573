//! Sources in order: what one does not have is asked of the next.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Source, SourceId, Tag, Want};

use crate::asking_order::in_turn;
use crate::fallback_sink::FallbackSink;
use crate::having;

/// Wraps sources, cheapest first.
pub struct Cascade {
    sources: Vec<Arc<dyn Source>>,
}

impl Cascade {
    /// Asks `sources` in their order.
    pub fn new(sources: Vec<Arc<dyn Source>>) -> Self {
        Self { sources }
    }
}

impl Source for Cascade {
    fn name(&self) -> &str {
        "cascade"
    }

    /// One is asked after the other; the path is that of the last one, since the others are near, and so is the
    /// word that it makes deltas.
    fn state(&self) -> SourceState {
        let mut all = SourceState { is_encrypted: true, ..SourceState::of_window(0) };
        for state in self.sources.iter().map(|source| source.state()) {
            all = SourceState {
                window: all.window.max(state.window),
                beside: all.beside.max(state.beside),
                path: state.path,
                trouble: all.trouble.or(state.trouble),
                is_encrypted: all.is_encrypted && state.is_encrypted,
                proves: all.proves && state.proves,
                makes_deltas: state.makes_deltas,
                price: all.price.max(state.price),
                sources: all.sources.max(state.sources),
            };
        }
        all
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            let mut result = Err(Outcome::NotHere);
            for source in in_turn(&self.sources) {
                result = source.describe(query.clone(), context, answers.clone()).await;
                if !result.as_ref().is_err_and(is_elsewhere) {
                    break;
                }
            }
            result
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut wants = wants;
            if self.sources.is_empty() {
                return wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
            }
            for (index, source) in self.sources.iter().enumerate() {
                if index + 1 == self.sources.len() {
                    return source.get(wants, context, sink).await;
                }
                let rest = Arc::new(FallbackSink::new(&wants, Arc::clone(&sink), is_elsewhere));
                source.get(wants, context, Arc::clone(&rest) as Arc<dyn Sink>).await;
                wants = rest.left();
                if wants.is_empty() {
                    return;
                }
            }
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        self.sources.iter().for_each(|source| source.cancel(tags));
    }

    fn report_corrupt(&self, source: &SourceId) {
        self.sources.iter().for_each(|each| each.report_corrupt(source));
    }

    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            join_all(self.sources.iter().map(|source| source.finish(how))).await;
        })
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(having::have(&self.sources, oid, context, ranges))
    }
}

/// True if the next source may have what ended so.
const fn is_elsewhere(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotHere | Outcome::SourceChanged | Outcome::Gone)
}
