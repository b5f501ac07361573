//! Choice of the Python that has a module. Distributions install modules for their own, which may not be the first
//! in PATH.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::place::find;

/// A Python that can import the module.
pub fn with_module(module: &str) -> Option<PathBuf> {
    let candidates = [find("python3"), Some(PathBuf::from("/usr/bin/python3"))];
    candidates.into_iter().flatten().find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", &format!("import {module}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}
