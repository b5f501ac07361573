//! `tow vault diff`

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_service::display_name;
use towpath_vault::diff::{ChangedBytes, EntryDiff, EntryState, PathChange, diff};

use super::errors::{api_error, usage};
use super::holders::tell_holders;
use super::opening::WhichVault;
use crate::commands::Context;
use crate::output::counted;

/// Tell what changed between two versions of a file or a tree
///
/// Without --from and --to: what the last put of NAME changed. Of a tree: paths that came (+), went (-), moved (>) or changed (~). Of a
/// file: which bytes changed, in chunks of 4 to 16 KiB. Contents are not fetched for it. Example: tow vault diff notes --from 3 --to 5
#[derive(Debug, Args)]
pub struct VaultDiff {
    /// Its name in the vault
    #[arg(value_name = "NAME")]
    name: OsString,
    /// The older version [default: the last one in which it was another]
    #[arg(long, value_name = "V")]
    from: Option<u64>,
    /// The newer version [default: the newest]
    #[arg(long, value_name = "V")]
    to: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ToldChange {
    event: &'static str,
    change: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_from: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differs: Vec<&'static str>,
    before: Option<ToldState>,
    after: Option<ToldState>,
}

#[derive(Debug, Serialize)]
struct ToldState {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    mode: String,
}

#[derive(Debug, Serialize)]
struct ToldBytes {
    event: &'static str,
    at: u64,
    before: u64,
    after: u64,
}

#[derive(Debug, Serialize)]
struct ToldDiff {
    event: &'static str,
    name: String,
    /// None: it was not there before.
    from: Option<u64>,
    to: u64,
    added: usize,
    removed: usize,
    moved: usize,
    changed: usize,
    /// Of a single file: bytes of the newer version that are in chunks which changed.
    changed_bytes: u64,
}

impl VaultDiff {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            return Err(usage(format!("--from {from} is newer than --to {to}: give the older one first")));
        }
        let mut vault = match self.to {
            Some(_) => which.open_older(context)?,
            None => which.open(context)?,
        };
        let diff = diff(&mut vault, self.name.as_bytes(), self.from, self.to);
        tell_holders(context, &vault);
        let diff = diff.map_err(api_error)?;
        let name = display_name(self.name.as_bytes());
        match context.output.is_json() {
            true => tell_program(context, name, &diff),
            false => tell_person(context, &name, &diff),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn told_change(change: &PathChange) -> ToldChange {
    ToldChange {
        event: "change",
        change: word(change),
        path: display_name(&change.path),
        moved_from: change.moved_from.as_deref().map(display_name),
        differs: change.differs.clone(),
        before: change.before.map(told_state),
        after: change.after.map(told_state),
    }
}

fn tell_program(context: &Context, name: String, diff: &EntryDiff) {
    diff.changes.iter().for_each(|change| context.output.object(&told_change(change)));
    for ChangedBytes { at, before, after } in diff.ranges.iter().copied() {
        context.output.object(&ToldBytes { event: "bytes", at, before, after });
    }
    let count = |which: &str| diff.changes.iter().filter(|change| word(change) == which).count();
    context.output.object(&ToldDiff {
        event: "compared",
        name,
        from: diff.from,
        to: diff.to,
        added: count("added"),
        removed: count("removed"),
        moved: count("moved"),
        changed: count("changed"),
        changed_bytes: diff.ranges.iter().map(|range| range.after).sum(),
    });
}

fn tell_person(context: &Context, name: &str, diff: &EntryDiff) {
    diff.changes.iter().for_each(|change| context.output.line(&line(name, change)));
    for ChangedBytes { at, before, after } in &diff.ranges {
        context.output.line(&format!("  at byte {at}: {after} bytes in the place of {before}"));
    }
    context.output.print(&match (diff.from, diff.changes.len()) {
        (None, _) => format!("tow: {name} came with version {}", diff.to),
        (Some(from), 0) => format!("tow: {name} is the same in versions {from} and {}", diff.to),
        (Some(from), count) => {
            let changes = counted(count as u64, "change", "changes");
            format!("tow: {changes} of {name} from version {from} to {}", diff.to)
        }
    });
}

const fn word(change: &PathChange) -> &'static str {
    match (&change.moved_from, change.before, change.after) {
        (Some(_), ..) => "moved",
        (None, None, _) => "added",
        (None, _, None) => "removed",
        _ => "changed",
    }
}

fn told_state(EntryState { kind, size, mode }: EntryState) -> ToldState {
    ToldState { kind, size, mode: format!("{mode:04o}") }
}

/// As in `~ notes/today  1 KiB -> 2 KiB  (content, time)`.
fn line(name: &str, change: &PathChange) -> String {
    let shown = |path: &[u8]| if path.is_empty() { name.to_owned() } else { display_name(path) };
    let sign = match word(change) {
        "added" => '+',
        "removed" => '-',
        "moved" => '>',
        _ => '~',
    };
    let from = change.moved_from.as_deref().map_or_else(String::new, |from| format!("{} -> ", shown(from)));
    let differs = match change.differs.as_slice() {
        [] => String::new(),
        differs => format!("  ({})", differs.join(", ")),
    };
    format!("{sign} {from}{}{}{differs}", shown(&change.path), states(change))
}

fn states(change: &PathChange) -> String {
    let size = |state: EntryState| state.size.map(|size| HumanBytes(size).to_string());
    let (was, is) = (change.before, change.after);
    let sizes = match (was.and_then(size), is.and_then(size)) {
        (Some(was), Some(is)) if change.differs.contains(&"content") => format!("  {was} -> {is}"),
        (Some(_), Some(_)) => String::new(),
        (Some(one), None) | (None, Some(one)) => format!("  {one}"),
        (None, None) => String::new(),
    };
    match (was, is) {
        (Some(was), Some(is)) if was.mode != is.mode => {
            format!("{sizes}  {:04o} -> {:04o}", was.mode, is.mode)
        }
        _ => sizes,
    }
}
