//! `tow vault put`, `get`, `restore` and `forget`

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use towpath_api::{ApiError, ErrorKind, Event, Progress};
use towpath_service::display_name;
use towpath_vault::FileError;
use towpath_vault::client::VaultClient;
use towpath_vault::descriptor::default_name;
use towpath_vault::error::VaultClientError;
use towpath_vault::get::GetOutcome;
use towpath_vault::line::MeasuredLine;
use towpath_vault::plan::PutStats;
use towpath_vault::put::{PutOptions, PutOutcome};
use towpath_vault::server::ServerError;
use towpath_vault::uncommitted::{show_committed, show_uncommitted, uncommitted_entries, without_server};

use super::commit::commit_waiting;
use super::errors::{api_error, usage};
use super::holders::tell_holders;
use super::opening::{OpenedVault, WhichVault};
use crate::commands::{Context, working_directory};
use crate::output::{Output, PARTLY};

/// What a person reads of what waits.
pub const NOT_COMMITTED: &str = "what is not committed yet, and on this machine alone";

/// Put a file or a tree into the vault: a new version, of which only what changed is sent
///
/// If the server can't be reached, it is kept on this machine, encrypted, and the exit status is 1: that is no backup. See 'tow vault commit'.
#[derive(Debug, Args)]
pub struct VaultPut {
    /// The file or directory
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// What it is called in the vault [default: the last name of PATH]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<OsString>,
    /// Write over what somebody else put under this name since it was put or got here; theirs stays as an older version
    #[arg(long)]
    overwrite: bool,
    /// Tell where the bytes went (new, reused, patched, padding, signatures), what the line carries, and what that led to
    #[arg(long)]
    explain: bool,
    /// Send changed chunks whole, never as patches
    #[arg(long)]
    no_patches: bool,
    /// Read all files, also those whose size, times and inode are as they were at the last put
    #[arg(short = 'c', long)]
    checksum: bool,
}

/// Get a file or a tree out of the vault
#[derive(Debug, Args)]
pub struct VaultGet {
    /// Its name in the vault
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    to: GetPlace,
    /// The version [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

/// Get an older version of a file or a tree, also if newer ones are damaged
#[derive(Debug, Args)]
pub struct VaultRestore {
    /// Its name in the vault
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    to: GetPlace,
    /// The version
    #[arg(long, value_name = "N")]
    version: u64,
}

/// Where it goes.
#[derive(Debug, Args)]
pub struct GetPlace {
    /// Where to write it; a directory that is there: into it [default: here]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Replace what is there
    #[arg(long)]
    overwrite: bool,
}

/// Leave a name out of new versions; older ones keep it
#[derive(Debug, Args)]
pub struct VaultForget {
    /// Its name in the vault
    #[arg(value_name = "NAME")]
    name: OsString,
}

#[derive(Debug, Serialize)]
struct ToldPut {
    event: &'static str,
    name: String,
    version: u64,
    is_new: bool,
    files: u64,
    bytes: u64,
    read: u64,
    uploaded: u64,
    reused: u64,
    whole: u64,
    patched: u64,
    whole_stored: u64,
    patches_stored: u64,
    padding: u64,
    actions: u64,
    rewritten: u64,
    saved: u64,
    left: u64,
    /// Bytes a second; none: not measured.
    up: Option<u64>,
    down: Option<u64>,
    failed: usize,
}

#[derive(Debug, Serialize)]
struct ToldKept {
    event: &'static str,
    name: String,
    version: u64,
    committed: bool,
}

#[derive(Debug, Serialize)]
struct ToldGet {
    event: &'static str,
    name: String,
    version: u64,
    committed: bool,
    output: String,
    files: u64,
    bytes: u64,
    failed: usize,
}

#[derive(Debug, Serialize)]
struct ToldForgotten {
    event: &'static str,
    name: String,
    version: u64,
}

impl VaultPut {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let path = working_directory()?.join(&self.path);
        let named = || usage("this path has no name of its own: --as NAME");
        let name = self.name.clone().map(OsString::into_vec).or_else(|| default_name(&path));
        let name = name.ok_or_else(named)?;
        let (put, why) = self.put(context, which.open_to_put(context)?, (&path, &name))?;
        context.output.finish();
        tell_failed(&context.output, &put.failed);
        if let Some(why) = why {
            return Err(tell_kept(context, &name, &put, &why));
        }
        self.tell(context, &name, &put);
        Ok(if put.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(PARTLY) })
    }

    /// Commits what waits, and puts. If the server can't be reached, or not any more, what is put is kept on this machine: then the
    /// reason comes with it.
    fn put(
        &self,
        context: &Context,
        OpenedVault { mut vault, why }: OpenedVault,
        (path, name): (&Path, &[u8]),
    ) -> Result<(PutOutcome, Option<ServerError>), ApiError> {
        let options =
            PutOptions { overwrite: self.overwrite, patches: !self.no_patches, checksum: self.checksum };
        let mut bar = ReadProgress::new(&context.output);
        let mut put = |vault: &mut VaultClient| vault.put(path, name, &options, &mut |bytes| bar.add(bytes));
        let why = match why {
            None => match commit_waiting(context, &mut vault).and_then(|_| put(&mut vault)) {
                Err(VaultClientError::Server(why @ ServerError::Unreachable(_))) => {
                    vault = without_server(vault, why.clone()).map_err(api_error)?;
                    why
                }
                put => return put.map(|put| (put, None)).map_err(api_error),
            },
            Some(why) => why,
        };
        put(&mut vault).map(|put| (put, Some(why))).map_err(kept_nothing)
    }

    fn tell(&self, context: &Context, name: &[u8], put: &PutOutcome) {
        let PutOutcome { number: version, is_new, stats, ref line, .. } = *put;
        if context.output.is_json() {
            return context.output.object(&ToldPut::of(name, put));
        }
        let what = format!("{} of {}", HumanBytes(stats.length), display_name(name));
        match is_new {
            true => context
                .output
                .print(&format!("tow: version {version}: {what}, {} sent", HumanBytes(stats.uploaded()))),
            false => context.output.print(&format!("tow: {what} are in version {version} already")),
        }
        if self.explain {
            explain(&stats).iter().for_each(|line| context.output.line(line));
            if is_new {
                context.output.line(&choice(&stats, line));
            }
        }
    }
}

