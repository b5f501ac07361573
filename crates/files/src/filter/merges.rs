//! The rules of one side made ready for matching, and those of the per-directory files met on the
//! way.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{FilterFault, RulePlace};
use super::parse::{Parsed, parse};
use super::pattern::{Anchor, Pattern};
use super::rule::{DirMerge, MatchRule, Sides};
use super::source::{read_in, rules};
use super::{MAX_DIR_MERGES, MAX_RULES};
use crate::confine::open_root;
use crate::error::FileError;
use crate::path::RelPath;

/// Side whose part of the rules is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSide {
    /// Entries shown to the other side.
    Sender,
    /// Entries protected from deletion.
    Receiver,
}

#[derive(Debug)]
pub(super) struct MergeContext {
    pub side: FilterSide,
    pub delete_excluded: bool,
    /// The absolute path of the top, without its first slash; empty if it is not known.
    pub absolute: Vec<u8>,
    /// A number for the next [`RuleMerge`].
    pub next_id: usize,
}

#[derive(Debug)]
pub(super) enum Compiled {
    Match(CompiledMatch),
    /// The rules of the [`RuleMerge`] with this number stand here.
    Merge(usize),
}

#[derive(Debug)]
pub(super) struct CompiledMatch {
    pub include: bool,
    pub negate: bool,
    pub perishable: bool,
    pub directory: bool,
    pub pattern: Pattern,
}

/// A per-directory file that is looked for, and the rules found so far.
#[derive(Debug, Clone)]
pub(super) struct RuleMerge {
    pub id: usize,
    pub spec: Arc<DirMerge>,
    /// Its name came from a file, and is not shown.
    pub named_by_file: bool,
    /// Directories above the tree are still to be looked at.
    pub looks_above: bool,
    pub layers: Option<Arc<Layer>>,
}

/// The rules of one file, and of those in the directories above.
#[derive(Debug)]
pub(super) struct Layer {
    pub rules: Vec<Compiled>,
    pub outer: Option<Arc<Self>>,
    /// Rules of this layer and all outer ones.
    pub total: usize,
}

impl MergeContext {
    /// The rule, if it is one for this side.
    pub(super) fn compile(&self, rule: &MatchRule, anchor: Anchor) -> Option<Compiled> {
        let is_ours = match rule.sides.any() {
            true => self.is_for(rule.sides),
            false => self.side == FilterSide::Sender || !self.delete_excluded,
        };
        is_ours.then(|| {
            Compiled::Match(CompiledMatch {
                include: rule.include,
                negate: rule.negate,
                perishable: rule.perishable,
                directory: rule.directory,
                pattern: Pattern::new(rule, anchor),
            })
        })
    }

    const fn is_for(&self, sides: Sides) -> bool {
        match self.side {
            FilterSide::Sender => sides.sender,
            FilterSide::Receiver => sides.receiver,
        }
    }

    pub(super) fn merge(&mut self, spec: DirMerge, named_by_file: bool) -> RuleMerge {
        self.next_id += 1;
        let looks_above = !spec.start.is_empty();
        RuleMerge { id: self.next_id, spec: Arc::new(spec), named_by_file, looks_above, layers: None }
    }

    /// Reads all files of rules of a directory; reading one may add further ones to look for.
    pub(super) fn read_all(
        &mut self,
        merges: &mut Vec<RuleMerge>,
        dir: BorrowedFd<'_>,
        path: &RelPath,
    ) -> Result<(), FileError> {
        let anchor = Anchor::Tree(if path.is_root() { 0 } else { path.as_bytes().len() + 1 });
        let shown = path.below(&self.absolute_path());
        let mut next = 0;
        while next < merges.len() {
            if !merges[next].spec.inherit {
                merges[next].layers = None;
            }
            if std::mem::take(&mut merges[next].looks_above) {
                self.read_above(merges, next, path)?;
            }
            self.read_one(merges, next, dir, &shown, anchor)?;
            next += 1;
        }
        Ok(())
    }

    fn absolute_path(&self) -> PathBuf {
        if self.absolute.is_empty() {
            return PathBuf::new();
        }
        Path::new("/").join(OsStr::from_bytes(&self.absolute))
    }

