//! A copy of a tree that a ticket names: its descriptor comes as an object, and says what its files contain. So nobody
//! is asked for names: the walk goes along the descriptor, and a session fetches what is wanted by the names in it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use towpath_api::copy::{CopyEvent, CopyOptions, CopySummary, FailureKind, Mode};
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::tree::{self, Entry, Event, Kind, LEFT_OUT, Metadata};
use towpath_files::{FileError, RelPath, Selection};
use towpath_protocol::processors::Processors;
use towpath_targets::base_file::BaseFile;
use towpath_targets::descriptor::{DescriptorEnd, follow};
use towpath_targets::file_target::TargetFile;
use towpath_targets::spool::SpoolReader;
use towpath_transfer::SourceId;
use towpath_transfer::session::OnDone;
use towpath_transfer::want::Coverage;
use towpath_transfer::{FetchError, Fetched, Group, ObjectRequest, Outcome, Session};

use crate::endpoint::{StopOnDrop, blocking, receiving};
use crate::errands::Errands;
use crate::error::CopyError;
use crate::events::{Events, events, failed};
use crate::file::CopyFile;
use crate::file_result::{FileResult, Settling};
use crate::host::Host;
use crate::merge::{Destined, Merge};
use crate::message::violation;
use crate::receiving::Receiving;
use crate::supply::Supplier;
use towpath_reuse::candidates::found_files::{FoundFiles, Use};

/// Files asked for together.
const TOGETHER: usize = 64;
/// Source of files whose bytes are in the descriptor.
const DESCRIPTOR: &str = "descriptor";

/// What a ticket names.
pub enum DescribedSource {
    /// A tree, or a part of it.
    Tree(DescribedTree),
    /// A single file.
    File {
        /// Its entry, with the name of its content.
        entry: Entry,
    },
}

/// A tree, and what is wanted of it.
pub struct DescribedTree {
    /// Reader of the descriptor, which may still be on its way.
    pub descriptor: SpoolReader,
    /// Entries that are wanted.
    pub selection: Selection,
    /// Name of the tree's root.
    pub name: Vec<u8>,
    /// Metadata that are taken of an entry's.
    pub taken: fn(Metadata) -> Metadata,
}

/// Copies what is wanted to `destination`: of a whole tree what is in it, wanted paths each under its name, a file as the
/// destination itself. `session` brings the contents, but for what is made of `found_files`. Returns what was done, and the
/// selection, which knows what is not in the tree.
pub async fn copy_described(
    host: &Arc<Host>,
    (source, session, found_files): (DescribedSource, Arc<Session>, Option<Arc<FoundFiles>>),
    options: CopyOptions,
    path: PathBuf,
    person: mpsc::Sender<CopyEvent>,
) -> Result<(CopySummary, Option<Selection>), CopyError> {
    let (events, inbox) = events(host.words);
    let tally = tokio::spawn(inbox.show_to(person));
    let receiving = receiving(host, &options, events.clone(), false);
    let supplier = DescribedSupplier::new(&receiving, &session, found_files, &host.processors);
    let (sources, contents) = source.sources();
    let destined = Destined { path, mode: Mode::Sync, sources, contents, names: None };
    let mut merge = Merge::new(&receiving, Some(Arc::clone(&supplier) as _), destined)?;
    let stop = StopOnDrop(Arc::clone(&receiving));
    let walked = blocking(move || {
        merge.step(Event::Enter(nameless()), None)?;
        let selection = match source {
            DescribedSource::Tree(tree) => Some(walk(tree, &mut merge, &supplier, &events)?),
            DescribedSource::File { entry } => {
                file(entry, &mut merge, &supplier)?;
                None
            }
        };
        merge.step(Event::Leave, None)?;
        merge.finish().map(|()| selection)
    });
    let walked = walked.await;
    let selection = receiving.check().and(walked)?;
    let mut summary = receiving.account.summary();
    drop((stop, receiving));
    let tally = tally.await.unwrap_or_default();
    (summary.failed, summary.vanished, summary.skipped) = (tally.failed, tally.vanished, tally.skipped);
    Ok((summary, selection))
}

/// Goes along the descriptor to its end.
fn walk(
    tree: DescribedTree,
    merge: &mut Merge,
    supplier: &DescribedSupplier,
    events: &Events,
) -> Result<Selection, CopyError> {
    let DescribedTree { descriptor, mut selection, name, taken } = tree;
    let followed = follow(descriptor, |step| {
        let Some(tree::Located { mut event, block, content }) = step else { return merge.push() };
        let is_root = selection.depth() == 0;
        let Some(place) = selection.next(&event).map_err(CopyError::source)? else {
            if event.entry().is_some() {
                merge.pass_over();
            }
            return Ok(());
        };
        if let Event::Enter(entry) | Event::Leaf(entry) = &mut event {
            if is_root {
                entry.name.clone_from(&name);
            }
            entry.metadata = taken(std::mem::take(&mut entry.metadata));
        }
        match content_of(&event) {
            Some(Some(oid)) => {
                supplier.note(NamedContent { entry: merge.seen(), oid, block: Some(block), content });
            }
            Some(None) => {
                merge.incomplete();
                merge.pass_over();
                events.failure(failed(place.path.as_bytes(), &not_sent(&place.path), FailureKind::Other));
                return Ok(());
            }
            None => {}
        }
        merge.step(event, None)
    });
    followed.map_err(cut_short).map(|()| selection)
}

