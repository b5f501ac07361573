//! Classes of reading and writing, of the calling thread (`ioprio_set`): the only place here that speaks to the kernel by
//! hand, as neither std nor rustix has the call.

pub(super) use system::*;

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod system {
    /// As the thread's niceness has it.
    pub const NONE: libc::c_long = 0;
    /// Priority for times when nobody else reads or writes: class 3, in the bits above 13.
    pub const IDLE: libc::c_long = 3 << 13;
    /// `IOPRIO_WHO_PROCESS`, which means a thread.
    const THREAD: libc::c_long = 1;
    const THIS: libc::c_long = 0;

    /// Sets the thread's priority. If the kernel refuses or lacks it, the thread reads as any other.
    pub fn set(class: libc::c_long) {
        // SAFETY: the call takes three numbers and touches no memory of this process.
        let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, THREAD, THIS, class) };
    }

    #[cfg(test)]
    pub fn get() -> libc::c_long {
        // SAFETY: the call takes two numbers and touches no memory of this process.
        unsafe { libc::syscall(libc::SYS_ioprio_get, THREAD, THIS) }
    }
}

/// Other systems have no such classes.
#[cfg(not(target_os = "linux"))]
mod system {
    pub const NONE: i64 = 0;
    pub const IDLE: i64 = 1;

    pub fn set(_: i64) {}
}
