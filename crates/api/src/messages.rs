//! The messages of the local API, as JSON has them.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::metadata::{Dropped, Preserve, ToldMetadata};
use crate::names;
use crate::sources::SourceList;

/// Request to put.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PutRequest {
    /// A file or directory, absolute. It is referred to, not copied.
    #[serde(with = "names::path")]
    pub path: PathBuf,
    /// The session that holds it; absent: pinned until it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Ends of chunks of the file, ascending, at most [`MAX_BOUNDARIES`]: the application knows its
    /// structure. Empty: it is cut by its content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boundaries: Vec<u64>,
    /// Further paths, absolute: all of them become one tree, each under its last name.
    #[serde(default, with = "names::paths", skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<PathBuf>,
    /// Rules on what is left out, in their order, as rsync's `--filter` takes them.
    #[serde(default, with = "names::list", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Vec<u8>>,
    /// Name that receivers see, one path component; absent: its own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Metadata of a tree's entries that receivers are told.
    #[serde(default, skip_serializing_if = "ToldMetadata::is_default")]
    pub metadata: ToldMetadata,
    /// Terms of its ticket.
    #[serde(flatten)]
    pub terms: TicketTerms,
}

/// Terms of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TicketTerms {
    /// Time from which on it opens nothing, in seconds since 1970; absent: it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Who fetches by it serves nobody else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_swarm: bool,
}

/// Boundaries of chunks that one request may name. Parts of a put can have more.
pub const MAX_BOUNDARIES: usize = 1 << 14;

/// Further fields of a put by descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DescriptorRequest {
    /// As in [`PutRequest::boundaries`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boundaries: Vec<u64>,
}

/// Way in which an object is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PutKind {
    /// As plain bytes.
    #[default]
    Blob,
    /// As the descriptor of a tree, whose files were put before.
    Tree,
}

/// A put whose bytes come in parts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OpenPutRequest {
    /// A name for people, one path component; a receiver without a better one uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session that holds it; absent: pinned until it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Kind of the bytes; checked when the put is committed.
    #[serde(default)]
    pub kind: PutKind,
    /// As [`TicketTerms::expires`]. What stands in the query of an address can't be a message inside of another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// As [`TicketTerms::no_swarm`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_swarm: bool,
}

impl OpenPutRequest {
    /// Terms of its ticket.
    pub const fn terms(&self) -> TicketTerms {
        TicketTerms { expires: self.expires, no_swarm: self.no_swarm }
    }
}

/// A run of equal chunks of an object, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Offset of the first one.
    pub offset: u64,
    /// Bytes of each.
    pub len: u64,
    /// The BLAKE3 hash of its bytes, in hexadecimal digits.
    pub hash: String,
    /// Number of chunks.
    pub count: u64,
}

/// Progress of a put in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartReply {
    /// Bytes that the put has: where the next part begins.
    pub size: u64,
}

/// The object that was put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutReply {
    /// Ticket to hand to the receiver.
    pub ticket: String,
    /// The object's id: content, or live while it is still being read.
    pub oid: String,
    /// Bytes, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The object to get, and its destination.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GetRequest {
    /// A ticket, or the OID of an object that is on this machine.
    pub ticket: String,
    /// URLs on web servers that hold it, too: of the file, of a folder that ends in `/` with a tree's files by their paths, with `{oid}`
    /// for an object's id, or of the `.tow` that `tow publish` wrote. The ticket itself may be such a `.tow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
    /// Destination, absolute; an existing directory takes the object under its own name. Absent: under
    /// its own name in `directory`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "names::path_option")]
    pub output: Option<PathBuf>,
    /// The directory for an object that comes under its own name, absolute.
    #[serde(with = "names::path")]
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
    /// Interfaces of this machine, or addresses, to go out by, all at once. Empty: as configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bind: Vec<String>,
    /// Gets of the same service with a lower one give way while this one is under way.
    #[serde(default)]
    pub priority: i8,
    /// Refuse every way of which the service can't tell itself that it is encrypted.
    #[serde(default)]
    pub require_encryption: bool,
    /// Others who fetch by the same ticket are sent nothing of it while it runs.
    #[serde(default)]
    pub no_upload: bool,
    /// Bytes per second that they are sent at most; 0 is no limit.
    #[serde(default)]
    pub upload_rate: u64,
    /// Nothing of this machine's disk is searched for what is to come.
    #[serde(default)]
    pub no_search: bool,
    /// Directories that are searched too, absolute. The sender can tell from what it is not asked for
    /// whether they hold it.
    #[serde(default, with = "names::paths")]
    pub search: Vec<PathBuf>,
    /// Effort of the search where probably nothing is found.
    #[serde(default)]
    pub search_effort: SearchEffort,
    /// Only tell what it holds, as [`Event::Entry`]; nothing is written.
    #[serde(default)]
    pub list: bool,
    /// Paths in the tree: only these, each under its last name in the destination. Empty: all of it.
    #[serde(default, with = "names::paths", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathBuf>,
    /// Rules on what of the tree is left out, in their order, as rsync's `--filter` takes them.
    #[serde(default, with = "names::list", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Vec<u8>>,
    /// Metadata of a tree's entries that are taken; absent: [`Preserve::of_strangers`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve: Option<Preserve>,
    /// Make what is at the destination equal to the tree; absent: nothing that is there is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<GetUpdate>,
}

