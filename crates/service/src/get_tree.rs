//! A tree of a get: the descriptor is followed while it arrives, directories and symlinks are
//! made as they are read, files are asked for in batches and named in batches. Small files whose
//! bytes are in the descriptor are checked and written at once, all that a block of it holds.
//!
//! ```text
//!   session ── descriptor ──► Spool ──► writer thread ──► directories, symlinks
//!      ▲                                    │ files (bounded)
//!      └──────────── submit ◄───────────────┘
//!      └── workers: check ──► TreeFile: staged, committed ──► Destination: synced, renamed
//! ```
//!
//! When all files are in place the descriptor is read again: further names of files are made, and directories get their
//! metadata innermost first. Memory is bounded by the files in flight and one flush of the
//! destination.

mod file;
mod lent;
mod links;
mod problems;
mod writer;

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use towpath_api::copy::{Dropped, Preserve};
use towpath_api::{ApiError, ErrorKind, Event, Summary};
use towpath_content::Oid;
use towpath_content::pieces::Layout;
use towpath_content::tree::{self, Entry, Kind, Located, Metadata};
use towpath_files::metadata::masked;
use towpath_files::{
    Destination, FileError, Policy, RelPath, Selected, Selection, WriteOptions, display_name, of_file,
};
use towpath_protocol::processors::Processors;
use towpath_store::About;
use towpath_sync::{drop_unasked, policy};
use towpath_transfer::root_space::DESCRIPTOR;
use towpath_transfer::{Fetched, Group, Session, Target};

use crate::getting::{Failure, GetUnderWay, report_progress, summarize};
use crate::selecting::Missing;
use crate::state::Service;
use crate::tree_place::{TreePlace, is_there};
use file::FilePlace;
use lent::LentTree;
use problems::{ProblemInbox, Problems, problems};
use towpath_content::lock::lock;
use towpath_peer_server::fresh::random;
use towpath_targets::descriptor::{DescriptorEnd, follow};
use towpath_targets::placing::{Named, Placing, adopt};
use towpath_targets::resume::Record;
use towpath_targets::spool::{FailOnDrop, Spool, SpoolReader};
use towpath_targets::tree_holding::TreeHolding;
use towpath_words as words;
use writer::TreeWriter;

/// Fetches what is wanted of the tree to where it goes, or goes on with what was interrupted.
pub(crate) async fn run(
    get: &Arc<GetUnderWay>,
    place: &TreePlace,
    (about, layout, selection, preserve): (&About, Option<Layout>, Selection, Preserve),
    events: &mpsc::Sender<Event>,
    summary: &mut Summary,
) -> Result<(), Failure> {
    let (record, selection) = record(get, place, selection).await?;
    // An entry that lies there is not the sender's, or was noted when it came.
    let free: Vec<_> = place.paths(&selection).filter(|path| path.symlink_metadata().is_err()).collect();
    let spool_path = record.beside("tree");
    let spool = Spool::open(&spool_path).map_err(|e| words::io("create", &spool_path, &e))?;
    let _end = FailOnDrop(Arc::clone(&spool));
    let stays = get.passes_on();
    let lent = LentTree::begin(get, &spool);
    let holding = lent.as_ref().map(|lent| Arc::clone(&lent.holding));
    let (problems, mut failures) = problems();
    let opening = tokio::task::spawn_blocking({
        let (to, service) = (place.clone(), Arc::clone(&get.service));
        move || TreeTarget::open(&to, record, (&service, preserve), (problems, holding))
    });
    let tree = opening.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))??;
    free.iter().for_each(|path| get.note_destination(path));

    let session = Arc::new(Session::start(Arc::clone(&get.for_tree), get.context.clone(), get.config));
    let writer = TreeWriter::new(&tree, &session, selection, get.found_files.clone());
    let reader = spool.reader();
    let writing = tokio::task::spawn_blocking(move || writer.run(reader));
    let outcome = {
        let reporting = report_progress(session.progress(), events.clone());
        let working = work(get, (about, layout), &session, &spool, (writing, lent.as_ref()));
        let serving = lent::serve(get, &session, lent.as_ref());
        let naming = failures.forward(events);
        tokio::select! {
            outcome = working => outcome,
            never = reporting => match never {},
            never = naming => match never {},
            never = serving => match never {},
        }
    };
    get.peers.take_back(&get.oid);
    summarize(&session.progress().snapshot(), summary);
    drop(session);
    failures.drain(events).await;
    let (fetched, selection) = outcome?;
    let missing = Missing::of(&selection);
    finish(&tree, &spool, (selection, &mut failures), events).await?;
    let is_whole = tree.failed.load(Ordering::Relaxed) == 0;
    if stays && (is_whole || lent.is_some()) {
        keep_descriptor(get, about, &spool).await?;
    }
    if let Some(lent) = lent {
        lent.end(is_whole).await;
    }
    let _ = std::fs::remove_file(&spool_path);
    tree.sum(&fetched, summary);
    missing.tell(events, summary, matches!(place, TreePlace::Within { .. })).await?;
    Ok(())
}

