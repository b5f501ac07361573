//! Labs as they are used: real namespaces, devices and programs. Needs root and `/dev/net/tun`; where
//! they can't be had, situations say so and are counted as skipped, but with `CI` set they fail.
//!
//! | module | story |
//! |---|---|
//! | `links` | delay, loss, cuts, changes, and that bytes stay what they are |
//! | `topologies` | star, overlay, several links to one host, settings, disks |
//! | `leftovers` | nothing stays behind, and the program's commands |
//! | `running` | scenarios that are run: right results, and what becomes of wrong ones |
//! | `machinery` | scenarios, pings, and the two ends of a connection |
//!
//! Machines are noisy: times are only ever asserted from below.

#![allow(clippy::unwrap_used)]

use std::process::ExitCode;

mod leftovers;
mod links;
mod machinery;
#[path = "../../../crates/cli/tests/end_to_end/runner.rs"]
mod runner;
mod running;
mod topologies;

fn main() -> ExitCode {
    if let Some(code) = machinery::helper() {
        return code;
    }
    let modules = [links::SITUATIONS, topologies::SITUATIONS, leftovers::SITUATIONS, running::SITUATIONS];
    runner::run(&modules, &[])
}
