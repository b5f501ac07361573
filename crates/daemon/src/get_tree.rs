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
//! When all files are in place the descriptor is read a second time, and directories get their
//! modes and times innermost first. Memory is bounded by the files in flight and one flush of the
//! destination.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use towpath_api::{ApiError, ErrorKind, Event, Summary};
use towpath_content::Oid;
use towpath_content::pieces::{Layout, Value};
use towpath_content::tree::{self, Decoder, Entry, Kind, Located, Metadata};
use towpath_files::{Destination, FileError, Overwrite, RelPath, Staged, WriteOptions, display_name};
use towpath_plugins::processor::Processors;
use towpath_store::About;
use towpath_transfer::session::OnDone;
use towpath_transfer::want::Coverage;
use towpath_transfer::{FetchError, Fetched, Group, ObjectRequest, Session, Target};

use crate::errors;
use crate::get::{Failure, Get, summarize, tell};
use crate::lock::lock;
use crate::partial::PartialFile;
use crate::placing::{Begun, Named, Placing, adopt};
use crate::resume::Record;
use crate::service::{Service, passes};
use crate::spool::{FailOnDrop, Spool, SpoolReader};

/// Bytes of the descriptor read at once.
const PART: usize = 64 << 10;
/// Files asked for together.
const ASKED: usize = 64;

/// Fetches the tree into the new directory `destination`, or goes on with one that was
/// interrupted.
pub async fn run(
    get: &Arc<Get>,
    destination: &Path,
    layout: Option<Layout>,
    events: &mpsc::Sender<Event>,
    summary: &mut Summary,
) -> Result<(), Failure> {
    let folder = get.service.home.resume();
    let record = Record::open(&folder, destination, &get.oid).map_err(|e| errors::io("note", &folder, &e))?;
    let spool_path = record.beside("tree");
    let spool = Spool::open(&spool_path).map_err(|e| errors::io("create", &spool_path, &e))?;
    let _end = FailOnDrop(Arc::clone(&spool));
    let path = destination.to_path_buf();
    let service = Arc::clone(&get.service);
    let (problems, mut named) = mpsc::unbounded_channel();
    let opening = tokio::task::spawn_blocking(move || Tree::open(&path, record, &service, problems));
    let tree = opening.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))??;
    get.note_destination(destination);

    let session = Arc::new(Session::start(Arc::clone(&get.for_tree), get.context.clone(), get.config));
    let writer = Writer {
        tree: Arc::clone(&tree),
        session: Arc::downgrade(&session),
        runtime: Handle::current(),
        path: RelPath::root(),
        inline: Vec::new(),
        asked: Vec::new(),
    };
    let reader = spool.reader();
    let writing = tokio::task::spawn_blocking(move || writer.run(reader));
    let outcome = {
        let telling = tell(session.progress(), events.clone());
        let working = work(get, layout, &session, &spool, writing);
        let naming = forward(&mut named, events);
        tokio::select! {
            outcome = working => outcome,
            never = telling => match never {},
            never = naming => match never {},
        }
    };
    summarize(&session.progress().snapshot(), summary);
    drop(session);
    drain(&mut named, events).await;
    let fetched = outcome?;
    let finishing = tokio::task::spawn_blocking({
        let tree = Arc::clone(&tree);
        move || tree.finish(spool.reader())
    });
    let finished = finishing.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    drain(&mut named, events).await;
    finished?;
    let _ = std::fs::remove_file(&spool_path);
    summary.oid = fetched.oid.to_string();
    summary.bytes = tree.bytes.load(Ordering::Relaxed);
    summary.kept += tree.kept.load(Ordering::Relaxed);
    summary.entries = tree.entries.load(Ordering::Relaxed);
    summary.failed = tree.failed.load(Ordering::Relaxed);
    Ok(())
}

/// Tells of single files that failed, until it is dropped.
async fn forward(
    named: &mut mpsc::UnboundedReceiver<Event>,
    events: &mpsc::Sender<Event>,
) -> std::convert::Infallible {
    while let Some(event) = named.recv().await {
        let _ = events.send(event).await;
    }
    std::future::pending().await
}

