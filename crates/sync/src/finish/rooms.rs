//! Directories that are in the way of something else. Each goes at the end, right before what replaces it takes its
//! name, which is on disk by then: it and what is in it count against the same limits as all that is deleted.

use std::io;
use std::sync::Arc;

use prost::{Message, Oneof};
use towpath_api::ApiError;
use towpath_content::tree::{Kind, Metadata};
use towpath_files::{BeforeNaming, FileError, Naming, Overwrite, RelPath};

use super::allowance::Allowance;
use super::noted::{MetadataRecord, Spot, Stop};
use crate::copy::file::Note;
use crate::copy::merge::Merge;
use crate::copy::receiving::Receiving;
use towpath_targets::resume::wait_while_busy;

/// What is in the way of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InTheWay {
    /// Nothing that is not replaced by a rename.
    Nothing,
    /// A directory that may go only if it is empty.
    Empty,
    /// A directory that may go with what is in it.
    Directory,
}

impl From<InTheWay> for u32 {
    fn from(in_the_way: InTheWay) -> Self {
        match in_the_way {
            InTheWay::Nothing => 0,
            InTheWay::Empty => 1,
            InTheWay::Directory => 2,
        }
    }
}

impl From<u32> for InTheWay {
    fn from(number: u32) -> Self {
        match number {
            0 => Self::Nothing,
            1 => Self::Empty,
            _ => Self::Directory,
        }
    }
}

/// A directory that is to make room.
#[derive(Clone, PartialEq, Message)]
pub struct RoomRecord {
    /// Where it is.
    #[prost(message, required, tag = "1")]
    pub spot: Spot,
    /// [`InTheWay`].
    #[prost(uint32, tag = "2")]
    pub in_the_way: u32,
    /// The number of what replaces it in the sender's tree.
    #[prost(uint64, tag = "3")]
    pub entry: u64,
    /// The metadata of that.
    #[prost(message, required, tag = "4")]
    pub metadata: MetadataRecord,
    /// That itself; nothing, in a dry run, and where it is known that the directory will stay.
    #[prost(oneof = "Replacement", tags = "5, 6, 7")]
    pub replacement: Option<Replacement>,
}

/// What takes a directory's place.
#[derive(Clone, PartialEq, Oneof)]
pub enum Replacement {
    /// A file whose bytes are complete.
    #[prost(message, tag = "5")]
    File(StagedFile),
    /// A symbolic link with this target.
    #[prost(bytes, tag = "6")]
    Symlink(Vec<u8>),
    /// A FIFO, socket or device.
    #[prost(message, tag = "7")]
    Special(SpecialRecord),
}

/// A file that has all its bytes and no name.
#[derive(Clone, PartialEq, Message)]
pub struct StagedFile {
    /// Its temporary.
    #[prost(string, tag = "1")]
    pub temp: String,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
}

