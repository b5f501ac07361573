//! The end of a copy, when every file is in place: hard links, deletions, and the metadata of
//! directories, innermost first.
//!
//! Deletions come last, so that a file that was renamed at the source can still be drawn from its
//! old place, and not at all where the sender could not read everything. Removing more than half
//! of a destination is a mistake more often than not, and needs to be asked for.

use std::io;
use std::path::Path;

use prost::Message;
use towpath_api::ApiError;
use towpath_content::tree::{Kind, Metadata, Owner, Time, Xattr};
use towpath_files::metadata::differences;
use towpath_files::{FileError, Filter, Overwrite, RelPath, Removing, ScanOptions};

use super::events::CopyEvent;
use super::judge::Changes;
use super::merge::Merge;
use super::receiving::{Receiving, add};
use super::records::Records;
use crate::errors;

/// A path kept for later.
#[derive(Clone, PartialEq, Message)]
pub struct PathRecord {
    /// Below the destination's root.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Below the transfer's root.
    #[prost(bytes = "vec", tag = "2")]
    pub shown: Vec<u8>,
    /// It is a directory.
    #[prost(bool, tag = "3")]
    pub is_dir: bool,
    /// What is at the destination is as it should be.
    #[prost(bool, tag = "4")]
    pub is_kept: bool,
}

/// A further name of a file.
#[derive(Clone, PartialEq, Message)]
pub struct LinkRecord {
    /// The file's first name, below the destination's root.
    #[prost(bytes = "vec", tag = "1")]
    pub first: Vec<u8>,
    /// The further name.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// The same below the transfer's root.
    #[prost(bytes = "vec", tag = "3")]
    pub shown: Vec<u8>,
    /// Its number in the sender's tree.
    #[prost(uint64, tag = "4")]
    pub entry: u64,
    /// Bytes.
    #[prost(uint64, tag = "5")]
    pub size: u64,
    /// Last modification: seconds.
    #[prost(sint64, tag = "6")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(uint32, tag = "7")]
    pub nanos: u32,
    /// The first name below the transfer's root.
    #[prost(bytes = "vec", tag = "9")]
    pub first_shown: Vec<u8>,
    /// The name was free.
    #[prost(bool, tag = "8")]
    pub is_new: bool,
}

/// A directory whose metadata is to be set.
#[derive(Clone, PartialEq, Message)]
pub struct DirRecord {
    /// Below the destination's root.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Below the transfer's root.
    #[prost(bytes = "vec", tag = "2")]
    pub shown: Vec<u8>,
    /// What it shall have: a [`MetadataRecord`].
    #[prost(bytes = "vec", tag = "3")]
    pub metadata: Vec<u8>,
}

/// Metadata on disk.
#[derive(Clone, PartialEq, Message)]
struct MetadataRecord {
    #[prost(uint32, tag = "1")]
    mode: u32,
    #[prost(uint32, tag = "2")]
    user: u32,
    #[prost(bytes = "vec", tag = "3")]
    user_name: Vec<u8>,
    #[prost(uint32, tag = "4")]
    group: u32,
    #[prost(bytes = "vec", tag = "5")]
    group_name: Vec<u8>,
    #[prost(sint64, tag = "6")]
    seconds: i64,
    #[prost(uint32, tag = "7")]
    nanos: u32,
    #[prost(bytes = "vec", repeated, tag = "8")]
    names: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    values: Vec<Vec<u8>>,
}

/// Metadata as bytes.
pub fn metadata_bytes(metadata: &Metadata) -> Vec<u8> {
    let (names, values) =
        metadata.xattrs.iter().map(|xattr| (xattr.name.clone(), xattr.value.clone())).unzip();
    MetadataRecord {
        mode: metadata.mode,
        user: metadata.user.id,
        user_name: metadata.user.name.clone(),
        group: metadata.group.id,
        group_name: metadata.group.name.clone(),
        seconds: metadata.modified.seconds,
        nanos: metadata.modified.nanos,
        names,
        values,
    }
    .encode_to_vec()
}

