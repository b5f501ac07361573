//! `tow sync`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, CommandFactory, FromArgMatches};
use towpath_api::ApiError;
use towpath_api::copy::{CopyRequest, Mode};

use super::copying::{self, Copying};
use super::sync_flags::{self, SyncArguments};
use super::{Arguments, Context, refused, usage_error, verbose_names};

const ABOUT: &str = "Make one tree equal to another, here or on another machine, as rsync does";

/// Help on the operands of both commands that copy.
pub const OPERANDS: &str = "What to copy, and last where to: paths here, or [user@]host:path on one side";

const EXAMPLES: &str = "\
Examples:
  tow sync photos/ host:photos                  what is in photos, into photos at host
  tow sync -n -i --delete photos/ host:photos   tell what would be done, do nothing
  tow sync --exclude='*.o' -e 'ssh -p 2222' ann@host:src .

A slash at the end of SRC means what is in it. Of flags that contradict each other the last one
counts. Any other flag of rsync says by name what to do instead. Exit status: 2 usage, else that of
rsync: 0 done; 3, 5, 11, 12, 30 failed; 20 interrupted; 23 some files failed; 24 some vanished; 25
deletions were stopped by a limit.";

/// `tow sync`: its flags are those of [`sync_flags::FLAGS`].
#[derive(Debug)]
pub struct SyncCommand {
    pub(super) operands: Vec<OsString>,
    pub(super) arguments: SyncArguments,
    pub(super) help: bool,
}

impl SyncCommand {
    pub async fn run(mut self, context: &Context) -> Result<ExitCode, ApiError> {
        if self.help {
            print_help();
            return Ok(ExitCode::SUCCESS);
        }
        let destination = self.operands.pop().unwrap_or_default();
        let SyncArguments { options, rsh, tow_path, by_daemon, bind, shown, .. } = self.arguments;
        let (mode, sources) = (Mode::Sync, self.operands);
        let (reached, umask) = (None, None);
        let request =
            CopyRequest { mode, sources, destination, rsh, tow_path, reached, bind, umask, options };
        copying::copy(context, Copying { request, shown, by_daemon }).await
    }
}

fn print_help() {
    let mut root = Arguments::command();
    root.build();
    // A reader that went away (`| head -1`) has what it wanted.
    let _ = root.find_subcommand_mut("sync").map(Command::print_help);
}

impl Args for SyncCommand {
    fn augment_args(command: Command) -> Command {
        let operands = Arg::new("operands")
            .value_name("PATH")
            .help(OPERANDS)
            .num_args(0..)
            .value_parser(ValueParser::os_string());
        let help = Arg::new("help").long("help").help("Print help").action(ArgAction::Help);
        let negations = format!("These have a --no- form, as --no-owner or --no-o:\n {}", wrapped());
        let command = command
            .about(ABOUT)
            .override_usage("tow sync [OPTIONS] SRC... DEST")
            .after_help(format!("{negations}\n\n{EXAMPLES}"))
            .disable_help_flag(true)
            .args([operands, help, verbose_names()]);
        refused::arguments(sync_flags::arguments(command), refused::RSYNC)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flags that can be undone, in lines that fit.
fn wrapped() -> String {
    let mut lines = vec![String::new()];
    for name in sync_flags::negatable() {
        match lines.last_mut() {
            Some(line) if line.len() + name.len() < 90 => line.extend([" ", &name]),
            _ => lines.push(format!(" {name}")),
        }
    }
    lines.join("\n ")
}

impl FromArgMatches for SyncCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let usage = |message| usage_error("sync", message);
        refused::check(matches, "tow sync", refused::RSYNC).map_err(usage)?;
        let arguments = sync_flags::apply(matches).map_err(usage)?;
        let operands: Vec<OsString> =
            matches.get_many("operands").map_or_else(Vec::new, |operands| operands.cloned().collect());
        // As rsync has it, `-h` is help only on its own.
        let help = operands.is_empty() && matches.contains_id("human-readable");
        match operands.len() {
            0 | 1 if !help => Err(usage("SRC and DEST are needed, as in tow sync SRC/ host:DEST".into())),
            _ => Ok(Self { operands, arguments, help }),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
