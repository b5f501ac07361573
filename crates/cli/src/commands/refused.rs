//! Flags of rsync, scp and cp that `tow` does not have: each says so by name, and what to do instead.

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Prefix of the identifiers of their arguments.
const ID: &str = "refused ";

/// A flag of another program.
pub struct Refused {
    /// Its name after `--`, empty if it has none.
    long: &'static str,
    short: Option<char>,
    /// It has a value there, so that what follows it is none of ours.
    has_value: bool,
    /// Advice on what to do instead.
    instead: &'static str,
}

const fn plain(short: &str, long: &'static str, instead: &'static str) -> Refused {
    Refused { long, short: letter(short), has_value: false, instead }
}

const fn valued(short: &str, long: &'static str, instead: &'static str) -> Refused {
    Refused { long, short: letter(short), has_value: true, instead }
}

const fn letter(short: &str) -> Option<char> {
    match short.as_bytes() {
        [] => None,
        [letter, ..] => Some(*letter as char),
    }
}

const ALWAYS_WHOLE: &str = "a file takes its name only when it is whole, and what came of one that was interrupted is kept; leave it out";
const BY_SSH: &str = "say it to ssh, as in -e 'ssh OPTION'";
const NOT_A_DAEMON: &str = "tow speaks to no rsync daemon; name the other side as [user@]host:path";
const SAFE_ARGUMENTS: &str = "names reach the other side as they are, no shell sees them; leave it out";
const ONE_TREE: &str =
    "make DEST a copy of that tree first, as in cp -a --reflink=auto TREE DEST, then tow sync into it";
const CHOOSES: &str = "tow chooses by itself; leave it out";
const BATCH: &str = "use tow share on this side and tow get on the others";
const NO_MAP: &str = "use --chown USER:GROUP, or --numeric-ids";
const ITEMS: &str = "use -i, or --json for one object a line";
const LINKS: &str =
    "links are kept as they are, -L follows all of them, --safe-links leaves out those that lead out";
const TIMES_OF_SOME: &str = "use --no-times to leave out all times";

