//! Errors that keep a lab from being made, and what to do about them.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Reason why something in the lab did not work.
#[derive(Debug, Error)]
pub enum LabError {
    /// Namespaces and devices are root's.
    #[error("a lab needs root, for its namespaces and devices: run it with sudo")]
    NotRoot,
    /// No TUN devices.
    #[error(
        "a lab needs /dev/net/tun ({0}): load the module (modprobe tun), or give this container the device"
    )]
    NoTun(io::Error),
    /// A program that sets something up.
    #[error("`{command}` failed: {said}")]
    Command {
        /// Command that was run.
        command: String,
        /// Its output.
        said: String,
    },
    /// A system call or a file.
    #[error("{what}: {source}")]
    Io {
        /// Step that was tried.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The scenario asks for something that the lab does not have.
    #[error("{0}")]
    Scenario(String),
    /// No lab of this name.
    #[error("there is no lab `{0}`: `towpath-lab down` lists those that are up")]
    NoLab(String),
    /// The lab did not do what it was asked for.
    #[error("lab `{lab}`: {said}")]
    Refused {
        /// Name of the lab.
        lab: String,
        /// Its answer.
        said: String,
    },
}

impl LabError {
    /// For `map_err`: what was tried with which file.
    pub(crate) fn io(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("{what} {}", path.display());
        move |source| Self::Io { what, source }
    }

    /// For `map_err`: what was tried.
    pub(crate) fn tried(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
