//! What the sender answers to each ask: the name of a file's content, or that and the content itself, or
//! what makes it of the older version that the receiver has.
//!
//! ```text
//!   Bases ──► signatures ┐          ┌ the index knows it ─────► its name
//!   Asks  ──► a batch ───┴► read ───┤ little ─────────────────► name and content
//!             (all cores)           │ changed ────────────────► name, then deltas or a patch
//!                                   └ large and not known ────► a live name, then it is hashed
//! ```
//!
//! What is asked for is hashed in batches on all cores and named by its content; a large file that the
//! index does not know is named by a live object, so that its first pieces travel while the rest is being
//! hashed.
//!
//! Contents go over another connection than ssh's pipe where the receiver opened one for them
//! ([`Answering::carry`]): two programs less touch them. When that is lost, what went that way and was not
//! settled is answered again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rayon::prelude::*;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use towpath_api::{ApiError, ErrorKind};
use towpath_content::Oid;
use towpath_content::tree::Time;
use towpath_plugins::direct::{ControlClosed, ControlSender, Pace};
use towpath_plugins::packing;
use towpath_store::{About, DiskStore, FileRecord};

use super::deltas;
use super::events::{CopyEvent, FailureKind};
use super::finer;
use super::message::{Answer, Answers, Asks, Base, Delta, Message, violation};
use super::offers::Offers;
use super::outlines::Outlines;
use super::patching::make_all;
use super::reading::{Ask, Older, Read, now, part_of, read, read_changed, read_patched};
use super::sender::{hung_up, internal};
use super::source::Located;
use super::talk::Events;
use super::worth::Worth;
use crate::errors;
use crate::lock::lock;
use crate::put_tree::store_stamp;

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
/// Bytes of outlines and literals of one file that are held until the receiver answers, at most.
const MOST_OUTLINED: usize = 16 << 20;
/// Larger files hashed at once: each takes a thread, and the receiver follows at most 8.
const LIVE: usize = 4;

/// Answers what one receiver asks.
pub struct Answering {
    store: Arc<DiskStore>,
    offers: Arc<Offers>,
    control: ControlSender,
    events: Events,
    runtime: Handle,
    /// Files asked for and not settled.
    asked: Mutex<HashMap<u64, Asked>>,
    large: Arc<Semaphore>,
    /// What the receiver has of files that it is about to ask for.
    bases: Mutex<Signed>,
    /// Files whose base is not here: they are asked for again.
    lacking: Mutex<HashMap<u64, Located>>,
    /// One patch of large files at a time.
    patching: Mutex<()>,
    /// The way for contents beside `control`.
    beside: Mutex<Option<ControlSender>>,
    /// zstd's level for answers; 0: they go as they are.
    pack: AtomicU32,
    /// Whether that is worth it.
    packing: Mutex<Worth>,
    /// How fast contents may go.
    pace: Pace,
    /// Deltas may come in two steps.
    takes_outlines: AtomicBool,
    outlines: Outlines,
}

/// A file that was asked for.
pub struct Asked {
    /// Where it is.
    pub located: Located,
    /// The names it was given.
    oids: HashSet<Oid>,
    /// The person knows that it can't be read.
    pub is_told: bool,
    /// Its content went beside the first connection, with so many bytes.
    beside: Option<u64>,
}

impl Asked {
    fn new(located: Located) -> Self {
        Self { located, oids: HashSet::new(), is_told: false, beside: None }
    }
}

/// What the receiver has of a file.
#[derive(Default)]
struct Told {
    signatures: Vec<Bytes>,
    older: Option<Oid>,
    in_parts: bool,
}

/// Signatures of older versions' parts, by entry.
#[derive(Default)]
struct Signed {
    parts: BTreeMap<u64, Told>,
    bytes: usize,
}

impl Signed {
    /// False: they are too many.
    fn add(&mut self, Base { entry, signatures, oid, in_parts }: Base) -> bool {
        self.bytes += signatures.iter().map(Bytes::len).sum::<usize>();
        let told = self.parts.entry(entry).or_default();
        told.signatures.extend(signatures);
        told.older = Oid::from_bytes(&oid).ok().filter(|_| told.signatures.is_empty());
        told.in_parts = in_parts;
        self.bytes <= MOST_BASES && told.signatures.len() as u64 <= deltas::MAX_PARTS
    }