/// rsync's flags that `tow sync` has not.
pub const RSYNC: &[Refused] = &[
    valued("", "info", "use -i, -v, --stats or --progress"),
    valued("", "debug", "use -vv, or TOW_LOG=debug in the environment"),
    valued("", "stderr", "errors go to standard error, data to standard output; leave it out"),
    plain("", "msgs2stderr", "errors go to standard error, data to standard output; leave it out"),
    plain("", "no-msgs2stderr", "errors go to standard error, data to standard output; leave it out"),
    plain("", "no-motd", NOT_A_DAEMON),
    plain("", "motd", NOT_A_DAEMON),
    plain("", "no-verbose", "leave out -v"),
    plain("", "no-v", "leave out -v"),
    plain("", "inc-recursive", "the scan always runs beside the transfer; leave it out"),
    plain("", "i-r", "the scan always runs beside the transfer; leave it out"),
    plain("", "no-inc-recursive", "the scan always runs beside the transfer; leave it out"),
    plain("", "no-i-r", "the scan always runs beside the transfer; leave it out"),
    plain("R", "relative", "name paths below the source with --files-from"),
    plain("", "no-relative", "paths are never relative; leave it out"),
    plain("", "no-R", "paths are never relative; leave it out"),
    plain("", "implied-dirs", "name paths below the source with --files-from"),
    plain("", "no-implied-dirs", "name paths below the source with --files-from"),
    plain("", "i-d", "name paths below the source with --files-from"),
    plain("", "no-i-d", "name paths below the source with --files-from"),
    plain("", "inplace", ALWAYS_WHOLE),
    plain("", "no-inplace", ALWAYS_WHOLE),
    plain("", "append", ALWAYS_WHOLE),
    plain("", "append-verify", ALWAYS_WHOLE),
    plain("", "no-append", ALWAYS_WHOLE),
    plain("d", "dirs", "name the directories with --files-from, or leave out what is in them: -f '- */*'"),
    plain("", "no-dirs", "leave it out"),
    plain("", "no-d", "leave it out"),
    plain("", "old-dirs", "name the directories with --files-from, or leave out what is in them: -f '- */*'"),
    plain("", "old-d", "name the directories with --files-from, or leave out what is in them: -f '- */*'"),
    plain("", "mkpath", "make the directories first, as in ssh HOST mkdir -p DIR"),
    plain("", "no-mkpath", "leave it out"),
    plain("", "copy-unsafe-links", LINKS),
    plain("", "insecure-links", "links of others are never followed at the destination; leave it out"),
    plain("", "no-insecure-links", "links of others are never followed at the destination; leave it out"),
    valued("", "confine-root", "nothing is ever written outside the destination; leave it out"),
    plain("", "munge-links", LINKS),
    plain("", "no-munge-links", LINKS),
    plain("k", "copy-dirlinks", LINKS),
    plain(
        "K",
        "keep-dirlinks",
        "links at the destination are never followed; name the directory itself as DEST",
    ),
    plain("E", "executability", "use -p for all permission bits, or --chmod"),
    plain("", "no-executability", "leave it out"),
    plain("", "copy-devices", "use tow put - < DEVICE on one side and tow get on the other"),
    plain("", "write-devices", "use tow put - < FILE on one side and tow get - -o - > DEVICE on the other"),
    plain("", "no-write-devices", "devices are never written to; leave it out"),
    plain("", "drop-D", "use --no-D, which is so without asking"),
    plain("", "no-drop-D", "use -D to copy them"),
    plain("U", "atimes", "times of last access are not carried; leave it out"),
    plain("", "no-atimes", "times of last access are not carried; leave it out"),
    plain("", "no-U", "times of last access are not carried; leave it out"),
    plain("", "open-noatime", "leave it out"),
    plain("", "no-open-noatime", "leave it out"),
    plain("N", "crtimes", "times of creation are not carried; leave it out"),
    plain("", "no-crtimes", "times of creation are not carried; leave it out"),
    plain("", "no-N", "times of creation are not carried; leave it out"),
    plain("O", "omit-dir-times", TIMES_OF_SOME),
    plain("", "no-omit-dir-times", "times of directories are carried; leave it out"),
    plain("", "no-O", "times of directories are carried; leave it out"),
    plain("J", "omit-link-times", TIMES_OF_SOME),
    plain("", "no-omit-link-times", "times of links are carried; leave it out"),
    plain("", "no-J", "times of links are carried; leave it out"),
    plain("", "super", "owners and devices are set where permitted; leave it out, or run it as root"),
    plain("", "no-super", "use --no-owner --no-group --no-D"),
    plain("", "fake-super", "run it as root, or keep owners in an archive: tar -c DIR | tow put -"),
    plain("", "preallocate", "space is claimed as data come; leave it out"),
    valued("", "checksum-choice", "contents are always compared by BLAKE3; leave it out"),
    valued("", "cc", "contents are always compared by BLAKE3; leave it out"),
    valued("", "checksum-seed", "contents are always compared by BLAKE3; leave it out"),
    valued("B", "block-size", CHOOSES),
    valued("", "rsync-path", "use --tow-path PROGRAM"),
    plain("", "ignore-missing-args", "name only sources that are there"),
    plain("", "delete-missing-args", "use --delete on the directory above them"),
    plain("", "ignore-errors", "nothing is removed where the source could not be read; correct that first"),
    plain("", "no-ignore-errors", "it is always so; leave it out"),
    valued("", "max-alloc", "memory is bounded by itself; leave it out"),
    valued("", "partial-dir", "what came of a file is always kept, beside it; leave it out"),
    plain("", "delay-updates", "each file takes its name when it is whole; leave it out"),
    plain("", "no-delay-updates", "it is always so; leave it out"),
    plain("m", "prune-empty-dirs", "leave out directories by a filter, as in --exclude=/empty/"),
    plain("", "no-prune-empty-dirs", "it is always so; leave it out"),
    plain("", "no-m", "it is always so; leave it out"),
    valued("", "usermap", NO_MAP),
    valued("", "groupmap", NO_MAP),
    valued("", "contimeout", "use --timeout, or -e 'ssh -o ConnectTimeout=SECONDS'"),
    plain("", "no-contimeout", "leave it out"),
    valued("@", "modify-window", "use --size-only, or -c, where times at the destination are coarse"),
    valued(
        "T",
        "temp-dir",
        "files are made in the directory they belong to, so that taking their name costs nothing; leave it out",
    ),
    plain("y", "fuzzy", "data of renamed files are found by themselves; leave it out"),
    plain("", "no-fuzzy", "use -W for files whose data should not be looked for"),
    plain("", "no-y", "use -W for files whose data should not be looked for"),
    valued("", "compare-dest", ONE_TREE),
    valued("", "copy-dest", ONE_TREE),
    valued("", "link-dest", ONE_TREE),
    valued("", "compress-choice", CHOOSES),
    valued("", "zc", CHOOSES),
    valued("", "compress-level", CHOOSES),
    valued("", "zl", CHOOSES),
    valued("", "compress-threads", CHOOSES),
    valued("", "zt", CHOOSES),
    valued("", "skip-compress", CHOOSES),
    plain("", "old-compress", "use -z, which chooses by itself"),
    plain("", "new-compress", "use -z, which chooses by itself"),
    plain("C", "cvs-exclude", "name what to leave out with --exclude or --exclude-from"),
    plain("", "old-args", SAFE_ARGUMENTS),
    plain("", "no-old-args", SAFE_ARGUMENTS),
    plain("s", "secluded-args", SAFE_ARGUMENTS),
    plain("", "no-secluded-args", SAFE_ARGUMENTS),
    plain("", "no-s", SAFE_ARGUMENTS),
    plain("", "protect-args", SAFE_ARGUMENTS),
    plain("", "no-protect-args", SAFE_ARGUMENTS),
    plain("", "trust-sender", "a sender is never trusted; leave it out"),
    valued("", "copy-as", "run it as that user, as in sudo -u USER tow sync"),
    valued("", "address", "say it to ssh, as in -e 'ssh -b ADDRESS'"),
    valued("", "port", "say it to ssh, as in -e 'ssh -p PORT'"),
    valued("", "sockopts", BY_SSH),
    plain("", "blocking-io", "leave it out"),
    plain("", "no-blocking-io", "leave it out"),
    valued("", "outbuf", "lines are written as they come; leave it out"),
    plain(
        "8",
        "8-bit-output",
        "names are escaped only where they could paint a terminal; --json has them as they are",
    ),
    plain("", "no-8-bit-output", "leave it out"),
    plain("", "no-8", "leave it out"),
    valued("M", "remote-option", "both sides know all flags; leave it out"),
    valued("", "out-format", ITEMS),
    valued("", "log-format", ITEMS),
    valued("", "log-file", "send the output to a file, as in tow sync -i SRC DEST >> FILE 2>&1"),
    valued("", "log-file-format", ITEMS),
    valued("", "password-file", NOT_A_DAEMON),
    valued("", "early-input", NOT_A_DAEMON),
    plain("", "daemon", "tow daemon serves what is put; tow sync needs none at the other side, only ssh"),
    valued("", "config", NOT_A_DAEMON),
    valued("", "dparam", NOT_A_DAEMON),
    plain("", "no-detach", NOT_A_DAEMON),
    plain("", "server", "the other side is started as tow remote"),
    plain("", "sender", "the other side is started as tow remote"),
    plain("", "list-only", "use -n -i with an empty directory as DEST"),
    valued("", "stop-after", "use timeout MINUTESm tow sync; the same command goes on later"),
    valued("", "time-limit", "use timeout MINUTESm tow sync; the same command goes on later"),
    valued("", "stop-at", "use timeout MINUTESm tow sync; the same command goes on later"),
    plain("", "fsync", "every file is on disk before it takes its name; leave it out"),
    plain("", "no-fsync", "every file is on disk before it takes its name; leave it out"),
    valued("", "write-batch", BATCH),
    valued("", "only-write-batch", BATCH),
    valued("", "read-batch", BATCH),
    valued("", "protocol", CHOOSES),
    valued("", "iconv", "names are carried as they are, byte by byte; leave it out"),
    plain("", "no-iconv", "names are carried as they are, byte by byte; leave it out"),
    plain("4", "ipv4", "say it to ssh, as in -e 'ssh -4'"),
    plain("6", "ipv6", "say it to ssh, as in -e 'ssh -6'"),
    plain("V", "version", "use tow --version"),
];