fn metadata(bytes: &[u8]) -> io::Result<Metadata> {
    let record = MetadataRecord::decode(bytes).map_err(io::Error::other)?;
    let xattrs = record.names.into_iter().zip(record.values).map(|(name, value)| Xattr { name, value });
    Ok(Metadata {
        mode: record.mode,
        user: Owner { id: record.user, name: record.user_name },
        group: Owner { id: record.group, name: record.group_name },
        modified: Time { seconds: record.seconds, nanos: record.nanos },
        xattrs: xattrs.collect(),
    })
}

/// A path from a record of our own.
fn rel_path(bytes: &[u8]) -> Result<RelPath, FileError> {
    RelPath::new(bytes.split(|&byte| byte == b'/').filter(|name| !name.is_empty()))
}

/// What ends the reading of records.
struct Stop(ApiError);

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self(errors::io("read back", Path::new("what was noted"), &error))
    }
}

/// Removes `path` (in a dry run: does as if) with all that `may` lets go, and tells each. What is
/// kept stays with the directories around it.
fn remove(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    telling: Telling,
    may: &mut dyn FnMut(&RelPath, bool) -> bool,
) -> Result<(), FileError> {
    let destination = &receiving.placing()?.destination;
    let gone = |_: &RelPath, below: &RelPath, is_dir: bool| {
        if telling.tells(below.as_bytes(), shown) {
            told(receiving, below.as_bytes(), is_dir);
        }
    };
    let mut removal = Removal { path, shown, may, gone };
    let removed = match receiving.options.dry_run {
        true => destination.rehearse_removal(path, &mut removal),
        false => destination.remove(path, &mut removal),
    }?;
    removed.failures.iter().for_each(|error| receiving.problem(shown.as_bytes(), error));
    Ok(())
}

/// Which removals are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    /// All.
    All,
    /// Those below the top.
    Below,
}

impl Telling {
    fn tells(self, shown: &[u8], top: &RelPath) -> bool {
        self == Self::All || shown != top.as_bytes()
    }
}

/// Translates between the destination's paths and those that people know.
struct Removal<'a, G> {
    path: &'a RelPath,
    shown: &'a RelPath,
    may: &'a mut dyn FnMut(&RelPath, bool) -> bool,
    gone: G,
}

impl<G: FnMut(&RelPath, &RelPath, bool)> Removing for Removal<'_, G> {
    fn may(&mut self, path: &RelPath, is_dir: bool) -> bool {
        below(path, self.path, self.shown).is_some_and(|below| (self.may)(&below, is_dir))
    }

    fn gone(&mut self, path: &RelPath, is_dir: bool) {
        if let Some(below) = below(path, self.path, self.shown) {
            (self.gone)(path, &below, is_dir);
        }
    }
}

fn told(receiving: &Receiving, shown: &[u8], is_dir: bool) {
    receiving.count(|counts| match is_dir {
        true => counts.deleted.directories += 1,
        false => counts.deleted.files += 1,
    });
    receiving.tell(CopyEvent::Deleted { path: shown.to_vec(), is_dir });
}

/// The name for people of something below `path`, which they know as `shown`.
fn below(removed: &RelPath, path: &RelPath, shown: &RelPath) -> Option<RelPath> {
    let mut below = shown.clone();
    removed.names().skip(path.depth()).try_for_each(|name| below.push(name)).ok()?;
    Some(below)
}

impl Merge {
    /// Brings the copy to its end; every entry was told. Blocks until all files are in place.
    pub fn finish(mut self) -> Result<(), ApiError> {
        self.bring_held()?;
        self.settle_files()?;
        self.make_links()?;
        self.delete()?;
        if self.options_dry_run() {
            return Ok(());
        }
        let receiving = std::sync::Arc::clone(&self.receiving);
        let Some(placing) = receiving.opened() else { return Ok(()) };
        receiving.check()?;
        placing.destination.remove_staging().map_err(|error| errors::file(&error))?;
        self.finish_dirs()?;
        // One that was made for what goes into it is like any directory that is made here.
        placing.destination.keep_dir(&RelPath::root()).map_err(|error| errors::file(&error))?;
        let root =
            placing.destination.look(&RelPath::root(), &self.look).map_err(|error| errors::file(&error))?;
        let now = root.map(|root| root.stamp.modified);
        if let Some(modified) = self.root_time.filter(|modified| now != Some(*modified)) {
            // Whose directory it is not can't; it matters little.
            let _ = placing.destination.set_dir_time(&RelPath::root(), modified);
        }
        placing.destination.sync().map_err(|error| errors::file(&error))?;
        placing.record.remove();
        Ok(())
    }

