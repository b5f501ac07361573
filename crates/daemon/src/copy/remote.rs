//! Files from a sender at the other end of a connection: it is asked for their names, and their
//! bytes come through a transfer session.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use towpath_api::ApiError;
use towpath_content::Oid;
use towpath_content::tree::Time;
use towpath_plugins::direct::{ControlClosed, ControlSender};
use towpath_plugins::local::SOURCE as LOCAL;
use towpath_plugins::processor::Processors;
use towpath_transfer::progress::Progress;
use towpath_transfer::session::OnDone;
use towpath_transfer::{FetchError, Fetched, Group, ObjectRequest, Session, Target};

use super::changed::Changed;
use super::file::CopyFile;
use super::incoming::{Incoming, Taken};
use super::lookalikes::Lookalikes;
use super::message::{Answer, Asks, Base, Bases, Delta, Finer, Message, Settled, Unchanged, violation};
use super::renames::MAX_WAITING;
use super::sender::hung_up;
use super::supply::{Fate, Supplier};
use crate::lock::lock;

/// Files asked for in one message.
const TOGETHER: usize = 128;
/// Files of at most so many bytes come with the answer, which saves a question, two look-ups in
/// indexes and a second reading for each.
const INLINE: u32 = 64 << 10;
/// Bytes of signatures in one message, and what each takes besides, at most.
const BASES_BYTES: usize = 192 << 10;
const BASE_COST: usize = 24;
/// How long news of files that are done with wait for more: so often it is looked whether something urgent came,
/// which takes less than being woken for each.
const GATHER: Duration = Duration::from_millis(2);
const GATHERED: u32 = 10;

/// Asks a sender, and hands its answers to a session.
pub struct RemoteSupplier {
    control: ControlSender,
    runtime: Handle,
    /// Files asked for and not answered; `None` once the copy is over. They lead back to this, so none may
    /// stay then.
    asked: Mutex<Option<HashMap<u64, Arc<CopyFile>>>>,
    /// Those of which an answer that was said once more came first: the other one may still be on its way
    /// through another thread.
    overtaken: Mutex<HashSet<u64>>,
    next: Mutex<Asks>,
    session: Weak<Session>,
    progress: Progress,
    /// What the sender is called where bytes are counted.
    source: Arc<str>,
    /// All that can be compressed is to be.
    compress: bool,
    changed: Changed,
    lookalikes: Lookalikes,
    /// A file that comes in parts: the sender sends one after the other.
    incoming: Mutex<Option<Incoming>>,
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
    /// Speaks over `control` and fetches by `session`. With `compress` all bytes are fetched if the sender
    /// can't pack what it says. What comes besides the session passes `processors`. Must be made within
    /// a runtime.
    pub fn new(
        control: ControlSender,
        session: &Arc<Session>,
        compress: bool,
        changed: Changed,
        lookalikes: Lookalikes,
        processors: &Processors,
    ) -> Arc<Self> {
        let (done, settled) = mpsc::unbounded_channel();
        tokio::spawn(tell_settled(control.clone(), settled));
        Arc::new(Self {
            control,
            runtime: Handle::current(),
            asked: Mutex::new(Some(HashMap::new())),
            overtaken: Mutex::default(),
            next: Mutex::default(),
            session: Arc::downgrade(session),
            progress: session.progress(),
            source: "sender".into(),
            compress,
            changed,
            lookalikes,
            incoming: Mutex::default(),
            processors: processors.clone(),
            held: Mutex::new(Some(Vec::new())),
            done,
        })
    }

    fn say(&self, message: Message) -> Result<(), ApiError> {
        self.runtime.block_on(self.control.send(message.into_bytes())).map_err(|_| hung_up())
    }

    /// Files that are about to be asked for.
    fn files(&self, entries: &[u64]) -> Vec<(u64, Arc<CopyFile>)> {
        let asked = lock(&self.asked);
        let file = |entry: &u64| Some((*entry, Arc::clone(asked.as_ref()?.get(entry)?)));
        entries.iter().filter_map(file).collect()
    }

