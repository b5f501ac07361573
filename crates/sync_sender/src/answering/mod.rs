//! What the sender answers to each ask: the name of a file's content, or that and the content itself, or
//! what makes it of the older version that the receiver has.
//!
//! ```text
//!                          ┌ the index knows it ─────► its name
//!   asks of a `Get` ► read ┤ little ─────────────────► name and content
//!     (all cores)          │ changed ────────────────► name, then deltas or a patch
//!                          └ large and not known ────► a live name, then it is hashed
//! ```
//!
//! What is asked for is hashed in batches on all cores and named by its content; a large file that the
//! index does not know is named by a live object, so that its first pieces travel while the rest is being
//! hashed.
//!
//! Asks come over any connection of the copy, and once more over another one when theirs was lost.
mod in_parts;
mod live;
mod outbox;
mod replies;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use towpath_content::Oid;
use towpath_protocol::offer::EntryAsk;
use towpath_protocol::{ControlSender, Replies};
use towpath_store::{DiskStore, Store};
use towpath_transfer::Outcome;

use self::outbox::AnswerQueue;
use self::replies::NamedAnswer;
use super::events::Events;
use super::offers::Offers;
use super::reading::{Ask, Read, UnreadFile, read};
use super::sent::SentTo;
use super::source::Located;
use super::tree_sending::TreeSending;
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_protocol::pack_backoff::PackBackoff;

/// A file up to this size is hashed before it is named.
const HASH_FIRST: u64 = 64 << 20;
/// Files of more bytes never go with their names.
const INLINE: u32 = 64 << 10;
/// Patches of files of more bytes are made one at a time for a `Get`: file and base are held.
const LARGE_PATCH: u64 = 8 << 20;
/// The hardest that a receiver may ask to pack: beyond, it takes much longer for little.
const MOST_PACKED: u32 = 12;
/// What costs a fast network's processors hardly anything.
const QUICK: u32 = 1;
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

/// Properties of a copy that its answers depend on.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnswerRules {
    /// The person limits the rate.
    pub is_limited: bool,
    /// Something looks at all contents: none goes with its name, or as a delta, past it.
    pub is_inspected: bool,
}

/// What was read for an ask.
type ReadAsk = (Result<Read, UnreadFile>, Ask);

/// The tree of a copy, and where the files are that may be asked for.
pub type SentTree = Mutex<TreeSending<Located, WantedFile>>;

/// Answers what one receiver asks.
pub struct Answering {
    tree: Arc<SentTree>,
    scope: Scope,
    store: Arc<DiskStore>,
    offers: Arc<Offers>,
    control: ControlSender,
    events: Events,
    runtime: Handle,
    large: Arc<Semaphore>,
    state: Mutex<AnsweringState>,
    rules: AnswerRules,
    /// The copy is over: nobody waits for the receiver any more.
    over: CancellationToken,
}

/// What answers change.
#[derive(Default)]
struct AnsweringState {
    /// Bases that were named and are not there; after some tens none is looked for.
    misses: u32,
    /// zstd's level that the receiver asked for; 0: answers go as they are. None before it asked, when nobody knows the network.
    pack: Option<u32>,
    /// Whether that is worth it.
    packing: PackBackoff,
}

/// A file that is wanted.
pub struct WantedFile {
    /// Where it is.
    pub located: Located,
    /// The names it was given.
    oids: HashSet<Oid>,
    /// The person knows that it can't be read.
    pub is_told: bool,
    /// The base that was named of it: one, not one after the other until one is here.
    base: Option<Oid>,
}

impl From<Located> for WantedFile {
    fn from(located: Located) -> Self {
        Self { located, oids: HashSet::new(), is_told: false, base: None }
    }
}

impl Answering {
    /// Nothing asked yet of `tree`, which goes over `control`. Must be made within a runtime.
    pub fn new(
        tree: Arc<SentTree>,
        (store, scope): (Arc<DiskStore>, Scope),
        offers: Arc<Offers>,
        control: ControlSender,
        events: Events,
        rules: AnswerRules,
    ) -> Arc<Self> {
        Arc::new(Self {
            tree,
            scope,
            store,
            offers,
            control,
            events,
            runtime: Handle::current(),
            large: Arc::new(Semaphore::new(LIVE)),
            state: Mutex::default(),
            rules,
            over: CancellationToken::new(),
        })
    }

    /// The files that are asked for. Those that can't be are refused.
    fn locate(&self, asks: Vec<EntryAsk>, replies: &Replies) -> Vec<Ask> {
        let mut tree = lock(&self.tree);
        let mut located = Vec::with_capacity(asks.len());
        for EntryAsk { tag, mut query } in asks {
            let Some(file) = tree.ask(query.entry) else {
                replies.refuse(tag, &Outcome::Refused("an entry that is not on offer".into()));
                continue;
            };
            let goes_whole = !query.compare && !self.rules.is_inspected;
            query.inline = if goes_whole { query.inline.min(INLINE) } else { 0 };
            let mut may_be = |base: Oid| *file.base.get_or_insert(base) == base;
            query.base = query.base.filter(|it| goes_whole && it.base.oid().is_none_or(&mut may_be));
            located.push(Ask { tag, query, located: file.located.clone() });
        }
        located
    }

    /// A file is settled.
    pub fn forget(&self, file: &WantedFile) {
        file.oids.iter().for_each(|oid| self.offers.remove(oid));
    }

