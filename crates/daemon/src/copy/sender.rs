//! The sending side of a copy to another machine: tells what is there, and names the content of
//! the files that the receiver asks for.
//!
//! ```text
//!   scan thread ── live tree descriptor ──────► control stream
//!        │ where each file is (a window of them)      │ asks
//!        ▼                                            ▼
//!      Table ──────────────────────────────► answering thread: index, hash ──► answers
//! ```
//!
//! A file that nobody asks for is not opened. What is asked for is hashed in batches on all cores
//! and named by its content; a large file that the index does not know is named by a live object,
//! so that its first pieces travel while the rest is being hashed. The bytes themselves are
//! fetched by the receiver through the direct plugin; `Offers` says that it may.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use rayon::prelude::*;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use towpath_api::{ApiError, ErrorKind};
use towpath_content::ticket::Secret;
use towpath_content::tree::{Encoder, Event, Time};
use towpath_content::{NodeId, Oid};
use towpath_files::FileError;
use towpath_link::Identity;
use towpath_plugins::direct::{ControlSender, Issuer};
use towpath_store::{About, DiskStore};

use super::deltas;
use super::events::{CopyEvent, FailureKind};
use super::message::{Answer, Answers, Asks, Base, Bases, Delta, Empty, Message, Settled, violation};
use super::reading::{Ask, Read, now, read, read_changed, read_patched};
use super::removal::Removal;
use super::source::{Located, Sources, Step};
use super::supply::Fate;
use super::talk::{Events, failed_at, skipped};
use crate::errors;
use crate::lock::lock;
use crate::put_tree::store_stamp;

/// Entries that the scan may be ahead of the receiver.
const WINDOW: u64 = 64 << 10;
/// Bytes of descriptor that the scan may be ahead of the receiver.
const WINDOW_BYTES: u64 = 16 << 20;
/// Files answered at once.
const BATCH: usize = 256;
/// A file up to this size is hashed before it is named.
const HASH_FIRST: u64 = 64 << 20;
/// Files of more bytes never go with their names.
const INLINE: u32 = 64 << 10;
/// Bytes of answers in one message, and what each takes besides its content, at most.
const MESSAGE_BYTES: usize = 192 << 10;
const ANSWER_COST: usize = 96;
/// Bytes of signatures of files that were not answered yet, at most.
const MOST_BASES: usize = 16 << 20;
/// Bytes of a delta in one message.
const DELTA_BYTES: usize = 128 << 10;
/// Patches of files of more bytes are made one at a time: file and base are held.
const LARGE_PATCH: u64 = 8 << 20;
/// The hardest that a receiver may ask to pack: beyond, it takes much longer for little.
const MOST_PACKED: u32 = 12;
/// Larger files hashed at once: each takes a thread, and the receiver follows at most 8.
const LIVE: usize = 4;

/// What the other side of a copy may fetch: what was named in an answer and is not settled.
pub struct Offers {
    identity: Identity,
    offered: Mutex<HashMap<Oid, usize>>,
}

impl Offers {
    /// Nothing yet.
    pub fn new(identity: Identity) -> Self {
        Self { identity, offered: Mutex::default() }
    }

    fn add(&self, oid: Oid) {
        *lock(&self.offered).entry(oid).or_default() += 1;
    }

    fn remove(&self, oid: &Oid) {
        let mut offered = lock(&self.offered);
        if let Some(count) = offered.get_mut(oid) {
            *count -= 1;
            if *count == 0 {
                offered.remove(oid);
            }
        }
    }
}

impl Issuer for Offers {
    fn secret(&self, _root: &Oid) -> Option<Secret> {
        None
    }

    fn is_allowed(&self, _node: &NodeId, oid: &Oid) -> bool {
        lock(&self.offered).contains_key(oid)
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.identity.sign(message)
    }
}

/// Where the files are that the receiver may still ask for.
#[derive(Default)]
struct Table {
    state: Mutex<TableState>,
    changed: Condvar,
}

#[derive(Default)]
struct TableState {
    files: BTreeMap<u64, Located>,
    considered: u64,
    /// Entries told and not considered, with their bytes in the descriptor.
    ahead: VecDeque<(u64, u64)>,
    bytes_ahead: u64,
    is_over: bool,
}

impl TableState {
    fn is_far_ahead(&self, entry: u64) -> bool {
        entry >= self.considered + WINDOW || self.bytes_ahead > WINDOW_BYTES
    }
}

