//! Errors with files, one variant per different next step of the caller.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use crate::names::display_path;

/// The attempt to read attributes of something that is there.
pub(crate) const READ_ATTRIBUTES: &str = "read attributes of";

/// Error of something that could not be done with a file. Every variant has the attempted step (`op`), the
/// path, and the system's error.
#[derive(Debug, Error)]
pub enum FileError {
    /// Something is already there. Ask for another name, or for leave to overwrite.
    #[error("{}: already there", display_path(.path))]
    Exists {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Something other than a directory stands where one is needed.
    #[error("{}: not a directory", display_path(.path))]
    NotADirectory {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The name, or a symbolic link on the way, would lead out of the tree. Never retry.
    #[error("{}: would leave the tree ({})", display_path(.path), reason(.source))]
    OutsideTree {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system, or the fault of the name.
        source: io::Error,
    },
    /// The disk or the quota is full. Free some space and resume.
    #[error("{}: no space left", display_path(.path))]
    NoSpace {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// It is gone. When reading: skip it.
    #[error("{}: no such file or directory", display_path(.path))]
    Vanished {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Not allowed to this user, or on a read-only file system.
    #[error("{}: {}", display_path(.path), reason(.source))]
    Permission {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// It is no longer the file or directory that was seen before. Look at it anew.
    #[error("{}: changed meanwhile ({})", display_path(.path), reason(.source))]
    Changed {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Difference.
        source: io::Error,
    },
    /// Another transfer is using it, or this one has not finished with it. Wait.
    #[error("{}: in use", display_path(.path))]
    Busy {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Obstacle in the way.
        source: io::Error,
    },
    /// The directory is nested deeper than a tree descriptor may be; it is left out.
    #[error("{op} {}: {}", display_path(.path), reason(.source))]
    TooDeep {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// The limit.
        source: io::Error,
    },
    /// The file system (or the system itself) cannot hold or do this: ACLs, attributes, devices.
    /// Everything that could be done without it was done.
    #[error("{op} {}: not possible on this file system ({})", display_path(.path), reason(.source))]
    Unsupported {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Anything else the system said.
    #[error("{op} {}: {}", display_path(.path), reason(.source))]
    Io {
        /// Attempted step.
        op: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Text of the system's error, without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

impl FileError {
    /// Sorts a system error into the variant it belongs to.
    pub fn new(op: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        let source = error.into();
        let (op, path) = (op.into(), path.to_path_buf());
        match Errno::from_io_error(&source) {
            Some(Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY) => Self::Exists { op, path, source },
            Some(Errno::NOTDIR) => Self::NotADirectory { op, path, source },
            Some(Errno::LOOP) => Self::OutsideTree { op, path, source },
            Some(Errno::NOSPC | Errno::DQUOT) => Self::NoSpace { op, path, source },
            Some(Errno::NOENT | Errno::STALE) => Self::Vanished { op, path, source },
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::Permission { op, path, source },
            Some(Errno::OPNOTSUPP | Errno::NOSYS) => Self::Unsupported { op, path, source },
            Some(Errno::AGAIN | Errno::BUSY) => Self::Busy { op, path, source },
            _ => Self::Io { op, path, source },
        }
    }

    /// A name that is not allowed below a tree.
    pub(crate) fn outside(op: &'static str, path: &Path, why: &'static str) -> Self {
        let source = io::Error::new(io::ErrorKind::InvalidInput, why);
        Self::OutsideTree { op: op.into(), path: path.to_path_buf(), source }
    }

    /// Not what it was.
    pub fn changed(op: &'static str, path: &Path, how: &'static str) -> Self {
        Self::Changed { op: op.into(), path: path.to_path_buf(), source: io::Error::other(how) }
    }

    /// Still needed by someone.
    pub(crate) fn busy(op: &'static str, path: &Path, why: &'static str) -> Self {
        Self::Busy { op: op.into(), path: path.to_path_buf(), source: io::Error::other(why) }
    }

    /// A call that makes no sense.
    pub(crate) fn refused(op: &'static str, path: &Path, why: &'static str) -> Self {
        let source = io::Error::new(io::ErrorKind::InvalidInput, why);
        Self::Io { op: op.into(), path: path.to_path_buf(), source }
    }

    /// On what it was attempted.
    pub fn path(&self) -> &Path {
        self.parts().1
    }

    /// True if only attributes are lacking of what it names: the rest of it was read.
    pub fn is_of_attributes(&self) -> bool {
        self.op() == READ_ATTRIBUTES
    }

    /// Attempted step.
    pub fn op(&self) -> &str {
        self.parts().0
    }

    fn parts(&self) -> (&str, &Path) {
        match self {
            Self::Exists { op, path, .. }
            | Self::NotADirectory { op, path, .. }
            | Self::OutsideTree { op, path, .. }
            | Self::NoSpace { op, path, .. }
            | Self::Vanished { op, path, .. }
            | Self::Permission { op, path, .. }
            | Self::Changed { op, path, .. }
            | Self::Busy { op, path, .. }
            | Self::TooDeep { op, path, .. }
            | Self::Unsupported { op, path, .. }
            | Self::Io { op, path, .. } => (op, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_those_of_other_programs() {
        for (errno, text) in [
            (Errno::NOENT, "/d: no such file or directory"),
            (Errno::ACCESS, "/d: permission denied"),
            (Errno::ROFS, "/d: read-only file system"),
            (Errno::NOSPC, "/d: no space left"),
            (Errno::EXIST, "/d: already there"),
            (Errno::NOTDIR, "/d: not a directory"),
            (Errno::AGAIN, "/d: in use"),
            (Errno::IO, "stage in /d: input/output error"),
        ] {
            assert_eq!(FileError::new("stage in", Path::new("/d"), errno).to_string(), text);
        }
    }

    #[test]
    fn full_disks_and_full_quotas_are_told_apart_from_other_failures() {
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            let error = FileError::new("write", Path::new("f"), errno);
            assert!(matches!(error, FileError::NoSpace { .. }), "{error}");
        }
        assert!(matches!(FileError::new("write", Path::new("f"), Errno::IO), FileError::Io { .. }));
    }

    #[test]
    fn a_message_shows_no_control_characters_of_a_name() {
        let error = FileError::new("open", Path::new("a\x1b[2Kb\nc"), Errno::NOENT);
        assert!(!error.to_string().contains(['\x1b', '\n']), "{error}");
        assert_eq!((error.op(), error.path()), ("open", Path::new("a\x1b[2Kb\nc")));
    }
}
