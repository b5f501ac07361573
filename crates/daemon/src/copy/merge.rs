//! The receiving side's walk: the sender's entries in their order, merged with what lies at the
//! destination, and for each what has to be done.
//!
//! Without `--delete` the destination is looked at name by name; with it, its directories are read
//! sorted and merged. What must wait for the end (hard links, deletions, the times of directories)
//! is kept on disk, so memory does not grow with the tree (`finish`).

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Handle;
use towpath_api::{ApiError, ErrorKind};
use towpath_content::Oid;
use towpath_content::tree::{Entry, Event, Kind, Metadata, Owner, Time};
use towpath_files::chmod::Chmod;
use towpath_files::filter::{Filter, RuleList, Side, safe_links};
use towpath_files::metadata::{Differences, differences};
use towpath_files::{Destination, DirNames, FileError, Found, Overwrite, RelPath, ScanOptions, display_name};

use super::events::CopyEvent;
use super::file::{CopyFile, Wanted};
use super::finish::{DirRecord, LinkRecord, PathRecord, metadata_bytes};
use super::judge::{Changes, Verdict, judge};
use super::listed;
use super::options::{CopyOptions, Mode};
use super::patterns::NamePattern;
use super::placement::{Asked, Placement, There, place};
use super::receiving::{Receiving, add, refuse};
use super::records::Records;
use super::source::Located;
use crate::errors;

/// A group of hard links of which no name was met.
const NOT_MET: u64 = u64::MAX;
/// Directories told of beforehand as closed.
const MAX_CLOSED: usize = 64 << 10;
/// How often the sender is told how far this side has come.
const TELL_EVERY: u64 = 1024;

/// What the walk is told before it begins.
pub struct Destined {
    /// Where to.
    pub path: PathBuf,
    /// Whose habits.
    pub mode: Mode,
    /// How many sources there are.
    pub sources: usize,
    /// See [`Asked::contents`].
    pub contents: bool,
    /// The names that the sources may have, if they are known here: a sender that is not trusted
    /// gets no others written.
    pub names: Option<Vec<NamePattern>>,
}

/// The walk.
pub struct Merge {
    pub(super) receiving: Arc<Receiving>,
    runtime: Handle,
    destined: Destined,
    placement: Placement,
    /// The name that the one source has at the destination.
    renamed: Option<Vec<u8>>,
    pub(super) filter: Filter,
    /// The person's own rules, asked again about every entry that a stranger sends.
    checker: Option<Filter>,
    asked: listed::Asked,
    rewrite: Rewrite,
    pub(super) look: ScanOptions,
    frames: Vec<Frame>,
    /// The number of the entry that comes next.
    entry: u64,
    closed: HashSet<u64>,
    pub(super) is_incomplete: bool,
    pub(super) dirs: Records<DirRecord>,
    pub(super) deletions: Records<PathRecord>,
    pub(super) links: Records<LinkRecord>,
    /// The first names of hard links, and where they are by the link's number.
    pub(super) firsts: Records<PathRecord>,
    groups: Vec<u64>,
    /// The destination's directory was made by this copy.
    is_made: bool,
    /// When the destination's own directory was changed last, before the copy.
    root_before: Option<Time>,
    /// The same, if that is what it shall have in the end: temporaries come and go in it.
    pub(super) root_time: Option<Time>,
    /// Entries of the destination that the source has too.
    pub(super) matched: u64,
}

/// How metadata is changed on the way.
struct Rewrite {
    chmod: Vec<Chmod>,
    user: Option<Owner>,
    group: Option<Owner>,
}

/// A directory that the walk is in.
struct Frame {
    /// Below the destination's root.
    path: RelPath,
    /// Below the transfer's root, for filters and people.
    shown: RelPath,
    state: State,
    metadata: Metadata,
    /// The destination's names that have not been passed yet.
    names: Option<Names>,
    /// It or something in it is written or removed.
    is_changed: bool,
    /// It was made sure that it can be written to.
    is_writable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Stands for the destination itself; nothing is said of it.
    Top,
    /// It and all in it is passed over.
    Skipped,
    /// It is there.
    Existing,
    /// It was made, or would be in a dry run.
    New,
}

struct Names {
    names: DirNames,
    next: Option<Vec<u8>>,
}

impl Names {
    fn new(mut names: DirNames) -> std::io::Result<Self> {
        let next = names.next()?;
        Ok(Self { names, next })
    }

