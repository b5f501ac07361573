//! `tow cp`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use towpath_api::copy::{Check, CopyOptions, CopyRequest, Mode, Preserve, Via};
use towpath_api::{ApiError, SearchEffort};

use super::copying::{self, Copying};
use super::{Context, parse_rate, refused, sync, sync_flags, usage_error, verbose_names};
use crate::copy_output::ShownChanges;

const AFTER: &str = "\
Examples:
  tow cp notes.pdf ann@host:                into ann's home at host
  tow cp host:/var/log/app ./               a whole tree, with everything it has
  tow cp -e 'ssh -p 2222 -J gate' a b host:dir

As with cp and scp, an existing directory takes what is copied under its own name. Contents are
compared, and what the destination has does not travel. Devices, FIFOs and sockets are named and
left out unless asked for. Exit status: 0 done; 1 failed; 2 usage; 3 some files failed, each named;
130 interrupted, with what came kept.";

/// Copy files and trees, here or to and from another machine, as cp and scp do
#[derive(Debug, Args)]
#[command(after_help = AFTER, args_override_self = true, override_usage = "tow cp [OPTIONS] SRC... DEST\n       tow cp [OPTIONS] -t DIR SRC...")]
pub struct CopyFlags {
    /// What to copy, and last where to.
    #[arg(value_name = "PATH", required = true, num_args = 1.., help = sync::OPERANDS)]
    operands: Vec<OsString>,
    /// Copy into this directory; all operands are sources
    #[arg(short, long, value_name = "DIR")]
    target_directory: Option<OsString>,
    /// Leave alone what is there
    #[arg(short, long)]
    no_clobber: bool,
    /// Leave alone files that are newer at the destination
    #[arg(short, long)]
    update: bool,
    /// Copy what symbolic links lead to, not the links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Do not enter other file systems
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Keep what would be overwritten, with a ~ after its name
    #[arg(short, long)]
    backup: bool,
    /// What is added to the name of what is kept, instead of ~
    #[arg(long, value_name = "SUFFIX", value_parser = suffix)]
    suffix: Option<String>,
    /// Leave out mode, ownership, timestamps, links, xattr, acl or all
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = parse_kind)]
    no_preserve: Vec<PreserveKind>,
    /// Take owners and groups by number, not by name
    #[arg(long)]
    numeric_ids: bool,
    /// Copy devices, where permitted (as root)
    #[arg(long)]
    devices: bool,
    /// Copy FIFOs and sockets
    #[arg(long)]
    specials: bool,
    /// Reach the other side by CMD instead of ssh, as in 'ssh -p 2222'
    #[arg(short = 'e', long, value_name = "CMD", allow_hyphen_values = true)]
    rsh: Option<OsString>,
    /// What tow is called at the other side
    #[arg(long, value_name = "PROGRAM", default_value = "tow")]
    tow_path: OsString,
    /// The running daemon makes the copy, within its limits; ssh is started here all the same
    #[arg(long)]
    by_daemon: bool,
    /// Data travel through ssh alone, or over TLS alone [default: what works best]
    #[arg(long, value_name = "ssh|tls", value_parser = sync_flags::via)]
    via: Option<Via>,
    /// Go out by these interfaces of this machine, or from these addresses, all at once, as in eth0,wlan0
    /// [default: as configured, or as the system chooses]
    #[arg(long, value_name = "LINK", value_delimiter = ',')]
    bind: Vec<String>,
    /// Compress data on the network
    #[arg(short = 'z', short_alias = 'C', long)]
    compress: bool,
    /// Use at most this many bytes per second of the network, as in 500K or 10M
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "0", hide_default_value = true)]
    limit_rate: u64,
    /// Give up after this many seconds without progress; what came is kept
    #[arg(long, value_name = "SECONDS", default_value = "0", hide_default_value = true)]
    timeout: u64,
    /// Do not search the receiver's disk for what is to come
    #[arg(long)]
    no_search: bool,
    /// Search this directory of the receiver too; may be given more than once
    #[arg(long, value_name = "DIR")]
    search: Vec<OsString>,
    /// How hard to search where probably nothing is: some takes a tenth of the copy's time, all has no limit
    #[arg(long, value_name = "some|all", value_parser = sync_flags::search_effort, default_value = "some")]
    search_effort: SearchEffort,
    /// Tell where bytes came from, what was searched, and what held the copy up
    #[arg(long)]
    explain: bool,
    /// Directories are copied with what is in them (always so)
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// Everything that can be is preserved (always so), with setuid and setgid bits; with =xattr or =all, also
    /// attributes of root such as file capabilities
    #[arg(short, long, value_name = "KIND", num_args = 0..=1, require_equals = true)]
    preserve: Option<Option<String>>,
    /// The same as -r --preserve=all, with devices and specials
    #[arg(short, long)]
    archive: bool,
    /// What is in the way is replaced (always so)
    #[arg(short, long)]
    force: bool,
}

