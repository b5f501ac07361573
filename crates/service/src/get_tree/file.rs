//! One file of a tree on its way: a target that is staged beside its final name.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_content::tree::Metadata;
use towpath_files::{FileError, Overwrite, RelPath, Staged};
use towpath_store::About;
use towpath_transfer::following::BaseReader;
use towpath_transfer::{FetchError, Target};

use super::TreeTarget;
use towpath_content::lock::lock;
use towpath_targets::base_file::BaseFile;
use towpath_targets::partial::PartialFile;
use towpath_targets::placing::Begun;
use towpath_words as words;

/// A file of the tree on its way.
pub(super) struct TreeFile {
    pub(super) tree: Arc<TreeTarget>,
    pub(super) path: RelPath,
    pub(super) metadata: Metadata,
    pub(super) oid: Oid,
    is_large: bool,
    staged: Mutex<Option<Staged>>,
    partial: PartialFile,
}

impl TreeFile {
    /// The file at `path`, of `size` bytes.
    pub(super) fn new(
        tree: &Arc<TreeTarget>,
        path: RelPath,
        metadata: Metadata,
        oid: Oid,
        size: u64,
    ) -> Self {
        let is_large = size > 1 << towpath_content::pieces::MIN_LOG2;
        Self {
            tree: Arc::clone(tree),
            path,
            metadata,
            oid,
            is_large,
            staged: Mutex::default(),
            partial: PartialFile::default(),
        }
    }

    /// There is what may be an older version of it.
    pub(super) fn set_base(&self, older: BaseFile) {
        self.partial.set_base(older);
    }

    /// Bytes of that which were taken over in their places.
    pub(super) fn drawn(&self) -> u64 {
        self.partial.drawn()
    }

    /// The session could not bring it, or this side could not write it.
    pub(super) fn ended(&self, error: &FetchError) {
        match (self.partial.take_failure(), error) {
            (Some(failure), _) => self.tree.problem(&self.path, &failure),
            (None, FetchError::Stalled { .. } | FetchError::Cancelled) => self.tree.stop(words::fetch(error)),
            (None, error) => self.tree.fail(&self.path, &words::fetch(error)),
        }
    }

    /// A temporary for it, and where bytes are in it already.
    fn open(&self, size: u64) -> Result<Begun, FileError> {
        let placing = &self.tree.placing;
        let left = placing.left_of(&self.oid, size, |name| placing.destination.staging().reopen(name))?;
        if let Some(left) = left {
            return Ok(left);
        }
        let staged = placing.destination.stage_file(size)?;
        placing.note_part(&self.oid, &staged, self.is_large);
        Ok((staged, Vec::new()))
    }

    /// All of it is at hand: nothing of it is worth keeping if the get is interrupted now.
    pub(super) fn take_whole(&self, content: &[u8]) -> io::Result<()> {
        let destination = &self.tree.placing.destination;
        let taken = destination.stage_content_for(&self.path, content, false).and_then(|staged| {
            *lock(&self.staged) = Some(staged);
            self.finish(vec![*self.oid.digest()])
        });
        self.partial.note(taken)
    }

    fn finish(&self, values: Vec<Value>) -> Result<(), FileError> {
        let Some(staged) = lock(&self.staged).take() else { return Ok(()) };
        let (placing, content) = (&self.tree.placing, Some((self.oid, values)));
        let named =
            placing.commit(staged, &self.path, &self.metadata, Overwrite::Never, content, None, ())?;
        self.tree.named(named);
        Ok(())
    }
}

impl Target for TreeFile {
    fn begin(&self, size: Option<u64>, _about: &About) -> io::Result<()> {
        let (staged, left) = self.partial.note(self.open(size.unwrap_or(0)))?;
        self.partial.begin(staged.body(), left);
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

    fn base(&self) -> Option<&dyn BaseReader> {
        self.partial.base()
    }

    fn base_is_cold(&self) -> bool {
        self.partial.base_is_cold()
    }

    fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.partial.keep(offset, bytes, || self.write(offset, bytes))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.partial.write(offset, bytes, false)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.partial.write_zeros(&range)
    }

    fn take(&self, _oid: &Oid, bytes: &[u8], _about: &About) -> io::Result<()> {
        self.take_whole(bytes)
    }

    fn complete(&self, _oid: &Oid, _size: u64, values: Vec<Value>) -> io::Result<()> {
        self.partial.note(self.finish(values))
    }
}
