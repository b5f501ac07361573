//! Reading a tree: depth first, names sorted bytewise within each directory, as a tree descriptor
//! wants them.
//!
//! [`scan`] tells what it finds as it goes: a file comes with its stamp and a way to open it if it
//! is still the same, so that the caller decides when (and whether) to read it. What cannot be
//! read is told too and the scan goes on; a directory that cannot be opened is told as empty.
//! Symbolic links are never followed. FIFOs, sockets and devices are told for what they are.
//!
//! Memory and descriptors are bounded: names of all open directories together are held up to a
//! budget, further ones in one scratch file (`names`, `spill`); the deepest directories stay open
//! and outer ones are opened again on the way back, checked by device and inode (`walk`).
//!
//! [`SourceTree`] holds a root for a scan and opens its files long after, when someone asks for them.

mod arena;
mod found;
mod names;
mod source;
mod spill;
mod walk;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

pub use found::{Found, ScannedFile};
pub use source::SourceTree;

use crate::confine::open_root;
use crate::error::FileError;
use walk::Walk;

/// What a scan is allowed to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanOptions {
    /// Bytes of names held in memory, of all directories being read together; about twice as much
    /// is used. Default 16 MiB, some 400,000 names.
    pub names_budget: usize,
    /// Where the names go that are too many: a file without a name in this directory, made only
    /// when needed. Default: the system's directory for temporary files.
    pub scratch: PathBuf,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { names_budget: 16 << 20, scratch: std::env::temp_dir() }
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

/// Why a scan ended early.
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
/// a caller who wants to carry the link itself looks before. No link below it is followed. A root
/// that is not a directory is an error.
pub fn scan<E>(
    root: &Path,
    options: &ScanOptions,
    visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
) -> Result<(), ScanError<E>> {
    let handle = open_root(root).map_err(|e| ScanError::Root(FileError::new("open", root, e)))?;
    scan_held(root, Arc::new(handle), options, visit)
}

/// Walks the tree below the held directory `handle`, whose path is for messages.
pub(crate) fn scan_held<E>(
    root: &Path,
    handle: Arc<OwnedFd>,
    options: &ScanOptions,
    visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
) -> Result<(), ScanError<E>> {
    let mut walk = Walk::start(root, handle, options, visit)?;
    while walk.step()? {}
    Ok(())
}
