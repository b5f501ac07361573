//! Errors of a copy: a variant for each different next step. [`CopyError`] ends it, a [`EntryFault`] is one
//! entry's, and the others go on.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use towpath_files::filter::FilterSide;
use towpath_files::{FileError, display_name, display_text, reason};
use towpath_ssh::SshError;
use towpath_store::StoreError;
use towpath_transfer::{FetchError, in_seconds};

/// Reason why a copy as a whole can't go on. Cloned for all who wait for it.
#[derive(Debug, Clone, Error)]
pub enum CopyError {
    /// Request that can't be. Ask for something else.
    #[error("{0}")]
    Request(RequestFault),
    /// Sources can't go where they are to. Name another destination, or see to what is there.
    #[error("{} {fault}", shown(path))]
    Unfit {
        /// The destination.
        path: PathBuf,
        /// Fault of the destination.
        fault: DestinationFault,
    },
    /// The other machine, or what was named there, can't be had.
    #[error("{0}")]
    Ssh(#[source] Arc<SshError>),
    /// A source, or what is in one, can't be read.
    #[error("{0}")]
    Source(#[source] Arc<FileError>),
    /// The destination can't be opened.
    #[error("{0}")]
    Opening(#[source] Arc<FileError>),
    /// The destination can't be written.
    #[error("{0}")]
    Destination(#[source] Arc<FileError>),
    /// The system refused something else.
    #[error("{doing} {}: {}", shown(path), reason(source))]
    System {
        /// Step that was attempted.
        doing: Cow<'static, str>,
        /// On what.
        path: PathBuf,
        /// Error of the system.
        source: Arc<io::Error>,
    },
    /// The destination's disk is full. Free some space, then go on.
    #[error("{}: no space left in {}", display_name(name), shown(place))]
    Full {
        /// The entry for which there is no room.
        name: Vec<u8>,
        /// The destination.
        place: PathBuf,
    },
    /// The index failed.
    #[error("{0}")]
    Index(#[source] Arc<StoreError>),
    /// Nothing came for too long. See that the sender runs, then go on.
    #[error("nothing came for {}{}", in_seconds(*waited), trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Stalled {
        /// Time that was waited.
        waited: Duration,
        /// Trouble that is in the way.
        trouble: Option<String>,
    },
    /// The session that files came by was ended.
    #[error("cancelled")]
    Cancelled,
    /// A person or a program gave the copy up.
    #[error("the copy was given up")]
    GivenUp,
    /// The sender sent something under a name that nobody requested. Do not use it.
    #[error("the sender sent {}, which nobody asked for", display_name(name))]
    Unasked {
        /// The name.
        name: Vec<u8>,
    },
    /// The connection ended before the copy did. Go on.
    #[error("the other side hung up before the copy was complete")]
    HungUp,
    /// The other side does not keep to what is agreed. Use the same version on both.
    #[error("the other side sent what this program does not understand: {what}")]
    Violation {
        /// Message of the other side.
        what: String,
    },
    /// Fault that should not be possible.
    #[error("{what}")]
    Internal {
        /// Event that happened.
        what: String,
    },
    /// This process can't limit itself to what the copy writes. Do without, if that may be.
    #[error("can't confine this process: {why}")]
    NotConfined {
        /// Error of the system.
        why: String,
    },
    /// The other side, which is called so, ended it.
    #[error("{other}: {}", display_text(&error.to_string()))]
    Elsewhere {
        /// Name by which the person calls the other side.
        other: String,
        /// Error that ended it.
        #[source]
        error: Box<CopyError>,
    },
}

/// Request that can't be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestFault {
    /// Deletions, where a list of files names only a part of the source.
    DeletionByList,
    /// Deletions without what is below directories.
    DeletionAtTop,
    /// Source and destination on other machines.
    BothElsewhere,
    /// Sources here and on another machine.
    BothSides,
    /// Sources on several machines.
    SeveralMachines,
    /// No source.
    NoSource,
    /// Contents of a directory, together with other sources.
    ContentsAndOthers,
    /// Contents of several directories.
    SeveralContents,
    /// Two sources of this name.
    SameName(Vec<u8>),
    /// This directory into itself.
    IntoItself(PathBuf),
    /// A destination without a name, for one file.
    NoName,
    /// More options than a side takes.
    TooManyOptions,
    /// Filter rules that this side can't read, and why.
    Filter(FilterSide, String),
    /// A change of modes that is none, and why.
    Chmod(String),
    /// A change of owners that is none, and why.
    Chown(String),
}

/// Fault of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationFault {
    /// No directory, where one is needed.
    NotADirectory,
    /// It is not there, where it is needed.
    Missing,
    /// A FIFO, whose place a file would take.
    Fifo,
    /// A socket, likewise.
    Socket,
    /// A device, likewise.
    Device,
    /// A link that leads nowhere.
    DeadLink,
}

/// Reason why one entry was not copied.
#[derive(Debug)]
pub enum EntryFault<'a> {
    /// It can't be read or written.
    File(&'a FileError),
    /// It can't be read to its end.
    Store(&'a StoreError),
    /// It can't be fetched.
    Fetch(&'a FetchError),
    /// It, or something that was requested, is left out.
    LeftOut(LeftOut),
    /// So many more failed than can be named.
    More(u64),
}

/// Obstacle that keeps an entry from its place though the system would allow it: the cause in a [`FileError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// It would be copied onto itself.
    #[error("source and destination are the same file")]
    SameFile,
    /// The sender sent a further name before the first.
    #[error("a hard link without a first name")]
    NoFirstName,
    /// It and the directories around it have too many attributes.
    #[error("it and the directories around it have more than 8 MiB of attributes")]
    Attributes,
    /// Another entry has its name already.
    #[error("its name collides with another's, as case or accents make no difference there")]
    Collision,
    /// A directory, which `cp` does not replace.
    #[error("a directory is in the way")]
    Directory,
    /// A directory with something in it, which nobody allowed to remove.
    #[error("a directory that is not empty is in the way")]
    FullDirectory,
    /// A directory, in which backups stay.
    #[error("a directory is in the way, in which backups of what it holds would stay")]
    Backups,
    /// More directories than are replaced.
    #[error("more directories are in the way of something else than one copy replaces")]
    TooMany,
    /// A directory that stays.
    #[error("a directory is in the way, and {0}")]
    Stays(Stays),
}

/// Reason why a directory, or everything, stays at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// Filters protect it.
    Protected,
    /// It is not empty.
    NotEmpty,
    /// More is in it than may be removed.
    Limited,
    /// The sender could not list everything.
    Incomplete,
    /// Most of the destination would be removed.
    Guarded,
}

/// Entry that is left out, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// A symbolic link.
    Link,
    /// A link that leads out of the tree.
    LinkOut,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// A directory, where only files were requested.
    Directory,
    /// The destination, which lies in a source.
    Destination,
    /// Entries that the filters leave out, and the sender sent.
    Filtered,
    /// Entries that nobody requested, and the sender sent.
    Unasked,
    /// Something with a path of more bytes than this, and all below it.
    LongPath(usize),
    /// Something that is called like a temporary.
    Temporary,
    /// All deletions: the source could not be read completely.
    Deletions,
    /// All deletions: this many would be of so many entries.
    TooMany(u64, u64),
    /// Deletions beyond their limit.
    Limited,
}

impl Obstacle {
    /// As the error of an attempt on `path`.
    pub fn to(self, op: &'static str, path: &Path) -> FileError {
        FileError::new(op, path, io::Error::other(self))
    }

