//! TEMP: filter rules as lines, until `towpath_files::filter::RuleList` is here.

use std::ffi::OsStr;

use super::names_from;

/// What the patterns of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Exclude,
    Include,
}

/// Rules in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules(Vec<Vec<u8>>);

impl Rules {
    pub fn push_filter(&mut self, rule: &[u8]) -> Result<(), String> {
        self.push_line(rule);
        Ok(())
    }

    fn push_line(&mut self, rule: &[u8]) {
        self.0.push(rule.to_vec());
    }

    pub fn push_exclude(&mut self, pattern: &[u8]) -> Result<(), String> {
        self.push_line(&[b"- ", pattern].concat());
        Ok(())
    }

    pub fn push_include(&mut self, pattern: &[u8]) -> Result<(), String> {
        self.push_line(&[b"+ ", pattern].concat());
        Ok(())
    }

    pub fn push_file(&mut self, kind: Kind, path: &OsStr, from0: bool) -> Result<(), String> {
        for pattern in names_from::parts(&names_from::bytes(path)?, from0) {
            match kind {
                Kind::Exclude => self.push_exclude(pattern)?,
                Kind::Include => self.push_include(pattern)?,
            }
        }
        Ok(())
    }

    pub fn to_lines(&self) -> Vec<Vec<u8>> {
        self.0.clone()
    }
}
