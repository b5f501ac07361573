//! Files from a sender at the other end of a connection: it is asked for their names, and their
//! bytes come through a transfer session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use towpath_api::ApiError;
use towpath_content::Oid;
use towpath_content::tree::Time;
use towpath_plugins::direct::{ControlClosed, ControlSender};
use towpath_plugins::processor::Processors;
use towpath_transfer::progress::Progress;
use towpath_transfer::session::OnDone;
use towpath_transfer::{FetchError, Fetched, Group, ObjectRequest, Session, Target};

use super::file::CopyFile;
use super::message::{Answer, Asks, Message, Settled, Unchanged, violation};
use super::renames::MAX_WAITING;
use super::sender::hung_up;
use super::supply::{Fate, Supplier};
use crate::lock::lock;

/// Files asked for in one message.
const TOGETHER: usize = 128;
/// Files of at most so many bytes come with the answer, which saves a question, two look-ups in
/// indexes and a second reading for each.
const INLINE: u32 = 64 << 10;
/// How long news of files that are done with wait for more.
const GATHER: Duration = Duration::from_millis(20);

/// Asks a sender, and hands its answers to a session.
pub struct RemoteSupplier {
    control: ControlSender,
    runtime: Handle,
    /// Files asked for and not answered.
    asked: Mutex<HashMap<u64, Arc<CopyFile>>>,
    next: Mutex<Asks>,
    session: Weak<Session>,
    progress: Progress,
    /// What the sender is called where bytes are counted.
    source: Arc<str>,
    /// See [`Asks::inline`].
    inline: u32,
    /// What files pass.
    processors: Processors,
    /// Files that may have been renamed, until the walk is over.
    held: Mutex<Option<Vec<Held>>>,
    done: mpsc::UnboundedSender<Done>,
}

/// A file with the name of its content.
type Held = (Arc<CopyFile>, Oid);

/// What is on its way to the sender.
enum Done {
    /// A file is done with.
    Settled(u64, Fate),
    /// All entries below this one were looked at. After what was settled: the sender forgets them.
    Considered(u64),
    /// Everything before this was told.
    Flushed(oneshot::Sender<()>),
}

impl RemoteSupplier {
    /// Speaks over `control` and fetches by `session`. With `compress` all bytes are fetched, as the
    /// control stream is not compressed. What comes besides the session passes `processors`. Must be
    /// made within a runtime.
    pub fn new(
        control: ControlSender,
        session: &Arc<Session>,
        compress: bool,
        processors: &Processors,
    ) -> Arc<Self> {
        let (done, settled) = mpsc::unbounded_channel();
        tokio::spawn(tell_settled(control.clone(), settled));
        Arc::new(Self {
            control,
            runtime: Handle::current(),
            asked: Mutex::default(),
            next: Mutex::default(),
            session: Arc::downgrade(session),
            progress: session.progress(),
            source: "sender".into(),
            inline: if compress { 0 } else { INLINE },
            processors: processors.clone(),
            held: Mutex::new(Some(Vec::new())),
            done,
        })
    }

    fn say(&self, message: Message) -> Result<(), ApiError> {
        self.runtime.block_on(self.control.send(message.into_bytes())).map_err(|_| hung_up())
    }

    /// Waits until the sender was told of all files that are done with.
    pub async fn flush(&self) {
        let (end, flushed) = oneshot::channel();
        if self.done.send(Done::Flushed(end)).is_ok() {
            let _ = flushed.await;
        }
    }

    /// Takes a sender's answers, those with contents on all cores. Blocks while the session is busy.
    pub fn answered_all(&self, answers: Vec<Answer>) -> Result<(), ApiError> {
        let (whole, named): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| !answer.content.is_empty());
        whole.par_iter().with_max_len(4).try_for_each(|answer| self.answered(answer))?;
        named.iter().try_for_each(|answer| self.answered(answer))
    }

    fn answered(&self, answer: &Answer) -> Result<(), ApiError> {
        let file = lock(&self.asked).remove(&answer.entry);
        let file = file.ok_or_else(|| violation("an answer to nothing"))?;
        if answer.oid.is_empty() {
            file.drop_it();
            return Ok(());
        }
        let oid = Oid::from_bytes(&answer.oid).map_err(|error| violation(&error.to_string()))?;
        if answer.nanos >= 1_000_000_000 {
            return Err(violation("a time that is none"));
        }
        file.learn(answer.size, Time { seconds: answer.seconds, nanos: answer.nanos });
        file.set_sparse(answer.is_sparse);
        if file.wanted().compare.is_some() {
            if file.is_there(&oid) {
                file.is_same();
                return Ok(());
            }
            if !file.is_different() {
                return Ok(());
            }
        }
        if let Err(outcome) = file.passes(&self.processors, &oid, 0, &answer.content) {
            file.ended(&FetchError::Ended(outcome));
            return Ok(());
        }
        if answer.size == 0 {
            file.make_empty();
            return Ok(());
        }
        if !answer.content.is_empty() {
            self.take_content(&file, &oid, &answer.content);
            return Ok(());
        }
        if let Some(file) = self.hold(file, oid) {
            self.fetch(file, oid);
        }
        Ok(())
    }

    fn take_content(&self, file: &CopyFile, oid: &Oid, content: &[u8]) {
        let bytes = content.len() as u64;
        self.progress.with(|progress| progress.expected += file.size());
        if file.take_content(oid, content, &self.source) {
            self.progress.brought(&self.source, bytes);
            self.progress.with(|progress| progress.objects += 1);
        }
    }

    /// Keeps a file that may have been renamed until it is known what only the destination has.
    fn hold(&self, file: Arc<CopyFile>, oid: Oid) -> Option<Arc<CopyFile>> {
        let mut held = lock(&self.held);
        match &mut *held {
            Some(held) if file.may_be_renamed() && !oid.is_live() && held.len() < MAX_WAITING => {
                held.push((file, oid));
                None
            }
            _ => Some(file),
        }
    }

    fn fetch(&self, file: Arc<CopyFile>, oid: Oid) {
        let Some(session) = self.session.upgrade() else { return file.drop_it() };
        if file.may_be_renamed() {
            file.look_for_old_name(&oid);
        }
        let group = Arc::new(Group {
            path: file.wanted().shown.clone(),
            size: Some(file.size()),
            modified: Some(file.wanted().metadata.modified),
            destination: file.destination(),
            coverage: None,
        });
        let request = ObjectRequest {
            oid,
            size: (!oid.is_live()).then(|| file.size()),
            group,
            target: Arc::clone(&file) as Arc<dyn Target>,
            recipe: None,
        };
        let on_done: OnDone = Box::new(move |result: Result<Fetched, FetchError>| {
            if let Err(error) = result {
                file.ended(&error);
            }
        });
        self.runtime.block_on(session.submit(request, on_done));
    }
}

