//! `towpath-lab`: real programs on emulated links.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use towpath_lab::commands::{accuracy, down, exec, set, up};
use towpath_lab::error::LabError;
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
    Up(up::Args),
    Exec(exec::Args),
    Set(set::Args),
    Down(down::Args),
    Accuracy(accuracy::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("towpath-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), LabError> {
    registry::remove_on_signals()?;
    match command {
        Command::Up(args) => up::run(&args),
        Command::Exec(args) => exec::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Accuracy(args) => accuracy::run(&args),
    }
}
