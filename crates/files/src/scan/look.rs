//! A look at one thing that a user named.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::ScanOptions;
use super::found::Found;
use crate::confine::open_root;
use crate::error::FileError;
use crate::names::check_name;

/// Looks at `path`, the user's own word: links on the way are followed, and its last component
/// too if the options say so or the path ends with a slash. The entry has the name of the last
/// component as it was given; `/`, `.` and `..` have none.
pub fn look(path: &Path, options: &ScanOptions) -> Result<Found, FileError> {
    let failed = |e| FileError::new("look at", path, e);
    let shown = || path.to_path_buf();
    let name = path.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    if check_name(name).is_err() || names_a_directory(path) {
        let dir = open_root(path).map_err(failed)?;
        return Found::directory(dir.as_fd(), name, &shown, options).map_err(failed);
    }
    let dir = open_parent(path).map_err(failed)?;
    Found::look(&dir, name, &shown, options).map_err(failed)
}

fn names_a_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

fn open_parent(path: &Path) -> Result<Arc<OwnedFd>, Errno> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    open_root(parent.unwrap_or(Path::new("."))).map(Arc::new)
}
