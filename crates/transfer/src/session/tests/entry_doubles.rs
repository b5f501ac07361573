//! An offer that does as it is told, targets that note what they get, and a bench for both.

use bytes::Bytes;
use tokio::sync::mpsc::error::TryRecvError;
use towpath_content::delta::exchange::{Base, DeltaRun, DeltaStep, NextSignature, Reply, Request, StepOf};
use towpath_content::tree::Time;

use super::*;
use crate::offer::{EntryBody, EntryContent, EntryQuery, EntrySink, EntryWant, SignatureWay};
use crate::root::Root;
use crate::session::{EntryNext, EntryTarget};
use crate::source::BoxFuture;
use crate::want::Tag;

/// Hands each call to the test.
pub struct Offers(mpsc::UnboundedSender<Call>);

pub struct Call {
    pub wants: Vec<EntryWant>,
    pub sink: Arc<dyn EntrySink>,
    pub end: oneshot::Sender<Vec<EntryWant>>,
}

impl OfferSource for Offers {
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>> {
        Box::pin(async move {
            let (end, ended) = oneshot::channel();
            drop(self.0.send(Call { wants, sink, end }));
            ended.await.unwrap_or_default()
        })
    }
}

impl Call {
    pub fn entries(&self) -> Vec<u64> {
        self.wants.iter().map(|want| want.query.entry).collect()
    }

    pub fn tags(&self) -> Vec<Tag> {
        self.wants.iter().map(|want| want.tag).collect()
    }

    /// Hands over a content of this size for want `at`.
    pub async fn content(&self, at: usize, size: u64, body: EntryBody) {
        self.sink.contents(vec![(self.wants[at].tag, content(size, body))], 0).await;
    }

    pub async fn run(&self, at: usize, run: &DeltaRun<'_>) {
        self.sink.run(self.wants[at].tag, run.to_bytes().into()).await;
    }

    pub fn outcome(&self, at: usize, outcome: Outcome) {
        self.sink.outcome(self.wants[at].tag, outcome);
    }

    /// All were asked for; returns where their signatures come out.
    pub fn asked(&self) -> Signatures {
        let (way, signatures) = mpsc::unbounded_channel();
        self.sink.asked(&self.tags(), Arc::new(Way(way)));
        signatures
    }
}

pub type Signatures = mpsc::UnboundedReceiver<(Tag, NextSignature)>;

pub async fn signature(signatures: &mut Signatures) -> (Tag, NextSignature) {
    tokio::time::timeout(LIMIT, signatures.recv()).await.expect("no signature").unwrap()
}

struct Way(mpsc::UnboundedSender<(Tag, NextSignature)>);

impl SignatureWay for Way {
    fn send(&self, tag: Tag, signature: &NextSignature) {
        let _ = self.0.send((tag, signature.clone()));
    }
}

/// What a target got.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    Asked,
    /// A content of this size.
    Content(u64),
    Run(Bytes),
    Ended(Outcome),
}

type Script = Box<dyn FnMut(&Came, &mut dyn FnMut(&NextSignature)) -> EntryNext + Send>;

/// Notes what comes, and does as it is told.
struct Noted {
    entry: u64,
    notes: mpsc::UnboundedSender<(u64, Came)>,
    script: Script,
}

impl Noted {
    fn take(&mut self, came: Came, send: &mut dyn FnMut(&NextSignature)) -> EntryNext {
        let next = (self.script)(&came, send);
        let _ = self.notes.send((self.entry, came));
        next
    }
}

impl EntryTarget for Noted {
    fn asked(&mut self, send: &mut dyn FnMut(&NextSignature)) {
        self.take(Came::Asked, send);
    }

    fn content(&mut self, content: EntryContent) -> EntryNext {
        self.take(Came::Content(content.size), &mut |_| ())
    }

    fn run(&mut self, run: Bytes, send: &mut dyn FnMut(&NextSignature)) -> EntryNext {
        self.take(Came::Run(run), send)
    }

    fn ended(&mut self, outcome: Outcome) -> EntryNext {
        self.take(Came::Ended(outcome), &mut |_| ())
    }
}

/// A session with what its source is asked and its targets get.
pub struct Bench {
    pub session: Session,
    pub calls: mpsc::UnboundedReceiver<Call>,
    pub came: mpsc::UnboundedReceiver<(u64, Came)>,
    pub notes: mpsc::UnboundedSender<(u64, Came)>,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(Arc::new(Scripted::new(&[])), config())
    }

    pub fn with(root: Arc<dyn Root>, config: SessionConfig) -> Self {
        let ((call, calls), (notes, came)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let context = context(Oid::of(b""));
        let session = Session::start_with_offers(root, Arc::new(Offers(call)), context, config);
        Self { session, calls, came, notes }
    }

    pub fn request(
        &self,
        query: EntryQuery,
        script: impl FnMut(&Came, &mut dyn FnMut(&NextSignature)) -> EntryNext + Send + 'static,
    ) -> EntryRequest {
        let (entry, notes) = (query.entry, self.notes.clone());
        EntryRequest { query, target: Box::new(Noted { entry, notes, script: Box::new(script) }) }
    }

    /// Entries that are over when something came.
    pub async fn submit(&self, queries: impl IntoIterator<Item = EntryQuery>) {
        let requests = queries.into_iter().map(|query| self.request(query, |_, _| EntryNext::Over));
        self.session.submit_entries(requests.collect()).await;
    }

    pub async fn call(&mut self) -> Call {
        tokio::time::timeout(LIMIT, self.calls.recv()).await.expect("no call").unwrap()
    }

    pub fn expect_no_call(&mut self) {
        assert!(matches!(self.calls.try_recv(), Err(TryRecvError::Empty)), "another call");
    }

    pub async fn came(&mut self) -> (u64, Came) {
        tokio::time::timeout(LIMIT, self.came.recv()).await.expect("nothing comes").unwrap()
    }

    pub async fn expect(&mut self, entry: u64, came: Came) {
        assert_eq!(self.came().await, (entry, came));
    }
}

pub fn query(entry: u64) -> EntryQuery {
    EntryQuery { entry, compare: false, inline: 100, pack: 0, base: None }
}

pub fn based(entry: u64, base: Base) -> EntryQuery {
    EntryQuery { base: Some(Request { base, is_guess: false, outlines: 0 }), ..query(entry) }
}

pub fn in_parts() -> EntryBody {
    EntryBody::Delta(Reply::InParts)
}

pub fn content(size: u64, body: EntryBody) -> EntryContent {
    EntryContent { oid: None, size, modified: Time::default(), is_sparse: false, body }
}

/// A run that wants two signatures.
pub const WANTS_TWO: DeltaRun<'_> = DeltaRun::Last(
    DeltaStep::Outline { of: StepOf::NextPart { wants_signature: true }, further: 0 },
    b"outline",
);
