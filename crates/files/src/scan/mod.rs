//! Reading a tree: depth first, names sorted bytewise within each directory, as a tree descriptor
//! wants them.
//!
//! [`scan`] tells what it finds as it goes: a file comes with its stamp and a way to open it if it
//! is still the same, so that the caller decides when (and whether) to read it. What cannot be
//! read is told too and the scan goes on; a directory that cannot be opened is told as empty.
//! Symbolic links are not followed unless asked for. FIFOs, sockets and devices are told for what they are.
//!
//! Memory and descriptors are bounded: names of all open directories together are held up to a
//! budget, further ones in one scratch file (`names`, `spill`); the deepest directories stay open
//! and outer ones are opened again on the way back, checked by device and inode (`stack`).
//!
//! [`SourceTree`] holds a root for scans and opens its files long after, when someone asks for them.
//! [`scan_pruned`] and [`SourceTree::scan_below`] let a [`Prune`] hide entries before anything of
//! them is read, and number hard links over several scans ([`HardLinks`]). [`look`] is for one
//! thing that a user named; [`DirNames`] for one directory that is merged with another list.

mod arena;
mod found;
mod hard_links;
mod look;
mod names;
mod prune;
mod source;
mod spill;
mod stack;
mod walk;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

pub use found::{Found, ScannedFile};
pub use hard_links::HardLinks;
pub use look::look;
pub use names::DirNames;
pub use prune::Prune;
pub use source::SourceTree;

pub(crate) use found::{check_same, open_regular};
pub(crate) use stack::Stack;

use crate::confine::{Links, open_root};
use crate::error::FileError;
use crate::metadata::Which;
use crate::path::RelPath;
use walk::{ScanWalk, WalkedTree};

/// Options of a scan: what it is allowed to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOptions {
    /// Bytes of names held in memory, of all directories being read together; about twice as much
    /// is used. Default 16 MiB, some 400,000 names.
    pub names_budget: usize,
    /// Directory for names that are too many: they go to a file without a name in it, made only
    /// when needed. Default: the system's directory for temporary files.
    pub scratch: PathBuf,
    /// Directories on another device than the scan's first are told and not read. Default: read.
    pub one_file_system: bool,
    /// A symbolic link below the root is told as what it points to, wherever that is; one that
    /// points nowhere is told as failed. Default: as a link.
    pub follow_links: bool,
    /// Extended attributes are read: by root all but those of `system.`, by everyone else those of
    /// `user.`. Default: none.
    pub xattrs: bool,
    /// POSIX ACLs are read, as attributes `system.posix_acl_*`. Default: none.
    pub acls: bool,
    /// Owners have the names they have here. Default: only numbers.
    pub owner_names: bool,
    /// Names of one inode get the number of their group. Default: none.
    pub hard_links: bool,
    /// Regular files come with the way to their bytes (default).
    pub files: bool,
}

impl ScanOptions {
    pub(crate) const fn which_attributes(&self) -> Which {
        Which { xattrs: self.xattrs, acls: self.acls }
    }

    pub(crate) const fn links(&self) -> Links {
        if self.follow_links { Links::Follow } else { Links::Refuse }
    }
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            names_budget: 16 << 20,
            scratch: std::env::temp_dir(),
            one_file_system: false,
            follow_links: false,
            xattrs: false,
            acls: false,
            owner_names: false,
            hard_links: false,
            files: true,
        }
    }
}

/// One step of a scan. Without [`Scanned::Failed`], the steps are those of a tree descriptor
/// ([`towpath_content::tree::Event`]) whose files have no OID yet; the first is the root.
#[derive(Debug)]
pub enum Scanned {
    /// A directory begins.
    Enter(Found),
    /// Anything that is not a directory.
    Leaf(Found),
    /// The innermost open directory ends.
    Leave,
    /// Something below the innermost open directory, or its own list of names, could not be read
    /// and is left out. Whoever deletes what a scan does not show must stop at this.
    Failed(FileError),
}

/// Error that ended a scan early.
#[derive(Debug, Error)]
pub enum ScanError<E> {
    /// The root could not be read.
    #[error(transparent)]
    Root(FileError),
    /// The visitor returned this.
    #[error("{0}")]
    Stopped(E),
}

/// Walks the tree below `root` and calls `visit` with each step.
///
/// `root` is the user's own word: if it is a symbolic link to a directory, that directory is read;
/// a caller who wants to carry the link itself takes a [`look`] before. A root that is not a
/// directory is an error.
pub fn scan<E>(
    root: &Path,
    options: &ScanOptions,
    visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
) -> Result<(), ScanError<E>> {
    let handle = open_root(root).map_err(|e| ScanError::Root(FileError::new("open", root, e)))?;
    scan_held(root, Arc::new(handle), options, visit)
}

/// [`scan`], with entries hidden by `prune` and hard links numbered by `links`.
pub fn scan_pruned<E>(
    root: &Path,
    options: &ScanOptions,
    links: &mut HardLinks,
    prune: &mut dyn Prune,
    visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
) -> Result<(), ScanError<E>> {
    let handle = open_root(root).map_err(|e| ScanError::Root(FileError::new("open", root, e)))?;
    let tree = WalkedTree { root, handle: Arc::new(handle), at: RelPath::root(), options };
    walk(tree, links, Some(prune), visit)
}

/// Walks the tree below the held directory `handle`, whose path is for messages.
pub(crate) fn scan_held<E>(
    root: &Path,
    handle: Arc<OwnedFd>,
    options: &ScanOptions,
    visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
) -> Result<(), ScanError<E>> {
    let tree = WalkedTree { root, handle, at: RelPath::root(), options };
    walk(tree, &mut HardLinks::default(), None, visit)
}

fn walk<'a, E>(
    tree: WalkedTree<'a>,
    links: &'a mut HardLinks,
    prune: Option<&'a mut dyn Prune>,
    visit: &'a mut dyn FnMut(Scanned) -> Result<(), E>,
) -> Result<(), ScanError<E>> {
    let mut walk = ScanWalk::start(tree, links, prune, visit)?;
    while walk.step()? {}
    Ok(())
}
