//! The target of a session that brings a file: it fills a temporary, beside what an interrupted transfer left in it and what
//! is right of an older version. Files of gets, of trees and of copies differ in where the temporary comes from, and in how it
//! takes its name.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_files::{FileBody, FileError};
use towpath_store::About;
use towpath_transfer::following::BaseReader;
use towpath_transfer::{Announcing, Target};

use crate::partial::PartialFile;

/// A file that is written under a temporary name.
pub trait TargetFile: Send + Sync {
    /// Its bytes on their way.
    fn partial(&self) -> &PartialFile;

    /// Takes what the source says of it.
    fn describe(&self, _about: &About) {}

    /// Makes its temporary, or takes up an earlier one: its body, and where bytes are in it. They are hashed before they
    /// count. `size` is `None` while the object is live. Called once.
    fn stage(&self, size: Option<u64>) -> Result<(FileBody, Vec<Range<u64>>), FileError>;

    /// Refuses to become as long as this.
    fn check_size(&self, _end: u64) -> Result<(), FileError> {
        Ok(())
    }

    /// How its pieces are announced as they come; `None` if nobody else may read them.
    fn announces(&self) -> Option<Announcing> {
        None
    }

    /// True if runs of zeros become holes.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Gives its temporary the final name. All bytes are there.
    fn place(&self, oid: &Oid, values: Vec<Value>) -> Result<(), FileError>;

    /// Writes and places all of it at once; `None` if it has no shorter way than [`Self::stage`] and [`Self::place`].
    fn place_whole(&self, _oid: &Oid, _content: &[u8]) -> Option<Result<(), FileError>> {
        None
    }
}

/// See the head of this module.
#[derive(Debug)]
pub struct FileTarget<F>(Arc<F>);

impl<F: TargetFile + 'static> FileTarget<F> {
    /// The target of a file.
    pub fn of(file: &Arc<F>) -> Arc<dyn Target> {
        Arc::new(Self(Arc::clone(file)))
    }
}

impl<F: TargetFile> FileTarget<F> {
    fn partial(&self) -> &PartialFile {
        self.0.partial()
    }

    fn grow(&self, end: u64) -> io::Result<()> {
        self.partial().note(self.0.check_size(end))?;
        self.partial().grow(end)
    }
}

impl<F: TargetFile> Target for FileTarget<F> {
    fn begin(&self, size: Option<u64>, about: &About) -> io::Result<()> {
        self.0.describe(about);
        if self.partial().is_begun() {
            return Ok(());
        }
        let (body, left) = self.partial().note(self.0.stage(size))?;
        self.partial().begin(body, left);
        Ok(())
    }

    fn existing(&self) -> Vec<Range<u64>> {
        self.partial().existing()
    }

    fn announces(&self) -> Option<Announcing> {
        self.0.announces()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.partial().read(offset, buf)
    }

    fn read_existing(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.partial().read_existing(offset, buf)
    }

    fn base(&self) -> Option<&dyn BaseReader> {
        self.partial().base()
    }

    fn base_is_cold(&self) -> bool {
        self.partial().base_is_cold()
    }

    fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.partial().keep(offset, bytes, || self.write(offset, bytes))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.grow(offset + bytes.len() as u64)?;
        // What lies there already has to be written over, also with zeros.
        let sparse = self.0.is_sparse() && self.partial().left().is_empty();
        self.partial().write(offset, bytes, sparse)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.grow(range.end)?;
        self.partial().write_zeros(&range)
    }

    fn take(&self, oid: &Oid, bytes: &[u8], about: &About) -> io::Result<()> {
        if let Some(placed) = self.0.place_whole(oid, bytes) {
            return self.partial().note(placed);
        }
        let size = bytes.len() as u64;
        self.begin(Some(size), about)?;
        self.write(0, bytes)?;
        self.complete(oid, size, vec![*oid.digest()])
    }

    fn complete(&self, oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()> {
        self.partial().set_size(size)?;
        self.partial().note(self.0.place(oid, values))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Mutex;

    use towpath_content::lock::lock;
    use towpath_files::{Overwrite, Policy, SingleFile};

    use super::*;

    const MOST: u64 = 100;

    struct Plain {
        path: PathBuf,
        partial: PartialFile,
        file: Mutex<Option<SingleFile>>,
    }

    impl TargetFile for Plain {
        fn partial(&self) -> &PartialFile {
            &self.partial
        }

        fn stage(&self, size: Option<u64>) -> Result<(FileBody, Vec<Range<u64>>), FileError> {
            let file = SingleFile::create(&self.path, size.unwrap_or(0))?;
            let body = file.body().clone();
            assert!(lock(&self.file).replace(file).is_none(), "it is staged once");
            Ok((body, Vec::new()))
        }

        fn check_size(&self, end: u64) -> Result<(), FileError> {
            let error = || FileError::changed("write", &self.path, "longer than its sender said");
            if end <= MOST { Ok(()) } else { Err(error()) }
        }

        fn place(&self, _oid: &Oid, _values: Vec<Value>) -> Result<(), FileError> {
            let file = lock(&self.file).take().unwrap();
            file.finish(&Default::default(), &Policy::default(), Overwrite::Never).map(drop)
        }
    }

    #[test]
    fn a_live_file_grows_to_what_it_may_have_and_takes_its_name_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file =
            Arc::new(Plain { path: path.clone(), partial: PartialFile::default(), file: Mutex::default() });
        let target = FileTarget::of(&file);
        for _ in 0..2 {
            target.begin(None, &About::default()).unwrap();
        }
        target.write(0, &[1; 40]).unwrap();
        assert!(target.write(90, &[1; 11]).is_err());
        assert!(file.partial().take_failure().is_some_and(|error| error.to_string().contains("longer")));
        target.write_zeros(40..60).unwrap();
        assert!(!path.exists());
        let content = [[1; 40].as_slice(), &[0; 20]].concat();
        target.complete(&Oid::of(&content), 60, Vec::new()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}