/// Tells what is left to tell.
async fn drain(named: &mut mpsc::UnboundedReceiver<Event>, events: &mpsc::Sender<Event>) {
    while let Ok(event) = named.try_recv() {
        let _ = events.send(event).await;
    }
}

/// Runs descriptor and files to their end; the descriptor's error explains the writer's.
async fn work(
    get: &Get,
    layout: Option<Layout>,
    session: &Session,
    spool: &Arc<Spool>,
    writing: tokio::task::JoinHandle<Result<(), ApiError>>,
) -> Result<Fetched, Failure> {
    let descriptor =
        session.fetch(get.request(Arc::clone(spool) as Arc<dyn Target>, layout, Group::default())).await;
    if descriptor.is_err() {
        spool.fail();
    }
    let written = writing.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    let fetched = descriptor?;
    written?;
    Ok(fetched)
}

/// The tree being written, shared by the writer thread and the session's workers.
struct Tree {
    /// What files whose bytes are in the descriptor pass.
    processors: Processors,
    placing: Placing<()>,
    /// Files that failed. Whoever finds out, the session's own task included, must not wait.
    problems: mpsc::UnboundedSender<Event>,
    /// An earlier run was interrupted.
    is_resumed: bool,
    /// What makes going on useless.
    fatal: Mutex<Option<ApiError>>,
    bytes: AtomicU64,
    kept: AtomicU64,
    entries: AtomicU64,
    failed: AtomicU64,
}

