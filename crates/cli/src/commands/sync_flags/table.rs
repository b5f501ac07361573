//! The table of `tow sync`'s flags: a new one of rsync's is a new line here, and a case in the tests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Apply, Flag, flag, search_effort, via};
use crate::commands::filter_rules::RuleKind;
use crate::commands::{parse_rate, rsync_size};

const CARRIED: &str = "What is carried over (all of -lptgoHAX without any flag)";
const CHOSEN: &str = "Which files";
const REMOVED: &str = "What is removed or kept";
const TRAVEL: &str = "The other side, and the way there";
const TALK: &str = "What is told";

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
            preserve.special_bits = true;
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
    flag(
        CARRIED,
        "perms",
        "Permission bits; setuid and setgid only if this or -a is given",
        Apply::OnOff(|a, on| {
            (a.options.preserve.perms, a.options.preserve.special_bits) = (on, on);
        }),
    )
    .short('p'),
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
    flag(
        CARRIED,
        "xattrs",
        "Extended attributes; of root, others than user.* only if this is given",
        Apply::OnOff(|a, on| {
            (a.options.preserve.xattrs, a.options.preserve.privileged_xattrs) = (on, on);
        }),
    )
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
        Apply::Value("FILE", |a, value| a.rules.push_file(RuleKind::Exclude, value, a.from0)),
    ),
    flag(
        CHOSEN,
        "include-from",
        "Read patterns not to leave out from FILE",
        Apply::Value("FILE", |a, value| a.rules.push_file(RuleKind::Include, value, a.from0)),
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
        "by-daemon",
        "The running daemon makes the copy, within its limits; ssh is started here all the same",
        Apply::On(|a| a.by_daemon = true),
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
    flag(
        TRAVEL,
        "bind",
        "Go out by these interfaces or addresses of this machine, all at once, as in eth0,wlan0",
        Apply::Value("LINK,...", |a, value| {
            a.bind = text(value)?.split(',').map(str::to_owned).collect();
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
        "search",
        "Search DIR at the receiver too; --no-search: do not search its disk",
        Apply::ValueOrNone("DIR", |a, value| {
            a.options.no_search = value.is_none();
            match value {
                Some(dir) => a.options.search.push(dir.as_bytes().to_vec()),
                None => a.options.search.clear(),
            }
            Ok(())
        }),
    ),
    flag(
        TRAVEL,
        "search-effort",
        "How hard to search where probably nothing is: some takes a tenth of the time, all has no limit",
        Apply::Value("some|all", |a, value| {
            a.options.search_effort = search_effort(&text(value)?)?;
            Ok(())
        }),
    ),
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
    flag(
        TALK,
        "explain",
        "Tell where bytes came from, what was searched, and what held the copy up",
        Apply::On(|a| a.shown.explain = true),
    ),
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
