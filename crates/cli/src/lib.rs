//! `tow`: data transfer that names what it sends by its content.
//!
//! This file only parses and starts; each command has a file in `commands/`. It is a library so that a program of one's own
//! can be `tow` with further transfer plugins: `towpath_cli::run(&[&MY_PLUGIN])`.

mod activation;
mod bar;
mod commands;
mod copy_output;
mod interrupts;
mod listing;
mod log;
mod notify;
mod output;
mod receivers;

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use towpath_api::{ApiError, ErrorKind};

use towpath_service::{Plugin, Registry};

use output::Output;

/// Runs the command that this process was called with, to its end. A configuration may name `plugins` beside those of this
/// build.
pub fn run(plugins: &[&'static Plugin]) -> ExitCode {
    let arguments = match commands::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return unparsed(error),
    };
    match Registry::default().with(plugins) {
        Ok(plugins) => commands::run(arguments, plugins),
        Err(name) => {
            eprintln!("tow: two plugins have the name '{name}'");
            ExitCode::from(output::USAGE)
        }
    }
}

/// Help is printed; what can't be understood is said, to programs as an event.
fn unparsed(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // A suggestion that nobody meant is no help: each flag has its opposite.
    if matches!(error.get(ContextKind::SuggestedArg), Some(ContextValue::String(tip)) if tip.starts_with("--no-"))
    {
        error.remove(ContextKind::SuggestedArg);
    }
    if std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json") {
        return Output::new(true, false).error(&as_event(&error));
    }
    let _ = error.print();
    ExitCode::from(output::USAGE)
}

fn as_event(error: &clap::Error) -> ApiError {
    let text = error.render().to_string();
    let mut parts = text.trim().split("\n\n");
    let message = parts.next().unwrap_or_default().trim_start_matches("error: ");
    let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let usage = parts.find_map(|part| part.trim().strip_prefix("Usage: "));
    let error = ApiError::new(ErrorKind::Usage, message);
    match usage {
        Some(usage) => error.hint(format!("usage: {}", usage.trim())),
        None => error,
    }
}