    /// The receiver has a file with these contents now.
    pub fn placed(&self, file: &WantedFile) {
        if let Scope::Sent(sent) = &self.scope {
            file.oids.iter().for_each(|oid| sent.add(oid, file.located.stamp.size));
        }
    }

    /// The copy is over.
    pub fn end(&self) {
        self.over.cancel();
    }

    /// Whether a base that the receiver names may be looked for.
    fn may_be_base(&self, oid: &Oid) -> bool {
        match &self.scope {
            Scope::Index => true,
            Scope::Sent(sent) => {
                let misses = lock(&self.state).misses;
                misses < MOST_MISSES && (sent.has(oid) || self.offers.has(oid))
            }
        }
    }

    /// Answers the asks of one `Get`. Blocks.
    pub fn answer_all(
        self: &Arc<Self>,
        asks: Vec<EntryAsk>,
        replies: &Arc<Replies>,
    ) -> Result<(), CopyError> {
        let Some(first) = asks.first() else { return Ok(()) };
        let (request, pack) = (first.tag.request, first.query.pack.min(MOST_PACKED));
        lock(&self.state).pack = Some(pack);
        let out = AnswerQueue::new(replies, &self.runtime);
        let mut asks = self.locate(asks, replies);
        while !asks.is_empty() && !replies.is_over(request) {
            let rest = asks.split_off(together(&asks));
            self.answer(std::mem::replace(&mut asks, rest), &out)?;
        }
        out.errands.finish()
    }

    fn answer(self: &Arc<Self>, files: Vec<Ask>, out: &AnswerQueue) -> Result<(), CopyError> {
        let (mut answers, mut rest) = (Vec::with_capacity(files.len()), Vec::new());
        let (files, changed): (Vec<_>, Vec<_>) = files.into_iter().partition(|ask| ask.query.base.is_none());
        for ask in files {
            match self.known(&ask).or_else(|| self.hashed_now(&ask)) {
                Some(oid) => answers.push(self.named(&ask, oid)),
                None if ask.located.stamp.size > HASH_FIRST && !ask.query.compare => {
                    self.stream(ask, &out.replies)
                }
                None => rest.push(ask),
            }
        }
        rest.extend(changed);
        let read = self.read_all(rest, self.level(&out.replies).max(1))?;
        self.send_replies(answers, read, out)
    }

    /// Reads files, several at a time, and tells the index what they hold. Patches are made with zstd's `level`.
    fn read_all(&self, files: Vec<Ask>, level: i32) -> Result<Vec<ReadAsk>, CopyError> {
        let read_one = |mut ask: Ask| (self.read(&mut ask, level), ask);
        // Of large patches each holds a file and its base.
        let (alone, files): (Vec<_>, Vec<_>) = files.into_iter().partition(is_large_patch);
        let (mut read, alone): (Vec<_>, Vec<_>) = rayon::join(
            || files.into_par_iter().with_max_len(4).map(read_one).collect(),
            || alone.into_iter().map(read_one).collect(),
        );
        read.extend(alone);
        let to_index = |(read, ask): &ReadAsk| read.as_ref().ok()?.to_index(ask);
        let records: Vec<_> = read.iter().filter_map(to_index).collect();
        if !records.is_empty() {
            self.store.remember(&records)?;
        }
        Ok(read)
    }

    /// Says what was read, behind the `answers` that needed no reading.
    fn send_replies(
        &self,
        mut answers: Vec<NamedAnswer>,
        read: Vec<ReadAsk>,
        out: &AnswerQueue,
    ) -> Result<(), CopyError> {
        let mut in_parts = Vec::new();
        for (read, mut ask) in read {
            match read {
                Err(error) => self.refuse(&ask, &error, &out.replies),
                Ok(Read { hashed, body, exchange: None }) => answers.push(self.reply(&mut ask, hashed, body)),
                Ok(Read { hashed, body, exchange: Some(exchange) }) => {
                    in_parts.push((self.reply(&mut ask, hashed, body), ask.located, exchange));
                }
            }
        }
        self.send_answers(answers, out)?;
        // Patches wait for nothing of the receiver.
        in_parts.sort_by_key(|(_, _, exchange)| exchange.base.is_none());
        for (answer, located, exchange) in in_parts {
            let tag = answer.0;
            self.send_answers(vec![answer], out)?;
            self.send_exchange(tag, &located, exchange, out)?;
        }
        Ok(())
    }

    fn read(&self, ask: &mut Ask, level: i32) -> Result<Read, UnreadFile> {
        let may_be_here = ask.named_base().is_some_and(|base| self.may_be_base(&base));
        read(ask, may_be_here.then_some(&*self.store as &dyn Store), level)
    }
}

/// Whether a file may go as a patch that is made alone.
fn is_large_patch(ask: &Ask) -> bool {
    ask.named_base().is_some() && ask.located.stamp.size > LARGE_PATCH
}

/// How many files from the front are answered in one go: the first bytes of none should wait long
/// for the hash of others.
fn together(batch: &[Ask]) -> usize {
    let mut bytes = 0;
    let is_little = |ask: &&Ask| {
        bytes += ask.located.stamp.size;
        bytes <= HASH_FIRST
    };
    batch.iter().take_while(is_little).count().max(1)
}
