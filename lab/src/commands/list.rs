//! `towpath-lab list`: the scenarios there are.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;

use super::up;
use crate::error::LabError;

/// List scenarios and what each is about
#[derive(Debug, Parser)]
pub struct ListArgs {
    /// Folder that they lie in
    #[arg(value_name = "DIR", default_value = "lab/scenarios")]
    dir: PathBuf,
}

/// Lists them.
pub fn run(args: &ListArgs) -> Result<(), LabError> {
    let entries = fs::read_dir(&args.dir).map_err(LabError::io("reading", &args.dir))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    for path in paths {
        let scenario = up::read(&path)?;
        // A reader that wants no more is no failure.
        let _ = writeln!(io::stdout(), "{:<34} {}", path.display(), scenario.about);
    }
    Ok(())
}