    /// The next name, if it comes before `limit`.
    fn before(&mut self, limit: Option<&[u8]>) -> std::io::Result<Option<Vec<u8>>> {
        let is_before = self.next.as_deref().is_some_and(|next| limit.is_none_or(|limit| next < limit));
        if !is_before {
            return Ok(None);
        }
        let name = self.next.take();
        self.next = self.names.next()?;
        Ok(name)
    }

    /// Passes `name`, if it comes next.
    fn pass(&mut self, name: &[u8]) -> std::io::Result<()> {
        if self.next.as_deref() == Some(name) {
            self.next = self.names.next()?;
        }
        Ok(())
    }
}

impl Rewrite {
    fn new(options: &CopyOptions) -> Result<Self, ApiError> {
        let usage = |message: String| ApiError::new(ErrorKind::Usage, message);
        let umask = towpath_files::metadata::umask();
        let chmod: Result<Vec<_>, _> = options.chmod.iter().map(|text| Chmod::parse(text, umask)).collect();
        let chmod = chmod.map_err(|error| usage(format!("--chmod: {error}")))?;
        let (mut user, mut group) = (None, None);
        if let Some(text) = &options.chown {
            let (users, groups) = text.split_once(':').unwrap_or((text, ""));
            user = towpath_files::metadata::user(users).map_err(|why| usage(format!("--chown: {why}")))?;
            group = towpath_files::metadata::group(groups).map_err(|why| usage(format!("--chown: {why}")))?;
        }
        Ok(Self { chmod, user, group })
    }

    fn apply(&self, metadata: &mut Metadata, kind: &Kind) {
        let is_dir = *kind == Kind::Directory;
        // A symbolic link has no mode of its own.
        for chmod in self.chmod.iter().filter(|_| !matches!(kind, Kind::Symlink { .. })) {
            metadata.mode = chmod.apply(metadata.mode, is_dir);
        }
        if let Some(user) = &self.user {
            metadata.user.clone_from(user);
        }
        if let Some(group) = &self.group {
            metadata.group.clone_from(group);
        }
    }
}

