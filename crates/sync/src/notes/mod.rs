//! Notes that are kept on disk until the end of a copy, so that memory does not grow with the tree.

mod directories;
mod rooms;

use std::io;
use std::path::Path;

use prost::Message;
use towpath_content::tree::{Metadata, Owner, Time, Xattr};
use towpath_files::{FileError, RelPath};

use crate::error::CopyError;
pub use directories::{DirNumber, Directories, ROOT};
pub use rooms::{InTheWay, Replacement, RoomRecord, StagedFile};
use towpath_sync_messages::records::Records;

/// Notes for the end of a copy, in the order of the walk.
#[derive(Default)]
pub struct EndNotes {
    /// Positions of what is noted.
    pub positions: Positions,
    /// Directories whose metadata is to be set.
    pub dirs: Records<DirRecord>,
    /// Further names of files.
    pub links: Records<LinkRecord>,
}

/// Position of an entry. No path is kept whole for each: it would make notes of a deep tree as long as it is deep
/// times wide.
#[derive(Clone, PartialEq, Message)]
pub struct Position {
    /// The directory that it lies in, as people know it.
    #[prost(uint64, tag = "1")]
    dir: DirNumber,
    /// Its name there; empty for the directory itself.
    #[prost(bytes = "vec", tag = "2")]
    name: Vec<u8>,
}

/// Something that only the destination has.
#[derive(Clone, PartialEq, Message)]
pub struct ExtraRecord {
    /// Position of it.
    #[prost(message, required, tag = "1")]
    pub position: Position,
    /// It is a directory.
    #[prost(bool, tag = "2")]
    pub is_dir: bool,
}

/// The first name of a file that has several.
#[derive(Clone, PartialEq, Message)]
pub struct FirstRecord {
    /// Position of it.
    #[prost(message, required, tag = "1")]
    pub position: Position,
    /// True if what is at the destination is as it should be.
    #[prost(bool, tag = "2")]
    pub is_kept: bool,
}

/// A further name of a file.
#[derive(Clone, PartialEq, Message)]
pub struct LinkRecord {
    /// The file's first name.
    #[prost(message, required, tag = "1")]
    pub first: Position,
    /// The further one.
    #[prost(message, required, tag = "2")]
    pub position: Position,
    /// Its number in the sender's tree.
    #[prost(uint64, tag = "3")]
    pub entry: u64,
    /// Bytes.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// Last modification: seconds.
    #[prost(sint64, tag = "5")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(uint32, tag = "6")]
    pub nanos: u32,
    /// The name was free.
    #[prost(bool, tag = "7")]
    pub is_new: bool,
    /// [`InTheWay`].
    #[prost(uint32, tag = "8")]
    pub in_the_way: u32,
}

/// A directory whose metadata is to be set.
#[derive(Clone, PartialEq, Message)]
pub struct DirRecord {
    /// Position of it.
    #[prost(message, required, tag = "1")]
    pub position: Position,
    /// Metadata that it shall have.
    #[prost(message, required, tag = "2")]
    pub metadata: MetadataRecord,
}

/// Metadata on disk.
#[derive(Clone, PartialEq, Message)]
pub struct MetadataRecord {
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

impl Position {
    /// A note of what is called `name` in a directory; with an empty name, of the directory itself.
    pub fn new(dir: DirNumber, name: &[u8]) -> Self {
        Self { dir, name: name.to_vec() }
    }
}

/// Renaming of a path that people know at the destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Renaming {
    /// The two are the same.
    #[default]
    Nothing,
    /// The source's own name is not in it: the destination has its place.
    Below,
    /// The source's own name became this.
    As(Vec<u8>),
}

impl Renaming {
    /// The path below the destination's root of what people know as `shown`.
    pub fn path(&self, shown: &RelPath) -> Result<RelPath, FileError> {
        match self {
            Self::Nothing => Ok(shown.clone()),
            Self::Below => RelPath::new(shown.names().skip(1)),
            Self::As(name) => RelPath::new(std::iter::once(&name[..]).chain(shown.names().skip(1))),
        }
    }
}

/// Finds the paths of what was noted.
#[derive(Default)]
pub struct Positions {
    /// The directories that they lie in.
    pub directories: Directories,
    /// Renaming of it at the destination.
    pub renaming: Renaming,
}

impl Positions {
    /// Below the destination's root, and as people know it.
    pub fn paths(&mut self, position: &Position) -> Result<(RelPath, RelPath), FileError> {
        let shown = self.directories.path_of(position.dir, &position.name);
        let shown = shown.map_err(|error| FileError::new("read back", Path::new("what was noted"), error))?;
        Ok((self.renaming.path(&shown)?, shown))
    }
}

impl From<&Metadata> for MetadataRecord {
    fn from(metadata: &Metadata) -> Self {
        let (names, values) =
            metadata.xattrs.iter().map(|xattr| (xattr.name.clone(), xattr.value.clone())).unzip();
        Self {
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
    }
}

impl From<MetadataRecord> for Metadata {
    fn from(record: MetadataRecord) -> Self {
        let xattrs = record.names.into_iter().zip(record.values);
        Self {
            mode: record.mode,
            user: Owner { id: record.user, name: record.user_name },
            group: Owner { id: record.group, name: record.group_name },
            modified: Time { seconds: record.seconds, nanos: record.nanos },
            xattrs: xattrs.map(|(name, value)| Xattr { name, value }).collect(),
        }
    }
}

/// Reason to end the reading of records.
pub struct RecordStop(pub CopyError);

impl RecordStop {
    /// Of an error about what was noted.
    pub fn of(error: FileError) -> Self {
        Self(CopyError::destination(error))
    }
}

impl From<io::Error> for RecordStop {
    fn from(error: io::Error) -> Self {
        Self(CopyError::system("read back", Path::new("what was noted"), error))
    }
}
