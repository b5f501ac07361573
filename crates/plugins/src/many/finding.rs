//! Sources that finders bring and take away while the transfer runs.

use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::lock::lock;
use towpath_transfer::Context;
use towpath_transfer::finder::{Finder, SourceChange};

use super::SourceCalls;

/// Changes that wait for the dealer.
const WAITING: usize = 4;

/// Hears what a finder tells, as long as it does. `number` tells its keys from those of other finders.
pub(super) async fn find(shared: &Arc<SourceCalls>, number: usize, finder: &dyn Finder, context: &Context) {
    let (changes, mut inbox) = mpsc::channel(WAITING);
    let hearing = async {
        while let Some(change) = inbox.recv().await {
            match change {
                SourceChange::Added { key, source, priority, weight } => {
                    lock(&shared.table).found(shared.now(), (number, key), source, (priority, weight));
                }
                SourceChange::Removed(key) => lock(&shared.table).removed(shared.now(), (number, key)),
                SourceChange::Looked => looked(shared, number),
            }
            shared.perform(context);
        }
    };
    tokio::join!(finder.find(context, changes), hearing);
    looked(shared, number);
    shared.perform(context);
}

/// A finder has looked once, or will not look any more.
fn looked(shared: &SourceCalls, number: usize) {
    let mut table = lock(&shared.table);
    if table.places.looked(number) {
        table.end_what_nobody_brings(shared.now());
        shared.found.notify_waiters();
    }
}
