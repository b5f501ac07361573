//! rsync's flags: what a flag is, and what those that were given come to. Which there are stands in
//! `table`.
//!
//! The command line, the help, the completions and the manual are made from [`FLAGS`]. All that
//! was given is applied in the order of the command line, so that of two which contradict each
//! other the last one counts, and filter rules keep their order.

mod table;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use towpath_api::SearchEffort;
use towpath_api::copy::{Check, CopyOptions, Via};

use super::filter_rules::RuleWords;
use super::names_from;
use crate::copy_output::ShownChanges;
pub use table::FLAGS;

/// Options of `tow sync` by its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncArguments {
    /// Options that both sides know.
    pub options: CopyOptions,
    /// `-e`
    pub rsh: Option<OsString>,
    /// `--tow-path`
    pub tow_path: OsString,
    /// `--by-daemon`
    pub by_daemon: bool,
    /// `--bind`
    pub bind: Vec<String>,
    /// Changes that are shown.
    pub shown: ShownChanges,
    checks: Checks,
    /// `-r` in so many words: only that enters the directories that a list of files names.
    recursion_is_meant: bool,
    rules: RuleWords,
    per_directory_rules: u8,
    /// `-0`: lists and files of rules are separated by NUL.
    from0: bool,
    files_from: Option<OsString>,
    suffix: Option<Vec<u8>>,
}

/// The flags that decide what counts as unchanged; any of them may be given beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Checks {
    checksum: bool,
    size_only: bool,
    ignore_times: bool,
}

impl Default for SyncArguments {
    fn default() -> Self {
        Self {
            options: CopyOptions::default(),
            rsh: None,
            tow_path: "tow".into(),
            by_daemon: false,
            bind: Vec::new(),
            shown: ShownChanges::default(),
            checks: Checks::default(),
            recursion_is_meant: false,
            rules: RuleWords::default(),
            per_directory_rules: 0,
            from0: false,
            files_from: None,
            suffix: None,
        }
    }
}

/// One flag.
pub struct Flag {
    /// Its name after `--`, or its only letter.
    pub long: &'static str,
    /// Its letter.
    pub short: Option<char>,
    aliases: &'static [&'static str],
    heading: &'static str,
    help: &'static str,
    apply: Apply,
}

