//! The one file of a get: a temporary beside its final name.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_content::tree::{Metadata, Time};
use towpath_files::metadata::umask;
use towpath_files::{FileBody, FileError, Overwrite, Policy, SingleFile, of_file};
use towpath_store::{About, DiskStore};

use towpath_transfer::Announcing;

use crate::file_target::TargetFile;
use crate::index_record::remember;
use crate::partial::PartialFile;
use crate::resume::{Record, wait_while_busy};
use towpath_content::lock::lock;

/// Metadata of a new file whose source tells nothing.
pub const DEFAULT_MODE: u32 = 0o644;

/// A file on its way to `path`.
pub struct GetFile {
    path: PathBuf,
    record: Record,
    store: Arc<DiskStore>,
    file: Mutex<Option<SingleFile>>,
    /// The temporary's name, once there is one.
    temp: Mutex<Option<String>>,
    partial: PartialFile,
    about: Mutex<About>,
    announcing: Option<Announcing>,
}

impl GetFile {
    /// A target for `path`; goes on with what `record` says was left.
    pub fn new(path: &Path, record: Record, store: Arc<DiskStore>) -> Self {
        Self {
            path: path.into(),
            record,
            store,
            file: Mutex::default(),
            temp: Mutex::default(),
            partial: PartialFile::default(),
            about: Mutex::default(),
            announcing: None,
        }
    }

    /// Others may read it while it comes, if that is how.
    #[must_use]
    pub fn announced(self, announcing: Option<Announcing>) -> Self {
        Self { announcing, ..self }
    }

    /// The error behind a failed write, with its path; that of its temporary means nothing to people.
    pub fn failure(&self) -> Option<FileError> {
        self.partial.take_failure().map(|error| of_file(&error, &self.path).unwrap_or(error))
    }

    /// Drops what was brought, as another get brought the same: nothing of it stays.
    pub fn discard(&self) {
        let Some(temp) = lock(&self.temp).take() else { return };
        if let Err(error) = std::fs::remove_file(self.path.with_file_name(&temp)) {
            tracing::warn!(%error, "a temporary could not be removed");
        }
        self.record.remove();
    }

    /// Notes what the source says of the object.
    pub fn set_about(&self, about: &About) {
        *lock(&self.about) = about.clone();
    }

    /// The temporary, and where bytes are in it already.
    fn open(&self, size: Option<u64>) -> Result<(SingleFile, Vec<Range<u64>>), FileError> {
        if let Some(temp) = self.record.temp() {
            match wait_while_busy(|| SingleFile::reopen(&self.path, temp)) {
                Ok(file) => {
                    let left = file.data_ranges().collect::<Result<Vec<_>, _>>().unwrap_or_default();
                    if let Some(size) = size {
                        file.body().set_size(size)?;
                    }
                    return Ok((file, left));
                }
                Err(error @ FileError::Busy { .. }) => return Err(error),
                Err(error) => tracing::debug!(%error, "what was left is gone"),
            }
        }
        let file = SingleFile::create(&self.path, size.unwrap_or(0))?;
        if let Err(error) = self.record.set_temp(file.temp_name()) {
            tracing::warn!(%error, "an interruption now would begin from the front");
        }
        Ok((file, Vec::new()))
    }
}

impl TargetFile for GetFile {
    fn partial(&self) -> &PartialFile {
        &self.partial
    }

    fn describe(&self, about: &About) {
        if *about != About::default() {
            self.set_about(about);
        }
    }

    fn announces(&self) -> Option<Announcing> {
        self.announcing.clone()
    }

    fn stage(&self, size: Option<u64>) -> Result<(FileBody, Vec<Range<u64>>), FileError> {
        let (file, left) = self.open(size)?;
        *lock(&self.temp) = Some(file.temp_name().to_owned());
        let body = file.body().clone();
        *lock(&self.file) = Some(file);
        Ok((body, left))
    }

    fn place(&self, oid: &Oid, values: Vec<Value>) -> Result<(), FileError> {
        let Some(file) = lock(&self.file).take() else { return Ok(()) };
        let about = lock(&self.about).clone();
        let metadata = Metadata {
            // A stranger chose it: the receiver's umask holds.
            mode: about.mode.unwrap_or(DEFAULT_MODE) & !umask(),
            modified: about.modified.unwrap_or_else(now),
            ..Metadata::default()
        };
        let stamp = file.finish(&metadata, &Policy::default(), Overwrite::Never)?;
        self.record.remove();
        remember(&self.store, &self.path, &stamp, oid, values);
        Ok(())
    }
}

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}
