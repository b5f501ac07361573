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
mod bases;
mod in_parts;
mod live;
mod outbox;
mod replies;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use towpath_content::Oid;
use towpath_content::delta::exchange::{Base, Request};
use towpath_protocol::ControlSender;
use towpath_store::{DiskStore, Store};

use self::bases::PendingRequests;
use self::replies::hashed;
use super::events::Events;
use super::message::{Answer, Answers, Asks, DeltaMessage, Message, violation};
use super::offers::Offers;
use super::reading::{Ask, Read, UnreadFile, read, read_changed};
use super::sent::SentTo;
use super::signatures::Signatures;
use super::source::Located;
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_protocol::pack_backoff::PackBackoff;

/// Files answered at once.
const BATCH: usize = 256;
/// A file up to this size is hashed before it is named.
const HASH_FIRST: u64 = 64 << 20;
/// Files of more bytes never go with their names.
const INLINE: u32 = 64 << 10;
/// Patches of files of more bytes are made one at a time: file and base are held.
const LARGE_PATCH: u64 = 8 << 20;
/// The hardest that a receiver may ask to pack: beyond, it takes much longer for little.
const MOST_PACKED: u32 = 12;
/// What costs a fast network's processors hardly anything.
const QUICK: u32 = 1;
/// Files in an ask.
const TOGETHER: usize = 128;
/// Files asked for and not settled, beyond which a receiver does not keep to its window: what it settled may still be on
/// the way.
const MOST_ASKED: usize = 32 << 10;
/// Bases that may be named in vain.
const MOST_MISSES: u32 = 64;
/// Larger files hashed at once: each takes a thread, and the receiver follows at most 8.
const LIVE: usize = 4;

/// Among what a receiver may name a base.
pub enum Scope {
    /// All that the index knows: who pulls over ssh could read it anyway.
    Index,
    /// What went to its node in copies before, and what this one names.
    Sent(SentTo),
}

/// What was read for an ask.
type ReadAsk = (Result<Read, UnreadFile>, Ask);