/// Effect of a flag.
enum Apply {
    /// It turns something on.
    On(fn(&mut SyncArguments)),
    /// The same, which may fail.
    Try(fn(&mut SyncArguments) -> Result<(), String>),
    /// It turns something on, and its `--no-` form turns it off.
    OnOff(fn(&mut SyncArguments, bool)),
    /// It has a value, which is called this in the help.
    Value(&'static str, fn(&mut SyncArguments, &OsStr) -> Result<(), String>),
    /// The same, and its `--no-` form takes the value back.
    ValueOrNone(&'static str, fn(&mut SyncArguments, Option<&OsStr>) -> Result<(), String>),
}

const fn flag(heading: &'static str, long: &'static str, help: &'static str, apply: Apply) -> Flag {
    Flag { long, short: None, aliases: &[], heading, help, apply }
}

impl Flag {
    const fn short(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    const fn also(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// True if `--no-X` exists.
    pub const fn can_be_undone(&self) -> bool {
        matches!(self.apply, Apply::OnOff(_) | Apply::ValueOrNone(..))
    }

    fn argument(&self) -> Arg {
        let arg = repeatable(Arg::new(self.long)).help(self.help).help_heading(self.heading);
        // `-D` has no other name than its letter.
        let arg = if self.long.len() > 1 { arg.long(self.long) } else { arg };
        let arg = arg.short(self.short).aliases(self.aliases.iter().copied());
        match self.apply {
            Apply::On(_) | Apply::Try(_) | Apply::OnOff(_) => arg.num_args(0).default_missing_value(""),
            Apply::Value(name, _) | Apply::ValueOrNone(name, _) => {
                arg.num_args(1).value_name(name).allow_hyphen_values(true)
            }
        }
    }

    /// `--no-owner`, which is also `--no-o`.
    fn negation(&self) -> Option<Arg> {
        let name = format!("no-{}", self.long);
        let arg = repeatable(Arg::new(&name).long(&name)).num_args(0).default_missing_value("").hide(true);
        let alias = self.short.map(|short| format!("no-{short}")).filter(|alias| *alias != name);
        self.can_be_undone().then(|| arg.aliases(alias))
    }
}

/// An argument that remembers each place where it was given.
fn repeatable(arg: Arg) -> Arg {
    arg.action(ArgAction::Append).value_parser(ValueParser::os_string())
}

/// Adds all flags to a command.
pub fn arguments(command: Command) -> Command {
    let command = command.args(FLAGS.iter().map(Flag::argument));
    command.args(FLAGS.iter().filter_map(Flag::negation))
}

/// The flags of these names, for a command that has some of them.
fn some<'a>(names: &'a [&str]) -> impl Iterator<Item = &'static Flag> + use<'a> {
    FLAGS.iter().filter(|flag| names.contains(&flag.long))
}

/// Adds the flags of these names to a command.
pub fn some_arguments(command: Command, names: &[&str]) -> Command {
    let command = command.args(some(names).map(Flag::argument));
    command.args(some(names).filter_map(Flag::negation))
}

/// [`apply`] for a command that has the flags of these names.
pub fn apply_some(matches: &ArgMatches, names: &[&str]) -> Result<SyncArguments, String> {
    apply_some_to(SyncArguments::default(), matches, names)
}

/// The same for a command that does other things without them.
pub fn apply_some_to(
    arguments: SyncArguments,
    matches: &ArgMatches,
    names: &[&str],
) -> Result<SyncArguments, String> {
    apply_given(arguments, some(names).flat_map(|flag| occurrences(matches, flag)).collect())
}

/// The short names that have a `--no-` form, for the help.
pub fn negatable() -> impl Iterator<Item = String> {
    let flags = FLAGS.iter().filter(|flag| flag.can_be_undone());
    flags.map(|flag| match flag.short {
        Some(short) => format!("-{short}"),
        None => format!("--{}", flag.long),
    })
}

/// One time that a flag was given.
struct GivenFlag<'a> {
    place: usize,
    flag: &'static Flag,
    /// Absent for a `--no-` form.
    value: Option<&'a OsStr>,
}

/// Applies what was given, in its order.
pub fn apply(matches: &ArgMatches) -> Result<SyncArguments, String> {
    apply_given(SyncArguments::default(), FLAGS.iter().flat_map(|flag| occurrences(matches, flag)).collect())
}

fn apply_given(mut arguments: SyncArguments, mut given: Vec<GivenFlag>) -> Result<SyncArguments, String> {
    given.sort_by_key(|given| given.place);
    if given.iter().any(|given| given.flag.long == "archive") {
        // Wherever `-a` stands, `-HAX` may stand on either side of it.
        let preserve = &mut arguments.options.preserve;
        (preserve.hard_links, preserve.acls, preserve.xattrs) = (false, false, false);
    }
    // The way in which files are read holds for those named before it as well.
    let (first, then): (Vec<_>, Vec<_>) = given.into_iter().partition(|given| given.flag.long == "from0");
    for given in first.into_iter().chain(then) {
        given.apply(&mut arguments).map_err(|error| format!("--{}: {error}", given.flag.long))?;
    }
    arguments.finish()
}

impl GivenFlag<'_> {
    fn apply(&self, arguments: &mut SyncArguments) -> Result<(), String> {
        match (&self.flag.apply, self.value) {
            (Apply::On(apply), _) => apply(arguments),
            (Apply::Try(apply), _) => apply(arguments)?,
            (Apply::OnOff(apply), value) => apply(arguments, value.is_some()),
            (Apply::Value(_, apply), Some(value)) => apply(arguments, value)?,
            (Apply::Value(..), None) => {}
            (Apply::ValueOrNone(_, apply), value) => apply(arguments, value)?,
        }
        Ok(())
    }
}

fn occurrences<'a>(matches: &'a ArgMatches, flag: &'static Flag) -> Vec<GivenFlag<'a>> {
    let mut all = Vec::new();
    if let (Some(places), Some(values)) =
        (matches.indices_of(flag.long), matches.get_many::<OsString>(flag.long))
    {
        all.extend(places.zip(values).map(|(place, value)| GivenFlag { place, flag, value: Some(value) }));
    }
    if flag.can_be_undone()
        && let Some(places) = matches.indices_of(&format!("no-{}", flag.long))
    {
        all.extend(places.map(|place| GivenFlag { place, flag, value: None }));
    }
    all
}

impl SyncArguments {
    /// Applies what follows from all flags together.
    fn finish(mut self) -> Result<Self, String> {
        let options = &mut self.options;
        // In this order, as rsync looks at them.
        options.check = match self.checks {
            Checks { checksum: true, .. } => Check::Content,
            Checks { size_only: true, .. } => Check::SizeOnly,
            Checks { ignore_times: true, .. } => Check::Never,
            Checks { .. } => Check::Quick,
        };
        options.report_unchanged = self.shown.itemize > 1;
        options.filters = self.rules.to_lines();
        if let Some(list) = &self.files_from {
            let names =
                names_from::read(list, self.from0).map_err(|error| format!("--files-from: {error}"))?;
            options.files_from = Some(names);
            options.recursive &= self.recursion_is_meant;
        } else if options.delete && !options.recursive {
            return Err("--delete needs -r: what is not looked into can't be compared".into());
        }
        let default: &[u8] = if options.backup_dir.is_some() { b"" } else { b"~" };
        options.suffix = self.suffix.clone().unwrap_or_else(|| default.to_vec());
        if options.backup && options.suffix.is_empty() && options.backup_dir.is_none() {
            return Err("--suffix: it can't be empty without --backup-dir".into());
        }
        Ok(self)
    }
}

/// Parses the value of `--search-effort`.
pub fn search_effort(text: &str) -> Result<SearchEffort, String> {
    match text {
        "some" => Ok(SearchEffort::Some),
        "all" => Ok(SearchEffort::All),
        _ => Err("it is some or all".into()),
    }
}

/// Parses the value of `--via`.
pub fn via(text: &str) -> Result<Via, String> {
    match text {
        "ssh" => Ok(Via::Ssh),
        "tls" => Ok(Via::Tls),
        _ => Err("it is ssh or tls; both are used without it".into()),
    }
}