/// Update of a tree that is at the destination, as `tow sync` does it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GetUpdate {
    /// Change nothing, tell what would be.
    pub dry_run: bool,
    /// Compare contents, not size and time.
    pub checksum: bool,
    /// Remove what the tree does not have.
    pub delete: bool,
    /// Entries to remove at most; absent: half of what is at the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delete: Option<u64>,
    /// Remove more than that, and directories in the way of files.
    pub force: bool,
    /// Keep what would be replaced or removed, under another name.
    pub backup: bool,
    /// The end of that name.
    #[serde(with = "names::path")]
    pub suffix: PathBuf,
    /// A directory for it, relative to the destination.
    #[serde(skip_serializing_if = "Option::is_none", with = "names::path_option")]
    pub backup_dir: Option<PathBuf>,
}

/// Effort of searching the disk where probably nothing is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEffort {
    /// For about a tenth of the transfer's time, and longer if something is found.
    #[default]
    Some,
    /// Until all is searched, or all has come.
    All,
}

/// Directories to index.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IndexRequest {
    /// Directories whose files are indexed, absolute.
    #[serde(with = "names::paths")]
    pub directories: Vec<PathBuf>,
}

/// Counts of what was indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Indexed {
    /// Files in the index now.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of them that were in it before, unchanged, and not read.
    pub unchanged: u64,
    /// Bytes that were read.
    pub read: u64,
    /// Files that could not be read, each reported by an event.
    pub failed: u64,
    /// Time that it took.
    pub seconds: Seconds,
}

/// Request to serve files and directories until its command ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRequest {
    /// Files or directories, which are referred to, not copied; several are one tree, each under its last name.
    pub paths: Vec<PathBuf>,
    /// As in [`PutRequest::filters`].
    pub filters: Vec<Vec<u8>>,
    /// As in [`PutRequest::name`].
    pub name: Option<String>,
    /// As in [`PutRequest::metadata`].
    pub metadata: ToldMetadata,
    /// As in [`PutRequest::terms`].
    pub terms: TicketTerms,
    /// Number of nodes that may fetch by the ticket, the first ones that prove it; absent: any number.
    pub max_fetches: Option<NonZeroU32>,
    /// URLs that it can be had from, too: the ticket names them. Receivers ask only those at public addresses.
    pub mirrors: Vec<String>,
    /// Address to listen at; absent: all addresses, the port of last time.
    pub listen: Option<SocketAddr>,
    /// Bytes per second; 0 is no limit.
    pub limit_rate: u64,
}

/// Where and how fast a get serves others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StayRequest {
    /// Address to listen at; absent: all addresses, the port of last time.
    pub listen: Option<SocketAddr>,
    /// Bytes per second that others get; 0 is no limit.
    pub limit_rate: u64,
}

/// The object to get as a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContentRequest {
    /// A ticket, or the OID of an object that is on this machine.
    pub ticket: String,
    /// As in [`GetRequest::reuse`].
    #[serde(default)]
    pub reuse: bool,
    /// Bytes per second; 0 is no limit.
    #[serde(default)]
    pub limit_rate: u64,
    /// Seconds without progress after which to give up; 0 is the default of 60.
    #[serde(default)]
    pub timeout: u64,
    /// As in [`GetRequest::priority`].
    #[serde(default)]
    pub priority: i8,
    /// As in [`GetRequest::require_encryption`].
    #[serde(default)]
    pub require_encryption: bool,
}

/// Objects to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListRequest {
    /// Those that are kept as cache, too.
    #[serde(default)]
    pub cached: bool,
}

/// Objects to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GcRequest {
    /// Everything that nobody holds, not only what is over the cache's limits.
    #[serde(default)]
    pub all: bool,
}

