//! Tree descriptors.
mod entry;
pub use entry::*;
