//! The receiving side's walk: the sender's entries in their order, merged with what lies at the
//! destination, and for each what has to be done.
//!
//! Without `--delete` the destination is looked at name by name; with it, its directories are read
//! sorted and merged. What must wait for the end (hard links, deletions, the times of directories)
//! is kept on disk, so memory does not grow with the tree (`finish`).

mod destined;
mod directory;
mod extras;
mod leaf;
mod links;
mod privileges;
mod rewrite;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Handle;
use towpath_api::copy::{CopyEvent, CopyOptions, Mode};
use towpath_content::tree::{Entry, Event, Kind, Metadata, Time};
use towpath_files::filter::{Filter, FilterSide, RuleList};
use towpath_files::{FileError, Found, RelPath, ScanOptions, display_name};

use crate::error::{CopyError, LeftOut, Obstacle, RequestFault};
use crate::fate::Settling;
use crate::judge::Changes;
use crate::listed;
use crate::message::violation;
use crate::noted::{DirNumber, DirRecord, ExtraRecord, FirstRecord, LinkRecord, ROOT, Renaming, Spot, Spots};
use crate::placement::Placement;
use crate::receiving::{Receiving, add};
use crate::records::Records;
use crate::source::Located;
use crate::supply::Supplier;
use crate::talk::shown_time;
use extras::ExtraNames;
use links::LinkGroups;
use privileges::drop_unasked;
use rewrite::Rewrite;
use towpath_ssh::patterns::NamePattern;

/// Directories told of beforehand as closed.
const MAX_CLOSED: usize = 64 << 10;

/// Bytes of a path below the transfer's root, at most: four times what the system takes at once.
const MAX_PATH: usize = 16 << 10;
/// Bytes of attributes of the directories that the walk is in, at most: it keeps them until it leaves.
const MAX_OPEN_ATTRIBUTES: usize = 8 << 20;

/// How often the sender is told how far this side has come.
const TELL_EVERY: u64 = 1024;

/// What the walk is told before it begins.
pub struct Destined {
    /// Where to.
    pub path: PathBuf,
    /// Whose habits.
    pub mode: Mode,
    /// How many sources there may be.
    pub sources: usize,
    /// See [`RequestedPaths::contents`].
    pub contents: bool,
    /// The names that the sources may have, if they are known here: a sender that is not trusted
    /// gets no others written.
    pub names: Option<Vec<NamePattern>>,
}

/// The walk.
pub struct Merge {
    pub(super) receiving: Arc<Receiving>,
    /// Who brings files; nobody, if none are wanted.
    pub(super) supplier: Option<Arc<dyn Supplier>>,
    pub(super) runtime: Handle,
    destined: Destined,
    placement: Placement,
    pub(super) filter: Filter,
    /// The person's own rules, asked again about every entry that a stranger sends.
    checker: Option<Filter>,
    asked: listed::RequestedPaths,
    rewrite: Rewrite,
    pub(super) look: ScanOptions,
    frames: Vec<DirFrame>,
    /// The innermost directory, below the destination's root.
    path: RelPath,
    /// The same below the transfer's root, for filters and people.
    shown: RelPath,
    /// Bytes of attributes that `frames` hold.
    open_attributes: usize,
    pub(super) spots: Spots,
    /// The number of the entry that comes next.
    entry: u64,
    closed: HashSet<u64>,
    pub(super) is_incomplete: bool,
    pub(super) dirs: Records<DirRecord>,
    pub(super) deletions: Records<ExtraRecord>,
    pub(super) links: Records<LinkRecord>,
    /// The first names of hard links, and where they are by the link's number.
    pub(super) firsts: Records<FirstRecord>,
    groups: LinkGroups,
    /// The destination's directory was made by this copy.
    is_made: bool,
    /// When the destination's own directory was changed last, before the copy.
    root_before: Option<Time>,
    /// The same, if that is what it shall have in the end: temporaries come and go in it.
    pub(super) root_time: Option<Time>,
    /// Entries of the destination that the source has too.
    pub(super) matched: u64,
}