    fn options_dry_run(&self) -> bool {
        self.receiving.options.dry_run
    }

    /// Now it is known what only the destination has; a directory of that may have been renamed
    /// with all that is in it.
    fn bring_held(&mut self) -> Result<(), ApiError> {
        let receiving = std::sync::Arc::clone(&self.receiving);
        let Some(supplier) = receiving.supplier() else { return Ok(()) };
        let (filter, look) = (&mut self.filter, ScanOptions::default());
        let noted = self.deletions.for_each(|record: PathRecord| {
            let Some(placing) = receiving.opened().filter(|_| record.is_dir) else { return Ok(()) };
            // What can't be read is told when it is to be deleted.
            let _ = rehearse(&receiving, &record, filter, |path, _, is_dir| {
                if !is_dir && let Ok(Some(found)) = placing.destination.look(path, &look) {
                    receiving.is_spare(path.clone(), found.stamp);
                }
            });
            Ok(())
        });
        noted.map_err(|Stop(error)| error)?;
        supplier.walk_is_over()
    }

    /// Waits until no file is under way.
    fn settle_files(&self) -> Result<(), ApiError> {
        let receiving = &self.receiving;
        if let Some(supplier) = receiving.supplier() {
            supplier.considered(self.seen())?;
            supplier.push()?;
        }
        while receiving.places.taken() > 0 {
            receiving.check()?;
            receiving.name_if_stuck();
            self.runtime.block_on(receiving.places.moved());
        }
        receiving.check()
    }

    fn make_links(&mut self) -> Result<(), ApiError> {
        let receiving = std::sync::Arc::clone(&self.receiving);
        let mut links = std::mem::take(&mut self.links);
        let look = self.look.clone();
        let made = links.for_each(|record: LinkRecord| {
            receiving.check().map_err(Stop)?;
            if let Err(error) = make_link(&receiving, &record, &look) {
                receiving.problem(&record.shown, &error);
                receiving.settled(record.entry, false);
            }
            Ok(())
        });
        made.map_err(|Stop(error)| error)
    }

    fn delete(&mut self) -> Result<(), ApiError> {
        let receiving = std::sync::Arc::clone(&self.receiving);
        if self.deletions.len() == 0 {
            return Ok(());
        }
        if self.is_incomplete {
            let why = "nothing was deleted, as the source could not be read completely";
            receiving.leave_out(b"", why, "see the errors above, and run the same command again");
            return Ok(());
        }
        let mut deletions = std::mem::take(&mut self.deletions);
        let options = &receiving.options;
        let total = self.count(&mut deletions)?;
        if options.max_delete.is_none() && !options.force && total > self.matched {
            receiving.count(|counts| counts.max_delete_reached = true);
            let all = total + self.matched;
            let why = format!("{total} of {all} entries would be deleted; none was");
            receiving.leave_out(b"", &why, "if that is right, say --force or --max-delete=NUM");
            if !options.dry_run {
                return Ok(());
            }
        }
        let mut left = options.max_delete.unwrap_or(u64::MAX);
        let filter = &mut self.filter;
        let deleted = deletions.for_each(|record: PathRecord| {
            receiving.check().map_err(Stop)?;
            if let Err(error) = delete(&receiving, &record, filter, &mut left) {
                receiving.problem(&record.shown, &error);
            }
            Ok(())
        });
        deleted.map_err(|Stop(error)| error)?;
        if left == 0 && options.max_delete.is_some() && receiving.summary().max_delete_reached {
            let why = "not everything was deleted that the source does not have";
            receiving.leave_out(b"", why, "say --force or a higher --max-delete=NUM");
        }
        Ok(())
    }

