//! `towpath-lab report`: tables and plots again, of rows that runs kept.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;

use super::run::{RunError, command_line, name_of};
use super::up;
use crate::results::{Report, ReportAbout};
use crate::runner::{Plan, PlannedChanges};

/// Make a scenario's table and plot of rows that runs of it kept
///
/// So cases that ran one at a time, or on different days, come into one. Writes NAME.md, NAME.svg and
/// NAME.jsonl, as `run` does.
#[derive(Debug, Parser)]
pub struct ReportArgs {
    /// The scenario's file
    scenario: PathBuf,
    /// NAME.jsonl of its runs
    #[arg(required = true, value_name = "ROWS.jsonl")]
    rows: Vec<PathBuf>,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "docs/results/lab")]
    out: PathBuf,
}

/// Makes them.
pub fn run(args: &ReportArgs) -> Result<(), RunError> {
    let scenario = up::read(&args.scenario)?;
    let wrong = |source| RunError::Plan { path: args.scenario.clone(), source };
    let plan = Plan::of(&scenario, false, &PlannedChanges::default()).map_err(wrong)?;
    let rows = args.rows.iter().map(|path| Report::read(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let mut report = Report::create(&args.out, &name_of(&args.scenario))?;
    rows.iter().try_for_each(|row| report.keep(row))?;
    let about = ReportAbout {
        text: &scenario.about,
        command: &command_line(),
        against: &plan.against,
        plot: plan.plot,
    };
    let table = report.finish(&about, &rows)?;
    // A reader that wants no more is no failure.
    let _ = writeln!(io::stdout(), "{table}");
    Ok(())
}
