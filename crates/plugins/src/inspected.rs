//! Chunks on their way in pass the processors of this host, wherever they come from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_transfer::source::{Backlog, Query, Sink, SourceState};
use towpath_transfer::{
    Advice, BoxFuture, Context, Delivery, Description, Metadata, ObjectFacts, Origin, Outcome, Payload, Root,
    Source, Tag, Want, WantId,
};

use towpath_protocol::processor::Object;
use towpath_protocol::processors::Processors;

/// Wraps a root. What a processor refuses ends as refused, whatever else might have it.
pub struct Inspected {
    inner: Arc<dyn Root>,
    processors: Processors,
    /// The ticket's own object is a tree's descriptor.
    is_tree: bool,
    /// The source's answer about the ticket's own object.
    root: Arc<Mutex<Option<Said>>>,
}

#[derive(Clone, Default)]
struct Said {
    name: Vec<u8>,
    metadata: Metadata,
}

impl Inspected {
    /// Lets through what `processors` do; `inner` itself if none of them looks at chunks.
    pub fn wrap(inner: Arc<dyn Root>, processors: &Processors) -> Arc<dyn Root> {
        Self::around(inner, processors, false)
    }

    /// The same for a transfer whose root is a tree's descriptor: not its bytes are looked at, but
    /// those of each file that they tell of.
    pub fn wrap_tree(inner: Arc<dyn Root>, processors: &Processors) -> Arc<dyn Root> {
        Self::around(inner, processors, true)
    }

    fn around(inner: Arc<dyn Root>, processors: &Processors, is_tree: bool) -> Arc<dyn Root> {
        match processors.inspect_any() {
            true => Arc::new(Self { inner, processors: processors.clone(), is_tree, root: Arc::default() }),
            false => inner,
        }
    }

    fn said(&self) -> Said {
        self.root.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Judges a description of the ticket's own object, and keeps what it says.
    fn described(&self, oid: &Oid, description: &Description) -> Result<(), Outcome> {
        let Description::Object { about, layout, metadata } = description else { return Ok(()) };
        let said = Said { name: about.name.clone(), metadata: metadata.clone() };
        let size = layout.map(|layout| layout.size());
        let object = Object { oid, name: &said.name, size, metadata: &said.metadata };
        self.processors.admit(&object)?;
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
        Ok(())
    }

    async fn ask(
        &self,
        query: Query,
        context: &Context,
        answers: mpsc::Sender<Description>,
    ) -> Result<(), Outcome> {
        let (oid, is_root) = (query.oid, query.coverage.is_none());
        let (passing, mut inbox) = mpsc::channel(4);
        let mut asking = self.inner.describe(query, context, passing);
        let mut end = None;
        loop {
            let answer = tokio::select! {
                biased;
                answer = inbox.recv() => answer,
                result = &mut asking, if end.is_none() => { end = Some(result); continue }
                () = answers.closed() => return Ok(()),
            };
            let Some(answer) = answer else { break };
            if is_root {
                self.described(&oid, &answer)?;
            }
            let _ = answers.send(answer).await;
        }
        match end {
            Some(result) => result,
            None => asking.await,
        }
    }
}

/// Bytes that a want is for, kept until it has ended.
struct ExpectedBytes {
    oid: Oid,
    said: Said,
    size: Option<u64>,
    offset: u64,
    len: u64,
}

impl ExpectedBytes {
    fn of(want: &Want, is_root: bool, said: &Said) -> Self {
        let (oid, offset, size) = match &want.id {
            WantId::Piece { oid, index, layout } => {
                (*oid, layout.range(*index).start, (!oid.is_live()).then(|| layout.size()))
            }
            WantId::Chunk { hash, .. } | WantId::Block { hash, .. } => {
                let offset = want.positions.first().map_or(0, |place| place.offset);
                let nameless = Origin { oid: Oid::Blake3(*hash), offset };
                let Origin { oid, offset } = want.origin.unwrap_or(nameless);
                (oid, offset, want.group.size)
            }
        };
        let path = &want.group.path;
        // A file of a copy has a path, and is no part of any root.
        let said = match (is_root, path.is_empty()) {
            (_, false) => Said { name: path.clone(), metadata: Metadata::default() },
            (true, true) => said.clone(),
            (false, true) => Said::default(),
        };
        Self { oid, said, size, offset, len: want.id.len() }
    }

    fn object(&self) -> Object<'_> {
        Object { oid: &self.oid, name: &self.said.name, size: self.size, metadata: &self.said.metadata }
    }

    fn judge(&self, processors: &Processors, payload: &Payload) -> Result<(), Outcome> {
        // A piece has at most 16 MiB.
        processors.inspect(&self.object(), self.offset, &payload.to_bytes(self.len))
    }
}

struct InspectingSink {
    inner: Arc<dyn Sink>,
    processors: Processors,
    expected: HashMap<Tag, ExpectedBytes>,
}

impl Sink for InspectingSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let judged = match self.expected.get(&delivery.tag) {
            Some(expected) => expected.judge(&self.processors, &delivery.payload),
            None => Ok(()),
        };
        match judged {
            Ok(()) => self.inner.deliver(delivery),
            Err(outcome) => {
                self.inner.outcome(delivery.tag, outcome);
                Box::pin(async {})
            }
        }
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.inner.outcome(tag, outcome);
    }

    fn backpressure(&self) -> Backlog {
        self.inner.backpressure()
    }
}

impl Root for Inspected {
    fn advise(&self, facts: &ObjectFacts<'_>) -> Advice {
        self.inner.advise(facts)
    }
}

impl Source for Inspected {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.inner)
    }

    fn state(&self) -> SourceState {
        self.inner.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(self.ask(query, context, answers))
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        let (said, mut expected) = (self.said(), HashMap::with_capacity(wants.len()));
        let mut admitted = Vec::with_capacity(wants.len());
        for want in wants {
            // Under its own name or the content that it is bound to.
            let is_root = want.group.coverage.is_none();
            let about = ExpectedBytes::of(&want, is_root, &said);
            match self.processors.admit(&about.object()) {
                Ok(()) => {
                    if !(self.is_tree && is_root) {
                        expected.insert(want.tag, about);
                    }
                    // Processors see whole pieces.
                    admitted.push(Want { part: None, ..want });
                }
                Err(outcome) => sink.outcome(want.tag, outcome),
            }
        }
        let sink = InspectingSink { inner: sink, processors: self.processors.clone(), expected };
        self.inner.get(admitted, context, Arc::new(sink))
    }
}
