//! `tow remote`

use std::process::ExitCode;

use clap::Args;
use towpath_api::ApiError;
use towpath_daemon::{Options, copy};

use super::Context;

/// The other side of `tow cp` and `tow sync`, which start it through ssh
///
/// It speaks with them over standard input and output, needs no configuration, and ends when they
/// do. There is no use in starting it by hand.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Remote {}

impl Remote {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let service = context.embedded(Options::default())?;
        copy::serve_stdio(&service).await?;
        Ok(ExitCode::SUCCESS)
    }
}
