//! The first level of the walk: where the sources go, and the destination opened for them.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use towpath_api::copy::Mode;
use towpath_content::Oid;
use towpath_content::tree::{Entry, Kind, Time};
use towpath_files::{Destination, RelPath};
use towpath_ssh::patterns::NamePattern;

use super::tree::DestinationTree;
use crate::destination_rules::{DestinationQuery, DestinationRule, ExistingKind, rule_for};
use crate::error::{CopyError, DestinationFault, RequestFault};
use crate::message::violation;
use crate::notes::Renaming;

/// Destination of the walk, known before it begins.
pub struct Destined {
    /// Path of the destination.
    pub path: PathBuf,
    /// Program whose habits are followed.
    pub mode: Mode,
    /// Number of sources that there may be.
    pub sources: usize,
    /// See [`DestinationQuery::contents`].
    pub contents: bool,
    /// The names that the sources may have, if they are known here: a sender that is not trusted
    /// gets no others written.
    pub names: Option<Vec<NamePattern>>,
}

/// The destination itself, and where in it the sources go.
pub(super) struct DestinationRoot {
    pub(super) destined: Destined,
    /// As the first entry decided.
    pub(super) rule: DestinationRule,
    /// The destination's directory was made by this copy.
    pub(super) is_made: bool,
    /// Time of the last change of the destination's own directory, before the copy.
    before: Option<Time>,
    /// The same, if that is what it shall have in the end: temporaries come and go in it.
    pub(super) time: Option<Time>,
}

impl DestinationRoot {
    /// A destination that was not looked at.
    pub(super) const fn new(destined: Destined) -> Self {
        Self { destined, rule: DestinationRule::Into, is_made: false, before: None, time: None }
    }

    /// True if the destination's own directory stands for an entry of the source.
    pub(super) fn stands_for_entry(&self, renaming: &Renaming) -> bool {
        match self.rule {
            DestinationRule::Into => false,
            DestinationRule::Contents => true,
            DestinationRule::As => *renaming == Renaming::Below,
        }
    }

    /// Nothing changed right in the destination's own directory.
    pub(super) const fn keep_time(&mut self) {
        self.time = self.before;
    }

    /// A source, as the person named it. Opens the destination for the first one, and decides how that calls what comes.
    pub(super) fn take_source(
        &mut self,
        entry: &Entry,
        is_first: bool,
        tree: &DestinationTree,
        renaming: &mut Renaming,
    ) -> Result<(), CopyError> {
        if let Some(names) = &self.destined.names
            && !names.iter().any(|name| name.matches(&entry.name))
        {
            return Err(CopyError::Unasked { name: entry.name.clone() });
        }
        if !is_first {
            return match self.rule {
                DestinationRule::Into => Ok(()),
                DestinationRule::As | DestinationRule::Contents => {
                    Err(violation("a second source, where one was asked for"))
                }
            };
        }
        if self.destined.contents && entry.kind != Kind::Directory {
            return Err(violation("no directory, where what is in one was asked for"));
        }
        let path = self.behind(&entry.kind)?;
        *renaming = match self.settle(entry, &path, tree) {
            // Another copy made it in this moment, so that this one finds it there.
            Err(error) if error.is_in_the_way() && path.is_dir() => self.settle(entry, &path, tree),
            settled => settled,
        }?;
        Ok(())
    }

