//! Copies of trees and files, from here, to here, or within this machine.

pub mod channel;
pub mod options;
pub mod place;
pub mod race;

pub use options::{Check, CopyOptions, Preserve, Via};
