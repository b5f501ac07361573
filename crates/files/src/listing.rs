//! The names in a directory, read by its handle.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::io::Errno;

/// Bytes the kernel fills per call; some hundred names.
const BUFFER: usize = 32 * 1024;

/// Calls `each` with every name in `dir` but `.` and `..`, in the order the file system has them.
/// Stops at the first error of either.
pub(crate) fn for_each_name<E: From<Errno>>(
    dir: impl AsFd,
    each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let reader = own_position(dir)?;
    let mut buffer = Vec::<u8>::with_capacity(BUFFER);
    let spare: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
    let mut entries = RawDir::new(&reader, spare);
    while let Some(entry) = entries.next() {
        match entry?.file_name().to_bytes() {
            b"." | b".." => {}
            name => each(name)?,
        }
    }
    Ok(())
}

/// Another handle of the same directory, as reading moves a handle's position.
fn own_position(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
