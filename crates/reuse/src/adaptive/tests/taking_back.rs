//! The plugin over a network that brings nothing: what it takes back when it wants a recipe.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use towpath_content::Oid;
use towpath_content::pieces::Layout;
use towpath_disk_search::Scope;
use towpath_store::DiskStore;
use towpath_transfer::source::{Backlog, PathState, Query, Sink, SourceState};
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Group, ObjectFacts, ObjectOffset, OpenWays, Outcome, RestWay,
    Root, Source, Tag, Want, WantId,
};

use crate::adaptive::{Adaptive, Effort, Search};

const PIECE: u64 = 256 << 10;
const SIZE: u64 = 200 * PIECE;

/// Brings nothing, until it is cancelled.
#[derive(Default)]
struct Slow {
    cancelled: Mutex<Vec<Tag>>,
    changed: Notify,
    /// Bytes that come by a way which is not asked any more.
    beside: u64,
}

impl Slow {
    fn cancelled(&self) -> Vec<Tag> {
        self.cancelled.lock().unwrap().clone()
    }
}

impl Source for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn state(&self) -> SourceState {
        let path = PathState { shortest: Duration::from_millis(40), ..PathState::default() };
        SourceState { path, beside: self.beside, ..SourceState::of_window(16 * PIECE + self.beside) }
    }

    fn describe<'a>(
        &'a self,
        _query: Query,
        _context: &'a Context,
        _answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async { Err(Outcome::NotHere) })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        let mut tags: Vec<Tag> = wants.iter().map(|want| want.tag).collect();
        Box::pin(async move {
            while !tags.is_empty() {
                let changed = self.changed.notified();
                let cancelled = self.cancelled();
                let (over, left) = tags.into_iter().partition(|tag| cancelled.contains(tag));
                let over: Vec<Tag> = over;
                over.into_iter().for_each(|tag| sink.outcome(tag, Outcome::Cancelled));
                tags = left;
                if !tags.is_empty() {
                    changed.await;
                }
            }
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        self.cancelled.lock().unwrap().extend(tags);
        self.changed.notify_waiters();
    }

    fn have<'a>(
        &'a self,
        _oid: Oid,
        _context: &'a Context,
        _ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

#[derive(Default)]
struct Ends(Mutex<Vec<(Tag, Outcome)>>);

impl Sink for Ends {
    fn deliver(&self, _delivery: Delivery) -> BoxFuture<'_, ()> {
        panic!("nothing is brought")
    }

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.0.lock().unwrap().push((tag, outcome));
    }
}

fn piece(oid: Oid, index: u64) -> Want {
    let id = WantId::Piece { oid, layout: Layout::of(SIZE).unwrap(), index };
    let positions = vec![ObjectOffset { object: 1, offset: index * PIECE }];
    Want { positions, ..Want::new(10 + index, id) }
}

/// The plugin over a network, with a store in this folder, which alone is searched.
fn over(slow: Arc<Slow>, folder: &Path) -> Arc<Adaptive> {
    let store = Arc::new(DiskStore::open(&folder.join("state"), &folder.join("data")).unwrap());
    let scope = Scope {
        start: folder.into(),
        roots: Vec::new(),
        extra: Vec::new(),
        beyond_destination: false,
        ..Scope::default()
    };
    let search = Search { store, scope, leave_out: Arc::new(|_| false), effort: Effort::Some, limit_rate: 0 };
    Adaptive::new(slow, search)
}

/// They filled the little that is asked for at first, and a connection that stood after a moment was asked seconds later.
#[tokio::test]
async fn what_comes_beside_takes_no_room_of_what_is_asked_for_at_first() {
    let folder = tempfile::tempdir().unwrap();
    let [alone, beside] = [0, 3 * PIECE].map(|beside| {
        let slow = Slow { beside, ..Slow::default() };
        over(Arc::new(slow), folder.path()).state().window
    });
    assert!(alone < 16 * PIECE, "little is asked for at first");
    assert_eq!(beside, alone + 3 * PIECE);
}

#[tokio::test]
async fn pieces_that_wait_are_taken_back_when_a_recipe_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Arc::new(Slow::default());
    let adaptive = over(Arc::clone(&slow), folder.path());
    let (it, other) = (Oid::of(b"it"), Oid::of(b"another"));
    let (_keep, hints) = tokio::sync::watch::channel(Vec::new());
    let context = Context { root: it, node: None, secret: None, hints };
    let ends = Arc::new(Ends::default());
    let wants = vec![piece(it, 0), piece(it, 1), piece(other, 2), piece(it, 3)];
    let group = Group::default();
    let looking = async {
        let facts = ObjectFacts {
            oid: it,
            asked_as: it,
            size: SIZE,
            missing: SIZE - 3 * PIECE,
            read_rate: 0.0,
            kept: 0,
            group: &group,
            open: OpenWays::RECIPE,
        };
        let begun = Instant::now();
        while adaptive.advise(&facts).way != RestWay::Recipe {
            assert!(begun.elapsed() < Duration::from_secs(5) && slow.cancelled().is_empty());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(slow.cancelled(), [10, 11, 13], "of this object alone");
        tokio::task::yield_now().await;
        adaptive.cancel(&[12]);
    };
    tokio::join!(adaptive.get(wants, &context, Arc::clone(&ends) as _), looking);
    let mut ended = std::mem::take(&mut *ends.0.lock().unwrap());
    ended.sort_by_key(|(tag, _)| *tag);
    let again = Outcome::RetryLater(Duration::from_millis(300));
    let wanted = [(10, again.clone()), (11, again.clone()), (12, Outcome::Cancelled), (13, again)];
    assert_eq!(ended, wanted);
}