    /// Reads the file in the directories above the first one of the walk, from where its rule says.
    fn read_above(
        &mut self,
        merges: &mut Vec<RuleMerge>,
        index: usize,
        path: &RelPath,
    ) -> Result<(), FileError> {
        if self.absolute.is_empty() {
            return Ok(());
        }
        let spec = Arc::clone(&merges[index].spec);
        let first = path.below(&self.absolute_path());
        // A path that begins with a slash replaces the other.
        let start = first.join(OsStr::from_bytes(&spec.start));
        let start = Path::new("/").join(OsStr::from_bytes(&clean(start.as_os_str().as_bytes())));
        let mut above: Vec<&Path> =
            first.ancestors().skip(1).take_while(|dir| dir.starts_with(&start)).collect();
        above.reverse();
        for dir in above {
            let skipped = dir.as_os_str().len().saturating_sub(1);
            let anchor = Anchor::Above(if skipped == 0 { 0 } else { skipped + 1 });
            // A file that cannot be opened cannot be read by the user either, who named it in passing only.
            if let Ok(held) = open_root(dir) {
                self.read_one(merges, index, held.as_fd(), dir, anchor)?;
            }
            if !spec.inherit {
                merges[index].layers = None;
            }
        }
        Ok(())
    }

    /// Reads one file of rules, if it is there, as a new layer.
    fn read_one(
        &mut self,
        merges: &mut Vec<RuleMerge>,
        index: usize,
        dir: BorrowedFd<'_>,
        shown: &Path,
        anchor: Anchor,
    ) -> Result<(), FileError> {
        let merge = merges[index].clone();
        let named = if merge.named_by_file {
            shown.to_path_buf()
        } else {
            shown.join(OsStr::from_bytes(&merge.spec.name))
        };
        let failed = |error: io::Error| FileError::new("read filter rules", &named, error);
        let Some(content) = read_in(dir, &merge.spec.name).map_err(failed)? else { return Ok(()) };
        let mut reading =
            MergeReading { context: self, merges, rules: Vec::new(), outer: merge.layers, anchor };
        for (number, text) in rules(&content, merge.spec.contents.words) {
            let bad = |fault: FilterFault| {
                failed(io::Error::new(io::ErrorKind::InvalidData, fault.at(RulePlace::Line(number))))
            };
            let parsed = parse(text, &merge.spec.contents).map_err(bad)?;
            reading.add(parsed).map_err(bad)?;
        }
        let layers = reading.finish();
        merges[index].layers = layers;
        Ok(())
    }
}

/// A per-directory file being read.
struct MergeReading<'a> {
    context: &'a mut MergeContext,
    merges: &'a mut Vec<RuleMerge>,
    rules: Vec<Compiled>,
    outer: Option<Arc<Layer>>,
    anchor: Anchor,
}

impl MergeReading<'_> {
    fn add(&mut self, parsed: Parsed) -> Result<(), FilterFault> {
        match parsed {
            Parsed::Match(rule) => self.rules.extend(self.context.compile(&rule, self.anchor)),
            Parsed::DirMerge { merge, exclude_self } => self.add_dir_merge(merge, exclude_self)?,
            Parsed::Merge { .. } => return Err(FilterFault::Merge),
            Parsed::Clear => self.clear(),
        }
        if self.total() > MAX_RULES { Err(FilterFault::TooMany) } else { Ok(()) }
    }

    fn add_dir_merge(&mut self, spec: DirMerge, exclude_self: Option<MatchRule>) -> Result<(), FilterFault> {
        if let Some(rule) = exclude_self {
            // It holds on both sides, even where --delete-excluded gives others to the sender.
            let rule = MatchRule { sides: Sides::BOTH, ..rule };
            self.rules.extend(self.context.compile(&rule, self.anchor));
        }
        if !spec.start.is_empty() {
            return Err(FilterFault::DirMergeName);
        }
        let is_known = self.merges.iter().any(|merge| merge.spec.name == spec.name);
        let sides = spec.contents.sides;
        if is_known || sides.any() && !self.context.is_for(sides) {
            return Ok(());
        }
        if self.merges.len() >= MAX_DIR_MERGES {
            return Err(FilterFault::TooManyFiles);
        }
        let merge = self.context.merge(spec, true);
        self.rules.push(Compiled::Merge(merge.id));
        self.merges.push(merge);
        Ok(())
    }

    /// Forgets what this file said and what it inherits, but no other file's rules.
    fn clear(&mut self) {
        let rules = std::mem::take(&mut self.rules);
        let is_gone = |id| rules.iter().any(|rule| matches!(rule, Compiled::Merge(own) if *own == id));
        self.merges.retain(|merge| !is_gone(merge.id));
        self.outer = None;
    }

    fn total(&self) -> usize {
        self.rules.len() + self.outer.as_ref().map_or(0, |outer| outer.total)
    }

    /// All layers, with this file's as the innermost.
    fn finish(self) -> Option<Arc<Layer>> {
        let total = self.total();
        if self.rules.is_empty() {
            return self.outer;
        }
        Some(Arc::new(Layer { rules: self.rules, outer: self.outer, total }))
    }
}

/// An absolute path without its first slash, doubled slashes, `.` and `..`.
pub(super) fn clean(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join(&b'/')
}
