//! A file that the session brings piece by piece, into what an interrupted copy left of it, or beside what is right of the
//! file that it replaces.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use towpath_content::Oid;
use towpath_content::pieces::{MIN_LOG2, Value};
use towpath_files::{FileBody, FileError};

use super::CopyFile;
use towpath_content::lock::lock;
use towpath_targets::base_file::{BaseFile, WORTH_READING};
use towpath_targets::file_target::TargetFile;
use towpath_targets::partial::PartialFile;
use towpath_targets::placing::Begun;

impl CopyFile {
    /// A temporary for it: what an interrupted copy left, else a new one, which shares the bytes of the file
    /// that it replaces where the file system can do so; and where bytes are in it. They are all hashed before
    /// they count.
    fn open(&self, size: u64) -> Result<Begun, FileError> {
        let placing = self.receiving.placing()?;
        let key = self.key();
        let older = self.open_base();
        let left = match self.base().untouched_rest(size)? {
            None => self.left(placing, &key, size)?,
            rest => rest,
        };
        if let Some(left) = left {
            older.into_iter().for_each(|older| self.partial.set_base(older));
            return Ok(left);
        }
        let staged = self.fresh(size)?;
        placing.note_part(&key, &staged, self.wanted.size > 1 << MIN_LOG2);
        let Some(older) = older else { return Ok((staged, Vec::new())) };
        let shared = staged.body().share(older.file())?.then_some(0..older.in_place());
        self.partial.set_base(if shared.is_some() { older.shared() } else { older });
        Ok((staged, shared.into_iter().collect()))
    }

    /// The file that it replaces, if that is worth reading; only a help.
    fn open_base(&self) -> Option<BaseFile> {
        let old = self.wanted.old.filter(|old| old.size >= WORTH_READING)?;
        if self.receiving.options.whole_file || self.size() < WORTH_READING {
            return None;
        }
        let placing = self.receiving.placing().ok()?;
        let file = placing.destination.open_file(&self.wanted.path, &old).ok()?;
        Some(BaseFile::new(file, old.size, self.size()))
    }
}

impl TargetFile for CopyFile {
    fn partial(&self) -> &PartialFile {
        &self.partial
    }

    fn stage(&self, size: Option<u64>) -> Result<(FileBody, Vec<Range<u64>>), FileError> {
        let (staged, left) = self.open(size.unwrap_or_else(|| self.size()))?;
        let body = staged.body().clone();
        *lock(&self.staged) = Some(staged);
        Ok((body, left))
    }

    fn check_size(&self, end: u64) -> Result<(), FileError> {
        if end <= self.size() {
            return Ok(());
        }
        let path = Path::new(OsStr::from_bytes(&self.wanted.shown));
        Err(FileError::changed("write", path, "longer than its sender said"))
    }

    fn is_sparse(&self) -> bool {
        self.sparse.load(Ordering::Relaxed)
    }

    fn place(&self, oid: &Oid, values: Vec<Value>) -> Result<(), FileError> {
        self.finish(Some((*oid, values)))
    }
}
