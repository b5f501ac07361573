//! A source that does as it is told, and sessions that draw from it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;
use towpath_content::pieces::{Layout, PieceTree};

use super::super::*;
use super::memory::Memory;
use crate::root::{Advice, ObjectFacts, RestWay, Root};
use crate::source::{BoxFuture, Description, PathState, Query, RecipePart, Sink, Source, SourceState};
use crate::source_id::SourceId;
use crate::want::{Delivery, Payload, Proof, Tag, Want, WantId};

/// Longer than any test takes that goes well.
pub const LIMIT: Duration = Duration::from_secs(20);
pub const SOURCE: &str = "the source";

/// Action of the source on a want.
#[derive(Debug, Clone)]
pub enum Act {
    /// Does that once a number is no less than this.
    Once(watch::Receiver<usize>, usize, Box<Act>),
    /// Delivers it.
    Good,
    /// Delivers it twice.
    Twice,
    /// Delivers these bytes.
    Bytes(Vec<u8>),
    /// Delivers this without a proof.
    Bare(Payload),
    /// Delivers this, with the right proof.
    Payload(Payload),
    /// Delivers the right bytes with this proof, or none.
    WithProof(Option<Vec<u8>>),
    /// Says that it is all zeros.
    Zeros,
    /// Ends it so.
    End(Outcome),
    /// Hands over these first bytes of it, and ends it so.
    PartialPiece(Vec<u8>, Outcome),
    /// Returns without a word of it.
    Forget,
    /// Never returns.
    Hang,
}

