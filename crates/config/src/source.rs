//! A file's text and its tables. Whoever reads a table takes its fields out; what is left then is an
//! error, and every error knows its line.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use towpath_files::display_name;

use super::value::{self, ConfigSetting};

/// Error of a configuration.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{}{}: {problem}", display_name(.file.as_os_str().as_encoded_bytes()), place(*.line, .field))]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 if it is about the file as a whole.
    pub line: usize,
    /// The field; empty if it is about none.
    pub field: String,
    /// Fault, and what would be right.
    pub problem: String,
}

fn place(line: usize, field: &str) -> String {
    match (line, field) {
        (0, _) => String::new(),
        (line, "") => format!(":{line}"),
        (line, field) => format!(":{line}: {field}"),
    }
}

impl ConfigError {
    /// About the file as a whole.
    pub(super) fn of_file(file: &Path, problem: &str) -> Self {
        Self { file: file.into(), line: 0, field: String::new(), problem: problem.into() }
    }
}

/// The text of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigSource<'a> {
    file: &'a Path,
    text: &'a str,
}

impl<'a> ConfigSource<'a> {
    pub(super) const fn new(file: &'a Path, text: &'a str) -> Self {
        Self { file, text }
    }

    /// The table at the top.
    pub(super) fn parse(self) -> Result<ConfigTable<'a>, ConfigError> {
        match DeTable::parse(self.text) {
            Ok(table) => Ok(ConfigTable::new(self, table, "")),
            Err(error) => Err(self.error(error.span().unwrap_or(0..0), "", error.message())),
        }
    }

    fn error(self, span: Range<usize>, field: &str, problem: &str) -> ConfigError {
        let before = self.text.as_bytes().get(..span.start).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigError { file: self.file.into(), line, field: field.into(), problem: problem.into() }
    }
}

/// A table that is being read.
pub(super) struct ConfigTable<'a> {
    source: ConfigSource<'a>,
    table: DeTable<'a>,
    span: Range<usize>,
    name: String,
    /// The fields that it may have.
    expected: Vec<&'static str>,
}

/// A value and where it stands.
pub(super) struct GivenValue<'a> {
    source: ConfigSource<'a>,
    pub(super) value: DeValue<'a>,
    span: Range<usize>,
    name: String,
}

impl<'a> ConfigTable<'a> {
    fn new(source: ConfigSource<'a>, table: Spanned<DeTable<'a>>, name: &str) -> Self {
        let span = table.span();
        Self { source, table: table.into_inner(), span, name: name.into(), expected: Vec::new() }
    }

    /// Its fields may be these, and what is taken out besides.
    pub(super) fn expect(&mut self, fields: &[&'static str]) {
        self.expected.extend(fields);
    }

    /// Takes a value out.
    pub(super) fn take(&mut self, field: &str) -> Option<GivenValue<'a>> {
        let value = self.table.remove(field)?;
        let (span, name) = (value.span(), full_name(&self.name, field));
        Some(GivenValue { source: self.source, value: value.into_inner(), span, name })
    }

    /// Takes a setting out; `None` if it is not given.
    pub(super) fn setting<T: ConfigSetting>(
        &mut self,
        field: &'static str,
    ) -> Result<Option<T>, ConfigError> {
        let Some(given) = self.take(field) else { return Ok(None) };
        T::read(&given.value).map(Some).map_err(|problem| given.error(&problem))
    }

    /// Takes a table out; `None` if it is not given.
    pub(super) fn table(&mut self, field: &'static str) -> Result<Option<Self>, ConfigError> {
        self.expected.push(field);
        let Some(given) = self.take(field) else { return Ok(None) };
        let problem =
            format!("{} is not a table; write [{field}] above its fields", value::shown(&given.value));
        given.into_table().map(Some).map_err(|given| given.error(&problem))
    }

    /// Nothing must be left.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let has = match self.name.as_str() {
            "" => "there are".to_owned(),
            name => format!("[{name}] has"),
        };
        let known = format!("{has}: {}", self.expected.join(", "));
        self.finish_or(&known)
    }

    /// The same, where `known` says which fields there are.
    pub(super) fn finish_or(self, known: &str) -> Result<(), ConfigError> {
        // The first in the file, not in the alphabet.
        let left = self.table.keys().min_by_key(|key| key.span().start);
        let Some(left) = left else { return Ok(()) };
        let name = full_name(&self.name, left.get_ref());
        Err(self.source.error(left.span(), &name, &format!("there is no such field; {known}")))
    }

    /// An error about the table itself.
    pub(super) fn error(&self, problem: &str) -> ConfigError {
        self.source.error(self.span.clone(), &self.name, problem)
    }
}

impl<'a> GivenValue<'a> {
    /// An error about the value.
    pub(super) fn error(&self, problem: &str) -> ConfigError {
        self.source.error(self.span.clone(), &self.name, problem)
    }

    /// The value, if it is a table.
    pub(super) fn into_table(self) -> Result<ConfigTable<'a>, Self> {
        let Self { source, value, span, name } = self;
        match value {
            DeValue::Table(table) => Ok(ConfigTable { source, table, span, name, expected: Vec::new() }),
            value => Err(Self { source, value, span, name }),
        }
    }

    /// The members of the value, if it is a list.
    pub(super) fn into_list(self) -> Result<Vec<Self>, Self> {
        let Self { source, value, span, name } = self;
        match value {
            DeValue::Array(list) => {
                let member = |(number, value): (usize, Spanned<DeValue<'a>>)| {
                    let (span, name) = (value.span(), format!("{name}.{number}"));
                    Self { source, value: value.into_inner(), span, name }
                };
                Ok(list.into_iter().enumerate().map(member).collect())
            }
            value => Err(Self { source, value, span, name }),
        }
    }
}

/// `limits` and `connections` are `limits.connections`.
pub(super) fn full_name(section: &str, field: &str) -> String {
    if section.is_empty() { field.into() } else { format!("{section}.{field}") }
}
