//! Files from a sender at the other end of a connection: it is asked for their names, and their
//! bytes come through a transfer session.

mod answered;
mod in_parts;
mod settled;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use towpath_content::Oid;
use towpath_content::delta::exchange::Request;
use towpath_protocol::ControlSender;
use towpath_protocol::processors::Processors;
use towpath_transfer::Session;
use towpath_transfer::progress::Progress;

use self::settled::{Settlement, tell_settled};
use super::delta_receiver::DeltaReceiver;
use super::delta_requests::DeltaRequests;
use super::file::CopyFile;
use super::file_result::{FileResult, Settling};
use super::message::hung_up;
use super::message::{Asks, Bases, DeltaMessage, Message, violation};
use super::supply::Supplier;
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_reuse::candidates::search::CandidateSearch;

/// Files asked for in one message.
const TOGETHER: usize = 128;
/// Files of at most so many bytes come with the answer, which saves a question, two look-ups in
/// indexes and a second reading for each.
const INLINE: u32 = 64 << 10;
/// Bytes of signatures in one message, and what each takes besides, at most.
const BASES_BYTES: usize = 192 << 10;
const BASE_COST: usize = 24;

/// Asks a sender, and hands its answers to a session.
pub struct RemoteSupplier {
    control: ControlSender,
    runtime: Handle,
    /// Files asked for and not answered; `None` once the copy is over. They lead back to this, so none may
    /// stay then.
    asked: Mutex<Option<HashMap<u64, Arc<CopyFile>>>>,
    /// Those of which an answer that was sent once more came first: the other one may still be on its way
    /// through another thread.
    overtaken: Mutex<HashSet<u64>>,
    next: Mutex<Asks>,
    session: Weak<Session>,
    progress: Progress,
    /// What the sender is called where bytes are counted.
    source: Arc<str>,
    /// All that can be compressed is to be.
    compress: bool,
    delta_requests: DeltaRequests,
    candidates: CandidateSearch,
    /// A file that comes in parts: the sender sends one after the other.
    receiver: Mutex<Option<DeltaReceiver>>,
    /// Held while signatures are told: what is asked for comes before what answers demand.
    signing: Mutex<()>,
    /// What files pass.
    processors: Processors,
    /// Files that may have been renamed, until the walk is over.
    held: Mutex<Option<Vec<HeldAnswers>>>,
    done: mpsc::UnboundedSender<Settlement>,
}

/// A file with the name of its content.
type HeldAnswers = (Arc<CopyFile>, Oid);