/// A FIFO, socket or device.
#[derive(Clone, PartialEq, Message)]
pub struct SpecialRecord {
    #[prost(enumeration = "SpecialKind", tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "2")]
    major: u32,
    #[prost(uint32, tag = "3")]
    minor: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum SpecialKind {
    Fifo = 0,
    Socket = 1,
    CharDevice = 2,
    BlockDevice = 3,
}

impl Replacement {
    /// What is made by one call; none for files and directories.
    pub fn node(kind: &Kind) -> Option<Self> {
        let special = |kind: SpecialKind, major, minor| {
            Some(Self::Special(SpecialRecord { kind: kind.into(), major, minor }))
        };
        match *kind {
            Kind::Directory | Kind::File { .. } => None,
            Kind::Symlink { ref target } => Some(Self::Symlink(target.clone())),
            Kind::Fifo => special(SpecialKind::Fifo, 0, 0),
            Kind::Socket => special(SpecialKind::Socket, 0, 0),
            Kind::CharDevice { major, minor } => special(SpecialKind::CharDevice, major, minor),
            Kind::BlockDevice { major, minor } => special(SpecialKind::BlockDevice, major, minor),
        }
    }
}

impl SpecialRecord {
    fn kind_of(&self) -> Kind {
        let (major, minor) = (self.major, self.minor);
        match self.kind() {
            SpecialKind::Fifo => Kind::Fifo,
            SpecialKind::Socket => Kind::Socket,
            SpecialKind::CharDevice => Kind::CharDevice { major, minor },
            SpecialKind::BlockDevice => Kind::BlockDevice { major, minor },
        }
    }
}

impl Merge {
    /// Puts what waits in the place of directories, as far as that is allowed.
    pub(super) fn make_rooms(&mut self, allowance: &Arc<Allowance>) -> Result<(), ApiError> {
        let receiving = Arc::clone(&self.receiving);
        let spots = &mut self.spots;
        let made = receiving.take_rooms().for_each(|record: RoomRecord| {
            receiving.check().map_err(Stop)?;
            let entry = record.entry;
            let (path, shown) = spots.paths(&record.spot).map_err(Stop::of)?;
            let room = Room { in_the_way: record.in_the_way.into(), path, shown };
            if let Err(error) = replace(&receiving, allowance, &room, record) {
                receiving.problem(room.shown.as_bytes(), &error);
                receiving.settled(entry, false);
            }
            Ok(())
        });
        made.map_err(|Stop(error)| error)?;
        if let Some(placing) = receiving.opened() {
            receiving.named(placing.flush());
        }
        Ok(())
    }
}

/// A directory that is in the way, and how people know it.
#[derive(Clone)]
pub(super) struct Room {
    pub(super) in_the_way: InTheWay,
    pub(super) path: RelPath,
    pub(super) shown: RelPath,
}

impl Room {
    /// Removes the directory right before something else takes its name.
    pub(super) fn before_naming(
        &self,
        receiving: &Arc<Receiving>,
        allowance: &Arc<Allowance>,
    ) -> BeforeNaming {
        let (room, receiving, allowance) = (self.clone(), Arc::clone(receiving), Arc::clone(allowance));
        BeforeNaming::new(move || allowance.clear(&receiving, &room))
    }
}

fn replace(
    receiving: &Arc<Receiving>,
    allowance: &Arc<Allowance>,
    room: &Room,
    record: RoomRecord,
) -> Result<(), FileError> {
    let metadata = Metadata::from(record.metadata);
    let placing = receiving.placing()?;
    let destination = &placing.destination;
    let before = || room.before_naming(receiving, allowance);
    let made = match record.replacement {
        None if receiving.options.dry_run => return allowance.clear(receiving, room),
        None => {
            // It was told that it stays; what is in it becomes backups all the same, as with rsync.
            let _ = allowance.clear(receiving, room);
            return Ok(());
        }
        Some(Replacement::File(StagedFile { temp, size })) => {
            // Who wrote it may still be about to let go of it.
            let staged = wait_while_busy(|| destination.reopen_staged_for(&room.path, &temp))?;
            let shown = room.shown.as_bytes().to_vec();
            let note = Note { entry: record.entry, shown, size, modified: metadata.modified, place: None };
            let named = placing.commit(
                staged,
                &room.path,
                &metadata,
                Overwrite::Never,
                None,
                Some(before()),
                note,
            )?;
            receiving.named(named);
            return Ok(());
        }
        Some(Replacement::Symlink(target)) => {
            destination.make_symlink(&room.path, &target, &metadata, Naming::after(before()))?
        }
        Some(Replacement::Special(special)) => {
            destination.make_special(&room.path, &special.kind_of(), &metadata, Naming::after(before()))?
        }
    };
    receiving.settled(record.entry, true);
    made.lacking.map_or(Ok(()), Err)
}

/// Why a directory stays in the way.
pub(super) fn refused(room: &Room, receiving: &Receiving, why: &str) -> FileError {
    let path = receiving.placing().map(|placing| placing.whole_path(&room.path)).unwrap_or_default();
    let why =
        io::Error::new(io::ErrorKind::DirectoryNotEmpty, format!("a directory is in the way, and {why}"));
    FileError::new("replace", &path, why)
}
