//! What is transferred: published packages, and what a seeded generator makes.
//!
//! A scenario names data by a line of words:
//!
//! | line | what |
//! |---|---|
//! | `random 4k` | a file that no compression makes smaller |
//! | `similar 40m` | such a file, of which the receiver has an older version, 99 % the same |
//! | `odd-tree` | a tree of the names and kinds that break programs |
//! | `small-files 2000` | a tree of so many files of up to 16 KiB |
//! | `typescript 6.0.3` | a package as it is published |
//! | `typescript 6.0.2 6.0.3` | the same, and the receiver has the older one |
//! | `typescript 6.0.2 6.0.3 unpacked` | both as trees |
//!
//! All of it lies in one directory between runs, checked by hash before it is used.

mod digest;
mod generate;
mod manifest;
mod store;

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use towpath_simnet::units;

pub use digest::{Digest, digest};
pub use manifest::{Manifest, Package};
pub use store::Store;

/// Why there are no data.
#[derive(Debug, Error)]
pub enum DataError {
    /// The line is not understood.
    #[error(
        "`{0}` names no data; try: random 4k, similar 40m, odd-tree, small-files 2000, typescript 6.0.2 6.0.3"
    )]
    Line(String),
    /// The manifest has no such package.
    #[error("lab/data.toml has no {name} {version}; it has: {known}")]
    Unknown {
        /// The package.
        name: String,
        /// The version.
        version: String,
        /// What there is.
        known: String,
    },
    /// A tool failed.
    #[error("{command}: {what}")]
    Tool {
        /// As it could be typed.
        command: String,
        /// What it said.
        what: String,
    },
    /// What came is not what was recorded.
    #[error("{package}: its SHA-256 is {found}, not {expected} as lab/data.toml has it")]
    Hash {
        /// Which.
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
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// For `map_err`.
fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> DataError {
    let path = path.into();
    |source| DataError::Io { path, source }
}

/// What a line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// A random file of so many bytes.
    Random(u64),
    /// Two of them, 99 % the same.
    Similar(u64),
    /// A tree of odd things.
    OddTree,
    /// A tree of many small files.
    SmallFiles(u64),
    /// A package, the older version that the receiver has, and whether they are unpacked.
    Package {
        /// Its name.
        name: String,
        /// What is transferred.
        version: String,
        /// What the receiver has.
        older: Option<String>,
        /// As a tree.
        is_unpacked: bool,
    },
}

impl Spec {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<Self, DataError> {
        let wrong = || DataError::Line(line.to_owned());
        let size = |text: &str| units::bytes(text).map_err(|_| wrong());
        let words: Vec<&str> = line.split_whitespace().collect();
        let package = |name: &str, older: Option<&str>, version: &str, is_unpacked| Self::Package {
            name: name.into(),
            version: version.into(),
            older: older.map(Into::into),
            is_unpacked,
        };
        Ok(match words[..] {
            ["random", bytes] => Self::Random(size(bytes)?),
            ["similar", bytes] => Self::Similar(size(bytes)?),
            ["odd-tree"] => Self::OddTree,
            ["small-files", count] => Self::SmallFiles(count.parse().map_err(|_| wrong())?),
            [name, version] => package(name, None, version, false),
            [name, version, "unpacked"] => package(name, None, version, true),
            [name, older, version] => package(name, Some(older), version, false),
            [name, older, version, "unpacked"] => package(name, Some(older), version, true),
            _ => return Err(wrong()),
        })
    }
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
    /// Whether it is a directory.
    pub is_tree: bool,
    /// Bytes of its content.
    pub bytes: u64,
    /// What a right result has too.
    pub digest: Digest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_data() {
        assert_eq!(Spec::parse("random 4k").unwrap(), Spec::Random(4096));
        assert_eq!(Spec::parse("odd-tree").unwrap(), Spec::OddTree);
        let pair = Spec::Package {
            name: "typescript".into(),
            version: "6.0.3".into(),
            older: Some("6.0.2".into()),
            is_unpacked: true,
        };
        assert_eq!(Spec::parse("typescript 6.0.2 6.0.3 unpacked").unwrap(), pair);
        for line in ["", "random", "random much", "a b c d", "small-files few"] {
            let told = Spec::parse(line).unwrap_err().to_string();
            assert!(told.starts_with(&format!("`{line}` names no data")), "{told}");
        }
    }
}