/// The one file.
fn file(entry: Entry, merge: &mut Merge, supplier: &DescribedSupplier) -> Result<(), CopyError> {
    if let Kind::File { oid: Some(oid), .. } = entry.kind {
        supplier.note(NamedContent { entry: merge.seen(), oid, block: None, content: Vec::new() });
    }
    merge.step(Event::Leaf(entry), None)
}

impl DescribedSource {
    /// Number of sources that a copy of it has, and whether it is what is in the one.
    fn sources(&self) -> (usize, bool) {
        match self {
            Self::File { .. } => (1, false),
            Self::Tree(tree) => match tree.selection.wanted().count() {
                0 => (1, true),
                paths => (paths, false),
            },
        }
    }
}

/// The name of a file's content; none if its sender left it out.
fn content_of(event: &Event) -> Option<Option<Oid>> {
    match event {
        Event::Leaf(Entry { kind: Kind::File { oid, .. }, .. }) => Some(oid.filter(|oid| *oid != LEFT_OUT)),
        _ => None,
    }
}

/// Reason why a descriptor was not followed to its end.
fn cut_short(end: DescriptorEnd<CopyError>) -> CopyError {
    match end {
        DescriptorEnd::Stopped(error) => error,
        DescriptorEnd::Invalid(error) => violation(&error.to_string()),
        // The session tells why.
        DescriptorEnd::CutOff(_) => CopyError::Cancelled,
    }
}

/// Error of what the sender left out.
fn not_sent(path: &RelPath) -> FileError {
    let why = "left out by the sender, who could not read it or may not send it";
    FileError::new("fetch", &path.below(Path::new("")), std::io::Error::other(why))
}

/// The root of a copy's tree, in which the sources are.
fn nameless() -> Entry {
    Entry { name: Vec::new(), kind: Kind::Directory, metadata: Metadata::default(), hard_link: None }
}

/// The content of the file that the walk comes to.
struct NamedContent {
    entry: u64,
    oid: Oid,
    /// Block of the descriptor that names it, if one does.
    block: Option<u64>,
    /// Its bytes, if they are in the descriptor.
    content: Vec<u8>,
}

/// A file that is about to be asked for.
struct DescribedFile {
    file: Arc<CopyFile>,
    oid: Oid,
    group: Group,
}

/// Brings files by the names of their contents.
struct DescribedSupplier {
    receiving: Weak<Receiving>,
    session: Weak<Session>,
    /// Requests on their way to it.
    errands: Errands,
    processors: Processors,
    found_files: Option<Arc<FoundFiles>>,
    state: Mutex<DescribedState>,
}

#[derive(Default)]
struct DescribedState {
    next: Option<NamedContent>,
    /// Files to be asked for together.
    wanted: Vec<DescribedFile>,
    /// Files that were brought and have no result yet.
    under_way: HashSet<u64>,
    has_failed: bool,
}

impl DescribedSupplier {
    /// Nothing was asked of `session`. Must be made within a runtime.
    fn new(
        receiving: &Arc<Receiving>,
        session: &Arc<Session>,
        found_files: Option<Arc<FoundFiles>>,
        processors: &Processors,
    ) -> Arc<Self> {
        Arc::new(Self {
            receiving: Arc::downgrade(receiving),
            session: Arc::downgrade(session),
            errands: Errands::start(&Handle::current()),
            processors: processors.clone(),
            found_files,
            state: Mutex::default(),
        })
    }

    fn note(&self, content: NamedContent) {
        lock(&self.state).next = Some(content);
    }

    /// Its bytes are at hand.
    fn take(&self, file: &CopyFile, oid: &Oid, content: &[u8]) {
        match file.passes(&self.processors, oid, 0, content) {
            Ok(()) => drop(file.take_content(oid, content, &SourceId::other(DESCRIPTOR, None))),
            Err(outcome) => file.ended(&FetchError::Ended(outcome)),
        }
    }

    fn ask(&self, file: Arc<CopyFile>, oid: Oid, block: Option<u64>) -> Result<(), CopyError> {
        let group = Group { coverage: block.map(|block| Coverage { block }), ..file.group() };
        let count = {
            let mut state = lock(&self.state);
            state.wanted.push(DescribedFile { file, oid, group });
            state.wanted.len()
        };
        if count >= TOGETHER { self.push() } else { Ok(()) }
    }

