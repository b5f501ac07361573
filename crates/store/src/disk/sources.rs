//! The files that objects are read from: the open ones first, then every file on record, forgetting those
//! that are no longer as they were.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use towpath_content::Oid;
use towpath_content::pieces::Layout;

use super::files::{self, FileFound};
use super::index::{Durability, IndexOutcome};
use super::rows::{self, OwnBytes};
use super::source::{BytesOrigin, OpenedBytes};
use super::store_core::StoreCore;
use super::uses::Used;
use crate::error::StoreError;
use crate::hashing::LIVE_PIECE;
use crate::lru::Lru;
use crate::spans::OUTSIDE;
use crate::stamp::Stamp;
use towpath_content::lock::lock;

/// Files of more than one piece that are kept open.
const OPEN_FILES: usize = 32;
/// Files holding one object that are tried before those that failed are forgotten.
const HOLDERS: usize = 64;
/// Times an object is looked for anew after what was found turned out to be gone. Each time
/// either files are forgotten or another process has evicted or put the object meanwhile.
const ROUNDS: usize = 256;

/// The open files of a store, and how others are found.
pub(super) struct SourceFiles {
    core: Arc<StoreCore>,
    open: Mutex<Lru<Oid, Arc<OpenedBytes>>>,
}

impl SourceFiles {
    /// None is open yet.
    pub(super) fn new(core: Arc<StoreCore>) -> Self {
        Self { core, open: Mutex::new(Lru::new(OPEN_FILES)) }
    }

