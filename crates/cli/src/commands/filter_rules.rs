//! The filter rules of a command line, in their order.

use std::ffi::OsStr;
use std::path::Path;

use towpath_service::filter::{FileKind, FilterError, RuleList};

use super::names_from;

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
