//! `tow`: data transfer that names what it sends by its content.
//!
//! This file only parses and starts; each command has a file in `commands/`.

mod activation;
mod bar;
mod commands;
mod copy_output;
mod interrupts;
mod log;
mod notify;
mod output;
mod receivers;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = match commands::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(output::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    commands::run(arguments)
}
