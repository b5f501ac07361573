//! Mirrors against a web server that does what each test says.
#![cfg_attr(test, allow(clippy::unwrap_used))] // Clippy spares only functions marked as tests.

mod conformance;
mod faults;
mod publishing;
mod server;

use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use towpath_content::Oid;
use towpath_content::pieces::Layout;
use towpath_transfer::source::{Backlog, Context, Sink, Source};
use towpath_transfer::{BoxFuture, Delivery, Outcome, Tag, Want, WantId};

/// What came, in the order of its coming.
#[derive(Default)]
struct Came {
    bytes: Mutex<Vec<(Tag, Vec<u8>)>>,
    ends: Mutex<Vec<(Tag, Outcome)>>,
}

impl Sink for Came {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        self.bytes.lock().unwrap().push((delivery.tag, delivery.payload.bytes().to_vec()));
        Box::pin(async {})
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.ends.lock().unwrap().push((tag, outcome));
    }

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }
}

impl Came {
    /// How each want ended that did not come, by tag.
    fn ends(&self) -> Vec<Outcome> {
        let mut ends = self.ends.lock().unwrap().clone();
        ends.sort_by_key(|(tag, _)| *tag);
        ends.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Tags of what came, in their order.
    fn tags(&self) -> Vec<Tag> {
        let mut tags: Vec<Tag> = self.bytes.lock().unwrap().iter().map(|(tag, _)| *tag).collect();
        tags.sort_unstable();
        tags
    }
}

fn context(root: Oid) -> Context {
    Context { root, node: None, secret: None, hints: watch::channel(Vec::new()).1 }
}

/// Bytes that differ from place to place.
fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(len as u64).fill(&mut bytes);
    bytes
}

/// Asks for pieces of `data`, each under its index.
async fn get(source: &dyn Source, data: &[u8], pieces: impl IntoIterator<Item = u64>) -> Arc<Came> {
    let (oid, layout) = (Oid::of(data), Layout::of(data.len() as u64).unwrap());
    let want = |index| Want::new(index, WantId::Piece { oid, layout, index });
    let came = Arc::new(Came::default());
    source
        .get(pieces.into_iter().map(want).collect(), &context(oid), Arc::clone(&came) as Arc<dyn Sink>)
        .await;
    for (tag, bytes) in came.bytes.lock().unwrap().iter() {
        assert_eq!(bytes.len() as u64, layout.len(*tag));
    }
    came
}
