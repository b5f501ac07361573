//! File trees on a real disk: read through, and written, by held directory handles.
//!
//! Two things are never done here. **No path goes to the system twice**: the root of a tree is
//! opened once, by the user's own word, and everything below it is reached from that handle, one
//! checked name after the other, never through a symbolic link ([`RelPath`], `confine`). And **no
//! file is seen under its name before its bytes are on disk**: it grows under a temporary name, is
//! synced and then renamed ([`Destination`], [`SingleFile`]).
//!
//! All calls block on the disk; asynchronous callers use blocking threads. Memory does not grow
//! with the tree: a directory's names go to a scratch file above a budget, queued renames are
//! flushed above a limit, and only a handful of directories are held open.
//!
//! | module | story |
//! |---|---|
//! | [`error`] | what can go wrong, one variant per different next step |
//! | [`names`] | which names are allowed, and how any name is shown to people |
//! | [`path`] | [`RelPath`]: a path that cannot leave its tree |
//! | [`chmod`] | changes to permissions as people write them |
//! | `confine`, `dirs` | opening directories below a held one, keeping a few open |
//! | `listing`, `mount` | the names in a directory, and where another file system begins |
//! | [`filter`] | which entries take part: rsync's filter rules |
//! | [`selection`] | which part of a described tree is wanted, and where it goes |
//! | [`stamp`] | what a file looked like when it was seen |
//! | [`mod@scan`] | a tree as sorted depth-first events; files opened later, if still the same |
//! | [`sparse`] | where the data of a file with holes lies |
//! | [`metadata`] | owner, attributes, ACLs, mode and times put on a held inode, in one place |
//! | [`mod@write`] | [`Destination`] for a tree, [`SingleFile`] for one file |
//!
//! Not here: what differs between two trees, and what is to be deleted.

pub mod chmod;
mod confine;
mod dirs;
pub mod error;
pub mod filter;
mod listing;
pub mod metadata;
mod mount;
pub mod names;
pub mod path;
pub mod scan;
pub mod selection;
pub mod sparse;
pub mod stamp;
pub mod write;

pub use chmod::Chmod;
pub use error::{FileError, reason};
pub use filter::{Filter, FilterSide, RuleList};
pub use metadata::{Differences, Policy, differences};
pub use names::{display_name, display_text};
pub use path::RelPath;
pub use scan::{
    DirNames, Found, HardLinks, Prune, ScanError, ScanOptions, Scanned, ScannedFile, SourceTree, look, scan,
    scan_pruned,
};
pub use selection::{PathList, Selected, Selection, SelectionFault, WantedPath};
pub use sparse::data_extents;
pub use stamp::Stamp;
pub use write::{
    BackupMover, BeforeNaming, Destination, FileBody, FlushLimits, Made, NameFolding, Naming, NodeMaker,
    Overwrite, Placed, Removed, Removing, Settled, SingleFile, Staged, StagingArea, TreeRemover,
    WriteOptions, is_staging_name, is_temporary_name, of_file,
};
