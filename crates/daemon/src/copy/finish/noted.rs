//! What is kept on disk until the end of a copy, so that memory does not grow with the tree.

use std::io;
use std::path::Path;

use prost::Message;
use towpath_api::ApiError;
use towpath_content::tree::{Metadata, Owner, Time, Xattr};
use towpath_files::{FileError, RelPath};

use crate::errors;

/// Where an entry is, and how people know it.
#[derive(Clone, PartialEq, Message)]
pub struct Spot {
    /// Below the destination's root.
    #[prost(bytes = "vec", tag = "1")]
    path: Vec<u8>,
    /// Below the transfer's root.
    #[prost(bytes = "vec", tag = "2")]
    pub shown: Vec<u8>,
}

/// Something that only the destination has.
#[derive(Clone, PartialEq, Message)]
pub struct ExtraRecord {
    /// Where it is.
    #[prost(message, required, tag = "1")]
    pub spot: Spot,
    /// It is a directory.
    #[prost(bool, tag = "2")]
    pub is_dir: bool,
}

/// The first name of a file that has several.
#[derive(Clone, PartialEq, Message)]
pub struct FirstRecord {
    /// Where it is.
    #[prost(message, required, tag = "1")]
    pub spot: Spot,
    /// What is at the destination is as it should be.
    #[prost(bool, tag = "2")]
    pub is_kept: bool,
}

/// A further name of a file.
#[derive(Clone, PartialEq, Message)]
pub struct LinkRecord {
    /// The file's first name.
    #[prost(message, required, tag = "1")]
    pub first: Spot,
    /// The further one.
    #[prost(message, required, tag = "2")]
    pub spot: Spot,
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
}

/// A directory whose metadata is to be set.
#[derive(Clone, PartialEq, Message)]
pub struct DirRecord {
    /// Where it is.
    #[prost(message, required, tag = "1")]
    pub spot: Spot,
    /// What it shall have.
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

impl Spot {
    /// A note of where an entry is.
    pub fn new(path: &RelPath, shown: &RelPath) -> Self {
        Self { path: path.as_bytes().to_vec(), shown: shown.as_bytes().to_vec() }
    }

    /// Its path below the destination's root.
    pub fn path(&self) -> Result<RelPath, FileError> {
        rel_path(&self.path)
    }

    /// Both of its paths: the destination's, and the one that people know.
    pub fn paths(&self) -> Result<(RelPath, RelPath), FileError> {
        Ok((self.path()?, rel_path(&self.shown)?))
    }
}

fn rel_path(bytes: &[u8]) -> Result<RelPath, FileError> {
    RelPath::new(bytes.split(|&byte| byte == b'/').filter(|name| !name.is_empty()))
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

/// What ends the reading of records.
pub struct Stop(pub ApiError);

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self(errors::io("read back", Path::new("what was noted"), &error))
    }
}
