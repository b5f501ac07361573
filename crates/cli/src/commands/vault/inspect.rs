//! `tow vault ls`, `log` and `check`

use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_service::display_name;
use towpath_vault::catalogue::{CatalogueEntry, EntryDescription};
use towpath_vault::check::CheckFault;
use towpath_vault::client::VaultClient;
use towpath_vault::error::VaultClientError;
use towpath_vault::format::SignedRoot;
use towpath_vault::garbage::kept;
use towpath_vault::uncommitted::{
    UncommittedEntry, show_committed, show_uncommitted, uncommitted_entries, waiting,
};

use super::errors::api_error;
use super::holders::{tell_holders, use_one_holder};
use super::opening::{OpenedVault, WhichVault};
use super::transfer::ReadProgress;
use crate::commands::Context;
use crate::output::counted;

/// List what is in the vault
#[derive(Debug, Args)]
pub struct VaultLs {
    /// The version [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

/// List the vault's versions, the newest first
#[derive(Debug, Args)]
pub struct VaultLog {
    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    count: u64,
}

/// Read everything from the server and prove it
#[derive(Debug, Args)]
pub struct VaultCheck {
    /// The version [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "all")]
    version: Option<u64>,
    /// All versions
    #[arg(long)]
    all: bool,
    /// Read from this holder instead, as 'tow vault serve' prints it: whether it has everything
    #[arg(long, value_name = "NODE@HOST:PORT")]
    holder: Option<String>,
}

#[derive(Debug, Serialize)]
struct ToldEntry {
    event: &'static str,
    name: String,
    kind: &'static str,
    bytes: u64,
    version: u64,
    committed: bool,
}

#[derive(Debug, Serialize)]
struct ToldVersion {
    event: &'static str,
    version: u64,
    root: String,
    /// None: it is not committed.
    time: Option<u64>,
    committed: bool,
    writer: String,
    files: usize,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ToldFault {
    event: &'static str,
    version: u64,
    name: Option<String>,
    error: String,
}

#[derive(Debug, Serialize)]
struct ToldCheck {
    event: &'static str,
    versions: u64,
    entries: u64,
    files: u64,
    bytes: u64,
    faults: usize,
}

impl VaultLs {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let mut vault = match self.version {
            Some(_) => which.open_older(context)?,
            None => which.look(context)?.vault,
        };
        let listed = self.list(context, &mut vault);
        tell_holders(context, &vault);
        listed.map_err(api_error)
    }

    fn list(&self, context: &Context, vault: &mut VaultClient) -> Result<ExitCode, VaultClientError> {
        show_committed(vault);
        let root = vault.root(self.version)?;
        for (name, entry) in vault.catalogue(&root)?.entries {
            tell_entry(context, &name, &entry, (root.number, true));
        }
        if self.version.is_none() && show_uncommitted(vault)? {
            let version = vault.head().named().number;
            for UncommittedEntry { name, entry } in uncommitted_entries(vault)? {
                if let Some(entry) = entry {
                    tell_entry(context, &name, &entry, (version, false));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn tell_entry(context: &Context, name: &[u8], entry: &CatalogueEntry, (version, committed): (u64, bool)) {
    let kind = match entry.description {
        EntryDescription::Inline(_) => "file",
        EntryDescription::File(_) => "tree",
    };
    let (name, bytes) = (display_name(name), entry.length);
    if context.output.is_json() {
        return context.output.object(&ToldEntry { event: "entry", name, kind, bytes, version, committed });
    }
    let mark = if committed { "" } else { "  (not committed: on this machine alone)" };
    context.output.line(&format!("{kind}  {:>12}  {name}{mark}", HumanBytes(bytes).to_string()));
}

impl VaultLog {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let OpenedVault { mut vault, why } = which.look_older(context)?;
        show_committed(&mut vault);
        for signed in waiting(&vault).map_err(api_error)?.into_iter().rev() {
            tell_version(context, &signed, None);
        }
        let newest = vault.head().named().number;
        let kept = match why {
            None => kept(&mut vault, newest + 1, self.count.max(1)).map_err(api_error)?,
            Some(_) => vec![newest],
        };
        let first = kept.last().copied().unwrap_or(newest);
        for version in vault.versions(first).map_err(api_error)?.into_iter().rev() {
            let number = version.signed.root.number;
            if number == newest || kept.contains(&number) {
                tell_version(context, &version.signed, Some(version.certificate.time));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn tell_version(context: &Context, signed: &SignedRoot, time: Option<u64>) {
    let root = &signed.root;
    let told = ToldVersion {
        event: "version",
        version: root.number,
        root: root_digest(root),
        time,
        committed: time.is_some(),
        writer: signed.writer.to_string(),
        files: root.files.len(),
        bytes: root.files.iter().map(|file| file.length).sum(),
    };
    match context.output.is_json() {
        true => context.output.object(&told),
        false => context.output.line(&line(&told, &signed.writer.short().to_string())),
    }
}

fn root_digest(root: &towpath_vault::format::VaultRoot) -> String {
    use towpath_vault::format::Canonical;
    root.digest().to_string()
}

fn line(told: &ToldVersion, writer: &str) -> String {
    let ToldVersion { version, root, time, bytes, .. } = told;
    let time = time.map(|time| UNIX_EPOCH.checked_add(Duration::from_secs(time)));
    let time = match time {
        None => "not committed".into(),
        Some(None) => "?".into(),
        Some(Some(time)) => humantime::format_rfc3339_seconds(time).to_string(),
    };
    format!("{version:>6}  {time:<20}  {:>12}  {}  by {writer}", HumanBytes(*bytes).to_string(), &root[..8])
}

impl VaultCheck {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let mut vault = which.open(context)?;
        if let Some(holder) = &self.holder {
            use_one_holder(&mut vault, holder)?;
        }
        let mut bar = ReadProgress::new(&context.output);
        let found = vault.check(self.version, self.all, &mut |bytes| bar.add(bytes));
        context.output.finish();
        tell_holders(context, &vault);
        let found = found.map_err(api_error)?;
        for fault in &found.faults {
            tell_fault(context, fault);
        }
        let (versions, entries, files, bytes) = (found.versions, found.entries, found.files, found.bytes);
        let faults = found.faults.len();
        if context.output.is_json() {
            context.output.object(&ToldCheck { event: "checked", versions, entries, files, bytes, faults });
        } else if faults == 0 {
            let (versions, entries) =
                (counted(versions, "version", "versions"), counted(entries, "entry", "entries"));
            let what = format!("{versions}, {entries}, {}", counted(files, "file", "files"));
            context.output.print(&format!("tow: all is proved: {what}, {}", HumanBytes(bytes)));
        } else {
            context.output.complain(&format!("tow: {faults} of {entries} entries are damaged"));
        }
        Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn tell_fault(context: &Context, CheckFault { number, entry, error }: &CheckFault) {
    let (name, error) = (entry.as_deref().map(display_name), error.to_string());
    match context.output.is_json() {
        true => context.output.object(&ToldFault { event: "fault", version: *number, name, error }),
        false => {
            let name = name.unwrap_or_else(|| "the list of entries".into());
            context.output.complain(&format!("tow: version {number}: {name}: {error}"));
        }
    }
}
