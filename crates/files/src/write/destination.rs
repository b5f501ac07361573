//! A tree being written: one held root, everything else by names below it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use towpath_content::tree::Metadata;

use super::access::{make_accessible, open_accessible};
use super::area::StagingArea;
use super::backup::BackupMover;
use super::directories::{Made, TreeDirs};
use super::folding::NameFolding;
use super::nodes::NodeMaker;
use super::place::Overwrite;
use super::queue::{BeforeNaming, Commits, FlushLimits, Placed, Queued};
use super::remove::TreeRemover;
use super::staging::Staged;
use super::tree::WrittenTree;
use crate::confine::open_root;
use crate::error::FileError;
use crate::metadata::{HeldMetadata, Now, Policy, apply_to};
use crate::names::check_name;
use crate::path::RelPath;
use crate::scan::{ScanError, ScanOptions, Scanned, scan_held};
use crate::stamp::Stamp;

/// Options of writing a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Directories that are already there are taken for those of an interrupted run. Default: they
    /// are errors. Always so for [`Destination::open`].
    pub resume: bool,
    /// Metadata that are applied.
    pub policy: Policy,
    /// Limits at which commits flush by themselves.
    pub flush: FlushLimits,
}

/// A tree being written. Any thread may call any method.
///
/// The end of a transfer: [`flush`](Self::flush), [`StagingArea::remove`],
/// [`finish_dir`](Self::finish_dir) for every directory, innermost first and the root last, then
/// [`sync`](Self::sync). Dropping it keeps the staging directory and what is in it.
#[derive(Debug)]
pub struct Destination {
    pub(super) tree: Arc<WrittenTree>,
    pub(super) commits: Arc<Commits>,
    pub(super) directories: TreeDirs,
}

