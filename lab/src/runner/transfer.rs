//! One transfer in a lab of its own, from the sender's server to the check of every result.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use thiserror::Error;
use towpath_simnet::link::Counters;
use towpath_simnet::scenario::Case;

use super::Run;
use crate::data::{Data, digest};
use crate::error::LabError;
use crate::measure::{Ended, Process, ProcessError};
use crate::net::Lab;
use crate::programs::{Hosts, Older, Program, ProgramError, Receiver, Sender, Side, end_of};
use crate::results::{Measured, Usage};

/// Why a transfer has no result.
#[derive(Debug, Error)]
pub enum TransferError {
    /// There is no network.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// It did not begin.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// It did not end.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It says that it failed.
    #[error("{status}: {log}")]
    Failed {
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The end of what it said.
        log: String,
    },
    /// It says that all is well, and it is not.
    #[error("WRONG RESULT at {host}: it is not what was sent")]
    Wrong {
        /// Where.
        host: String,
    },
    /// The result can't be read, or something before it.
    #[error("{path}: {source}")]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TransferError {
    let path = path.into();
    |source| TransferError::Io { path, source }
}

impl Hosts for Lab {
    fn command(&self, host: &str, program: &OsStr) -> Command {
        Self::command(self, host, program)
    }

    fn address(&self, host: &str) -> Ipv4Addr {
        Self::address(self, host)
    }
}

/// What one row is about.
pub struct Transfer<'a> {
    /// The run that it belongs to.
    pub run: &'a Run<'a>,
    /// The links.
    pub case: &'a Case,
    /// What is transferred.
    pub data: &'a Data,
    /// By whom.
    pub program: &'static dyn Program,
    /// What the first receiver ran, once it does.
    pub command: String,
}

/// What the network had done at a moment.
struct Meters {
    counters: Vec<[Counters; 2]>,
    cpu: Duration,
}

impl Meters {
    fn read(lab: &Lab) -> Result<Self, LabError> {
        Ok(Self { counters: lab.counters()?, cpu: lab.emulator_cpu() })
    }
}

impl<'a> Transfer<'a> {
    /// Runs it.
    pub fn measure(&mut self) -> Result<Measured, TransferError> {
        let lab = Lab::up(self.run.scenario, self.case)?;
        let plan = self.run.plan;
        let sender = Sender { side: self.side(&lab, &plan.from, "sender")?, source: &self.data.source };
        let receivers: Vec<Receiver> =
            plan.to.iter().map(|host| self.receiver(&lab, host)).collect::<Result<_, _>>()?;
        let server = self.program.serve(&sender)?;
        let mut commands = Vec::new();
        for receiver in &receivers {
            commands.push(self.program.receive(&server.contact, &sender, receiver)?);
        }
        self.command = commands.first().map(words).unwrap_or_default();

        let before = Meters::read(&lab)?;
        let changes = lab.start_changes();
        let start = Instant::now();
        let ends = self.run_all(commands, &receivers)?;
        let after = Meters::read(&lab)?;
        drop(changes);
        let served = server.stop()?;
        self.check(&receivers)?;

        let receivers_seconds: Vec<f64> = ends.iter().map(|end| (end.at - start).as_secs_f64()).collect();
        let seconds = receivers_seconds.iter().copied().fold(0.0, f64::max);
        let (mut sent_by, mut received_by) = (Usage::default(), Usage::default());
        sent_by.add(&served);
        ends.iter().for_each(|end| received_by.add(end));
        let links = self.links(&before, &after);
        let (sent, received) = self.at_the_sender(&links);
        Ok(Measured {
            seconds,
            sender: sent_by,
            receiver: received_by,
            receivers: receivers_seconds,
            sent,
            received,
            links,
            sources: self.sources(&receivers),
            emulator_share: (after.cpu - before.cpu).as_secs_f64() / seconds,
        })
    }

    fn side<'b>(&self, lab: &'b Lab, host: &'b str, name: &str) -> Result<Side<'b>, TransferError>
    where
        'a: 'b,
    {
        let dir = lab.directory(host).join(name);
        fs::create_dir(&dir).map_err(at(&dir))?;
        Ok(Side { hosts: lab, host, dir, tow: self.run.tow })
    }

