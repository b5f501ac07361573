//! rsync's flags as a table: a new one of them is a new line here, and a case in the test below.
//!
//! The command line, the help, the completions and the manual are made from [`FLAGS`]. All that
//! was given is applied in the order of the command line, so that of two which contradict each
//! other the last one counts, and filter rules keep their order.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use towpath_daemon::copy::{Check, CopyOptions, Via};

use super::filter_rules::{Kind, Rules};
use super::{names_from, parse_rate, rsync_size};
use crate::copy_output::Shown;

const CARRIED: &str = "What is carried over (all of -lptgoHAX without any flag)";
const CHOSEN: &str = "Which files";
const REMOVED: &str = "What is removed or kept";
const TRAVEL: &str = "The other side, and the way there";
const TALK: &str = "What is told";

/// What `tow sync` was asked for by its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncArguments {
    /// What both sides know.
    pub options: CopyOptions,
    /// `-e`
    pub rsh: Option<OsString>,
    /// `--tow-path`
    pub tow_path: OsString,
    /// What is told.
    pub shown: Shown,
    checks: Checks,
    /// `-r` in so many words: only that enters the directories that a list of files names.
    recursion_is_meant: bool,
    rules: Rules,
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
            shown: Shown::default(),
            checks: Checks::default(),
            recursion_is_meant: false,
            rules: Rules::default(),
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

/// What a flag does.
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

    /// Whether `--no-X` exists.
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

