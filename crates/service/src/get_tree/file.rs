//! One file of a tree on its way, staged beside its final name.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::pieces::{MIN_LOG2, Value};
use towpath_content::tree::Metadata;
use towpath_files::{FileBody, FileError, Overwrite, RelPath, Staged};
use towpath_transfer::{Announcing, FetchError};

use super::TreeTarget;
use towpath_content::lock::lock;
use towpath_targets::file_target::TargetFile;
use towpath_targets::partial::PartialFile;
use towpath_targets::placing::Begun;
use towpath_words as words;

/// What is known of a file until it is in its place.
pub(super) struct FilePlace {
    pub(super) oid: Oid,
    /// Where it begins in the root's space.
    pub(super) position: u64,
    pub(super) size: u64,
}

/// A file of the tree on its way.
pub(super) struct TreeFile {
    pub(super) tree: Arc<TreeTarget>,
    pub(super) path: RelPath,
    pub(super) metadata: Metadata,
    pub(super) oid: Oid,
    pub(super) position: u64,
    size: u64,
    staged: Mutex<Option<Staged>>,
    partial: PartialFile,
}

impl TreeFile {
    /// The file at `path`.
    pub(super) fn new(
        tree: &Arc<TreeTarget>,
        path: RelPath,
        metadata: Metadata,
        FilePlace { oid, position, size }: FilePlace,
    ) -> Self {
        Self {
            tree: Arc::clone(tree),
            path,
            metadata,
            oid,
            position,
            size,
            staged: Mutex::default(),
            partial: PartialFile::default(),
        }
    }

    /// The session could not bring it, or this side could not write it.
    pub(super) fn ended(&self, error: &FetchError) {
        self.tree.ended(&self.place_of_it(), false);
        match (self.partial.take_failure(), error) {
            (Some(failure), _) => self.tree.problem(&self.path, &failure),
            (None, FetchError::Stalled { .. } | FetchError::Cancelled) => self.tree.stop(words::fetch(error)),
            (None, error) => self.tree.fail(&self.path, &words::fetch(error)),
        }
    }

    const fn place_of_it(&self) -> FilePlace {
        FilePlace { oid: self.oid, position: self.position, size: self.size }
    }

    /// A temporary for it, and where bytes are in it already.
    fn open(&self, size: u64) -> Result<Begun, FileError> {
        let placing = &self.tree.placing;
        let left = placing.left_of(&self.oid, size, |name| placing.destination.staging().reopen(name))?;
        if let Some(left) = left {
            return Ok(left);
        }
        let staged = placing.destination.stage_file(size)?;
        placing.note_part(&self.oid, &staged, size > 1 << MIN_LOG2);
        Ok((staged, Vec::new()))
    }

    /// All of it is at hand.
    pub(super) fn take_whole(&self, content: &[u8]) -> io::Result<()> {
        self.partial.note(self.place_content(content))
    }

    /// Nothing of it is worth keeping if the get is interrupted now.
    fn place_content(&self, content: &[u8]) -> Result<(), FileError> {
        let staged = self.tree.placing.destination.stage_content_for(&self.path, content, false)?;
        self.finish(staged, vec![*self.oid.digest()])
    }

    fn finish(&self, staged: Staged, values: Vec<Value>) -> Result<(), FileError> {
        let (placing, content) = (&self.tree.placing, Some((self.oid, values)));
        let (overwrite, note) = (Overwrite::Never, self.place_of_it());
        let named = placing.commit(staged, &self.path, &self.metadata, overwrite, content, None, note)?;
        self.tree.named(named);
        Ok(())
    }
}

impl TargetFile for TreeFile {
    fn partial(&self) -> &PartialFile {
        &self.partial
    }

    fn announces(&self) -> Option<Announcing> {
        self.tree.holding.as_ref()?.begin(&self.oid, self.position)
    }

    fn stage(&self, size: Option<u64>) -> Result<(FileBody, Vec<Range<u64>>), FileError> {
        let (staged, left) = self.open(size.unwrap_or(0))?;
        let body = staged.body().clone();
        *lock(&self.staged) = Some(staged);
        Ok((body, left))
    }

    fn place(&self, _oid: &Oid, values: Vec<Value>) -> Result<(), FileError> {
        let staged = lock(&self.staged).take();
        staged.map_or(Ok(()), |staged| self.finish(staged, values))
    }

    fn place_whole(&self, _oid: &Oid, content: &[u8]) -> Option<Result<(), FileError>> {
        Some(self.place_content(content))
    }
}
