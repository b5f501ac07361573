//! `tow vault ls`, `log` and `check`

use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_service::display_name;
use towpath_vault::catalogue::EntryDescription;
use towpath_vault::check::CheckFault;
use towpath_vault::garbage::kept;

use super::errors::api_error;
use super::opening::WhichVault;
use super::transfer::ReadProgress;
use crate::commands::Context;

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
}

#[derive(Debug, Serialize)]
struct ToldEntry {
    event: &'static str,
    name: String,
    kind: &'static str,
    bytes: u64,
    version: u64,
}

#[derive(Debug, Serialize)]
struct ToldVersion {
    event: &'static str,
    version: u64,
    root: String,
    time: u64,
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
            None => which.open(context)?,
        };
        let root = vault.root(self.version).map_err(api_error)?;
        for (name, entry) in vault.catalogue(&root).map_err(api_error)?.entries {
            let kind = match entry.description {
                EntryDescription::Inline(_) => "file",
                EntryDescription::File(_) => "tree",
            };
            let (name, bytes, version) = (display_name(&name), entry.length, root.number);
            match context.output.is_json() {
                true => context.output.object(&ToldEntry { event: "entry", name, kind, bytes, version }),
                false => {
                    context.output.line(&format!("{kind}  {:>12}  {name}", HumanBytes(bytes).to_string()))
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl VaultLog {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let mut vault = which.open_older(context)?;
        let newest = vault.head().named().number;
        let kept = kept(&mut vault, newest + 1, self.count.max(1)).map_err(api_error)?;
        let first = kept.last().copied().unwrap_or(newest);
        for version in vault.versions(first).map_err(api_error)?.into_iter().rev() {
            let root = &version.signed.root;
            if root.number != newest && !kept.contains(&root.number) {
                continue;
            }
            let told = ToldVersion {
                event: "version",
                version: root.number,
                root: root_digest(root),
                time: version.certificate.time,
                writer: version.signed.writer.to_string(),
                files: root.files.len(),
                bytes: root.files.iter().map(|file| file.length).sum(),
            };
            match context.output.is_json() {
                true => context.output.object(&told),
                false => context.output.line(&line(&told, &version.signed.writer.short().to_string())),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn root_digest(root: &towpath_vault::format::VaultRoot) -> String {
    use towpath_vault::format::Canonical;
    root.digest().to_string()
}

fn line(told: &ToldVersion, writer: &str) -> String {
    let ToldVersion { version, root, time, bytes, .. } = told;
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(*time));
    let time = time.map_or_else(|| "?".into(), |time| humantime::format_rfc3339_seconds(time).to_string());
    format!("{version:>6}  {time}  {:>12}  {}  by {writer}", HumanBytes(*bytes).to_string(), &root[..8])
}

impl VaultCheck {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let mut vault = which.open(context)?;
        let mut bar = ReadProgress::new(&context.output);
        let found = vault.check(self.version, self.all, &mut |bytes| bar.add(bytes)).map_err(api_error)?;
        context.output.finish();
        for fault in &found.faults {
            tell_fault(context, fault);
        }
        let (versions, entries, files, bytes) = (found.versions, found.entries, found.files, found.bytes);
        let faults = found.faults.len();
        if context.output.is_json() {
            context.output.object(&ToldCheck { event: "checked", versions, entries, files, bytes, faults });
        } else if faults == 0 {
            let what =
                format!("{versions} versions, {entries} entries, {files} files, {}", HumanBytes(bytes));
            context.output.print(&format!("tow: all is proved: {what}"));
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
