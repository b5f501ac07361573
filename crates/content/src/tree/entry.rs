//! Entries of a tree descriptor for files, directories and other things: all that `rsync -aHAX`
//! carries.

use crate::Oid;

/// The longest name, in bytes (`NAME_MAX`).
pub const MAX_NAME: usize = 255;
/// The longest name of a user or group, in bytes.
pub const MAX_OWNER_NAME: usize = 255;
/// The longest symlink target, in bytes (`PATH_MAX` without its NUL).
pub const MAX_TARGET: usize = 4095;
/// The most components of a path below the root; a path of one-byte names and slashes has no more.
pub const MAX_DEPTH: usize = 2048;
/// The most bytes of one extended attribute's value (`XATTR_SIZE_MAX`).
pub const MAX_XATTR_VALUE: usize = 65536;
/// The most bytes of all extended attributes of one entry, names included.
pub const MAX_XATTRS: usize = 256 * 1024;
/// The most data extents listed for a sparse file.
pub const MAX_EXTENTS: usize = 16 * 1024;
/// The most bytes of a file that a descriptor of version 2 holds itself.
pub const MAX_INLINE: u64 = 1024;
/// The most entries of one tree, the root included.
pub const MAX_ENTRIES: u64 = 1 << 40;
/// OID in place of the content of a file that its sender left out: nobody has it. Such an entry has the
/// size 0, so that whoever reads the tree can name what is missing and asks for nothing.
pub const LEFT_OUT: Oid = Oid::Blake3([0; 32]);
/// The largest permission bits: rwx for all, setuid, setgid and sticky.
pub const MAX_MODE: u32 = 0o7777;
/// Nanoseconds of a time are below this.
pub const NANOS: u32 = 1_000_000_000;

/// A point in time as the file system keeps it: seconds since 1970 and nanoseconds below 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC, negative before.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 10^9.
    pub nanos: u32,
}

/// Owner of an entry: number, and name where one is known to the sender.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Owner {
    /// Numeric user or group id.
    pub id: u32,
    /// Name without NUL, at most [`MAX_OWNER_NAME`] bytes, or empty if the sender knows none.
    pub name: Vec<u8>,
}

/// One extended attribute. POSIX ACLs travel as their `system.posix_acl_*` attributes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xattr {
    /// Full name with namespace, without NUL, at most [`MAX_NAME`] bytes.
    pub name: Vec<u8>,
    /// Raw value.
    pub value: Vec<u8>,
}

/// A run of data in a sparse file; what lies between is holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes of data, not 0.
    pub len: u64,
}

/// Everything about an entry but its name and its content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Metadata {
    /// Permission bits, setuid, setgid and sticky: at most 0o7777.
    pub mode: u32,
    /// Owning user.
    pub user: Owner,
    /// Owning group.
    pub group: Owner,
    /// Time of last modification.
    pub modified: Time,
    /// Extended attributes, sorted by name, no name twice.
    pub xattrs: Vec<Xattr>,
}

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A directory; its entries follow.
    Directory,
    /// A regular file.
    File {
        /// Bytes; at most [`crate::pieces::MAX_SIZE`].
        size: u64,
        /// The content's name; only a live descriptor may leave it unknown or name a live object.
        oid: Option<Oid>,
        /// `None` if the file has no holes, else its data runs: ascending, apart, and not all of
        /// the file (a list that leaves no hole is refused, so that a file is said in one way).
        extents: Option<Vec<Extent>>,
    },
    /// A symbolic link.
    Symlink {
        /// Raw bytes of the target, not empty, no NUL.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket's name.
    Socket,
    /// A character device.
    CharDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Raw bytes of the last path component; empty only for the root of a tree.
    pub name: Vec<u8>,
    /// Its kind.
    pub kind: Kind,
    /// The rest.
    pub metadata: Metadata,
    /// Entries of one tree with the same number are names of one inode; never for directories.
    /// Number of a hard link. The maker of the tree should number 0, 1, 2… in the order of the walk: the same tree then
    /// has the same bytes, and the number tells nothing about the disk.
    pub hard_link: Option<u64>,
}

/// One step of a depth-first walk. The first event is the root, whose name is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A directory begins; its entries follow, sorted bytewise by name, then its [`Event::Leave`].
    Enter(Entry),
    /// Anything that is not a directory.
    Leaf(Entry),
    /// The innermost open directory ends.
    Leave,
}

impl Entry {
    /// The content's name, if this is a file and it is known.
    pub const fn oid(&self) -> Option<Oid> {
        match self.kind {
            Kind::File { oid, .. } => oid,
            _ => None,
        }
    }

    /// Number of bytes of content that a descriptor of version 2 holds of this entry: all of a small file
    /// without holes, else none.
    pub const fn inline_len(&self) -> usize {
        match self.kind {
            Kind::File { size, oid: Some(Oid::Blake3(_)), extents: None } if size <= MAX_INLINE => {
                size as usize
            }
            _ => 0,
        }
    }
}

impl Event {
    /// The entry spoken of, if this is not the end of one.
    pub const fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Enter(entry) | Self::Leaf(entry) => Some(entry),
            Self::Leave => None,
        }
    }
}