    /// Files whose bytes may be here under other names are asked for by the names of their contents.
    fn find_lookalikes(&self, asks: &mut Asks) {
        let files = self.files(&[&asks.entries[..], &asks.compare].concat());
        let (files, sought): (Vec<_>, Vec<_>) =
            files.iter().filter_map(|(entry, file)| Some(((*entry, file), file.sought()?))).unzip();
        let Some(root) = files.first().and_then(|(_, file)| file.root()) else { return };
        let found = self.lookalikes.find(root, self.changed.network(), &sought);
        let mut alike = Vec::new();
        for ((entry, file), found) in files.into_iter().zip(found) {
            if let Some(found) = found {
                file.set_lookalike(found);
                alike.push(entry);
            }
        }
        asks.compare.retain(|entry| !alike.contains(entry));
        asks.entries.retain(|entry| !alike.contains(entry));
        asks.compare.extend(alike);
    }

    /// Tells the sender what lies in the place of files that are about to be asked for.
    fn say_bases(&self, entries: &[u64], must_sign: bool) -> Result<(), ApiError> {
        let files = self.files(entries);
        let (mut bases, mut bytes) = (Vec::new(), 0);
        for base in self.changed.sign(&files, must_sign) {
            if base.signatures.is_empty() {
                // Files asked for together are so few that their names fit.
                bases.push(base);
                continue;
            }
            for signature in base.signatures {
                if bytes + signature.len() + BASE_COST > BASES_BYTES {
                    self.say(Message::Bases(Bases { bases: std::mem::take(&mut bases) }))?;
                    bytes = 0;
                }
                bytes += signature.len() + BASE_COST;
                bases.push(Base { entry: base.entry, signatures: vec![signature], ..Base::default() });
            }
        }
        if bases.is_empty() { Ok(()) } else { self.say(Message::Bases(Bases { bases })) }
    }

    /// The copy is over, however it ended: nothing is asked for any more.
    pub fn end(&self) {
        *lock(&self.asked) = None;
        *lock(&self.held) = None;
        *lock(&self.incoming) = None;
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
        let (lacking, named): (Vec<_>, Vec<_>) = named.into_iter().partition(|answer| answer.lacks_base);
        named.iter().try_for_each(|answer| self.answered(answer))?;
        self.ask_again(lacking.iter().map(|answer| answer.entry).collect())
    }

    /// The sender does not have what lies in the place of these files.
    fn ask_again(&self, entries: Vec<u64>) -> Result<(), ApiError> {
        for entry in &entries {
            let is_asked = lock(&self.asked).as_ref().is_some_and(|asked| asked.contains_key(entry));
            if self.changed.answered(*entry).is_none() || !is_asked {
                return Err(violation("a base that nobody named is lacking"));
            }
            self.changed.named(false);
        }
        for entries in entries.chunks(TOGETHER) {
            self.ask(Asks { entries: entries.to_vec(), ..Asks::default() }, true)?;
        }
        Ok(())
    }

    /// Asks for files, after telling what lies in their places.
    fn ask(&self, asks: Asks, must_sign: bool) -> Result<(), ApiError> {
        self.say_bases(&asks.entries, must_sign)?;
        let pack = self.changed.pack_level(self.compress);
        let inline = if self.compress && pack == 0 { 0 } else { INLINE };
        let takes_outlines = self.changed.takes_outlines();
        self.say(Message::Asks(Asks { inline, pack, takes_outlines, ..asks }))
    }

    /// Takes one answer. Blocks while the session is busy.
    pub fn answered(&self, answer: &Answer) -> Result<(), ApiError> {
        let Some(file) = self.take_asked(answer)? else { return Ok(()) };
        let told = self.changed.answered(answer.entry);
        let is_delta = answer.is_delta || answer.is_patch || answer.is_same || answer.parts > 0;
        if is_delta && told.is_none() {
            return Err(violation("a delta of nothing"));
        }
        let base = told.and_then(|told| told.oid).filter(|_| answer.is_same);
        if answer.oid.is_empty() && base.is_none() {
            file.drop_it();
            return Ok(());
        }
        let oid = match base {
            Some(oid) => oid,
            None => Oid::from_bytes(&answer.oid).map_err(|error| violation(&error.to_string()))?,
        };
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
        let content = if is_delta { &[][..] } else { &answer.content };
        if let Err(outcome) = file.passes(&self.processors, &oid, 0, content) {
            file.ended(&FetchError::Ended(outcome));
            return Ok(());
        }
        if is_delta {
            return self.begin_delta(file, oid, answer);
        }
        if answer.size == 0 {
            file.make_empty();
            return Ok(());
        }
        if !answer.content.is_empty() {
            self.take_content(&file, &oid, &answer.content);
            return Ok(());
        }
        if let Some(file) = self.take_lookalike(file, oid).and_then(|file| self.hold(file, oid)) {
            self.fetch(file, oid);
        }
        Ok(())
    }

