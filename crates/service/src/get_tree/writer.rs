//! The thread that follows a tree's descriptor while it arrives: it makes what is in it, writes small files and
//! asks for the others.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rayon::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use towpath_api::{ApiError, ErrorKind};
use towpath_content::Oid;
use towpath_content::tree::{self, Entry, Kind, LEFT_OUT, Located};
use towpath_files::{FileError, Overwrite, RelPath, Selected, Selection, display_name};
use towpath_reuse::candidates::found_files::{FoundFiles, Use};
use towpath_transfer::root_space::{DESCRIPTOR, TreePosition};
use towpath_transfer::session::OnDone;
use towpath_transfer::want::Coverage;
use towpath_transfer::{FetchError, Fetched, Group, ObjectRequest, Session};

use super::file::{FilePlace, TreeFile};
use super::links::left_out;
use super::{TreeTarget, decode};
use towpath_content::lock::lock;
use towpath_targets::base_file::BaseFile;
use towpath_targets::file_target::{FileTarget, TargetFile};
use towpath_targets::links::FirstNames;
use towpath_targets::spool::SpoolReader;
use towpath_words as words;

/// Files asked for together.
const MAX_REQUESTS: usize = 64;
/// Files written together, at most.
const MAX_INLINE: usize = 1024;

/// The thread that follows the descriptor.
pub(super) struct TreeWriter {
    tree: Arc<TreeTarget>,
    /// A get that is dropped ends its session, and with it what the writer waits for.
    session: Weak<Session>,
    runtime: Handle,
    selection: Selection,
    links: FirstNames,
    position: TreePosition,
    /// Files whose bytes came in the descriptor, to be written together.
    inline: Vec<Inline>,
    /// Files to be asked for together.
    wanted: Vec<FileRequest>,
    found_files: Option<Arc<FoundFiles>>,
}

/// A file that is about to be asked for.
struct FileRequest {
    target: Arc<TreeFile>,
    group: Group,
    size: u64,
    in_flight: mpsc::Sender<()>,
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
        let passes = target.tree.processors.pass_whole(&target.oid, target.path.as_bytes(), &content);
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

impl FileRequest {
    /// The request for it; `guess` is told what proved right.
    fn request(self, guess: Option<Guess>) -> (ObjectRequest, OnDone) {
        let Self { target, group, size, in_flight } = self;
        let request = ObjectRequest {
            oid: target.oid,
            size: Some(size),
            group: Arc::new(group),
            target: FileTarget::of(&target),
            recipe: None,
        };
        let on_done: OnDone = Box::new(move |result: Result<Fetched, FetchError>| {
            if let Some(Guess { found_files, is_same }) = guess {
                found_files.proved(&target.oid, is_same, target.partial().drawn());
            }
            if let Err(error) = result {
                target.ended(&error);
            }
            drop(in_flight);
        });
        (request, on_done)
    }
}

/// The guess that pieces are in a file that was found.
struct Guess {
    found_files: Arc<FoundFiles>,
    is_same: bool,
}

/// Writes files that are here, and returns the requests for the others, which are drawn from older versions if these are.
fn after_looking(found_files: &Arc<FoundFiles>, wanted: Vec<FileRequest>) -> Vec<(ObjectRequest, OnDone)> {
    let files: Vec<_> = wanted.iter().map(|file| (&file.group, file.target.oid)).collect();
    let found = found_files.find(&files);
    let ask = |(mut file, found): (FileRequest, Option<Use>)| match found {
        None => Some(file.request(None)),
        Some(Use::Whole(bytes)) => {
            match file.target.take_whole(&bytes) {
                Ok(()) => found_files.took(file.size),
                Err(error) => file.target.ended(&FetchError::Write(error)),
            }
            None
        }
        Some(Use::Older(found)) => {
            found.show_to_search(&mut file.group);
            Some(file.request(None))
        }
        Some(Use::Pieces(found)) => {
            found.show_to_search(&mut file.group);
            file.target.partial().set_base(BaseFile::new(found.file, found.size, file.size));
            let guess = Guess { found_files: Arc::clone(found_files), is_same: found.is_same };
            Some(file.request(Some(guess)))
        }
    };
    wanted.into_par_iter().zip(found).filter_map(ask).collect()
}

impl TreeWriter {
    /// Writes what is wanted of `tree`, and asks `session` for its files.
    pub(super) fn new(
        tree: &Arc<TreeTarget>,
        session: &Arc<Session>,
        selection: Selection,
        found_files: Option<Arc<FoundFiles>>,
    ) -> Self {
        Self {
            tree: Arc::clone(tree),
            session: Arc::downgrade(session),
            runtime: Handle::current(),
            selection,
            links: FirstNames::default(),
            position: TreePosition::default(),
            inline: Vec::new(),
            wanted: Vec::new(),
            found_files,
        }
    }

