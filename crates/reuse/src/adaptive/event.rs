//! Events for the scheduler, and the actions that it answers with.

use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::Tag;

use super::backpressure::Queues;
use super::groups::WantedChunk;
use super::heuristics::File;
use super::operations::{OperationId, PlannedOperation, Span};
use super::paths::SplitDirectory;

/// Something happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// These chunks are wanted; each of `files` has them all (one file, unless several share them).
    Wanted {
        /// Files of the transfer.
        files: Vec<Arc<File>>,
        /// Their chunks.
        chunks: Vec<WantedChunk>,
    },
    /// The person named these directories: they come first. They are to be among those of
    /// [`Self::Look`], which follows.
    ExtraDirectories(Vec<SplitDirectory>),
    /// These directories may be searched, with what is in them. The scheduler looks nowhere else: give
    /// the destination, those above it as far as allowed, and what the user named.
    Look(Vec<SplitDirectory>),
    /// These files are there, where some of the transfer go: most likely older versions.
    Seen(Vec<File>),
    /// These chunks are no longer wanted.
    Withdrawn(Vec<Tag>),
    /// A disk operation found chunks, and they are checked.
    Found {
        /// The operation.
        operation: OperationId,
        /// The chunks.
        tags: Vec<Tag>,
    },
    /// The network brought a chunk.
    Arrived {
        /// The chunk.
        tag: Tag,
        /// Its bytes.
        len: u32,
        /// Number of these that were made of a region of a local file.
        saved: u32,
    },
    /// The network did not bring chunks it was asked for; they can be asked for again.
    NotBrought(Vec<Tag>),
    /// A STAT found this in the directory; a huge one comes in parts.
    Listed {
        /// The operation.
        operation: OperationId,
        /// Regular files.
        files: Vec<File>,
        /// Names of directories. Those that may not be searched are left out.
        directories: Vec<Box<[u8]>>,
    },
    /// A disk operation is over.
    Completed {
        /// The operation.
        operation: OperationId,
        /// Time that it worked, without the time it was paused.
        took: Duration,
        /// Its end.
        end: End,
    },
    /// The queues as they stand.
    Backpressure(Queues),
    /// [`Action::Recompute`] was done and took so long.
    Recomputed(Duration),
    /// Nothing happened for a while. At least ten times a second while anything is missing.
    Tick,
}

/// End of a disk operation.
#[derive(Debug, Clone)]
pub enum End {
    /// STAT: the directory's contents were reported before.
    Listed,
    /// HASH: so many bytes were read.
    Hashed {
        /// Read, cut and hashed.
        bytes: u64,
    },
    /// CACHE-CHECK: where the index has chunks, by file; files that changed are left out.
    Checked(Vec<(Arc<File>, Vec<Span>)>),
    /// CACHE-READ: so many chunks were read, right or wrong.
    Read {
        /// Number of chunks.
        chunks: u64,
    },
    /// It could not be done.
    Failed,
}

/// An action to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Run this on the disk and tell [`Event::Found`] and [`Event::Completed`].
    Start {
        /// Named so in events.
        id: OperationId,
        /// The operation.
        operation: PlannedOperation,
        /// Probably in vain: what else reads from the disk comes first.
        is_wide: bool,
    },
    /// Let this operation rest: the disk or the processor is needed otherwise. It may end as it was.
    Pause(OperationId),
    /// Let it go on.
    Resume(OperationId),
    /// Ask the network for these, in this order: runs that follow each other in a file.
    AskNetwork(Vec<Tag>),
    /// The disk had them; the network need not bring them any more. No event is expected.
    CancelNetwork(Vec<Tag>),
    /// These are not worth being looked for any more, and are no longer waited for: larger pieces of the object cost
    /// less than chunks. No event is expected.
    GiveUp(Vec<Tag>),
    /// Call [`super::Scheduler::recompute`], measure it, and tell [`Event::Recomputed`].
    Recompute,
}