    /// For an ask; they still count.
    fn take(&mut self, entry: u64) -> Told {
        self.parts.remove(&entry).unwrap_or_default()
    }

    /// These are of no more use.
    fn answered(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// What goes to the receiver for one file that was read.
enum Reply {
    /// An answer that says it all.
    Whole(Answer),
    /// A patch too long for its answer.
    Patch(Answer, Vec<u8>),
    /// A delta in parts, of what these sign.
    Parts(Answer, Located, Vec<Bytes>),
    /// Patches of parts of what is here.
    Patches(Answer, Located, Older),
}

impl Answering {
    /// Nothing asked yet; answers go over `control`, contents at no more than `limit_rate` bytes a second
    /// unless that is 0. Must be made within a runtime.
    pub fn new(
        store: Arc<DiskStore>,
        offers: Arc<Offers>,
        control: ControlSender,
        events: Events,
        limit_rate: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            offers,
            control,
            events,
            runtime: Handle::current(),
            asked: Mutex::default(),
            large: Arc::new(Semaphore::new(LIVE)),
            bases: Mutex::default(),
            lacking: Mutex::default(),
            patching: Mutex::default(),
            beside: Mutex::default(),
            pack: AtomicU32::new(0),
            packing: Mutex::default(),
            pace: Pace::new(limit_rate),
            takes_outlines: AtomicBool::new(false),
            outlines: Outlines::new(),
        })
    }

    /// Keeps what the receiver has of files that it is about to ask for.
    pub fn take_bases(&self, bases: Vec<Base>) -> Result<(), ApiError> {
        let mut signed = lock(&self.bases);
        let is_within = bases.into_iter().all(|base| signed.add(base));
        if is_within { Ok(()) } else { Err(violation("more signatures than it may have files")) }
    }

    /// Outlines that the receiver was told.
    pub const fn outlines(&self) -> &Outlines {
        &self.outlines
    }

    /// The files that are asked for, with what was told of their bases; `take` finds those asked for the
    /// first time. None if one of them can't be.
    pub fn locate(&self, asks: Asks, take: impl Fn(u64) -> Option<Located>) -> Option<Vec<Ask>> {
        let Asks { entries, compare, inline, pack, takes_outlines } = asks;
        self.takes_outlines.store(takes_outlines, Ordering::Relaxed);
        self.pack.store(pack.min(MOST_PACKED), Ordering::Relaxed);
        let all = entries.into_iter().map(|entry| (entry, false, inline.min(INLINE).into()));
        let all = all.chain(compare.into_iter().map(|entry| (entry, true, 0)));
        let mut signed = lock(&self.bases);
        let located = all.map(|(entry, compare, inline)| {
            let Told { signatures: base, older, in_parts } = signed.take(entry);
            let lacking = || lock(&self.lacking).remove(&entry);
            let located = take(entry).or_else(lacking)?;
            Some(Ask { entry, compare, inline, is_again: false, base, older, in_parts, located })
        });
        located.collect()
    }

    /// Blocks while the connection takes no more.
    pub fn say(&self, message: Message) -> Result<(), ApiError> {
        self.runtime.block_on(self.control.send(message.into_bytes())).map_err(|_| hung_up())
    }

    fn say_packed(&self, message: Message) -> Result<(), ApiError> {
        self.say_at_rate(self.packed(message))
    }

    /// Packed, if the receiver finds that worth it.
    fn packed(&self, message: Message) -> Bytes {
        let bytes = message.into_bytes();
        let level = self.pack.load(Ordering::Relaxed);
        if level == 0 || !lock(&self.packing).is_due() {
            return bytes;
        }
        let packed = Message::pack(bytes.clone(), level as i32);
        lock(&self.packing).packed(bytes.len(), packed.len());
        packed
    }

