//! How many entries a way is asked for that another one may take over from: what waits goes there then.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use towpath_content::lock::lock;
use towpath_transfer::offer::{EntrySink, EntryWant};

use super::counting::{CountingSink, EntryCallSink};
use super::shares::{EntryShares, LinkKey};

/// The only way that is counted.
const ONLY: LinkKey = 0;
/// What it is asked for before it is measured: the other one may stand a moment later.
const FIRST: usize = 64;

/// Counts what one way owes, as links are counted: it is asked for what it answers in a second.
#[derive(Default)]
pub(crate) struct EntriesAhead {
    shares: Arc<Mutex<EntryShares>>,
    room: Arc<Notify>,
}

impl EntriesAhead {
    /// For what one call asks of it, which `sink` is told of.
    pub(crate) fn call(&self, sink: &Arc<dyn EntrySink>) -> CallAhead {
        CallAhead {
            shares: Arc::clone(&self.shares),
            sink: EntryCallSink::new(sink, &self.shares, &self.room),
        }
    }

    /// Completes when there may be room for more, or another way.
    pub(crate) fn told(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// There is another way.
    pub(crate) fn tell(&self) {
        self.room.notify_waiters();
    }
}

/// See [`EntriesAhead::call`].
pub(crate) struct CallAhead {
    shares: Arc<Mutex<EntryShares>>,
    sink: EntryCallSink,
}

impl CallAhead {
    /// Takes as many of `wants` as there is room for now, with the sink of what is answered; none if there is no room.
    pub(crate) fn take(&self, wants: &mut Vec<EntryWant>) -> Option<(Vec<EntryWant>, Arc<dyn EntrySink>)> {
        let mut shares = lock(&self.shares);
        let most = shares.owed_unmeasured(ONLY).map_or(usize::MAX, |owed| FIRST.saturating_sub(owed));
        let (_, numbers) = shares.deal(&[ONLY], wants.len().min(most), Instant::now()).pop()?;
        drop(shares);
        let own: Vec<EntryWant> = wants.drain(..numbers.clone().count()).collect();
        let counting = CountingSink::new(&self.sink, ONLY, own.clone(), numbers);
        Some((own, counting))
    }
}
