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
    short: Option<char>,
    aliases: &'static [&'static str],
    heading: &'static str,
    help: &'static str,
    apply: Apply,
}

/// What a flag does.
enum Apply {
    /// It turns something on.
    On(fn(&mut SyncArguments)),
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
        let arg = arg.short(self.short).visible_aliases(self.aliases.iter().copied());
        match self.apply {
            Apply::On(_) | Apply::OnOff(_) => arg.num_args(0).default_missing_value(""),
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
    flag(CHOSEN, "existing", "Make nothing that is not there yet", Apply::On(|a| a.options.existing = true))
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
        Apply::On(|a| {
            a.per_directory_rules = a.per_directory_rules.saturating_add(1);
            let rule: &[u8] = match a.per_directory_rules {
                1 => b": /.rsync-filter",
                2 => b"- .rsync-filter",
                _ => return,
            };
            a.rules.push_line(rule);
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
        "Remove what the source does not have, once all is copied",
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
        "Remove no more than NUM; given, it may be more than half of the destination",
        Apply::Value("NUM", |a, value| {
            a.options.max_delete = Some(count(value)?);
            Ok(())
        }),
    ),
    flag(
        REMOVED,
        "force",
        "Remove more than half of the destination, and full directories in the way of files",
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
        "What is added to the name of what is kept [default: ~, or nothing with --backup-dir]",
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
        "Numbers of --stats as in 1.5K; twice: in units of 1024. Alone, -h prints this help",
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
