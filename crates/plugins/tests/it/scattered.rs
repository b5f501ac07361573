//! Sources of which one has nearly all bytes of an object and hardly a whole piece, as a receiver has whose older version changed all
//! over (`papers/dsync.txt` §7.2.3): pieces are put together of what each has.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use towpath_content::pieces::{Layout, PieceTree};
use towpath_content::{Hint, NodeId, Oid};
use towpath_link::Identity;
use towpath_plugins::{HintedNodes, Many};
use towpath_store::About;
use towpath_transfer::intervals::Intervals;
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::want::Proof;
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Outcome, Payload, Session, Single, Source, SourceId, Want,
    WantId,
};

use crate::support::*;

/// Somebody who has an object, or stretches of it.
struct Holder {
    name: &'static str,
    data: Vec<u8>,
    tree: PieceTree,
    has: Intervals,
    lies: bool,
    /// It was said to have brought what is wrong.
    blamed: watch::Sender<bool>,
    line: Line,
}

impl Holder {
    fn new(name: &'static str, data: &[u8], rate: u64, has: impl IntoIterator<Item = Range<u64>>) -> Self {
        let layout = Layout::of(data.len() as u64).unwrap();
        let bytes = |index| &data[layout.range(index).start as usize..layout.range(index).end as usize];
        let values = (0..layout.count()).map(|index| layout.value(index, bytes(index))).collect();
        let tree = PieceTree::new(layout, values).unwrap();
        let mut stretches = Intervals::default();
        has.into_iter().for_each(|range| stretches.insert(range));
        let (blamed, line) = (watch::Sender::new(false), Line::new(rate));
        Self { name, data: data.to_vec(), tree, has: stretches, lies: false, blamed, line }
    }

    fn liar(self) -> Self {
        Self { lies: true, ..self }
    }

    fn has_all(&self) -> bool {
        self.has.covers(&(0..self.data.len() as u64))
    }

    async fn bring(&self, want: &Want, sink: &Arc<dyn Sink>) {
        let WantId::Piece { layout, index, .. } = want.id else { panic!("only pieces are wanted") };
        let (asked, piece) = (Instant::now(), layout.range(index));
        let part =
            want.part.clone().map_or(piece.clone(), |part| piece.start + part.start..piece.start + part.end);
        assert!(
            want.undivided || self.has.covers(&part),
            "{} was asked for {part:?}, which it lacks",
            self.name
        );
        if !self.has.covers(&part) {
            return sink.outcome(want.tag, Outcome::NotHere);
        }
        let mut bytes = self.data[part.start as usize..part.end as usize].to_vec();
        self.line.carry(bytes.len()).await;
        if self.lies {
            bytes[0] ^= 1;
        }
        let nodes = self.tree.proof(index..index + 1).unwrap().into();
        let proof = Some(Arc::new(Proof { run: index..index + 1, nodes })).filter(|_| want.part.is_none());
        let (payload, source) = (Payload::Bytes(bytes.into()), SourceId::other(self.name, None));
        let timing = (asked, Instant::now());
        sink.deliver(Delivery { tag: want.tag, payload, proof, source, timing, saved: 0 }).await;
    }
}

impl Source for Holder {
    fn name(&self) -> &str {
        self.name
    }

    fn state(&self) -> SourceState {
        SourceState::of_window(1 << 20)
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        _context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            let (about, layout) = (About::default(), Some(self.tree.layout()));
            let described = Description::Object { about, layout, metadata: Default::default() };
            let _ = answers.send(described).await;
            if let Some(run) = query.proofs.filter(|_| self.has_all()) {
                let nodes = self.tree.proof(run.clone()).map_err(|_| Outcome::NotHere)?.into();
                let _ = answers.send(Description::Proof(Proof { run, nodes })).await;
            }
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            for want in wants {
                self.bring(&want, &sink).await;
            }
        })
    }

    fn have<'a>(
        &'a self,
        _oid: Oid,
        _context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let _ = ranges.send(self.has.iter().collect()).await;
            ranges.closed().await;
        })
    }

    fn report_corrupt(&self, source: &SourceId) {
        if *source == SourceId::other(self.name, None) {
            self.blamed.send_replace(true);
        }
    }
}

const MIB: usize = 1 << 20;

/// What is left of `len` bytes of which one percent changed, in places of 600 bytes.
fn scattered(len: u64) -> impl Iterator<Item = Range<u64>> {
    (0..len).step_by(60_000).map(move |begin| begin + 600..(begin + 60_000).min(len))
}

/// Fetches `data` of a sender and of a holder that a hint names. Returns the bytes that each brought.
async fn fetched(data: &[u8], sender: Holder, holder: Holder) -> (Arc<Holder>, [u64; 2]) {
    let oid = Oid::of(data);
    let (sender, holder) = (Arc::new(sender), Arc::new(holder));
    let found = Arc::clone(&holder);
    let peer = move |_: NodeId| -> Arc<dyn Source> { Arc::clone(&found) as _ };
    let node = Identity::generate().unwrap().node_id();
    let hint = Hint::new(format!("tow://{node}@127.0.0.1:1"), 0, 1).unwrap();
    let hints = watch::channel(vec![hint]).1;
    let many = Many::new(vec![Arc::clone(&sender) as _], vec![HintedNodes::new(Box::new(peer))]);
    let context = Context { root: oid, node: None, secret: None, hints };
    let session = Session::start(Single::root(Arc::new(many)), context, impatient(LIMIT));
    let target = Arc::new(Memory::default());
    session.fetch(request(oid, None, &target)).await.unwrap();
    target.expect(data);
    let by_source = session.progress().snapshot().by_source;
    let brought = [sender.name, holder.name].map(|name| by_source.get(&SourceId::other(name, None)).copied());
    (holder, brought.map(Option::unwrap_or_default))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_all_but_scattered_bytes_brings_nearly_all() {
    let data = pattern(16 * MIB, 3);
    let len = data.len() as u64;
    let sender = Holder::new("sender", &data, 1 << 20, std::iter::once(0..len));
    let (holder, brought) =
        fetched(&data, sender, Holder::new("holder", &data, 32 << 20, scattered(len))).await;
    assert!(brought[1] * 10 >= len * 8, "{brought:?}");
    assert!(!*holder.blamed.borrow());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_lies_in_its_parts_is_found_out() {
    let data = pattern(8 * MIB, 4);
    let len = data.len() as u64;
    let sender = Holder::new("sender", &data, 8 << 20, std::iter::once(0..len));
    let liar = Holder::new("liar", &data, 32 << 20, scattered(len)).liar();
    let (liar, brought) = fetched(&data, sender, liar).await;
    assert_eq!(brought, [len, 0]);
    assert!(*liar.blamed.borrow());
}
