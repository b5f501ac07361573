//! `tow` with two sources and a finder from outside. Everything else is as ever; the configuration may name them:
//!
//! ```toml
//! [plugins]
//! plugin = "cascade"
//! of = [{ plugin = "directory", path = "/media/stick" }, { plugin = "direct" }]
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    towpath_cli::run(&[
        &towpath_directory_plugin::PLUGIN,
        &towpath_directory_plugin::FINDER,
        &towpath_hindering_plugin::PLUGIN,
    ])
}