    fn say_at_rate(&self, bytes: Bytes) -> Result<(), ApiError> {
        self.send_at_rate(&self.control, bytes).map_err(|_| hung_up())
    }

    /// Contents count against the person's limit wherever they travel.
    fn send_at_rate(&self, way: &ControlSender, bytes: Bytes) -> Result<(), ControlClosed> {
        self.runtime.block_on(async {
            self.pace.pass(bytes.len() as u64).await;
            way.send(bytes).await
        })
    }

    /// From now on contents go this way.
    pub fn carry(&self, way: ControlSender) {
        *lock(&self.beside) = Some(way);
    }

    /// A way that contents went was lost: what may not have come is to be answered once more.
    pub fn lost(&self) -> Vec<Ask> {
        let mut asked = lock(&self.asked);
        let again = asked.iter_mut().filter_map(|(&entry, asked)| {
            let (inline, located) = (asked.beside.take()?, asked.located.clone());
            let (base, older, in_parts) = (Vec::new(), None, false);
            Some(Ask { entry, compare: false, inline, is_again: true, base, older, in_parts, located })
        });
        again.collect()
    }

    /// A file is settled: what was asked of it, if it was.
    pub fn forget(&self, entry: u64) -> Option<Asked> {
        lock(&self.lacking).remove(&entry);
        let asked = lock(&self.asked).remove(&entry)?;
        asked.oids.iter().for_each(|oid| self.offers.remove(oid));
        Some(asked)
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
                Some(oid) => {
                    let answer = self.named(ask.entry, ask.located, oid);
                    answers.push(Answer { is_again: ask.is_again, ..answer });
                }
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
        let records: Vec<_> = read.iter().filter_map(|(read, _)| hashed(read.as_ref().ok()?)).collect();
        if !records.is_empty() {
            self.store.remember(&records).map_err(|error| errors::store(&error))?;
        }
        let (mut in_parts, mut patches, mut patched_parts) = (Vec::new(), Vec::new(), Vec::new());
        for (read, ask) in read {
            let is_again = ask.is_again;
            match self.reply(read, ask) {
                Reply::Whole(answer) => answers.push(Answer { is_again, ..answer }),
                Reply::Patch(answer, patch) => patches.push((answer, patch)),
                Reply::Parts(answer, located, base) => in_parts.push((answer, located, base)),
                Reply::Patches(answer, located, older) => patched_parts.push((answer, located, older)),
            }
        }
        self.say_answers(answers)?;
        // Each behind its own answer: the receiver takes one such file at a time.
        for (answer, patch) in patches {
            let entry = answer.entry;
            self.say(Message::Answers(Answers { answers: vec![answer] }))?;
            self.say_part(Delta { entry, ..Delta::default() }, patch)?;
        }
        for (answer, located, older) in patched_parts {
            let entry = answer.entry;
            self.say(Message::Answers(Answers { answers: vec![answer] }))?;
            self.say_patches(entry, &located, &older)?;
        }
        for (answer, located, base) in in_parts {
            let entry = answer.entry;
            self.say(Message::Answers(Answers { answers: vec![answer] }))?;
            self.say_parts(entry, &located, &base)?;
        }
        Ok(())
    }

