//! The flags of `tow get --update`: those of `tow sync` that say what becomes of what is there.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use towpath_api::copy::{Check, CopyEvent, FileTime};
use towpath_api::{Event, GetUpdate};

use super::sync_flags;
use crate::copy_output::ShownChanges;

const UPDATE: &str = "update";
const FLAGS: &[&str] = &[
    "checksum",
    "delete",
    "max-delete",
    "force",
    "backup",
    "backup-dir",
    "suffix",
    "dry-run",
    "itemize-changes",
];

/// Flags for what is to become of what is at the destination.
#[derive(Debug, Default)]
pub struct UpdateFlags {
    /// None without `--update`.
    pub request: Option<GetUpdate>,
    itemize: u8,
}

impl UpdateFlags {
    /// Changes that are shown: a dry run shows what would be.
    pub fn shown(&self, verbose: u8) -> ShownChanges {
        let names = verbose > 0 || self.request.as_ref().is_some_and(|update| update.dry_run);
        ShownChanges { names, itemize: self.itemize, ..ShownChanges::default() }
    }
}

impl Args for UpdateFlags {
    fn augment_args(command: Command) -> Command {
        let help = "Make DEST equal to the tree or file, or what is in it under the names of PATHs: replace what \
                    differs by size or time, as tow sync does";
        let update = Arg::new(UPDATE).long(UPDATE).action(ArgAction::SetTrue).help(help);
        let command = sync_flags::some_arguments(command.arg(update.conflicts_with("list")), FLAGS);
        FLAGS.iter().fold(command, |command, flag| command.mut_arg(flag, |arg| arg.requires(UPDATE)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for UpdateFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let usage =
            |message| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{message}\n"));
        let given = sync_flags::apply_some(matches, FLAGS).map_err(usage)?;
        let options = given.options;
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let request = GetUpdate {
            dry_run: options.dry_run,
            checksum: options.check == Check::Content,
            delete: options.delete,
            max_delete: options.max_delete,
            force: options.force,
            backup: options.backup,
            suffix: path(options.suffix),
            backup_dir: options.backup_dir.map(path),
        };
        Ok(Self { request: matches.get_flag(UPDATE).then_some(request), itemize: given.shown.itemize })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A change of an entry, as copies tell it.
pub fn change(event: &Event) -> Option<CopyEvent> {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    match event {
        Event::Item { changes, path, size } => Some(CopyEvent::Item {
            changes: changes.as_bytes().try_into().ok()?,
            path: bytes(path),
            target: None,
            size: *size,
            modified: FileTime::default(),
        }),
        Event::Deleted { path, is_dir } => Some(CopyEvent::Deleted { path: bytes(path), is_dir: *is_dir }),
        _ => None,
    }
}