/// Flags of cp and scp that `tow cp` has not.
pub const CP: &[Refused] = &[
    valued("P", "port", "say it to ssh, as in -e 'ssh -p PORT'; links are kept as they are without cp's -P"),
    plain("", "no-dereference", "links are kept as they are; leave it out"),
    plain("d", "", "links are kept as they are; leave it out"),
    plain("H", "", "links are kept as they are; -L follows all of them"),
    valued("i", "", "for another key use -e 'ssh -i FILE'; to overwrite nothing use -n"),
    plain("", "interactive", "tow asks no questions; -n overwrites nothing"),
    valued("o", "", "say it to ssh, as in -e 'ssh -o OPTION'"),
    valued("F", "", "say it to ssh, as in -e 'ssh -F FILE'"),
    valued("J", "", "say it to ssh, as in -e 'ssh -J HOST'"),
    valued("c", "", "say it to ssh, as in -e 'ssh -c CIPHER'"),
    valued("S", "", "another program than ssh is -e PROGRAM; the name of backups is --suffix SUFFIX"),
    plain("A", "", "say it to ssh, as in -e 'ssh -A'"),
    plain("B", "", "say it to ssh, as in -e 'ssh -o BatchMode=yes'"),
    plain("4", "", "say it to ssh, as in -e 'ssh -4'"),
    plain("6", "", "say it to ssh, as in -e 'ssh -6'"),
    plain("3", "", "one side is this machine; for two others run tow cp on one of them"),
    valued("X", "", "leave it out"),
    valued("D", "", "leave it out"),
    plain("O", "", "leave it out"),
    plain("l", "link", "hard links to the source are made by cp -l; for a limit use --limit-rate"),
    plain("s", "symbolic-link", "symbolic links to the source are made by cp -s or ln -s"),
    plain("T", "no-target-directory", "tow sync SRC/ DEST makes DEST what SRC is"),
    plain("Z", "", "leave it out; security contexts are extended attributes and carried where permitted"),
    valued(
        "",
        "context",
        "leave it out; security contexts are extended attributes and carried where permitted",
    ),
    valued("", "sparse", "holes of the source stay holes; tow sync -S makes more of them"),
    valued("", "reflink", "leave it out"),
    plain("", "parents", "use tow sync --files-from"),
    plain("", "remove-destination", "a file is always replaced as a whole; leave it out"),
    plain("", "strip-trailing-slashes", "leave it out"),
    plain("", "attributes-only", "use tow sync --size-only"),
    plain("", "copy-contents", "use tow put - < FILE on one side and tow get on the other"),
    plain("", "debug", "use -vv, or TOW_LOG=debug in the environment"),
];