    fn reply(&self, read: Result<Read, ApiError>, ask: Ask) -> Reply {
        let Ask { entry, mut located, base, compare, .. } = ask;
        let read = match read {
            Ok(read) => read,
            Err(error) => return Reply::Whole(self.refused(entry, &located, &error)),
        };
        if let Some(record) = hashed(&read) {
            located.stamp = now(&located.stamp, &record.stamp);
        }
        Reply::Whole(match read {
            Read::Hashed(record) => {
                let parts = if compare { 0 } else { base.len() as u64 };
                let is_long = parts > 0 && deltas::part(record.stamp.size, parts, 0).is_none();
                let answer = self.named(entry, located.clone(), record.oid);
                if parts > 0 && !is_long {
                    return Reply::Parts(Answer { parts: parts as u32, ..answer }, located, base);
                }
                answer
            }
            Read::Changed(record, delta) => {
                let answer = self.named(entry, located, record.oid);
                Answer { content: delta.into(), is_delta: true, ..answer }
            }
            Read::Patched(record, patch) => {
                let answer = Answer { is_patch: true, ..self.named(entry, located, record.oid) };
                if patch.len() > INLINE as usize {
                    return Reply::Patch(Answer { parts: 1, ..answer }, patch);
                }
                Answer { content: patch.into(), ..answer }
            }
            Read::InParts(record, older) => {
                let answer = self.named(entry, located.clone(), record.oid);
                let answer = Answer { is_patch: true, parts: older.parts as u32, ..answer };
                return Reply::Patches(answer, located, older);
            }
            Read::Same(record) => {
                let answer = self.named(entry, located, record.oid);
                Answer { oid: Bytes::new(), is_same: true, ..answer }
            }
            Read::Lacking => {
                lock(&self.lacking).insert(entry, located);
                Answer { entry, lacks_base: true, ..Answer::default() }
            }
            Read::Whole(stamp, content) => {
                located.stamp = now(&located.stamp, &stamp);
                self.whole(entry, located, content)
            }
        })
    }

    fn read_patched(&self, ask: &Ask, older: &Oid) -> Result<Read, ApiError> {
        let _alone = (ask.located.stamp.size > LARGE_PATCH).then(|| lock(&self.patching));
        let level = self.pack.load(Ordering::Relaxed).max(1) as i32;
        read_patched(ask, older, &*self.store, level)
    }

