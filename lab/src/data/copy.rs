//! Copies of files and trees, for what a receiver has before a transfer.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Treatment of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// They are those of the original.
    Kept,
    /// They are of now, as of something new.
    New,
}

/// Copies a file or a tree to where nothing is.
pub fn copy(from: &Path, to: &Path, times: Times) -> io::Result<()> {
    cp(if times == Times::Kept { &["-a"] } else { &["-r", "--no-preserve=timestamps"] }, from, to)
}

/// The same files under other names if both places are of one file system, or else copies.
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    let parent = to.parent().unwrap_or(to);
    let is_one = fs::metadata(from)?.dev() == fs::metadata(parent)?.dev();
    cp(if is_one { &["-al"] } else { &["-a"] }, from, to)
}

fn cp(how: &[&str], from: &Path, to: &Path) -> io::Result<()> {
    let mut command = Command::new("cp");
    let output = command.args(how).arg("--").args([from, to]).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
