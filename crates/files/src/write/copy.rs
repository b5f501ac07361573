//! The bytes of one file on this machine into another, by the kernel where it can: shared blocks
//! (`FICLONE`), else `copy_file_range`, hole for hole.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

use super::body::FileBody;
use crate::error::FileError;
use crate::sparse::{DataRanges, write_sparse};

/// Bytes read at once where the kernel does not copy.
const PART: usize = 1 << 20;

impl FileBody {
    /// Shares the blocks of `file`, all or none: false where the file system can't. The body is new, with nothing
    /// in it; it keeps its own length.
    pub fn share(&self, file: &File) -> Result<bool, FileError> {
        let is_shared = ioctl_ficlone(self.file(), file).is_ok();
        if is_shared {
            self.set_size(self.size())?;
        }
        Ok(is_shared)
    }

    /// Takes the first `size` bytes of `file`, which is this long or longer; its holes stay holes.
    /// With `sparse`, runs of zeros become holes too. The body is new, with nothing in it.
    pub fn copy_from(&self, file: &File, size: u64, sparse: bool) -> Result<(), FileError> {
        let failed = |error: io::Error| FileError::new("copy to", self.path(), error);
        if size > self.size() {
            return Err(FileError::refused("copy to", self.path(), "more than the file is to have"));
        }
        let len = file.metadata().map_err(failed)?.len();
        if len < size {
            // Beyond its end there are holes to a file system.
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let is_whole = len == size && size == self.size();
        if is_whole && !sparse && size > 0 && self.share(file)? {
            return Ok(());
        }
        let mut by_kernel = !sparse;
        for range in DataRanges::new(file, size) {
            self.copy_range(file, range.map_err(failed)?, sparse, &mut by_kernel).map_err(failed)?;
        }
        Ok(())
    }

    fn copy_range(
        &self,
        file: &File,
        range: Range<u64>,
        sparse: bool,
        by_kernel: &mut bool,
    ) -> io::Result<()> {
        let mut at = range.start;
        while *by_kernel && at < range.end {
            let (mut from, mut to) = (at, at);
            let len = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            match copy_file_range(file, Some(&mut from), self.file(), Some(&mut to), len) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(copied) => at += copied as u64,
                // Between some file systems it can't, or not yet.
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => *by_kernel = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut part = vec![0; if at < range.end { PART } else { 0 }];
        while at < range.end {
            let len = (range.end - at).min(PART as u64) as usize;
            file.read_exact_at(&mut part[..len], at)?;
            match sparse {
                true => write_sparse(self.file(), at, &part[..len])?,
                false => self.file().write_all_at(&part[..len], at)?,
            }
            at += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::{Destination, WriteOptions};
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn copied(source: &File, size: u64, sparse: bool) -> (tempfile::TempDir, fs::Metadata, Vec<u8>) {
        let tmp = tempfile::tempdir().unwrap();
        let destination = Destination::open(tmp.path(), WriteOptions::default()).unwrap();
        let staged = destination.stage_file(size).unwrap();
        staged.body().copy_from(source, size, sparse).unwrap();
        let mut bytes = vec![0; size as usize];
        staged.body().read_at(0, &mut bytes).unwrap();
        let metadata = staged.body().file().metadata().unwrap();
        (tmp, metadata, bytes)
    }

    #[test]
    fn bytes_and_holes_come_along() {
        let source = tempfile::tempfile().unwrap();
        source.set_len(8 << 20).unwrap();
        source.write_all_at(b"front", 0).unwrap();
        source.write_all_at(&[7; 5000], 5 << 20).unwrap();
        let (_tmp, metadata, bytes) = copied(&source, 8 << 20, false);
        assert_eq!(&bytes[..5], b"front");
        assert_eq!(bytes[(5 << 20)..][..5000], [7; 5000]);
        assert!(metadata.blocks() * 512 < 1 << 20, "the holes were filled");
    }

    #[test]
    fn zeros_become_holes_when_asked_for() {
        let source = tempfile::tempfile().unwrap();
        source.write_all_at(&vec![0; 4 << 20], 0).unwrap();
        source.write_all_at(b"end", (4 << 20) - 3).unwrap();
        let (_tmp, metadata, bytes) = copied(&source, 4 << 20, true);
        assert!(bytes.ends_with(b"\0end") && metadata.blocks() * 512 < 1 << 20);
    }

    #[test]
    fn a_source_that_became_shorter_is_an_error() {
        let source = tempfile::tempfile().unwrap();
        source.write_all_at(b"short", 0).unwrap();
        let tmp = tempfile::tempdir().unwrap();
        let destination = Destination::open(tmp.path(), WriteOptions::default()).unwrap();
        let staged = destination.stage_file(100).unwrap();
        assert!(staged.body().copy_from(&source, 100, false).is_err());
        assert!(staged.body().copy_from(&source, 101, false).is_err(), "more than there is room for");
    }
}