impl Refused {
    fn id(&self) -> String {
        format!("{ID}{}{}", self.long, self.short.map_or(String::new(), String::from))
    }

    /// As people know it.
    fn name(&self) -> String {
        match (self.short, self.long) {
            (Some(short), "") => format!("-{short}"),
            (Some(short), long) => format!("--{long} (-{short})"),
            (None, long) => format!("--{long}"),
        }
    }

    fn argument(&self) -> Arg {
        let arg = Arg::new(self.id()).hide(true).short(self.short).value_parser(ValueParser::os_string());
        let arg = if self.long.is_empty() { arg } else { arg.long(self.long) };
        let arg = arg.action(ArgAction::Append).default_missing_value("");
        if self.has_value { arg.num_args(0..=1).allow_hyphen_values(true) } else { arg.num_args(0) }
    }
}

/// Makes a command know these flags, so that it can say more of them than that it does not.
pub fn arguments(command: Command, refused: &[Refused]) -> Command {
    command.args(refused.iter().map(Refused::argument))
}

/// Says that a flag of these was given, and what to do instead.
pub fn check(matches: &ArgMatches, program: &str, refused: &[Refused]) -> Result<(), String> {
    let given = refused.iter().find(|flag| matches.contains_id(&flag.id()));
    given.map_or(Ok(()), |flag| Err(format!("{program} has no {}: {}", flag.name(), flag.instead)))
}

