//! `towpath-lab down`: takes a lab down, and removes what killed ones left.

use std::io::{self, Write};

use crate::error::LabError;
use crate::net::registry;

/// Take a lab down; without a name, remove what is left of labs whose process is gone, and list the
/// others.
#[derive(Debug, clap::Args)]
pub struct DownArgs {
    /// As `up` tells it
    lab: Option<String>,
}

/// Runs the command.
pub fn run(args: &DownArgs) -> Result<(), LabError> {
    let removed = registry::clean()?;
    if let Some(lab) = args.lab.as_ref().filter(|lab| !removed.contains(lab)) {
        return registry::end(lab);
    }
    let mut text: String =
        removed.iter().map(|lab| format!("{lab}: its process was gone, removed\n")).collect();
    text.extend(registry::names().iter().map(|lab| format!("{lab}: up\n")));
    io::stdout().lock().write_all(text.as_bytes()).map_err(LabError::tried("writing"))
}
