//! `tow completions`

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use towpath_api::ApiError;

use super::{Arguments, refused};

/// Print completions for a shell
#[derive(Debug, Args)]
pub struct Completions {
    /// Which shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub fn run(self) -> Result<ExitCode, ApiError> {
        let mut root = refused::without(&Arguments::command());
        clap_complete::generate(self.shell, &mut root, "tow", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}