impl Supplier for RemoteSupplier {
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), ApiError> {
        let entry = file.wanted().entry;
        let compare = file.wanted().compare.is_some() || file.may_be_renamed();
        lock(&self.asked).insert(entry, file);
        let count = {
            let mut next = lock(&self.next);
            if compare {
                next.compare.push(entry)
            } else {
                next.entries.push(entry)
            }
            next.compare.len() + next.entries.len()
        };
        if count >= TOGETHER { self.push() } else { Ok(()) }
    }

    fn inspects(&self) -> bool {
        self.processors.inspect_any()
    }

    fn considered(&self, entry: u64) -> Result<(), ApiError> {
        // What was asked for before must not be forgotten by the sender.
        self.push()?;
        self.done.send(Done::Considered(entry)).map_err(|_| hung_up())
    }

    fn settled(&self, entry: u64, fate: Fate) {
        let _ = self.done.send(Done::Settled(entry, fate));
    }

    fn walk_is_over(&self) -> Result<(), ApiError> {
        let held = lock(&self.held).take();
        held.into_iter().flatten().for_each(|(file, oid)| self.fetch(file, oid));
        Ok(())
    }

    fn push(&self) -> Result<(), ApiError> {
        let asks = std::mem::take(&mut *lock(&self.next));
        if asks.entries.is_empty() && asks.compare.is_empty() {
            return Ok(());
        }
        self.say(Message::Asks(Asks { inline: self.inline, ..asks }))
    }
}

/// Tells the sender which files are done with, many at a time: nobody waits for that news but for
/// how far the tree was considered.
async fn tell_settled(control: ControlSender, mut done: mpsc::UnboundedReceiver<Done>) {
    while let Some(first) = done.recv().await {
        let mut told = Told::default();
        told.add(first);
        let gathering = async {
            while !told.is_urgent()
                && let Some(next) = done.recv().await
            {
                told.add(next);
            }
        };
        let _ = tokio::time::timeout(GATHER, gathering).await;
        if told.say(&control).await.is_err() {
            return;
        }
    }
}

/// What is to be told.
#[derive(Default)]
struct Told {
    settled: Settled,
    count: usize,
    considered: Option<u64>,
    flushed: Option<oneshot::Sender<()>>,
}

impl Told {
    fn add(&mut self, done: Done) {
        match done {
            Done::Settled(entry, fate) => add(&mut self.settled, entry, fate),
            Done::Considered(entry) => self.considered = Some(entry),
            Done::Flushed(end) => self.flushed = Some(end),
        }
        self.count += 1;
    }

    const fn is_urgent(&self) -> bool {
        self.count >= TOGETHER * 8 || self.considered.is_some() || self.flushed.is_some()
    }

    async fn say(self, control: &ControlSender) -> Result<(), ControlClosed> {
        if self.settled != Settled::default() {
            control.send(Message::Settled(self.settled).into_bytes()).await?;
        }
        if let Some(entry) = self.considered {
            control.send(Message::Considered(entry).into_bytes()).await?;
        }
        if let Some(end) = self.flushed {
            let _ = end.send(());
        }
        Ok(())
    }
}

fn add(message: &mut Settled, entry: u64, fate: Fate) {
    match fate {
        Fate::Placed => message.placed.push(entry),
        Fate::Dropped => message.dropped.push(entry),
        Fate::Lost => message.lost.push(entry),
        Fate::Unchanged(stamp) => message.unchanged.push(Unchanged {
            entry,
            inode: stamp.inode,
            seconds: stamp.changed.seconds,
            nanos: stamp.changed.nanos,
        }),
    }
}