    /// How many entries would go.
    fn count(&mut self, deletions: &mut Records<PathRecord>) -> Result<u64, ApiError> {
        let receiving = std::sync::Arc::clone(&self.receiving);
        let mut total = 0;
        let filter = &mut self.filter;
        let counted = deletions.for_each(|record: PathRecord| {
            let each = |_: &RelPath, _: &RelPath, _: bool| total += 1;
            // What can't be read now is told when it is to be deleted.
            let _ = rehearse(&receiving, &record, filter, each);
            Ok(())
        });
        counted.map_err(|Stop(error)| error)?;
        Ok(total)
    }

    fn finish_dirs(&mut self) -> Result<(), ApiError> {
        let receiving = std::sync::Arc::clone(&self.receiving);
        let mut dirs = std::mem::take(&mut self.dirs);
        let look = self.look.clone();
        let finished = dirs.for_each(|record: DirRecord| {
            let finish = || {
                let placing = receiving.placing()?;
                let path = rel_path(&record.path)?;
                let wanted = metadata(&record.metadata)
                    .map_err(|error| FileError::new("read", placing.path(), error))?;
                let is_as_wanted = placing.destination.look(&path, &look)?.is_some_and(|found| {
                    let metadata = &found.entry.metadata;
                    !differences(&Kind::Directory, &wanted, metadata, &receiving.policy).any()
                });
                match is_as_wanted {
                    true => placing.destination.keep_dir(&path),
                    false => placing.destination.finish_dir(&path, &wanted),
                }
            };
            if let Err(error) = finish() {
                receiving.problem(&record.shown, &error);
            }
            Ok(())
        });
        finished.map_err(|Stop(error)| error)
    }
}

/// Calls `each` with what deleting would remove, and removes nothing.
fn rehearse(
    receiving: &Receiving,
    record: &PathRecord,
    filter: &mut Filter,
    each: impl FnMut(&RelPath, &RelPath, bool),
) -> Result<(), FileError> {
    let (path, shown) = (rel_path(&record.path)?, rel_path(&record.shown)?);
    let mut may = |below: &RelPath, is_dir: bool| !is_protected(filter, below, &shown, is_dir);
    let mut removal = Removal { path: &path, shown: &shown, may: &mut may, gone: each };
    receiving.placing()?.destination.rehearse_removal(&path, &mut removal).map(drop)
}

fn is_protected(filter: &mut Filter, path: &RelPath, top: &RelPath, is_dir: bool) -> bool {
    // The top was asked about when it was found.
    path != top && filter.protects_in_deleted(path, is_dir)
}

fn delete(
    receiving: &Receiving,
    record: &PathRecord,
    filter: &mut Filter,
    left: &mut u64,
) -> Result<(), FileError> {
    let (path, shown) = (rel_path(&record.path)?, rel_path(&record.shown)?);
    let mut may = |below: &RelPath, is_dir: bool| {
        if is_protected(filter, below, &shown, is_dir) {
            return false;
        }
        if *left == 0 {
            receiving.count(|counts| counts.max_delete_reached = true);
            return false;
        }
        *left -= 1;
        true
    };
    back_up_and_remove(receiving, &path, &shown, Telling::All, &mut may)
}

/// Removes what stands where something of another kind is to be. It is not told itself, as its name
/// stays; what was in it is.
/// What the filters protect stays, and then there is no room.
pub fn make_room(
    receiving: &Receiving,
    filter: &mut Filter,
    path: &RelPath,
    shown: &RelPath,
) -> Result<(), FileError> {
    let mut may = |below: &RelPath, is_dir: bool| !is_protected(filter, below, shown, is_dir);
    back_up_and_remove(receiving, path, shown, Telling::Below, &mut may)?;
    let placing = receiving.placing()?;
    let is_left =
        !receiving.options.dry_run && placing.destination.look(path, &ScanOptions::default())?.is_some();
    if is_left {
        let why =
            io::Error::new(io::ErrorKind::DirectoryNotEmpty, "what is in its place holds what is to be kept");
        return Err(FileError::new("replace", &placing.whole_path(path), why));
    }
    Ok(())
}

