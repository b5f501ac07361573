//! A file that the session brings piece by piece, into what an interrupted copy left of it, or beside what is right of the
//! file that it replaces.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use towpath_content::Oid;
use towpath_content::pieces::{MIN_LOG2, Value};
use towpath_files::FileError;
use towpath_store::About;
use towpath_transfer::Target;

use super::CopyFile;
use towpath_content::lock::lock;
use towpath_targets::base_file::{BaseFile, WORTH_READING};
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

    /// There is what may be an older version of it, elsewhere.
    pub fn set_base(&self, older: BaseFile) {
        self.partial.set_base(older);
    }

    /// Bytes of its older version that were taken over in their places.
    pub fn drawn(&self) -> u64 {
        self.partial.drawn()
    }

    /// Makes room up to `end`.
    fn grow(&self, end: u64) -> io::Result<()> {
        if end > self.size() {
            let path = Path::new(OsStr::from_bytes(&self.wanted.shown));
            let error = FileError::changed("write", path, "longer than its sender said");
            return self.partial.note(Err(error));
        }
        self.partial.grow(end)
    }
}

impl Target for CopyFile {
    fn begin(&self, size: Option<u64>, _about: &About) -> io::Result<()> {
        if self.partial.is_begun() {
            return Ok(());
        }
        let opened = self.open(size.unwrap_or_else(|| self.size()));
        let (staged, existing) = self.partial.note(opened)?;
        self.partial.begin(staged.body(), existing);
        *lock(&self.staged) = Some(staged);
        Ok(())
    }

    fn existing(&self) -> Vec<Range<u64>> {
        self.partial.existing()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.partial.read(offset, buf)
    }

    fn read_existing(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.partial.read_existing(offset, buf)
    }

    fn base(&self) -> Option<&dyn towpath_transfer::following::BaseReader> {
        self.partial.base()
    }

    fn base_is_cold(&self) -> bool {
        self.partial.base_is_cold()
    }

    fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.partial.keep(offset, bytes, || self.write(offset, bytes))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.grow(offset + bytes.len() as u64)?;
        // What lies there already has to be written over, also with zeros.
        let sparse = self.sparse.load(Ordering::Relaxed) && self.partial.left().is_empty();
        self.partial.write(offset, bytes, sparse)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.grow(range.end)?;
        self.partial.write_zeros(&range)
    }

    fn complete(&self, oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()> {
        self.partial.set_size(size)?;
        self.partial.note(self.finish(Some((*oid, values))))
    }
}