/// Completes the tree, and names what failed.
async fn finish(
    tree: &Arc<TreeTarget>,
    spool: &Arc<Spool>,
    (mut selection, failures): (Selection, &mut ProblemInbox),
    events: &mpsc::Sender<Event>,
) -> Result<(), ApiError> {
    let finishing = tokio::task::spawn_blocking({
        let (tree, spool) = (Arc::clone(tree), Arc::clone(spool));
        move || tree.finish(&|| spool.reader(), &mut selection)
    });
    let finished = tokio::select! {
        finished = finishing => finished,
        never = failures.forward(events) => match never {},
    };
    failures.drain(events).await;
    finished.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

/// Puts the descriptor into the store: who is served of the tree's files asks for it first.
async fn keep_descriptor(get: &Arc<GetUnderWay>, about: &About, spool: &Arc<Spool>) -> Result<(), ApiError> {
    let (store, about, spool) = (Arc::clone(&get.service.store), about.clone(), Arc::clone(spool));
    let live = Oid::Live(random()?);
    let keeping = tokio::task::spawn_blocking(move || spool.put_into(&*store, &live, &about));
    let kept = keeping.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    kept.map_err(|error| words::store(&error))
}

/// The record of what an interrupted get left at `place`.
async fn record(
    get: &Arc<GetUnderWay>,
    place: &TreePlace,
    selection: Selection,
) -> Result<(Record, Selection), ApiError> {
    let (get, place) = (Arc::clone(get), place.clone());
    let opening = tokio::task::spawn_blocking(move || Ok((place.record(&get, &selection)?, selection)));
    opening.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
}

/// Runs descriptor and files to their end; the descriptor's error explains the writer's.
async fn work(
    get: &GetUnderWay,
    (about, layout): (&About, Option<Layout>),
    session: &Session,
    spool: &Arc<Spool>,
    (writing, lent): (WritingThread, Option<&LentTree>),
) -> Result<(Fetched, Selection), Failure> {
    let group = Group { in_root: Some(DESCRIPTOR), ..Group::default() };
    let descriptor = session.fetch(get.request(Arc::clone(spool) as Arc<dyn Target>, layout, group)).await;
    if descriptor.is_err() {
        spool.fail();
    }
    let content = descriptor.as_ref().ok().map(|descriptor| descriptor.oid);
    let lending = async {
        if let (Some(lent), Some(content)) = (lent, content) {
            lent.whole(get, (about, content), spool).await;
        }
        std::future::pending::<Infallible>().await
    };
    let written = tokio::select! {
        written = writing => written,
        never = lending => match never {},
    };
    let written = written.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    let fetched = descriptor?;
    Ok((fetched, written?))
}

type WritingThread = tokio::task::JoinHandle<Result<Selection, ApiError>>;

/// The tree being written, shared by the writer thread and the session's workers.
struct TreeTarget {
    /// Processors for files whose bytes are in the descriptor.
    processors: Processors,
    /// Metadata that are taken.
    preserve: Preserve,
    placing: Placing<FilePlace>,
    /// What others may have of it while it comes.
    holding: Option<Arc<TreeHolding>>,
    /// Files that failed.
    problems: Problems,
    /// An earlier run was interrupted.
    is_resumed: bool,
    /// The error that makes going on useless.
    fatal: Mutex<Option<ApiError>>,
    bytes: AtomicU64,
    kept: AtomicU64,
    entries: AtomicU64,
    failed: AtomicU64,
    /// Entries of kinds that nobody asked for.
    skipped: AtomicU64,
    dropped: Mutex<Dropped>,
    /// Paths that were asked for by name and had something in their places.
    taken: Mutex<HashSet<RelPath>>,
    /// The writer met further names of files.
    has_links: AtomicBool,
}

impl TreeTarget {
    fn open(
        place: &TreePlace,
        record: Record,
        (service, preserve): (&Service, Preserve),
        (problems, holding): (Problems, Option<Arc<TreeHolding>>),
    ) -> Result<Arc<Self>, ApiError> {
        let is_resumed = record.temp().is_some();
        let policy = Policy { times: true, dir_times: true, link_times: true, ..policy(&preserve) };
        let options = WriteOptions { resume: is_resumed, policy, ..WriteOptions::default() };
        let (path, destination) = match place {
            TreePlace::New(path) => (path, Destination::create(path, options)),
            TreePlace::Within { dir, .. } => (dir, Destination::open(dir, options)),
        };
        let destination = destination.map_err(|error| words::file(&error))?;
        adopt(&destination, &record).map_err(|error| words::file(&error))?;
        let staging = destination.staging().name().map_err(|error| words::file(&error))?;
        record.set_temp(&staging).map_err(|error| words::io("note", path, &error))?;
        let base = path.canonicalize().map_err(|error| words::io("open", path, &error))?;
        Ok(Arc::new(Self {
            processors: service.processors().clone(),
            preserve,
            placing: Placing::new(destination, base, record, Arc::clone(&service.store)),
            holding,
            problems,
            is_resumed,
            fatal: Mutex::default(),
            bytes: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            dropped: Mutex::default(),
            taken: Mutex::default(),
            has_links: AtomicBool::new(false),
        }))
    }

    /// What was fetched, and what became of it.
    fn sum(&self, fetched: &Fetched, summary: &mut Summary) {
        summary.oid = fetched.oid.to_string();
        summary.bytes = self.bytes.load(Ordering::Relaxed);
        summary.kept += self.kept.load(Ordering::Relaxed);
        summary.entries = self.entries.load(Ordering::Relaxed);
        summary.failed = self.failed.load(Ordering::Relaxed);
        summary.skipped = self.skipped.load(Ordering::Relaxed);
        summary.dropped = *lock(&self.dropped);
    }

    fn fail(&self, path: &RelPath, error: &ApiError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let path = display_name(path.as_bytes());
        self.problems.tell(Event::FileFailed { path, error: error.message.clone() });
    }

    /// Names an entry of a kind that nobody asked for.
    fn skip(&self, path: &RelPath, why: &str) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
        self.problems.tell(Event::EntrySkipped { path: display_name(path.as_bytes()), why: why.to_owned() });
    }

    fn stop(&self, error: ApiError) {
        lock(&self.fatal).get_or_insert(error);
    }

    fn named(&self, named: Vec<Named<FilePlace>>) {
        for file in named {
            self.ended(&file.note, file.outcome.is_ok());
            for error in file.outcome.err().into_iter().chain(file.lacking) {
                self.problem(&file.path, &error);
            }
        }
    }

    /// A file is in its place, or will never be.
    fn ended(&self, file: &FilePlace, is_here: bool) {
        self.holding.iter().for_each(|holding| holding.ended(&file.oid, file.position, file.size, is_here));
    }

    /// A file that can't be written: the others go on, unless the disk is full.
    fn problem(&self, path: &RelPath, error: &FileError) {
        let of_file = of_file(error, &path.below(&self.placing.base));
        let error = of_file.as_ref().unwrap_or(error);
        match error {
            FileError::NoSpace { .. } => self.stop(words::file(error)),
            _ => self.fail(path, &words::file(error)),
        }
    }

    /// True if an earlier run already put this very file in place; it is hashed again unless the
    /// index vouches for it.
    fn is_left(&self, path: &RelPath, entry: &Entry, oid: &Oid, size: u64) -> bool {
        if !self.is_resumed {
            return false;
        }
        let Ok(stamp) = self.placing.destination.stamp_at(path) else { return false };
        let is_alike = stamp.size == size && stamp.modified == entry.metadata.modified;
        is_alike && self.placing.holds(path, &stamp, oid)
    }

    /// True if nothing has the place of an entry that was asked for by name. The very same file is kept, anything else
    /// is told.
    fn is_free(&self, path: &RelPath, entry: &Entry) -> bool {
        let placing = &self.placing;
        let Ok(stamp) = placing.destination.stamp_at(path) else { return true };
        match entry.kind {
            Kind::File { size, oid: Some(oid), .. }
                if stamp.size == size && placing.holds(path, &stamp, &oid) =>
            {
                self.bytes.fetch_add(size, Ordering::Relaxed);
                self.kept.fetch_add(size, Ordering::Relaxed);
            }
            _ => self.fail(path, &is_there(&placing.whole_path(path))),
        }
        lock(&self.taken).insert(path.clone());
        false
    }

    /// The metadata that a get takes of an entry, counting what it leaves out.
    fn take(&self, entry: &Entry) -> Metadata {
        let (metadata, dropped) = taken(entry.metadata.clone(), &entry.kind, &self.preserve);
        if !dropped.is_none() {
            let mut all = lock(&self.dropped);
            all.special_bits += dropped.special_bits;
            all.privileged_xattrs += dropped.privileged_xattrs;
        }
        metadata
    }

    /// All files are in place: they get their other names and directories their metadata, and everything reaches the
    /// disk. `reader` reads the descriptor from its beginning.
    fn finish(&self, reader: &dyn Fn() -> SpoolReader, selection: &mut Selection) -> Result<(), ApiError> {
        if self.has_links.load(Ordering::Relaxed) {
            self.make_links(reader(), selection)?;
        }
        self.placing.destination.staging().remove().map_err(|error| words::file(&error))?;
        self.finish_dirs(reader(), selection)?;
        self.placing.destination.sync().map_err(|error| words::file(&error))?;
        if self.failed.load(Ordering::Relaxed) == 0 {
            self.placing.record.remove();
        }
        Ok(())
    }

    fn finish_dirs(&self, reader: SpoolReader, selection: &mut Selection) -> Result<(), ApiError> {
        let mut open = Vec::<Metadata>::new();
        decode(reader, |step| {
            let Some(located) = step else { return Ok(()) };
            self.problems.wait_for_room();
            let selected = selection.next(&located.event).map_err(|error| words::file(&error))?;
            match (selected, located.event) {
                (Some(_), tree::Event::Enter(entry)) => {
                    open.push(taken(entry.metadata, &entry.kind, &self.preserve).0);
                }
                (Some(Selected { path, .. }), tree::Event::Leave) => {
                    if let Some(metadata) = open.pop()
                        && let Err(error) = self.placing.destination.finish_dir(&path, &metadata)
                    {
                        self.problem(&path, &error);
                    }
                }
                _ => {}
            }
            Ok(())
        })
    }
}

