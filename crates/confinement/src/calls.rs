//! System calls that a service never makes, and that whoever has taken it over would like: to start
//! programs, to reach into other processes, to change what is mounted, to load code into the kernel.
//!
//! It is a list of what is refused. A list of what is allowed would break with each C library.

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads};

use super::ConfinementError;

/// All of them answer "not permitted".
const DENIED: [libc::c_long; 48] = [
    // Starting programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // Mounts and namespaces, which would move the limits on writing elsewhere.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Files by handle, past their directories.
    libc::SYS_open_by_handle_at,
    // Code in the kernel, or what faults in it are often reached by.
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    // Keys of the kernel's.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine as a whole.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_personality,
];

/// Refuses them to this process, all its threads and all that they start, for good. False where
/// neither this program nor the kernel knows how.
pub fn deny_calls() -> Result<bool, ConfinementError> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(false) };
    let program = program(arch).map_err(|source| ConfinementError::Calls { source })?;
    match apply_filter_all_threads(&program) {
        Ok(()) => Ok(true),
        // A kernel that was built without filters.
        Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error))
            if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::NOSYS)) =>
        {
            Ok(false)
        }
        Err(source) => Err(ConfinementError::Calls { source }),
    }
}

fn program(arch: TargetArch) -> Result<BpfProgram, seccompiler::Error> {
    // Without conditions a rule holds for every call of that number.
    let rules: BTreeMap<i64, _> = DENIED.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(Errno::PERM.raw_os_error().unsigned_abs());
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?.try_into()?)
}
