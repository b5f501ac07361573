//! The ordered rules of one command line, and the lines they are sent as.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::{FilterError, FilterFault, RulePlace};
use super::parse::{Parsed, check_nesting, parse};
use super::rule::{DirMerge, MatchRule, Rule, Template};
use super::source::{read_named, rules};
use super::{MAX_DIR_MERGES, MAX_RULES};

/// Rules in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleList {
    rules: Vec<Rule>,
}

/// Kind of a file, by what its lines are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Patterns to include, as `--include-from` takes them.
    Include,
    /// Patterns to exclude, as `--exclude-from` takes them.
    Exclude,
    /// Rules, as `--filter` takes them: `--filter='merge FILE'`.
    Merge,
}

impl RuleList {
    /// Adds the rule of one `--filter`. A `merge` rule has its file read now.
    pub fn push_filter(&mut self, text: &[u8]) -> Result<(), FilterError> {
        self.push_argument(text, &Template::PLAIN)
    }

    /// Adds the pattern of one `--exclude`.
    pub fn push_exclude(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.push_argument(pattern, &Template::old(false))
    }

    /// Adds the pattern of one `--include`.
    pub fn push_include(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.push_argument(pattern, &Template::old(true))
    }

    /// Adds the rules of a file, which is read now; `-` is standard input.
    pub fn push_file(&mut self, kind: FileKind, path: &Path) -> Result<(), FilterError> {
        let template = match kind {
            FileKind::Include => Template::old(true),
            FileKind::Exclude => Template::old(false),
            FileKind::Merge => Template::PLAIN,
        };
        let unreadable = |source| FilterError::Unreadable { path: path.to_path_buf(), source };
        let content = read_named(path).map_err(unreadable)?;
        self.push_content(&content, &template, path, 0)
    }

    /// The rules as lines, to be sent to the other side: [`RuleList::from_lines`] makes the same
    /// rules of them, and reads no file.
    pub fn to_lines(&self) -> Vec<Vec<u8>> {
        self.rules.iter().map(Rule::to_line).collect()
    }

    /// The rules of lines that a stranger sent.
    pub fn from_lines(lines: &[Vec<u8>]) -> Result<Self, FilterError> {
        let mut list = Self::default();
        for (number, line) in (1..).zip(lines) {
            list.push_line(line).map_err(|fault| fault.at(RulePlace::Line(number)))?;
        }
        Ok(list)
    }

    /// True if no rule was given.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// True if some rules are only known once the directories of the tree are read, so that a
    /// receiver cannot check what a sender shows it.
    pub fn has_dir_merges(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule, Rule::DirMerge(_)))
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    fn push_argument(&mut self, text: &[u8], template: &Template) -> Result<(), FilterError> {
        let at = |fault: FilterFault| fault.at(RulePlace::Argument(text.to_vec()));
        if text.is_empty() {
            // As in rsync, where an empty variable in a script asks for nothing.
            return Ok(());
        }
        match parse(text, template).map_err(at)? {
            Parsed::Merge { file, contents, exclude_self } => {
                exclude_self.into_iter().try_for_each(|rule| self.add(rule)).map_err(at)?;
                let path = Path::new(OsStr::from_bytes(&file));
                let unreadable = |source| FilterError::Unreadable { path: path.to_path_buf(), source };
                let content = read_named(path).map_err(unreadable)?;
                self.push_content(&content, &contents, path, 1)
            }
            parsed => self.push_parsed(parsed).map_err(at),
        }
    }

    /// Adds the rules of a file that lies `depth` deep in others; `path` is the outermost one.
    fn push_content(
        &mut self,
        content: &[u8],
        template: &Template,
        path: &Path,
        depth: usize,
    ) -> Result<(), FilterError> {
        for (number, text) in rules(content, template.words) {
            let at = |fault: FilterFault| fault.at(RulePlace::File(path.to_path_buf(), number));
            match parse(text, template).map_err(at)? {
                Parsed::Merge { file, contents, exclude_self } => {
                    check_nesting(depth + 1).map_err(at)?;
                    exclude_self.into_iter().try_for_each(|rule| self.add(rule)).map_err(at)?;
                    let inner = read_named(Path::new(OsStr::from_bytes(&file)))
                        .map_err(|_| at(FilterFault::Named))?;
                    let pushed = self.push_content(&inner, &contents, path, depth + 1);
                    pushed.map_err(|error| placed_at(error, path, number))?;
                }
                parsed => self.push_parsed(parsed).map_err(at)?,
            }
        }
        Ok(())
    }

    fn push_line(&mut self, line: &[u8]) -> Result<(), FilterFault> {
        if line.is_empty() {
            return Err(FilterFault::Empty);
        }
        self.push_parsed(parse(line, &Template::PLAIN)?)
    }

    fn push_parsed(&mut self, parsed: Parsed) -> Result<(), FilterFault> {
        match parsed {
            Parsed::Match(rule) => self.add(rule),
            Parsed::DirMerge { merge, exclude_self } => {
                exclude_self.into_iter().try_for_each(|rule| self.add(rule))?;
                self.add_dir_merge(merge)
            }
            Parsed::Merge { .. } => Err(FilterFault::Merge),
            Parsed::Clear => {
                self.rules.clear();
                Ok(())
            }
        }
    }

    fn add(&mut self, rule: MatchRule) -> Result<(), FilterFault> {
        self.add_rule(Rule::Match(rule))
    }

    /// A file name that is looked for already is not looked for twice; the first mention counts.
    fn add_dir_merge(&mut self, merge: DirMerge) -> Result<(), FilterFault> {
        let names = || {
            let merges = self.rules.iter();
            merges.filter_map(|rule| if let Rule::DirMerge(merge) = rule { Some(&merge.name) } else { None })
        };
        if names().any(|name| *name == merge.name) {
            return Ok(());
        }
        if names().count() >= MAX_DIR_MERGES {
            return Err(FilterFault::TooManyFiles);
        }
        self.add_rule(Rule::DirMerge(merge))
    }

    fn add_rule(&mut self, rule: Rule) -> Result<(), FilterFault> {
        if self.rules.len() >= MAX_RULES {
            return Err(FilterFault::TooMany);
        }
        self.rules.push(rule);
        Ok(())
    }
}

/// A fault in a file that another one named: told at the line that named it.
fn placed_at(error: FilterError, path: &Path, number: usize) -> FilterError {
    match error {
        FilterError::Rule { fault, .. } => fault.at(RulePlace::File(path.to_path_buf(), number)),
        other => other,
    }
}
