//! The receiving side's walk: the sender's entries in their order, merged with what lies at the
//! destination, and for each what has to be done.
//!
//! Without `--delete` the destination is looked at name by name; with it, its directories are read
//! sorted and merged. What must wait for the end (hard links, deletions, the times of directories)
//! is kept on disk, so memory does not grow with the tree (`finish`).
//!
//! | module | story |
//! |---|---|
//! | `directory`, `leaf` | what is done about an entry |
//! | `root` | the destination itself, and where the sources go |
//! | `tree` | the destination, looked at and changed |
//! | `stack` | the directories that the walk is in |
//! | `rules`, `privileges`, `rewrite` | which entries come, and what their metadata become |
//! | `report` | what people are told of entries |
//! | `extras`, `links` | what only the destination has; further names of files |

mod directory;
mod extras;
mod leaf;
mod links;
pub mod privileges;
mod report;
mod rewrite;
mod root;
mod rules;
mod stack;
mod tree;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use towpath_api::copy::CopyOptions;
use towpath_content::tree::{Entry, Event, Kind};
use towpath_files::filter::{Filter, FilterSide, RuleList};
use towpath_files::{FileError, Found, RelPath};

use crate::destination_rules::DestinationRule;
use crate::error::{CopyError, RequestFault};
use crate::finish::Finish;
use crate::message::violation;
use crate::notes::{DirRecord, EndNotes};
use crate::receiving::Receiving;
use crate::removing::Removals;
use crate::requests::FileRequests;
use crate::source::Located;
use crate::supply::Supplier;
use crate::tree_receiving::SenderStep;
use links::LinkGroups;
use report::EntryReport;
use root::DestinationRoot;
pub use root::Destined;
use rules::EntryRules;
use stack::{DirStack, DirState};
use tree::DestinationTree;

/// Directories told of beforehand as closed.
const MAX_CLOSED: usize = 64 << 10;

/// Entries between two reports to the sender of how far this side has come.
const TELL_EVERY: u64 = 1024;

/// The walk.
pub struct Merge {
    receiving: Arc<Receiving>,
    requests: FileRequests,
    root: DestinationRoot,
    tree: DestinationTree,
    rules: EntryRules,
    report: EntryReport,
    removals: Removals,
    stack: DirStack,
    groups: LinkGroups,
    notes: EndNotes,
    /// The number of the entry that comes next.
    entry: u64,
    /// Entries of the sender's walk that are not wanted.
    passed: u64,
    closed: HashSet<u64>,
    is_incomplete: bool,
    /// Entries of the destination that the source has too.
    matched: u64,
}