impl Merge {
    /// A walk that has not begun. Must be made within a runtime.
    pub fn new(receiving: &Arc<Receiving>, destined: Destined) -> Result<Self, ApiError> {
        let options = &receiving.options;
        let bad_rule = |error: towpath_files::filter::FilterError| {
            ApiError::new(ErrorKind::Usage, format!("the filter rules: {error}"))
        };
        let mut rules = RuleList::from_lines(&options.filters).map_err(bad_rule)?;
        let has_merges = rules.has_dir_merges();
        let checker = (!has_merges && !rules.is_empty())
            .then(|| Filter::new(rules.clone(), Side::Sender, options.delete_excluded));
        if options.backup && options.backup_dir.is_none() && options.delete {
            let rule = [b"P *", &options.suffix[..]].concat();
            rules.push_filter(&rule).map_err(bad_rule)?;
        }
        let preserve = &options.preserve;
        let look = ScanOptions { xattrs: preserve.xattrs, acls: preserve.acls, ..ScanOptions::default() };
        Ok(Self {
            runtime: Handle::current(),
            rewrite: Rewrite::new(options)?,
            filter: Filter::new(rules, Side::Receiver, options.delete_excluded),
            checker,
            asked: listed::Asked::new(options)?,
            receiving: Arc::clone(receiving),
            destined,
            placement: Placement::Into,
            renamed: None,
            look,
            frames: Vec::new(),
            entry: 0,
            closed: HashSet::new(),
            is_incomplete: false,
            dirs: Records::default(),
            deletions: Records::default(),
            links: Records::default(),
            firsts: Records::default(),
            groups: Vec::new(),
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
    pub fn closed(&mut self, entry: u64) -> Result<(), ApiError> {
        if entry < self.entry || self.closed.len() >= MAX_CLOSED {
            return Err(super::message::violation("a closed directory that does not come"));
        }
        self.closed.insert(entry);
        Ok(())
    }

    /// The sender could not read everything.
    pub fn incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// Nothing more came for now.
    pub fn push(&self) -> Result<(), ApiError> {
        match self.receiving.supplier() {
            Some(supplier) => supplier.considered(self.entry),
            None => Ok(()),
        }
    }

    /// Entries seen so far.
    pub const fn seen(&self) -> u64 {
        self.entry
    }

    /// Takes the next step of the sender's walk; `located` is where a file is on this machine.
    pub fn step(&mut self, event: Event, located: Option<Located>) -> Result<(), ApiError> {
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

    fn next_entry(&mut self) -> Result<(), ApiError> {
        self.entry += 1;
        match self.receiving.supplier() {
            Some(supplier) if self.entry.is_multiple_of(TELL_EVERY) => supplier.considered(self.entry),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, entry: Entry) -> Result<(), ApiError> {
        if self.frames.is_empty() {
            self.frames.push(Frame {
                path: RelPath::root(),
                shown: RelPath::root(),
                state: State::Top,
                metadata: Metadata::default(),
                names: None,
                is_changed: false,
                is_writable: false,
            });
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
        self.frames.push(Frame {
            path: RelPath::root(),
            shown: RelPath::root(),
            state: State::Skipped,
            metadata: Metadata::default(),
            names: None,
            is_changed: false,
            is_writable: false,
        });
    }

    /// Where an entry goes, and what it is called; `None` if it is passed over.
    fn locate(&mut self, entry: &Entry) -> Result<Option<(RelPath, RelPath)>, ApiError> {
        let is_dir = entry.kind == Kind::Directory;
        if self.frames.len() == 1 {
            self.first(entry)?;
        }
        let is_contents = self.placement == Placement::Contents;
        let Some(frame) = self.frames.last() else {
            return Err(super::message::violation("a tree that begins with no directory"));
        };
        if frame.state == State::Skipped {
            return Ok(None);
        }
        let outside = |error: FileError| errors::source(&error);
        let (path, shown) = if self.frames.len() > 1 {
            (frame.path.join(&entry.name).map_err(outside)?, frame.shown.join(&entry.name).map_err(outside)?)
        } else if is_contents {
            (RelPath::root(), RelPath::root())
        } else {
            let name = self.renamed.as_deref().unwrap_or(&entry.name);
            let path = match self.placement {
                Placement::As if is_dir => RelPath::root(),
                _ => RelPath::new([name]).map_err(outside)?,
            };
            (path, RelPath::new([&entry.name]).map_err(outside)?)
        };
        if let Some(checker) = &mut self.checker
            && !shown.is_root()
            && !checker.shows(&shown, is_dir)
        {
            let why = "the sender sent what the filters leave out";
            self.receiving.leave_out(shown.as_bytes(), why, "do not use this sender");
            return Ok(None);
        }
        if !self.asked.covers(&shown, is_dir, is_contents) {
            let why = "the sender sent what nobody asked for";
            self.receiving.leave_out(shown.as_bytes(), why, "do not use this sender");
            return Ok(None);
        }
        self.pass(&entry.name);
        Ok(Some((path, shown)))
    }

    /// The first level: what the person named.
    fn first(&mut self, entry: &Entry) -> Result<(), ApiError> {
        if let Some(names) = &self.destined.names
            && !names.iter().any(|name| name.matches(&entry.name))
        {
            let name = display_name(&entry.name);
            return Err(ApiError::new(
                ErrorKind::Corrupt,
                format!("the sender sent {name}, which nobody asked for"),
            )
            .hint("nothing of it was written; do not use this sender"));
        }
        if self.entry != 1 {
            return Ok(());
        }
        let path = self.destined.path.clone();
        let shown = display_name(path.as_os_str().as_encoded_bytes());
        let is_dir = entry.kind == Kind::Directory;
        let there = match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => There::Directory,
            Ok(_) => There::Other,
            // A link that leads nowhere is something that can be replaced.
            Err(_) if path.symlink_metadata().is_ok() => There::Other,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => There::Nothing,
            Err(error) => return Err(errors::io("look at", &path, &error)),
        };
        let asked = Asked {
            mode: self.destined.mode,
            sources: self.destined.sources,
            contents: self.destined.contents,
            slash: path.as_os_str().as_encoded_bytes().ends_with(b"/"),
            is_dir,
        };
        // An interrupted copy made the directory that it goes on with now.
        let goes_on = self.destined.mode == Mode::Cp
            && is_dir
            && there == There::Directory
            && self.receiving.is_open(&path, &self.key(Placement::As, &entry.name));
        let there = if goes_on { There::Nothing } else { there };
        self.placement = place(there, asked)
            .map_err(|(why, hint)| ApiError::new(ErrorKind::Exists, format!("{shown} {why}")).hint(hint))?;
        let key = self.key(self.placement, &entry.name);
        let there = if goes_on { There::Directory } else { there };
        self.open(&path, there, is_dir, &key)
    }

    /// Names what is put where, whatever it contains: what is left of a file is found by what the
    /// file is.
    fn key(&self, placement: Placement, name: &[u8]) -> Oid {
        match placement {
            Placement::As => Oid::of(&[b"copy as ", name].concat()),
            Placement::Into | Placement::Contents => Oid::of(b"copy into"),
        }
    }

    fn open(&mut self, path: &Path, there: There, is_dir: bool, key: &Oid) -> Result<(), ApiError> {
        let options = self.receiving.write_options();
        let failed = |error: FileError| errors::source(&error);
        if self.placement == Placement::As && !is_dir {
            let name = path.file_name().ok_or_else(|| {
                refuse("the destination has no name", "name the file that the copy is to be")
            })?;
            self.renamed = Some(name.as_encoded_bytes().to_vec());
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            let destination = Destination::open(parent, options).map_err(failed)?;
            let found = destination.look(&RelPath::root(), &self.look).map_err(failed)?;
            self.root_before = found.map(|found| found.entry.metadata.modified);
            return self.receiving.open(destination, Some(name), key);
        }
        let destination = match there {
            There::Nothing if self.options().dry_run => return Ok(()),
            There::Nothing => {
                // Like any directory it is its owner's alone until it is finished, unless it is none of
                // the source's.
                let mode = if self.placement == Placement::Into { 0o777 } else { 0o700 };
                let made = std::fs::DirBuilder::new().mode(mode).create(path);
                made.map_err(|error| errors::io("create", path, &error))?;
                self.is_made = true;
                Destination::open(path, options).map_err(failed)?
            }
            _ => Destination::open(path, options).map_err(failed)?,
        };
        if there == There::Nothing && self.placement == Placement::Into {
            self.receiving.count(|counts| counts.created.directories += 1);
        }
        let found = destination.look(&RelPath::root(), &self.look).map_err(failed)?;
        self.root_before = found.map(|found| found.entry.metadata.modified);
        self.receiving.open(destination, None, key)
    }

    /// What stands at `path`; nothing, below a directory that is not there.
    fn look(&self, path: &RelPath) -> Result<Option<Found>, FileError> {
        let parent_is_new = self.frames.last().is_some_and(|frame| frame.state == State::New);
        match self.receiving.opened() {
            Some(placing) if !parent_is_new || path.is_root() => placing.destination.look(path, &self.look),
            _ => Ok(None),
        }
    }

    /// On a file system that does not tell case or Unicode forms apart, what is found under one name
    /// may be another entry.
    fn check_name(&mut self, path: &RelPath, name: &[u8]) -> Result<(), FileError> {
        let receiving = Arc::clone(&self.receiving);
        let Some(placing) = receiving.opened() else { return Ok(()) };
        if path.is_root() || self.options().dry_run || !placing.destination.folds(path)? {
            return Ok(());
        }
        match placing.destination.actual_name(path)? {
            Some(actual) if actual != name => {
                let shown = placing.whole_path(path);
                // What has the name is not superfluous.
                self.is_incomplete = true;
                let why = "its name collides with another's, as case or accents make no difference there";
                Err(because("write", &shown, why))
            }
            _ => Ok(()),
        }
    }

    fn directory(&mut self, mut entry: Entry, path: &RelPath, shown: &RelPath) -> Result<(), FileError> {
        self.rewrite.apply(&mut entry.metadata, &entry.kind);
        let mut old = self.look(path)?;
        // The destination itself was made for this directory just now.
        let is_made = path.is_root() && self.is_made;
        if old.is_some() && self.receiving.has_staging() {
            self.check_name(path, &entry.name)?;
        }
        if is_made {
            old = None;
        }
        if let (Some(old), true) = (&old, path.is_root() && self.options().files_from.is_some()) {
            entry.metadata.clone_from(&old.entry.metadata);
        }
        let difference = old.as_ref().map_or_else(Differences::default, |old| {
            differences(&entry.kind, &entry.metadata, &old.entry.metadata, &self.receiving.policy)
        });
        let verdict = judge(&entry, old.as_ref(), difference, self.options());
        let state = match verdict {
            Verdict::LeftAlone if !is_made => {
                self.skip();
                return Ok(());
            }
            Verdict::Make(changes) => {
                if old.take().is_some() {
                    self.clear(path, shown, &entry)?;
                }
                self.make_dir(path)?;
                self.told(&entry, shown, changes, b'c');
                self.receiving.count(|counts| add(&mut counts.created, &entry.kind));
                State::New
            }
            Verdict::Touch(changes) => {
                self.told(&entry, shown, changes, b'.');
                State::Existing
            }
            Verdict::LeftAlone => {
                self.told(&entry, shown, Changes { new: true, ..Changes::default() }, b'c');
                State::New
            }
            Verdict::Same | Verdict::Compare(_) => {
                self.unchanged(&entry, shown);
                State::Existing
            }
        };
        if old.is_some() {
            self.matched += 1;
        }
        if let (State::Existing, Some(placing)) = (state, self.receiving.opened()) {
            let dir = placing.destination.dir(path)?;
            self.filter.enter(dir.as_fd(), shown)?;
        }
        let is_closed = self.closed.remove(&self.entry);
        let names = match self.receiving.opened() {
            Some(placing) if self.options().delete && state == State::Existing && !is_closed => {
                let names = placing.destination.names(path, &self.look)?;
                Some(Names::new(names).map_err(|error| FileError::new("read", placing.path(), error))?)
            }
            _ => None,
        };
        let is_changed = state == State::New || matches!(verdict, Verdict::Touch(_));
        self.frames.push(Frame {
            path: path.clone(),
            shown: shown.clone(),
            state,
            metadata: entry.metadata,
            names,
            is_changed,
            is_writable: state == State::New,
        });
        Ok(())
    }

    fn make_dir(&mut self, path: &RelPath) -> Result<(), FileError> {
        if self.options().dry_run {
            return Ok(());
        }
        self.touch_parent()?;
        match self.receiving.opened() {
            Some(placing) => placing.destination.make_dir(path).map(drop),
            None => Ok(()),
        }
    }

    /// The innermost directory is going to be written to.
    fn touch_parent(&mut self) -> Result<(), FileError> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        frame.is_changed = true;
        if frame.is_writable || frame.state == State::Top {
            return Ok(());
        }
        frame.is_writable = true;
        match self.receiving.opened() {
            // It may be read-only until it is finished.
            Some(placing) if !self.receiving.options.dry_run => {
                placing.destination.make_dir(&frame.path).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Makes room for something of another kind.
    fn clear(&mut self, path: &RelPath, shown: &RelPath, new: &Entry) -> Result<(), FileError> {
        let receiving = Arc::clone(&self.receiving);
        let placing = receiving.placing()?;
        let Some(old) = placing.destination.look(path, &self.look)? else { return Ok(()) };
        let is_dir = old.entry.kind == Kind::Directory;
        let leave = self.options().delete || self.options().force;
        let may_if_empty = self.destined.mode == Mode::Sync;
        if is_dir && !leave && !(may_if_empty && self.is_empty(path)?) {
            let why = match self.destined.mode {
                Mode::Cp => "a directory is in the way",
                Mode::Sync => "a directory that is not empty is in the way; --force or --delete removes it",
            };
            return Err(because("replace", &placing.whole_path(path), why));
        }
        self.touch_parent()?;
        if !is_dir && (self.options().dry_run || receiving.back_up(path)?) {
            return Ok(());
        }
        // What is no directory is replaced in one step, unless a directory takes its place.
        if is_dir || new.kind == Kind::Directory {
            super::finish::make_room(&receiving, &mut self.filter, path, shown)?;
        }
        Ok(())
    }

    fn is_empty(&self, path: &RelPath) -> Result<bool, FileError> {
        let placing = self.receiving.placing()?;
        let mut names = placing.destination.names(path, &self.look)?;
        let first = names.next().map_err(|error| FileError::new("read", placing.path(), error))?;
        Ok(first.is_none())
    }

    fn leaf(&mut self, entry: Entry, located: Option<Located>) -> Result<(), ApiError> {
        let Some((path, shown)) = self.locate(&entry)? else { return Ok(()) };
        if self.is_left_out(&entry, &shown) {
            self.receiving.settled(self.entry, false);
            return Ok(());
        }
        self.receiving.count(|counts| {
            add(&mut counts.seen, &entry.kind);
            counts.total_size += size(&entry.kind);
        });
        match self.single(entry, &path, &shown, located) {
            Ok(Some(wanted)) => self.bring(wanted),
            Ok(None) => Ok(()),
            Err(error) => {
                self.receiving.problem(shown.as_bytes(), &error);
                self.receiving.settled(self.entry, false);
                Ok(())
            }
        }
    }

    /// Kinds and sizes that were not asked for.
    fn is_left_out(&self, entry: &Entry, shown: &RelPath) -> bool {
        let (options, preserve) = (self.options(), &self.options().preserve);
        let (why, hint) = match &entry.kind {
            Kind::File { size, .. } => {
                return options.min_size.is_some_and(|min| *size < min)
                    || options.max_size.is_some_and(|max| *size > max);
            }
            Kind::Symlink { target } if preserve.links => {
                if !options.safe_links || !safe_links::is_unsafe(target, shown) {
                    return false;
                }
                ("a link that leads out of the tree is left out", "without --safe-links it is copied")
            }
            Kind::Symlink { .. } => ("a symbolic link is left out", "-l copies links, -L what they lead to"),
            Kind::Fifo | Kind::Socket if preserve.specials => return false,
            Kind::Fifo => ("a FIFO is left out", "--specials copies it"),
            Kind::Socket => ("a socket is left out", "--specials copies it"),
            _ if preserve.devices => return false,
            _ => ("a device is left out", "--devices copies it"),
        };
        self.receiving.leave_out(shown.as_bytes(), why, hint);
        true
    }

    /// Anything but a directory; returns a file whose content has to come.
    fn single(
        &mut self,
        mut entry: Entry,
        path: &RelPath,
        shown: &RelPath,
        located: Option<Located>,
    ) -> Result<Option<Wanted>, FileError> {
        self.rewrite.apply(&mut entry.metadata, &entry.kind);
        let old = self.look(path)?;
        if let (Mode::Cp, Some(located), Some(old)) = (self.destined.mode, &located, &old)
            && located.stamp.same_file(&old.stamp)
        {
            let shown = located.whole_path();
            return Err(because("copy", &shown, "source and destination are the same file"));
        }
        let first = match entry.hard_link {
            Some(group) => self.first_of(group)?,
            None => None,
        };
        if let Some(first) = first {
            return self.later_link(&entry, first, path, shown, old.as_ref()).map(|()| None);
        }
        let difference = old.as_ref().map_or_else(Differences::default, |old| {
            differences(&entry.kind, &entry.metadata, &old.entry.metadata, &self.receiving.policy)
        });
        let verdict = judge(&entry, old.as_ref(), difference, self.options());
        if old.is_some() {
            self.matched += 1;
        }
        let (changes, compare) = match verdict {
            Verdict::LeftAlone => {
                self.receiving.settled(self.entry, false);
                return Ok(None);
            }
            Verdict::Same => {
                self.note_first(&entry, path, shown, true)?;
                self.unchanged(&entry, shown);
                if let Some(old) = &old {
                    self.receiving.unchanged(self.entry, &old.stamp);
                }
                return Ok(None);
            }
            Verdict::Touch(changes) => {
                self.told(&entry, shown, changes, b'.');
                self.note_first(&entry, path, shown, true)?;
                let Some(old) = &old else { return Ok(None) };
                if self.options().dry_run
                    || self.receiving.touch(path, shown.as_bytes(), &old.stamp, &entry.metadata)
                {
                    self.receiving.unchanged(self.entry, &old.stamp);
                }
                return Ok(None);
            }
            Verdict::Make(changes) => (changes, None),
            Verdict::Compare(changes) => (Changes { content: true, ..changes }, Some(changes)),
        };
        if old.is_some() {
            let name = self.renamed.clone().unwrap_or_else(|| entry.name.clone());
            self.check_name(path, &name)?;
        }
        let is_in_the_way = old.as_ref().is_some_and(|old| old.entry.kind == Kind::Directory);
        if is_in_the_way {
            self.clear(path, shown, &entry)?;
        }
        self.note_first(&entry, path, shown, false)?;
        if !self.options().dry_run {
            self.touch_parent()?;
        }
        if changes.new {
            self.receiving.count(|counts| add(&mut counts.created, &entry.kind));
        }
        let Kind::File { size, .. } = entry.kind else {
            self.told(&entry, shown, changes, b'c');
            return self.make(&entry, path, old.is_some() && !is_in_the_way).map(|()| None);
        };
        let replaces = old.is_some() && !is_in_the_way;
        Ok(Some(Wanted {
            entry: self.entry,
            path: path.clone(),
            shown: shown.as_bytes().to_vec(),
            metadata: entry.metadata,
            size,
            old: old.filter(|old| super::file::is_file(&old.entry.kind)).map(|old| old.stamp),
            replaces,
            compare,
            changes,
            located,
        }))
    }

    /// A symbolic link, FIFO, socket or device.
    fn make(&self, entry: &Entry, path: &RelPath, replaces: bool) -> Result<(), FileError> {
        if self.options().dry_run {
            return Ok(());
        }
        if replaces {
            self.receiving.back_up(path)?;
        }
        let destination = &self.receiving.placing()?.destination;
        let overwrite = if replaces { Overwrite::ReplaceAny } else { Overwrite::Never };
        let made = match &entry.kind {
            Kind::Symlink { target } => destination.make_symlink(path, target, &entry.metadata, overwrite)?,
            kind => destination.make_special(path, kind, &entry.metadata, overwrite)?,
        };
        self.receiving.settled(self.entry, true);
        made.lacking.map_or(Ok(()), Err)
    }

    /// Asks for a file; waits while too many are under way.
    fn bring(&self, wanted: Wanted) -> Result<(), ApiError> {
        let receiving = &self.receiving;
        let Some(supplier) = receiving.supplier() else { return Ok(()) };
        if receiving.options.dry_run && wanted.compare.is_none() {
            receiving.tell_file(&wanted, wanted.size);
            return Ok(());
        }
        let places = Arc::clone(&receiving.places);
        let permit = match Arc::clone(&places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                supplier.push()?;
                // A batch that is full names its files, so some place becomes free.
                let Ok(permit) = self.runtime.block_on(places.acquire_owned()) else {
                    return receiving.check();
                };
                permit
            }
        };
        let file = CopyFile::new(receiving, wanted, permit);
        if file.wanted().compare.is_none() {
            receiving.tell_file(file.wanted(), file.size());
            if file.size() == 0 {
                file.make_empty();
                return Ok(());
            }
        }
        supplier.bring(file)
    }

    /// Where the first name of a group of hard links is on record, if it was met.
    fn first_of(&self, group: u64) -> Result<Option<u64>, FileError> {
        // Groups are numbered in the order of the walk, so no number is beyond that of its entry.
        if group > self.entry {
            return Err(because("read", Path::new("the sender's tree"), "a hard link without a first name"));
        }
        let at = usize::try_from(group).ok().and_then(|group| self.groups.get(group));
        Ok(at.copied().filter(|at| *at != NOT_MET))
    }

    /// Notes the first name of a group that is at the destination, or comes there.
    fn note_first(
        &mut self,
        entry: &Entry,
        path: &RelPath,
        shown: &RelPath,
        is_kept: bool,
    ) -> Result<(), FileError> {
        let Some(group) = entry.hard_link else { return Ok(()) };
        let (path, shown) = (path.as_bytes().to_vec(), shown.as_bytes().to_vec());
        let record = PathRecord { path, shown, is_dir: false, is_kept };
        let at =
            self.firsts.push(&record).map_err(|error| FileError::new("note", Path::new("a link"), error))?;
        let group = group as usize;
        if self.groups.len() <= group {
            self.groups.resize(group + 1, NOT_MET);
        }
        self.groups[group] = at;
        Ok(())
    }

    /// A further name of a file that was told before.
    fn later_link(
        &mut self,
        entry: &Entry,
        at: u64,
        path: &RelPath,
        shown: &RelPath,
        old: Option<&Found>,
    ) -> Result<(), FileError> {
        let note = |error| FileError::new("note", Path::new("a link"), error);
        let first = self.firsts.get(at).map_err(note)?;
        if let Some(old) = old {
            let names = first.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
            let there = match self.look(&RelPath::new(names)?) {
                // A real run would have made way for the directories on the way there.
                Err(_) if self.options().dry_run => None,
                there => there?,
            };
            self.matched += 1;
            if first.is_kept && there.is_some_and(|there| there.stamp.same_file(&old.stamp)) {
                self.unchanged(entry, shown);
                self.receiving.unchanged(self.entry, &old.stamp);
                return Ok(());
            }
            if self.options().ignore_existing {
                return Ok(());
            }
        } else if self.options().existing {
            return Ok(());
        }
        if old.is_some_and(|old| old.entry.kind == Kind::Directory) {
            self.clear(path, shown, entry)?;
        }
        if !self.options().dry_run {
            self.touch_parent()?;
        }
        let record = LinkRecord {
            first: first.path,
            first_shown: first.shown,
            path: path.as_bytes().to_vec(),
            shown: shown.as_bytes().to_vec(),
            entry: self.entry,
            size: size(&entry.kind),
            seconds: entry.metadata.modified.seconds,
            nanos: entry.metadata.modified.nanos,
            is_new: old.is_none(),
        };
        self.links.push(&record).map(drop).map_err(note)
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
            modified: entry.metadata.modified,
        });
    }

    fn unchanged(&self, entry: &Entry, shown: &RelPath) {
        if self.options().report_unchanged {
            self.told(entry, shown, Changes::default(), b'.');
        }
    }

    /// The destination's names before `name` are not the source's.
    fn pass(&mut self, name: &[u8]) {
        self.extras(Some(name));
        if let Some(names) = self.frames.last_mut().and_then(|frame| frame.names.as_mut()) {
            // An error here comes again with the next name, and is told there.
            let _ = names.pass(name);
        }
    }

    /// Notes what only the destination has, up to `limit`.
    fn extras(&mut self, limit: Option<&[u8]>) {
        loop {
            let Some(frame) = self.frames.last_mut() else { return };
            let Some(names) = &mut frame.names else { return };
            let (path, shown) = (frame.path.clone(), frame.shown.clone());
            let noted = match names.before(limit) {
                Ok(None) => return,
                Ok(Some(name)) => self.extra(&path, &shown, &name),
                Err(error) => {
                    frame.names = None;
                    Err(FileError::new("read", Path::new("the destination"), error))
                }
            };
            if let Err(error) = noted {
                self.receiving.problem(shown.as_bytes(), &error);
            }
        }
    }

    fn extra(&mut self, dir: &RelPath, shown: &RelPath, name: &[u8]) -> Result<(), FileError> {
        if towpath_files::is_staging_name(name) {
            return Ok(());
        }
        let (path, shown) = (dir.join(name)?, shown.join(name)?);
        let placing = self.receiving.placing()?;
        let Some(found) = placing.destination.look(&path, &ScanOptions::default())? else { return Ok(()) };
        let is_dir = found.entry.kind == Kind::Directory;
        if self.filter.protects(&shown, is_dir) || self.is_backup_dir(&path) {
            return Ok(());
        }
        if super::file::is_file(&found.entry.kind) {
            self.receiving.is_spare(path.clone(), found.stamp);
        }
        let record = PathRecord {
            path: path.as_bytes().to_vec(),
            shown: shown.as_bytes().to_vec(),
            is_dir,
            is_kept: false,
        };
        self.deletions
            .push(&record)
            .map_err(|error| FileError::new("note", Path::new("a deletion"), error))?;
        if let Some(frame) = self.frames.last_mut() {
            frame.is_changed = true;
        }
        Ok(())
    }

    /// Backups of this run are not to be removed by it.
    fn is_backup_dir(&self, path: &RelPath) -> bool {
        let Some(dir) = self.options().backup_dir.as_ref().filter(|_| self.options().backup) else {
            return false;
        };
        let mut names = dir.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        path.names().all(|name| names.next() == Some(name))
    }

    /// Whether the destination's own directory stands for an entry of the source.
    fn is_root_told(&self) -> bool {
        match self.placement {
            Placement::Into => false,
            Placement::Contents => true,
            Placement::As => self.renamed.is_none(),
        }
    }

    fn leave(&mut self) -> Result<(), ApiError> {
        self.extras(None);
        let Some(frame) = self.frames.pop() else {
            return Err(super::message::violation("a tree that ends twice"));
        };
        if frame.state == State::Skipped {
            return Ok(());
        }
        let is_own_root = frame.state == State::Top && !self.is_root_told();
        if (is_own_root || frame.path.is_root() && self.is_root_told()) && !frame.is_changed {
            self.root_time = self.root_before;
        }
        if frame.state == State::Top {
            return Ok(());
        }
        if frame.state == State::Existing && self.receiving.opened().is_some() {
            self.filter.leave();
        }
        // In the root the temporaries come and go.
        let is_listed = frame.path.is_root() && self.options().files_from.is_some();
        let is_touched = frame.is_changed || frame.path.is_root() && !is_listed;
        if is_touched && frame.path.is_root() && self.receiving.policy.dir_times {
            self.root_time = None;
        }
        if !is_touched || self.options().dry_run {
            return Ok(());
        }
        let record = DirRecord {
            path: frame.path.as_bytes().to_vec(),
            shown: frame.shown.as_bytes().to_vec(),
            metadata: metadata_bytes(&frame.metadata),
        };
        let noted = self.dirs.push(&record).map(drop);
        noted.map_err(|error| errors::io("note", Path::new("a directory"), &error))
    }
}

fn because(op: &'static str, path: &Path, why: &'static str) -> FileError {
    FileError::new(op, path, std::io::Error::new(std::io::ErrorKind::InvalidInput, why))
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