    fn receiver<'b>(&self, lab: &'b Lab, host: &'b str) -> Result<Receiver<'b>, TransferError>
    where
        'a: 'b,
    {
        let side = self.side(lab, host, "receiver")?;
        let destination = side.dir.join("result");
        let older = match (self.program.older(), &self.data.older) {
            (Older::Read, Some(older)) => Some(older.as_path()),
            (Older::Updated, Some(older)) => {
                copy(older, &destination)?;
                None
            }
            _ => None,
        };
        Ok(Receiver { side, destination, older })
    }

    /// All receivers at once; the limit is for all of them.
    fn run_all(&self, commands: Vec<Command>, receivers: &[Receiver]) -> Result<Vec<Ended>, TransferError> {
        let deadline = Instant::now() + self.run.plan.limit;
        let mut running = commands.into_iter().map(Process::start).collect::<Result<Vec<_>, _>>()?;
        let mut ends = Vec::new();
        for (process, receiver) in running.iter_mut().zip(receivers) {
            let left = deadline.saturating_duration_since(Instant::now());
            let end = process.wait(left).map_err(|error| match error {
                ProcessError::TimedOut(_) => ProcessError::TimedOut(self.run.plan.limit),
                other => other,
            })?;
            if !end.status.success() {
                return Err(TransferError::Failed { status: end.status, log: said(receiver) });
            }
            ends.push(end);
        }
        Ok(ends)
    }

    /// Whether every receiver has what was sent.
    fn check(&self, receivers: &[Receiver]) -> Result<(), TransferError> {
        for receiver in receivers {
            let (found, _) = digest(&receiver.destination).map_err(at(&receiver.destination))?;
            if found != self.data.digest {
                return Err(TransferError::Wrong { host: receiver.side.host.to_owned() });
            }
        }
        Ok(())
    }

    fn links(&self, before: &Meters, after: &Meters) -> BTreeMap<String, [u64; 2]> {
        let names = self.case.links.iter().map(|link| link.name.clone());
        let bytes = after.counters.iter().zip(&before.counters);
        let bytes = bytes.map(|(after, before)| [0, 1].map(|way| after[way].bytes - before[way].bytes));
        names.zip(bytes).collect()
    }

    /// Bytes that went out on the sender's links, and that came back.
    fn at_the_sender(&self, links: &BTreeMap<String, [u64; 2]>) -> (u64, u64) {
        let Some(sender) = self.run.scenario.host(&self.run.plan.from) else { return (0, 0) };
        let mut total = (0, 0);
        for link in &self.case.links {
            let [forth, back] = links.get(&link.name).copied().unwrap_or_default();
            match link.between {
                [first, _] if first == sender => total = (total.0 + forth, total.1 + back),
                [_, second] if second == sender => total = (total.0 + back, total.1 + forth),
                _ => {}
            }
        }
        total
    }

    fn sources(&self, receivers: &[Receiver]) -> BTreeMap<String, u64> {
        let mut total = BTreeMap::new();
        for receiver in receivers {
            let output = fs::read_to_string(receiver.side.output("tow")).unwrap_or_default();
            for (source, bytes) in self.program.sources(&output) {
                *total.entry(source).or_default() += bytes;
            }
        }
        total
    }
}

/// The end of what a receiver's program said: complaints, or else the end of its output.
fn said(receiver: &Receiver) -> String {
    let logs = fs::read_dir(&receiver.side.dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let (mut errors, mut outputs) = (Vec::new(), Vec::new());
    for path in logs.filter(|path| fs::metadata(path).is_ok_and(|it| it.len() > 0)) {
        match path.extension().and_then(OsStr::to_str) {
            Some("err") => errors.push(path),
            Some("out") => outputs.push(path),
            _ => {}
        }
    }
    let log = errors.into_iter().chain(outputs).next();
    log.map_or_else(|| "it said nothing".into(), |path| end_of(&path))
}

/// What runs in the host, as it could be typed there.
fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let inside = words.iter().position(|word| word == "exec").map_or(0, |at| (at + 2).min(words.len()));
    words[inside..].join(" ")
}

/// Copies an older version to where it will be updated, as something new: with times of now.
fn copy(from: &Path, to: &Path) -> Result<(), TransferError> {
    let mut command = Command::new("cp");
    let output =
        command.args(["-r", "--no-preserve=timestamps", "--"]).arg(from).arg(to).output().map_err(at(to))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(TransferError::Io { path: to.into(), source: io::Error::other(said) })
        }
    }
}