    /// The file that is answered; none if it was before, as may be of one that was said once more.
    fn take_asked(&self, answer: &Answer) -> Result<Option<Arc<CopyFile>>, ApiError> {
        let mut asked = lock(&self.asked);
        let mut overtaken = lock(&self.overtaken);
        match asked.as_mut().and_then(|asked| asked.remove(&answer.entry)) {
            Some(file) => {
                if answer.is_again {
                    overtaken.insert(answer.entry);
                }
                Ok(Some(file))
            }
            None if answer.is_again || overtaken.remove(&answer.entry) => Ok(None),
            None => Err(violation("an answer to nothing")),
        }
    }

    /// Makes a file of one that lies elsewhere in the destination; returned if it is not that.
    fn take_lookalike(&self, file: Arc<CopyFile>, oid: Oid) -> Option<Arc<CopyFile>> {
        if !file.has_lookalike() {
            return Some(file);
        }
        let taken = file.take_lookalike(&oid);
        self.lookalikes.proved(matches!(taken, Ok(true)));
        match taken {
            Ok(false) => return Some(file),
            Ok(true) => {
                self.progress.with(|progress| {
                    progress.expected += file.size();
                    progress.objects += 1;
                });
                self.progress.brought(&LOCAL.into(), file.size());
            }
            Err(error) => file.fail(&error),
        }
        None
    }

    fn take_content(&self, file: &CopyFile, oid: &Oid, content: &[u8]) {
        let bytes = content.len() as u64;
        self.progress.with(|progress| progress.expected += file.size());
        if file.take_content(oid, content, &self.source) {
            self.progress.brought(&self.source, bytes);
            self.progress.with(|progress| progress.objects += 1);
        }
    }

    /// A file comes as a delta, or several.
    fn begin_delta(&self, file: Arc<CopyFile>, oid: Oid, answer: &Answer) -> Result<(), ApiError> {
        if answer.is_same || answer.is_patch {
            self.changed.named(true);
        }
        if answer.is_same {
            self.take_base(file, oid);
            return Ok(());
        }
        if answer.parts > 0 {
            let begun = self.changed.begin(Arc::clone(&file), oid, answer.parts, answer.is_patch)?;
            let Some(incoming) = begun else {
                // The sender goes on: what it sends of this file is passed over.
                self.fetch(file, oid);
                return Ok(());
            };
            if !self.opens(&file) {
                return Ok(());
            }
            return match lock(&self.incoming).replace(incoming) {
                None => Ok(()),
                Some(_) => Err(violation("a file before another one is complete")),
            };
        }
        let made = match answer.is_patch {
            true => self.changed.patched(&file, &answer.content),
            false => self.changed.whole(&file, &answer.content),
        };
        let Some(content) = made else {
            self.fetch(file, oid);
            return Ok(());
        };
        if self.opens(&file) && self.take_part(&file, &oid, 0, &content, answer.content.len() as u64) {
            self.finish_delta(file, oid);
        }
        Ok(())
    }

    /// Makes room for a file's parts; false: the file has ended.
    fn opens(&self, file: &CopyFile) -> bool {
        if let Err(error) = file.begin_parts() {
            file.fail(&error);
            return false;
        }
        self.progress.with(|progress| progress.expected += file.size());
        true
    }

    /// A file is what lies in its place, but for its metadata.
    fn take_base(&self, file: Arc<CopyFile>, oid: Oid) {
        let taken = file.begin_parts().and_then(|()| file.take_base());
        if let Err(error) = taken {
            file.drop_parts();
            return file.fail(&error);
        }
        self.progress.with(|progress| progress.expected += file.size());
        self.progress.brought(&LOCAL.into(), file.size());
        self.changed.saved(file.size());
        self.finish_delta(file, oid);
    }

