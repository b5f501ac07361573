//! `tow vault gc`

use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_vault::client::VaultClient;
use towpath_vault::garbage::{CollectedGarbage, Garbage, collect, garbage};

use super::errors::api_error;
use super::opening::WhichVault;
use crate::commands::Context;
use crate::output::counted;

/// Drop old versions, and give back the space of what no version needs
///
/// Without --keep nothing is changed: it tells what could go. What 'forget' left out, and what puts that were cut short left behind, goes
/// once no version has it. Dropping needs the vault's deleting key, which only its maker has. Example: tow vault gc --keep 30
#[derive(Debug, Args)]
pub struct VaultGc {
    /// Versions that stay, the newest; all older ones are dropped for good
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// Change nothing, tell what would go
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct ToldGarbage {
    event: &'static str,
    versions: u64,
    /// Versions that would be dropped.
    droppable: u64,
    nameless_files: u64,
    nameless_bytes: u64,
    /// On the server.
    stored_bytes: u64,
    /// Of them what would go.
    freeable_bytes: u64,
}

#[derive(Debug, Serialize)]
struct ToldCollected {
    event: &'static str,
    dropped: u64,
    nameless_files: u64,
    /// None: the server is still at it.
    freed_bytes: Option<u64>,
    stored_bytes: Option<u64>,
}

impl VaultGc {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let mut vault = which.open(context)?;
        match self.keep {
            Some(keep) if !self.dry_run => {
                let collected = collect(&mut vault, keep).map_err(api_error)?;
                tell_collected(context, collected);
            }
            keep => tell_garbage(context, &mut vault, keep)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn tell_garbage(context: &Context, vault: &mut VaultClient, keep: Option<u64>) -> Result<(), ApiError> {
    let Garbage { versions, older, nameless, nameless_bytes, usage } =
        garbage(vault, keep.unwrap_or(1)).map_err(api_error)?;
    if context.output.is_json() {
        let (event, droppable, nameless_files) = ("garbage", older, nameless);
        let (stored_bytes, freeable_bytes) = (usage.stored, usage.needless);
        let told = ToldGarbage {
            event,
            versions,
            droppable,
            nameless_files,
            nameless_bytes,
            stored_bytes,
            freeable_bytes,
        };
        context.output.object(&told);
        return Ok(());
    }
    let line = |text: String| context.output.line(&text);
    let kept = counted(versions, "version", "versions");
    line(format!("{kept}, {} on the server", HumanBytes(usage.stored)));
    if nameless > 0 {
        let bytes = HumanBytes(nameless_bytes);
        let files = counted(nameless, "file", "files");
        line(format!(
            "{files} without a name, {bytes}, of puts that were cut short; gone with the next collection"
        ));
    }
    line(format!("without the {older} older ones: {} less, about", HumanBytes(usage.needless)));
    if keep.is_none() {
        context.output.print("tow: nothing was changed: --keep N drops all but the newest N versions");
    }
    Ok(())
}

fn tell_collected(context: &Context, collected: CollectedGarbage) {
    let CollectedGarbage { dropped, nameless: nameless_files, before, after } = collected;
    let (event, freed_bytes) = ("collected", after.map(|after| before.saturating_sub(after)));
    if context.output.is_json() {
        let told = ToldCollected { event, dropped, nameless_files, freed_bytes, stored_bytes: after };
        return context.output.object(&told);
    }
    let space = match (freed_bytes, after) {
        (Some(freed), Some(left)) => format!("{} freed; {} left", HumanBytes(freed), HumanBytes(left)),
        _ => "the server is still giving back their space".into(),
    };
    context.output.print(&format!("tow: {} dropped, {space}", counted(dropped, "version", "versions")));
}