/// Metadata that `--no-preserve` leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreserveKind {
    Mode,
    Ownership,
    Owner,
    Group,
    Timestamps,
    Links,
    Xattr,
    Acl,
    All,
}

fn parse_kind(text: &str) -> Result<PreserveKind, String> {
    Ok(match text {
        "mode" => PreserveKind::Mode,
        "ownership" => PreserveKind::Ownership,
        "owner" => PreserveKind::Owner,
        "group" => PreserveKind::Group,
        "timestamps" | "times" => PreserveKind::Timestamps,
        "links" | "hard-links" => PreserveKind::Links,
        "xattr" | "xattrs" => PreserveKind::Xattr,
        "acl" | "acls" => PreserveKind::Acl,
        "all" => PreserveKind::All,
        "context" => return Err("a security context is an extended attribute: xattr".into()),
        _ => {
            return Err("it is mode, ownership, owner, group, timestamps, links, xattr, acl or all".into());
        }
    })
}

fn suffix(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it can't be empty: the copy would have the same name".into()),
        _ if text.contains('/') => Err("a suffix has no slash".into()),
        _ => Ok(text.into()),
    }
}

impl PreserveKind {
    fn leave_out(self, preserve: &mut Preserve) {
        let all = self == Self::All;
        let is = |kinds: &[Self]| all || kinds.contains(&self);
        // To cp an access control list is a part of the mode.
        preserve.perms &= !is(&[Self::Mode]);
        preserve.special_bits &= !is(&[Self::Mode]);
        preserve.acls &= !is(&[Self::Mode, Self::Acl]);
        preserve.owner &= !is(&[Self::Ownership, Self::Owner]);
        preserve.group &= !is(&[Self::Ownership, Self::Group]);
        preserve.times &= !is(&[Self::Timestamps]);
        preserve.hard_links &= !is(&[Self::Links]);
        preserve.xattrs &= !is(&[Self::Xattr]);
        preserve.privileged_xattrs &= !is(&[Self::Xattr]);
    }
}

/// `tow cp`
#[derive(Debug)]
pub struct Cp(Copying);

impl Cp {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        copying::copy(context, self.0).await
    }
}

