//! A connection that is closed while the receiving side is behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use towpath_content::pieces::Layout;
use towpath_link::Identity;
use towpath_plugins::Direct;
use towpath_protocol::{Peer, PeerConfig, Service};
use towpath_store::{About, MemoryStore};
use towpath_transfer::source::{Backlog, Sink};
use towpath_transfer::{BoxFuture, Context, Delivery, Outcome, Source, Tag, Want, WantId};

use crate::support::*;

/// Takes the first delivery and then no more.
#[derive(Default)]
struct Stuck {
    is_full: AtomicBool,
    stuck: tokio::sync::Notify,
    ends: Mutex<Vec<(Tag, Option<Outcome>)>>,
}

impl Sink for Stuck {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.is_full.swap(true, Ordering::Relaxed) {
                self.stuck.notify_one();
                std::future::pending::<()>().await;
            }
            self.ends.lock().unwrap().push((delivery.tag, None));
        })
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.ends.lock().unwrap().push((tag, Some(outcome)));
    }

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }
}

/// The want whose bytes were being handed over was left without an end.
#[tokio::test]
async fn a_delivery_that_the_end_interrupts_ends_its_want() {
    let (near, far) = connected().await;
    let (store, data) = (Arc::new(MemoryStore::new()), pattern(4 * PIECE, 1));
    let oid = put(&store, &data, &About::default());
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    let service = Arc::new(Service::new(store, Arc::new(keys)));
    let _serving = Peer::start(far, PeerConfig::default(), Some(service));
    let peer = Peer::start(near, PeerConfig::default(), None);
    let direct = Direct::over(Arc::clone(&peer), Identity::generate().unwrap());
    let (_keep, hints) = tokio::sync::watch::channel(Vec::new());
    let context = Context { root: oid, node: None, secret: None, hints };
    let layout = Layout::of(data.len() as u64).unwrap();
    let want = |index| Want::new(index, WantId::Piece { oid, layout, index });
    let sink = Arc::new(Stuck::default());
    let asking = direct.get((0..4).map(want).collect(), &context, sink.clone());
    let closing = async {
        sink.stuck.notified().await;
        peer.close("test");
    };
    tokio::time::timeout(LIMIT, async { tokio::join!(asking, closing) }).await.unwrap();
    let mut ends = std::mem::take(&mut *sink.ends.lock().unwrap());
    ends.sort_by_key(|(tag, _)| *tag);
    assert_eq!(ends.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(ends[0].1.is_none());
    assert!(ends[1..].iter().all(|(_, end)| matches!(end, Some(Outcome::RetryLater(_)))), "{ends:?}");
}