    /// Obstacle behind an error, if it is one of these.
    pub fn of(error: &FileError) -> Option<Self> {
        std::error::Error::source(error)?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref().copied()
    }
}

impl CopyError {
    /// A source, or what is in one, can't be read.
    pub fn source(error: FileError) -> Self {
        Self::Source(Arc::new(error))
    }

    /// The destination can't be opened.
    pub fn opening(error: FileError) -> Self {
        Self::Opening(Arc::new(error))
    }

    /// The destination can't be written.
    pub fn destination(error: FileError) -> Self {
        Self::Destination(Arc::new(error))
    }

    /// The system refused something else.
    pub fn system(doing: &'static str, path: &Path, error: io::Error) -> Self {
        Self::System { doing: doing.into(), path: path.into(), source: Arc::new(error) }
    }

    /// True if something stands where the copy was to make something.
    pub fn is_in_the_way(&self) -> bool {
        match self {
            Self::Unfit { .. } => true,
            Self::Source(error) | Self::Opening(error) | Self::Destination(error) => {
                matches!(**error, FileError::Exists { .. })
            }
            Self::System { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
            _ => false,
        }
    }

    /// True if the other side can't be reached.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::HungUp => true,
            Self::Ssh(error) => matches!(**error, SshError::NoConnection { .. }),
            Self::Elsewhere { error, .. } => error.is_unreachable(),
            _ => false,
        }
    }
}

