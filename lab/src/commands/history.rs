//! `towpath-lab history`: figures over commits as a picture.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use thiserror::Error;

use crate::results::{History, HistoryError};

/// Draw the runs of a history, as SVG on standard output
#[derive(Debug, Parser)]
pub struct HistoryArgs {
    /// The runs, as in docs/results/performance/history.txt: COMMIT DATE VALUE FIGURE
    runs: PathBuf,
}

/// Reason why nothing was drawn.
#[derive(Debug, Error)]
pub enum DrawHistoryError {
    /// The file of runs.
    #[error("{path}: {source}")]
    Read {
        /// Path of it.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Its lines.
    #[error("{path}: {source}")]
    Runs {
        /// File with the fault.
        path: PathBuf,
        /// Fault.
        source: HistoryError,
    },
    /// Standard output.
    #[error("cannot write the picture: {0}")]
    Write(#[from] io::Error),
}

/// Draws it.
pub fn run(args: &HistoryArgs) -> Result<(), DrawHistoryError> {
    let path = || args.runs.clone();
    let text =
        fs::read_to_string(&args.runs).map_err(|source| DrawHistoryError::Read { path: path(), source })?;
    let svg = History::parse(&text)
        .and_then(|history| history.draw())
        .map_err(|source| DrawHistoryError::Runs { path: path(), source })?;
    Ok(io::stdout().write_all(svg.as_bytes())?)
}
