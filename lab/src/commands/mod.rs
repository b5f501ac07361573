//! The commands of `towpath-lab`, one file each.

pub mod accuracy;
pub mod chart;
pub mod data;
pub mod deps;
pub mod down;
pub mod exec;
pub mod history;
pub mod list;
pub mod report;
pub mod run;
pub mod set;
pub mod up;