/// All flags of `tow sync`, in the order of its help; `-q`, `-v` and `--json` are every command's.
pub const FLAGS: &[Flag] = &[
    flag(
        CARRIED,
        "archive",
        "What -rlptgoD means, and no more unless -H, -A or -X is given too",
        Apply::On(|a| {
            a.options.recursive = true;
            let preserve = &mut a.options.preserve;
            (preserve.links, preserve.perms, preserve.times) = (true, true, true);
            (preserve.owner, preserve.group) = (true, true);
            (preserve.devices, preserve.specials) = (true, true);
        }),
    )
    .short('a'),
    flag(
        CARRIED,
        "recursive",
        "Enter directories (on without asking)",
        Apply::OnOff(|a, on| (a.options.recursive, a.recursion_is_meant) = (on, on)),
    )
    .short('r'),
    flag(CARRIED, "links", "Symbolic links", Apply::OnOff(|a, on| a.options.preserve.links = on)).short('l'),
    flag(CARRIED, "perms", "Permission bits", Apply::OnOff(|a, on| a.options.preserve.perms = on)).short('p'),
    flag(CARRIED, "times", "Times of last modification", Apply::OnOff(|a, on| a.options.preserve.times = on))
        .short('t'),
    flag(CARRIED, "group", "Groups, where permitted", Apply::OnOff(|a, on| a.options.preserve.group = on))
        .short('g'),
    flag(
        CARRIED,
        "owner",
        "Owners, where permitted (as root)",
        Apply::OnOff(|a, on| a.options.preserve.owner = on),
    )
    .short('o'),
    flag(
        CARRIED,
        "numeric-ids",
        "Owners and groups by number, not by name",
        Apply::OnOff(|a, on| a.options.preserve.numeric_ids = on),
    ),
    flag(
        CARRIED,
        "D",
        "Devices and specials",
        Apply::OnOff(|a, on| {
            (a.options.preserve.devices, a.options.preserve.specials) = (on, on);
        }),
    )
    .short('D'),
    flag(
        CARRIED,
        "devices",
        "Devices, where permitted (as root)",
        Apply::OnOff(|a, on| a.options.preserve.devices = on),
    ),
    flag(CARRIED, "specials", "FIFOs and sockets", Apply::OnOff(|a, on| a.options.preserve.specials = on)),
    flag(CARRIED, "hard-links", "Hard links", Apply::OnOff(|a, on| a.options.preserve.hard_links = on))
        .short('H'),
    flag(
        CARRIED,
        "acls",
        "Access control lists, and permission bits",
        Apply::OnOff(|a, on| {
            a.options.preserve.acls = on;
            a.options.preserve.perms |= on;
        }),
    )
    .short('A'),
    flag(CARRIED, "xattrs", "Extended attributes", Apply::OnOff(|a, on| a.options.preserve.xattrs = on))
        .short('X'),
    flag(
        CARRIED,
        "sparse",
        "Make runs of zeros holes, besides the holes of the source",
        Apply::OnOff(|a, on| a.options.sparse = on),
    )
    .short('S'),
    flag(
        CARRIED,
        "chmod",
        "Change modes on the way, as in Dg+s,u+w,Fo-w or D755,F644",
        Apply::Value("CHANGES", |a, value| {
            a.options.chmod.push(text(value)?);
            Ok(())
        }),
    ),
    flag(
        CARRIED,
        "chown",
        "Give everything to USER, GROUP or both",
        Apply::Value("USER:GROUP", |a, value| {
            a.options.chown = Some(text(value)?);
            Ok(())
        }),
    ),
    flag(
        CHOSEN,
        "copy-links",
        "Copy what symbolic links lead to, not the links",
        Apply::On(|a| a.options.copy_links = true),
    )
    .short('L'),
    flag(
        CHOSEN,
        "safe-links",
        "Leave out symbolic links that lead out of the tree",
        Apply::On(|a| a.options.safe_links = true),
    ),
    flag(
        CHOSEN,
        "one-file-system",
        "Do not enter other file systems",
        Apply::OnOff(|a, on| a.options.one_file_system = on),
    )
    .short('x'),
    flag(
        CHOSEN,
        "checksum",
        "Compare contents, not size and time",
        Apply::OnOff(|a, on| a.checks.checksum = on),
    )
    .short('c'),
    flag(
        CHOSEN,
        "size-only",
        "A file of the same size is the same",
        Apply::On(|a| a.checks.size_only = true),
    ),
    flag(
        CHOSEN,
        "ignore-times",
        "No file is taken for the same by its size and time",
        Apply::On(|a| a.checks.ignore_times = true),
    )
    .short('I'),
    flag(
        CHOSEN,
        "update",
        "Leave alone files that are newer at the destination",
        Apply::On(|a| a.options.update = true),
    )
    .short('u'),
    flag(
        CHOSEN,
        "existing",
        "Make nothing that is not there yet (--ignore-non-existing)",
        Apply::On(|a| a.options.existing = true),
    )
    .also(&["ignore-non-existing"]),
    flag(
        CHOSEN,
        "ignore-existing",
        "Leave alone what is there",
        Apply::On(|a| a.options.ignore_existing = true),
    ),
    flag(
        CHOSEN,
        "min-size",
        "Leave out smaller files; SIZE as in 10, 1.5K, 20MB, 1GiB-1",
        Apply::Value("SIZE", |a, value| {
            a.options.min_size = Some(rsync_size::parse(&text(value)?, 1)?);
            Ok(())
        }),
    ),
    flag(
        CHOSEN,
        "max-size",
        "Leave out larger files",
        Apply::Value("SIZE", |a, value| {
            a.options.max_size = Some(rsync_size::parse(&text(value)?, 1)?);
            Ok(())
        }),
    ),
    flag(
        CHOSEN,
        "filter",
        "Add a filter rule, as in '- *.o' or '+ /keep/**'",
        Apply::Value("RULE", |a, value| a.rules.push_filter(value.as_bytes())),
    )
    .short('f'),
    flag(
        CHOSEN,
        "F",
        "The same as -f ': /.rsync-filter'; twice: leave those files out too",
        Apply::Try(|a| {
            a.per_directory_rules = a.per_directory_rules.saturating_add(1);
            let rule: &[u8] = match a.per_directory_rules {
                1 => b": /.rsync-filter",
                2 => b"- .rsync-filter",
                _ => return Ok(()),
            };
            a.rules.push_filter(rule)
        }),
    )
    .short('F'),
    flag(
        CHOSEN,
        "exclude",
        "Leave out what PATTERN matches",
        Apply::Value("PATTERN", |a, value| a.rules.push_exclude(value.as_bytes())),
    ),
    flag(
        CHOSEN,
        "include",
        "Do not leave out what PATTERN matches",
        Apply::Value("PATTERN", |a, value| a.rules.push_include(value.as_bytes())),
    ),
    flag(
        CHOSEN,
        "exclude-from",
        "Read patterns to leave out from FILE, one a line; - is standard input",
        Apply::Value("FILE", |a, value| a.rules.push_file(Kind::Exclude, value, a.from0)),
    ),
    flag(
        CHOSEN,
        "include-from",
        "Read patterns not to leave out from FILE",
        Apply::Value("FILE", |a, value| a.rules.push_file(Kind::Include, value, a.from0)),
    ),
    flag(
        CHOSEN,
        "files-from",
        "Only what FILE names, one a line below the source; - is standard input",
        Apply::Value("FILE", |a, value| {
            a.files_from = Some(value.to_owned());
            Ok(())
        }),
    ),
    flag(
        CHOSEN,
        "from0",
        "What is read from files ends with NUL, not with a line's end",
        Apply::OnOff(|a, on| a.from0 = on),
    )
    .short('0'),
    flag(
        REMOVED,
        "delete",
        "Remove what the source does not have, when all is copied (as --delete-after)",
        Apply::On(|a| a.options.delete = true),
    )
    .also(&["del", "delete-before", "delete-during", "delete-delay", "delete-after"]),
    flag(
        REMOVED,
        "delete-excluded",
        "Remove what is left out too",
        Apply::On(|a| (a.options.delete, a.options.delete_excluded) = (true, true)),
    ),
    flag(
        REMOVED,
        "max-delete",
        "Remove no more than NUM, which may be more than half of the destination",
        Apply::Value("NUM", |a, value| {
            a.options.max_delete = Some(count(value)?);
            Ok(())
        }),
    ),
    flag(
        REMOVED,
        "force",
        "Remove more than half of the destination; directories in the way of files",
        Apply::OnOff(|a, on| a.options.force = on),
    ),
    flag(
        REMOVED,
        "backup",
        "Keep what would be overwritten or removed, under another name",
        Apply::OnOff(|a, on| a.options.backup = on),
    )
    .short('b'),
    flag(
        REMOVED,
        "backup-dir",
        "Keep it in DIR, relative to the destination",
        Apply::Value("DIR", |a, value| {
            (a.options.backup, a.options.backup_dir) = (true, Some(value.as_bytes().to_vec()));
            Ok(())
        }),
    ),
    flag(
        REMOVED,
        "suffix",
        "What is added to its name [default: ~, or nothing with --backup-dir]",
        Apply::Value("SUFFIX", |a, value| {
            if value.as_bytes().contains(&b'/') {
                return Err("a suffix has no slash; --backup-dir names a directory".into());
            }
            a.suffix = Some(value.as_bytes().to_vec());
            Ok(())
        }),
    ),
    flag(
        REMOVED,
        "remove-source-files",
        "Remove files at the source once they are in place",
        Apply::On(|a| a.options.remove_source_files = true),
    ),
    flag(
        TRAVEL,
        "rsh",
        "Reach the other side by CMD instead of ssh, as in 'ssh -p 2222'",
        Apply::Value("CMD", |a, value| {
            a.rsh = Some(value.to_owned());
            Ok(())
        }),
    )
    .short('e'),
    flag(
        TRAVEL,
        "tow-path",
        "What tow is called at the other side [default: tow]",
        Apply::Value("PROGRAM", |a, value| {
            a.tow_path = value.to_owned();
            Ok(())
        }),
    ),
    flag(
        TRAVEL,
        "via",
        "Data travel through ssh alone, or over TLS alone [default: what works best]",
        Apply::Value("ssh|tls", |a, value| {
            a.options.via = via(&text(value)?)?;
            Ok(())
        }),
    ),
    flag(TRAVEL, "compress", "Compress data on the network", Apply::OnOff(|a, on| a.options.compress = on))
        .short('z'),
    flag(
        TRAVEL,
        "whole-file",
        "Do not look for a file's data in what is at the destination",
        Apply::OnOff(|a, on| a.options.whole_file = on),
    )
    .short('W'),
    flag(
        TRAVEL,
        "bwlimit",
        "Use at most RATE of the network, in KiB a second, or as in 1.5M",
        Apply::ValueOrNone("RATE", |a, value| {
            a.options.limit_rate = value.map(bwlimit).transpose()?.unwrap_or(0);
            Ok(())
        }),
    ),
    flag(
        TRAVEL,
        "limit-rate",
        "The same in bytes a second, as in 500K or 10M",
        Apply::Value("RATE", |a, value| {
            a.options.limit_rate = parse_rate(&text(value)?)?;
            Ok(())
        }),
    ),
    flag(
        TRAVEL,
        "timeout",
        "Give up after this many seconds without progress; what came is kept",
        Apply::ValueOrNone("SECONDS", |a, value| {
            a.options.timeout = value.map(count).transpose()?.unwrap_or(0);
            Ok(())
        }),
    ),
    flag(TRAVEL, "partial", "Keep what came of a file when interrupted (always so)", Apply::OnOff(|_, _| {})),
    flag(TALK, "dry-run", "Change nothing, tell what would be", Apply::OnOff(|a, on| a.options.dry_run = on))
        .short('n'),
    flag(
        TALK,
        "itemize-changes",
        "Tell what changes about each entry; twice: tell of unchanged ones too",
        Apply::OnOff(|a, on| a.shown.itemize = if on { a.shown.itemize.saturating_add(1) } else { 0 }),
    )
    .short('i'),
    flag(TALK, "stats", "Tell counts and sizes at the end", Apply::On(|a| a.shown.stats = true)),
    flag(
        TALK,
        "progress",
        "Tell names; a bar on a terminal is there without asking",
        Apply::OnOff(|a, on| a.shown.progress = Some(on)),
    ),
    flag(TALK, "P", "The same as --partial --progress", Apply::On(|a| a.shown.progress = Some(true)))
        .short('P'),
    flag(
        TALK,
        "human-readable",
        "Numbers as in 1.5K, twice: in units of 1024; alone, -h is help",
        Apply::OnOff(|a, on| a.shown.human = if on { (a.shown.human + 1).min(3) } else { 0 }),
    )
    .short('h'),
];

