//! Questions about objects: put to the root plugin until they are answered for good.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::actor::Actor;
use super::events::SessionEvent;
use crate::plugin::{Context, Description, Query, TransferPlugin};
use crate::want::{ObjectKey, Outcome};

impl Actor {
    /// Asks the root plugin about an object; its answers come as events.
    pub(super) fn question(&mut self, key: ObjectKey, proofs: Option<Range<u64>>) {
        let Some(active) = self.objects.get(&key) else { return };
        let (is_live, for_proofs) = (active.object.oid.is_live(), proofs.is_some());
        let oid = active.object.content().unwrap_or(active.object.oid);
        let query = Query {
            coverage: active.object.group.coverage,
            proofs: if is_live && !for_proofs { Some(0..u64::MAX) } else { proofs },
            follow: is_live && !for_proofs,
            ..Query::about(oid)
        };
        let (root, context, events) = (Arc::clone(&self.root), self.context.clone(), self.events.clone());
        let (token, patience) = (active.question.clone(), self.config.ledger.patience);
        tokio::spawn(async move {
            let asked = ask_until_answered(&*root, &context, query, key, &events, patience);
            if let Some(result) = token.run_until_cancelled(asked).await {
                let _ = events.send(SessionEvent::Answered { key, for_proofs, result });
            }
        });
    }
}

/// Puts a question until it is answered for good, handing on answers. A source that cannot be
/// reached is asked again until `patience` has passed without an answer; so long may one be
/// silent, too, but for a live object, which may grow slowly once it is described.
pub(super) async fn ask_until_answered(
    root: &dyn TransferPlugin,
    context: &Context,
    query: Query,
    key: ObjectKey,
    events: &mpsc::UnboundedSender<SessionEvent>,
    patience: Duration,
) -> Result<(), Outcome> {
    let mut since = Instant::now();
    loop {
        let (answers, inbox) = mpsc::channel(16);
        let asking = async { Ok(root.get_descriptors(query.clone(), context, answers).await) };
        let forward = forward(inbox, key, events, patience, query.follow);
        let Ok((result, last)) = tokio::try_join!(asking, forward) else {
            return Err(Outcome::RetryLater(since.elapsed()));
        };
        since = last.unwrap_or(since);
        match result {
            Err(Outcome::RetryLater(delay)) if since.elapsed() < patience => tokio::time::sleep(delay).await,
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
    patience: Duration,
    follow: bool,
) -> Result<Option<Instant>, Silent> {
    let mut last = None;
    loop {
        match tokio::time::timeout(patience, inbox.recv()).await {
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