/// A directory that the walk is in.
struct DirFrame {
    /// Its name below the transfer's root; empty for that root.
    name: Vec<u8>,
    /// The destination has it below another directory, not as its root.
    is_below: bool,
    /// Where it is noted, if something in it was.
    number: Option<DirNumber>,
    state: DirState,
    metadata: Metadata,
    /// The destination's names that have not been passed yet.
    names: Option<ExtraNames>,
    /// It or something in it is written or removed.
    is_changed: bool,
    /// It was made sure that it can be written to.
    is_writable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirState {
    /// Stands for the destination itself; nothing is said of it.
    Top,
    /// It and all in it is passed over.
    Skipped,
    /// It is there.
    Existing,
    /// It was made, or would be in a dry run.
    New,
}

impl Merge {
    /// A walk that has not begun. Must be made within a runtime.
    pub fn new(
        receiving: &Arc<Receiving>,
        supplier: Option<Arc<dyn Supplier>>,
        destined: Destined,
    ) -> Result<Self, CopyError> {
        if let Some(supplier) = &supplier {
            receiving.set_settling(Arc::clone(supplier) as Arc<dyn Settling>);
        }
        let options = &receiving.options;
        let bad_rule = |error: towpath_files::filter::FilterError| {
            CopyError::from(RequestFault::Filter(FilterSide::Receiver, error.to_string()))
        };
        let mut rules = RuleList::from_lines(&options.filters).map_err(bad_rule)?;
        let has_merges = rules.has_dir_merges();
        let checker = (!has_merges && !rules.is_empty())
            .then(|| Filter::new(rules.clone(), FilterSide::Sender, options.delete_excluded));
        if options.backup && options.backup_dir.is_none() && options.delete {
            let rule = [b"P *", &options.suffix[..]].concat();
            rules.push_filter(&rule).map_err(bad_rule)?;
        }
        let preserve = &options.preserve;
        let (xattrs, acls) = (preserve.xattrs, preserve.acls);
        let look = ScanOptions { xattrs, acls, files: false, ..ScanOptions::default() };
        Ok(Self {
            runtime: Handle::current(),
            rewrite: Rewrite::new(options, receiving.policy.umask())?,
            filter: Filter::new(rules, FilterSide::Receiver, options.delete_excluded),
            checker,
            asked: listed::RequestedPaths::new(options)?,
            receiving: Arc::clone(receiving),
            supplier,
            destined,
            placement: Placement::Into,
            look,
            frames: Vec::new(),
            path: RelPath::root(),
            shown: RelPath::root(),
            open_attributes: 0,
            spots: Spots::default(),
            entry: 0,
            closed: HashSet::new(),
            is_incomplete: false,
            dirs: Records::default(),
            deletions: Records::default(),
            links: Records::default(),
            firsts: Records::default(),
            groups: LinkGroups::default(),
            is_made: false,
            root_before: None,
            root_time: None,
            matched: 0,
        })
    }

    fn options(&self) -> &CopyOptions {
        &self.receiving.options
    }

    /// This entry, a directory, will be told without what is in it.
    pub fn closed(&mut self, entry: u64) -> Result<(), CopyError> {
        if entry < self.entry || self.closed.len() >= MAX_CLOSED {
            return Err(violation("a closed directory that does not come"));
        }
        self.closed.insert(entry);
        Ok(())
    }

    /// The sender could not read everything.
    pub fn incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// Nothing more came for now.
    pub fn push(&self) -> Result<(), CopyError> {
        match &self.supplier {
            Some(supplier) => supplier.considered(self.entry),
            None => Ok(()),
        }
    }

    /// Entries seen so far.
    pub const fn seen(&self) -> u64 {
        self.entry
    }

    /// Takes the next step of the sender's walk; `located` is where a file is on this machine.
    pub fn step(&mut self, event: Event, located: Option<Located>) -> Result<(), CopyError> {
        self.receiving.check()?;
        match event {
            Event::Enter(entry) => {
                self.enter(entry)?;
                self.next_entry()
            }
            Event::Leaf(entry) => {
                self.leaf(entry, located)?;
                self.next_entry()
            }
            Event::Leave => self.leave(),
        }
    }

