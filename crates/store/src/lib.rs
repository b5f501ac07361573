//! Stores, where Towpath keeps objects (DOT's storage plugins, `papers/dot.txt` §4.3).
//!
//! [`Store`] is the seam: what every way of keeping objects must do, with its contract in prose.
//! [`conformance`] examines any implementation. [`MemoryStore`] keeps everything in memory;
//! [`DiskStore`] refers to files where they lie, under a stamp, and owns only what has no file.
//!
//! | module | story |
//! |---|---|
//! | [`seam`] | the [`Store`] trait and its contract |
//! | [`leases`] | the [`Leases`] and [`Chunks`] traits beside it |
//! | [`memory`] | [`MemoryStore`] |
//! | [`disk`] | [`DiskStore`]: index (SQLite), owned objects, referred files, leases, cache |
//! | [`stamp`] | when a file counts as unchanged |
//! | [`hashing`] | piece values as bytes stream in, and of whole files on all cores |
//! | [`cutting`] | chunks of whole files, cut and hashed on all cores |
//! | [`conformance`] | the examination every store passes |
//! | [`doubles`] | stores that fail on purpose, for tests |
//!
//! Shared by the stores and private: `productions` (objects being put, readable meanwhile), `notices` (who
//! waits for what), `spans` (ranges across pieces), `recipes` (in the making), `lru` (a cache bounded by weight).

pub mod conformance;
pub mod cutting;
pub mod disk;
pub mod doubles;
pub mod error;
pub mod hashing;
pub mod leases;
mod lru;
pub mod memory;
mod notices;
mod productions;
mod recipes;
pub mod seam;
mod spans;
pub mod stamp;

pub use cutting::{CutScan, cut_and_hash_open_file, cut_open_file};
pub use disk::{
    ByteKeeping, CachePolicy, CachedObject, Collected, DiskStore, Evicted, FileRecord, GcOptions, Hold,
    LeaseTable, ObjectCache, Recipes, Temporary,
};
pub use error::StoreError;
pub use hashing::{Hashed, PieceHasher, hash_and_keep, hash_open_file};
pub use leases::{Chunks, Holder, Lease, Leases};
pub use memory::MemoryStore;
pub use seam::{
    About, Availability, Descriptors, Listener, ObjectKind, Partial, RecipeNodes, State, Store, StoreChange,
    wait_change,
};
pub use spans::MAX_SPAN;
pub use stamp::Stamp;
