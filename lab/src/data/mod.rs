//! Data to transfer: published packages, and what a seeded generator makes.
//!
//! A scenario names data by a line of words:
//!
//! | line | what |
//! |---|---|
//! | `random 4k` | a file that no compression makes smaller |
//! | `text 4m` | a file of words, which zstd makes half as large |
//! | `similar 40m` | such a file, of which the receiver has an older version, 99 % the same, with many short edits |
//! | `similar 50MB 99%`, `similar 50MB 50%` | the same with few edits of 10 to 20 KB |
//! | `odd-tree` | a tree of the names and kinds that break programs |
//! | `small-files 2000` | a tree of so many files of up to 16 KiB |
//! | `tiny-files 2000` | a tree of so many files of up to 4 KiB |
//! | `mixed-files 2000` | a tree of so many files of up to 64 KiB, every other one of words |
//! | `medium-files 2000` | a tree of so many files of up to 220 KiB |
//! | `small-files 2000 again` | the same, and the receiver has it, with the times of all files |
//! | `small-files 2000 changed 100` | the same, and 100 of the receiver's files are older ones |
//! | `typescript 6.0.3` | a package as it is published |
//! | `typescript 6.0.2 6.0.3` | the same, and the receiver has the older one |
//! | `typescript 6.0.2 6.0.3 unpacked` | both as trees |
//!
//! At the end of a line, `at=sibling`, `at=renamed`, `at=elsewhere` and `at=lost` say where the older version lies, if not
//! at the destination, and `at=both` that the sender has it besides; and `useless 100000` that the receiver has so many other files.
//!
//! All of it lies in one directory between runs, checked by hash before it is used.

mod copy;
mod digest;
mod generate;
mod line;
mod manifest;
mod store;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use copy::{Times, copy, link};
pub use digest::{DataDigest, DigestContent, digest};
pub use line::{Line, LinePlace};
pub use manifest::{Manifest, Package};
pub use store::DataStore;

/// Reason why there are no data.
#[derive(Debug, Error)]
pub enum DataError {
    /// The line is not understood.
    #[error(
        "`{0}` names no data; try: random 4k, similar 40m, similar 50MB 99% at=sibling, \
         odd-tree, small-files 2000 again, typescript 6.0.2 6.0.3"
    )]
    Line(String),
    /// The manifest has no such package.
    #[error("lab/data.toml has no {name} {version}; it has: {known}")]
    Unknown {
        /// The package.
        name: String,
        /// The version.
        version: String,
        /// Names that there are.
        known: String,
    },
    /// A tool failed.
    #[error("{command}: {what}")]
    Tool {
        /// As it could be typed.
        command: String,
        /// Output of the program.
        what: String,
    },
    /// The file that came is not the recorded one.
    #[error("{package}: its SHA-256 is {found}, not {expected} as lab/data.toml has it")]
    Hash {
        /// Package with the fault.
        package: String,
        /// Of what came.
        found: String,
        /// As recorded.
        expected: String,
    },
    /// The manifest.
    #[error("lab/data.toml: {0}")]
    Manifest(String),
    /// The disk.
    #[error("{path}: {source}")]
    Io {
        /// Path of it.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// For `map_err`.
fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> DataError {
    let path = path.into();
    |source| DataError::Io { path, source }
}

/// Something that can be transferred.
#[derive(Debug, Clone)]
pub struct Data {
    /// The line that named it.
    pub name: String,
    /// The file or directory.
    pub source: PathBuf,
    /// An older version, which the receiver has.
    pub older: Option<PathBuf>,
    /// True if the receiver's version keeps its times.
    pub keeps_times: bool,
    /// Place where it has it.
    pub place: LinePlace,
    /// Files that it has besides.
    pub useless: Option<PathBuf>,
    /// True if it is a directory.
    pub is_tree: bool,
    /// Content that a right result has too.
    pub content: DigestContent,
}