/// Adds all flags to a command.
pub fn arguments(command: Command) -> Command {
    let command = command.args(FLAGS.iter().map(Flag::argument));
    command.args(FLAGS.iter().filter_map(Flag::negation))
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
struct Given<'a> {
    place: usize,
    flag: &'static Flag,
    /// Absent for a `--no-` form.
    value: Option<&'a OsStr>,
}

/// Applies what was given, in its order.
pub fn apply(matches: &ArgMatches) -> Result<SyncArguments, String> {
    let mut given: Vec<Given> = FLAGS.iter().flat_map(|flag| occurrences(matches, flag)).collect();
    given.sort_by_key(|given| given.place);
    let mut arguments = SyncArguments::default();
    if given.iter().any(|given| given.flag.long == "archive") {
        // Wherever `-a` stands, `-HAX` may stand on either side of it.
        let preserve = &mut arguments.options.preserve;
        (preserve.hard_links, preserve.acls, preserve.xattrs) = (false, false, false);
    }
    // How files are read holds for those named before it as well.
    let (first, then): (Vec<_>, Vec<_>) = given.into_iter().partition(|given| given.flag.long == "from0");
    for given in first.into_iter().chain(then) {
        given.apply(&mut arguments).map_err(|error| format!("--{}: {error}", given.flag.long))?;
    }
    arguments.finish()
}

