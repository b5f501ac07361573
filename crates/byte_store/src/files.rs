//! Bytes in files of one folder, such as a mounted disk: each in a file named by its hash, in one of 256 folders.
//!
//! A file is written under a name of its own, synced and then given its name. What a crash leaves
//! has a name that begins with a dot, and goes when the place is claimed the next time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{ByteStoreError, OUTSIDE, TOO_LONG};
use crate::name::{ByteName, PlaceOwner};
use crate::seam::{ByteStore, Listed, MAX_PAGE, MAX_RANGE, PutResult};

/// File that says whose place it is.
const OWNER: &str = "owner";
/// Bytes that are copied at once.
const COPIED: usize = 1 << 20;
/// Age from which on a file under way is taken for one that a crash left.
const LEFT_AFTER: Duration = Duration::from_secs(86_400);

/// A folder of files.
#[derive(Debug)]
pub struct LocalFiles {
    folder: PathBuf,
    place: String,
}

impl LocalFiles {
    /// Keeps bytes in `folder`, which is made when it is claimed; the folder above it has to be there, so that
    /// a disk that is not mounted is noticed.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), place: folder.display().to_string() }
    }

    fn path(&self, name: &ByteName) -> PathBuf {
        let name = name.to_string();
        self.folder.join(&name[..2]).join(&name)
    }

    fn explain(&self, doing: &str, error: io::Error) -> ByteStoreError {
        let (place, why) = (self.place.clone(), error.to_string());
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                ByteStoreError::Denied { place, why }
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                ByteStoreError::Full { place, why }
            }
            _ => ByteStoreError::Failed { what: format!("{doing} {place}"), source: error.into() },
        }
    }

    /// The open file of a name.
    fn open(&self, name: &ByteName) -> Result<File, ByteStoreError> {
        match File::open(self.path(name)) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(ByteStoreError::NotHere),
            Err(error) => Err(self.explain("reading in", error)),
        }
    }

    /// Writes a file whole; it has its name afterwards, in place of any other.
    fn write(&self, path: &Path, bytes: &mut dyn Read, size: u64) -> Result<(), ByteStoreError> {
        let failed = |error| self.explain("writing in", error);
        let parent = path.parent().unwrap_or(&self.folder);
        match DirBuilder::new().mode(0o700).create(parent) {
            Ok(()) => sync(&self.folder).map_err(failed)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        let under_way = FileUnderWay(self.folder.join(format!(".{:016x}", fastrand::u64(..))));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&under_way.0);
        let file = file.map_err(failed)?;
        self.copy(bytes, size, &file)?;
        file.sync_data().map_err(failed)?;
        std::fs::rename(&under_way.0, path).map_err(failed)?;
        sync(parent).map_err(failed)
    }

    fn copy(&self, bytes: &mut dyn Read, size: u64, mut file: &File) -> Result<(), ByteStoreError> {
        let mut buf = vec![0; COPIED.min(size.max(1) as usize)];
        let mut left = size;
        while left > 0 {
            let part = buf.len().min(left.try_into().unwrap_or(usize::MAX));
            bytes.read_exact(&mut buf[..part]).map_err(ByteStoreError::Input)?;
            file.write_all(&buf[..part]).map_err(|error| self.explain("writing in", error))?;
            left -= part as u64;
        }
        expect_end(bytes)
    }

    /// Names in one of the folders, sorted.
    fn names_in(&self, folder: &Path) -> Result<Vec<ByteName>, ByteStoreError> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.explain("listing", error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| self.explain("listing", error))?.file_name();
            names.extend(name.to_str().and_then(ByteName::parse));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes what was under way when a crash came: what is older than any put takes.
    fn sweep(&self) -> Result<(), ByteStoreError> {
        let entries = std::fs::read_dir(&self.folder).map_err(|error| self.explain("listing", error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.explain("listing", error))?;
            let changed = entry.metadata().and_then(|found| found.modified()).ok();
            let is_old = changed.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > LEFT_AFTER);
            if is_old && entry.file_name().as_encoded_bytes().starts_with(b".") {
                // What can't be removed now goes another time.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

impl ByteStore for LocalFiles {
    fn place(&self) -> &str {
        &self.place
    }

    fn claim(&self, owner: &PlaceOwner, may_begin: bool) -> Result<(), ByteStoreError> {
        let note = self.folder.join(OWNER);
        let mut text = String::new();
        match File::open(&note).and_then(|file| file.take(100).read_to_string(&mut text)) {
            Ok(_) if PlaceOwner::parse(text.trim_end()) == Some(*owner) => return self.sweep(),
            Ok(_) => return Err(ByteStoreError::Taken { place: self.place.clone() }),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(self.explain("reading in", error));
            }
            Err(_) if !may_begin => {
                let why = format!("it has no file '{OWNER}'");
                return Err(ByteStoreError::Missing { place: self.place.clone(), why });
            }
            Err(_) => {}
        }
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let why = "the folder above it is not there; is its disk mounted?".into();
                return Err(ByteStoreError::Missing { place: self.place.clone(), why });
            }
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(self.explain("creating", error));
            }
            _ => {}
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&note);
        let written = made.and_then(|mut file| {
            file.write_all(format!("{owner}\n").as_bytes())?;
            file.sync_data()
        });
        match written.and_then(|()| sync(&self.folder)) {
            // Another process was first; it may be one of the same store.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.claim(owner, false),
            result => result.map_err(|error| self.explain("writing in", error)),
        }
    }

    fn put(&self, name: &ByteName, bytes: &mut dyn Read, size: u64) -> Result<PutResult, ByteStoreError> {
        if matches!(self.size(name), Ok(found) if found == size) {
            return Ok(PutResult::WasHere);
        }
        self.write(&self.path(name), bytes, size).map(|()| PutResult::New)
    }

    fn size(&self, name: &ByteName) -> Result<u64, ByteStoreError> {
        let found = self.open(name)?.metadata();
        found.map(|found| found.len()).map_err(|error| self.explain("reading in", error))
    }

    fn get_range(&self, name: &ByteName, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), ByteStoreError> {
        check_range(&range)?;
        let file = self.open(name)?;
        let size = file.metadata().map_err(|error| self.explain("reading in", error))?.len();
        if range.end > size {
            return Err(OUTSIDE);
        }
        let front = buf.len();
        buf.resize(front + (range.end - range.start) as usize, 0);
        let read = file.read_exact_at(&mut buf[front..], range.start);
        read.map_err(|error| {
            buf.truncate(front);
            self.explain("reading in", error)
        })
    }

    fn list(&self, after: Option<&ByteName>, most: usize) -> Result<Vec<Listed>, ByteStoreError> {
        let (most, first, mut page) = (most.min(MAX_PAGE), after.map_or(0, |after| after.0[0]), Vec::new());
        for folder in first..=u8::MAX {
            if page.len() >= most {
                break;
            }
            let names = self.names_in(&self.folder.join(format!("{folder:02x}")))?;
            for name in names.into_iter().filter(|name| after.is_none_or(|after| name > after)) {
                // One that is gone meanwhile is not there.
                if page.len() < most
                    && let Ok(size) = self.size(&name)
                {
                    page.push(Listed { name, size });
                }
            }
        }
        Ok(page)
    }

    fn delete(&self, name: &ByteName) -> Result<(), ByteStoreError> {
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.explain("deleting in", error)),
            _ => Ok(()),
        }
    }
}

