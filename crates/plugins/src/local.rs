//! From this machine's own store: what an earlier transfer brought need not cross the network.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_store::{Descriptors, Store, StoreError};
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::want::{Delivery, Payload, Proof};
use towpath_transfer::{
    BoxFuture, Context, Description, Metadata, Outcome, Source, SourceId, Tag, Want, WantId,
};

/// Wants read ahead of the sink.
const READ_AHEAD: usize = 16;
/// Reading is quick: a few batches keep it busy.
const WINDOW: u64 = 4 << 20;

/// An object that is not here is looked for again after so long: somebody may bring it meanwhile.
const LOOKED: Duration = Duration::from_secs(1);
/// Objects that are known not to be here. Pieces of few are wanted in turn.
const ABSENT: usize = 16;

/// Objects that may be drawn from here. What is not requested of a sender tells it what we have, so
/// a transfer from a stranger may use only what it reveals nothing by.
pub type Allow = Arc<dyn Fn(&Oid) -> bool + Send + Sync>;

/// Serves wants from a store on this machine.
pub struct Local {
    store: Arc<dyn Store>,
    allow: Allow,
    source: SourceId,
    is_local: bool,
    absent: Arc<Mutex<Absent>>,
}

impl Local {
    /// Serves those objects from `store` that `allow` lets through.
    pub fn new(store: Arc<dyn Store>, allow: Allow) -> Self {
        Self { store, allow, source: SourceId::this_machine(), is_local: true, absent: Arc::default() }
    }

    /// Serves all of a `store` of its own, a source of its own `kind`; how its bytes came there is not
    /// known.
    pub fn only(store: Arc<dyn Store>, kind: &str) -> Self {
        let (allow, source): (Allow, _) = (Arc::new(|_| true), SourceId::other(kind, None));
        Self { store, allow, source, is_local: false, absent: Arc::default() }
    }
}

impl Source for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn state(&self) -> SourceState {
        SourceState { is_encrypted: self.is_local, ..SourceState::of_window(WINDOW) }
    }

    fn describe<'a>(
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

    fn get<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        let (store, allow) = (Arc::clone(&self.store), Arc::clone(&self.allow));
        let (source, absent) = (self.source.clone(), Arc::clone(&self.absent));
        let (vain, wants): (Vec<_>, Vec<_>) = {
            let (absent, now) = (lock(&self.absent), Instant::now());
            wants.into_iter().partition(|want| absent.holds(want, now))
        };
        let (found, mut inbox) = mpsc::channel(READ_AHEAD);
        if !wants.is_empty() {
            // One blocking thread for all wants; it stops when the receiver is dropped.
            tokio::task::spawn_blocking(move || read_all(&*store, &*allow, &source, &absent, wants, &found));
        }
        Box::pin(async move {
            vain.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
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
    source: &SourceId,
    absent: &Mutex<Absent>,
    wants: Vec<Want>,
    found: &mpsc::Sender<(Tag, Option<Delivery>)>,
) {
    for want in wants {
        let requested_at = Instant::now();
        let found_here = match &want.id {
            WantId::Piece { oid, index, .. } if !lock(absent).holds(&want, requested_at) => {
                let proof = if allow(oid) { proof(store, oid, *index) } else { Err(StoreError::NotHere) };
                if matches!(proof, Err(StoreError::NotHere)) {
                    lock(absent).note(*oid, requested_at);
                }
                proof.and_then(|proof| Ok((payload(store, oid, *index)?, proof))).ok()
            }
            _ => None,
        };
        let delivery = found_here.map(|(payload, proof)| {
            let timing = (requested_at, Instant::now());
            Delivery { tag: want.tag, payload, proof, source: source.clone(), timing, saved: 0 }
        });
        if found.blocking_send((want.tag, delivery)).is_err() {
            return;
        }
    }
}

/// The proof of a piece; of a live object's there is none.
fn proof(store: &dyn Store, oid: &Oid, index: u64) -> Result<Option<Arc<Proof>>, StoreError> {
    let run = index..index + 1;
    Ok(match store.get_descriptors(oid, run.clone())? {
        Descriptors::Proof(nodes) => Some(Arc::new(Proof { run, nodes: nodes.into() })),
        Descriptors::Values(_) => None,
    })
}

fn payload(store: &dyn Store, oid: &Oid, index: u64) -> Result<Payload, StoreError> {
    if store.is_zero(oid, index) {
        return Ok(Payload::Zeros);
    }
    let mut bytes = Vec::new();
    store.read_piece(oid, index, &mut bytes)?;
    Ok(Payload::Bytes(bytes.into()))
}

/// Objects that were looked for a moment ago, and are not here or may not be used. To look takes a
/// transaction of the index, and a large object has thousands of pieces.
#[derive(Default)]
struct Absent(VecDeque<(Oid, Instant)>);

impl Absent {
    fn holds(&self, want: &Want, now: Instant) -> bool {
        let WantId::Piece { oid, .. } = &want.id else { return false };
        let is_it = |(absent, looked): &(Oid, Instant)| {
            absent == oid && now.saturating_duration_since(*looked) < LOOKED
        };
        self.0.iter().any(is_it)
    }

    fn note(&mut self, oid: Oid, now: Instant) {
        self.0.retain(|(absent, _)| *absent != oid);
        if self.0.len() == ABSENT {
            self.0.pop_front();
        }
        self.0.push_back((oid, now));
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::pieces::Layout;

    use super::*;

    #[test]
    fn what_is_not_here_is_looked_for_again_after_a_while() {
        let (mut absent, now) = (Absent::default(), Instant::now());
        let want = |oid: Oid| Want::new(1, WantId::Piece { oid, layout: Layout::of(1).unwrap(), index: 0 });
        let oid = |n: usize| Oid::of(&n.to_le_bytes());
        assert!(!absent.holds(&want(oid(0)), now));
        (0..=ABSENT).for_each(|n| absent.note(oid(n), now));
        absent.note(oid(1), now + LOOKED / 2);
        let held = |at| (0..=ABSENT).filter(|n| absent.holds(&want(oid(*n)), at)).count();
        assert_eq!((held(now), held(now + LOOKED)), (ABSENT, 1));
    }
}
