//! Of what a result was made: commit, date and machine.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use rustix::system::uname;
use serde::{Deserialize, Serialize};

/// See above.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Provenance {
    /// The commit, and whether something was changed since.
    pub commit: String,
    /// In UTC.
    pub date: String,
    /// Cores, kernel and congestion control.
    pub machine: String,
    /// Build that was run: a program built for speed, or one for tests.
    pub build: String,
}

impl Provenance {
    /// Of this moment, with this `tow`.
    pub fn now(tow: &Path) -> Self {
        let is_debug = tow.components().any(|part| part.as_os_str() == "debug");
        Self {
            commit: commit(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            machine: machine(),
            build: if is_debug { "debug" } else { "release" }.into(),
        }
    }
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).stdin(Stdio::null()).output().ok()?;
    let is_good = output.status.success();
    is_good.then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> String {
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    // Results of other scenarios may lie there already.
    let changes = git(&["status", "--porcelain", "--", ":/", ":!/docs/results"]);
    match changes.is_some_and(|changes| changes.is_empty()) {
        true => commit,
        false => format!("{commit} (dirty)"),
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let system = uname();
    let control = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    format!(
        "{cores} cores, {} {}, {}, congestion control {} unless a case says otherwise",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy(),
        control.trim()
    )
}