/// [`remove`], with everything that is no directory moved to its backup first if that is asked for.
fn back_up_and_remove(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    telling: Telling,
    may: &mut dyn FnMut(&RelPath, bool) -> bool,
) -> Result<(), FileError> {
    if !receiving.options.backup || receiving.options.dry_run {
        return remove(receiving, path, shown, telling, may);
    }
    let mut moved = Records::<PathRecord>::default();
    let failed = |error| FileError::new("note", Path::new("a backup"), error);
    let mut noting = Ok(());
    let note = |path: &RelPath, below: &RelPath, is_dir: bool| {
        let record = PathRecord {
            path: path.as_bytes().to_vec(),
            shown: below.as_bytes().to_vec(),
            is_dir,
            is_kept: false,
        };
        if noting.is_ok() {
            noting = moved.push(&record).map(drop);
        }
    };
    let mut removal = Removal { path, shown, may, gone: note };
    let rehearsed = receiving.placing()?.destination.rehearse_removal(path, &mut removal)?;
    noting.map_err(failed)?;
    rehearsed.failures.iter().for_each(|error| receiving.problem(shown.as_bytes(), error));
    let done = moved.for_each(|record| {
        let path = rel_path(&record.path).map_err(Failed)?;
        // What is left in a directory, such as backups, keeps it.
        let is_gone = match record.is_dir {
            true => receiving.placing().map_err(Failed)?.destination.remove_dir(&path).map_err(Failed)?,
            false => receiving.back_up(&path).map_err(Failed)?,
        };
        if is_gone && telling.tells(&record.shown, shown) {
            told(receiving, &record.shown, record.is_dir);
        }
        Ok(())
    });
    done.map_err(|Failed(error)| error)
}

/// What ends the reading of records about files.
struct Failed(FileError);

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self(FileError::new("read back", Path::new("what was noted"), error))
    }
}

fn make_link(receiving: &Receiving, record: &LinkRecord, look: &ScanOptions) -> Result<(), FileError> {
    let (first, path) = (rel_path(&record.first)?, rel_path(&record.path)?);
    let placing = receiving.opened();
    let found = |path| match placing.map_or(Ok(None), |placing| placing.destination.look(path, look)) {
        // A real run would have made way for the directories on the way there.
        Err(_) if receiving.options.dry_run => Ok(None),
        found => found,
    };
    let (one, other) = (found(&first)?, found(&path)?);
    if let (Some(one), Some(other)) = (&one, &other)
        && one.stamp.same_file(&other.stamp)
    {
        receiving.unchanged(record.entry, &other.stamp);
        return Ok(());
    }
    let file = Kind::File { size: record.size, oid: None, extents: None };
    let changes = match record.is_new {
        true => Changes { new: true, ..Changes::default() },
        false => Changes::default(),
    };
    receiving.tell(CopyEvent::Item {
        changes: changes.letters(b'h', &file, receiving.options.preserve.times),
        path: record.shown.clone(),
        target: Some(record.first_shown.clone()),
        size: record.size,
        modified: Time { seconds: record.seconds, nanos: record.nanos },
    });
    if record.is_new {
        receiving.count(|counts| add(&mut counts.created, &file));
    }
    if receiving.options.dry_run {
        return Ok(());
    }
    let placing = receiving.placing()?;
    let Some(one) = one else {
        let whole = placing.whole_path(&first);
        return Err(FileError::new("link to", &whole, rustix::io::Errno::NOENT));
    };
    if other.is_some() {
        receiving.back_up(&path)?;
    }
    let overwrite = if other.is_some() { Overwrite::ReplaceAny } else { Overwrite::Never };
    placing.destination.make_hard_link(&first, &one.stamp, &path, overwrite)?;
    receiving.settled(record.entry, true);
    Ok(())
}