impl Merge {
    /// A walk that has not begun. Must be made within a runtime.
    pub fn new(
        receiving: &Arc<Receiving>,
        supplier: Option<Arc<dyn Supplier>>,
        destined: Destined,
    ) -> Result<Self, CopyError> {
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
        let filter = Filter::new(rules, FilterSide::Receiver, options.delete_excluded);
        Ok(Self {
            receiving: Arc::clone(receiving),
            requests: FileRequests::new(receiving, supplier),
            root: DestinationRoot::new(destined),
            tree: DestinationTree::new(receiving),
            rules: EntryRules::new(receiving, checker)?,
            report: EntryReport::new(receiving),
            removals: Removals::new(filter),
            stack: DirStack::default(),
            groups: LinkGroups::default(),
            notes: EndNotes::default(),
            entry: 0,
            passed: 0,
            closed: HashSet::new(),
            is_incomplete: false,
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

    /// An entry of the sender's walk is not wanted. Groups of hard links are numbered over all.
    pub const fn pass_over(&mut self) {
        self.passed += 1;
    }

    /// Nothing more came for now.
    pub fn push(&self) -> Result<(), CopyError> {
        self.requests.considered(self.entry)
    }

    /// Entries seen so far.
    pub const fn seen(&self) -> u64 {
        self.entry
    }

    /// Takes the next step of a sender's tree; false at its end.
    pub fn take(&mut self, step: SenderStep) -> Result<bool, CopyError> {
        match step {
            SenderStep::Event(event) => self.step(event, None)?,
            SenderStep::Closed(entry) => self.closed(entry)?,
            SenderStep::End { is_incomplete } => {
                self.is_incomplete |= is_incomplete;
                return Ok(false);
            }
        }
        Ok(true)
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
        if self.entry.is_multiple_of(TELL_EVERY) { self.requests.considered(self.entry) } else { Ok(()) }
    }

    fn enter(&mut self, entry: Entry) -> Result<(), CopyError> {
        if self.stack.depth() == 0 {
            self.stack.enter_bare(DirState::Top);
            return Ok(());
        }
        let Some((path, shown)) = self.locate(&entry)? else {
            self.stack.enter_bare(DirState::Skipped);
            return Ok(());
        };
        self.report.dir(&entry);
        if let Err(error) = self.directory(entry, &path, &shown) {
            self.receiving.problem(shown.as_bytes(), &error);
            self.stack.enter_bare(DirState::Skipped);
        }
        Ok(())
    }

    /// Destination of an entry, and its name; `None` if it is passed over.
    fn locate(&mut self, entry: &Entry) -> Result<Option<(RelPath, RelPath)>, CopyError> {
        let (is_dir, is_source) = (entry.kind == Kind::Directory, self.stack.depth() == 1);
        let renaming = &mut self.notes.positions.renaming;
        if is_source {
            self.root.take_source(entry, self.entry == 1, &self.tree, renaming)?;
        }
        let is_contents = self.root.rule == DestinationRule::Contents;
        let Some(state) = self.stack.state() else {
            return Err(violation("a tree that begins with no directory"));
        };
        if state == DirState::Skipped {
            return Ok(None);
        }
        let shown = match is_source && is_contents {
            true => RelPath::root(),
            false => self.stack.shown.join(&entry.name).map_err(CopyError::source)?,
        };
        let path = match is_source {
            true => renaming.path(&shown),
            false => self.stack.path.join(&entry.name),
        };
        let path = path.map_err(CopyError::source)?;
        if !self.rules.covers(&shown, is_dir, is_contents) {
            return Ok(None);
        }
        self.pass(&entry.name);
        Ok(self.rules.takes_name(&entry.name, &shown).then_some((path, shown)))
    }

    /// Entry at `path`; nothing, below a directory that is not there.
    fn look(&self, path: &RelPath) -> Result<Option<Found>, FileError> {
        let parent_is_new = self.stack.state() == Some(DirState::New);
        if parent_is_new && !path.is_root() { Ok(None) } else { self.tree.look(path) }
    }

    fn leave(&mut self) -> Result<(), CopyError> {
        self.extras(None);
        let Some(frame) = self.stack.last_mut() else {
            return Err(violation("a tree that ends twice"));
        };
        let (state, is_changed) = (frame.state, frame.is_changed);
        let is_dest_root = self.stack.path.is_root();
        if state == DirState::Skipped {
            self.stack.leave();
            return Ok(());
        }
        // Either the synthetic top or the frame below it stands for the destination's directory.
        let is_told = self.root.stands_for_entry(&self.notes.positions.renaming);
        if is_dest_root && (state == DirState::Top) != is_told && !is_changed {
            self.root.keep_time();
        }
        if state == DirState::Existing {
            self.removals.leave(&self.receiving);
        }
        // In the root the temporaries come and go. Of a list's root only what is in it is copied.
        let is_listed = is_dest_root && self.options().files_from.is_some();
        let is_touched = state != DirState::Top && !is_listed && (is_changed || is_dest_root);
        if is_touched && is_dest_root && self.receiving.policy.dir_times {
            self.root.time = None;
        }
        let position = match is_touched && !self.options().dry_run {
            true => Some(self.stack.position(b"", &mut self.notes.positions.directories)),
            false => None,
        };
        let position = position.transpose().map_err(CopyError::destination)?;
        let (Some(frame), Some(position)) = (self.stack.leave(), position) else { return Ok(()) };
        let noted = self.notes.dirs.push(&DirRecord { position, metadata: (&frame.metadata).into() });
        noted.map(drop).map_err(|error| CopyError::system("note", Path::new("a directory"), error))
    }

    /// Brings the copy to its end; every entry was listed. Blocks until all files are in place.
    pub fn finish(self) -> Result<(), CopyError> {
        let finish = Finish {
            receiving: self.receiving,
            requests: self.requests,
            removals: self.removals,
            notes: self.notes,
            look: self.tree.look,
            entries: self.entry,
            matched: self.matched,
            is_incomplete: self.is_incomplete,
            root_time: self.root.time,
        };
        finish.run()
    }
}