impl RemoteSupplier {
    /// Speaks over `control` and fetches by `session`. With `compress` all bytes are fetched if the sender
    /// can't pack its messages. What comes besides the session passes `processors`. Must be made within
    /// a runtime.
    pub fn new(
        control: ControlSender,
        session: &Arc<Session>,
        compress: bool,
        delta_requests: DeltaRequests,
        candidates: CandidateSearch,
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
            delta_requests,
            candidates,
            receiver: Mutex::default(),
            signing: Mutex::default(),
            processors: processors.clone(),
            held: Mutex::new(Some(Vec::new())),
            done,
        })
    }

    fn send(&self, message: Message) -> Result<(), CopyError> {
        self.runtime.block_on(self.control.send(message.into_bytes())).map_err(|_| hung_up())
    }

    /// Files that are about to be asked for.
    fn files(&self, entries: &[u64]) -> Vec<(u64, Arc<CopyFile>)> {
        let asked = lock(&self.asked);
        let file = |entry: &u64| Some((*entry, Arc::clone(asked.as_ref()?.get(entry)?)));
        entries.iter().filter_map(file).collect()
    }

    /// Files whose bytes may be here under other names are asked for by the names of their contents, and those of which an
    /// older version lies elsewhere like those that have one in their place.
    fn find_candidates(&self, asks: &mut Asks) {
        let files = self.files(&[&asks.entries[..], &asks.compare].concat());
        let (files, sought): (Vec<_>, Vec<_>) =
            files.iter().filter_map(|(entry, file)| Some(((*entry, file), file.sought()?))).unzip();
        let Some(root) = files.first().and_then(|(_, file)| file.root()) else { return };
        let found = self.candidates.find(root, |bytes| self.delta_requests.network_for(bytes), &sought);
        let (mut alike, mut older) = (Vec::new(), Vec::new());
        for ((entry, file), found) in files.into_iter().zip(found) {
            let Some(found) = found else { continue };
            if found.is_same() {
                alike.push(entry)
            } else {
                older.push(entry)
            }
            file.set_found(found);
        }
        let is_left = |entry: &u64| !alike.contains(entry) && !older.contains(entry);
        asks.compare.retain(is_left);
        asks.entries.retain(is_left);
        asks.compare.extend(alike);
        asks.entries.extend(older);
    }

    /// Tells the sender what lies in the place of files that are about to be asked for.
    fn send_bases(&self, requests: &[(u64, Request)]) -> Result<(), CopyError> {
        let (mut bases, mut bytes) = (Vec::new(), 0);
        for (entry, request) in requests {
            // Files asked for together are so few that what has no signature fits.
            let signature = request.base.signature_len();
            let cost = if signature == 0 { 0 } else { signature + BASE_COST };
            if bytes + cost > BASES_BYTES {
                self.send(Message::Bases(Bases { bases: std::mem::take(&mut bases) }))?;
                bytes = 0;
            }
            bytes += cost;
            bases.push(DeltaMessage { entry: *entry, bytes: request.to_bytes().into() });
        }
        if bases.is_empty() { Ok(()) } else { self.send(Message::Bases(Bases { bases })) }
    }

    /// Asks for files, after telling what lies in their places.
    fn ask(&self, asks: Asks, must_sign: bool) -> Result<(), CopyError> {
        let files = self.files(&asks.entries);
        let requests = self.delta_requests.requests(&files, must_sign);
        self.send_bases(&requests)?;
        let pack = self.delta_requests.pack_level(self.compress);
        let inline = if self.compress && pack == 0 { 0 } else { INLINE };
        let _first = lock(&self.signing);
        self.send(Message::Asks(Asks { inline, pack, ..asks }))?;
        for (entry, request) in requests {
            if let Some((_, file)) = files.iter().find(|(number, _)| *number == entry) {
                let send = |signature| self.send_signature_now(entry, &signature);
                self.delta_requests.sign_ahead(&request.base, file, send)?;
            }
        }
        Ok(())
    }

    /// The sender does not have what lies in the place of these files.
    fn ask_again(&self, entries: Vec<u64>) -> Result<(), CopyError> {
        for entry in &entries {
            let is_asked = lock(&self.asked).as_ref().is_some_and(|asked| asked.contains_key(entry));
            if self.delta_requests.answered(*entry).and_then(|told| told.oid).is_none() || !is_asked {
                return Err(violation("a base that nobody named is lacking"));
            }
            self.delta_requests.named(false);
        }
        for entries in entries.chunks(TOGETHER) {
            self.ask(Asks { entries: entries.to_vec(), ..Asks::default() }, true)?;
        }
        Ok(())
    }

    /// The copy is over, however it ended: nothing is asked for any more.
    pub fn end(&self) {
        *lock(&self.asked) = None;
        *lock(&self.held) = None;
        *lock(&self.receiver) = None;
    }

    /// Waits until the sender was told of all files that are done with.
    pub async fn flush(&self) {
        let (end, flushed) = oneshot::channel();
        if self.done.send(Settlement::Flushed(end)).is_ok() {
            let _ = flushed.await;
        }
    }
}

impl Settling for RemoteSupplier {
    fn settled(&self, entry: u64, result: FileResult) {
        let _ = self.done.send(Settlement::Settled(entry, result));
    }
}

impl Supplier for RemoteSupplier {
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), CopyError> {
        let entry = file.wanted().entry;
        let compare = file.wanted().compare.is_some() || file.old_names().may_be();
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

    fn considered(&self, entry: u64) -> Result<(), CopyError> {
        // What was asked for before must not be forgotten by the sender.
        self.push()?;
        self.done.send(Settlement::Considered(entry)).map_err(|_| hung_up())
    }

    fn walk_is_over(&self) -> Result<(), CopyError> {
        let held = lock(&self.held).take();
        held.into_iter().flatten().for_each(|(file, oid)| self.fetch(file, oid));
        Ok(())
    }

    fn push(&self) -> Result<(), CopyError> {
        let mut asks = std::mem::take(&mut *lock(&self.next));
        if asks.entries.is_empty() && asks.compare.is_empty() {
            return Ok(());
        }
        self.find_candidates(&mut asks);
        self.ask(asks, false)
    }
}
