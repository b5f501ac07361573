//! The rules walked along a tree: a state machine that is told which directory is entered and left,
//! and asked about the entries of the innermost one.
//!
//! For each directory on the way it holds a *frame*: the per-directory files that are looked for
//! there, each with its rules in layers, the innermost directory's first. A frame shares what it
//! inherits with the one before it, so that leaving a directory is dropping its frame.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::list::RuleList;
use super::merges::{Compiled, CompiledMatch, FilterSide, MergeContext, RuleMerge, clean};
use super::pattern::{Anchor, PatternSubject};
use super::rule::Rule;
use crate::error::FileError;
use crate::path::RelPath;

/// The rules of one side, along a walk through a tree.
///
/// Paths are relative to the top of the transfer, where a leading slash in a pattern stands: for a
/// source `src/` the top is `src`, for `src` it is the directory that holds it.
#[derive(Debug)]
pub struct Filter {
    context: MergeContext,
    rules: Vec<Compiled>,
    /// Files of rules that are looked for in the first directory.
    merges: Vec<RuleMerge>,
    frames: Vec<Frame>,
    subject: PatternSubject,
}

/// A directory on the way.
#[derive(Debug)]
struct Frame {
    depth: usize,
    merges: Vec<RuleMerge>,
    /// Its rules could not be read: nothing is shown, all is protected.
    broken: bool,
}

impl Filter {
    /// The rules as they hold for one side. With `delete_excluded`, rules that name no side are the
    /// sender's alone, so that what they exclude is deleted.
    pub fn new(rules: RuleList, side: FilterSide, delete_excluded: bool) -> Self {
        let mut context = MergeContext { side, delete_excluded, absolute: Vec::new(), next_id: 0 };
        let (mut compiled, mut merges) = (Vec::new(), Vec::new());
        for rule in rules.rules() {
            match rule {
                Rule::Match(rule) => compiled.extend(context.compile(rule, Anchor::Tree(0))),
                Rule::DirMerge(spec) => {
                    let merge = context.merge(spec.clone(), false);
                    compiled.push(Compiled::Merge(merge.id));
                    merges.push(merge);
                }
            }
        }
        Self { context, rules: compiled, merges, frames: Vec::new(), subject: PatternSubject::default() }
    }

    /// Says where the top of the transfer is on this side. It is needed for rules with the modifier
    /// `/`, and for per-directory files that are to be looked for in the directories above the tree
    /// (`: /.rsync-filter`): without it, the top counts as the file system's root, and nothing above
    /// the tree is read.
    #[must_use]
    pub fn at(mut self, top: &Path) -> Self {
        self.context.absolute = clean(top.as_os_str().as_bytes());
        self
    }

    /// Enters the directory `path`, held by `dir`, and reads its files of rules. The first
    /// directory of a walk is entered too.
    ///
    /// After an error the rules of the directory are not known: until it is left, nothing in it is
    /// shown and everything is protected.
    pub fn enter(&mut self, dir: BorrowedFd<'_>, path: &RelPath) -> Result<(), FileError> {
        self.leave_down_to(path.depth());
        let mut merges = self.frames.last().map_or(&self.merges, |outer| &outer.merges).clone();
        let read = self.context.read_all(&mut merges, dir, path);
        self.frames.push(Frame { depth: path.depth(), merges, broken: read.is_err() });
        read
    }

    /// Leaves the directory that was entered last.
    pub fn leave(&mut self) {
        self.frames.pop();
    }

    /// True if every entry of the innermost directory takes part, as there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// True if an entry of the innermost directory takes part. An excluded directory is not to be
    /// entered.
    pub fn shows(&mut self, path: &RelPath, is_dir: bool) -> bool {
        path.is_root() || !self.is_broken(path) && self.verdict(path, is_dir, false) != Some(false)
    }

    /// True if an entry that the sender does not have must stay. A protected directory stays with
    /// all that it holds.
    pub fn protects(&mut self, path: &RelPath, is_dir: bool) -> bool {
        path.is_root() || self.is_broken(path) || self.verdict(path, is_dir, false) == Some(false)
    }

    /// As [`Filter::protects`], in a directory that is itself being deleted: perishable rules no
    /// longer count there. A directory that holds anything protected stays.
    pub fn protects_in_deleted(&mut self, path: &RelPath, is_dir: bool) -> bool {
        path.is_root() || self.is_broken(path) || self.verdict(path, is_dir, true) == Some(false)
    }

    /// Forgets directories that were left without being told, as after an error.
    fn leave_down_to(&mut self, depth: usize) {
        while self.frames.last().is_some_and(|frame| frame.depth >= depth) {
            self.frames.pop();
        }
    }

    fn is_broken(&mut self, path: &RelPath) -> bool {
        self.leave_down_to(path.depth());
        self.frames.last().is_some_and(|frame| frame.broken)
    }

    /// Action of the first rule that matches, true if it includes; `None` if none matches.
    fn verdict(&mut self, path: &RelPath, is_dir: bool, ignore_perishable: bool) -> Option<bool> {
        self.subject.set(&self.context.absolute, path.as_bytes(), is_dir);
        let merges = self.frames.last().map_or(&[][..], |frame| &frame.merges);
        let question = Question { merges, subject: &self.subject, is_dir, ignore_perishable };
        question.ask(&self.rules)
    }
}

/// One entry, asked about.
struct Question<'a> {
    merges: &'a [RuleMerge],
    subject: &'a PatternSubject,
    is_dir: bool,
    ignore_perishable: bool,
}

impl Question<'_> {
    fn ask(&self, rules: &[Compiled]) -> Option<bool> {
        rules.iter().find_map(|rule| match rule {
            Compiled::Match(rule) => self.matches(rule).then_some(rule.include),
            Compiled::Merge(id) => self.ask_layers(*id),
        })
    }

    fn ask_layers(&self, id: usize) -> Option<bool> {
        let merge = self.merges.iter().find(|merge| merge.id == id)?;
        if merge.spec.contents.perishable && self.ignore_perishable {
            // All of it, also the exclusion of a file by its own `e`, which is not perishable itself.
            return None;
        }
        let mut layers = merge.layers.as_ref();
        while let Some(layer) = layers {
            if let Some(verdict) = self.ask(&layer.rules) {
                return Some(verdict);
            }
            layers = layer.outer.as_ref();
        }
        None
    }

    fn matches(&self, rule: &CompiledMatch) -> bool {
        if rule.perishable && self.ignore_perishable {
            return false;
        }
        let kind_fits = self.is_dir || !rule.directory;
        (kind_fits && rule.pattern.matches(self.subject)) != rule.negate
    }
}