    /// The content of a file as patches of parts of an older version.
    fn say_patches(&self, entry: u64, located: &Located, older: &Older) -> Result<(), ApiError> {
        let delta = Delta { entry, ..Delta::default() };
        let given_up = || self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }));
        let Ok(file) = located.open() else { return given_up() };
        let hardest = self.pack.load(Ordering::Relaxed).max(1) as i32;
        let make = |index, level| older.patch(index, &file, &*self.store, level);
        match make_all(older.parts, hardest, make, |patch| self.say_part(delta.clone(), patch))? {
            true => Ok(()),
            false => given_up(),
        }
    }

    /// The content of a file as deltas of what the receiver signed, one part at a time.
    fn say_parts(&self, entry: u64, located: &Located, base: &[Bytes]) -> Result<(), ApiError> {
        let delta = Delta { entry, ..Delta::default() };
        let given_up = || self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }));
        // If it changed, the receiver learns so when it fetches it.
        let Ok(file) = located.open() else { return given_up() };
        let (mut held, mut outlined) = (0, Vec::new());
        let count = base.len() as u64;
        let make = |index: u64, _| {
            let range = deltas::part(located.stamp.size, count, index)?;
            let made = deltas::make(base.get(index as usize)?, &part_of(&file, range)?)?;
            let packed = self.packed_part(&made);
            Some((made, packed))
        };
        let is_made = make_all(count, 0, make, |(made, packed)| {
            let is_packed = packed.is_some();
            match self.outline(&made, packed.as_ref().unwrap_or(&made).len(), held) {
                Some((outline, literals)) => {
                    held += outline.len() + literals.len();
                    outlined.push(literals);
                    self.outlines.told();
                    self.say_part(Delta { is_outline: true, ..delta.clone() }, outline)
                }
                None => self.say_part(Delta { is_packed, ..delta.clone() }, packed.unwrap_or(made)),
            }
        })?;
        match is_made {
            true => self.say_literals(&delta, outlined),
            false => {
                // Those answers must not be taken for another file's.
                outlined.iter().try_for_each(|_| self.outlines.next().map(drop))?;
                given_up()
            }
        }
    }

    /// A part's delta in two steps, if the receiver takes that and it pays. `held`: bytes of those before it.
    fn outline(&self, made: &[u8], packed: usize, held: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let is_possible = self.takes_outlines.load(Ordering::Relaxed) && held + made.len() <= MOST_OUTLINED;
        if is_possible { finer::split(made, packed) } else { None }
    }

    /// The literals of outlines, as deltas of what the receiver signs for each.
    fn say_literals(&self, delta: &Delta, outlined: Vec<Vec<u8>>) -> Result<(), ApiError> {
        let mut is_wanted = true;
        for literals in outlined {
            // Each is answered, also if no more is wanted.
            let answer = self.outlines.next()?;
            let made = deltas::make(&answer.signature, &literals);
            let Some(made) = made.filter(|_| is_wanted && answer.entry == delta.entry) else {
                is_wanted = false;
                continue;
            };
            let packed = self.packed_part(&made);
            let is_packed = packed.is_some();
            self.say_part(Delta { is_packed, ..delta.clone() }, packed.unwrap_or(made))?;
        }
        if is_wanted {
            return Ok(());
        }
        self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }))
    }

    fn packed_part(&self, made: &[u8]) -> Option<Vec<u8>> {
        let level = self.pack.load(Ordering::Relaxed) as i32;
        if level > 0 { packing::pack(made, level) } else { None }
    }

    /// One part's delta, in runs that messages take; `last` is what is said with the last one.
    fn say_part(&self, last: Delta, bytes: Vec<u8>) -> Result<(), ApiError> {
        let bytes = Bytes::from(bytes);
        for start in (0..bytes.len()).step_by(DELTA_BYTES) {
            let end = bytes.len().min(start + DELTA_BYTES);
            let is_last = end == bytes.len();
            let run = if is_last { last.clone() } else { Delta { entry: last.entry, ..Delta::default() } };
            let run = Delta { bytes: bytes.slice(start..end), is_last, ..run };
            self.say_at_rate(Message::Delta(run).into_bytes())?;
        }
        Ok(())
    }

    /// Answers in messages that a control stream takes, contents on the better way.
    fn say_answers(&self, answers: Vec<Answer>) -> Result<(), ApiError> {
        let beside = lock(&self.beside).clone();
        let Some(way) = beside else {
            return in_messages(answers, |answers| self.say_packed(Message::Answers(Answers { answers })));
        };
        let (whole, named): (Vec<_>, Vec<_>) = answers.into_iter().partition(Answer::is_whole);
        in_messages(named, |answers| self.say_packed(Message::Answers(Answers { answers })))?;
        in_messages(whole, |answers| self.say_beside(&way, answers))
    }

    /// Contents that go `way`, or over the first connection after all.
    fn say_beside(&self, way: &ControlSender, mut answers: Vec<Answer>) -> Result<(), ApiError> {
        self.note_beside(&answers, true);
        // Its bytes are shared, not copied.
        let message = Message::Answers(Answers { answers: answers.clone() });
        if self.send_at_rate(way, self.packed(message)).is_ok() {
            return Ok(());
        }
        self.note_beside(&answers, false);
        // Its loss may have been noticed between the two, and each of these be answered again too.
        answers.iter_mut().for_each(|answer| answer.is_again = true);
        self.say_packed(Message::Answers(Answers { answers }))
    }

    /// These contents are about to go beside, or did not.
    fn note_beside(&self, answers: &[Answer], goes: bool) {
        let mut asked = lock(&self.asked);
        for answer in answers {
            if let Some(asked) = asked.get_mut(&answer.entry) {
                asked.beside = goes.then_some(answer.content.len() as u64);
            }
        }
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

/// Says answers in messages that a control stream takes.
fn in_messages(
    answers: Vec<Answer>,
    mut say: impl FnMut(Vec<Answer>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let (mut message, mut bytes) = (Vec::new(), 0);
    for answer in answers {
        let cost = answer.content.len() + ANSWER_COST;
        if bytes + cost > MESSAGE_BYTES {
            say(std::mem::take(&mut message))?;
            bytes = 0;
        }
        bytes += cost;
        message.push(answer);
    }
    if message.is_empty() { Ok(()) } else { say(message) }
}

/// What the index is to know of a file that was read.
fn hashed(read: &Read) -> Option<FileRecord> {
    match read {
        Read::Hashed(record)
        | Read::Same(record)
        | Read::Changed(record, _)
        | Read::Patched(record, _)
        | Read::InParts(record, _) => Some(record.clone()),
        Read::Whole(..) | Read::Lacking => None,
    }
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
