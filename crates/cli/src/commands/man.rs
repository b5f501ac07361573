//! `tow man`

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use towpath_api::{ApiError, ErrorKind};

use super::Arguments;

/// Print the manual page, of `tow` or of one command
#[derive(Debug, Args)]
pub struct Man {
    /// Which command
    command: Option<String>,
}

impl Man {
    pub fn run(self) -> Result<ExitCode, ApiError> {
        let mut root = Arguments::command();
        root.build();
        let page = match &self.command {
            None => root,
            Some(name) => root.find_subcommand(name).cloned().ok_or_else(|| {
                ApiError::new(ErrorKind::Usage, format!("there is no command '{name}'"))
                    .hint("'tow help' lists them")
            })?,
        };
        clap_mangen::Man::new(page)
            .render(&mut std::io::stdout())
            .map_err(|error| ApiError::new(ErrorKind::Failed, format!("writing the page: {error}")))?;
        Ok(ExitCode::SUCCESS)
    }
}