/// The error of a put that could not be kept here, either.
fn kept_nothing(error: VaultClientError) -> ApiError {
    let is_unreachable = matches!(error, VaultClientError::Server(ServerError::Unreachable(_)));
    let told = api_error(error);
    match is_unreachable {
        true => told.hint("nothing is kept on this machine: it has not all that this put starts from, or the put is too long"),
        false => told,
    }
}

/// Tells that something is not on the server: nobody may take it for a backup.
fn tell_kept(context: &Context, name: &[u8], put: &PutOutcome, why: &ServerError) -> ApiError {
    let (name, number) = (display_name(name), put.number);
    if put.is_committed {
        let told = format!("{why}; '{name}' is as in version {number}, the last that this machine saw");
        return ApiError::new(ErrorKind::Unreachable, told);
    }
    if context.output.is_json() {
        context.output.object(&ToldKept {
            event: "kept",
            name: name.clone(),
            version: number,
            committed: false,
        });
    }
    let told = format!(
        "'{name}' is NOT on the server, and this is no backup: it is kept on this machine alone ({why})"
    );
    ApiError::new(ErrorKind::Unreachable, told)
        .hint("'tow vault commit', or the next put, sends it; 'tow vault ls' and 'log' tell what waits here")
}

impl ToldPut {
    fn of(name: &[u8], put: &PutOutcome) -> Self {
        let PutOutcome { number: version, is_new, stats, files, read, line, ref failed, .. } = *put;
        let measured = |rate: u64| (rate > 0).then_some(rate);
        Self {
            event: "put",
            name: display_name(name),
            version,
            is_new,
            files,
            bytes: stats.length,
            read,
            uploaded: stats.uploaded(),
            reused: stats.reused,
            whole: stats.whole,
            patched: stats.patched,
            whole_stored: stats.whole_stored,
            patches_stored: stats.patches_stored,
            padding: stats.padding,
            actions: stats.actions,
            rewritten: stats.rewritten,
            saved: stats.saved,
            left: stats.left,
            up: measured(line.up),
            down: measured(line.down),
            failed: failed.len(),
        }
    }
}

/// What the line carries, and what that led to.
fn choice(stats: &PutStats, line: &MeasuredLine) -> String {
    let rate = |rate: u64| match rate {
        0 => "not measured yet".into(),
        rate => format!("{}/s", HumanBytes(rate)),
    };
    let (sent, saved, left) = (HumanBytes(stats.rewritten), HumanBytes(stats.saved), HumanBytes(stats.left));
    let choice = match (stats.rewritten, stats.left) {
        (0, 0) => "nothing that is there has dead bytes or patches".into(),
        (0, _) => format!("fewest bytes now; {left} more than must be are read each time, and kept"),
        (_, 0) => {
            format!("{sent} of what is there written anew, so {saved} less are read each time, and kept")
        }
        _ => format!(
            "{sent} of what is there written anew, so {saved} less are read each time, and kept; {left} stay, which are not worth it"
        ),
    };
    format!("line: {} up, {} down: {choice}", rate(line.up), rate(line.down))
}

