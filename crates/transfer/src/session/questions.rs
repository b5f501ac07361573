//! Questions about objects: put to the root until they are answered for good.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::RecipeClaim;
use super::active::Active;
use super::events::SessionEvent;
use super::requests::Wrong;
use crate::claim::RecipeReader;
use crate::root::Root;
use crate::source::{Context, Description, FirstPiece, Query};
use crate::want::{ObjectKey, Outcome};

/// Values that are asked for in one question: 2 MiB of them.
const VALUES_AT_ONCE: usize = 1 << 16;

/// Puts questions; their answers come as events.
pub(super) struct Questions {
    root: Arc<dyn Root>,
    context: Context,
    events: mpsc::UnboundedSender<SessionEvent>,
    wait_limit: Duration,
}

impl Questions {
    /// Questions to `root`, each of which waits for `wait_limit` at most.
    pub(super) const fn new(
        root: Arc<dyn Root>,
        context: Context,
        events: mpsc::UnboundedSender<SessionEvent>,
        wait_limit: Duration,
    ) -> Self {
        Self { root, context, events, wait_limit }
    }

    /// Asks about an object: what it is, or the values of these pieces.
    pub(super) fn about(&self, active: &Active, proofs: Option<Range<u64>>) {
        let (is_live, for_proofs) = (active.object.oid.is_live(), proofs.is_some());
        let oid = active.object.content().unwrap_or(active.object.oid);
        let query = Query {
            coverage: active.object.group.coverage,
            proofs: if is_live && !for_proofs { Some(0..u64::MAX) } else { proofs },
            follow: is_live && !for_proofs,
            first: if for_proofs && !active.existing.is_empty() {
                FirstPiece::MayBeHere
            } else {
                FirstPiece::Unsaid
            },
            ..Query::about(oid)
        };
        let key = active.object.key;
        let answered = move |result| SessionEvent::Answered { key, for_proofs, result };
        self.put(key, query, active.question.clone(), answered);
    }

    /// Asks for an object's samples.
    pub(super) fn samples(&self, key: ObjectKey, query: Query, until: CancellationToken) {
        self.put(key, query, until, move |_| SessionEvent::Sampled { key });
    }

    /// Asks for an object's recipe.
    pub(super) fn recipe(&self, key: ObjectKey, size: u64, query: Query, until: CancellationToken) {
        let (root, context) = (Arc::clone(&self.root), self.context.clone());
        let question =
            RecipeQuestion { key, size, query, events: self.events.clone(), wait_limit: self.wait_limit };
        tokio::spawn(async move {
            let asking = question.put(&*root, &context);
            if let Some(answer) = until.run_until_cancelled(asking).await {
                let _ = question.events.send(SessionEvent::Recipe { key, answer });
            }
        });
    }

    fn put(
        &self,
        key: ObjectKey,
        query: Query,
        until: CancellationToken,
        end: impl FnOnce(Result<(), Outcome>) -> SessionEvent + Send + 'static,
    ) {
        let (root, context, events) = (Arc::clone(&self.root), self.context.clone(), self.events.clone());
        let wait_limit = self.wait_limit;
        tokio::spawn(async move {
            let asking = async {
                for query in in_runs(query) {
                    ask_until_answered(&*root, &context, query, key, &events, wait_limit).await?;
                }
                Ok(())
            };
            if let Some(result) = until.run_until_cancelled(asking).await {
                let _ = events.send(end(result));
            }
        });
    }
}

/// A question for values as several, each for a bounded number of them.
fn in_runs(query: Query) -> Vec<Query> {
    let Some(values) = query.proofs.clone().filter(|_| !query.follow) else { return vec![query] };
    let starts = (values.start..values.end).step_by(VALUES_AT_ONCE);
    let run = |start: u64| start..values.end.min(start + VALUES_AT_ONCE as u64);
    starts.map(|start| Query { proofs: Some(run(start)), ..query.clone() }).collect()
}