    /// The next run of a file that comes in parts.
    pub fn take_delta(&self, run: &Delta) -> Result<(), ApiError> {
        let signature = self.take_run(run)?;
        if !(run.is_outline && run.is_last) {
            return Ok(());
        }
        // The sender waits for an answer to each.
        let signature = signature.map_or_else(Bytes::new, Bytes::from);
        self.say(Message::Finer(Finer { entry: run.entry, signature }))
    }

    /// Takes a run; if it was an outline's last, the signature to answer with.
    fn take_run(&self, run: &Delta) -> Result<Option<Vec<u8>>, ApiError> {
        let mut incoming = lock(&self.incoming);
        let Some(current) = incoming.as_mut().filter(|it| it.file.wanted().entry == run.entry) else {
            return Ok(None);
        };
        let taken = current.take(run)?;
        let (file, oid) = (Arc::clone(&current.file), current.oid);
        match taken {
            Taken::Some => {}
            Taken::Outline(signature) => return Ok(Some(signature)),
            Taken::Part { offset, content, came, is_last } => {
                let is_taken = self.take_part(&file, &oid, offset, &content, came);
                if is_last || !is_taken {
                    *incoming = None;
                }
                drop(incoming);
                if is_last && is_taken {
                    self.finish_delta(file, oid);
                }
            }
            Taken::Nothing => {
                *incoming = None;
                drop(incoming);
                tracing::debug!(%oid, given_up = run.is_given_up, "nothing came of a delta: the file is fetched");
                file.drop_parts();
                self.progress.with(|progress| progress.expected -= file.size());
                self.fetch(file, oid);
            }
        }
        Ok(None)
    }

    /// A part of a file, of which `came` bytes came; false: the file has ended.
    fn take_part(&self, file: &CopyFile, oid: &Oid, offset: u64, content: &[u8], came: u64) -> bool {
        let taken = match file.passes(&self.processors, oid, offset, content) {
            Err(outcome) => Err(FetchError::Ended(outcome)),
            Ok(()) => file.take_part(offset, content).map_err(|error| {
                file.fail(&error);
                FetchError::Abandoned
            }),
        };
        if let Err(error) = taken {
            file.drop_parts();
            if !matches!(error, FetchError::Abandoned) {
                file.ended(&error);
            }
            return false;
        }
        let came = came.min(content.len() as u64);
        self.progress.brought(&self.source, came);
        self.progress.brought(&LOCAL.into(), content.len() as u64 - came);
        self.changed.saved(content.len() as u64 - came);
        true
    }

    fn finish_delta(&self, file: Arc<CopyFile>, oid: Oid) {
        match file.finish_parts(&oid) {
            Ok(true) => {
                self.changed.made();
                self.progress.with(|progress| progress.objects += 1);
            }
            Ok(false) => self.fetch(file, oid),
            Err(error) => file.fail(&error),
        }
    }

    /// What was made of older versions: files, and bytes that did not have to come.
    pub fn made_of_older(&self) -> (u64, u64) {
        self.changed.account()
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
        lock(&self.asked).as_mut().ok_or_else(hung_up)?.insert(entry, file);
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
        let mut asks = std::mem::take(&mut *lock(&self.next));
        if asks.entries.is_empty() && asks.compare.is_empty() {
            return Ok(());
        }
        self.find_lookalikes(&mut asks);
        self.ask(asks, false)
    }
}

/// Tells the sender which files are done with, many at a time: nobody waits for that news but for
/// how far the tree was considered.
async fn tell_settled(control: ControlSender, mut done: mpsc::UnboundedReceiver<Done>) {
    while let Some(first) = done.recv().await {
        let mut told = Told::default();
        told.add(first);
        for _ in 0..GATHERED {
            while !told.is_urgent()
                && let Ok(next) = done.try_recv()
            {
                told.add(next);
            }
            if told.is_urgent() {
                break;
            }
            tokio::time::sleep(GATHER).await;
        }
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
