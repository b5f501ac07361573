//! Where Towpath keeps objects (DOT's storage plugins, `papers/dot.txt` §4.3).
//!
//! [`Store`] is the seam: what every way of keeping objects must do, with its contract in prose.
//! [`conformance`] examines any implementation. [`MemoryStore`] keeps everything in memory;
//! [`DiskStore`] refers to files where they lie, under a stamp, and owns only what has no file.
//!
//! | module | story |
//! |---|---|
//! | [`seam`] | the [`Store`] trait and its contract |
//! | [`memory`] | [`MemoryStore`] |
//! | [`disk`] | [`DiskStore`]: index (SQLite), owned objects, referred files, leases |
//! | [`stamp`] | when a file counts as unchanged |
//! | [`conformance`] | the examination every store passes |
//! | [`doubles`] | stores that fail on purpose, for tests |

pub mod conformance;
pub mod disk;
pub mod doubles;
pub mod memory;
pub mod seam;
pub mod stamp;

pub use disk::DiskStore;
pub use memory::MemoryStore;
pub use seam::{About, Availability, Descriptors, Lease, ObjectKind, Partial, State, Store, StoreError};
pub use stamp::Stamp;
