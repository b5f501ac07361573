//! Files from a sender at the other end of a connection: a transfer session asks it for their entries, and fetches by name
//! what does not come with the answers.

mod answered;
mod in_parts;
#[cfg(test)]
mod interrupted;
mod told;

use std::sync::{Arc, Mutex, Weak};
use towpath_transfer::SourceId;
use towpath_transfer::source_id::PEER;

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
use super::first_files::{FirstFile, FirstFiles, FirstStep};
use super::message::{PROBE, hung_up};
use super::supply::Supplier;
use super::tree_link::TreeLink;
use crate::errands::Errands;
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_reuse::candidates::search::CandidateSearch;
use towpath_reuse::delta::made::MadeDeltas;

/// Files asked for together.
const TOGETHER: usize = 256;
/// Files of at most so many bytes come with the answer, which saves a question, two look-ups in
/// indexes and a second reading for each.
const INLINE: u32 = 64 << 10;

/// Hands entries to a session, and makes files of what comes of them.
pub struct RemoteSupplier {
    /// For its files.
    this: Weak<Self>,
    lists: Mutex<FileLists>,
    tree: Arc<TreeLink>,
    session: Weak<Session>,
    /// Requests on their way to it.
    errands: Errands,
    progress: Progress,
    /// What the sender is called where bytes are counted, unless several links to it are told apart.
    source: SourceId,
    /// All that can be compressed is to be.
    compress: bool,
    delta_requests: DeltaRequests,
    first: Arc<FirstFiles>,
    candidates: CandidateSearch,
    /// What files pass.
    processors: Processors,
}

/// Files that wait, until the copy is over. They lead back to the supplier, so none may stay then.
#[derive(Default)]
struct FileLists {
    /// They are about to be asked for.
    next: Option<Vec<PendingFile>>,
    /// They may have been renamed: until the walk is over.
    held: Option<Vec<HeldFile>>,
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
        (delta_requests, first): (DeltaRequests, Arc<FirstFiles>),
        candidates: CandidateSearch,
        processors: &Processors,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            lists: Mutex::new(FileLists { next: Some(Vec::new()), held: Some(Vec::new()) }),
            tree: Arc::clone(tree),
            session: Arc::downgrade(session),
            errands: Errands::start(&Handle::current()),
            progress: session.progress(),
            source: SourceId::other(PEER, None),
            compress,
            delta_requests,
            first,
            candidates,
            processors: processors.clone(),
        })
    }

    /// Asks for a few of them before the others, or for a probe, where only that tells of the network. Returns the others.
    fn ask_first(&self, files: Vec<PendingFile>) -> Result<Vec<PendingFile>, CopyError> {
        let facts = |pending: &PendingFile| FirstFile {
            size: if pending.compare { 0 } else { pending.file.size() },
            has_older: pending.file.base().size().is_some(),
        };
        let facts: Vec<_> = files.iter().map(facts).collect();
        let old_bytes =
            files.iter().filter_map(|pending| pending.file.base().size()).fold(0, u64::saturating_add);
        let network = self.delta_requests.network_for(old_bytes);
        let chosen = match self.first.choose(&network, &facts, INLINE.into()) {
            FirstStep::Files(chosen) => chosen,
            FirstStep::All => return Ok(files),
            FirstStep::Probe => {
                self.first.probe(PROBE, |limit| self.tree.probe(limit));
                return Ok(files);
            }
        };
        let bytes = chosen.iter().map(|at| facts[*at].size).sum();
        let places = files.into_iter().enumerate();
        let (first, others): (Vec<_>, Vec<_>) = places.partition(|(at, _)| chosen.binary_search(at).is_ok());
        let first = first.into_iter().map(|(_, file)| file).collect();
        self.first.ask(bytes, &self.progress, || self.ask(first))?;
        Ok(others.into_iter().map(|(_, file)| file).collect())
    }

    /// Files whose bytes may be here under other names are asked for by the names of their contents, and those of which an
    /// older version lies elsewhere like those that have one in their place.
    fn find_candidates(&self, files: &mut [PendingFile]) {
        let sought: Vec<_> =
            files.iter().enumerate().filter_map(|(at, pending)| Some((at, pending.file.sought()?))).collect();
        let placing = sought.first().and_then(|(at, _)| files[*at].file.receiving().opened());
        let Some(root) = placing.map(|placing| &*placing.base) else { return };
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
    fn ask(&self, files: Vec<PendingFile>) -> Result<(), CopyError> {
        let Some(this) = self.this.upgrade() else { return Ok(()) };
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
        let session = Weak::clone(&self.session);
        self.errands.hand(async move {
            if let Some(session) = session.upgrade() {
                session.submit_entries(requests).await;
            }
            Ok(())
        })
    }

    /// Files that were made of older versions.
    pub fn made_of_older(&self) -> MadeDeltas {
        self.delta_requests.made_of_older()
    }

    /// The copy is over, however it ended: nothing is asked for any more.
    pub fn end(&self) {
        let over = std::mem::take(&mut *lock(&self.lists));
        drop(over);
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
            let mut lists = lock(&self.lists);
            let next = lists.next.as_mut().ok_or_else(hung_up)?;
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
        let held = lock(&self.lists).held.take();
        held.into_iter().flatten().try_for_each(|(file, oid)| self.fetch_held(file, oid))
    }

    fn push(&self) -> Result<(), CopyError> {
        let mut files = lock(&self.lists).next.as_mut().map(std::mem::take).unwrap_or_default();
        if files.is_empty() {
            return Ok(());
        }
        files = self.ask_first(files)?;
        self.find_candidates(&mut files);
        self.ask(files)
    }
}