type Script = Box<dyn Fn(&Want, u32) -> Act + Send + Sync>;
type Choice = Box<dyn Fn(&Scripted, &ObjectFacts<'_>) -> bool + Send + Sync>;
type Answers = Box<dyn Fn(&Query) -> (Vec<Description>, Result<(), Outcome>) + Send + Sync>;

/// A source with objects and a script.
pub struct Scripted {
    objects: HashMap<Oid, (Vec<u8>, PieceTree)>,
    chunks: HashMap<[u8; 32], Vec<u8>>,
    script: Script,
    answers: Option<Answers>,
    recipe: Option<Vec<RecipePart>>,
    /// Answers to the question for samples, which it wants then.
    samples: Option<Vec<Description>>,
    wants_recipe: Option<Choice>,
    likes_one_run: bool,
    chunks_at_once: bool,
    slow: bool,
    /// Called when wants are over, also when none has to be cancelled.
    on_chunks_over: Option<Box<dyn Fn() + Send + Sync>>,
    path: PathState,
    window: u64,
    name: &'static str,
    proves: bool,
    turns_bare: bool,
    /// Wants of each call.
    pub calls: Mutex<Vec<Vec<Want>>>,
    /// Questions for recipes.
    pub recipes_asked: AtomicUsize,
    pub facts: Mutex<Vec<(u64, u64)>>,
    /// Told to those who follow, as it comes.
    pub sent: watch::Sender<Vec<Description>>,
    /// Every want, in the order in which it was requested.
    pub requested: Mutex<Vec<WantId>>,
    pub blamed: Mutex<Vec<String>>,
    pub in_delivery: Arc<AtomicUsize>,
}

impl Scripted {
    pub fn new(objects: &[&[u8]]) -> Self {
        Self {
            objects: objects.iter().map(|data| (Oid::of(data), (data.to_vec(), tree(data)))).collect(),
            chunks: HashMap::new(),
            script: Box::new(|_, _| Act::Good),
            answers: None,
            recipe: None,
            samples: None,
            wants_recipe: None,
            likes_one_run: false,
            chunks_at_once: false,
            slow: false,
            on_chunks_over: None,
            path: PathState::default(),
            window: 64 << 20,
            name: SOURCE,
            proves: true,
            turns_bare: false,
            calls: Mutex::default(),
            recipes_asked: AtomicUsize::new(0),
            facts: Mutex::default(),
            sent: watch::channel(Vec::new()).0,
            requested: Mutex::default(),
            blamed: Mutex::default(),
            in_delivery: Arc::default(),
        }
    }

    /// `script` says what becomes of a want that was requested so often before.
    pub fn script(mut self, script: impl Fn(&Want, u32) -> Act + Send + Sync + 'static) -> Self {
        self.script = Box::new(script);
        self
    }

    pub fn answers(
        mut self,
        answers: impl Fn(&Query) -> (Vec<Description>, Result<(), Outcome>) + Send + Sync + 'static,
    ) -> Self {
        self.answers = Some(Box::new(answers));
        self
    }

    /// Answers questions for a recipe by these parts.
    pub fn recipe(mut self, parts: Vec<RecipePart>) -> Self {
        self.recipe = Some(parts);
        self
    }

    /// Wants samples, and answers the question for them so.
    pub fn sampled(mut self, samples: Vec<Description>) -> Self {
        self.samples = Some(samples);
        self
    }

    /// Wants recipes when `choice` says so.
    pub fn wanting_recipes(
        mut self,
        choice: impl Fn(&Scripted, &ObjectFacts<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.wants_recipe = Some(Box::new(choice));
        self
    }

    /// Likes objects as one run.
    pub fn liking_one_run(mut self) -> Self {
        self.likes_one_run = true;
        self
    }

    /// Takes chunks all at once.
    pub fn taking_all_chunks(mut self) -> Self {
        self.chunks_at_once = true;
        self
    }

    /// A round trip takes so long.
    pub fn with_round_trip(mut self, shortest: Duration) -> Self {
        self.path.shortest = shortest;
        self
    }

    /// No more than so many bytes are to be requested at once.
    pub fn with_window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// A plain copy of its objects, under this name: it knows their sizes, and proves nothing.
    pub fn bare(mut self, name: &'static str) -> Self {
        (self.name, self.proves) = (name, false);
        self
    }

    /// Says that it proves what it brings until something was requested, and then that it proves nothing: as several do that such a
    /// one joins.
    pub fn turning_bare(mut self) -> Self {
        self.turns_bare = true;
        self
    }

    /// Takes a moment for each piece.
    pub fn slowly(mut self) -> Self {
        self.slow = true;
        self
    }

    /// Calls `call` when the session has received one that came.
    pub fn on_chunks_over(mut self, call: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_chunks_over = Some(Box::new(call));
        self
    }

    pub fn chunks_asked(&self) -> usize {
        self.requested.lock().unwrap().iter().filter(|id| matches!(id, WantId::Chunk { .. })).count()
    }

    /// The same bytes under another name.
    pub fn also_as(&mut self, oid: Oid, data: &[u8]) {
        self.objects.insert(oid, (data.to_vec(), tree(data)));
    }

    pub fn chunks<'a>(mut self, chunks: impl IntoIterator<Item = &'a [u8]>) -> Self {
        self.chunks.extend(chunks.into_iter().map(|chunk| (*Oid::of(chunk).digest(), chunk.to_vec())));
        self
    }

    pub fn send(&self, description: Description) {
        self.sent.send_modify(|sent| sent.push(description));
    }

    pub fn pieces_asked(&self) -> Vec<u64> {
        let index = |id: &WantId| match id {
            WantId::Piece { index, .. } => Some(*index),
            _ => None,
        };
        let mut requested: Vec<u64> = self.requested.lock().unwrap().iter().filter_map(index).collect();
        requested.sort_unstable();
        requested
    }

    fn times_asked(&self, id: &WantId) -> u32 {
        self.requested.lock().unwrap().iter().filter(|other| *other == id).count() as u32
    }

    fn found(&self, want: &Want) -> (Vec<u8>, Option<Vec<u8>>) {
        match want.id {
            WantId::Piece { oid, layout, index } => {
                let Some((data, tree)) = self.objects.get(&oid) else { return (Vec::new(), None) };
                let range = layout.range(index);
                let range = range.start as usize..(range.end as usize).min(data.len());
                let proof = tree.proof(index..index + 1).ok().filter(|_| !oid.is_live() && self.proves);
                match &want.part {
                    Some(part) => (data[range][part.start as usize..part.end as usize].to_vec(), None),
                    None => (data[range].to_vec(), proof),
                }
            }
            WantId::Chunk { hash, .. } | WantId::Block { hash, .. } => {
                (self.chunks.get(&hash).cloned().unwrap_or_default(), None)
            }
        }
    }

    async fn serve(&self, want: Want, sink: &dyn Sink) {
        if self.slow && matches!(want.id, WantId::Piece { .. }) {
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        let before = self.times_asked(&want.id);
        self.requested.lock().unwrap().push(want.id);
        let mut act = (self.script)(&want, before);
        while let Act::Once(mut number, least, then) = act {
            number.wait_for(|number| *number >= least).await.unwrap();
            act = *then;
        }
        let here = || self.found(&want);
        match act {
            Act::Good => self.deliver(&want, here(), sink).await,
            Act::Twice => {
                self.deliver(&want, here(), sink).await;
                self.deliver(&want, here(), sink).await;
            }
            Act::Bytes(bytes) => self.deliver(&want, (bytes, here().1), sink).await,
            Act::Bare(payload) => sink.deliver(self.delivery(&want, payload, None)).await,
            Act::Payload(payload) => sink.deliver(self.delivery(&want, payload, here().1)).await,
            Act::WithProof(proof) => self.deliver(&want, (here().0, proof), sink).await,
            Act::Zeros => sink.deliver(self.delivery(&want, Payload::Zeros, here().1)).await,
            Act::End(outcome) => sink.outcome(want.tag, outcome),
            Act::PartialPiece(bytes, outcome) => {
                sink.partial_piece(self.delivery(&want, Payload::Bytes(bytes.into()), None));
                sink.outcome(want.tag, outcome);
            }
            Act::Forget => {}
            Act::Hang => std::future::pending().await,
            Act::Once(..) => unreachable!("waited for"),
        }
    }

    async fn deliver(&self, want: &Want, (bytes, proof): (Vec<u8>, Option<Vec<u8>>), sink: &dyn Sink) {
        let delivery = self.delivery(want, Payload::Bytes(bytes.into()), proof);
        self.in_delivery.fetch_add(1, Ordering::SeqCst);
        sink.deliver(delivery).await;
        self.in_delivery.fetch_sub(1, Ordering::SeqCst);
    }

    fn delivery(&self, want: &Want, payload: Payload, proof: Option<Vec<u8>>) -> Delivery {
        let run = match want.id {
            WantId::Piece { index, .. } => index..index + 1,
            _ => 0..0,
        };
        let proof = proof.map(|nodes| Arc::new(Proof { run, nodes: Bytes::from(nodes) }));
        Delivery {
            tag: want.tag,
            payload,
            proof,
            source: SourceId::other(self.name, None),
            timing: (Instant::now(), Instant::now()),
            saved: 0,
        }
    }

    fn describe(&self, query: &Query) -> (Vec<Description>, Result<(), Outcome>) {
        if query.recipe {
            self.recipes_asked.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(answers) = &self.answers {
            return answers(query);
        }
        let Some((_, tree)) = self.objects.get(&query.oid) else { return (vec![], Err(Outcome::NotHere)) };
        let mut answers = vec![Description::Object {
            about: About::default(),
            layout: Some(tree.layout()),
            metadata: crate::Metadata::default(),
        }];
        if let Some(run) = query.proofs.as_ref().filter(|_| self.proves) {
            let run = run.start..run.end.min(tree.layout().count());
            let nodes = tree.proof(run.clone()).unwrap().into();
            answers.push(Description::Proof(Proof { run, nodes }));
        }
        let parts = self.recipe.iter().flatten().filter(|_| query.recipe);
        answers.extend(parts.cloned().map(Description::Recipe));
        answers.extend(self.samples.iter().flatten().filter(|_| query.samples).cloned());
        (answers, Ok(()))
    }

    /// Sends what a test sends, until that says that the object is bound.
    async fn follow(&self, answers: &mpsc::Sender<Description>) {
        let (mut script, mut sent) = (self.sent.subscribe(), 0);
        loop {
            let all = script.borrow_and_update().clone();
            for one in &all[sent..] {
                let _ = answers.send(one.clone()).await;
                if matches!(one, Description::Live { statement, .. } if is_bound(statement)) {
                    return;
                }
            }
            sent = all.len();
            if script.changed().await.is_err() {
                return;
            }
        }
    }
}

fn is_bound(statement: &towpath_content::live::Statement) -> bool {
    matches!(statement, towpath_content::live::Statement::Bound { .. })
}

impl Root for Scripted {
    fn advise(&self, facts: &ObjectFacts<'_>) -> Advice {
        if facts.open.recipe {
            self.facts.lock().unwrap().push((facts.size, facts.missing));
        }
        let way = match () {
            () if facts.open.whole && self.likes_one_run => RestWay::Whole,
            () if facts.open.samples && self.samples.is_some() => RestWay::Samples,
            () if facts.open.recipe
                && self.wants_recipe.as_ref().is_some_and(|choice| choice(self, facts)) =>
            {
                RestWay::Recipe
            }
            () => RestWay::Pieces,
        };
        Advice { way, chunks_at_once: self.chunks_at_once }
    }
}

impl Source for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn state(&self) -> SourceState {
        let has_turned = self.turns_bare && !self.requested.lock().unwrap().is_empty();
        let proves = self.proves && !has_turned;
        SourceState { path: self.path, proves, ..SourceState::of_window(self.window) }
    }

    fn report_corrupt(&self, source: &SourceId) {
        self.blamed.lock().unwrap().push(source.to_string());
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        _context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            if query.follow && self.answers.is_none() {
                self.follow(&answers).await;
                return Ok(());
            }
            let (list, end) = self.describe(&query);
            for answer in list {
                let _ = answers.send(answer).await;
            }
            end
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.calls.lock().unwrap().push(wants.clone());
        Box::pin(async move {
            for want in wants {
                self.serve(want, &*sink).await;
            }
        })
    }

    fn cancel(&self, _tags: &[Tag]) {
        self.on_chunks_over.iter().for_each(|call| call());
    }
}

/// A source whose every question and want hangs.
pub struct Silent;

impl Source for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn state(&self) -> SourceState {
        SourceState { trouble: Some("the line is dead".into()), ..SourceState::of_window(1 << 20) }
    }

    fn describe<'a>(
        &'a self,
        _: Query,
        _: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(answers);
            Ok(())
        })
    }

    fn get<'a>(&'a self, _: Vec<Want>, _: &'a Context, _: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }
}

