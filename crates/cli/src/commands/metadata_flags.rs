//! The flags of `tow sync` that say which metadata of a tree go by ticket: at its sender, and at its receiver.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use towpath_api::ToldMetadata;
use towpath_api::copy::Preserve;
use towpath_service::is_root;

use super::sync_flags::{self, SyncArguments};

const TAKEN: &[&str] = &[
    "archive",
    "perms",
    "group",
    "owner",
    "numeric-ids",
    "D",
    "devices",
    "specials",
    "hard-links",
    "acls",
    "xattrs",
];
const TOLD: &[&str] = &["archive", "group", "owner", "numeric-ids", "hard-links", "acls", "xattrs"];

/// Help of the flags whose meaning is another one by ticket: for `get`, and for `share` and `put`.
const HELP: &[(&str, &str, &str)] = &[
    (
        "archive",
        "What -pogD means, and no more unless -H, -A or -X is given too",
        "What -og means, and no more unless -H, -A or -X is given too",
    ),
    ("perms", "Permission bits as they are: setuid and setgid too, whatever the umask", ""),
    ("group", "Groups of which you are a member; as root any, without asking", "Names of groups"),
    ("owner", "Owners, as root (without asking; --no-owner leaves them to you)", "Names of users"),
    (
        "numeric-ids",
        "Owners and groups by number, also where their names are told",
        "Only numbers of owners and groups (without asking)",
    ),
    (
        "hard-links",
        "Hard links (without asking; --no-H leaves them out)",
        "Hard links (without asking; --no-H leaves them out)",
    ),
    (
        "acls",
        "Access control lists (without asking; --no-A leaves them out)",
        "Access control lists (without asking; --no-A leaves them out)",
    ),
    (
        "xattrs",
        "Extended attributes; of root, others than user.* only if this is given",
        "Extended attributes; those that tell where a file came from, and root's others than user.*, only if this is given",
    ),
];

/// Metadata that a command takes (`get`), or tells (`TELLS`: `share`, `put`).
#[derive(Debug, Default)]
pub struct MetadataFlags<const TELLS: bool> {
    /// None without any of the flags.
    preserve: Option<Preserve>,
}

impl MetadataFlags<false> {
    /// Metadata that are taken, if a person said which.
    pub const fn taken(&self) -> Option<Preserve> {
        self.preserve
    }
}

impl MetadataFlags<true> {
    /// Metadata that are told.
    pub fn told(&self) -> ToldMetadata {
        let Some(preserve) = &self.preserve else { return ToldMetadata::default() };
        ToldMetadata {
            owner_names: (preserve.owner || preserve.group) && !preserve.numeric_ids,
            hard_links: preserve.hard_links,
            acls: preserve.acls,
            xattrs: preserve.xattrs,
            all_xattrs: preserve.privileged_xattrs,
        }
    }
}

impl<const TELLS: bool> MetadataFlags<TELLS> {
    const FLAGS: &[&str] = if TELLS { TOLD } else { TAKEN };

    /// Metadata without any flag.
    fn without_flags() -> Preserve {
        Preserve::of_strangers(!TELLS && is_root())
    }
}

impl<const TELLS: bool> Args for MetadataFlags<TELLS> {
    fn augment_args(command: Command) -> Command {
        let mut command = sync_flags::some_arguments(command, Self::FLAGS);
        for flag in Self::FLAGS {
            command = command.mut_arg(flag, |arg| arg.help_heading("Metadata of a tree"));
        }
        for (flag, taken, told) in HELP.iter().filter(|(flag, ..)| Self::FLAGS.contains(flag)) {
            command = command.mut_arg(flag, |arg| arg.help(if TELLS { *told } else { *taken }));
        }
        // `-o` is where a get puts things.
        if TELLS { command } else { command.mut_arg("owner", |arg| arg.short(None)) }
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const TELLS: bool> FromArgMatches for MetadataFlags<TELLS> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut plain = SyncArguments::default();
        plain.options.preserve = Self::without_flags();
        let applied = sync_flags::apply_some_to(plain, matches, Self::FLAGS);
        let usage =
            |message| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{message}\n"));
        let preserve = applied.map_err(usage)?.options.preserve;
        Ok(Self { preserve: (preserve != Self::without_flags()).then_some(preserve) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<const TELLS: bool>(words: &str) -> MetadataFlags<TELLS> {
        let command = MetadataFlags::<TELLS>::augment_args(Command::new("tow"));
        let words = std::iter::once("tow").chain(words.split_whitespace());
        MetadataFlags::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn a_get_takes_rights_only_where_asked() {
        let plain = MetadataFlags::<false>::without_flags();
        assert!(!plain.special_bits && !plain.privileged_xattrs && !plain.devices && !plain.specials);
        assert_eq!(plain.group, is_root());
        assert_eq!(parsed::<false>("").taken(), None);
        let taken = |words| parsed::<false>(words).taken().unwrap();
        assert!(taken("-p").special_bits && taken("-X").privileged_xattrs && taken("--specials").specials);
        assert!(!taken("-a").hard_links && taken("-aH").hard_links && taken("-D").devices);
        assert!(!taken("--no-H").hard_links && !taken("--no-owner --no-acls").acls);
    }

    #[test]
    fn names_of_owners_and_origins_are_told_only_where_asked() {
        let told = |words| parsed::<true>(words).told();
        assert!(told("").is_default() && told("--numeric-ids").is_default());
        assert!(told("-o").owner_names && told("-g").owner_names && !told("-o --numeric-ids").owner_names);
        assert!(told("-X").all_xattrs && !told("--no-xattrs").xattrs);
        let all = ToldMetadata { owner_names: true, all_xattrs: true, ..ToldMetadata::default() };
        assert_eq!(told("-aHAX"), all);
    }
}
