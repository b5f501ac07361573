//! `tow vault commit`: what puts left on this machine.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_vault::client::VaultClient;
use towpath_vault::error::VaultClientError;
use towpath_vault::uncommitted::commit_uncommitted;

use super::errors::api_error;
use super::opening::WhichVault;
use crate::commands::Context;
use crate::output::counted;

/// Send what puts left on this machine: the server could not be reached, or they were cut off
///
/// The next put does it, too. Versions that others made meanwhile stay, and these come behind them. Where others changed the same name, it stays here.
#[derive(Debug, Args)]
pub struct VaultCommit {
    /// Forget it instead, for good: it is nowhere else
    #[arg(long)]
    drop: bool,
}

#[derive(Debug, Serialize)]
struct ToldCommitted {
    event: &'static str,
    versions: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct ToldDropped {
    event: &'static str,
    versions: usize,
}

impl VaultCommit {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        if self.drop {
            let versions = which.discard(context)?;
            match context.output.is_json() {
                true => context.output.object(&ToldDropped { event: "dropped", versions }),
                false => context.output.print(&format!(
                    "tow: forgotten: {} that had not been committed",
                    counted(versions as u64, "version", "versions")
                )),
            }
            return Ok(ExitCode::SUCCESS);
        }
        let versions = commit_waiting(context, &mut which.open(context)?).map_err(api_error)?;
        if context.output.is_json() {
            context.output.object(&ToldCommitted { event: "committed", versions });
        } else if versions.is_empty() {
            context.output.print("tow: nothing waits on this machine");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Commits what waits, and says so: the numbers of its versions.
pub fn commit_waiting(context: &Context, vault: &mut VaultClient) -> Result<Vec<u64>, VaultClientError> {
    let versions = commit_uncommitted(vault)?;
    if !versions.is_empty() {
        let numbers: Vec<_> = versions.iter().map(ToString::to_string).collect();
        context.output.print(&format!("tow: committed what waited here: version {}", numbers.join(", ")));
    }
    Ok(versions)
}