    /// Decides where the first entry goes by what is at the destination now, and opens that.
    fn settle(&mut self, entry: &Entry, path: &Path, tree: &DestinationTree) -> Result<Renaming, CopyError> {
        let is_dir = entry.kind == Kind::Directory;
        let existing = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => ExistingKind::Directory,
            Ok(_) => ExistingKind::Other,
            // A link that leads nowhere is something that can be replaced.
            Err(_) if path.symlink_metadata().is_ok() => ExistingKind::Other,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => ExistingKind::Nothing,
            Err(error) => return Err(CopyError::system("look at", path, error)),
        };
        let query = DestinationQuery {
            mode: self.destined.mode,
            sources: self.destined.sources,
            contents: self.destined.contents,
            slash: path.as_os_str().as_encoded_bytes().ends_with(b"/"),
            is_dir,
        };
        // An interrupted copy made the directory that it goes on with now.
        let goes_on = self.destined.mode == Mode::Cp
            && is_dir
            && existing == ExistingKind::Directory
            && tree.receiving.is_open(path, &key(DestinationRule::As, &entry.name));
        let existing = if goes_on { ExistingKind::Nothing } else { existing };
        self.rule = rule_for(existing, query)
            .map_err(|fault| CopyError::Unfit { path: path.to_path_buf(), fault })?;
        let key = key(self.rule, &entry.name);
        let existing = if goes_on { ExistingKind::Directory } else { existing };
        self.open(path, existing, is_dir, (&key, tree))?;
        Ok(renaming(self.rule, is_dir, path))
    }

    /// The path that is written to. A file does not take the place of a device or the like, with `cp` nor of a link: it goes
    /// where that leads. Only the destination itself is looked at so; below it, entries replace links.
    fn behind(&self, kind: &Kind) -> Result<PathBuf, CopyError> {
        let path = self.destined.path.clone();
        let unfit = |fault| Err(CopyError::Unfit { path: path.clone(), fault });
        let is_link = path.is_symlink();
        match path.metadata().map(|found| found.file_type()) {
            _ if !matches!(kind, Kind::File { .. }) => Ok(path),
            Ok(found) if !found.is_file() && !found.is_dir() => unfit(kind_of(found)),
            Ok(found) if found.is_file() && is_link && self.destined.mode == Mode::Cp => {
                path.canonicalize().map_err(|error| CopyError::system("look at", &path, error))
            }
            Err(_) if is_link && self.destined.mode == Mode::Cp => unfit(DestinationFault::DeadLink),
            Ok(_) | Err(_) => Ok(path),
        }
    }

    fn open(
        &mut self,
        path: &Path,
        existing: ExistingKind,
        is_dir: bool,
        (key, tree): (&Oid, &DestinationTree),
    ) -> Result<(), CopyError> {
        let receiving = &tree.receiving;
        let options = receiving.write_options();
        let failed = CopyError::opening;
        if self.rule == DestinationRule::As && !is_dir {
            let name = path.file_name().ok_or(RequestFault::NoName)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            let destination = Destination::open(parent, options).map_err(failed)?;
            let found = destination.look(&RelPath::root(), &tree.look).map_err(failed)?;
            self.before = found.map(|found| found.entry.metadata.modified);
            return receiving.open(destination, Some(name), key);
        }
        let destination = match existing {
            ExistingKind::Nothing if receiving.options.dry_run => return Ok(()),
            ExistingKind::Nothing => {
                let made =
                    Destination::make(path, self.rule != DestinationRule::Into, options).map_err(failed)?;
                self.is_made = true;
                made
            }
            _ => Destination::open(path, options).map_err(failed)?,
        };
        if existing == ExistingKind::Nothing && self.rule == DestinationRule::Into {
            receiving.account.count(|counts| counts.created.directories += 1);
        }
        let found = destination.look(&RelPath::root(), &tree.look).map_err(failed)?;
        self.before = found.map(|found| found.entry.metadata.modified);
        receiving.open(destination, None, key)
    }
}

/// Names what is put where, by the first that is, whatever it contains: what is left of a file is found by what the
/// file is. Copies of other things to the same directory have records of their own.
fn key(rule: DestinationRule, name: &[u8]) -> Oid {
    match rule {
        DestinationRule::As => Oid::of(&[b"copy as ", name].concat()),
        DestinationRule::Into => Oid::of(&[b"copy into ", name].concat()),
        DestinationRule::Contents => Oid::of(b"copy into"),
    }
}

/// Fault of what is neither file, directory nor link.
fn kind_of(found: FileType) -> DestinationFault {
    match found {
        found if found.is_fifo() => DestinationFault::Fifo,
        found if found.is_socket() => DestinationFault::Socket,
        _ => DestinationFault::Device,
    }
}

/// Renaming of what comes, at the destination.
fn renaming(rule: DestinationRule, is_dir: bool, path: &Path) -> Renaming {
    match (rule, path.file_name()) {
        (DestinationRule::As, _) if is_dir => Renaming::Below,
        (DestinationRule::As, Some(name)) => Renaming::As(name.as_encoded_bytes().to_vec()),
        _ => Renaming::Nothing,
    }
}