    /// A file that holds `oid` and is as it was when that was found out: for copies on this disk.
    pub(super) fn locate(&self, oid: &Oid) -> Result<Option<(PathBuf, Stamp)>, StoreError> {
        match self.with(oid, |source| Ok(source.origin.clone())) {
            Ok(BytesOrigin::Referred(FileFound { path, stamp, .. })) => Ok(Some((path, stamp))),
            Ok(BytesOrigin::Kept { .. }) => Ok(None),
            Ok(BytesOrigin::Owned { path, .. }) => match Stamp::of_path(&path) {
                Ok(stamp) => Ok(Some((path, stamp))),
                Err(error) => Err(StoreError::io("looking at", &path, error)),
            },
            Err(error) if error.is_loss() || matches!(error, StoreError::NotHere) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the contents of `buf` with a range of a content.
    pub(super) fn read_span(
        &self,
        oid: &Oid,
        range: &Range<u64>,
        buf: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.with(oid, |source| {
            if range.end > source.size() {
                return Err(OUTSIDE);
            }
            source.read(range.clone(), buf)
        })
    }

    /// Appends a piece of a content to `buf`.
    pub(super) fn append_piece(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        self.with(oid, |source| source.append(piece_range(source, index)?, buf))
    }

    /// True if the piece lies in a hole of its file.
    pub(super) fn is_hole(&self, oid: &Oid, index: u64) -> bool {
        let look = |source: &Arc<OpenedBytes>| Ok(source.is_hole(&piece_range(source, index)?));
        self.with(oid, look).unwrap_or(false)
    }

    /// Lets `attempt` work on a file that holds `oid`; when that file turns out to have
    /// changed, on the next.
    pub(super) fn with<T>(
        &self,
        oid: &Oid,
        mut attempt: impl FnMut(&Arc<OpenedBytes>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut failure: Option<StoreError> = None;
        let cached = lock(&self.open).get(oid).cloned();
        if let Some(source) = cached {
            match self.attempt_on(oid, &source, &mut attempt) {
                Err(lost) => failure = self.forget(oid, &[lost])?,
                Ok(result) => return result,
            }
        }
        for _ in 0..ROUNDS {
            let mut lost = Vec::new();
            for origin in self.core.index.read("finding an object", |conn| self.origins(conn, oid))? {
                match self.try_origin(oid, origin, &mut attempt) {
                    Err(one) => lost.push(one),
                    Ok(Err(error @ (StoreError::Io { .. } | StoreError::Bytes(_)))) => {
                        failure.get_or_insert(error);
                    }
                    Ok(result) => {
                        self.forget(oid, &lost)?;
                        return result;
                    }
                }
            }
            if lost.is_empty() {
                return Err(failure.unwrap_or(StoreError::NotHere));
            }
            failure = failure.or(self.forget(oid, &lost)?);
            if lost.iter().any(Lost::is_kept) {
                // Asking a byte store again at once costs time and finds the same.
                return Err(failure.unwrap_or(StoreError::NotHere));
            }
        }
        let locked = io::Error::new(io::ErrorKind::WouldBlock, "another process has it locked");
        Err(failure.unwrap_or_else(|| StoreError::io("reading", &self.core.folders.object(oid), locked)))
    }

    /// True if a content was read from within `time`. A file that is open though nobody has read from it for so
    /// long is closed.
    pub(super) fn is_used(&self, oid: &Oid, time: Duration) -> bool {
        let mut open = lock(&self.open);
        let is_used = open.get(oid).is_some_and(|source| source.since_use() < time);
        if !is_used {
            open.remove(oid);
        }
        is_used
    }

    fn try_origin<T>(
        &self,
        oid: &Oid,
        origin: BytesOrigin,
        attempt: &mut impl FnMut(&Arc<OpenedBytes>) -> Result<T, StoreError>,
    ) -> Result<Result<T, StoreError>, Lost> {
        let source = match OpenedBytes::open(origin.clone(), &self.core) {
            Ok(source) => Arc::new(source),
            Err(error) if error.is_loss() => return Err(Lost { origin, is_in_place: false }),
            Err(error) => return Ok(Err(error)),
        };
        let result = self.attempt_on(oid, &source, attempt)?;
        if result.is_ok() && source.size() > LIVE_PIECE {
            lock(&self.open).insert(*oid, source, 1);
        }
        Ok(result)
    }

    fn attempt_on<T>(
        &self,
        oid: &Oid,
        source: &Arc<OpenedBytes>,
        attempt: &mut impl FnMut(&Arc<OpenedBytes>) -> Result<T, StoreError>,
    ) -> Result<Result<T, StoreError>, Lost> {
        self.core.note_use(match &source.origin {
            BytesOrigin::Owned { .. } | BytesOrigin::Kept { .. } => Used::Object(*oid),
            BytesOrigin::Referred(found) => Used::Dir(found.dir),
        });
        match attempt(source) {
            Err(error) if error.is_loss() => {
                Err(Lost { origin: source.origin.clone(), is_in_place: source.is_in_place() })
            }
            result => Ok(result),
        }
    }

    fn origins(&self, conn: &Connection, oid: &Oid) -> IndexOutcome<Vec<BytesOrigin>> {
        let path = self.core.folders.object(oid);
        let owned = match rows::owned(conn, oid)? {
            Some((size, OwnBytes::Kept)) => {
                let place = self.core.kept.as_ref().map(|kept| kept.place_of(oid)).unwrap_or_default();
                Some(BytesOrigin::Kept { path, oid: *oid, size, place })
            }
            Some((size, _)) => Some(BytesOrigin::Owned { path, size }),
            None => None,
        };
        let holders = files::holders(conn, oid, HOLDERS)?;
        Ok(owned.into_iter().chain(holders.into_iter().map(BytesOrigin::Referred)).collect())
    }

    /// Forgets files that are no longer as they were; returns what happened to the first of them.
    fn forget(&self, oid: &Oid, lost: &[Lost]) -> Result<Option<StoreError>, StoreError> {
        if lost.is_empty() {
            return Ok(None);
        }
        lock(&self.open).remove(oid);
        // Locked until they are forgotten, so that nobody puts them meanwhile.
        let gone = lost.iter().map(|one| self.claim_gone(oid, one)).collect::<Result<Vec<_>, _>>()?;
        let first = self.core.index.write(Durability::Cached, "forgetting changed files", |t| {
            let mut first = None;
            for (one, gone) in lost.iter().zip(&gone) {
                let is_lost = match &one.origin {
                    BytesOrigin::Kept { .. } => gone.is_some() && rows::disown(t, oid)?,
                    BytesOrigin::Owned { path, size } => {
                        (one.is_in_place || !is_whole(path, *size)) && rows::disown(t, oid)?
                    }
                    BytesOrigin::Referred(found) => files::forget(t, oid, found).map(|()| true)?,
                };
                if is_lost {
                    first.get_or_insert_with(|| one.origin.loss());
                }
            }
            Ok(first)
        })?;
        self.core.notices.changed(oid);
        Ok(first)
    }

    /// The stand-in, locked, of an object that the byte store does not have; `None` if it has it, or if
    /// somebody puts or reads it now.
    fn claim_gone(&self, oid: &Oid, lost: &Lost) -> Result<Option<File>, StoreError> {
        let BytesOrigin::Kept { size, .. } = lost.origin else { return Ok(None) };
        match self.core.folders.claim_stand_in(oid)? {
            Some(claimed) if self.core.kept()?.is_gone(oid, size)? => Ok(Some(claimed)),
            _ => Ok(None),
        }
    }
}

/// A file that was not as it is on record.
struct Lost {
    origin: BytesOrigin,
    /// The very file that was found wrong lies there still. If not, an owned one may have been
    /// evicted or put again since it was looked for.
    is_in_place: bool,
}

impl Lost {
    const fn is_kept(&self) -> bool {
        matches!(self.origin, BytesOrigin::Kept { .. })
    }
}

fn is_whole(path: &Path, size: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.len() == size)
}

pub(super) fn piece_range(source: &OpenedBytes, index: u64) -> Result<Range<u64>, StoreError> {
    let layout = Layout::of(source.size()).ok().filter(|layout| index < layout.count());
    layout.map(|layout| layout.range(index)).ok_or(OUTSIDE)
}
