//! Plugins in order: what one does not have is asked of the next.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_transfer::plugin::{PathState, Query, Sink};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, SourceId, Tag, TransferPlugin, Want};

use crate::fallback_sink::FallbackSink;
use crate::having;

/// Wraps plugins, cheapest first.
pub struct Cascade {
    plugins: Vec<Arc<dyn TransferPlugin>>,
}

impl Cascade {
    /// Asks `plugins` in their order.
    pub fn new(plugins: Vec<Arc<dyn TransferPlugin>>) -> Self {
        Self { plugins }
    }
}

impl TransferPlugin for Cascade {
    fn name(&self) -> &str {
        "cascade"
    }

    fn is_encrypted(&self) -> bool {
        self.plugins.iter().all(|plugin| plugin.is_encrypted())
    }

    fn window(&self) -> u64 {
        self.plugins.iter().map(|plugin| plugin.window()).max().unwrap_or(0)
    }

    /// One is asked after the other.
    fn sources(&self) -> usize {
        self.plugins.iter().map(|plugin| plugin.sources()).max().unwrap_or(1)
    }

    /// State of the last one's path: the others are asked first since they are near.
    fn path(&self) -> PathState {
        self.plugins.last().map(|plugin| plugin.path()).unwrap_or_default()
    }

    fn last_error(&self) -> Option<String> {
        self.plugins.iter().find_map(|plugin| plugin.last_error())
    }

    fn get_descriptors<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            let mut result = Err(Outcome::NotHere);
            for plugin in &self.plugins {
                result = plugin.get_descriptors(query.clone(), context, answers.clone()).await;
                if !result.as_ref().is_err_and(is_elsewhere) {
                    break;
                }
            }
            result
        })
    }

    fn get_chunks<'a>(
        &'a self,
        wants: Vec<Want>,
        context: &'a Context,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut wants = wants;
            if self.plugins.is_empty() {
                return wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
            }
            for (index, plugin) in self.plugins.iter().enumerate() {
                if index + 1 == self.plugins.len() {
                    return plugin.get_chunks(wants, context, sink).await;
                }
                let rest = Arc::new(FallbackSink::new(&wants, Arc::clone(&sink), is_elsewhere));
                plugin.get_chunks(wants, context, Arc::clone(&rest) as Arc<dyn Sink>).await;
                wants = rest.left();
                if wants.is_empty() {
                    return;
                }
            }
        })
    }

    fn cancel_chunks(&self, tags: &[Tag]) {
        self.plugins.iter().for_each(|plugin| plugin.cancel_chunks(tags));
    }

    fn report_corrupt(&self, source: &SourceId) {
        self.plugins.iter().for_each(|plugin| plugin.report_corrupt(source));
    }

    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            join_all(self.plugins.iter().map(|plugin| plugin.finish(how))).await;
        })
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(having::have(&self.plugins, oid, context, ranges))
    }
}

/// True if the next plugin may have what ended so.
const fn is_elsewhere(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotHere | Outcome::SourceChanged | Outcome::Gone)
}
