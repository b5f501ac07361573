//! Valid inputs, from which changed ones are made.

pub mod content;
pub mod copy;
pub mod direct;
pub mod disk;
pub mod files;
pub mod link;
pub mod relay;
