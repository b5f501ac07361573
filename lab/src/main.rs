//! `towpath-lab`: real programs on emulated links.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use towpath_lab::commands::{accuracy, chart, data, deps, down, exec, list, report, run, set, up};
use towpath_lab::net::registry;

/// A network lab: hosts and links on this machine, and real programs on them.
#[derive(Debug, Parser)]
#[command(name = "towpath-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Report(report::Args),
    Chart(chart::Args),
    List(list::Args),
    Deps(deps::Args),
    Data(data::Args),
    Up(up::Args),
    Exec(exec::Args),
    Set(set::Args),
    Down(down::Args),
    Accuracy(accuracy::Args),
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

fn carry_out(command: Command) -> Result<(), Box<dyn Error>> {
    registry::remove_on_signals()?;
    match command {
        Command::Run(args) => run::run(&args)?,
        Command::Report(args) => report::run(&args)?,
        Command::Chart(args) => chart::run(&args)?,
        Command::List(args) => list::run(&args)?,
        Command::Deps(args) => deps::run(&args),
        Command::Data(args) => data::run(&args)?,
        Command::Up(args) => up::run(&args)?,
        Command::Exec(args) => exec::run(&args)?,
        Command::Set(args) => set::run(&args)?,
        Command::Down(args) => down::run(&args)?,
        Command::Accuracy(args) => accuracy::run(&args)?,
    }
    Ok(())
}
