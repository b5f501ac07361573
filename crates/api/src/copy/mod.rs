//! Copies of trees (`tow cp`, `tow sync`): the request, the events while it goes on, and the summary.

pub mod events;
pub mod options;

pub use crate::metadata::{Dropped, Preserve};
pub use events::{CopyEvent, CopySummary, Counts, FailureKind, FileTime};
pub use options::{Check, CopyOptions, CopyRequest, Mode, Via};
