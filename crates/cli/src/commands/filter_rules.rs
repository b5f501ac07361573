//! The filter rules of a command line, in their order, and the flags for them that other commands share with
//! `tow sync`.

use std::ffi::OsStr;
use std::path::Path;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use towpath_service::filter::{FileKind, FilterError, RuleList};

use super::names_from;
use super::sync_flags;

/// Kind of the patterns of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    Exclude,
    Include,
}

/// Rules in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleWords(RuleList);

fn as_text(result: Result<(), FilterError>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

impl RuleWords {
    pub fn push_filter(&mut self, rule: &[u8]) -> Result<(), String> {
        as_text(self.0.push_filter(rule))
    }

    pub fn push_exclude(&mut self, pattern: &[u8]) -> Result<(), String> {
        as_text(self.0.push_exclude(pattern))
    }

    pub fn push_include(&mut self, pattern: &[u8]) -> Result<(), String> {
        as_text(self.0.push_include(pattern))
    }

    /// The patterns of a file; with `from0` they end with NUL, else with their line.
    pub fn push_file(&mut self, kind: RuleKind, path: &OsStr, from0: bool) -> Result<(), String> {
        if !from0 {
            let kind = match kind {
                RuleKind::Exclude => FileKind::Exclude,
                RuleKind::Include => FileKind::Include,
            };
            return as_text(self.0.push_file(kind, Path::new(path)));
        }
        for pattern in names_from::parts(&names_from::bytes(path)?, true) {
            match kind {
                RuleKind::Exclude => self.push_exclude(pattern)?,
                RuleKind::Include => self.push_include(pattern)?,
            }
        }
        Ok(())
    }

    pub fn to_lines(&self) -> Vec<Vec<u8>> {
        self.0.to_lines()
    }
}

/// Flags with rules that can be told to another machine.
const FLAGS: &[&str] = &["filter", "exclude", "include", "exclude-from", "include-from", "from0"];
/// The same, and what reads rules from files in the tree.
const FLAGS_WHERE_READ: &[&str] =
    &["filter", "F", "exclude", "include", "exclude-from", "include-from", "from0"];

/// The filter flags of `tow sync`, for a command that reads a tree (`READS`) or has only its description.
#[derive(Debug, Default)]
pub struct FilterFlags<const READS: bool> {
    /// The rules, as they are told to others.
    pub lines: Vec<Vec<u8>>,
}

impl<const READS: bool> FilterFlags<READS> {
    const fn flags() -> &'static [&'static str] {
        if READS { FLAGS_WHERE_READ } else { FLAGS }
    }
}

impl<const READS: bool> Args for FilterFlags<READS> {
    fn augment_args(command: Command) -> Command {
        sync_flags::some_arguments(command, Self::flags())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const READS: bool> FromArgMatches for FilterFlags<READS> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let applied = sync_flags::apply_some(matches, Self::flags());
        let usage =
            |message| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{message}\n"));
        Ok(Self { lines: applied.map_err(usage)?.options.filters })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