/// Puts a question until it is answered for good, handing on answers. A source that cannot be
/// reached is asked again until `wait_limit` has passed without an answer; so long may one be
/// silent, too, but for a live object, which may grow slowly once it is described.
async fn ask_until_answered(
    root: &dyn Root,
    context: &Context,
    query: Query,
    key: ObjectKey,
    events: &mpsc::UnboundedSender<SessionEvent>,
    wait_limit: Duration,
) -> Result<(), Outcome> {
    let mut since = Instant::now();
    loop {
        let (answers, inbox) = mpsc::channel(16);
        let asking = async { Ok(root.describe(query.clone(), context, answers).await) };
        let forward = forward(inbox, key, events, wait_limit, query.follow);
        let Ok((result, last)) = tokio::try_join!(asking, forward) else {
            return Err(Outcome::RetryLater(since.elapsed()));
        };
        since = last.unwrap_or(since);
        match result {
            Err(Outcome::RetryLater(delay)) if since.elapsed() < wait_limit => {
                tokio::time::sleep(delay).await
            }
            Err(Outcome::RetryLater(_)) => return Err(Outcome::RetryLater(since.elapsed())),
            end => return end,
        }
    }
}

/// No answer came for too long.
struct Silent;

/// Hands on answers; returns when the last one came.
async fn forward(
    mut inbox: mpsc::Receiver<Description>,
    key: ObjectKey,
    events: &mpsc::UnboundedSender<SessionEvent>,
    wait_limit: Duration,
    follow: bool,
) -> Result<Option<Instant>, Silent> {
    let mut last = None;
    loop {
        match tokio::time::timeout(wait_limit, inbox.recv()).await {
            Ok(Some(answer)) => {
                last = Some(Instant::now());
                let _ = events.send(SessionEvent::Answer { key, answer });
            }
            Ok(None) => return Ok(last),
            Err(_) if follow && last.is_some() => {}
            Err(_) => return Err(Silent),
        }
    }
}

/// The question for one object's recipe.
struct RecipeQuestion {
    key: ObjectKey,
    size: u64,
    query: Query,
    events: mpsc::UnboundedSender<SessionEvent>,
    wait_limit: Duration,
}

/// Reason why the answers are not read to their end.
enum Stop {
    Silent,
    Wrong(Wrong),
}

impl RecipeQuestion {
    /// Asks until there is an answer or the wait limit is over.
    async fn put(&self, root: &dyn Root, context: &Context) -> Result<Option<RecipeClaim>, Wrong> {
        let since = Instant::now();
        loop {
            let mut reader = RecipeReader::new(self.query.oid, self.size);
            let (answers, inbox) = mpsc::channel(4);
            let asking = async { Ok(root.describe(self.query.clone(), context, answers).await) };
            let result = match tokio::try_join!(asking, self.read(inbox, &mut reader)) {
                Ok((result, ())) => result,
                Err(Stop::Silent) => return Ok(None),
                Err(Stop::Wrong(wrong)) => return Err(wrong),
            };
            match result {
                Ok(()) => {
                    let maker = reader.maker().cloned();
                    return reader.finish().map_err(|why| Wrong { maker, why });
                }
                Err(Outcome::RetryLater(delay)) if since.elapsed() < self.wait_limit => {
                    tokio::time::sleep(delay).await;
                }
                Err(_) => return Ok(None),
            }
        }
    }

    async fn read(
        &self,
        mut inbox: mpsc::Receiver<Description>,
        reader: &mut RecipeReader,
    ) -> Result<(), Stop> {
        loop {
            match tokio::time::timeout(self.wait_limit, inbox.recv()).await {
                Ok(Some(Description::Recipe(part))) => {
                    let maker = Some(part.maker.clone());
                    reader.take(part).map_err(|why| Stop::Wrong(Wrong { maker, why }))?;
                }
                Ok(Some(answer)) => {
                    let _ = self.events.send(SessionEvent::Answer { key: self.key, answer });
                }
                Ok(None) => return Ok(()),
                Err(_) => return Err(Stop::Silent),
            }
        }
    }
}