    /// The request for a file; `is_same`: it is told what proved right of a file that was found, and taken for the same or not.
    fn request(&self, wanted: DescribedFile, is_same: Option<bool>) -> (ObjectRequest, OnDone) {
        let DescribedFile { file, oid, group } = wanted;
        let request = file.request(oid, group);
        let (receiving, found_files) = (Weak::clone(&self.receiving), self.found_files.clone());
        let on_done: OnDone = Box::new(move |result: Result<Fetched, FetchError>| {
            if let Some((is_same, found_files)) = is_same.zip(found_files) {
                found_files.proved(&oid, is_same, file.partial().drawn());
            }
            if let Err(error) = result {
                give_up(&file, &error, receiving.upgrade().as_deref());
            }
        });
        (request, on_done)
    }

    /// Writes what is the same as a file that is here; of others the requests.
    fn after_looking(
        &self,
        found_files: &FoundFiles,
        wanted: Vec<DescribedFile>,
    ) -> Vec<(ObjectRequest, OnDone)> {
        // What is replaced has its older version in its place.
        let (new, replaced): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|wanted| wanted.file.sought().is_some());
        let files: Vec<_> = new.iter().map(|wanted| (&wanted.group, wanted.oid)).collect();
        let found = found_files.find(&files);
        let drawn = new.into_iter().zip(found).filter_map(|(mut wanted, found)| match found {
            None => Some(self.request(wanted, None)),
            Some(Use::Whole(bytes)) => {
                if wanted.file.take_content(&wanted.oid, &bytes, &SourceId::this_machine()) {
                    found_files.took(wanted.file.size());
                }
                None
            }
            Some(Use::Older(found)) => {
                found.show_to_search(&mut wanted.group);
                Some(self.request(wanted, None))
            }
            Some(Use::Pieces(found)) => {
                found.show_to_search(&mut wanted.group);
                wanted.file.partial().set_base(BaseFile::new(found.file, found.size, wanted.file.size()));
                Some(self.request(wanted, Some(found.is_same)))
            }
        });
        let replaced = replaced.into_iter().map(|wanted| self.request(wanted, None));
        drawn.chain(replaced).collect()
    }
}

/// A file can't be had. That its sender does not have it any more is news here.
fn give_up(file: &CopyFile, error: &FetchError, receiving: Option<&Receiving>) {
    match (error, receiving) {
        (FetchError::Ended(Outcome::SourceChanged | Outcome::NotHere | Outcome::Gone), Some(receiving)) => {
            receiving.fetch_problem(&file.wanted().shown, error);
            file.drop_it();
        }
        _ => file.ended(error),
    }
}

impl Settling for DescribedSupplier {
    fn settled(&self, entry: u64, result: FileResult) {
        let mut state = lock(&self.state);
        let was_brought = state.under_way.remove(&entry);
        state.has_failed |= was_brought && matches!(result, FileResult::Dropped | FileResult::Lost);
    }
}

impl Supplier for DescribedSupplier {
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), CopyError> {
        let entry = file.wanted().entry;
        let next = lock(&self.state).next.take().filter(|next| next.entry == entry);
        let Some(NamedContent { oid, block, content, .. }) = next else {
            file.drop_it();
            return Ok(());
        };
        if !file.is_to_come(&oid) {
            return Ok(());
        }
        lock(&self.state).under_way.insert(entry);
        match file.size() == 0 || !content.is_empty() {
            true => self.take(&file, &oid, &content),
            false => self.ask(file, oid, block)?,
        }
        Ok(())
    }

    fn inspects(&self) -> bool {
        self.processors.inspect_any()
    }

    fn considered(&self, _entry: u64) -> Result<(), CopyError> {
        self.push()
    }

    fn walk_is_over(&self) -> Result<(), CopyError> {
        self.push()
    }

    fn is_complete(&self) -> bool {
        !lock(&self.state).has_failed
    }

    fn push(&self) -> Result<(), CopyError> {
        let wanted = std::mem::take(&mut lock(&self.state).wanted);
        if wanted.is_empty() {
            return Ok(());
        }
        let requests: Vec<_> = match &self.found_files {
            Some(found_files) => self.after_looking(found_files, wanted),
            None => wanted.into_iter().map(|wanted| self.request(wanted, None)).collect(),
        };
        let session = Weak::clone(&self.session);
        self.errands.hand(async move {
            match session.upgrade() {
                Some(session) => session.submit_all(requests).await,
                None => requests.into_iter().for_each(|(_, on_done)| on_done(Err(FetchError::Cancelled))),
            }
            Ok(())
        })
    }
}
