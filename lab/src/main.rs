//! `towpath-lab`: real programs on emulated links.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use towpath_lab::commands::{accuracy, chart, data, deps, down, exec, history, list, report, run, set, up};
use towpath_lab::net::registry;

/// A network lab: hosts and links on this machine, and real programs on them.
#[derive(Debug, Parser)]
#[command(name = "towpath-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    Run(run::RunArgs),
    Report(report::ReportArgs),
    Chart(chart::ChartArgs),
    History(history::HistoryArgs),
    List(list::ListArgs),
    Deps(deps::DepsArgs),
    Data(data::DataArgs),
    Up(up::UpArgs),
    Exec(exec::ExecArgs),
    Set(set::SetArgs),
    Down(down::DownArgs),
    Accuracy(accuracy::AccuracyArgs),
}

fn main() -> ExitCode {
    match carry_out(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("towpath-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: LabCommand) -> Result<(), Box<dyn Error>> {
    registry::remove_on_signals()?;
    match command {
        LabCommand::Run(args) => run::run(&args)?,
        LabCommand::Report(args) => report::run(&args)?,
        LabCommand::Chart(args) => chart::run(&args)?,
        LabCommand::History(args) => history::run(&args)?,
        LabCommand::List(args) => list::run(&args)?,
        LabCommand::Deps(args) => deps::run(&args),
        LabCommand::Data(args) => data::run(&args)?,
        LabCommand::Up(args) => up::run(&args)?,
        LabCommand::Exec(args) => exec::run(&args)?,
        LabCommand::Set(args) => set::run(&args)?,
        LabCommand::Down(args) => down::run(&args)?,
        LabCommand::Accuracy(args) => accuracy::run(&args)?,
    }
    Ok(())
}
