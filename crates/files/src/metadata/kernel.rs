//! Names of attributes by directory and name (`listxattrat`, Linux 6.13): the only place here that speaks to the kernel
//! by hand, as neither rustix nor libc has the call.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// The names of all extended attributes of `name` in `dir`, each ended by NUL, in the front of `list`. Holds and opens
/// nothing and follows no link. [`Errno::NOSYS`] where the system has no such call, or a sandbox forbids it.
pub(super) fn attribute_names<'l>(
    dir: BorrowedFd<'_>,
    name: &[u8],
    list: &'l mut [u8],
) -> Result<&'l [u8], Errno> {
    let len = system::list(dir, name, list)?;
    list.get(..len).ok_or(Errno::RANGE)
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    target_pointer_width = "64"
)))]
mod system {
    use std::os::fd::BorrowedFd;

    use rustix::io::Errno;

    pub(super) fn list(_: BorrowedFd<'_>, _: &[u8], _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    target_pointer_width = "64"
))]
#[allow(unsafe_code)]
mod system {
    use std::ffi::CStr;
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::io::Errno;
    use rustix::path::Arg;

    /// Its number, the same on these machines.
    const LISTXATTRAT: libc::c_long = 465;

    /// It was asked for once, and was not there.
    static IS_MISSING: AtomicBool = AtomicBool::new(false);

    pub(super) fn list(dir: BorrowedFd<'_>, name: &[u8], list: &mut [u8]) -> Result<usize, Errno> {
        if IS_MISSING.load(Ordering::Relaxed) {
            return Err(Errno::NOSYS);
        }
        let listed = name.into_with_c_str(|name| call(dir, name, list));
        // A sandbox may answer EPERM to a call it does not know; the call itself never does.
        if let Err(Errno::NOSYS | Errno::PERM) = listed {
            IS_MISSING.store(true, Ordering::Relaxed);
            return Err(Errno::NOSYS);
        }
        listed
    }

    fn call(dir: BorrowedFd<'_>, name: &CStr, list: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: `dir` is open and `name` ends with NUL for as long as the call takes, and the kernel writes at most
        // `list.len()` bytes to `list`, which is that large. An unknown call writes nothing.
        let result = unsafe {
            libc::syscall(
                LISTXATTRAT,
                dir.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
                list.as_mut_ptr(),
                list.len(),
            )
        };
        usize::try_from(result).map_err(|_| {
            let errno = io::Error::last_os_error().raw_os_error();
            Errno::from_raw_os_error(errno.unwrap_or(libc::EIO))
        })
    }
}