/// Refuses a range that is read by nobody.
pub fn check_range(range: &Range<u64>) -> Result<(), ByteStoreError> {
    let length = range.end.checked_sub(range.start);
    if length.is_some_and(|length| length <= MAX_RANGE) { Ok(()) } else { Err(TOO_LONG) }
}

/// Checks that nothing is left to be read.
pub fn expect_end(bytes: &mut dyn Read) -> Result<(), ByteStoreError> {
    match bytes.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(ByteStoreError::Refused { why: "more bytes than their size says" }),
        Err(error) => Err(ByteStoreError::Input(error)),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A file on its way; removed when dropped, unless it has its name by then.
struct FileUnderWay(PathBuf);

impl Drop for FileUnderWay {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn conforms() {
        let folders = tempfile::tempdir().unwrap();
        conformance::run(|number| Box::new(LocalFiles::new(&folders.path().join(number.to_string()))));
    }

    #[test]
    fn a_disk_that_is_not_mounted_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalFiles::new(&folder.path().join("disk/bytes"));
        let claimed = store.claim(&PlaceOwner([1; 16]), true);
        assert!(matches!(claimed, Err(ByteStoreError::Missing { .. })), "{claimed:?}");
        assert!(!folder.path().join("disk").exists());
    }

    #[test]
    fn what_a_crash_left_goes_with_the_next_claim() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalFiles::new(folder.path());
        store.claim(&PlaceOwner([1; 16]), true).unwrap();
        let [old, new] = [".0123456789abcdef", ".fedcba9876543210"].map(|name| folder.path().join(name));
        for path in [&old, &new] {
            std::fs::write(path, b"part").unwrap();
        }
        let long_ago = std::time::SystemTime::now() - 2 * LEFT_AFTER;
        File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
        store.claim(&PlaceOwner([1; 16]), false).unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn a_folder_that_may_not_be_written_is_denied() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let store = LocalFiles::new(Path::new("/proc/bytes"));
        let claimed = store.claim(&PlaceOwner([1; 16]), true);
        assert!(matches!(claimed, Err(ByteStoreError::Denied { .. } | ByteStoreError::Missing { .. })));
    }
}
