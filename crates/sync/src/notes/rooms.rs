//! Notes on directories that are in the way of something else.

use prost::{Message, Oneof};
use towpath_content::tree::Kind;

use super::{MetadataRecord, Position};

/// Directory in the way of an entry.
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
    /// Position of it.
    #[prost(message, required, tag = "1")]
    pub position: Position,
    /// [`InTheWay`].
    #[prost(uint32, tag = "2")]
    pub in_the_way: u32,
    /// The number of what replaces it in the sender's tree.
    #[prost(uint64, tag = "3")]
    pub entry: u64,
    /// The metadata of that.
    #[prost(message, required, tag = "4")]
    pub metadata: MetadataRecord,
    /// The entry itself; nothing, in a dry run, and where it is known that the directory will stay.
    #[prost(oneof = "Replacement", tags = "5, 6, 7")]
    pub replacement: Option<Replacement>,
}

/// Replacement of a directory.
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
    /// Replacement made by one call; none for files and directories.
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
    /// As a tree has it.
    pub fn kind_of(&self) -> Kind {
        let (major, minor) = (self.major, self.minor);
        match self.kind() {
            SpecialKind::Fifo => Kind::Fifo,
            SpecialKind::Socket => Kind::Socket,
            SpecialKind::CharDevice => Kind::CharDevice { major, minor },
            SpecialKind::BlockDevice => Kind::BlockDevice { major, minor },
        }
    }
}