pub fn tree(data: &[u8]) -> PieceTree {
    let layout = Layout::of(data.len() as u64).unwrap();
    let value = |index| {
        let range = layout.range(index);
        layout.value(index, &data[range.start as usize..range.end as usize])
    };
    PieceTree::new(layout, (0..layout.count()).map(value).collect()).unwrap()
}

pub fn context(root: Oid) -> Context {
    Context { root, node: None, secret: None, hints: watch::channel(Vec::new()).1 }
}

/// A short wait limit and few retries.
pub fn config() -> SessionConfig {
    let ledger = LedgerConfig { max_bad: 3, wait_limit: Duration::from_secs(3) };
    SessionConfig { ledger, workers: 2, ..SessionConfig::default() }
}

pub fn session(source: &Arc<Scripted>) -> Session {
    Session::start(source.clone(), context(Oid::of(b"")), config())
}

pub fn request(oid: Oid, target: &Arc<Memory>) -> ObjectRequest {
    ObjectRequest { oid, size: None, group: Arc::default(), target: target.clone(), recipe: None }
}

/// Fetches one object; panics if that takes too long.
pub async fn fetch(session: &Session, request: ObjectRequest) -> Result<Fetched, FetchError> {
    tokio::time::timeout(LIMIT, session.fetch(request)).await.expect("the session hangs")
}

/// Fetches `data` from `source`, and expects it to be there.
pub async fn fetch_good(source: Scripted, data: &[u8]) -> Arc<Scripted> {
    let (source, target) = (Arc::new(source), Memory::new());
    let fetched = fetch(&session(&source), request(Oid::of(data), &target)).await.unwrap();
    assert_eq!((fetched.oid, fetched.size), (Oid::of(data), data.len() as u64));
    target.expect(data);
    source
}

/// Fetches `data` from `source` and expects an error; returns its words.
pub async fn fetch_bad(source: Scripted, data: &[u8]) -> String {
    let (source, target) = (Arc::new(source), Memory::new());
    let error = fetch(&session(&source), request(Oid::of(data), &target)).await.unwrap_err();
    target.expect_incomplete();
    error.to_string()
}

/// Waits until `condition` holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}