/// Objects that were removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GcReply {
    /// Cached objects.
    pub objects: u64,
    /// Their bytes, and those of files that nothing referred to.
    pub bytes: u64,
    /// Entries of files that are gone, were changed, or were not used for longest.
    pub entries: u64,
    /// Files that nothing referred to: what a crash left.
    pub leftovers: u64,
    /// Leases of applications that died with their daemon.
    pub leases: u64,
}

/// Something that happened during a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A ticket was made (`put`, `share`).
    Ticket(PutReply),
    /// Progress of the transfer; about five a second.
    Transfer(Progress),
    /// Nothing comes since something is in the way; it is tried on.
    Waiting {
        /// The thing that is waited for, and why, for people.
        what: String,
        /// Time for which it is tried, if nothing comes; absent: until it comes or ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u64>,
    },
    /// A get is about to write; nothing of it is at its destination yet.
    Receiving(Announced),
    /// Somebody fetches something from this service (`share`, `put -`).
    Fetch(Fetch),
    /// One file of a tree could not be had or written; the others go on.
    FileFailed {
        /// Its path in the tree, made printable.
        path: String,
        /// Error of it.
        error: String,
    },
    /// An entry of a tree is of a kind that is left out unless asked for: a FIFO, a socket, a device. That is no failure.
    EntrySkipped {
        /// Its path in the tree, made printable.
        path: String,
        /// Kind that it has, and the flag that asks for it.
        why: String,
    },
    /// Terms of the ticket whose object is listed, if it has any.
    Terms(TicketTerms),
    /// An entry of what a ticket names ([`GetRequest::list`]).
    Entry(ListedEntry),
    /// An entry at the destination was made or changed, or would be ([`GetRequest::update`]).
    Item {
        /// Changes, as rsync's `%i` has them: `YXcstpoguax`.
        changes: String,
        /// Below the destination; directories end with a slash.
        #[serde(with = "names::path")]
        path: PathBuf,
        /// Bytes of its content.
        size: u64,
    },
    /// An entry at the destination was removed, or would be.
    Deleted {
        /// Below the destination.
        #[serde(with = "names::path")]
        path: PathBuf,
        /// It was a directory.
        is_dir: bool,
    },
    /// The end.
    Summary(Summary),
    /// The end of a request that failed.
    Failed(ApiError),
    /// A session begins.
    Session {
        /// Name by which puts refer to it.
        session: String,
    },
    /// The session goes on; reported now and then.
    Alive,
    /// Events that a slow listener missed.
    Missed {
        /// Number of events.
        count: u64,
    },
}

/// What a get is about to write, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// Name that the sender chose; of a tree that of its root. Empty if it has none.
    #[serde(with = "names::name")]
    pub name: Vec<u8>,
    /// A file, or the directory that a tree's root is.
    pub kind: EntryKind,
    /// Bytes of a file; absent if they are not known yet, and of a tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Path that is written to, as in the summary.
    #[serde(with = "names::path")]
    pub output: PathBuf,
}

/// An event of one of the service's transfers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferEvent {
    /// Its number, since the service started; 0 for what concerns none.
    pub transfer: u64,
    /// `put` or `get`; empty for what concerns no transfer.
    pub direction: String,
    /// Object that was requested or is being put; empty for what concerns no transfer.
    pub oid: String,
    /// The content's id, of a summary; that has no `oid` of its own here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// An entry of what a ticket names: a file's own, or one of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedEntry {
    /// Its path in the tree; of a single file its name, empty if it has none.
    #[serde(with = "names::path")]
    pub path: PathBuf,
    /// Its kind.
    pub kind: EntryKind,
    /// Permission bits, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Bytes, of a file, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Its time of last modification, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<FileTime>,
    /// Target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "names::path_option")]
    pub target: Option<PathBuf>,
    /// Its sender could not read it, or does not let it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A time of last modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanos: u32,
}

/// Progress of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes that are there.
    pub done: u64,
    /// Bytes of all objects known so far; grows while a tree is still being read.
    pub expected: u64,
    /// Objects (files) complete.
    pub objects: u64,
    /// Bytes by where they came from.
    pub sources: SourceList,
    /// Trouble that is in the way at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Stage of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchState {
    /// It begins.
    Begun,
    /// Bytes go.
    UnderWay,
    /// The receiver has all of it.
    Complete,
    /// The receiver has all but some files.
    Partly,
    /// Something could not be sent, and the receiver gave up.
    Failed,
    /// The receiver went away before it had all.
    BrokenOff,
}

