//! `towpath-lab run`: scenarios, one after the other, and their results.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Parser;
use thiserror::Error;

use super::up;
use crate::data::{DataError, DataStore};
use crate::error::LabError;
use crate::programs;
use crate::results::{Provenance, Report, ReportAbout, ResultsError, Row, RunOutcome};
use crate::runner::{Chosen, LabRun, Plan, PlanError, PlannedChanges};

/// Run scenarios: every program on the same data in turn, measured and checked
///
/// Prints a table, and writes NAME.md (the table), NAME.svg (the plot) and NAME.jsonl (a row for each
/// transfer). Programs that are not installed are named and left out. Exit status 1 if a transfer
/// failed or brought a wrong result.
#[derive(Debug, Parser)]
pub struct RunArgs {
    /// Scenario files, as in lab/scenarios
    #[arg(required = true, value_name = "SCENARIO.toml")]
    scenarios: Vec<PathBuf>,
    /// Run what [run.short] says: less data, fewer cases
    #[arg(long)]
    short: bool,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "docs/results/lab")]
    out: PathBuf,
    /// Number of repetitions of each transfer
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
    /// Only this program; may be given several times [default: those of the scenario]
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<String>,
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// These data, as in 'random 4k'; may be given several times
    #[arg(long = "data", value_name = "LINE")]
    data: Vec<String>,
    /// The program tow [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    tow: Option<PathBuf>,
    #[command(flatten)]
    store: super::data::StoreArgs,
}

/// Reason why a run was not begun or not finished.
#[derive(Debug, Error)]
pub enum RunError {
    /// Its `[run]` table, or the words that change it.
    #[error("{path}: {source}")]
    Plan {
        /// Of which file.
        path: PathBuf,
        /// Fault.
        source: PlanError,
    },
    /// `tow` is not there.
    #[error("{0}: there is no tow; build it (cargo build --release --package towpath) or name it by --tow")]
    NoTow(PathBuf),
    /// None of the programs is installed.
    #[error("none of the programs is here; `towpath-lab deps` lists what is missing")]
    NoProgram,
    /// Some transfers did not succeed.
    #[error("{failed} of {all} transfers failed; the table tells why")]
    Failed {
        /// Number of them.
        failed: usize,
        /// Of how many.
        all: usize,
    },
    /// The network.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The results.
    #[error(transparent)]
    Results(#[from] ResultsError),
}

/// Runs them.
pub fn run(args: &RunArgs) -> Result<(), RunError> {
    crate::net::check_rights()?;
    let tow = tow(args)?;
    let store = args.store.open()?;
    let provenance = Provenance::now(&tow);
    let (mut failed, mut all) = (0, 0);
    for path in &args.scenarios {
        let rows = one(args, path, &tow, &store, &provenance)?;
        failed += rows.iter().filter(|row| row.error().is_some()).count();
        all += rows.len();
    }
    if failed > 0 { Err(RunError::Failed { failed, all }) } else { Ok(()) }
}

fn one(
    args: &RunArgs,
    path: &Path,
    tow: &Path,
    store: &DataStore,
    provenance: &Provenance,
) -> Result<Vec<Row>, RunError> {
    let scenario = up::read(path)?;
    let wrong = |source| RunError::Plan { path: path.into(), source };
    let mut plan = Plan::of(&scenario, args.short, &changes(args)).map_err(wrong)?;
    plan.programs.retain(is_here);
    let scenario = plan.prepare(scenario);
    if plan.programs.is_empty() {
        return Err(RunError::NoProgram);
    }
    let name = name_of(path);
    eprintln!("{name}: {}", scenario.about);
    let mut report = Report::create(&args.out, &name)?;
    let mut rows = Vec::new();
    let run = LabRun { name: &name, scenario: &scenario, plan: &plan, tow, store, provenance };
    run.rows(|row| -> Result<(), RunError> {
        tell(&row);
        report.keep(&row)?;
        rows.push(row);
        Ok(())
    })?;
    let about = ReportAbout {
        text: &scenario.about,
        command: &command_line(),
        against: &plan.against,
        plot: plan.plot,
    };
    let table = report.finish(&about, &rows)?;
    // A reader that wants no more is no failure of the run.
    let _ = writeln!(io::stdout(), "{table}");
    eprintln!("written: {} and .svg, .jsonl", report.path("md").display());
    Ok(rows)
}

fn changes(args: &RunArgs) -> PlannedChanges {
    let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    PlannedChanges {
        programs: some(&args.programs),
        data: some(&args.data),
        runs: args.runs,
        limit: None,
        cases: some(&args.cases),
    }
}

/// True if all that a program needs is here; names what is not.
fn is_here(chosen: &Chosen) -> bool {
    let missing = programs::missing(chosen.program);
    for need in &missing {
        let (name, package) = (need.name(), need.package());
        eprintln!(
            "left out: {}: {name} is missing; the package {package} brings it (make lab-deps)",
            chosen.name
        );
    }
    missing.is_empty()
}

fn tell(row: &Row) {
    let what = match &row.outcome {
        RunOutcome::Measured(measured) => format!("{:.3} s", measured.seconds),
        RunOutcome::Error(error) => format!("FAILED: {error}"),
    };
    eprintln!("  {:<24} {:<16} {:<12} run {}: {what}", row.case, row.data, row.program, row.run);
}

fn tow(args: &RunArgs) -> Result<PathBuf, RunError> {
    let beside =
        || env::current_exe().map(|path| path.with_file_name("tow")).unwrap_or_else(|_| "tow".into());
    let path = args.tow.clone().unwrap_or_else(beside);
    fs::canonicalize(&path).map_err(|_| RunError::NoTow(path))
}

/// A scenario's name is that of its file.
pub(super) fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Command line as typed, without this program's path.
pub(super) fn command_line() -> String {
    let words: Vec<String> = env::args().skip(1).map(|word| quoted(&word)).collect();
    format!("towpath-lab {}", words.join(" "))
}

fn quoted(word: &str) -> String {
    if word.contains([' ', '*', '\'']) {
        format!("'{}'", word.replace('\'', "'\\''"))
    } else {
        word.to_owned()
    }
}
