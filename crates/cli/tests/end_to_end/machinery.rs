//! Requirements of a situation on this machine: programs, and rights of root.
//!
//! `scripts/test-tools.sh` installs the programs. A situation is skipped where something is
//! missing; in CI, where `CI` is set, a missing program is a failure.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::environment::{TOW, TestEnvironment};
use crate::runner::skip;

/// Folders that programs are in, those of the system's administrator too.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// A user with no rights at all.
const NOBODY: &str = "65534";

/// A program that may be missing.
pub fn tool(name: &str) -> PathBuf {
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    match paths.into_iter().find(|path| path.exists()) {
        Some(path) => path,
        None if std::env::var_os("CI").is_some() => panic!("{name} is missing, and CI skips nothing"),
        None => skip(&format!("needs {name} (scripts/test-tools.sh installs it)")),
    }
}

/// True if the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Words that start `tow` as somebody who is not root; what there is becomes theirs.
pub fn unprivileged(env: &TestEnvironment) -> Vec<String> {
    if !is_root() {
        return vec![TOW.into()];
    }
    let setpriv = tool("setpriv").display().to_string();
    // The folder where it was built may be out of their reach.
    let program = env.dir().join("tow");
    fs::hard_link(TOW, &program).or_else(|_| fs::copy(TOW, &program).map(drop)).unwrap();
    fs::set_permissions(env.dir(), fs::Permissions::from_mode(0o711)).unwrap();
    for machine in [&env.sender, &env.receiver] {
        give_to_nobody(&machine.path(""));
        give_to_nobody(&machine.home(""));
    }
    let rights = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"].map(Into::into);
    [vec![setpriv], rights.to_vec(), vec![program.display().to_string()]].concat()
}

/// Changes its owner, and that of all below.
pub fn give_to_nobody(path: &Path) {
    let status = Command::new("chown").args(["-hR", &format!("{NOBODY}:{NOBODY}")]).arg(path).status();
    assert!(status.unwrap().success());
}

/// A small file system that is gone with this value.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts one.
    pub fn tmpfs(path: &Path, options: &str) -> Self {
        if !is_root() {
            skip("needs root, to mount a small file system");
        }
        fs::create_dir_all(path).unwrap();
        let words = ["-t", "tmpfs", "-o", options, "tmpfs"];
        let mounted = Command::new("mount").args(words).arg(path).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            skip("this root may not mount file systems");
        }
        Self(path.into())
    }

    /// Changes its options.
    pub fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// The name of its program.
    pub name: String,
    parent: u32,
    started: u64,
}

impl Process {
    fn read(id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let rest: Vec<&str> = rest.split_whitespace().collect();
        // Ended, and nobody has looked yet.
        if rest[0] == "Z" {
            return None;
        }
        let name = head.split_once('(')?.1.into();
        Some(Self { id, name, parent: rest[1].parse().ok()?, started: rest[19].parse().ok()? })
    }

    /// True if it still runs.
    pub fn runs(&self) -> bool {
        Self::read(self.id).is_some_and(|now| now.started == self.started)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.id as i32).unwrap(), signal).unwrap();
    }
}

/// Everything that this process started, and what that started.
pub fn descendants(id: u32) -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let all: Vec<Process> = ids.filter_map(Process::read).collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![id];
    while let Some(parent) = parents.pop() {
        let children: Vec<_> = all.iter().filter(|process| process.parent == parent).cloned().collect();
        parents.extend(children.iter().map(|process| process.id));
        found.extend(children);
    }
    found
}

/// Ends what another thread of a situation does, also when something else fails.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
