//! `tow vault holders`, and reading from them

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tokio::runtime::Handle;
use towpath_api::ApiError;
use towpath_vault::client::VaultClient;
use towpath_vault::drawing::{
    HolderPlace, HolderReport, HolderStanding, KnownHolders, draw_from, holder_reports, keep_holders,
};

use super::errors::{api_error, usage};
use super::opening::{VaultPlace, WhichVault};
use crate::commands::Context;

/// Holders of one vault beside its server, at most.
const MOST: usize = 16;

/// List who else has this vault's blocks, or name more of them
///
/// A holder is another 'tow vault serve' with a copy of what the server keeps. Reading draws from the server and all holders at once, and goes
/// on if some of them are gone or lie; one that lies is named. Versions are put on the server alone.
#[derive(Debug, Args)]
pub struct VaultHolders {
    /// Holders to draw from, too, as 'tow vault serve' prints them
    #[arg(value_name = "NODE@HOST:PORT")]
    add: Vec<String>,
    /// Holder to draw from no more; may be given again
    #[arg(long, value_name = "NODE@HOST:PORT")]
    remove: Vec<String>,
}

#[derive(Debug, Serialize)]
struct HolderList {
    event: &'static str,
    server: String,
    holders: Vec<String>,
}

/// What a holder gave.
#[derive(Debug, Serialize)]
struct ToldHolder {
    event: &'static str,
    holder: String,
    objects: u64,
    bytes: u64,
    /// Why nothing more was asked of it.
    fault: Option<String>,
}

impl VaultHolders {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let is_change = !self.add.is_empty() || !self.remove.is_empty();
        // A list waits for nobody who writes.
        let folder = if is_change { which.folder(context)? } else { which.folder_to_look(context)? };
        let KnownHolders { server, others: mut holders } = KnownHolders::of(&folder).map_err(api_error)?;
        let server = server.unwrap_or_default();
        for gone in &self.remove {
            let at = holders.iter().position(|holder| holder == gone);
            holders.remove(at.ok_or_else(|| usage(format!("'{gone}' is no holder of this vault")))?);
        }
        for new in self.add {
            VaultPlace::read(&new)?;
            if new == server {
                return Err(usage(format!("'{new}' is the vault's server, which is asked in any case")));
            }
            if !holders.contains(&new) {
                holders.push(new);
            }
        }
        if holders.len() > MOST {
            return Err(usage(format!("a vault has at most {MOST} holders beside its server")));
        }
        if is_change {
            keep_holders(&folder, &holders).map_err(api_error)?;
        }
        match context.output.is_json() {
            true => context.output.object(&HolderList { event: "holders", server, holders }),
            false => holders.iter().for_each(|holder| context.output.line(holder)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// From now on what is read comes from all holders that this machine knows, if it knows any; from the vault's server, too, unless that
/// was not reached.
pub fn use_holders(vault: &mut VaultClient, is_server_there: bool) -> Result<(), ApiError> {
    let known = KnownHolders::of_vault(vault).map_err(api_error)?;
    if known.others.is_empty() {
        return Ok(());
    }
    let server = known.server.filter(|_| is_server_there);
    let places: Vec<String> = server.into_iter().chain(known.others).collect();
    draw(vault, &places, is_server_there)
}

/// From now on what is read comes from this holder alone.
pub fn use_one_holder(vault: &mut VaultClient, place: &str) -> Result<(), ApiError> {
    draw(vault, &[place.to_owned()], false)
}

fn draw(vault: &mut VaultClient, places: &[String], asks_server: bool) -> Result<(), ApiError> {
    let place = |text: &String| {
        VaultPlace::read(text).map(|VaultPlace { node, address }| HolderPlace { node, address })
    };
    let places = places.iter().map(place).collect::<Result<_, _>>()?;
    draw_from(vault, Handle::current(), places, asks_server).map_err(api_error)
}

/// Tells which holders could not be used; with `--json` what each gave.
pub fn tell_holders(context: &Context, vault: &VaultClient) {
    for HolderReport { place: holder, objects, bytes, standing } in holder_reports(vault) {
        let fault = match standing {
            HolderStanding::Open | HolderStanding::Connecting => None,
            HolderStanding::Gone(fault) => Some(fault.to_string()),
        };
        match (context.output.is_json(), fault) {
            (true, fault) => {
                context.output.object(&ToldHolder { event: "holder", holder, objects, bytes, fault });
            }
            (false, Some(fault)) => {
                context.output.complain(&format!("tow: holder {holder}: {fault}"));
            }
            (false, None) => {}
        }
    }
}