/// The same command without these flags: completions offer only what there is.
pub fn without(command: &Command) -> Command {
    let offered = command.get_arguments().filter(|arg| !arg.get_id().as_str().starts_with(ID)).cloned();
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).map(without);
    let bare = Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .disable_help_flag(command.is_disable_help_flag_set());
    let bare = match command.get_version() {
        Some(version) => bare.version(version.to_owned()),
        None => bare,
    };
    bare.args(offered).subcommands(below)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Arguments;
    use crate::commands::sync_flags::FLAGS;

    #[test]
    fn each_is_refused_by_name_and_with_an_alternative() {
        for (program, table) in [("tow sync", RSYNC), ("tow cp", CP)] {
            for flag in table {
                let long = (!flag.long.is_empty()).then(|| format!("--{}", flag.long));
                let short = flag.short.map(|short| format!("-{short}"));
                for word in [long, short].into_iter().flatten() {
                    let command = arguments(Command::new("x"), table);
                    let matches = command.try_get_matches_from(["x", &word]).unwrap();
                    let error = check(&matches, program, table).unwrap_err();
                    assert!(error.contains(&word) && error.starts_with(program), "{error}");
                    assert!(flag.instead.len() > 10, "{word} says nothing about what to do instead");
                }
            }
        }
    }

    /// All that rsync's own help names, by its long and short names.
    fn words_of_rsync() -> Option<Vec<String>> {
        let help = std::process::Command::new("rsync").arg("--help").output().ok()?;
        let help = String::from_utf8(help.stdout).unwrap();
        let lines = help.lines().filter(|line| line.starts_with('-'));
        // Two spaces end the names.
        let names = lines.filter_map(|line| line.split("  ").next());
        let words = names.flat_map(|names| names.split([',', ' ', '=']).filter(|word| word.starts_with('-')));
        Some(words.map(Into::into).filter(|word: &String| word != "--no-OPTION").collect())
    }

    #[test]
    fn every_flag_that_rsync_names_is_there_or_refused() {
        let Some(words) = words_of_rsync() else {
            eprintln!("rsync is not installed; not compared with it");
            return;
        };
        assert!(words.len() > 150, "{words:?}");
        let root = Arguments::command();
        let sync = root.find_subcommand("sync").unwrap();
        for word in words {
            // These two are every command's.
            let is_known = ["-v", "-q", "--verbose", "--quiet"].contains(&&*word)
                || sync.get_arguments().any(|argument| {
                    let longs = argument.get_long_and_visible_aliases().into_iter().flatten();
                    let hidden = argument.get_all_aliases().into_iter().flatten();
                    let shorts = argument.get_short_and_visible_aliases().into_iter().flatten();
                    longs.chain(hidden).any(|long| word == format!("--{long}"))
                        || shorts.into_iter().any(|short| word == format!("-{short}"))
                });
            assert!(is_known, "{word} is neither there nor refused");
        }
    }

    #[test]
    fn the_guide_names_every_flag() {
        let guide = include_str!("../../../../docs/guide/rsync-flags.md");
        let refused = RSYNC.iter().chain(CP).map(|flag| (flag.long, flag.short));
        let there = FLAGS.iter().map(|flag| (flag.long, flag.short));
        for (long, short) in refused.chain(there) {
            let long = (long.len() > 1).then(|| format!("`--{long}"));
            for word in long.into_iter().chain(short.map(|short| format!("`-{short}"))) {
                let is_there = ["`", " "].iter().any(|end| guide.contains(&format!("{word}{end}")));
                assert!(is_there, "{word} is not in the guide");
            }
        }
    }

    #[test]
    fn nothing_given_is_nothing_refused() {
        let matches = arguments(Command::new("x"), RSYNC).try_get_matches_from(["x"]).unwrap();
        assert_eq!(check(&matches, "tow sync", RSYNC), Ok(()));
    }
}
