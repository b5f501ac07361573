//! A source over one object: how fast it is, what it has, and whether it keeps its word.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use towpath_content::Oid;
use towpath_content::pieces::{Layout, PieceTree};
use towpath_store::About;
use towpath_transfer::intervals::Intervals;
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::want::Proof;
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Outcome, Payload, Source, SourceId, Tag, Want, WantId,
};

use crate::support::Line;

/// What a source does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Brings what it is asked for.
    Honest,
    /// Brings so many wants and then nothing more.
    Stalls(u64),
    /// Brings other bytes.
    Lies,
    /// Brings what it is asked for, without proofs, and tells no values.
    Bare,
    /// The same, and brings other bytes.
    BareLies,
    /// Tells values, and brings nothing.
    Tells,
    /// Has nothing.
    Empty,
}

/// A source over one object, of so many bytes a second.
pub struct Mannered {
    pub name: &'static str,
    data: Vec<u8>,
    tree: PieceTree,
    manner: Manner,
    /// Bytes that it has.
    has: Intervals,
    /// Wants that it brought.
    pub brought: watch::Sender<u64>,
    /// It was said to have brought what is wrong.
    pub blamed: watch::Sender<bool>,
    /// Wants that it need not bring.
    cancelled: watch::Sender<HashSet<Tag>>,
    line: Line,
}

impl Mannered {
    /// One that has all of `data`.
    pub fn new(name: &'static str, data: &[u8], rate: u64, manner: Manner) -> Arc<Self> {
        Self::with(name, data, rate, manner, std::iter::once(0..data.len() as u64))
    }

    /// One that has these stretches of `data`.
    pub fn with(
        name: &'static str,
        data: &[u8],
        rate: u64,
        manner: Manner,
        stretches: impl Iterator<Item = Range<u64>>,
    ) -> Arc<Self> {
        let layout = Layout::of(data.len() as u64).unwrap();
        let value = |index| layout.value(index, &data[range(&layout, index)]);
        let tree = PieceTree::new(layout, (0..layout.count()).map(value).collect()).unwrap();
        let data = data.to_vec();
        let mut has = Intervals::default();
        stretches.for_each(|stretch| has.insert(stretch));
        let (brought, blamed, line) = (watch::Sender::new(0), watch::Sender::new(false), Line::new(rate));
        let cancelled = watch::Sender::default();
        Arc::new(Self { name, data, tree, manner, has, brought, blamed, cancelled, line })
    }

    fn proves(&self) -> bool {
        !matches!(self.manner, Manner::Bare | Manner::BareLies)
    }

    fn has_all(&self) -> bool {
        self.has.covers(&(0..self.data.len() as u64))
    }

    async fn bring(&self, want: &Want, sink: &Arc<dyn Sink>) {
        let WantId::Piece { layout, index, .. } = want.id else { panic!("only pieces are wanted") };
        let (asked, mut wanted) = (Instant::now(), layout.range(index));
        if let Some(part) = &want.part {
            wanted = wanted.start + part.start..wanted.start + part.end;
        }
        if !self.has.covers(&wanted) {
            assert!(want.undivided, "{} was asked for {wanted:?}, which it lacks", self.name);
            return sink.outcome(want.tag, Outcome::NotHere);
        }
        let mut bytes = self.data[wanted.start as usize..wanted.end as usize].to_vec();
        let mut cancelled = self.cancelled.subscribe();
        let is_cancelled = tokio::select! {
            () = self.line.carry(bytes.len()) => false,
            _ = cancelled.wait_for(|tags| tags.contains(&want.tag)) => true,
        };
        // Only here, where nothing is locked any more: whoever hears of it may cancel others.
        if is_cancelled {
            return sink.outcome(want.tag, Outcome::Cancelled);
        }
        match self.manner {
            Manner::Empty | Manner::Tells => return sink.outcome(want.tag, Outcome::NotHere),
            Manner::Stalls(most) if *self.brought.borrow() >= most => {
                return std::future::pending().await;
            }
            Manner::Lies | Manner::BareLies => bytes.iter_mut().for_each(|byte| *byte ^= 1),
            Manner::Honest | Manner::Bare | Manner::Stalls(_) => {}
        }
        self.brought.send_modify(|brought| *brought += 1);
        let nodes = self.tree.proof(index..index + 1).unwrap().into();
        let has_proof = self.proves() && want.part.is_none();
        let proof = has_proof.then(|| Arc::new(Proof { run: index..index + 1, nodes }));
        let (payload, source) = (Payload::Bytes(bytes.into()), SourceId::other(self.name, None));
        let timing = (asked, Instant::now());
        sink.deliver(Delivery { tag: want.tag, payload, proof, source, timing, saved: 0 }).await;
    }
}

impl Source for Mannered {
    fn name(&self) -> &str {
        self.name
    }

    fn state(&self) -> SourceState {
        SourceState { proves: self.proves(), ..SourceState::of_window(1 << 20) }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        _context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            if self.manner == Manner::Empty {
                return Err(Outcome::NotHere);
            }
            let (about, layout) = (About::default(), Some(self.tree.layout()));
            let described = Description::Object { about, layout, metadata: Default::default() };
            answers.send(described).await.map_err(|_| Outcome::Cancelled)?;
            if let Some(run) = query.proofs.filter(|_| self.proves() && self.has_all()) {
                let nodes = self.tree.proof(run.clone()).map_err(|_| Outcome::NotHere)?.into();
                let _ = answers.send(Description::Proof(Proof { run, nodes })).await;
            }
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        // A tag may be used again.
        self.cancelled.send_modify(|tags| tags.retain(|tag| wants.iter().all(|want| want.tag != *tag)));
        Box::pin(async move {
            for want in wants {
                self.bring(&want, &sink).await;
            }
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        self.cancelled.send_modify(|cancelled| cancelled.extend(tags));
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

fn range(layout: &Layout, index: u64) -> Range<usize> {
    let range = layout.range(index);
    range.start as usize..range.end as usize
}
