//! A source in memory that keeps the contract, notes what it is asked, and says of itself what nobody else would: the one that
//! wrappers are put around.

use std::sync::Mutex;
use std::time::Instant;

use tokio::sync::mpsc;
use towpath_content::lock::lock;

use super::*;
use towpath_transfer::metadata::Metadata;
use towpath_transfer::source::{BoxFuture, Description, PathState, Query, Sink, SourceState};
use towpath_transfer::source_id::SourceId;
use towpath_transfer::want::{Delivery, Outcome, Payload, Proof};

/// See the head of this module.
pub(super) struct Inmost {
    objects: Vec<Vec<u8>>,
    /// Times that each piece is delivered.
    times: usize,
    is_encrypted: bool,
    proves: bool,
    noted: Mutex<Vec<String>>,
}

impl Inmost {
    pub(super) const WINDOW: u64 = 5 << 20;
    pub(super) const BESIDE: u64 = 1 << 20;
    pub(super) const SOURCES: usize = 7;
    pub(super) const PRICE: u32 = 3;
    pub(super) const TROUBLE: &str = "the line is dead";
    pub(super) const PATH: PathState = PathState {
        round_trip: Duration::from_millis(3),
        shortest: Duration::from_millis(2),
        receive_queue: 0,
        arrived: 5,
        is_due: false,
    };

    pub(super) fn new(objects: Vec<Vec<u8>>) -> Self {
        Self { objects, times: 1, is_encrypted: false, proves: true, noted: Mutex::default() }
    }

    /// The same, so often delivered.
    pub(super) fn delivering(self, times: usize) -> Self {
        Self { times, ..self }
    }

    /// The same, encrypted or not.
    pub(super) fn encrypted(self, is_encrypted: bool) -> Self {
        Self { is_encrypted, ..self }
    }

    /// The same, saying that it proves what it brings or not.
    pub(super) fn proving(self, proves: bool) -> Self {
        Self { proves, ..self }
    }

    fn note(&self, what: String) {
        lock(&self.noted).push(what);
    }

    /// What it was asked since the last time.
    pub(super) fn take_noted(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.noted))
    }

    /// Bytes of an object that it has.
    #[cfg(test)]
    pub(super) fn size_of(&self, oid: &Oid) -> Option<u64> {
        self.find(oid).map(|data| data.len() as u64)
    }

    fn find(&self, oid: &Oid) -> Option<&[u8]> {
        self.objects.iter().find(|data| Oid::of(data) == *oid).map(|data| &data[..])
    }

    /// The bytes of a piece, and their proof.
    fn read(&self, id: &WantId) -> Option<(Vec<u8>, Option<Proof>)> {
        let WantId::Piece { oid, index, .. } = *id else { return None };
        let data = self.find(&oid)?;
        let run = index..index + 1;
        let nodes = tree_of(data).proof(run.clone()).ok()?;
        let proof = Proof { run, nodes: nodes.into() };
        Some((piece(data, &layout_of(data), index).to_vec(), Some(proof)))
    }
}

impl Source for Inmost {
    fn name(&self) -> &str {
        "inmost"
    }

    fn state(&self) -> SourceState {
        SourceState {
            window: Self::WINDOW,
            beside: Self::BESIDE,
            path: Self::PATH,
            trouble: Some(Self::TROUBLE.into()),
            is_encrypted: self.is_encrypted,
            proves: self.proves,
            makes_deltas: true,
            price: Self::PRICE,
            sources: Self::SOURCES,
        }
    }

    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.note(format!("finish {how}")) })
    }

    fn report_corrupt(&self, source: &SourceId) {
        self.note(format!("corrupt {source}"));
    }

    fn cancel(&self, tags: &[Tag]) {
        self.note(format!("cancel {tags:?}"));
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            self.note(format!("describe {query:?} of {}", context.root));
            let data = self.find(&query.oid).ok_or(Outcome::NotHere)?;
            let (about, layout) = (Default::default(), Some(layout_of(data)));
            let _ = answers.send(Description::Object { about, layout, metadata: Metadata::default() }).await;
            if let Some(proofs) = query.proofs {
                let run = proofs.start..proofs.end.min(layout_of(data).count());
                let nodes = tree_of(data).proof(run.clone()).map_err(|_| Outcome::NotHere)?.into();
                let _ = answers.send(Description::Proof(Proof { run, nodes })).await;
            }
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            for want in wants {
                let Some((bytes, proof)) = self.read(&want.id) else {
                    sink.outcome(want.tag, Outcome::NotHere);
                    continue;
                };
                let now = Instant::now();
                let delivery = Delivery {
                    tag: want.tag,
                    payload: Payload::Bytes(bytes.into()),
                    proof: proof.map(Arc::new),
                    source: SourceId::other("inmost", None),
                    timing: (now, now),
                    saved: 0,
                };
                for _ in 0..self.times {
                    sink.deliver(delivery.clone()).await;
                }
            }
        })
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        _context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.note(format!("have {oid}"));
            let _ = ranges.send(vec![3..5, 7..9]).await;
        })
    }
}
