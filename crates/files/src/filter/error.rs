//! Errors of filter rules. A rule given as an argument is shown; of a rule read from a
//! file only the place is, since whoever chose the file need not be who may read it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{MAX_DIR_MERGES, MAX_FILE, MAX_NESTING, MAX_RULE, MAX_RULES};
use crate::names::{display_name, display_path};

/// Error of rules that could not be taken.
#[derive(Debug, Error)]
pub enum FilterError {
    /// A rule is not one.
    #[error("{place}: {fault}")]
    Rule {
        /// Position of the rule.
        place: RulePlace,
        /// Fault of the rule.
        fault: FilterFault,
    },
    /// A file of rules, named by the user, could not be read.
    #[error("filter rules in {}: {source}; check its name, or leave the option out", display_path(.path))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Position of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulePlace {
    /// It was given as an argument: this one.
    Argument(Vec<u8>),
    /// In this line of this file, counted from 1.
    File(PathBuf, usize),
    /// In this line, counted from 1, of a file that the caller knows or of a list that was sent.
    Line(usize),
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(rule) => write!(f, "filter rule \"{}\"", display_name(rule)),
            Self::File(path, line) => write!(f, "filter rules in {} line {line}", display_path(path)),
            Self::Line(line) => write!(f, "filter rules line {line}"),
        }
    }
}

/// Fault of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FilterFault {
    /// It begins with no known rule.
    #[error("no such rule; it begins with - + . : H S P R ! or their long names, then a space")]
    Unknown,
    /// A modifier that this rule does not have.
    #[error("this rule does not take that modifier; leave it out, or put a space before the pattern")]
    Modifier,
    /// The modifier `C`.
    #[error("CVS rules (C) are not supported; write the patterns into a file for --exclude-from")]
    Cvs,
    /// The modifier `x`.
    #[error("rules for extended attributes (x) are not supported; leave the rule out")]
    Xattr,
    /// Nothing follows where a pattern or a file name belongs.
    #[error("the pattern is missing; write it after one space")]
    Empty,
    /// Something follows `!`.
    #[error("'!' clears the list and takes nothing after it")]
    Trailing,
    /// A rule for one side in a file whose rules were said to be for one side.
    #[error("the file was merged for one side (s or r), so its rules cannot name a side themselves")]
    Sided,
    /// Longer than a path can be.
    #[error("longer than {MAX_RULE} bytes")]
    TooLong,
    /// A byte that no name has.
    #[error("it has a NUL byte, which no file name has")]
    Nul,
    /// `merge` where no file is read.
    #[error("'merge' cannot stand here; use dir-merge, or merge the file on the command line")]
    Merge,
    /// A per-directory file that is not named by a plain name.
    #[error("a per-directory file is named by a plain file name here")]
    DirMergeName,
    /// The file it names could not be read. Its name came from a file and is not shown.
    #[error("the file of rules named here cannot be read; check its name and permissions")]
    Named,
    /// Over [`MAX_RULES`].
    #[error("more than {MAX_RULES} rules; join some with wildcards")]
    TooMany,
    /// Over [`MAX_DIR_MERGES`].
    #[error("more than {MAX_DIR_MERGES} kinds of per-directory files")]
    TooManyFiles,
    /// Over [`MAX_NESTING`].
    #[error("files of rules name one another over {MAX_NESTING} deep; does one name itself?")]
    TooDeep,
}

impl FilterFault {
    pub(super) fn at(self, place: RulePlace) -> FilterError {
        FilterError::Rule { place, fault: self }
    }
}

/// A file that is no file of rules.
pub(super) fn too_big() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("over {MAX_FILE} bytes, too long for filter rules"))
}