/// Answers what one receiver asks.
pub struct Answering {
    scope: Scope,
    /// Bases that were named and are not there; after some tens none is looked for.
    misses: AtomicU32,
    store: Arc<DiskStore>,
    offers: Arc<Offers>,
    control: ControlSender,
    events: Events,
    runtime: Handle,
    /// Files asked for and not settled.
    asked: Mutex<HashMap<u64, Asked>>,
    large: Arc<Semaphore>,
    /// What the receiver has of files that it is about to ask for.
    bases: Mutex<PendingRequests>,
    /// Files whose base is not here: they are asked for again.
    lacking: Mutex<HashMap<u64, Located>>,
    /// One patch of large files at a time.
    patching: Mutex<()>,
    /// The way for contents beside `control`.
    beside: Mutex<Option<ControlSender>>,
    /// zstd's level for answers; 0: they go as they are.
    pack: AtomicU32,
    /// The same for entries, which begin before anybody knows the network.
    pack_entries: AtomicU32,
    /// Whether that is worth it.
    packing: Mutex<PackBackoff>,
    /// True if the person limits the rate.
    is_limited: bool,
    signatures: Signatures,
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

impl Answering {
    /// Nothing asked yet; answers go over `control`, which lets `limit_rate` bytes pass a second
    /// unless that is 0, to a receiver that can unpack or can't. Must be made within a runtime.
    pub fn new(
        (store, scope): (Arc<DiskStore>, Scope),
        offers: Arc<Offers>,
        control: ControlSender,
        events: Events,
        limit_rate: u64,
        unpacks: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            scope,
            misses: AtomicU32::new(0),
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
            pack_entries: AtomicU32::new(if unpacks { QUICK } else { 0 }),
            packing: Mutex::default(),
            is_limited: limit_rate > 0,
            signatures: Signatures::default(),
        })
    }

    /// Keeps what the receiver has of files that it is about to ask for.
    pub fn take_bases(&self, bases: &[DeltaMessage]) -> Result<(), CopyError> {
        let mut signed = lock(&self.bases);
        let is_within = bases.iter().all(|base| signed.add(base));
        if is_within { Ok(()) } else { Err(violation("bases that are none, or too many")) }
    }

    /// What the receiver signs while a file goes in parts.
    pub const fn signatures(&self) -> &Signatures {
        &self.signatures
    }

    /// The files that are asked for, with what was told of their bases; `take` finds those asked for the
    /// first time. None if one of them can't be.
    pub fn locate(&self, asks: Asks, take: impl Fn(u64) -> Option<Located>) -> Option<Vec<Ask>> {
        let Asks { entries, compare, inline, pack } = asks;
        let open = lock(&self.asked).len() + lock(&self.lacking).len();
        if entries.len() + compare.len() > TOGETHER || open > MOST_ASKED {
            return None;
        }
        self.pack.store(pack.min(MOST_PACKED), Ordering::Relaxed);
        self.pack_entries.store(pack.min(MOST_PACKED), Ordering::Relaxed);
        let all = entries.into_iter().map(|entry| (entry, false, inline.min(INLINE).into()));
        let all = all.chain(compare.into_iter().map(|entry| (entry, true, 0)));
        let mut signed = lock(&self.bases);
        let located = all.map(|(entry, compare, inline)| {
            let request = signed.take(entry);
            let base = request.as_ref().map(|request| &request.base);
            self.signatures.expect(entry, base.map_or(0, Base::ahead));
            // One base may be named of each file, not one after the other until one is here.
            let is_named = matches!(base, Some(Base::Named(_)));
            let lacking = || lock(&self.lacking).remove(&entry).filter(|_| !is_named);
            let located = take(entry).or_else(lacking)?;
            Some(Ask { entry, compare, inline, is_again: false, request, located })
        });
        located.collect()
    }

    /// A file is settled: what was asked of it, if it was.
    pub fn forget(&self, entry: u64) -> Option<Asked> {
        lock(&self.lacking).remove(&entry);
        let asked = lock(&self.asked).remove(&entry)?;
        asked.oids.iter().for_each(|oid| self.offers.remove(oid));
        Some(asked)
    }

    /// The receiver has a file with these contents now.
    pub fn placed(&self, asked: &Asked) {
        if let Scope::Sent(sent) = &self.scope {
            asked.oids.iter().for_each(|oid| sent.add(oid, asked.located.stamp.size));
        }
    }

    /// Whether a base that the receiver names may be looked for.
    fn may_be_base(&self, oid: &Oid) -> bool {
        match &self.scope {
            Scope::Index => true,
            Scope::Sent(sent) => {
                self.misses.load(Ordering::Relaxed) < MOST_MISSES && (sent.has(oid) || self.offers.has(oid))
            }
        }
    }

    /// Answers requests until the receiver sends no more. Blocks.
    pub fn answer_all(
        self: &Arc<Self>,
        mut asks: mpsc::UnboundedReceiver<Vec<Ask>>,
    ) -> Result<(), CopyError> {
        while let Some(mut batch) = asks.blocking_recv() {
            while batch.len() < BATCH
                && let Ok(more) = asks.try_recv()
            {
                batch.extend(more);
            }
            while !batch.is_empty() {
                let rest = batch.split_off(together(&batch));
                let signed = batch.iter().map(Ask::signature_len).sum();
                self.answer(std::mem::replace(&mut batch, rest))?;
                lock(&self.bases).answered(signed);
            }
        }
        Ok(())
    }

    fn answer(self: &Arc<Self>, files: Vec<Ask>) -> Result<(), CopyError> {
        let (mut answers, mut rest) = (Vec::with_capacity(files.len()), Vec::new());
        let (files, changed): (Vec<_>, Vec<_>) = files.into_iter().partition(|ask| ask.request.is_none());
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
        let read = self.read_all(rest)?;
        self.send_replies(answers, read)
    }

    /// Reads files, several at a time, and tells the index what they hold.
    fn read_all(&self, files: Vec<Ask>) -> Result<Vec<ReadAsk>, CopyError> {
        let read_one = |mut ask: Ask| match ask.request.take() {
            Some(request) if !ask.compare => (self.read_changed(&ask, request), ask),
            _ => (read(&ask), ask),
        };
        let read: Vec<_> = files.into_par_iter().with_max_len(4).map(read_one).collect();
        let records: Vec<_> = read.iter().filter_map(|(read, _)| hashed(read.as_ref().ok()?)).collect();
        if !records.is_empty() {
            self.store.remember(&records)?;
        }
        Ok(read)
    }

    /// Says what was read, behind the `answers` that needed no reading.
    fn send_replies(&self, mut answers: Vec<Answer>, read: Vec<ReadAsk>) -> Result<(), CopyError> {
        let mut in_parts = Vec::new();
        for (read, ask) in read {
            let (entry, is_again) = (ask.entry, ask.is_again);
            let (answer, goes_on) = self.reply(read, ask);
            match goes_on {
                Some((located, exchange)) => in_parts.push((answer, located, exchange)),
                None => {
                    self.signatures.forget(entry);
                    answers.push(Answer { is_again, ..answer });
                }
            }
        }
        self.send_answers(answers)?;
        // Patches wait for nothing of the receiver.
        in_parts.sort_by_key(|(_, _, exchange)| !exchange.has_named_base());
        // Each behind its own answer: the receiver takes one such file at a time.
        for (answer, located, exchange) in in_parts {
            let entry = answer.entry;
            self.send(Message::Answers(Answers { answers: vec![answer] }))?;
            self.send_exchange(entry, &located, exchange)?;
        }
        Ok(())
    }

    fn read_changed(&self, ask: &Ask, request: Request) -> Result<Read, UnreadFile> {
        let (mut store, mut alone) = (None, None);
        if let Base::Named(base) = &request.base {
            alone = (ask.located.stamp.size > LARGE_PATCH).then(|| lock(&self.patching));
            store = self.may_be_base(base).then_some(&*self.store as &dyn Store);
        }
        let read = read_changed(ask, request, store, self.level(&self.control).max(1));
        drop(alone);
        read
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
