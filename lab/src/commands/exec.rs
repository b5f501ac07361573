//! `towpath-lab exec`: runs a program in a host of a lab that is up.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use crate::error::LabError;
use crate::net::registry;

/// Run a program in a host of a lab that is up.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    /// As `up` tells it
    lab: String,
    /// A host of its scenario
    host: String,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Becomes the program; returns only if that fails.
pub fn run(args: &ExecArgs) -> Result<(), LabError> {
    let namespace = registry::find(&args.lab, &args.host)?;
    let [program, rest @ ..] = &args.command[..] else { return Ok(()) };
    let error = namespace.command(program).args(rest).exec();
    Err(LabError::tried("running `ip`")(error))
}
