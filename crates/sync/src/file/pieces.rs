//! A file that the session brings piece by piece, into what an interrupted copy left of it, or beside what is right of the
//! file that it replaces.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_files::{FileBody, FileError};
use towpath_transfer::{Group, ObjectRequest};

use super::CopyFile;
use towpath_targets::base_file::{BaseFile, WORTH_READING};
use towpath_targets::file_target::{FileTarget, TargetFile};
use towpath_targets::partial::PartialFile;

impl CopyFile {
    /// How a session knows it.
    pub fn group(&self) -> Group {
        Group {
            path: self.wanted.shown.clone(),
            size: Some(self.size()),
            modified: Some(self.wanted.metadata.modified),
            destination: self.receiving.opened().map(|placing| self.wanted.path.below(&placing.base)),
            ..Group::default()
        }
    }

    /// A session's request for it by its name.
    pub fn request(self: &Arc<Self>, oid: Oid, group: Group) -> ObjectRequest {
        let (size, target) = ((!oid.is_live()).then(|| self.size()), FileTarget::of(self));
        ObjectRequest { oid, size, group: Arc::new(group), target, recipe: None }
    }

    /// Its temporary has all bytes of this content.
    pub(super) fn finish_staged(&self, content: (Oid, Vec<Value>)) -> Result<(), FileError> {
        let staged = self.state().staged.take();
        staged.map_or(Ok(()), |staged| self.finish(staged, Some(content)))
    }
}

impl TargetFile for CopyFile {
    fn partial(&self) -> &PartialFile {
        &self.partial
    }

    /// A new one shares the bytes of the file that is replaced where the file system can do so.
    fn stage(&self, size: Option<u64>) -> Result<(FileBody, Vec<Range<u64>>), FileError> {
        let body = self.base().begin(size.unwrap_or_else(|| self.size()))?;
        let mut left: Vec<_> = self.state().came.iter().collect();
        if let Some(mut older) = open_base(self) {
            if left.is_empty() && body.share(older.file())? {
                left.push(0..older.in_place());
                older = older.shared();
            }
            self.partial.set_base(older);
        }
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
        self.state().is_sparse
    }

    fn place(&self, oid: &Oid, values: Vec<Value>) -> Result<(), FileError> {
        self.finish_staged((*oid, values))
    }
}

/// The file that it replaces, if that is worth reading; only a help.
fn open_base(file: &CopyFile) -> Option<BaseFile> {
    let old = file.wanted.old.filter(|old| old.size >= WORTH_READING)?;
    if file.receiving.options.whole_file || file.size() < WORTH_READING {
        return None;
    }
    let placing = file.receiving.placing().ok()?;
    let older = placing.destination.open_file(&file.wanted.path, &old).ok()?;
    Some(BaseFile::new(older, old.size, file.size()))
}
