//! Copies of trees (`tow cp`, `tow sync`): the request, the events while it goes on, and the summary.

pub mod events;
pub mod options;

pub use events::{CopyEvent, CopySummary, Counts, Dropped, FailureKind, FileTime};
pub use options::{Check, CopyOptions, CopyRequest, Mode, Preserve, Via};
