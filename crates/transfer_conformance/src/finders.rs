//! The examination that every finder passes: each rule of the contract in [`finder`](towpath_transfer::finder) as a named check.
//!
//! ```no_run
//! use std::sync::Arc;
//! use towpath_transfer_conformance::finders::{self, FinderSubject};
//! # struct Mine;
//! # impl Mine { fn come(&self, place: u32) {} fn go(&self, place: u32) {} }
//! # fn mine() -> (Arc<Mine>, Arc<dyn towpath_transfer::finder::Finder>, towpath_transfer::Context) { todo!() }
//! # async fn example() {
//! finders::run(async || {
//!     let (places, finder, context) = mine();
//!     let (coming, going) = (Arc::clone(&places), places);
//!     FinderSubject::new(finder, context, move |place| coming.come(place), move |place| going.go(place))
//! })
//! .await;
//! # }
//! ```

use std::any::Any;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Broken, LIMIT};
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::source::Context;

/// Makes a place come or go.
type Changing = Box<dyn Fn(u32) + Send>;

/// A finder under examination, with places that come and go. None is there at first.
pub struct FinderSubject {
    finder: Arc<dyn Finder>,
    context: Context,
    come: Changing,
    go: Changing,
    _kept: Option<Box<dyn Any + Send>>,
}

impl FinderSubject {
    /// A finder that finds a source at a place once `come` was called for the place's number, until `go` was.
    pub fn new(
        finder: Arc<dyn Finder>,
        context: Context,
        come: impl Fn(u32) + Send + 'static,
        go: impl Fn(u32) + Send + 'static,
    ) -> Self {
        Self { finder, context, come: Box::new(come), go: Box::new(go), _kept: None }
    }

    /// Keeps what the finder needs (a directory, say) until the check is over.
    #[must_use]
    pub fn keeping(self, kept: impl Any + Send) -> Self {
        Self { _kept: Some(Box::new(kept)), ..self }
    }

    /// Has it find while `listening` hears what it tells.
    async fn while_finding(&self, listening: impl AsyncFnOnce(&mut Heard)) {
        let (changes, inbox) = mpsc::channel(1);
        let mut heard = Heard { inbox, known: BTreeSet::new() };
        let finding = async {
            self.finder.find(&self.context, changes).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = finding => {}
            () = listening(&mut heard) => {}
        }
    }
}

/// What was told.
struct Heard {
    inbox: mpsc::Receiver<SourceChange>,
    /// Keys of what was added and not removed.
    known: BTreeSet<u64>,
}

/// A change, of which only the kind and the key count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Added(u64),
    Removed(u64),
    Looked,
}

impl Heard {
    async fn next(&mut self) -> Told {
        match self.inbox.recv().await.expect("it tells what comes and goes") {
            SourceChange::Added { key, .. } => {
                assert!(self.known.insert(key), "key {key} was added twice");
                Told::Added(key)
            }
            SourceChange::Removed(key) => {
                assert!(self.known.remove(&key), "key {key} was removed and not there");
                Told::Removed(key)
            }
            SourceChange::Looked => Told::Looked,
        }
    }

    /// The next source that is told; that the finder looked is passed over.
    async fn added(&mut self) -> u64 {
        loop {
            match self.next().await {
                Told::Added(key) => return key,
                Told::Looked => {}
                other @ Told::Removed(_) => panic!("something was to come, not {other:?}"),
            }
        }
    }

    /// The next source that is taken away.
    async fn removed(&mut self) -> u64 {
        loop {
            match self.next().await {
                Told::Removed(key) => return key,
                Told::Looked => {}
                other @ Told::Added(_) => panic!("something was to go, not {other:?}"),
            }
        }
    }

    /// Hears until it says that it has looked.
    async fn looked(&mut self) {
        while self.next().await != Told::Looked {}
    }
}

type FinderCheck = fn(FinderSubject) -> Pin<Box<dyn Future<Output = ()>>>;

const RULES: [(&str, FinderCheck); 6] = [
    ("what is there is told, and then that it has looked", |it| Box::pin(there(it))),
    ("it says that it has looked where nothing is", |it| Box::pin(empty(it))),
    ("what comes is told under a key of its own", |it| Box::pin(comes(it))),
    ("what goes is told under its key, and the others stay", |it| Box::pin(goes(it))),
    ("what comes again is told again", |it| Box::pin(comes_again(it))),
    ("each of two calls at once tells all, and so does one after a call that was dropped", |it| {
        Box::pin(calls(it))
    }),
];

/// Runs all checks, each on a finder that `make` returns.
pub async fn run(make: impl AsyncFn() -> FinderSubject) {
    for (words, check) in RULES {
        let _guard = Broken(words);
        let check = check(make().await);
        assert!(tokio::time::timeout(LIMIT, check).await.is_ok(), "not done after {LIMIT:?}");
    }
}

async fn there(subject: FinderSubject) {
    (subject.come)(0);
    (subject.come)(1);
    subject
        .while_finding(async |heard| {
            heard.looked().await;
            assert_eq!(heard.known.len(), 2, "what was there before it looked");
        })
        .await;
}

async fn empty(subject: FinderSubject) {
    subject
        .while_finding(async |heard| {
            heard.looked().await;
            assert!(heard.known.is_empty());
        })
        .await;
}

async fn comes(subject: FinderSubject) {
    subject
        .while_finding(async |heard| {
            heard.looked().await;
            for place in 0..3 {
                (subject.come)(place);
                heard.added().await;
            }
            assert_eq!(heard.known.len(), 3);
        })
        .await;
}

async fn goes(subject: FinderSubject) {
    subject
        .while_finding(async |heard| {
            heard.looked().await;
            let mut keys = Vec::new();
            for place in 0..3 {
                (subject.come)(place);
                keys.push(heard.added().await);
            }
            (subject.go)(1);
            assert_eq!(heard.removed().await, keys[1]);
            (subject.go)(0);
            assert_eq!(heard.removed().await, keys[0]);
            assert_eq!(heard.known, BTreeSet::from([keys[2]]));
        })
        .await;
}

async fn comes_again(subject: FinderSubject) {
    subject
        .while_finding(async |heard| {
            for _ in 0..3 {
                (subject.come)(0);
                heard.added().await;
                (subject.go)(0);
                heard.removed().await;
            }
        })
        .await;
}

async fn calls(subject: FinderSubject) {
    (subject.come)(0);
    subject
        .while_finding(async |heard| {
            heard.added().await;
        })
        .await;
    let both = |heard: &Heard| assert_eq!(heard.known.len(), 2);
    subject
        .while_finding(async |one| {
            one.looked().await;
            subject
                .while_finding(async |other| {
                    other.looked().await;
                    (subject.come)(1);
                    one.added().await;
                    other.added().await;
                    both(one);
                    both(other);
                })
                .await;
        })
        .await;
}