/// Where the bytes of a put went.
fn explain(stats: &PutStats) -> Vec<String> {
    let PutStats { length, reused, whole, patched, whole_stored, patches_stored, padding, actions, .. } =
        *stats;
    let line = |what: &str, plain: Option<u64>, sent: u64| {
        let plain = plain.map_or_else(String::new, |plain| plain.to_string());
        format!("{what:<28} {plain:>14} {sent:>14}")
    };
    vec![
        format!("{:<28} {:>14} {:>14}", "bytes", "plain", "sent"),
        line("there already", Some(reused), 0),
        line("new or changed, as blocks", Some(whole), whole_stored),
        line("changed, as patches", Some(patched), patches_stored),
        line("updates and signatures", None, actions),
        line("all", Some(length), stats.uploaded()),
        line("of it padding", None, padding),
    ]
}

impl VaultGet {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let name = self.name.as_bytes();
        if self.version.is_some() {
            return self.to.get(context, &mut which.open_older(context)?, name, (self.version, true));
        }
        let mut vault = which.look(context)?.vault;
        let waits = waits(&mut vault, name).map_err(api_error)?;
        self.to.get(context, &mut vault, name, (None, !waits))
    }
}

/// True if what is to be got is not committed; from then on the vault shows it so.
fn waits(vault: &mut VaultClient, name: &[u8]) -> Result<bool, VaultClientError> {
    show_committed(vault);
    if !show_uncommitted(vault)? {
        return Ok(false);
    }
    let found =
        uncommitted_entries(vault)?.iter().any(|change| change.name == name && change.entry.is_some());
    if !found {
        show_committed(vault);
    }
    Ok(found)
}

impl VaultRestore {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let mut vault = which.open_older(context)?;
        self.to.get(context, &mut vault, self.name.as_bytes(), (Some(self.version), true))
    }
}

impl GetPlace {
    fn path(&self, name: &[u8]) -> Result<PathBuf, ApiError> {
        let here = working_directory()?;
        let last = Path::new(std::ffi::OsStr::from_bytes(name)).file_name();
        let output = self.output.as_ref().map(|output| here.join(output));
        match (output, last) {
            (Some(output), Some(last)) if output.is_dir() => Ok(output.join(last)),
            (Some(output), _) => Ok(output),
            (None, Some(last)) => Ok(here.join(last)),
            (None, None) => Err(usage("this name has no last part that a file could have: --output PATH")),
        }
    }

    fn get(
        &self,
        context: &Context,
        vault: &mut VaultClient,
        name: &[u8],
        (version, committed): (Option<u64>, bool),
    ) -> Result<ExitCode, ApiError> {
        let path = self.path(name)?;
        let mut bar = ReadProgress::new(&context.output);
        let got = vault.get(name, version, &path, self.overwrite, &mut |bytes| bar.add(bytes));
        context.output.finish();
        tell_holders(context, vault);
        let GetOutcome { number, files, bytes, failed } = got.map_err(api_error)?;
        tell_failed(&context.output, &failed);
        let output = path.display().to_string();
        if context.output.is_json() {
            let (name, failed) = (display_name(name), failed.len());
            context.output.object(&ToldGet {
                event: "got",
                name,
                version: number,
                committed,
                output,
                files,
                bytes,
                failed,
            });
        } else {
            let of = if committed { format!("version {number}") } else { NOT_COMMITTED.into() };
            context.output.print(&format!("tow: {} of {of} -> {output}", HumanBytes(bytes)));
        }
        Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(PARTLY) })
    }
}

impl VaultForget {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let mut vault = which.open(context)?;
        let version = vault.forget(self.name.as_bytes()).map_err(api_error)?;
        let name = display_name(self.name.as_bytes());
        match context.output.is_json() {
            true => context.output.object(&ToldForgotten { event: "forgotten", name, version }),
            false => {
                context.output.print(&format!("tow: version {version} is without {name}; older ones have it"))
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What could not be read, or made.
fn tell_failed(output: &Output, failed: &[FileError]) {
    for error in failed {
        let path = error.path().display().to_string();
        output.event(&Event::FileFailed { path, error: error.to_string() });
    }
}

/// Bytes that were read or written so far, on the bar.
pub struct ReadProgress<'a> {
    output: &'a Output,
    done: u64,
    shown: u64,
}

impl<'a> ReadProgress<'a> {
    /// None yet.
    pub const fn new(output: &'a Output) -> Self {
        Self { output, done: 0, shown: 0 }
    }

    /// So many more.
    pub fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if self.done - self.shown >= 1 << 20 {
            self.shown = self.done;
            let progress = Progress { done: self.done, expected: self.done, ..Progress::default() };
            self.output.event(&Event::Transfer(progress));
        }
    }
}
