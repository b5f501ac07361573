//! Data in memory: file systems vary tenfold from run to run, and a network without limits shows it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::LabError;
use crate::namespace::run;
use crate::net::registry::Registration;

/// A file system in memory. Dropped, it is gone, and with it what is in it.
pub struct MemorySampler {
    dir: PathBuf,
    /// Takes it down, also when this process is told to end or dies.
    _registration: Registration,
}

impl MemorySampler {
    /// Makes it.
    pub fn new() -> Result<Self, LabError> {
        let registration = Registration::new()?;
        let dir = registration.files()?.join("memory");
        fs::create_dir(&dir).map_err(LabError::io("making", &dir))?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=90%", "tmpfs"]).arg(&dir))?;
        Ok(Self { dir, _registration: registration })
    }

    /// Path of it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