impl Given<'_> {
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

fn occurrences<'a>(matches: &'a ArgMatches, flag: &'static Flag) -> Vec<Given<'a>> {
    let mut all = Vec::new();
    if let (Some(places), Some(values)) =
        (matches.indices_of(flag.long), matches.get_many::<OsString>(flag.long))
    {
        all.extend(places.zip(values).map(|(place, value)| Given { place, flag, value: Some(value) }));
    }
    if flag.can_be_undone()
        && let Some(places) = matches.indices_of(&format!("no-{}", flag.long))
    {
        all.extend(places.map(|place| Given { place, flag, value: None }));
    }
    all
}

impl SyncArguments {
    /// What follows from all flags together.
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

fn text(value: &OsStr) -> Result<String, String> {
    value.to_str().map(str::to_owned).ok_or_else(|| "it is not text".into())
}

/// A number; rsync takes a negative one for none.
fn count(value: &OsStr) -> Result<u64, String> {
    let text = text(value)?;
    match text.parse::<i64>() {
        Ok(number) => Ok(u64::try_from(number).unwrap_or(0)),
        Err(_) => Err(format!("'{text}' is not a number")),
    }
}

fn bwlimit(value: &OsStr) -> Result<u64, String> {
    match rsync_size::parse(&text(value)?, 1024)? {
        1..512 => Err("the least is 512 bytes a second; 0 is no limit".into()),
        rate => Ok(rate),
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

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use clap::Parser;

    use super::*;
    use crate::commands::Arguments;
    use crate::commands::sync::SyncCommand;

    fn try_parse(words: &[&OsStr]) -> Result<SyncArguments, String> {
        let around = ["tow", "sync"].map(OsStr::new).into_iter();
        let words = around.chain(words.iter().copied()).chain(["src", "dest"].map(OsStr::new));
        let parsed = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(parsed.into_sync().unwrap_or_else(|| panic!("not tow sync")).arguments)
    }

    fn parse(line: &str) -> SyncArguments {
        let words: Vec<&OsStr> = line.split_whitespace().map(OsStr::new).collect();
        try_parse(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn refusal(line: &str) -> String {
        let words: Vec<&OsStr> = line.split_whitespace().map(OsStr::new).collect();
        try_parse(&words).map(|parsed| panic!("{line}: {parsed:?}")).unwrap_or_else(|error: String| error)
    }

    /// The rules, in which `_` may stand for the space after the rule's name.
    fn lines(arguments: &SyncArguments) -> Vec<String> {
        let lines = arguments.options.filters.iter();
        lines.map(|line| String::from_utf8_lossy(line).replace('_', " ")).collect()
    }

    /// What a flag does: the words before it that make a difference visible, the flag in each of
    /// its forms, and what holds after it but not without it.
    type Case = (&'static str, &'static str, &'static [&'static str], fn(&SyncArguments) -> bool);

    const CASES: &[Case] = &[
        ("archive", "--no-o --no-D", &["-a", "--archive"], |a| {
            let p = &a.options.preserve;
            p.owner && p.group && p.devices && p.specials && !p.hard_links && !p.acls && !p.xattrs
        }),
        ("recursive", "--no-r", &["-r", "--recursive"], |a| a.options.recursive),
        ("no-recursive", "", &["--no-r", "--no-recursive"], |a| !a.options.recursive),
        ("links", "--no-l", &["-l", "--links"], |a| a.options.preserve.links),
        ("no-links", "", &["--no-l", "--no-links"], |a| !a.options.preserve.links),
        ("perms", "--no-p", &["-p", "--perms"], |a| a.options.preserve.perms),
        ("no-perms", "", &["--no-p", "--no-perms"], |a| !a.options.preserve.perms),
        ("times", "--no-t", &["-t", "--times"], |a| a.options.preserve.times),
        ("no-times", "", &["--no-t", "--no-times"], |a| !a.options.preserve.times),
        ("group", "--no-g", &["-g", "--group"], |a| a.options.preserve.group),
        ("no-group", "", &["--no-g", "--no-group"], |a| !a.options.preserve.group),
        ("owner", "--no-o", &["-o", "--owner"], |a| a.options.preserve.owner),
        ("no-owner", "", &["--no-o", "--no-owner"], |a| !a.options.preserve.owner),
        ("numeric-ids", "", &["--numeric-ids"], |a| a.options.preserve.numeric_ids),
        ("no-numeric-ids", "--numeric-ids", &["--no-numeric-ids"], |a| !a.options.preserve.numeric_ids),
        ("D", "", &["-D", "--devices --specials"], |a| {
            a.options.preserve.devices && a.options.preserve.specials
        }),
        ("no-D", "-D", &["--no-D"], |a| !a.options.preserve.devices && !a.options.preserve.specials),
        ("devices", "", &["--devices"], |a| a.options.preserve.devices && !a.options.preserve.specials),
        ("no-devices", "-D", &["--no-devices"], |a| {
            !a.options.preserve.devices && a.options.preserve.specials
        }),
        ("specials", "", &["--specials"], |a| a.options.preserve.specials && !a.options.preserve.devices),
        ("no-specials", "-D", &["--no-specials"], |a| {
            a.options.preserve.devices && !a.options.preserve.specials
        }),
        ("hard-links", "-a", &["-H", "--hard-links"], |a| a.options.preserve.hard_links),
        ("no-hard-links", "", &["--no-H", "--no-hard-links"], |a| !a.options.preserve.hard_links),
        ("acls", "-a --no-p", &["-A", "--acls"], |a| a.options.preserve.acls && a.options.preserve.perms),
        ("no-acls", "", &["--no-A", "--no-acls"], |a| !a.options.preserve.acls && a.options.preserve.perms),
        ("xattrs", "-a", &["-X", "--xattrs"], |a| a.options.preserve.xattrs),
        ("no-xattrs", "", &["--no-X", "--no-xattrs"], |a| !a.options.preserve.xattrs),
        ("sparse", "", &["-S", "--sparse"], |a| a.options.sparse),
        ("no-sparse", "-S", &["--no-S", "--no-sparse"], |a| !a.options.sparse),
        ("chmod", "--chmod=a", &["--chmod b", "--chmod=b"], |a| a.options.chmod == ["a", "b"]),
        ("chown", "--chown a:b", &["--chown c:d", "--chown=c:d"], |a| {
            a.options.chown.as_deref() == Some("c:d")
        }),
        ("copy-links", "", &["-L", "--copy-links"], |a| a.options.copy_links),
        ("safe-links", "", &["--safe-links"], |a| a.options.safe_links),
        ("one-file-system", "", &["-x", "--one-file-system"], |a| a.options.one_file_system),
        ("no-one-file-system", "-x", &["--no-x", "--no-one-file-system"], |a| !a.options.one_file_system),
        ("checksum", "", &["-c", "--checksum", "-cI", "-c --size-only"], |a| {
            a.options.check == Check::Content
        }),
        ("no-checksum", "-c", &["--no-c", "--no-checksum"], |a| a.options.check == Check::Quick),
        ("size-only", "-I", &["--size-only"], |a| a.options.check == Check::SizeOnly),
        ("ignore-times", "", &["-I", "--ignore-times"], |a| a.options.check == Check::Never),
        ("update", "", &["-u", "--update"], |a| a.options.update),
        ("existing", "", &["--existing", "--ignore-non-existing"], |a| a.options.existing),
        ("ignore-existing", "", &["--ignore-existing"], |a| a.options.ignore_existing),
        ("min-size", "--min-size 1", &["--min-size 2K", "--min-size=2KiB"], |a| {
            a.options.min_size == Some(2048)
        }),
        ("max-size", "--max-size 1", &["--max-size 2kb-1", "--max-size=1999"], |a| {
            a.options.max_size == Some(1999)
        }),
        ("filter", "-f :_x", &["-f -_a", "-f=-_a", "-f-_a", "--filter -_a", "--filter=-_a"], |a| {
            lines(a) == [": x", "- a"]
        }),
        ("F", "", &["-F"], |a| lines(a) == [": /.rsync-filter"]),
        ("exclude", "--include=+x", &["--exclude -a", "--exclude=-a"], |a| lines(a) == ["+ +x", "- -a"]),
        ("include", "--exclude=x", &["--include -a", "--include=-a"], |a| lines(a) == ["- x", "+ -a"]),
        ("exclude-from", "", &["--exclude-from FILE", "--exclude-from=FILE"], |a| {
            lines(a) == ["- one", "- two"]
        }),
        ("include-from", "", &["--include-from FILE", "--include-from=FILE"], |a| {
            lines(a) == ["+ one", "+ two"]
        }),
        ("files-from", "", &["--files-from FILE", "--files-from=FILE"], |a| {
            a.options.files_from == Some(vec![b"one".to_vec(), b"two".to_vec()]) && !a.options.recursive
        }),
        ("from0", "--files-from FILE", &["-0", "--from0"], |a| {
            a.options.files_from == Some(vec![b"one\ntwo\n".to_vec()])
        }),
        ("no-from0", "-0 --exclude-from FILE", &["--no-from0", "--no-0"], |a| lines(a) == ["- one", "- two"]),
        (
            "delete",
            "",
            &["--delete", "--del", "--delete-before", "--delete-during", "--delete-delay", "--delete-after"],
            |a| a.options.delete && !a.options.delete_excluded,
        ),
        ("delete-excluded", "", &["--delete-excluded"], |a| a.options.delete && a.options.delete_excluded),
        ("max-delete", "", &["--max-delete 7", "--max-delete=7"], |a| a.options.max_delete == Some(7)),
        ("force", "", &["--force"], |a| a.options.force),
        ("no-force", "--force", &["--no-force"], |a| !a.options.force),
        ("backup", "", &["-b", "--backup"], |a| a.options.backup && a.options.suffix == b"~"),
        ("no-backup", "-b", &["--no-b", "--no-backup"], |a| !a.options.backup),
        ("backup-dir", "", &["--backup-dir x", "--backup-dir=x"], |a| {
            a.options.backup && a.options.backup_dir.as_deref() == Some(b"x") && a.options.suffix.is_empty()
        }),
        ("suffix", "", &["--suffix .old", "--suffix=.old"], |a| a.options.suffix == b".old"),
        ("remove-source-files", "", &["--remove-source-files"], |a| a.options.remove_source_files),
        ("rsh", "-e x", &["-e rsh", "-ersh", "--rsh rsh", "--rsh=rsh"], |a| {
            a.rsh.as_deref() == Some(OsStr::new("rsh"))
        }),
        ("tow-path", "", &["--tow-path /x", "--tow-path=/x"], |a| a.tow_path == "/x"),
        ("via", "--via ssh", &["--via tls", "--via=tls"], |a| a.options.via == Via::Tls),
        ("compress", "", &["-z", "--compress"], |a| a.options.compress),
        ("no-compress", "-z", &["--no-z", "--no-compress"], |a| !a.options.compress),
        ("whole-file", "", &["-W", "--whole-file"], |a| a.options.whole_file),
        ("no-whole-file", "-W", &["--no-W", "--no-whole-file"], |a| !a.options.whole_file),
        ("bwlimit", "", &["--bwlimit 2", "--bwlimit=2K", "--bwlimit=2048b"], |a| {
            a.options.limit_rate == 2048
        }),
        ("no-bwlimit", "--bwlimit 2", &["--no-bwlimit", "--bwlimit=0"], |a| a.options.limit_rate == 0),
        ("limit-rate", "", &["--limit-rate 2K", "--limit-rate=2048"], |a| a.options.limit_rate == 2048),
        ("timeout", "", &["--timeout 9", "--timeout=9"], |a| a.options.timeout == 9),
        ("no-timeout", "--timeout 9", &["--no-timeout"], |a| a.options.timeout == 0),
        ("dry-run", "", &["-n", "--dry-run"], |a| a.options.dry_run),
        ("no-dry-run", "-n", &["--no-n", "--no-dry-run"], |a| !a.options.dry_run),
        ("itemize-changes", "", &["-i", "--itemize-changes"], |a| {
            a.shown.itemize == 1 && !a.options.report_unchanged
        }),
        ("no-itemize-changes", "-ii", &["--no-i", "--no-itemize-changes"], |a| a.shown.itemize == 0),
        ("stats", "", &["--stats"], |a| a.shown.stats),
        ("progress", "", &["--progress"], |a| a.shown.progress == Some(true)),
        ("no-progress", "-P", &["--no-progress"], |a| a.shown.progress == Some(false)),
        ("P", "", &["-P", "--partial --progress"], |a| a.shown.progress == Some(true)),
        ("human-readable", "", &["-h", "--human-readable"], |a| a.shown.human == 2),
        ("no-human-readable", "-hh", &["--no-h", "--no-human-readable"], |a| a.shown.human == 0),
    ];

    /// Those that say what is so anyway.
    const ALWAYS_SO: &[&str] = &["partial", "no-partial"];

    #[test]
    fn each_flag_does_what_it_says_in_each_of_its_forms() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "one\ntwo\n").unwrap();
        for (name, before, forms, holds) in CASES {
            for form in *forms {
                let with = |line: &str| parse(&line.replace("FILE", file.to_str().unwrap()));
                assert!(!holds(&with(before)), "{name}: so without {form} too");
                let after = with(&format!("{before} {form}"));
                assert!(holds(&after), "{name}: {form} does not do it: {after:?}");
            }
        }
    }

    #[test]
    fn each_flag_has_a_case() {
        let has_case = |name: &str| CASES.iter().any(|case| case.0 == name) || ALWAYS_SO.contains(&name);
        for flag in FLAGS {
            assert!(has_case(flag.long), "--{} has no case", flag.long);
            let negation = format!("no-{}", flag.long);
            assert!(!flag.can_be_undone() || has_case(&negation), "--{negation} has no case");
        }
        for flag in ALWAYS_SO {
            assert_eq!(parse(&format!("--{flag}")), parse(""));
        }
    }

    #[test]
    fn without_flags_it_is_what_rsync_calls_ahax() {
        let plain = parse("").options;
        assert_eq!(CopyOptions { suffix: b"~".to_vec(), ..CopyOptions::default() }, plain);
        for line in ["-aHAX", "-HAXa", "-rlptgoHAXD", "-aH -AX"] {
            let mut options = parse(line).options;
            assert!(options.preserve.devices && options.preserve.specials, "{line}");
            (options.preserve.devices, options.preserve.specials) = (false, false);
            assert_eq!(options, plain, "{line}");
        }
    }

    #[test]
    fn flags_apply_in_their_order_also_in_one_word() {
        assert!(!parse("-o --no-o").options.preserve.owner);
        assert!(parse("--no-o -avo").options.preserve.owner);
        assert!(!parse("-a --no-D").options.preserve.devices);
        assert!(parse("--no-D -a").options.preserve.devices);
        assert!(!parse("-A --no-p").options.preserve.perms);
        let mixed = parse("--include a -f -_b --exclude c -f :_d --include e");
        assert_eq!(lines(&mixed), ["+ a", "- b", "- c", ": d", "+ e"]);
        assert_eq!(
            lines(&parse("--exclude a -FF --exclude b -F")),
            ["- a", ": /.rsync-filter", "- .rsync-filter", "- b"]
        );
    }

    #[test]
    fn letters_go_together_as_people_type_them() {
        let usual = parse("-avzhP --delete -ne ssh");
        assert!(usual.options.compress && usual.options.dry_run && usual.options.delete);
        assert_eq!((usual.shown.human, usual.shown.progress), (2, Some(true)));
        assert_eq!(usual.rsh.as_deref(), Some(OsStr::new("ssh")));
        assert!(parse("-aii").options.report_unchanged);
        assert_eq!(parse("-hhh").shown.human, 3);
    }

    #[test]
    fn only_r_in_so_many_words_enters_the_directories_of_a_list() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("list");
        std::fs::write(&file, "d\n").unwrap();
        let with = |flags: &str| parse(&format!("{flags} --files-from {}", file.display())).options.recursive;
        assert!(!with("") && !with("-a") && with("-r") && with("-ar") && !with("-r --no-r"));
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_what_would() {
        for (line, says) in [
            ("--max-size=1x", "1.5K"),
            ("--bwlimit=1b", "512"),
            ("--via=udp", "ssh or tls"),
            ("--max-delete=x", "not a number"),
            ("--timeout=x", "not a number"),
            ("--suffix=a/b", "--backup-dir"),
            ("-b --suffix=", "--backup-dir"),
            ("--delete --no-r", "-r"),
            ("--exclude-from=/nowhere/at/all", "/nowhere/at/all"),
            ("--files-from=/nowhere/at/all", "/nowhere/at/all"),
        ] {
            let error = refusal(line);
            assert!(error.contains(says), "{line}: {error}");
        }
        let not_text = OsString::from_vec(b"--chown=\xff".to_vec());
        assert!(try_parse(&[&not_text]).unwrap_err().contains("not text"));
        assert_eq!(parse("--max-delete=-1").options.max_delete, Some(0));
    }

    #[test]
    fn what_rsync_has_and_tow_has_not_is_named_wherever_it_stands() {
        for (line, names) in [
            ("--inplace", "--inplace"),
            ("-avR", "--relative (-R)"),
            ("-T/tmp", "--temp-dir (-T)"),
            ("--link-dest=/x -a", "--link-dest"),
            ("-a --info=progress2", "--info"),
            ("--no-inc-recursive", "--no-inc-recursive"),
            ("--rsync-path=/x", "--tow-path"),
        ] {
            let error = refusal(line);
            assert!(error.contains("tow sync has no") && error.contains(names), "{line}: {error}");
        }
        assert!(refusal("--no-such-thing").contains("unexpected argument"), "unknown to both");
    }

    #[test]
    fn the_flags_of_every_command_go_with_these() {
        let parsed = Arguments::try_parse_from(["tow", "sync", "-avvqi", "--json", "a", "b", "c"]).unwrap();
        assert_eq!(parsed.flags(), (2, true, true));
        let sync: SyncCommand = parsed.into_sync().unwrap();
        assert_eq!(sync.operands, ["a", "b", "c"]);
        assert_eq!(sync.arguments.shown.itemize, 1);
    }

    #[test]
    fn h_alone_is_help_and_operands_are_needed() {
        let parse = |words: &[&str]| Arguments::try_parse_from([&["tow", "sync"], words].concat());
        assert!(parse(&["-h"]).unwrap().into_sync().unwrap().help);
        assert!(!parse(&["-h", "a", "b"]).unwrap().into_sync().unwrap().help);
        for words in [&[][..], &["a"], &["-h", "a"]] {
            let error = parse(words).unwrap_err();
            assert!(error.to_string().contains("SRC and DEST"), "{words:?}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
