//! `towpath-lab chart`: a table of a page of results as a picture.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use thiserror::Error;

use crate::results::{Chart, ChartError};

/// Draw columns of a table in a page, as SVG on standard output
#[derive(Debug, Parser)]
pub struct ChartArgs {
    /// The page, as in docs/results/delta.md
    page: PathBuf,
    /// A part of the heading above the table
    #[arg(long, value_name = "TEXT")]
    under: String,
    /// A column; may be given several times
    #[arg(long = "column", required = true, value_name = "NAME")]
    columns: Vec<String>,
    /// Title above the picture
    #[arg(long, value_name = "TEXT")]
    title: String,
    /// Unit of the numbers
    #[arg(long, value_name = "TEXT", default_value = "bytes")]
    unit: String,
}

/// Reason why nothing was drawn.
#[derive(Debug, Error)]
#[error("{path}: {source}")]
pub struct PageError {
    /// The page.
    path: PathBuf,
    /// Fault.
    source: Cause,
}

/// Fault of a page.
#[derive(Debug, Error)]
enum Cause {
    /// It can't be read, or the picture not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It has not what is asked for.
    #[error(transparent)]
    Chart(#[from] ChartError),
}

/// Draws it.
pub fn run(args: &ChartArgs) -> Result<(), PageError> {
    let chart = Chart { title: &args.title, unit: &args.unit, under: &args.under, columns: &args.columns };
    let drawn = || -> Result<(), Cause> {
        let svg = chart.draw(&fs::read_to_string(&args.page)?)?;
        Ok(io::stdout().write_all(svg.as_bytes())?)
    };
    drawn().map_err(|source| PageError { path: args.page.clone(), source })
}
