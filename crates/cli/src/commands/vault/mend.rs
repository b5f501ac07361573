//! `tow vault accept` and `revert`: going on where a server was set back, or where the newest version is none that anybody can use.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_vault::acceptance::AcceptedHead;
use towpath_vault::revert::{RevertedVault, revert};

use super::errors::api_error;
use super::opening::WhichVault;
use crate::commands::Context;

/// Go on with the version that the server shows, though this machine saw a newer or another one
///
/// Ask the server's keeper first: if the versions can be brought back there, nothing is lost. Else this machine takes what is left for the newest
/// version. What it saw can't be had from the server any more; put again what you have. Nothing is changed on the server. Each machine that
/// saw more has to accept it for itself. Example: tow vault accept 3f9a0c71
#[derive(Debug, Args)]
pub struct VaultAccept {
    /// The version's hash, as the error tells it; eight digits are enough
    #[arg(value_name = "HASH")]
    root: String,
}

/// Make a new version that is as an older one was
///
/// For when somebody put what nobody can read. All versions stay, also the one that is undone.
#[derive(Debug, Args)]
pub struct VaultRevert {
    /// The older version [default: the newest one whose list of entries can be read]
    #[arg(long, value_name = "N")]
    to: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ToldAccepted {
    event: &'static str,
    version: u64,
    root: String,
    seen_version: u64,
    seen_root: String,
    other_members: bool,
}

#[derive(Debug, Serialize)]
struct ToldReverted {
    event: &'static str,
    version: u64,
    like: u64,
    is_new: bool,
}

impl VaultAccept {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let AcceptedHead { seen, accepted, has_other_members } = which.accept(context, &self.root)?;
        if context.output.is_json() {
            context.output.object(&ToldAccepted {
                event: "accepted",
                version: accepted.number,
                root: accepted.root.to_string(),
                seen_version: seen.number,
                seen_root: seen.root.to_string(),
                other_members: has_other_members,
            });
            return Ok(ExitCode::SUCCESS);
        }
        context.output.print(&format!("tow: {accepted} is the newest now, in the place of {seen}"));
        context.output.print("tow: put again what is missing in it: 'tow vault put PATH', or with --overwrite if that asks for it");
        if has_other_members {
            let look = "its members and keys are others than those this machine saw: look with 'tow vault share', and revoke again whom you revoked";
            context.output.complain(&format!("tow: {look}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl VaultRevert {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let mut vault = which.open(context)?;
        let RevertedVault { number, like, is_new } = revert(&mut vault, self.to).map_err(api_error)?;
        match (context.output.is_json(), is_new) {
            (true, _) => {
                context.output.object(&ToldReverted { event: "reverted", version: number, like, is_new })
            }
            (false, true) => context.output.print(&format!("tow: version {number} is as version {like} was")),
            (false, false) => {
                context.output.print(&format!("tow: version {number} is as version {like} was, already"))
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
