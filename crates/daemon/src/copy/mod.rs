//! Copies of trees and files, from here, to here, or within this machine.

pub mod options;

pub use options::{Check, CopyOptions, Preserve, Via};
