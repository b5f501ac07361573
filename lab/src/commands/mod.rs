//! The commands of `towpath-lab`, one file each.

pub mod accuracy;
pub mod down;
pub mod exec;
pub mod set;
pub mod up;
