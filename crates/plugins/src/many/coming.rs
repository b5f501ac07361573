//! What the site's cache has by now of an object that it is being brought: it tells, as any holder does. And whether it is being
//! brought it still: it is asked now and then, as one that gets nothing has nothing to tell.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use towpath_content::lock::lock;
use towpath_transfer::Context;
use towpath_transfer::intervals::Intervals;

use super::SourceCalls;
use crate::near::{NearHolding, NearSource};
use towpath_dealer::DealerEvent;

/// Interval at which it is asked, and time that it has to answer.
const ASK_EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(4);
/// What lies behind the root's own bytes: the session's other wants.
const BEHIND: Range<u64> = 0..1 << 63;

/// Follows what comes to the cache, until all is there or it promises no more.
pub(super) async fn follow(shared: &Arc<SourceCalls>, number: u32, near: &NearSource, context: &Context) {
    let NearHolding::Coming { size } = near.holding else { return };
    let (told, mut inbox) = mpsc::channel::<Vec<Range<u64>>>(4);
    let is_all = AtomicBool::new(false);
    let hearing = async {
        let mut known = Intervals::default();
        while let Some(added) = inbox.recv().await {
            added.iter().for_each(|range| known.insert(range.clone()));
            lock(&shared.table).has_more(shared.now(), number, added);
            if known.covers(&(0..size)) {
                is_all.store(true, Ordering::Relaxed);
                lock(&shared.table).has_more(shared.now(), number, vec![BEHIND]);
            }
            shared.perform(context);
        }
    };
    let asking = async {
        let mut stands = true;
        while stands && !is_all.load(Ordering::Relaxed) {
            tokio::time::sleep(ASK_EVERY).await;
            stands = tokio::time::timeout(PATIENCE, near.promise.stands()).await.unwrap_or(false);
        }
        if !stands && !is_all.load(Ordering::Relaxed) {
            tracing::info!("the site's cache brings no more: what it lacks comes from elsewhere");
            let nothing = DealerEvent::Promises { source: number, end: 0 };
            lock(&shared.table).handle(shared.now(), nothing);
            shared.perform(context);
        }
    };
    tokio::join!(near.source.have(context.root, context, told), hearing, asking);
}
