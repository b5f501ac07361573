//! Rights that this process keeps once it knows its work: a fault in what reads a stranger's bytes
//! then reaches no further than the work itself (`docs/design/confinement.md`).
//!
//! ```text
//!   the work (a copy's first message, a daemon's configuration)
//!        │ writable: what it may write
//!        ▼
//!   limits: Landlock, a list of refused calls ──► every thread
//!        ▲
//!        └ gate: threads that are there before the work is known wait for it
//! ```
//!
//! | part | story |
//! |---|---|
//! | `writable` | what a kind of work may write |
//! | `limits` | the kernel's limits on a thread and on all that it starts |
//! | `calls` | system calls that a service never makes |
//! | `gate` | where a runtime's threads wait until their limits are known |
//!
//! Limits are for good: nothing in this process can lift them. What a kernel doesn't know is left
//! out, and [`Enforced`] says how much held.

mod calls;
mod gate;
mod limits;
mod writable;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use towpath_config::{Directory, Home, Switch};

pub use calls::deny_calls;
pub use gate::Gate;
pub use limits::Limits;
pub use writable::{Places, Writable};

/// The environment variable that switches it off, as the configuration can.
pub const VARIABLE: &str = "TOW_SANDBOX";

/// True if this process is to be confined: `variable` comes before what is configured. Only a plain
/// "off" switches it off.
pub fn is_wanted(variable: Option<&OsStr>, configured: Switch) -> bool {
    match variable.filter(|value| !value.is_empty()) {
        Some(value) => value != "off",
        None => configured == Switch::On,
    }
}

/// Paths that the daemon of this home may write, whose `write_below` is `listed`: a look at the root
/// directory and at the environment.
pub fn of_daemon(home: &Home, listed: &[Directory]) -> Writable {
    let listed: Vec<PathBuf> = listed.iter().map(|directory| directory.0.clone()).collect();
    let person = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let person: Option<&Path> = person.as_deref();
    Writable::of_daemon(&Places::of(home), home.runtime(), &listed, person, &writable::top_folders())
}

/// Extent to which the kernel enforces the limits on writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    /// All that was asked for.
    Fully,
    /// Less: this kernel does not know some rights.
    Partly,
    /// None: this kernel has no Landlock, it is switched off there, or it is too old for renames.
    Not,
    /// None, as the person wishes.
    SwitchedOff,
}

impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fully => "fully enforced",
            Self::Partly => "partly enforced: this kernel knows only some of the limits",
            Self::Not => "not enforced: this kernel has no Landlock that allows renames",
            Self::SwitchedOff => "switched off",
        })
    }
}

/// Reason why a process could not be confined.
#[derive(Debug, Error)]
pub enum ConfinementError {
    /// The kernel has Landlock, but did not take the limits.
    #[error("the kernel did not take the limits on writing")]
    Limits {
        /// Error of the kernel's interface.
        source: landlock::RulesetError,
    },
    /// The kernel did not take the list of refused calls.
    #[error("the kernel did not take the list of refused system calls")]
    Calls {
        /// Error of the filter.
        source: seccompiler::Error,
    },
    /// There are threads that don't wait at the [`Gate`], which no limits would hold for.
    #[error("{others} threads run already, of which only {waiting} wait for their limits")]
    Threads {
        /// Besides the calling one.
        others: usize,
        /// Of them.
        waiting: usize,
    },
    /// Anything else that the system refused.
    #[error("{what}")]
    Io {
        /// Step that failed.
        what: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_comes_before_the_configuration_and_only_off_is_off() {
        for (variable, configured, wanted) in [
            (None, Switch::On, true),
            (None, Switch::Off, false),
            (Some("off"), Switch::On, false),
            (Some("on"), Switch::Off, true),
            (Some("0"), Switch::On, true),
            (Some(""), Switch::On, true),
            (Some(""), Switch::Off, false),
        ] {
            assert_eq!(
                is_wanted(variable.map(OsStr::new), configured),
                wanted,
                "{variable:?} {configured:?}"
            );
        }
    }
}
