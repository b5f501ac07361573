//! From this machine's own store: what an earlier transfer brought need not cross the network.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use towpath_store::{Descriptors, Store};
use towpath_transfer::plugin::{Query, Sink};
use towpath_transfer::want::{Delivery, Payload, Proof};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Tag, TransferPlugin, Want, WantId};

/// What this source is called in progress and results.
pub const SOURCE: &str = "this machine";
/// Reading is quick: a few batches keep it busy.
const WINDOW: u64 = 4 << 20;

/// Serves wants from a store on this machine.
pub struct Local {
    store: Arc<dyn Store>,
}

impl Local {
    /// Serves from `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

impl TransferPlugin for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn window(&self) -> u64 {
        WINDOW
    }

    fn get_descriptors<'a>(
        &'a self,
        query: Query,
        _context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || describe(&*store, &query)).await;
            for answer in found.unwrap_or(Err(Outcome::NotHere))? {
                let _ = answers.send(answer).await;
            }
            Ok(())
        })
    }

    fn get_chunks<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            for want in wants {
                let store = Arc::clone(&self.store);
                let asked = Instant::now();
                let id = want.id;
                let read = tokio::task::spawn_blocking(move || read(&*store, &id)).await;
                match read.ok().flatten() {
                    Some((payload, proof)) => {
                        let timing = (asked, Instant::now());
                        sink.deliver(Delivery { tag: want.tag, payload, proof, source: SOURCE.into(), timing }).await;
                    }
                    None => sink.outcome(want.tag, Outcome::NotHere),
                }
            }
        })
    }

    fn cancel_chunks(&self, _tags: &[Tag]) {}
}

/// Only complete objects: a live one is followed at its producer.
fn describe(store: &dyn Store, query: &Query) -> Result<Vec<Description>, Outcome> {
    let have = store.have(&query.oid).map_err(|_| Outcome::NotHere)?;
    if have.state != towpath_store::State::Complete {
        return Err(Outcome::NotHere);
    }
    let mut answers = vec![Description::Object { about: have.about, layout: Some(have.layout) }];
    if let Some(proofs) = &query.proofs {
        let run = proofs.start..proofs.end.min(have.layout.count());
        if let Ok(Descriptors::Proof(nodes)) = store.get_descriptors(&query.oid, run.clone()) {
            answers.push(Description::Proof(Proof { run, nodes: nodes.into() }));
        }
    }
    Ok(answers)
}

fn read(store: &dyn Store, id: &WantId) -> Option<(Payload, Option<Arc<Proof>>)> {
    let (oid, index) = match id {
        WantId::Piece { oid, index, .. } => (oid, *index),
        WantId::Chunk { hash, .. } | WantId::Block { hash, .. } => {
            return Some((Payload::Bytes(store.get_chunk(hash).ok()?.into()), None));
        }
    };
    let run = index..index + 1;
    let proof = match store.get_descriptors(oid, run.clone()).ok()? {
        Descriptors::Proof(nodes) => Some(Arc::new(Proof { run, nodes: nodes.into() })),
        Descriptors::Values(_) => None,
    };
    if store.is_zero(oid, index) {
        return Some((Payload::Zeros, proof));
    }
    let mut bytes = Vec::new();
    store.read_piece(oid, index, &mut bytes).ok()?;
    Some((Payload::Bytes(bytes.into()), proof))
}
