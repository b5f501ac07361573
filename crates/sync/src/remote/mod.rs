//! Files from a sender at the other end of a connection: a transfer session asks it for their entries, and fetches by name
//! what does not come with the answers.

mod answered;
mod in_parts;

use std::sync::{Arc, Mutex, Weak};
use towpath_transfer::SourceId;
use towpath_transfer::source::PEER;

use tokio::runtime::Handle;
use towpath_content::Oid;
use towpath_protocol::processors::Processors;
use towpath_transfer::Session;
use towpath_transfer::offer::EntryQuery;
use towpath_transfer::progress::Progress;
use towpath_transfer::session::EntryRequest;

use self::answered::RemoteFile;
use super::delta_requests::DeltaRequests;
use super::file::CopyFile;
use super::file_result::{FileResult, Settling};
use super::message::hung_up;
use super::supply::Supplier;
use super::tree_link::TreeLink;
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_reuse::candidates::search::CandidateSearch;

/// Files asked for together.
const TOGETHER: usize = 256;
/// Files of at most so many bytes come with the answer, which saves a question, two look-ups in
/// indexes and a second reading for each.
const INLINE: u32 = 64 << 10;

/// Hands entries to a session, and makes files of what comes of them.
pub struct RemoteSupplier {
    /// For its files.
    this: Weak<Self>,
    runtime: Handle,
    /// Files that are about to be asked for; `None` once the copy is over. They lead back to this, so none may
    /// stay then.
    next: Mutex<Option<Vec<PendingFile>>>,
    tree: Arc<TreeLink>,
    session: Weak<Session>,
    progress: Progress,
    /// What the sender is called where bytes are counted.
    source: SourceId,
    /// All that can be compressed is to be.
    compress: bool,
    delta_requests: DeltaRequests,
    candidates: CandidateSearch,
    /// What files pass.
    processors: Processors,
    /// Files that may have been renamed, until the walk is over.
    held: Mutex<Option<Vec<HeldFile>>>,
}

/// A file that is about to be asked for.
struct PendingFile {
    file: Arc<CopyFile>,
    /// Its content has to be named.
    compare: bool,
}

/// A file with the name of its content.
type HeldFile = (Arc<CopyFile>, Oid);

impl RemoteSupplier {
    /// Asks and fetches by `session`, and says to `tree` what became of files. With `compress` all bytes that
    /// can be are to be compressed. What comes besides the session's objects passes `processors`. Must be made within a
    /// runtime.
    pub fn new(
        tree: &Arc<TreeLink>,
        session: &Arc<Session>,
        compress: bool,
        delta_requests: DeltaRequests,
        candidates: CandidateSearch,
        processors: &Processors,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            runtime: Handle::current(),
            next: Mutex::new(Some(Vec::new())),
            tree: Arc::clone(tree),
            session: Arc::downgrade(session),
            progress: session.progress(),
            source: SourceId::other(PEER, None),
            compress,
            delta_requests,
            candidates,
            processors: processors.clone(),
            held: Mutex::new(Some(Vec::new())),
        })
    }

    /// Files whose bytes may be here under other names are asked for by the names of their contents, and those of which an
    /// older version lies elsewhere like those that have one in their place.
    fn find_candidates(&self, files: &mut [PendingFile]) {
        let sought: Vec<_> =
            files.iter().enumerate().filter_map(|(at, pending)| Some((at, pending.file.sought()?))).collect();
        let Some(root) = sought.first().and_then(|(at, _)| files[*at].file.root()) else { return };
        let (places, sought): (Vec<_>, Vec<_>) = sought.into_iter().unzip();
        let found = self.candidates.find(root, |bytes| self.delta_requests.network_for(bytes), &sought);
        for (at, found) in places.into_iter().zip(found) {
            if let Some(found) = found {
                files[at].compare = found.is_same();
                files[at].file.set_found(found);
            }
        }
    }

    /// Asks for files, and describes what lies in their places.
    fn ask(&self, files: Vec<PendingFile>) {
        let (Some(this), Some(session)) = (self.this.upgrade(), self.session.upgrade()) else { return };
        let changed: Vec<_> = files.iter().filter(|file| !file.compare).map(|file| &file.file).collect();
        let mut described = self.delta_requests.requests(&changed, false).into_iter();
        let pack = self.delta_requests.pack_level(self.compress);
        let requests = files.into_iter().map(|PendingFile { file, compare }| {
            let described = if compare { None } else { described.next().flatten() };
            let (base, described) = described.unzip();
            let query = EntryQuery { entry: file.wanted().entry, compare, inline: INLINE, pack, base };
            EntryRequest { query, target: Box::new(RemoteFile::new(&this, file, described)) }
        });
        let requests: Vec<_> = requests.collect();
        self.runtime.block_on(session.submit_entries(requests));
    }

    /// What was made of older versions: files, and bytes that did not have to come.
    pub fn made_of_older(&self) -> (u64, u64) {
        self.delta_requests.account()
    }

    /// The copy is over, however it ended: nothing is asked for any more.
    pub fn end(&self) {
        *lock(&self.next) = None;
        *lock(&self.held) = None;
        self.tree.end();
    }
}

impl Settling for RemoteSupplier {
    fn settled(&self, entry: u64, result: FileResult) {
        self.tree.settled(entry, result);
    }
}

impl Supplier for RemoteSupplier {
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), CopyError> {
        self.tree.want(file.wanted().entry);
        let compare = file.wanted().compare.is_some() || file.old_names().may_be();
        let count = {
            let mut next = lock(&self.next);
            let next = next.as_mut().ok_or_else(hung_up)?;
            next.push(PendingFile { file, compare });
            next.len()
        };
        if count >= TOGETHER { self.push() } else { Ok(()) }
    }

    fn inspects(&self) -> bool {
        self.processors.inspect_any()
    }

    fn considered(&self, entry: u64) -> Result<(), CopyError> {
        self.push()?;
        self.tree.considered(entry)
    }

    fn walk_is_over(&self) -> Result<(), CopyError> {
        let held = lock(&self.held).take();
        held.into_iter().flatten().for_each(|(file, oid)| self.fetch_held(file, oid));
        Ok(())
    }

    fn push(&self) -> Result<(), CopyError> {
        let mut files = lock(&self.next).as_mut().map(std::mem::take).unwrap_or_default();
        if !files.is_empty() {
            self.find_candidates(&mut files);
            self.ask(files);
        }
        Ok(())
    }
}
