//! `tow vault`: encrypted versions of files, on servers that nobody has to trust.

mod serve;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use towpath_api::ApiError;

use super::Context;

/// Keep encrypted versions of files and trees on a server that can't read, forge or take back any
///
/// A server has ciphertext and signed versions. What a version is, each machine computes and proves itself.
#[derive(Debug, Args)]
pub struct VaultCommand {
    #[command(subcommand)]
    command: VaultCommands,
}

#[derive(Debug, Subcommand)]
enum VaultCommands {
    Serve(serve::VaultServe),
}

impl VaultCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        match self.command {
            VaultCommands::Serve(serve) => serve.run(context).await,
        }
    }
}