impl Args for Cp {
    fn augment_args(command: Command) -> Command {
        refused::arguments(CopyFlags::augment_args(command).arg(verbose_names()), refused::CP)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Cp {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let usage = |message| usage_error("cp", message);
        refused::check(matches, "tow cp", refused::CP).map_err(usage)?;
        let options = CopyFlags::from_arg_matches(matches)?;
        let shown = ShownChanges { explain: options.explain, ..ShownChanges::default() };
        let by_daemon = options.by_daemon;
        options.request().map(|request| Self(Copying { request, shown, by_daemon })).map_err(usage)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl CopyFlags {
    fn request(mut self) -> Result<CopyRequest, String> {
        let options = self.options();
        let destination = match self.target_directory.take() {
            Some(directory) => into_directory(directory),
            None => self.operands.pop().unwrap_or_default(),
        };
        if self.operands.is_empty() {
            return Err("SRC and DEST are needed, as in tow cp SRC host:DEST".into());
        }
        Ok(CopyRequest {
            mode: Mode::Cp,
            sources: self.operands,
            destination,
            rsh: self.rsh,
            tow_path: self.tow_path,
            reached: None,
            bind: self.bind,
            umask: None,
            options,
        })
    }

    /// True if `--preserve` names this kind; alone it means mode, ownership and timestamps, as with cp.
    fn asks_for(&self, kind: &str) -> bool {
        match &self.preserve {
            None => false,
            Some(None) => kind == "mode",
            Some(Some(kinds)) => {
                kinds.split(',').any(|one| one == "all" || one.trim_end_matches('s') == kind)
            }
        }
    }

    fn options(&self) -> CopyOptions {
        let asks = |kind: &str| self.archive || self.asks_for(kind);
        let mut preserve = Preserve {
            numeric_ids: self.numeric_ids,
            special_bits: asks("mode"),
            privileged_xattrs: asks("xattr"),
            devices: self.devices || self.archive,
            specials: self.specials || self.archive,
            ..Preserve::default()
        };
        self.no_preserve.iter().for_each(|kind| kind.leave_out(&mut preserve));
        CopyOptions {
            preserve,
            copy_links: self.dereference,
            one_file_system: self.one_file_system,
            check: Check::Content,
            update: self.update,
            ignore_existing: self.no_clobber,
            compress: self.compress,
            backup: self.backup || self.suffix.is_some(),
            suffix: self.suffix.clone().unwrap_or_else(|| "~".into()).into_bytes(),
            limit_rate: self.limit_rate,
            timeout: self.timeout,
            via: self.via.unwrap_or_default(),
            no_search: self.no_search,
            search: self.search.iter().map(|dir| dir.as_encoded_bytes().to_vec()).collect(),
            search_effort: self.search_effort,
            ..CopyOptions::default()
        }
    }
}

/// With a slash at its end a destination is a directory, and nothing else will do.
fn into_directory(mut directory: OsString) -> OsString {
    if !directory.as_encoded_bytes().ends_with(b"/") {
        // After the colon alone a slash would be the root, not the home.
        directory.push(if directory.as_encoded_bytes().ends_with(b":") { "./" } else { "/" });
    }
    directory
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::Arguments;

    fn try_parse(line: &str) -> Result<CopyRequest, String> {
        let words = ["tow", "cp"].into_iter().chain(line.split_whitespace());
        let parsed = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(parsed.into_cp().unwrap_or_else(|| panic!("not tow cp")).0.request)
    }

    fn options(flags: &str) -> CopyOptions {
        try_parse(&format!("{flags} a b")).unwrap_or_else(|error| panic!("{flags}: {error}")).options
    }

    type Case = (&'static str, &'static [&'static str], fn(&CopyOptions) -> bool);

    const CASES: &[Case] = &[
        ("no_clobber", &["-n", "--no-clobber"], |o| o.ignore_existing),
        ("update", &["-u", "--update"], |o| o.update),
        ("dereference", &["-L", "--dereference"], |o| o.copy_links),
        ("one_file_system", &["-x", "--one-file-system"], |o| o.one_file_system),
        ("backup", &["-b", "--backup"], |o| o.backup && o.suffix == b"~"),
        ("suffix", &["--suffix .old", "-b --suffix=.old"], |o| o.backup && o.suffix == b".old"),
        ("no_preserve", &["--no-preserve mode"], |o| !o.preserve.perms && !o.preserve.acls),
        ("no_preserve", &["--no-preserve=ownership", "--no-preserve owner,group"], |o| {
            !o.preserve.owner && !o.preserve.group && o.preserve.times
        }),
        ("no_preserve", &["--no-preserve timestamps", "--no-preserve=times"], |o| !o.preserve.times),
        ("no_preserve", &["--no-preserve links", "--no-preserve=hard-links"], |o| {
            !o.preserve.hard_links && o.preserve.links
        }),
        ("no_preserve", &["--no-preserve xattr,acl", "--no-preserve=acls --no-preserve xattrs"], |o| {
            !o.preserve.xattrs && !o.preserve.acls && o.preserve.perms
        }),
        ("no_preserve", &["--no-preserve all"], |o| {
            let left = Preserve { links: true, ..none() };
            o.preserve == left
        }),
        ("numeric_ids", &["--numeric-ids"], |o| o.preserve.numeric_ids),
        ("devices", &["--devices"], |o| o.preserve.devices && !o.preserve.specials),
        ("specials", &["--specials"], |o| o.preserve.specials && !o.preserve.devices),
        ("archive", &["-a", "--archive"], |o| {
            let p = &o.preserve;
            p.specials && p.devices && p.special_bits && p.privileged_xattrs
        }),
        ("preserve", &["-p", "--preserve", "--preserve=mode,times"], |o| {
            o.preserve.special_bits && !o.preserve.privileged_xattrs
        }),
        ("preserve", &["--preserve=xattr", "--preserve=links,xattrs"], |o| {
            !o.preserve.special_bits && o.preserve.privileged_xattrs
        }),
        ("preserve", &["--preserve=all"], |o| o.preserve.special_bits && o.preserve.privileged_xattrs),
        ("via", &["--via ssh", "--via=ssh"], |o| o.via == Via::Ssh),
        ("compress", &["-z", "-C", "--compress"], |o| o.compress),
        ("limit_rate", &["--limit-rate 2K"], |o| o.limit_rate == 2048),
        ("timeout", &["--timeout 9"], |o| o.timeout == 9),
        ("no_search", &["--no-search"], |o| o.no_search),
        ("search", &["--search x --search y", "--search=x --search=y"], |o| o.search == [b"x", b"y"]),
        ("search_effort", &["--search-effort all", "--search-effort=all"], |o| {
            o.search_effort == SearchEffort::All
        }),
    ];

    /// Those that say what is so anyway.
    const ALWAYS_SO: &[(&str, &[&str])] =
        &[("recursive", &["-r", "-R", "--recursive"]), ("force", &["-f", "--force"])];

    /// Flags on where from and where to, and on output.
    const AROUND: [&str; 7] =
        ["operands", "target_directory", "rsh", "tow_path", "by_daemon", "bind", "explain"];

    fn none() -> Preserve {
        Preserve {
            links: false,
            perms: false,
            special_bits: false,
            times: false,
            owner: false,
            group: false,
            numeric_ids: false,
            devices: false,
            specials: false,
            hard_links: false,
            acls: false,
            xattrs: false,
            privileged_xattrs: false,
        }
    }

    #[test]
    fn each_flag_does_what_it_says_in_each_of_its_forms() {
        let plain = options("");
        assert_eq!(plain.check, Check::Content);
        for (name, forms, holds) in CASES {
            assert!(!holds(&plain), "{name}: so without it too");
            forms.iter().for_each(|form| assert!(holds(&options(form)), "{name}: {form}"));
        }
        for (name, forms) in ALWAYS_SO {
            forms.iter().for_each(|form| assert_eq!(options(form), plain, "{name}: {form}"));
        }
    }

    #[test]
    fn each_flag_has_a_case() {
        let command = CopyFlags::augment_args(Command::new("cp"));
        for argument in command.get_arguments() {
            let name = argument.get_id().as_str();
            let has_case = CASES.iter().any(|case| case.0 == name)
                || ALWAYS_SO.iter().any(|case| case.0 == name)
                || AROUND.contains(&name);
            assert!(has_case, "{name} has no case");
        }
    }

    #[test]
    fn the_last_operand_is_where_to_unless_that_is_said_before() {
        let request = try_parse("-e rsh --tow-path /x --bind eth0,wlan0 a b c").unwrap();
        assert_eq!(request.bind, ["eth0", "wlan0"]);
        assert_eq!(
            (&request.sources[..], &request.destination),
            (&["a".into(), "b".into()][..], &"c".into())
        );
        assert_eq!((request.rsh, request.tow_path), (Some("rsh".into()), "/x".into()));
        for (given, means) in [("d", "d/"), ("d/", "d/"), ("h:", "h:./"), ("h:d", "h:d/")] {
            let request = try_parse(&format!("-t {given} a")).unwrap();
            assert_eq!((&request.sources[..], request.destination), (&["a".into()][..], means.into()));
        }
        assert!(try_parse("a").unwrap_err().contains("SRC and DEST"));
        assert!(try_parse("").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (line, says) in [
            ("-P 22 a b", "-e 'ssh -p PORT'"),
            ("-i key a b", "-e 'ssh -i FILE'"),
            ("-rl a b", "--limit-rate"),
            ("--no-preserve=context a b", "xattr"),
            ("--no-preserve=x a b", "timestamps"),
            ("--suffix= a b", "same name"),
            ("--suffix=a/b a b", "slash"),
            ("--via=x a b", "ssh or tls"),
        ] {
            let error = try_parse(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