    /// Follows the descriptor to its end, and waits for all files. Returns what was wanted of it.
    pub(super) fn run(mut self, reader: SpoolReader) -> Result<Selection, ApiError> {
        // Each file in flight holds a sender; the last one to go wakes the receiver.
        let (in_flight, mut all_ended) = mpsc::channel::<()>(1);
        let decoded = decode(reader, |step| match step {
            Some(located) => self.event(located, &in_flight),
            None => {
                self.write_inline();
                self.submit();
                Ok(())
            }
        });
        // Each of these holds a sender, too.
        self.submit();
        drop(in_flight);
        // Files in flight end by themselves, in any case.
        let _ = all_ended.blocking_recv();
        self.tree.named(self.tree.placing.flush());
        match lock(&self.tree.fatal).take() {
            Some(error) => Err(error),
            None => decoded.map(|()| self.selection),
        }
    }

    fn event(&mut self, located: Located, in_flight: &mpsc::Sender<()>) -> Result<(), ApiError> {
        if let Some(error) = lock(&self.tree.fatal).clone() {
            return Err(error);
        }
        self.tree.problems.wait_for_room();
        let Located { event, block, content } = located;
        let mut position = None;
        if let Some(entry) = event.entry() {
            self.links.pass();
            position = self.position.pass(entry);
        }
        let selected = self.selection.next(&event).map_err(|error| words::file(&error))?;
        let Some(Selected { path, is_named }) = selected else { return Ok(()) };
        match event {
            tree::Event::Enter(entry) => {
                self.tree.take(&entry);
                self.tree.entries.fetch_add(1, Ordering::Relaxed);
                self.tree.placing.destination.make_dir(&path).map_err(|error| words::file(&error))?;
            }
            tree::Event::Leave => {}
            tree::Event::Leaf(entry) if path.is_root() => {
                let name = display_name(&entry.name);
                return Err(ApiError::new(
                    ErrorKind::Corrupt,
                    format!("the tree's root is not a directory: {name}"),
                ));
            }
            tree::Event::Leaf(entry) => {
                self.tree.entries.fetch_add(1, Ordering::Relaxed);
                if !is_named || self.tree.is_free(&path, &entry) {
                    match self.link(&path, &entry) {
                        Ok(true) => self.pass_over(&entry, position),
                        Ok(false) => self.leaf(path, (entry, position), content, block, in_flight),
                        Err(error) => self.tree.problem(&path, &error),
                    }
                }
            }
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        path: RelPath,
        (entry, position): (Entry, Option<u64>),
        content: Vec<u8>,
        block: u64,
        in_flight: &mpsc::Sender<()>,
    ) {
        match &entry.kind {
            Kind::Symlink { target } => {
                let (metadata, nodes) = (self.tree.take(&entry), self.tree.placing.destination.nodes());
                self.tree.made(&path, nodes.symlink(&path, target, &metadata, Overwrite::Never));
            }
            Kind::File { oid: Some(LEFT_OUT), .. } => {
                let message = "left out by the sender, who could not read it or may not send it";
                self.tree.fail(&path, &ApiError::new(ErrorKind::NotFound, message));
                self.pass_over(&entry, position);
            }
            Kind::File { size, oid: Some(oid), .. } => {
                let (size, oid) = (*size, *oid);
                let file = FilePlace { oid, size, position: position.unwrap_or(DESCRIPTOR) };
                let Some(target) = self.begin_file(path, &entry, file) else { return };
                match size {
                    0 => self.empty_file(&target, &oid),
                    _ if !content.is_empty() => self.write_later(Inline { target, content }),
                    _ => self.ask(target, size, block, in_flight),
                }
            }
            kind => match left_out(kind, &self.tree.preserve) {
                Some(why) => self.tree.skip(&path, why),
                None => self.tree.special(&path, &entry),
            },
        }
    }

    /// True if `entry` is a further name of a file, which is made when the first is in place.
    fn link(&mut self, path: &RelPath, entry: &Entry) -> Result<bool, FileError> {
        let is_made = self.tree.is_linked(entry) && self.links.first_of(entry, path)?.is_some();
        if is_made {
            self.tree.has_links.store(true, Ordering::Relaxed);
            if let Kind::File { size, .. } = entry.kind {
                self.tree.bytes.fetch_add(size, Ordering::Relaxed);
            }
        }
        Ok(is_made)
    }

    fn write_later(&mut self, file: Inline) {
        self.inline.push(file);
        if self.inline.len() >= MAX_INLINE {
            self.write_inline();
        }
    }

    /// Writes what waits; each file ends by itself, as those do that are asked for.
    fn write_inline(&mut self) {
        self.inline.par_drain(..).for_each(Inline::write);
    }

    /// A file to be written; none if an earlier run did.
    fn begin_file(&self, path: RelPath, entry: &Entry, file: FilePlace) -> Option<TreeFile> {
        self.tree.bytes.fetch_add(file.size, Ordering::Relaxed);
        if self.tree.is_left(&path, entry, &file.oid, file.size) {
            self.tree.kept.fetch_add(file.size, Ordering::Relaxed);
            self.tree.ended(&file, self.tree.placing.is_indexed(&file.oid));
            return None;
        }
        Some(TreeFile::new(&self.tree, path, self.tree.take(entry), file))
    }

    /// Nobody asks for this file's bytes.
    fn pass_over(&self, entry: &Entry, position: Option<u64>) {
        if let (Kind::File { size, .. }, Some(holding), Some(at)) =
            (&entry.kind, &self.tree.holding, position)
        {
            holding.pass_over(at, *size);
        }
    }

    fn ask(&mut self, target: TreeFile, size: u64, block: u64, in_flight: &mpsc::Sender<()>) {
        let group = Group {
            path: target.path.as_bytes().to_vec(),
            size: Some(size),
            modified: Some(target.metadata.modified),
            destination: Some(target.path.below(&self.tree.placing.base)),
            coverage: Some(Coverage { block }),
            in_root: Some(target.position),
            older: None,
        };
        let (target, in_flight) = (Arc::new(target), in_flight.clone());
        self.wanted.push(FileRequest { target, group, size, in_flight });
        if self.wanted.len() >= MAX_REQUESTS {
            self.submit();
        }
    }

    /// Asks for what waits, but for what is here.
    fn submit(&mut self) {
        if self.wanted.is_empty() {
            return;
        }
        let wanted = std::mem::take(&mut self.wanted);
        let requests = match &self.found_files {
            None => wanted.into_iter().map(|file| file.request(None)).collect(),
            Some(found_files) => after_looking(found_files, wanted),
        };
        match self.session.upgrade() {
            Some(session) => self.runtime.block_on(session.submit_all(requests)),
            None => requests.into_iter().for_each(|(_, on_done)| on_done(Err(FetchError::Cancelled))),
        }
    }

    fn empty_file(&self, target: &TreeFile, oid: &Oid) {
        if let Err(outcome) = self.tree.processors.pass_whole(oid, target.path.as_bytes(), b"") {
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
