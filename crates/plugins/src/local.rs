//! From this machine's own store: what an earlier transfer brought need not cross the network.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_store::{Descriptors, Store};
use towpath_transfer::plugin::{Query, Sink};
use towpath_transfer::want::{Delivery, Payload, Proof};
use towpath_transfer::{
    BoxFuture, Context, Description, Metadata, Outcome, Tag, TransferPlugin, Want, WantId,
};

/// What this source is called in progress and results.
pub const SOURCE: &str = "this machine";
/// Wants read ahead of the sink.
const READ_AHEAD: usize = 16;
/// Reading is quick: a few batches keep it busy.
const WINDOW: u64 = 4 << 20;

/// Which objects may be drawn from here. What is not asked of a sender tells it what we have, so
/// a transfer from a stranger may use only what it reveals nothing by.
pub type Allow = Arc<dyn Fn(&Oid) -> bool + Send + Sync>;

/// Serves wants from a store on this machine.
pub struct Local {
    store: Arc<dyn Store>,
    allow: Allow,
    source: Arc<str>,
    is_local: bool,
}

impl Local {
    /// Serves those objects from `store` that `allow` lets through.
    pub fn new(store: Arc<dyn Store>, allow: Allow) -> Self {
        Self { store, allow, source: SOURCE.into(), is_local: true }
    }

    /// Serves all of a `store` of its own, which is called `source`; how its bytes came there is not
    /// known.
    pub fn only(store: Arc<dyn Store>, source: &str) -> Self {
        Self { store, allow: Arc::new(|_| true), source: source.into(), is_local: false }
    }
}

impl TransferPlugin for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn is_encrypted(&self) -> bool {
        self.is_local
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
        let (store, allow) = (Arc::clone(&self.store), Arc::clone(&self.allow));
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || match allow(&query.oid) {
                true => describe(&*store, &query),
                false => Err(Outcome::NotHere),
            });
            let found = found.await;
            for answer in found.unwrap_or(Err(Outcome::NotHere))? {
                let _ = answers.send(answer).await;
            }
            Ok(())
        })
    }

    fn get_chunks<'a>(
        &'a self,
        wants: Vec<Want>,
        _context: &'a Context,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<'a, ()> {
        let (store, allow) = (Arc::clone(&self.store), Arc::clone(&self.allow));
        let source = Arc::clone(&self.source);
        let (found, mut inbox) = mpsc::channel(READ_AHEAD);
        // One blocking thread for all wants; it stops when the receiver is dropped.
        tokio::task::spawn_blocking(move || read_all(&*store, &*allow, &source, wants, &found));
        Box::pin(async move {
            while let Some((tag, delivery)) = inbox.recv().await {
                match delivery {
                    Some(delivery) => sink.deliver(delivery).await,
                    None => sink.outcome(tag, Outcome::NotHere),
                }
            }
        })
    }
}

/// Only complete objects: a live one is followed at its producer.
fn describe(store: &dyn Store, query: &Query) -> Result<Vec<Description>, Outcome> {
    let have = store.have(&query.oid).map_err(|_| Outcome::NotHere)?;
    if have.state != towpath_store::State::Complete {
        return Err(Outcome::NotHere);
    }
    let mut answers = vec![Description::Object {
        about: have.about,
        layout: Some(have.layout),
        metadata: Metadata::default(),
    }];
    if let Some(proofs) = &query.proofs {
        let run = proofs.start..proofs.end.min(have.layout.count());
        if let Ok(Descriptors::Proof(nodes)) = store.get_descriptors(&query.oid, run.clone()) {
            answers.push(Description::Proof(Proof { run, nodes: nodes.into() }));
        }
    }
    Ok(answers)
}

fn read_all(
    store: &dyn Store,
    allow: &(dyn Fn(&Oid) -> bool + Send + Sync),
    source: &Arc<str>,
    wants: Vec<Want>,
    found: &mpsc::Sender<(Tag, Option<Delivery>)>,
) {
    for want in wants {
        let asked = Instant::now();
        let is_allowed = match &want.id {
            WantId::Piece { oid, .. } => allow(oid),
            WantId::Chunk { .. } | WantId::Block { .. } => false,
        };
        let found_here = if is_allowed { read(store, &want.id) } else { None };
        let delivery = found_here.map(|(payload, proof)| {
            let timing = (asked, Instant::now());
            Delivery { tag: want.tag, payload, proof, source: Arc::clone(source), timing, saved: 0 }
        });
        if found.blocking_send((want.tag, delivery)).is_err() {
            return;
        }
    }
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