impl Destination {
    /// Makes the directory `path`, whose parent must be there. With `resume` it may be there too,
    /// but not as a symbolic link.
    pub fn create(path: &Path, options: WriteOptions) -> Result<Self, FileError> {
        let failed = |e| FileError::new("create", path, e);
        let (parent, name) = split_user_path(path)?;
        let parent = open_root(parent).map_err(|e| FileError::new("open", parent, e))?;
        let made = match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => Made::New,
            Err(Errno::EXIST) if options.resume => Made::Existing,
            Err(error) => return Err(failed(error)),
        };
        let (root, had) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        let to = Self::new(path, root, made, options);
        to.directories.note(&RelPath::root(), made, had);
        Ok(to)
    }

    /// Makes the directory `path`, which must not be there, and writes into it as [`Self::open`] does. What is made
    /// for an entry of the tree (`is_entry`) is its owner's alone until [`finish_dir`](Self::finish_dir); else the
    /// umask decides.
    pub fn make(path: &Path, is_entry: bool, options: WriteOptions) -> Result<Self, FileError> {
        let failed = |e| FileError::new("create", path, e);
        let (parent, name) = split_user_path(path)?;
        let parent = open_root(parent).map_err(|e| FileError::new("open", parent, e))?;
        let (mode, made) =
            if is_entry { (Mode::RWXU, Made::New) } else { (Mode::from_raw_mode(0o777), Made::Existing) };
        mkdirat(&parent, name, mode).map_err(failed)?;
        // Not by its path again, which may be another's by now.
        let (root, mut had) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        if let Some(umask) = options.policy.umask.filter(|_| !is_entry) {
            HeldMetadata::Open(root.as_fd()).set_mode(0o777 & !umask).map_err(failed)?;
            had = make_accessible(HeldMetadata::Open(root.as_fd())).map_err(failed)?;
        }
        let to = Self::new(path, root, made, WriteOptions { resume: true, ..options });
        to.directories.note(&RelPath::root(), made, had);
        Ok(to)
    }

    /// Writes into the directory `path`, a symbolic link to one included; directories in it that
    /// have the tree's names are written into as well.
    pub fn open(path: &Path, options: WriteOptions) -> Result<Self, FileError> {
        let root = open_root(path).map_err(|e| FileError::new("open", path, e))?;
        Ok(Self::new(path, root, Made::Existing, WriteOptions { resume: true, ..options }))
    }

    fn new(path: &Path, root: OwnedFd, made: Made, options: WriteOptions) -> Self {
        let tree = Arc::new(WrittenTree::new(path, root, options.policy));
        let commits = Arc::new(Commits::new(options.flush));
        let directories = TreeDirs::new(Arc::clone(&tree), Arc::clone(&commits), made, options.resume);
        Self { tree, commits, directories }
    }

    /// Content of staging directories, for who resumes and who ends.
    pub const fn staging(&self) -> StagingArea<'_> {
        StagingArea { to: self }
    }

    /// Makes what is no file and no directory.
    pub fn nodes(&self) -> NodeMaker<'_> {
        NodeMaker { tree: &self.tree }
    }

    /// Moves things out of the way.
    pub const fn backups(&self) -> BackupMover<'_> {
        BackupMover { to: self }
    }

    /// Removes what is there.
    pub fn removal(&self) -> TreeRemover<'_> {
        TreeRemover { tree: &self.tree, directories: &self.directories }
    }

    /// Tells which names the file system takes for one.
    pub fn folding(&self) -> NameFolding<'_> {
        NameFolding { tree: &self.tree }
    }

    /// A new temporary file of `size` bytes, all of them a hole.
    pub fn stage_file(&self, size: u64) -> Result<Staged, FileError> {
        self.tree.staging.of_root()?.stage(size)
    }

    /// A complete temporary file, in the file system that `path` lies in: one whose bytes are all at hand
    /// takes fewer steps than one that grows.
    pub fn stage_content_for(&self, path: &RelPath, bytes: &[u8], sparse: bool) -> Result<Staged, FileError> {
        self.tree.staging_for(path)?.stage_content(bytes, sparse)
    }

    /// A new temporary file of `size` bytes, all of them a hole, in the file system that `path`
    /// lies in.
    pub fn stage_file_for(&self, path: &RelPath, size: u64) -> Result<Staged, FileError> {
        self.tree.staging_for(path)?.stage(size)
    }

    /// A complete file takes its metadata now, and the name `path` at the next flush. If
    /// [`FlushLimits`] are reached that is now, and the outcomes of all that waited are returned.
    ///
    /// The file is closed, unless a clone of its body lives on. On an error its temporary stays.
    pub fn commit(
        &self,
        staged: Staged,
        path: RelPath,
        metadata: &Metadata,
        overwrite: Overwrite,
    ) -> Result<Vec<Placed>, FileError> {
        self.commit_after(None, staged, path, metadata, overwrite)
    }

    /// [`Self::commit`] with something to do right before the file takes its name.
    pub fn commit_after(
        &self,
        before_naming: Option<BeforeNaming>,
        staged: Staged,
        path: RelPath,
        metadata: &Metadata,
        overwrite: Overwrite,
    ) -> Result<Vec<Placed>, FileError> {
        self.tree.spot(&path)?;
        let Staged { body, name: temp, staging, is_plain } = staged;
        let before = self.tree.mode_to_keep(&path, overwrite);
        let failed = |e| FileError::new("set metadata of", &path.below(self.path()), e);
        let (held, policy) = (HeldMetadata::Open(body.file().as_fd()), &self.tree.policy);
        let now = Now { stat: held.stat().map_err(failed)?, is_plain };
        let lacking = apply_to(held, &now, metadata, policy, before).map_err(failed)?;
        // Its inode and its size; the rest is looked at when it has its name.
        let seen = Stamp::from_stat(&now.stat);
        let file = Queued { temp, staging, path, seen, overwrite, lacking, before: before_naming };
        let due = self.commits.push(file, body);
        Ok(if due { self.flush() } else { Vec::new() })
    }

    /// Stamp of what has the name `path` now, or [`FileError::Vanished`].
    pub fn stamp_at(&self, path: &RelPath) -> Result<Stamp, FileError> {
        self.tree.stamp_at(path)
    }

    /// Syncs everything that was committed and gives it its final names.
    ///
    /// Each file has its own outcome; one that fails does not hold back the others, unless the
    /// sync itself fails: then none of them is named.
    pub fn flush(&self) -> Vec<Placed> {
        self.commits.flush(&self.tree)
    }

    /// Makes the directory `path`, whose parent must have been made. The root is there already.
    ///
    /// One that is there and belongs to this user becomes readable and writable to its owner until
    /// [`finish_dir`](Self::finish_dir) or [`keep_dir`](Self::keep_dir).
    pub fn make_dir(&self, path: &RelPath) -> Result<Made, FileError> {
        self.directories.make(path)
    }

    /// Makes the directory `path` in the place of something else that has the name, which stays in the staging
    /// directory until that is removed: nothing goes before what replaces it is there.
    pub fn put_dir_in_place_of(&self, path: &RelPath) -> Result<(), FileError> {
        self.directories.put_in_place_of(path)
    }

    /// Sets the metadata of a directory whose entries are all in place: the flush that named them
    /// has returned. While files that were committed into it wait it is [`FileError::Busy`]. If
    /// something could not be set, the rest is, and that is the error.
    pub fn finish_dir(&self, path: &RelPath, metadata: &Metadata) -> Result<(), FileError> {
        self.directories.finish(path, metadata)
    }

    /// Gives a directory that gets no new metadata the mode back that it had before
    /// [`make_dir`](Self::make_dir) made it accessible; a new one gets that of the umask.
    pub fn keep_dir(&self, path: &RelPath) -> Result<(), FileError> {
        self.directories.keep(path)
    }

    /// [`scan`](crate::scan()) of the held root, which shows the staging directory too.
    pub fn scan<E>(
        &self,
        options: &ScanOptions,
        visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
    ) -> Result<(), ScanError<E>> {
        scan_held(self.path(), Arc::clone(self.tree.dirs().root()), options, visit)
    }

    /// Waits until all that was written, names and metadata included, is on disk.
    pub fn sync(&self) -> Result<(), FileError> {
        self.tree.staging.sync().map_err(|e| FileError::new("sync", self.path(), e))
    }

    /// The path it was opened by, for messages.
    pub fn path(&self) -> &Path {
        self.tree.path()
    }
}

/// The parent and the last name of a path the user gave.
pub(super) fn split_user_path(path: &Path) -> Result<(&Path, &[u8]), FileError> {
    let refuse = |why| FileError::outside("create", path, why);
    let name = path.file_name().ok_or_else(|| refuse("no name at its end"))?.as_bytes();
    check_name(name).map_err(refuse)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")), name))
}