/// Somebody fetches something from this service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// Its stage.
    pub state: FetchState,
    /// The first digits of the receiver's node id.
    pub peer: String,
    /// Its address.
    pub address: String,
    /// The object that the ticket names.
    pub oid: String,
    /// Its name, made printable; a stream has none.
    pub name: String,
    /// Bytes of it that were sent, as they went over the network: fewer than its own if they were packed,
    /// or if the receiver had some.
    pub bytes: u64,
    /// Its own bytes, of a file, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Seconds since it began.
    pub seconds: Seconds,
    /// Error, with what could not be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Summary of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The content's id; empty if something else has it beside.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub oid: String,
    /// Path at which it is now.
    #[serde(with = "names::path")]
    pub output: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, directories and symlinks written or found complete.
    pub entries: u64,
    /// Files that could not be had or written.
    pub failed: u64,
    /// Entries of kinds that are left out unless asked for.
    #[serde(default)]
    pub skipped: u64,
    /// Bytes by where they came from: peers, `this machine`.
    pub sources: SourceList,
    /// Sources that brought what was wrong, and how many bytes others had to bring instead.
    #[serde(default, skip_serializing_if = "SourceList::is_empty")]
    pub wrong: SourceList,
    /// Bytes kept from an earlier, interrupted run, or right in older versions and other files that are here.
    pub kept: u64,
    /// Zeros in holes of sparse files, which cost nothing.
    pub zeros: u64,
    /// True if all that crossed a network for it was encrypted, as the service can tell itself.
    #[serde(default)]
    pub encrypted: bool,
    /// Search of the disk, if it could be searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Searched>,
    /// Metadata of a tree's entries that nobody asked for and that were left out.
    #[serde(default, skip_serializing_if = "Dropped::is_none")]
    pub dropped: Dropped,
    /// Counts of what an update did; absent for other gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<UpdateCounts>,
    /// Seconds it took.
    pub seconds: Seconds,
}

/// Changes that an update made, or would make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateCounts {
    /// Nothing was changed: these are what would be.
    pub dry_run: bool,
    /// Entries that were not there before.
    pub created: u64,
    /// Files whose content was brought up to date, new ones included.
    pub transferred: u64,
    /// Entries that were removed.
    pub deleted: u64,
    /// `max_delete`, or the guard of half the destination, stopped removals.
    pub max_delete_reached: bool,
}

impl Summary {
    /// Of content that crosses no network, and so is not reported by others.
    pub fn here() -> Self {
        Self { encrypted: true, ..Self::default() }
    }
}

/// Search of the receiver's disk, and its finds. Only what was wanted as chunks is
/// counted: on a fast network nothing is, and all is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Searched {
    /// Directories listed (STAT).
    pub directories: u64,
    /// Files read, cut and hashed (HASH).
    pub files: u64,
    /// Bytes of them.
    pub hashed: u64,
    /// Chunks looked up in the index (CACHE-CHECK).
    pub looked_up: u64,
    /// Seconds that the disk took for all of these.
    pub disk_seconds: Seconds,
    /// Bytes of chunks that the network brought.
    pub from_network: u64,
    /// Bytes of these that did not have to come: made of regions of files here, by deltas.
    pub by_delta: u64,
    /// Files that were made of older versions, by deltas of them or piece by piece.
    pub changed: u64,
    /// Bytes of these that did not have to come.
    pub by_change: u64,
    /// Bytes of chunks from files that were read.
    pub from_files: u64,
    /// Bytes of chunks from places that the index named.
    pub from_index: u64,
    /// Bytes that the network brought though the disk had brought them.
    pub in_vain: u64,
    /// The search ended before all was looked at, as that was no longer worth it (`search_effort`).
    #[serde(default)]
    pub limited: bool,
    /// Bottlenecks of the transfer, each with the second that it began in: `network`, `disk`, `processor` or `search`.
    pub bottlenecks: Vec<(Seconds, String)>,
    /// Files that came as deltas of others that were here; the first 64 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deltas: Vec<FileDelta>,
}

/// A file that came as a delta of another one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileDelta {
    /// Its path at the source.
    #[serde(with = "names::name")]
    pub path: Vec<u8>,
    /// Path of the other one on the receiver.
    #[serde(with = "names::path")]
    pub base: PathBuf,
    /// Why that was taken for an older version: `in_place`, or what the two have in common (`numbers`, `path_beside`, `name`,
    /// `name_near`, `name_numbers`, `kind`, `size_and_time`, `size`).
    pub why: String,
    /// Bytes of the file that were made so.
    pub made: u64,
    /// Bytes that came for them.
    pub came: u64,
}

/// Seconds with millisecond resolution; an integer inside, so that messages can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seconds(u64);

impl Seconds {
    /// From a duration, rounded to milliseconds.
    pub const fn from_duration(duration: std::time::Duration) -> Self {
        Self(duration.as_millis() as u64)
    }

