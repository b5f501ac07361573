//! Bytes of an open put: in the file that is referred to, or in a temporary.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::folders::Temporary;
use super::source::open_without_waiting;
use crate::error::StoreError;
use crate::hashing::{Before, append_range};
use crate::productions::{NOT_OPEN, ProductionBody};
use crate::stamp::TICK;

/// From this size on, hashing a file twice costs more than waiting until its stamp can be relied on.
const WORTH_A_TICK: u64 = 16 << 20;

/// Of one put.
pub(crate) enum IncomingBody {
    /// Streamed by the producer into a file of the store's own.
    Streamed(Temporary),
    /// In somebody's file that is being hashed.
    Referred(Referred),
}

/// A file that is being hashed.
pub(crate) struct Referred {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) before: Before,
}

impl ProductionBody for IncomingBody {
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        match self {
            Self::Streamed(temporary) => temporary.write(offset, data),
            Self::Referred(_) => Err(NOT_OPEN),
        }
    }

    fn append(&self, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let front = buf.len();
        let result = match self {
            Self::Streamed(temporary) => temporary.append(range, buf),
            Self::Referred(referred) => referred.append(range, buf),
        };
        if result.is_err() {
            buf.truncate(front);
        }
        result
    }
}

impl Referred {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = open_without_waiting(path).map_err(|error| StoreError::io("opening", path, error))?;
        Self::of(file, path)
    }

    pub(super) fn of(file: File, path: &Path) -> Result<Self, StoreError> {
        let mut before = Before::of(&file, path)?;
        if !before.settled && before.stamp.size >= WORTH_A_TICK {
            std::thread::sleep(TICK);
            before = Before::of(&file, path)?;
        }
        Ok(Self { file, path: path.into(), before })
    }

    fn append(&self, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let read = append_range(&self.file, range, buf);
        read.map_err(|error| self.before.explain(error, &self.file, &self.path))?;
        self.before.check(&self.file, &self.path)
    }
}
