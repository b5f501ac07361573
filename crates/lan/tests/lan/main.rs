//! Two machines on one LAN: network namespaces joined by a pair of virtual Ethernet devices. Needs root and `ip`; where
//! they can't be had, situations say so and are counted as skipped, but with `CI` set they fail.
//!
//! | module | story |
//! |---|---|
//! | `cable` | two namespaces and the pair between them |
//! | `meeting` | who is found, who is not, and what is told of it on the wire |

#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, and these have a runner of their own.

use std::process::ExitCode;

mod cable;
mod meeting;
#[path = "../../../cli/tests/end_to_end/runner.rs"]
mod runner;

fn main() -> ExitCode {
    runner::run(&[meeting::SITUATIONS], &[])
}