    /// As a number of milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
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

/// One object of this machine: put and not done, or cached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The object that the ticket names.
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
    /// Its ticket; a cached object has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// Terms of its ticket.
    #[serde(flatten)]
    pub terms: TicketTerms,
    /// Time at which it was put, or last used if it is cached, in seconds since 1970.
    pub created: u64,
    /// Its holder.
    #[serde(default)]
    pub held: Held,
}

/// Holder of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// It stays until it is done.
    #[default]
    Pinned,
    /// It stays until it is done or its session ends.
    Session,
    /// Nothing: it stays until its room is needed.
    Cached,
}

/// The service's own state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its public key.
    pub node: String,
    /// Addresses on which it listens; empty if it does not.
    pub listening: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// Objects put and not done.
    pub objects: u64,
    /// Connections from peers.
    pub connections: u64,
    /// Sessions of applications.
    #[serde(default)]
    pub sessions: u64,
    /// Puts in parts that are open.
    #[serde(default)]
    pub open_puts: u64,
    /// Gets under way.
    #[serde(default)]
    pub gets: u64,
    /// Copies under way.
    #[serde(default)]
    pub copies: u64,
}

/// End of a call that tells events.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CallEnd<S> {
    /// It came to its end.
    Summary(S),
    /// It failed as a whole.
    Failed(ApiError),
}

/// A line of the answer of such a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AnswerLine<S, E> {
    /// The last one.
    End(CallEnd<S>),
    /// It goes on.
    Event(E),
}

/// Kind of an error by what to do about it: one kind for each different next step.
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
    /// The service has too much to do at the moment.
    Busy,
    /// Nobody can be reached.
    Unreachable,
    /// Nothing came for too long.
    TimedOut,
    /// Received content is wrong.
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

/// Error, with the file or peer concerned, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ApiError {
    /// Kind of error.
    pub kind: ErrorKind,
    /// Message for people.
    pub message: String,
    /// Advice for people on what to do next.
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

/// An error as HTTP carries it: problem details (RFC 9457), with a kind and a hint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Names the kind: `urn:towpath:problem:KIND`.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// The kind in words.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// Message for people.
    pub detail: String,
    /// Kind of error.
    pub kind: ErrorKind,
    /// Advice for people on what to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    /// The problem that tells of `error`, with the status that its kind has.
    pub fn of(error: ApiError) -> Self {
        let (name, title, status) = error.kind.described();
        Self {
            type_uri: format!("urn:towpath:problem:{name}"),
            title: title.into(),
            status,
            detail: error.message,
            kind: error.kind,
            hint: error.hint,
        }
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self { kind: problem.kind, message: problem.detail, hint: problem.hint }
    }
}

impl ErrorKind {
    /// Its name, its meaning in words, and its HTTP status.
    const fn described(self) -> (&'static str, &'static str, u16) {
        match self {
            Self::Usage => ("usage", "The request is wrong", 400),
            Self::NotFound => ("not_found", "It is not there", 404),
            Self::Exists => ("exists", "Something is already there", 409),
            Self::Refused => ("refused", "It is not allowed", 403),
            Self::Busy => ("busy", "The service has too much to do", 503),
            Self::Unreachable => ("unreachable", "Nobody can be reached", 502),
            Self::TimedOut => ("timed_out", "Nothing came for too long", 504),
            Self::Corrupt => ("corrupt", "What came is wrong", 500),
            Self::Changed => ("changed", "It changed while it was read", 500),
            Self::NoSpace => ("no_space", "No space is left", 507),
            Self::Interrupted => ("interrupted", "It was ended before it was complete", 500),
            Self::Failed => ("failed", "It failed", 500),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_kind_as_the_field_does() {
        let problem = Problem::of(ApiError::new(ErrorKind::NoSpace, "the disk is full").hint("free some"));
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json["type"], "urn:towpath:problem:no_space");
        assert_eq!((&json["kind"], &json["status"]), (&"no_space".into(), &507.into()));
        assert_eq!(ApiError::from(problem).hint.as_deref(), Some("free some"));
    }

    #[test]
    fn an_event_of_a_transfer_is_one_flat_object() {
        let event = Event::Transfer(Progress { done: 7, ..Progress::default() });
        let event =
            TransferEvent { transfer: 3, direction: "get".into(), oid: "x".into(), content: None, event };
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(
            (&json["transfer"], &json["event"], &json["done"]),
            (&3.into(), &"transfer".into(), &7.into())
        );
        assert_eq!(serde_json::from_value::<TransferEvent>(json).unwrap(), event);
    }
}