/// Decodes a descriptor to its end. `visit` gets its events, and `None` when the next one may take a
/// while.
pub(crate) fn decode(
    reader: SpoolReader,
    visit: impl FnMut(Option<Located>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    follow(reader, visit).map_err(|end| match end {
        DescriptorEnd::Stopped(error) => error,
        DescriptorEnd::Invalid(error) => {
            ApiError::new(ErrorKind::Corrupt, format!("the sender's tree descriptor is not valid: {error}"))
        }
        DescriptorEnd::CutOff(error) => {
            ApiError::new(ErrorKind::Failed, format!("the tree's descriptor did not come whole: {error}"))
        }
    })
}

/// The metadata that a get takes of an entry, and what it leaves out. A stranger chose the mode, so the receiver's umask
/// holds, unless a person asks for modes as they are.
fn taken(mut metadata: Metadata, kind: &Kind, preserve: &Preserve) -> (Metadata, Dropped) {
    let dropped = drop_unasked(&mut metadata, kind, preserve);
    (as_asked(preserve)(metadata), dropped)
}

/// Effect of the umask on metadata.
pub(crate) fn as_asked(preserve: &Preserve) -> fn(Metadata) -> Metadata {
    if preserve.special_bits { std::convert::identity } else { masked }
}

#[cfg(test)]
pub(crate) mod tests;