impl Tree {
    fn open(
        path: &Path,
        record: Record,
        service: &Service,
        problems: mpsc::UnboundedSender<Event>,
    ) -> Result<Arc<Self>, ApiError> {
        let is_resumed = record.temp().is_some();
        let options = WriteOptions { resume: is_resumed, ..WriteOptions::default() };
        let destination = Destination::create(path, options).map_err(|error| errors::file(&error))?;
        adopt(&destination, &record).map_err(|error| errors::file(&error))?;
        let staging = destination.staging_name().map_err(|error| errors::file(&error))?;
        record.set_temp(&staging).map_err(|error| errors::io("note", path, &error))?;
        let base = path.canonicalize().map_err(|error| errors::io("open", path, &error))?;
        Ok(Arc::new(Self {
            processors: service.processors().clone(),
            placing: Placing::new(destination, base, record, Arc::clone(&service.store)),
            problems,
            is_resumed,
            fatal: Mutex::default(),
            bytes: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    fn fail(&self, path: &RelPath, error: &ApiError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let path = display_name(path.as_bytes());
        let event = Event::FileFailed { path, error: error.message.clone() };
        let _ = self.problems.send(event);
    }

    fn stop(&self, error: ApiError) {
        lock(&self.fatal).get_or_insert(error);
    }

    fn named(&self, named: Vec<Named<()>>) {
        for file in named {
            for error in file.outcome.err().into_iter().chain(file.lacking) {
                self.problem(&file.path, &error);
            }
        }
    }

    /// A file that can't be written: the others go on, unless the disk is full.
    fn problem(&self, path: &RelPath, error: &FileError) {
        match error {
            FileError::NoSpace { .. } => self.stop(errors::file(error)),
            _ => self.fail(path, &errors::file(error)),
        }
    }

    /// Whether an earlier run already put this very file in place; it is hashed again unless the
    /// index vouches for it.
    fn is_left(&self, path: &RelPath, entry: &Entry, oid: &Oid, size: u64) -> bool {
        if !self.is_resumed {
            return false;
        }
        let Ok(stamp) = self.placing.destination.stamp_at(path) else { return false };
        let is_alike = stamp.size == size && stamp.modified == entry.metadata.modified;
        is_alike && self.placing.holds(path, &stamp, oid)
    }

    /// All files are in place: directories get their metadata, and everything reaches the disk.
    fn finish(&self, reader: SpoolReader) -> Result<(), ApiError> {
        self.placing.destination.remove_staging().map_err(|error| errors::file(&error))?;
        self.finish_dirs(reader)?;
        self.placing.destination.sync().map_err(|error| errors::file(&error))?;
        if self.failed.load(Ordering::Relaxed) == 0 {
            self.placing.record.remove();
        }
        Ok(())
    }

    fn finish_dirs(&self, reader: SpoolReader) -> Result<(), ApiError> {
        let (mut path, mut open) = (RelPath::root(), Vec::<Metadata>::new());
        decode(reader, |step| {
            let Some(located) = step else { return Ok(()) };
            match located.event {
                tree::Event::Enter(entry) => {
                    if !open.is_empty() {
                        path.push(&entry.name).map_err(|error| errors::file(&error))?;
                    }
                    open.push(entry.metadata);
                }
                tree::Event::Leaf(_) => {}
                tree::Event::Leave => {
                    if let Some(metadata) = open.pop()
                        && let Err(error) = self.placing.destination.finish_dir(&path, &metadata)
                    {
                        self.problem(&path, &error);
                    }
                    path.pop();
                }
            }
            Ok(())
        })
    }
}

/// Decodes a descriptor to its end. `visit` gets its events, and `None` when the next one may take a
/// while.
fn decode(
    mut reader: SpoolReader,
    mut visit: impl FnMut(Option<Located>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let bad = |error: towpath_content::DecodeError| {
        ApiError::new(ErrorKind::Corrupt, format!("the sender's tree descriptor is not valid: {error}"))
    };
    let (mut decoder, mut part) = (Decoder::new(), vec![0; PART]);
    loop {
        let read = reader.read(&mut part).map_err(|error| {
            ApiError::new(ErrorKind::Failed, format!("the tree's descriptor did not come whole: {error}"))
        })?;
        let mut rest = &part[..read];
        loop {
            let taken = decoder.feed(rest);
            rest = &rest[taken..];
            while let Some(located) = decoder.next_event().map_err(bad)? {
                visit(Some(located))?;
            }
            visit(None)?;
            if rest.is_empty() {
                break;
            }
        }
        if read == 0 {
            return decoder.finish().map_err(bad);
        }
    }
}

/// The thread that follows the descriptor.
struct Writer {
    tree: Arc<Tree>,
    /// A get that is dropped ends its session, and with it what the writer waits for.
    session: Weak<Session>,
    runtime: Handle,
    path: RelPath,
    /// Files whose bytes came in the descriptor, to be written together.
    inline: Vec<Inline>,
    /// Files to be asked for together.
    asked: Vec<(ObjectRequest, OnDone)>,
}

/// A small file, and its bytes as the descriptor has them.
struct Inline {
    target: TreeFile,
    content: Vec<u8>,
}

impl Inline {
    /// Writes the file, if the descriptor tells the truth.
    fn write(self) {
        let Self { target, content } = self;
        let passes = passes(&target.tree.processors, &target.oid, target.path.as_bytes(), &content);
        if let Err(outcome) = passes {
            return target.ended(&FetchError::Ended(outcome));
        }
        let written = match Oid::of(&content) == target.oid {
            true => target.take_whole(&content),
            false => Err(io::Error::other("the descriptor holds other bytes than its id says")),
        };
        if let Err(error) = written {
            target.ended(&FetchError::Write(error));
        }
    }
}

impl Writer {
    fn run(mut self, reader: SpoolReader) -> Result<(), ApiError> {
        // Each file in flight holds a sender; the last one to go wakes the receiver.
        let (in_flight, mut all_ended) = mpsc::channel::<()>(1);
        let mut depth = 0;
        let decoded = decode(reader, |step| match step {
            Some(located) => self.event(located, &mut depth, &in_flight),
            None => {
                self.write_inline();
                self.submit();
                Ok(())
            }
        });
        // Each of these holds a sender, too.
        self.submit();
        drop(in_flight);
        // What is in flight ends by itself, in any case.
        let _ = all_ended.blocking_recv();
        self.tree.named(self.tree.placing.flush());
        match lock(&self.tree.fatal).take() {
            Some(error) => Err(error),
            None => decoded,
        }
    }

    fn event(
        &mut self,
        located: Located,
        depth: &mut usize,
        in_flight: &mpsc::Sender<()>,
    ) -> Result<(), ApiError> {
        if let Some(error) = lock(&self.tree.fatal).clone() {
            return Err(error);
        }
        let Located { event, block, content } = located;
        match event {
            tree::Event::Enter(entry) => {
                if *depth > 0 {
                    self.path.push(&entry.name).map_err(|error| errors::file(&error))?;
                }
                *depth += 1;
                self.tree.entries.fetch_add(1, Ordering::Relaxed);
                self.tree.placing.destination.make_dir(&self.path).map_err(|error| errors::file(&error))?;
            }
            tree::Event::Leave => {
                *depth -= 1;
                self.path.pop();
            }
            tree::Event::Leaf(entry) if *depth == 0 => {
                let name = display_name(&entry.name);
                return Err(ApiError::new(
                    ErrorKind::Corrupt,
                    format!("the tree's root is not a directory: {name}"),
                ));
            }
            tree::Event::Leaf(entry) => {
                let path = self.path.join(&entry.name).map_err(|error| errors::file(&error))?;
                self.leaf(path, entry, content, block, in_flight);
            }
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        path: RelPath,
        entry: Entry,
        content: Vec<u8>,
        block: u64,
        in_flight: &mpsc::Sender<()>,
    ) {
        self.tree.entries.fetch_add(1, Ordering::Relaxed);
        match &entry.kind {
            Kind::Symlink { target } => {
                let made = self.tree.placing.destination.make_symlink(
                    &path,
                    target,
                    &entry.metadata,
                    Overwrite::Never,
                );
                if let Err(error) = made {
                    self.tree.problem(&path, &error);
                }
            }
            Kind::File { size, oid: Some(oid), .. } => {
                let (size, oid) = (*size, *oid);
                let Some(target) = self.begin_file(path, &entry, size, oid) else { return };
                match size {
                    0 => self.empty_file(&target, &oid),
                    _ if !content.is_empty() => self.inline.push(Inline { target, content }),
                    _ => self.ask(target, size, block, in_flight),
                }
            }
            _ => self.tree.fail(&path, &ApiError::new(ErrorKind::Usage, "special files are not written")),
        }
    }

    /// Writes what waits; each file ends by itself, as those do that are asked for.
    fn write_inline(&mut self) {
        self.inline.par_drain(..).for_each(Inline::write);
    }

    /// A file to be written; none if an earlier run did.
    fn begin_file(&self, path: RelPath, entry: &Entry, size: u64, oid: Oid) -> Option<TreeFile> {
        self.tree.bytes.fetch_add(size, Ordering::Relaxed);
        if self.tree.is_left(&path, entry, &oid, size) {
            self.tree.kept.fetch_add(size, Ordering::Relaxed);
            return None;
        }
        Some(TreeFile::new(&self.tree, path, entry.metadata.clone(), oid, size))
    }

    fn ask(&mut self, target: TreeFile, size: u64, block: u64, in_flight: &mpsc::Sender<()>) {
        let (oid, target) = (target.oid, Arc::new(target));
        let group = Arc::new(Group {
            path: target.path.as_bytes().to_vec(),
            size: Some(size),
            modified: Some(target.metadata.modified),
            destination: Some(target.path.below(&self.tree.placing.base)),
            coverage: Some(Coverage { block }),
        });
        let request = ObjectRequest {
            oid,
            size: Some(size),
            group,
            target: Arc::clone(&target) as Arc<dyn Target>,
            recipe: None,
        };
        let guard = in_flight.clone();
        let on_done: OnDone = Box::new(move |result: Result<Fetched, FetchError>| {
            if let Err(error) = result {
                target.ended(&error);
            }
            drop(guard);
        });
        self.asked.push((request, on_done));
        if self.asked.len() >= ASKED {
            self.submit();
        }
    }

    /// Asks for what waits.
    fn submit(&mut self) {
        let asked = self.asked.drain(..);
        match self.session.upgrade() {
            _ if asked.len() == 0 => {}
            Some(session) => self.runtime.block_on(session.submit_all(asked)),
            None => asked.for_each(|(_, on_done)| on_done(Err(FetchError::Cancelled))),
        }
    }

    fn empty_file(&self, target: &TreeFile, oid: &Oid) {
        if let Err(outcome) = passes(&self.tree.processors, oid, target.path.as_bytes(), b"") {
            return target.ended(&FetchError::Ended(outcome));
        }
        let made = match *oid == Oid::of(b"") {
            true => target.take_whole(&[]),
            false => Err(io::Error::other("the descriptor says it is empty, its id says otherwise")),
        };
        if let Err(error) = made {
            target.ended(&FetchError::Write(error));
        }
    }
}

/// A file of the tree on its way.
struct TreeFile {
    tree: Arc<Tree>,
    path: RelPath,
    metadata: Metadata,
    oid: Oid,
    is_large: bool,
    staged: Mutex<Option<Staged>>,
    partial: PartialFile,
}

impl TreeFile {
    fn new(tree: &Arc<Tree>, path: RelPath, metadata: Metadata, oid: Oid, size: u64) -> Self {
        let is_large = size > 1 << towpath_content::pieces::MIN_LOG2;
        Self {
            tree: Arc::clone(tree),
            path,
            metadata,
            oid,
            is_large,
            staged: Mutex::default(),
            partial: PartialFile::default(),
        }
    }

    /// The session could not bring it, or this side could not write it.
    fn ended(&self, error: &FetchError) {
        match (self.partial.take_failure(), error) {
            (Some(failure), _) => self.tree.problem(&self.path, &failure),
            (None, FetchError::Stalled { .. } | FetchError::Cancelled) => {
                self.tree.stop(errors::fetch(error))
            }
            (None, error) => self.tree.fail(&self.path, &errors::fetch(error)),
        }
    }

    /// A temporary for it, and where bytes are in it already.
    fn open(&self, size: u64) -> Result<Begun, FileError> {
        let placing = &self.tree.placing;
        let left = placing.left_of(&self.oid, size, |name| placing.destination.reopen_staged(name))?;
        if let Some(left) = left {
            return Ok(left);
        }
        let staged = placing.destination.stage_file(size)?;
        placing.note_part(&self.oid, &staged, self.is_large);
        Ok((staged, Vec::new()))
    }

    /// All of it is at hand: nothing of it is worth keeping if the get is interrupted now.
    fn take_whole(&self, content: &[u8]) -> io::Result<()> {
        let destination = &self.tree.placing.destination;
        let taken = destination.stage_content_for(&self.path, content, false).and_then(|staged| {
            *lock(&self.staged) = Some(staged);
            self.finish(vec![*self.oid.digest()])
        });
        self.partial.note(taken)
    }

    fn finish(&self, values: Vec<Value>) -> Result<(), FileError> {
        let Some(staged) = lock(&self.staged).take() else { return Ok(()) };
        let (placing, content) = (&self.tree.placing, Some((self.oid, values)));
        let named =
            placing.commit(staged, &self.path, &self.metadata, Overwrite::Never, content, None, ())?;
        self.tree.named(named);
        Ok(())
    }
}

impl Target for TreeFile {
    fn begin(&self, size: Option<u64>, _about: &About) -> io::Result<()> {
        let (staged, existing) = self.partial.note(self.open(size.unwrap_or(0)))?;
        self.partial.begin(staged.body(), existing);
        *lock(&self.staged) = Some(staged);
        Ok(())
    }

    fn existing(&self) -> Vec<Range<u64>> {
        self.partial.existing().to_vec()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.partial.read(offset, buf)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.partial.write(offset, bytes, false)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.partial.write_zeros(&range)
    }

    fn take(&self, _oid: &Oid, bytes: &[u8], _about: &About) -> io::Result<()> {
        self.take_whole(bytes)
    }

    fn complete(&self, _oid: &Oid, _size: u64, values: Vec<Value>) -> io::Result<()> {
        self.partial.note(self.finish(values))
    }
}

#[cfg(test)]
mod tests;
