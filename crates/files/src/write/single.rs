//! One file: its temporary lies beside it, as `.NAME.tow-` and 16 hexadecimal digits.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, fsync, statat, unlinkat};
use rustix::io::Errno;
use towpath_content::tree::{MAX_NAME, Metadata};

use super::body::FileBody;
use super::destination::split_user_path;
use super::place::{Overwrite, PlaceAt, place};
use super::{DIGITS, PREFIX, are_random_digits, random_digits};
use crate::confine::open_root;
use crate::error::FileError;
use crate::metadata::{HeldMetadata, Policy, PreviousMetadata, apply};
use crate::stamp::Stamp;

/// A file being written. Dropping it keeps the temporary, for [`SingleFile::reopen`].
#[derive(Debug)]
pub struct SingleFile {
    dir: OwnedFd,
    path: PathBuf,
    name: Vec<u8>,
    temp: String,
    body: FileBody,
}

impl SingleFile {
    /// A new temporary of `size` bytes beside `path`. Whether `path` is taken is looked at when
    /// the file is finished.
    pub fn create(path: &Path, size: u64) -> Result<Self, FileError> {
        let (dir, name) = hold_parent(path)?;
        let digits = random_digits().map_err(|e| FileError::new("create", path, e))?;
        let temp = temp_name(&name, &digits);
        let body = FileBody::create(&dir, &temp, size, path.with_file_name(&temp))?;
        Ok(Self { dir, path: path.to_path_buf(), name, temp, body })
    }

    /// Opens the temporary that an earlier run left; [`FileError::Busy`] if another process is
    /// writing it.
    pub fn reopen(path: &Path, temp: &str) -> Result<Self, FileError> {
        let (dir, name) = hold_parent(path)?;
        let shown = path.with_file_name(OsStr::new(temp));
        if !is_temp_of(&name, temp) {
            return Err(FileError::outside("resume", &shown, "not a temporary of this file"));
        }
        let body = FileBody::reopen(&dir, temp, shown)?;
        Ok(Self { dir, path: path.to_path_buf(), name, temp: temp.to_owned(), body })
    }

    /// The temporary's name in the directory of the final file, for a resume record.
    pub fn temp_name(&self) -> &str {
        &self.temp
    }

    /// The bytes; clones stay valid until it is finished.
    pub const fn body(&self) -> &FileBody {
        &self.body
    }

    /// [`FileBody::write_piece`].
    pub fn write_piece(&self, offset: u64, bytes: &[u8], sparse: bool) -> Result<(), FileError> {
        self.body.write_piece(offset, bytes, sparse)
    }

    /// [`FileBody::data_ranges`].
    pub fn data_ranges(&self) -> impl Iterator<Item = io::Result<Range<u64>>> {
        self.body.data_ranges()
    }

    /// Sets the metadata, syncs, gives the file its name and syncs that. On an error, and be it
    /// that an attribute cannot be set, the temporary stays.
    pub fn finish(
        self,
        metadata: &Metadata,
        policy: &Policy,
        overwrite: Overwrite,
    ) -> Result<Stamp, FileError> {
        let path = &self.path;
        let failed = |op| move |e| FileError::new(op, path, e);
        let target = HeldMetadata::Open(self.body.file().as_fd());
        let lacking =
            apply(target, metadata, policy, PreviousMetadata::Nothing).map_err(failed("set metadata of"))?;
        if let Some(lacking) = lacking {
            return Err(lacking.of(path));
        }
        self.body.sync_data().map_err(failed("sync"))?;
        let to = PlaceAt { dir: self.dir.as_fd(), name: &self.name };
        place(self.at_temp(), to, overwrite).map_err(failed("rename"))?;
        sync_dir(&self.dir).map_err(failed("sync the directory of"))?;
        let stat = statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| Stamp::from_stat(&stat)).map_err(failed("stat"))
    }

    /// Gives the file up and removes its temporary.
    pub fn discard(self) -> Result<(), FileError> {
        let gone = unlinkat(&self.dir, self.temp.as_str(), AtFlags::empty());
        gone.map_err(|e| FileError::new("remove", self.body.path(), e))
    }

    fn at_temp(&self) -> PlaceAt<'_> {
        PlaceAt { dir: self.dir.as_fd(), name: self.temp.as_bytes() }
    }
}

/// Some network file systems refuse to sync a directory, having nothing to do.
fn sync_dir(dir: &OwnedFd) -> Result<(), Errno> {
    match fsync(dir) {
        Err(Errno::INVAL) => Ok(()),
        done => done,
    }
}

fn hold_parent(path: &Path) -> Result<(OwnedFd, Vec<u8>), FileError> {
    let (parent, name) = split_user_path(path)?;
    let dir = open_root(parent).map_err(|e| FileError::new("open", parent, e))?;
    Ok((dir, name.to_vec()))
}

/// `.NAME.tow-DIGITS`, with as much of the name as fits.
fn temp_name(name: &[u8], digits: &str) -> String {
    format!("{}{digits}", temp_stem(name))
}

fn is_temp_of(name: &[u8], temp: &str) -> bool {
    temp.strip_prefix(&temp_stem(name)).is_some_and(|digits| are_random_digits(digits.as_bytes()))
}

/// Text of the name for a temporary: bytes that are not UTF-8 are replaced.
fn temp_stem(name: &[u8]) -> String {
    let mut stem = format!(".{}", String::from_utf8_lossy(name));
    let room = MAX_NAME - PREFIX.len() - DIGITS;
    let cut = (0..=room.min(stem.len())).rev().find(|&at| stem.is_char_boundary(at));
    stem.truncate(cut.unwrap_or(0));
    stem + PREFIX
}
