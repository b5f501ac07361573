//! `tow completions`

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use towpath_api::ApiError;

use super::Arguments;

/// Print completions for a shell
#[derive(Debug, Args)]
pub struct Completions {
    /// Which shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub fn run(self) -> Result<ExitCode, ApiError> {
        clap_complete::generate(self.shell, &mut Arguments::command(), "tow", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}
