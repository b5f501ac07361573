//! Backups of what a copy replaces or removes (`--backup`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use towpath_files::{Destination, FileError, RelPath, WriteOptions};
use towpath_targets::placing::Placing;

use super::Receiving;
use crate::wanted::Note;

/// See the head of this module.
pub struct Backups<'a> {
    pub(super) receiving: &'a Receiving,
}

/// Place of backups.
pub enum BackupPlace {
    /// Beside what they are of.
    Beside,
    /// Into this directory of the destination.
    Inside(RelPath),
    /// Into a directory elsewhere on the same file system, which the person named.
    Outside(Box<Destination>),
}

impl BackupPlace {
    /// The directory that `--backup-dir` names, relative to the destination.
    fn find(dir: &[u8], placing: &Placing<Note>, options: WriteOptions) -> Result<Self, FileError> {
        let dir = Path::new(OsStr::from_bytes(dir));
        let is_inside = dir.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if is_inside {
            let names = dir.components().filter(|part| *part != Component::CurDir);
            return RelPath::new(names.map(|name| name.as_os_str().as_bytes())).map(Self::Inside);
        }
        let path = placing.base.join(dir);
        std::fs::create_dir_all(&path).map_err(|error| FileError::new("create", &path, error))?;
        Destination::open(&path, options).map(|other| Self::Outside(Box::new(other)))
    }
}

impl<'a> Backups<'a> {
    /// Moves what is at `path` out of the way, if backups were requested; false if nothing was there.
    pub fn back_up(&self, path: &RelPath) -> Result<bool, FileError> {
        self.back_up_by(path, |from, path, other, to| match other {
            None => from.backups().rename(path, to),
            Some(other) => from.backups().rename_into(path, other, to),
        })
    }

    /// Keeps what is at `path`, a file that a rename is about to replace, under its backup's name as well.
    pub fn keep(&self, path: &RelPath) -> Result<bool, FileError> {
        self.back_up_by(path, |from, path, other, to| from.backups().keep_as(path, other.unwrap_or(from), to))
    }

    fn back_up_by(
        &self,
        path: &RelPath,
        back_up: impl FnOnce(&Destination, &RelPath, Option<&Destination>, &RelPath) -> Result<(), FileError>,
    ) -> Result<bool, FileError> {
        if !self.receiving.options.backup {
            return Ok(false);
        }
        let Some((parent, name)) = path.split() else { return Ok(false) };
        let name = [name, &self.receiving.options.suffix].concat();
        let destination = &self.receiving.placing()?.destination;
        let moved = match self.place()? {
            BackupPlace::Beside => back_up(destination, path, None, &parent.join(&name)?),
            BackupPlace::Inside(dir) => {
                let mut to = dir.clone();
                parent.names().try_for_each(|name| to.push(name))?;
                back_up(destination, path, None, &to.join(&name)?)
            }
            BackupPlace::Outside(other) => back_up(destination, path, Some(other), &parent.join(&name)?),
        };
        match moved {
            Ok(()) => Ok(true),
            Err(FileError::Vanished { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Their place; found out, and made, when the first one comes.
    fn place(&self) -> Result<&'a BackupPlace, FileError> {
        let receiving = self.receiving;
        if let Some(place) = receiving.backup_place.get() {
            return Ok(place);
        }
        let place = match &receiving.options.backup_dir {
            None => BackupPlace::Beside,
            Some(dir) => BackupPlace::find(dir, receiving.placing()?, receiving.write_options())?,
        };
        Ok(receiving.backup_place.get_or_init(|| place))
    }
}