    fn next_entry(&mut self) -> Result<(), CopyError> {
        self.entry += 1;
        match &self.supplier {
            Some(supplier) if self.entry.is_multiple_of(TELL_EVERY) => supplier.considered(self.entry),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, entry: Entry) -> Result<(), CopyError> {
        if self.frames.is_empty() {
            self.frames.push(DirFrame::of(DirState::Top));
            return Ok(());
        }
        let Some((path, shown)) = self.locate(&entry)? else {
            self.skip();
            return Ok(());
        };
        self.receiving.count(|counts| add(&mut counts.seen, &entry.kind));
        if let Err(error) = self.directory(entry, &path, &shown) {
            self.receiving.problem(shown.as_bytes(), &error);
            self.skip();
        }
        Ok(())
    }

    /// Passes over a directory.
    fn skip(&mut self) {
        self.frames.push(DirFrame::of(DirState::Skipped));
    }

    /// Goes into a directory, which is at `path` and is called `shown`.
    fn go_into(&mut self, frame: DirFrame, (path, shown): (&RelPath, &RelPath)) -> Result<(), FileError> {
        self.open_attributes += frame.attribute_bytes();
        if self.open_attributes > MAX_OPEN_ATTRIBUTES {
            self.open_attributes -= frame.attribute_bytes();
            return Err(Obstacle::Attributes.to("enter", Path::new(&display_name(shown.as_bytes()))));
        }
        self.path.clone_from(path);
        self.shown.clone_from(shown);
        self.frames.push(frame);
        Ok(())
    }

    /// Goes out of the innermost directory.
    fn go_out(&mut self) -> Option<DirFrame> {
        let frame = self.frames.pop()?;
        self.open_attributes -= frame.attribute_bytes();
        if !frame.name.is_empty() {
            self.shown.pop();
        }
        if frame.is_below {
            self.path.pop();
        }
        Some(frame)
    }

    /// A note of what is called `name` in the innermost directory.
    pub(super) fn spot(&mut self, name: &[u8]) -> Result<Spot, FileError> {
        let dir =
            self.innermost().map_err(|error| FileError::new("note", Path::new("a directory"), error))?;
        Ok(Spot::new(dir, name))
    }

    /// The number of the innermost directory, which has one from now on.
    fn innermost(&mut self) -> io::Result<DirNumber> {
        let mut number = ROOT;
        for frame in &mut self.frames {
            number = match frame.number {
                Some(known) => known,
                None if frame.name.is_empty() => number,
                None => self.spots.directories.add(number, &frame.name)?,
            };
            frame.number = Some(number);
        }
        Ok(number)
    }

    /// Where an entry goes, and what it is called; `None` if it is passed over.
    fn locate(&mut self, entry: &Entry) -> Result<Option<(RelPath, RelPath)>, CopyError> {
        let is_dir = entry.kind == Kind::Directory;
        if self.frames.len() == 1 {
            self.first(entry)?;
        }
        let is_contents = self.placement == Placement::Contents;
        let Some(frame) = self.frames.last() else {
            return Err(violation("a tree that begins with no directory"));
        };
        if frame.state == DirState::Skipped {
            return Ok(None);
        }
        let outside = CopyError::source;
        let shown = match self.frames.len() {
            1 if is_contents => RelPath::root(),
            _ => self.shown.join(&entry.name).map_err(outside)?,
        };
        let path = match self.frames.len() {
            1 => self.spots.renaming.path(&shown),
            _ => self.path.join(&entry.name),
        };
        let path = path.map_err(outside)?;
        if let Some(checker) = &mut self.checker
            && !shown.is_root()
            && !checker.shows(&shown, is_dir)
        {
            self.receiving.leave_out(shown.as_bytes(), LeftOut::Filtered);
            return Ok(None);
        }
        if !self.asked.covers(&shown, is_dir, is_contents) {
            self.receiving.leave_out(shown.as_bytes(), LeftOut::Unasked);
            return Ok(None);
        }
        self.pass(&entry.name);
        if shown.as_bytes().len() > MAX_PATH {
            self.receiving.leave_out(&shown.as_bytes()[..1024], LeftOut::LongPath(MAX_PATH));
            return Ok(None);
        }
        if towpath_files::is_staging_name(&entry.name) {
            self.receiving.leave_out(shown.as_bytes(), LeftOut::Temporary);
            return Ok(None);
        }
        Ok(Some((path, shown)))
    }

    /// What stands at `path`; nothing, below a directory that is not there.
    fn look(&self, path: &RelPath) -> Result<Option<Found>, FileError> {
        let parent_is_new = self.frames.last().is_some_and(|frame| frame.state == DirState::New);
        match self.receiving.opened() {
            Some(placing) if !parent_is_new || path.is_root() => placing.destination.look(path, &self.look),
            _ => Ok(None),
        }
    }

    /// Makes metadata what the person asked for.
    fn rewrite(&mut self, entry: &mut Entry) {
        let preserve = &self.receiving.options.preserve;
        let dropped = drop_unasked(&mut entry.metadata, &entry.kind, preserve);
        if !dropped.is_none() {
            self.receiving.count(|counts| {
                counts.dropped.special_bits += dropped.special_bits;
                counts.dropped.privileged_xattrs += dropped.privileged_xattrs;
            });
        }
        self.rewrite.apply(&mut entry.metadata, &entry.kind);
    }

    fn told(&self, entry: &Entry, shown: &RelPath, changes: Changes, update: u8) {
        let target = match &entry.kind {
            Kind::Symlink { target } => Some(target.clone()),
            _ => None,
        };
        self.receiving.tell(CopyEvent::Item {
            changes: changes.letters(update, &entry.kind, self.options().preserve.times),
            path: shown_path(shown, &entry.kind),
            target,
            size: size(&entry.kind),
            modified: shown_time(entry.metadata.modified),
        });
    }

    fn unchanged(&self, entry: &Entry, shown: &RelPath) {
        if self.options().report_unchanged {
            self.told(entry, shown, Changes::default(), b'.');
        }
    }

    /// Whether the destination's own directory stands for an entry of the source.
    fn is_root_told(&self) -> bool {
        match self.placement {
            Placement::Into => false,
            Placement::Contents => true,
            Placement::As => self.spots.renaming == Renaming::Below,
        }
    }

    fn leave(&mut self) -> Result<(), CopyError> {
        self.extras(None);
        let Some(frame) = self.frames.last() else {
            return Err(violation("a tree that ends twice"));
        };
        let (state, is_changed, is_dest_root) = (frame.state, frame.is_changed, self.path.is_root());
        if state == DirState::Skipped {
            self.go_out();
            return Ok(());
        }
        // Either the synthetic top or the frame below it stands for the destination's directory.
        let is_root = is_dest_root && (state == DirState::Top) != self.is_root_told();
        if is_root && !is_changed {
            self.root_time = self.root_before;
        }
        if state == DirState::Existing && self.receiving.opened().is_some() {
            self.filter.leave();
        }
        // In the root the temporaries come and go. Of a list's root only what is in it is copied.
        let is_listed = is_dest_root && self.options().files_from.is_some();
        let is_touched = state != DirState::Top && !is_listed && (is_changed || is_dest_root);
        if is_touched && is_dest_root && self.receiving.policy.dir_times {
            self.root_time = None;
        }
        let spot = match is_touched && !self.options().dry_run {
            true => Some(self.spot(b"").map_err(CopyError::destination)?),
            false => None,
        };
        let (Some(frame), Some(spot)) = (self.go_out(), spot) else { return Ok(()) };
        let noted = self.dirs.push(&DirRecord { spot, metadata: (&frame.metadata).into() });
        noted.map(drop).map_err(|error| CopyError::system("note", Path::new("a directory"), error))
    }
}

impl DirFrame {
    /// A directory that no name, time or mode is kept of.
    fn of(state: DirState) -> Self {
        Self {
            name: Vec::new(),
            is_below: false,
            number: None,
            state,
            metadata: Metadata::default(),
            names: None,
            is_changed: false,
            is_writable: false,
        }
    }

    fn attribute_bytes(&self) -> usize {
        self.metadata.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum()
    }
}

/// Bytes of content, as rsync counts them: a link's is its target.
fn size(kind: &Kind) -> u64 {
    match kind {
        Kind::File { size, .. } => *size,
        Kind::Symlink { target } => target.len() as u64,
        _ => 0,
    }
}

fn shown_path(shown: &RelPath, kind: &Kind) -> Vec<u8> {
    let mut path = shown.as_bytes().to_vec();
    if *kind == Kind::Directory {
        if path.is_empty() {
            path.push(b'.');
        }
        path.push(b'/');
    }
    path
}
