//! The messages of the local API, as JSON has them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What to put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutRequest {
    /// A file or directory, absolute. It is referred to, not copied.
    #[serde(with = "crate::paths")]
    pub path: PathBuf,
}

/// What was put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutReply {
    /// What to hand to the receiver.
    pub ticket: String,
    /// The object's id: content, or live while it is still being read.
    pub oid: String,
    /// Bytes, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// What to get, and where to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetRequest {
    /// A ticket, or the OID of an object that is on this machine.
    pub ticket: String,
    /// Where to, absolute; an existing directory takes the object under its own name. Absent: under
    /// its own name in `directory`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::paths::option")]
    pub output: Option<PathBuf>,
    /// The directory for an object that comes under its own name, absolute.
    #[serde(with = "crate::paths")]
    pub directory: PathBuf,
    /// Draw from anything that the service knows on this machine, not only from what this sender
    /// sent before. The sender can tell from what it is not asked for.
    #[serde(default)]
    pub reuse: bool,
    /// Bytes per second; 0 is no limit.
    #[serde(default)]
    pub limit_rate: u64,
    /// Seconds without progress after which to give up; 0 is the default of 60.
    #[serde(default)]
    pub timeout: u64,
    /// Gets of the same service with a lower one give way while this one is under way.
    #[serde(default)]
    pub priority: i8,
    /// Refuse every way of which the service can't tell itself that it is encrypted.
    #[serde(default)]
    pub require_encryption: bool,
}

/// Something that happened during a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A ticket was made (`put`, `share`).
    Ticket(PutReply),
    /// How far it is; about five a second.
    Transfer(Progress),
    /// One file of a tree could not be had or written; the others go on.
    FileFailed {
        /// Its path in the tree, made printable.
        path: String,
        /// Why.
        error: String,
    },
    /// The end.
    Summary(Summary),
    /// The end of a request that failed.
    Failed(ApiError),
}

/// How far a transfer is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes that are there.
    pub done: u64,
    /// Bytes of all objects known so far; grows while a tree is still being read.
    pub expected: u64,
    /// Objects (files) complete.
    pub objects: u64,
    /// Bytes by where they came from.
    pub by_source: BTreeMap<String, u64>,
    /// What is in the way at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// What a transfer did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The content's id.
    pub oid: String,
    /// Where it is now.
    #[serde(with = "crate::paths")]
    pub output: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, directories and symlinks written or found complete.
    pub entries: u64,
    /// Files that could not be had or written.
    pub failed: u64,
    /// Bytes by where they came from: peers, `this machine`.
    pub by_source: BTreeMap<String, u64>,
    /// Bytes kept from an earlier, interrupted run.
    pub kept: u64,
    /// Zeros in holes of sparse files, which cost nothing.
    pub zeros: u64,
    /// Whether all that crossed a network for it was encrypted, as the service can tell itself.
    #[serde(default)]
    pub encrypted: bool,
    /// Seconds it took.
    pub seconds: Seconds,
}

/// Seconds with millisecond resolution; an integer inside, so that messages can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seconds(u64);

impl Seconds {
    /// From a duration, rounded to milliseconds.
    pub const fn from_duration(duration: std::time::Duration) -> Self {
        Self(duration.as_millis() as u64)
    }

    /// As a number of seconds.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl Serialize for Seconds {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(|seconds| Self((seconds.max(0.0) * 1000.0).round() as u64))
    }
}

/// One object that is put and not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// What the ticket names.
    pub oid: String,
    /// The content's id, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// `blob` or `tree`.
    pub kind: String,
    /// Bytes, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The file or directory it refers to, made printable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its ticket.
    pub ticket: String,
    /// When it was put, in seconds since 1970.
    pub created: u64,
}

/// The service's own state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its public key.
    pub node: String,
    /// Where it listens; empty if it does not.
    pub listening: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// Objects put and not done.
    pub objects: u64,
    /// Connections from peers.
    pub connections: u64,
}

/// What to do about an error: one kind for each different next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request itself is wrong.
    Usage,
    /// It is not there.
    NotFound,
    /// Something is already there.
    Exists,
    /// The other side does not allow it.
    Refused,
    /// Nobody can be reached.
    Unreachable,
    /// Nothing came for too long.
    TimedOut,
    /// What came is wrong.
    Corrupt,
    /// It changed while it was read.
    Changed,
    /// No space is left.
    NoSpace,
    /// A person or a program ended it.
    Interrupted,
    /// Anything else.
    Failed,
}

/// What went wrong, with which file or peer, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ApiError {
    /// What kind of error.
    pub kind: ErrorKind,
    /// What happened, for people.
    pub message: String,
    /// What to do next, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ApiError {
    /// An error without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
