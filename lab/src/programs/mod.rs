//! Programs that can carry a file or a tree from one host to another: Towpath's and its peers.
//!
//! Each is one file, or a few that differ in little: what it needs, how its side at the sender is started, and the receiver's command,
//! whose run is measured. To add one, write its file and list it in [`ALL`]. Every run has fresh
//! directories, private configuration and no caches, and touches no file of the system.

mod download;
mod place;
mod python;
mod rsync;
mod scp;
mod sshd;
mod torrent;
mod tow_copy;
mod tow_get;
mod web;
mod zsync;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use thiserror::Error;

use crate::measure::ProcessError;

pub use place::{Hosts, PlaceSide, ReceiverHost, SenderHost, Server, end_of};

/// Every program, in the order of tables and plots.
pub const ALL: &[&dyn Program] = &[
    &tow_copy::TowCopy { command: "cp" },
    &tow_get::TowGet { from: tow_get::From::Share, updates: false },
    &tow_get::TowGet { from: tow_get::From::Daemon, updates: false },
    &tow_get::TowGet { from: tow_get::From::Daemon, updates: true },
    &tow_copy::TowCopy { command: "sync" },
    &rsync::Rsync { over: rsync::Over::Daemon },
    &rsync::Rsync { over: rsync::Over::Ssh },
    &rsync::Rsync { over: rsync::Over::SshWhole },
    &scp::Scp,
    &download::Download::Wget,
    &zsync::Zsync,
    &download::Download::Aria2,
    &download::Download::Aria2Links,
    &torrent::Torrent,
];

/// A program that can transfer.
pub trait Program: Sync {
    /// Name in scenarios and tables.
    fn name(&self) -> &'static str;

    /// Description of it, in a line.
    fn about(&self) -> &'static str;

    /// Needs that must be on this machine.
    fn needs(&self) -> &'static [Need];

    /// True if it carries trees, not files alone.
    fn carries_trees(&self) -> bool {
        true
    }

    /// Treatment of an older version that the receiver has.
    fn older(&self) -> OldVersion {
        OldVersion::Unused
    }

    /// Starts the sender's side, and waits until it serves.
    fn serve(&self, sender: &SenderHost) -> Result<Server, ProgramError>;

    /// Command of the receiver: when it has ended, the data are at its destination. `contact` is what the
    /// server told.
    fn receive(
        &self,
        contact: &str,
        sender: &SenderHost,
        receiver: &ReceiverHost,
    ) -> Result<Command, ProgramError>;

    /// Summary of the transfer in the receiver's standard output.
    fn summary(&self, _output: &str) -> Option<ProgramSummary> {
        None
    }
}

/// Report of a program on a transfer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProgramSummary {
    /// Sources that its bytes came from.
    pub sources: BTreeMap<String, u64>,
    /// All that it told, in its own words.
    pub told: Value,
}

/// Treatment of an older version that the receiver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldVersion {
    /// Nothing: it starts with an empty destination.
    Unused,
    /// It brings it up to date where it lies.
    Updated,
    /// It reads it beside the destination.
    Read,
}

/// Something that a program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// An executable, and the Debian package that brings it.
    Program(&'static str, &'static str),
    /// A module of Python, and its Debian package.
    PythonModule(&'static str, &'static str),
}

impl Need {
    /// Path of it, if it is there.
    pub fn find(self) -> Option<PathBuf> {
        match self {
            Self::Program(name, _) => place::find(name),
            Self::PythonModule(name, _) => python::with_module(name),
        }
    }

    /// Name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Program(name, _) | Self::PythonModule(name, _) => name,
        }
    }

    /// The Debian package that brings it.
    pub fn package(self) -> &'static str {
        match self {
            Self::Program(_, package) | Self::PythonModule(_, package) => package,
        }
    }
}

/// Reason why a transfer did not begin.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// Something is not installed.
    #[error("{name} is missing; the package {package} brings it (make lab-deps)")]
    Missing {
        /// The program or module.
        name: &'static str,
        /// Its package.
        package: &'static str,
    },
    /// A server ended, or does not serve.
    #[error("{program} does not serve: {log}")]
    Server {
        /// Its name.
        program: &'static str,
        /// The end of what it said.
        log: String,
    },
    /// Its preparation.
    #[error("{what}: {source}")]
    Prepare {
        /// Step that should have been done.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Starting or ending it.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// The program of this name.
pub fn find(name: &str) -> Option<&'static dyn Program> {
    ALL.iter().copied().find(|program| program.name() == name)
}

/// Needs of it that are not there.
pub fn missing(program: &dyn Program) -> Vec<Need> {
    program.needs().iter().copied().filter(|need| need.find().is_none()).collect()
}

/// The path of something needed.
fn need(needs: &[Need], name: &str) -> Result<PathBuf, ProgramError> {
    let Some(need) = needs.iter().find(|need| need.name() == name) else {
        return Err(prepare(name, io::ErrorKind::NotFound.into()));
    };
    need.find().ok_or(ProgramError::Missing { name: need.name(), package: need.package() })
}

fn prepare(what: impl Into<String>, source: io::Error) -> ProgramError {
    ProgramError::Prepare { what: what.into(), source }
}

#[cfg(test)]
mod tests;