impl Table {
    /// Takes an entry; waits while the receiver is far behind. False: the copy is over.
    fn add(&self, entry: u64, bytes: u64, located: Option<Located>) -> bool {
        let mut state = lock(&self.state);
        while state.is_far_ahead(entry) && !state.is_over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ahead.push_back((entry, bytes));
        state.bytes_ahead += bytes;
        if let Some(located) = located {
            state.files.insert(entry, located);
        }
        !state.is_over
    }

    fn take(&self, entry: u64) -> Option<Located> {
        lock(&self.state).files.remove(&entry)
    }

    fn consider(&self, entry: u64) {
        let mut state = lock(&self.state);
        if entry > state.considered {
            state.considered = entry;
            state.files = state.files.split_off(&entry);
            while let Some((_, bytes)) = state.ahead.pop_front_if(|(ahead, _)| *ahead < entry) {
                state.bytes_ahead -= bytes;
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

/// A file that was asked for.
struct Asked {
    located: Located,
    /// The names it was given.
    oids: HashSet<Oid>,
    /// The person knows that it can't be read.
    is_told: bool,
}

impl Asked {
    fn new(located: Located) -> Self {
        Self { located, oids: HashSet::new(), is_told: false }
    }
}

/// The sender of one copy.
pub struct Sender {
    store: Arc<DiskStore>,
    offers: Arc<Offers>,
    control: ControlSender,
    events: Events,
    runtime: Handle,
    remove_sources: bool,
    removal: Removal,
    table: Table,
    /// Files asked for and not settled.
    asked: Mutex<HashMap<u64, Asked>>,
    large: Arc<Semaphore>,
    entries: AtomicU64,
    /// What the receiver has of files that it is about to ask for.
    bases: Mutex<Signed>,
    /// Files whose base is not here: they are asked for again.
    lacking: Mutex<HashMap<u64, Located>>,
    /// One patch of large files at a time.
    patching: Mutex<()>,
    /// zstd's level for answers; 0: they go as they are.
    pack: AtomicU32,
}

/// Signatures of older versions' parts, by entry.
#[derive(Default)]
struct Signed {
    parts: BTreeMap<u64, (Vec<Bytes>, Option<Oid>)>,
    bytes: usize,
}

impl Signed {
    /// False: they are too many.
    fn add(&mut self, Base { entry, signatures, oid }: Base) -> bool {
        self.bytes += signatures.iter().map(Bytes::len).sum::<usize>();
        let (parts, older) = self.parts.entry(entry).or_default();
        parts.extend(signatures);
        *older = Oid::from_bytes(&oid).ok().filter(|_| parts.is_empty());
        self.bytes <= MOST_BASES && parts.len() as u64 <= deltas::MAX_PARTS
    }

    /// For an ask; they still count.
    fn take(&mut self, entry: u64) -> (Vec<Bytes>, Option<Oid>) {
        self.parts.remove(&entry).unwrap_or_default()
    }

    /// These are of no more use.
    fn answered(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Sender {
    /// A sender that speaks over `control`. Must be made within a runtime.
    pub fn new(
        store: Arc<DiskStore>,
        offers: Arc<Offers>,
        control: ControlSender,
        events: Events,
        remove_sources: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            offers,
            control,
            removal: Removal::new(events.clone()),
            events,
            runtime: Handle::current(),
            remove_sources,
            table: Table::default(),
            asked: Mutex::default(),
            large: Arc::new(Semaphore::new(LIVE)),
            entries: AtomicU64::new(0),
            bases: Mutex::default(),
            lacking: Mutex::default(),
            patching: Mutex::default(),
            pack: AtomicU32::new(0),
        })
    }

    /// Reads the sources and tells them; returns at the end of the tree, when the receiver may
    /// still be asking. Blocks.
    pub fn tell(&self, mut sources: Sources) -> Result<(), ApiError> {
        let mut encoder = Encoder::new(true);
        let mut is_incomplete = false;
        sources.read(&mut |step| match step {
            Step::Walk(event, located) => self.walk(&mut encoder, &event, located),
            Step::Closed => self.say(Message::Closed(self.entries.load(Ordering::Relaxed))),
            Step::Failed { path, error } => {
                is_incomplete = true;
                self.events.item(failed_at(&path, &error));
                Ok(())
            }
            Step::Skipped { path, why } => {
                self.events.item(skipped(&path, why));
                Ok(())
            }
        })?;
        self.removal.source_is_read();
        let rest = encoder.finish().map_err(|error| internal(&error.to_string()))?;
        if is_incomplete {
            self.say(Message::Incomplete(Empty {}))?;
        }
        self.say_entries(rest)?;
        self.say(Message::Entries(Bytes::new()))
    }

    fn walk(&self, encoder: &mut Encoder, event: &Event, located: Option<Located>) -> Result<(), ApiError> {
        encoder.push(event).map_err(|error| internal(&error.to_string()))?;
        let finished = encoder.take();
        if !matches!(event, Event::Leave) {
            let entry = self.entries.fetch_add(1, Ordering::Relaxed);
            if !self.table.add(entry, finished.len() as u64, located) {
                return Err(internal("the copy is over"));
            }
        }
        self.say_entries(finished)
    }

    fn say_entries(&self, bytes: Vec<u8>) -> Result<(), ApiError> {
        let bytes = Bytes::from(bytes);
        // One block a message, so that a message never exceeds what the control stream takes.
        let block = towpath_content::tree::BLOCK;
        (0..bytes.len())
            .step_by(block)
            .try_for_each(|at| self.say(Message::Entries(bytes.slice(at..bytes.len().min(at + block)))))
    }

    fn say(&self, message: Message) -> Result<(), ApiError> {
        self.runtime.block_on(self.control.send(message.into_bytes())).map_err(|_| hung_up())
    }

    /// Packed, if the receiver finds that worth it.
    fn say_packed(&self, message: Message) -> Result<(), ApiError> {
        let bytes = match self.pack.load(Ordering::Relaxed) {
            0 => message.into_bytes(),
            level => message.into_packed_bytes(level as i32),
        };
        self.runtime.block_on(self.control.send(bytes)).map_err(|_| hung_up())
    }

    /// Handles what the receiver says; `asks` leads to [`Self::answer_all`].
    pub fn hear(&self, message: Message, asks: &mpsc::UnboundedSender<Vec<Ask>>) -> Result<(), ApiError> {
        match message {
            Message::Bases(Bases { bases }) => {
                let mut signed = lock(&self.bases);
                let is_within = bases.into_iter().all(|base| signed.add(base));
                if is_within { Ok(()) } else { Err(violation("more signatures than it may have files")) }
            }
            Message::Asks(Asks { entries, compare, inline, pack }) => {
                self.pack.store(pack.min(MOST_PACKED), Ordering::Relaxed);
                let all = entries.into_iter().map(|entry| (entry, false, inline.min(INLINE).into()));
                let all = all.chain(compare.into_iter().map(|entry| (entry, true, 0)));
                let mut signed = lock(&self.bases);
                // Now, as the next message may say that these entries are no longer of interest.
                let located = all.map(|(entry, compare, inline)| {
                    let (base, older) = signed.take(entry);
                    let lacking = || lock(&self.lacking).remove(&entry);
                    let located = self.table.take(entry).or_else(lacking)?;
                    Some(Ask { entry, compare, inline, base, older, located })
                });
                let located = located.collect::<Option<Vec<_>>>();
                let _ = asks.send(located.ok_or_else(|| violation("a file that was not told of"))?);
                Ok(())
            }
            Message::Considered(entry) => {
                if entry > self.entries.load(Ordering::Relaxed) {
                    return Err(violation("entries that were not told of"));
                }
                self.table.consider(entry);
                Ok(())
            }
            Message::Settled(settled) => {
                self.settle(settled);
                Ok(())
            }
            _ => Err(violation("a message that a receiver does not send")),
        }
    }

    fn settle(&self, settled: Settled) {
        for entry in settled.dropped {
            self.forget(entry);
        }
        let lost = settled.lost.into_iter().filter_map(|entry| self.forget(entry));
        lost.filter(|asked| !asked.is_told).for_each(|asked| self.tell_lost(&asked.located));
        let placed = settled.placed.into_iter().map(|entry| (entry, Fate::Placed));
        let unchanged = settled.unchanged.into_iter().map(|unchanged| {
            let changed = Time { seconds: unchanged.seconds, nanos: unchanged.nanos };
            let stamp = towpath_files::Stamp { inode: unchanged.inode, changed, ..Default::default() };
            (unchanged.entry, Fate::Unchanged(stamp))
        });
        for (entry, fate) in placed.chain(unchanged) {
            let located = self.forget(entry).map(|asked| asked.located).or_else(|| self.table.take(entry));
            if let Some(located) = located.filter(|located| self.remove_sources && located.may_go(&fate)) {
                self.removal.remove(located);
            }
        }
    }

    /// A file that was named and could not be read to the end.
    fn tell_lost(&self, located: &Located) {
        let path = located.whole_path();
        let error = match located.open() {
            Err(error) => error,
            Ok(_) => FileError::changed("read", &path, "written to while it was read"),
        };
        self.events.failure(failed_at(&path, &error));
    }

    fn forget(&self, entry: u64) -> Option<Asked> {
        lock(&self.lacking).remove(&entry);
        let asked = lock(&self.asked).remove(&entry)?;
        asked.oids.iter().for_each(|oid| self.offers.remove(oid));
        Some(asked)
    }

    /// The copy is over, however it ended.
    pub fn end(&self) {
        self.table.end();
    }

    /// Answers what the receiver asks until it says no more. Blocks.
    pub fn answer_all(self: &Arc<Self>, mut asks: mpsc::UnboundedReceiver<Vec<Ask>>) -> Result<(), ApiError> {
        while let Some(mut batch) = asks.blocking_recv() {
            while batch.len() < BATCH
                && let Ok(more) = asks.try_recv()
            {
                batch.extend(more);
            }
            while !batch.is_empty() {
                let rest = batch.split_off(together(&batch));
                let signed = batch.iter().flat_map(|ask| &ask.base).map(Bytes::len).sum();
                self.answer(std::mem::replace(&mut batch, rest))?;
                lock(&self.bases).answered(signed);
            }
        }
        Ok(())
    }

    fn answer(self: &Arc<Self>, files: Vec<Ask>) -> Result<(), ApiError> {
        let (mut answers, mut rest) = (Vec::with_capacity(files.len()), Vec::new());
        let (files, changed): (Vec<_>, Vec<_>) = files.into_iter().partition(|ask| !ask.has_base());
        for ask in files {
            match self.known(&ask) {
                Some(oid) => answers.push(self.named(ask.entry, ask.located, oid)),
                None if ask.located.stamp.size > HASH_FIRST && !ask.compare => {
                    self.stream(ask.entry, ask.located);
                }
                None => rest.push(ask),
            }
        }
        rest.extend(changed);
        let read_one = |ask: Ask| match (&ask.base[..], &ask.older) {
            (_, Some(older)) if !ask.compare => (self.read_patched(&ask, older), ask),
            ([signature], _) if !ask.compare => (read_changed(&ask, signature), ask),
            _ => (read(&ask), ask),
        };
        let read: Vec<_> = rest.into_par_iter().with_max_len(4).map(read_one).collect();
        let hashed = |(read, _): &(Result<Read, ApiError>, Ask)| match read {
            Ok(
                Read::Hashed(record)
                | Read::Same(record)
                | Read::Changed(record, _)
                | Read::Patched(record, _),
            ) => Some(record.clone()),
            _ => None,
        };
        let records: Vec<_> = read.iter().filter_map(hashed).collect();
        if !records.is_empty() {
            self.store.remember(&records).map_err(|error| errors::store(&error))?;
        }
        let (mut in_parts, mut patches) = (Vec::new(), Vec::new());
        for (read, Ask { entry, mut located, base, compare, .. }) in read {
            answers.push(match read {
                Ok(Read::Hashed(record)) => {
                    located.stamp = now(&located.stamp, &record.stamp);
                    let parts = if compare { 0 } else { base.len() as u64 };
                    let is_long = parts > 0 && deltas::part(record.stamp.size, parts, 0).is_none();
                    let answer = self.named(entry, located.clone(), record.oid);
                    if parts > 0 && !is_long {
                        in_parts.push((Answer { parts: parts as u32, ..answer }, located, base));
                        continue;
                    }
                    answer
                }
                Ok(Read::Changed(record, delta)) => {
                    located.stamp = now(&located.stamp, &record.stamp);
                    let answer = self.named(entry, located, record.oid);
                    Answer { content: delta.into(), is_delta: true, ..answer }
                }
                Ok(Read::Patched(record, patch)) => {
                    located.stamp = now(&located.stamp, &record.stamp);
                    let answer = Answer { is_patch: true, ..self.named(entry, located, record.oid) };
                    if patch.len() > INLINE as usize {
                        patches.push((Answer { parts: 1, ..answer }, patch));
                        continue;
                    }
                    Answer { content: patch.into(), ..answer }
                }
                Ok(Read::Same(record)) => {
                    located.stamp = now(&located.stamp, &record.stamp);
                    let answer = self.named(entry, located, record.oid);
                    Answer { oid: Bytes::new(), is_same: true, ..answer }
                }
                Ok(Read::Lacking) => {
                    lock(&self.lacking).insert(entry, located);
                    Answer { entry, lacks_base: true, ..Answer::default() }
                }
                Ok(Read::Whole(stamp, content)) => {
                    located.stamp = now(&located.stamp, &stamp);
                    self.whole(entry, located, content)
                }
                Err(error) => self.refused(entry, &located, &error),
            });
        }
        self.say_answers(answers)?;
        // Each behind its own answer: the receiver takes one such file at a time.
        for (answer, patch) in patches {
            let entry = answer.entry;
            self.say(Message::Answers(Answers { answers: vec![answer] }))?;
            self.say_part(entry, patch.into(), false)?;
        }
        for (answer, located, base) in in_parts {
            let entry = answer.entry;
            self.say(Message::Answers(Answers { answers: vec![answer] }))?;
            self.say_parts(entry, &located, &base)?;
        }
        Ok(())
    }

    fn read_patched(&self, ask: &Ask, older: &Oid) -> Result<Read, ApiError> {
        let _alone = (ask.located.stamp.size > LARGE_PATCH).then(|| lock(&self.patching));
        let level = self.pack.load(Ordering::Relaxed).max(1) as i32;
        read_patched(ask, older, &*self.store, level)
    }

    /// The content of a file as deltas of what the receiver signed, one part at a time.
    fn say_parts(&self, entry: u64, located: &Located, base: &[Bytes]) -> Result<(), ApiError> {
        let delta = Delta { entry, ..Delta::default() };
        let given_up = || self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }));
        // If it changed, the receiver learns so when it fetches it.
        let Ok(file) = located.open() else { return given_up() };
        for (index, signature) in (0..).zip(base) {
            let range = deltas::part(located.stamp.size, base.len() as u64, index);
            let part = range.and_then(|range| part_of(&file, range));
            let Some(made) = part.and_then(|part| deltas::make(signature, &part)) else { return given_up() };
            let level = self.pack.load(Ordering::Relaxed) as i32;
            let packed = if level > 0 { deltas::pack(&made, level) } else { None };
            let is_packed = packed.is_some();
            self.say_part(entry, packed.unwrap_or(made).into(), is_packed)?;
        }
        Ok(())
    }

    /// One part's delta, in runs that messages take.
    fn say_part(&self, entry: u64, bytes: Bytes, is_packed: bool) -> Result<(), ApiError> {
        for start in (0..bytes.len()).step_by(DELTA_BYTES) {
            let end = bytes.len().min(start + DELTA_BYTES);
            let (bytes, is_last) = (bytes.slice(start..end), end == bytes.len());
            self.say(Message::Delta(Delta { entry, bytes, is_last, is_packed, is_given_up: false }))?;
        }
        Ok(())
    }

    /// Answers in messages that the control stream takes.
    fn say_answers(&self, answers: Vec<Answer>) -> Result<(), ApiError> {
        let (mut message, mut bytes) = (Vec::new(), 0);
        for answer in answers {
            let cost = answer.content.len() + ANSWER_COST;
            if bytes + cost > MESSAGE_BYTES {
                self.say_packed(Message::Answers(Answers { answers: std::mem::take(&mut message) }))?;
                bytes = 0;
            }
            bytes += cost;
            message.push(answer);
        }
        if message.is_empty() {
            return Ok(());
        }
        self.say_packed(Message::Answers(Answers { answers: message }))
    }

    /// The name of a file's content, if the index knows it and the content is not to go with it.
    fn known(&self, ask: &Ask) -> Option<Oid> {
        let stamp = &ask.located.stamp;
        if stamp.size <= ask.inline {
            return None;
        }
        let path = ask.located.whole_path();
        let (dir, name) = (path.parent()?, path.file_name()?);
        self.store.known(dir, &[(name, store_stamp(stamp))]).ok()?.into_iter().next().flatten()
    }

    /// A file whose content goes with its name: nothing of it will be fetched.
    fn whole(&self, entry: u64, located: Located, content: Vec<u8>) -> Answer {
        let oid = Oid::of(&content);
        let answer = answer_of(entry, &located, &oid, content.into());
        lock(&self.asked).entry(entry).or_insert_with(|| Asked::new(located));
        answer
    }

    fn named(&self, entry: u64, located: Located, oid: Oid) -> Answer {
        let answer = answer_of(entry, &located, &oid, Bytes::new());
        self.offers.add(oid);
        lock(&self.asked).entry(entry).or_insert_with(|| Asked::new(located)).oids.insert(oid);
        answer
    }

    fn refused(&self, entry: u64, located: &Located, error: &ApiError) -> Answer {
        self.tell_failed(located, error);
        Answer { entry, ..Answer::default() }
    }

    fn tell_failed(&self, located: &Located, error: &ApiError) {
        let is_vanished = error.kind == ErrorKind::NotFound;
        let kind = if is_vanished { FailureKind::Vanished } else { FailureKind::Other };
        let path = located.whole_path();
        self.events.failure(CopyEvent::Failed {
            path: path.as_os_str().as_encoded_bytes().to_vec(),
            error: error.message.clone(),
            hint: error.hint.clone(),
            kind,
        });
    }

    /// Names a large file by a live object and hashes it meanwhile.
    fn stream(self: &Arc<Self>, entry: u64, located: Located) {
        let this = Arc::clone(self);
        let large = Arc::clone(&self.large);
        self.runtime.spawn(async move {
            let Ok(_permit) = large.acquire_owned().await else { return };
            let working = tokio::task::spawn_blocking(move || {
                if let Err(error) = this.stream_blocking(entry, located) {
                    tracing::debug!(%error, "a large file could not be offered");
                }
            });
            let _ = working.await;
        });
    }

    fn stream_blocking(&self, entry: u64, located: Located) -> Result<(), ApiError> {
        let mut random = [0; 32];
        getrandom(&mut random[..], GetRandomFlags::empty()).map_err(|error| internal(&error.to_string()))?;
        let live = Oid::Live(random);
        let path = located.whole_path();
        let opened = located.open().map_err(|error| errors::source(&error));
        let answer = match &opened {
            Ok(_) => self.named(entry, located.clone(), live),
            Err(error) => self.refused(entry, &located, error),
        };
        self.say(Message::Answers(Answers { answers: vec![answer] }))?;
        let file = opened?;
        match self.store.put_open_file(file, &path, &live, &About::default()) {
            Ok((content, _)) => {
                // From here on the receiver may ask for it by its content.
                let mut asked = lock(&self.asked);
                if let Some(asked) = asked.get_mut(&entry)
                    && asked.oids.insert(content)
                {
                    self.offers.add(content);
                }
                Ok(())
            }
            Err(error) => {
                let error = errors::store(&error);
                // It stays on offer: the receiver is to learn from the store that it is lost, and may have
                // said so already.
                if let Some(asked) = lock(&self.asked).get_mut(&entry) {
                    asked.is_told = true;
                    self.tell_failed(&located, &error);
                }
                Err(error)
            }
        }
    }
}

/// These bytes of a file; none if they can't be read.
fn part_of(file: &std::fs::File, range: Range<u64>) -> Option<Vec<u8>> {
    let mut part = vec![0; usize::try_from(range.end - range.start).ok()?];
    file.read_exact_at(&mut part, range.start).ok().map(|()| part)
}

/// How many files from the front are answered in one go: the first bytes of none should wait long
/// for the hash of others.
fn together(batch: &[Ask]) -> usize {
    let mut bytes = 0;
    let is_little = |ask: &&Ask| {
        bytes += ask.located.stamp.size;
        bytes <= HASH_FIRST
    };
    batch.iter().take(BATCH).take_while(is_little).count().max(1)
}

fn answer_of(entry: u64, located: &Located, oid: &Oid, content: Bytes) -> Answer {
    let Time { seconds, nanos } = located.stamp.modified;
    let oid = Bytes::copy_from_slice(&oid.to_bytes());
    Answer {
        entry,
        oid,
        size: located.stamp.size,
        seconds,
        nanos,
        is_sparse: located.is_sparse,
        content,
        ..Answer::default()
    }
}

fn internal(what: &str) -> ApiError {
    ApiError::new(ErrorKind::Failed, what)
}

/// The connection ended before the copy did.
pub fn hung_up() -> ApiError {
    ApiError::new(ErrorKind::Unreachable, "the other side hung up before the copy was complete")
        .hint("run the same command again: it goes on where it was")
}
