//! The program `tow`, with the plugins of this build.

use std::process::ExitCode;

fn main() -> ExitCode {
    towpath_cli::run(&[])
}
