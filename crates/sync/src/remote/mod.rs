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
    next: Option<Vec<Arc<CopyFile>>>,
    /// They may have been renamed: until the walk is over.
    held: Option<Vec<HeldFile>>,
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
    fn ask_first(&self, files: Vec<Arc<CopyFile>>) -> Result<Vec<Arc<CopyFile>>, CopyError> {
        let facts = |file: &Arc<CopyFile>| FirstFile {
            size: if file.is_named_first() { 0 } else { file.size() },
            has_older: file.base().size().is_some(),
        };
        let facts: Vec<_> = files.iter().map(facts).collect();
        let network = self.delta_requests.network_of(&files);
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
    fn find_candidates(&self, files: &[Arc<CopyFile>]) {
        let sought = files.iter().filter_map(|file| Some((file, file.sought()?)));
        let (files, sought): (Vec<_>, Vec<_>) = sought.unzip();
        let Some(placing) = files.first().and_then(|file| file.receiving().opened()) else { return };
        let network = |bytes| self.delta_requests.network_for(bytes);
        let found = self.candidates.find(&placing.base, network, &sought);
        for (file, found) in files.into_iter().zip(found) {
            found.into_iter().for_each(|found| file.set_found(found));
        }
    }

    /// Asks for files, and describes what they may be made of.
    fn ask(&self, files: Vec<Arc<CopyFile>>) -> Result<(), CopyError> {
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        let described = self.delta_requests.requests(&files, false);
        let pack = self.delta_requests.pack_level(self.compress);
        let requests = files.into_iter().zip(described).map(|(file, described)| {
            let (base, described) = described.unzip();
            let (entry, compare) = (file.wanted().entry, file.is_named_first());
            let query = EntryQuery { entry, compare, inline: INLINE, pack, base };
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
        let count = {
            let mut lists = lock(&self.lists);
            let next = lists.next.as_mut().ok_or_else(hung_up)?;
            next.push(file);
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
        self.find_candidates(&files);
        self.ask(files)
    }
}