impl From<RequestFault> for CopyError {
    fn from(fault: RequestFault) -> Self {
        Self::Request(fault)
    }
}

impl From<SshError> for CopyError {
    fn from(error: SshError) -> Self {
        Self::Ssh(Arc::new(error))
    }
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Index(Arc::new(error))
    }
}

impl From<tokio::task::JoinError> for CopyError {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Internal { what: error.to_string() }
    }
}

impl Display for RequestFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeletionByList => f.write_str("deletions, where a list tells only a part of the source"),
            Self::DeletionAtTop => f.write_str("deletions, where nothing is known of what is below"),
            Self::BothElsewhere => f.write_str("source and destination on other machines"),
            Self::BothSides => f.write_str("sources here and on another machine"),
            Self::SeveralMachines => f.write_str("sources on different machines"),
            Self::NoSource => f.write_str("no source"),
            Self::ContentsAndOthers => f.write_str("the contents of a directory, and other sources"),
            Self::SeveralContents => f.write_str("the contents of several directories"),
            Self::SameName(name) => write!(f, "two sources of the name {}", display_name(name)),
            Self::IntoItself(path) => write!(f, "{} into itself", shown(path)),
            Self::NoName => f.write_str("a destination without a name"),
            Self::TooManyOptions => f.write_str("more than 32 MiB of options"),
            Self::Filter(_, why) => write!(f, "filter rules: {why}"),
            Self::Chmod(why) => write!(f, "a change of modes: {why}"),
            Self::Chown(why) => write!(f, "a change of owners: {why}"),
        }
    }
}

impl Display for DestinationFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotADirectory => "is not a directory",
            Self::Missing => "is not there, or no directory",
            Self::Fifo => "is a FIFO",
            Self::Socket => "is a socket",
            Self::Device => "is a device",
            Self::DeadLink => "is a link that leads nowhere",
        })
    }
}

impl Display for EntryFault<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Fetch(error) => error.fmt(f),
            Self::LeftOut(why) => why.fmt(f),
            Self::More(count) => write!(f, "{count} more entries failed: too many at once to name them"),
        }
    }
}

impl Display for Stays {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protected => "it holds what is to be kept",
            Self::NotEmpty => "it is not empty",
            Self::Limited => "what is in it is more than may be removed",
            Self::Incomplete => "the source could not be read completely",
            Self::Guarded => "more than half of the destination would be deleted",
        })
    }
}

impl Display for LeftOut {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "a symbolic link",
            Self::LinkOut => "a link that leads out of the tree",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Directory => "a directory",
            Self::Destination => "the destination",
            Self::Filtered => "the sender sent what the filters leave out",
            Self::Unasked => "the sender sent what nobody asked for",
            Self::LongPath(most) => {
                return write!(f, "a path of over {most} bytes is left out, with all below it");
            }
            Self::Temporary => "its name is one that tow gives its temporaries",
            Self::Deletions => "nothing was deleted, as the source could not be read completely",
            Self::TooMany(total, all) => {
                return write!(f, "{total} of {all} entries would be deleted; none was");
            }
            Self::Limited => "not everything was deleted that the source does not have",
        })
    }
}

/// An error with what caused it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let message = next.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = next.source();
    }
    text
}

fn shown(path: &Path) -> String {
    display_name(path.as_os_str().as_bytes())
}
