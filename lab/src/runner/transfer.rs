//! One transfer in a lab of its own, from the sender's server to the check of every result.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;
use towpath_simnet::link::Counters;
use towpath_simnet::scenario::Case;

use super::{Chosen, LabRun};
use crate::data::{Data, LinePlace, Times, copy, digest, link};
use crate::disk::forget;
use crate::error::LabError;
use crate::measure::{Process, ProcessEnd, ProcessError};
use crate::net::Lab;
use crate::programs::{
    Hosts, OldVersion, PlaceSide, ProgramError, ProgramSummary, ReceiverHost, SenderHost, Server, end_of,
};
use crate::results::{Measured, Usage};

/// Interval of looks at how much was sent.
const TICK: Duration = Duration::from_millis(1);

/// Reason why a transfer has no result.
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
    /// It was done before it was interrupted.
    #[error("it ended by itself before it was to be interrupted")]
    Early,
    /// It says that all is well, and it is not.
    #[error("WRONG RESULT at {host}: it is not what was sent")]
    Wrong {
        /// Host.
        host: String,
    },
    /// The result can't be read, or something before it.
    #[error("{path}: {source}")]
    Io {
        /// Path of it.
        path: PathBuf,
        /// Error of the system.
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

    fn addresses(&self, host: &str) -> Vec<Ipv4Addr> {
        Self::addresses(self, host)
    }
}

/// Subject of one row.
pub struct LabTransfer<'a> {
    /// The run that it belongs to.
    pub run: &'a LabRun<'a>,
    /// The links.
    pub case: &'a Case,
    /// Data to transfer.
    pub data: &'a Data,
    /// By whom.
    pub chosen: &'a Chosen,
    /// Command that the first receiver ran, once it does.
    pub command: String,
}

/// Meters of the network at a moment.
struct Meters {
    counters: Vec<[Counters; 2]>,
    cpu: Duration,
}

impl Meters {
    fn read(lab: &Lab) -> Result<Self, LabError> {
        Ok(Self { counters: lab.counters()?, cpu: lab.emulator_cpu() })
    }
}

impl<'a> LabTransfer<'a> {
    /// Runs it.
    pub fn measure(&mut self) -> Result<Measured, TransferError> {
        let lab = Lab::up(self.run.scenario, self.case)?;
        let plan = self.run.plan;
        let older = self.data.older.as_deref().filter(|_| self.place() == LinePlace::Both);
        let side = self.side(&lab, &plan.from, "sender")?;
        let sender = SenderHost { side, source: &self.data.source, older };
        let receivers: Vec<ReceiverHost> =
            plan.to.iter().map(|host| self.receiver(&lab, host)).collect::<Result<_, _>>()?;
        let mut server = self.chosen.program.serve(&sender)?;
        if let Some(share) = self.chosen.interrupt {
            let commands = self.commands(&server, &sender, &receivers)?;
            self.interrupt(&lab, share, commands)?;
            server.forget();
        }
        let commands = self.commands(&server, &sender, &receivers)?;
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
        let summaries = self.summaries(&receivers);
        let (sent, received) = self.at_the_sender(&links);
        Ok(Measured {
            seconds,
            sender: sent_by,
            receiver: received_by,
            receivers: receivers_seconds,
            sent,
            received,
            links,
            sources: total_sources(&summaries),
            told: summaries.into_iter().map(|summary| summary.told).collect(),
            emulator_share: (after.cpu - before.cpu).as_secs_f64() / seconds,
        })
    }

    fn side<'b>(&self, lab: &'b Lab, host: &'b str, name: &str) -> Result<PlaceSide<'b>, TransferError>
    where
        'a: 'b,
    {
        let dir = lab.directory(host).join(name);
        fs::create_dir(&dir).map_err(at(&dir))?;
        let side = PlaceSide { hosts: lab, host, dir, tow: self.run.tow, hidden: Vec::new() };
        if let Some(config) = &self.chosen.config {
            let file = side.own()?.join("config.toml");
            fs::write(&file, config).map_err(at(&file))?;
        }
        Ok(side)
    }

    /// Place where the receiver has the older version.
    fn place(&self) -> LinePlace {
        self.chosen.at.unwrap_or(self.data.place)
    }

    fn receiver<'b>(&self, lab: &'b Lab, host: &'b str) -> Result<ReceiverHost<'b>, TransferError>
    where
        'a: 'b,
    {
        let mut side = self.side(lab, host, "receiver")?;
        side.hidden = self.hidden(&side.dir);
        let home = side.home()?;
        let name = self.data.source.file_name().unwrap_or_default();
        let destination = home.join("work/new").join(name);
        if let Some(useless) = &self.data.useless {
            let to = home.join("useless");
            link(useless, &to).map_err(at(&to))?;
        }
        let place = |to: PathBuf, older: &Path| {
            fs::create_dir_all(to.parent().unwrap_or(&to)).map_err(at(&to))?;
            let times = if self.data.keeps_times { Times::Kept } else { Times::New };
            copy(older, &to, times).map_err(at(&to))?;
            if lab.has_slow_disk() { forget(&to).map_err(at(&to)) } else { Ok(()) }
        };
        fs::create_dir_all(home.join("work/new")).map_err(at(&home))?;
        let mut read = None;
        match (self.place(), &self.data.older, self.chosen.program.older()) {
            (_, None, _) | (LinePlace::Destination | LinePlace::Both, _, OldVersion::Unused) => {}
            (LinePlace::Destination | LinePlace::Both, Some(older), OldVersion::Read) => {
                read = Some(older.as_path())
            }
            (LinePlace::Destination | LinePlace::Both, Some(older), OldVersion::Updated) => {
                place(destination.clone(), older)?;
            }
            (LinePlace::Sibling, Some(older), _) => place(home.join("work/old").join(name), older)?,
            (LinePlace::Renamed, Some(older), _) => place(home.join("work/new/earlier"), older)?,
            (LinePlace::Elsewhere, Some(older), _) => {
                place(home.join("archive/2019/backup").join(name), older)?
            }
            (LinePlace::Lost, Some(older), _) => place(home.join("archive/2019/backup/earlier"), older)?,
        }
        Ok(ReceiverHost { side, destination, older: read })
    }

    /// Commands of the receivers.
    fn commands(
        &self,
        server: &Server,
        sender: &SenderHost,
        receivers: &[ReceiverHost],
    ) -> Result<Vec<Command>, TransferError> {
        let receive = |receiver| {
            let mut command = self.chosen.program.receive(&server.contact, sender, receiver)?;
            command.args(&self.chosen.args);
            Ok(command)
        };
        receivers.iter().map(receive).collect()
    }

    /// Begins, and kills all receivers when this share of what they need has been sent.
    fn interrupt(&self, lab: &Lab, share: f64, commands: Vec<Command>) -> Result<(), TransferError> {
        let enough = (share * self.data.content.bytes as f64 * commands.len() as f64) as u64;
        let deadline = Instant::now() + self.run.plan.limit;
        let before = Meters::read(lab)?;
        let mut running = commands.into_iter().map(Process::start).collect::<Result<Vec<_>, _>>()?;
        while self.at_the_sender(&self.links(&before, &Meters::read(lab)?)).0 < enough {
            for process in &mut running {
                if process.try_wait()?.is_some() {
                    return Err(TransferError::Early);
                }
            }
            if Instant::now() > deadline {
                return Err(ProcessError::TimedOut(self.run.plan.limit).into());
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Paths that only the sender has, and that a search of this machine's disk would find.
    fn hidden(&self, own: &Path) -> Vec<PathBuf> {
        if self.chosen.program.older() == OldVersion::Read {
            return Vec::new();
        }
        let data = [Some(&self.data.source), self.data.older.as_ref(), self.data.useless.as_ref()];
        let data = data.into_iter().flatten().filter_map(|path| path.parent()).map(Path::to_path_buf);
        let mut hidden: Vec<PathBuf> = data.collect();
        hidden.sort();
        hidden.dedup();
        hidden.retain(|path| !own.starts_with(path));
        hidden
    }

    /// All receivers at once; the limit is for all of them.
    fn run_all(
        &self,
        commands: Vec<Command>,
        receivers: &[ReceiverHost],
    ) -> Result<Vec<ProcessEnd>, TransferError> {
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

    /// Checks that every receiver has what was sent.
    fn check(&self, receivers: &[ReceiverHost]) -> Result<(), TransferError> {
        for receiver in receivers {
            let found = digest(&receiver.destination).map_err(at(&receiver.destination))?;
            if found.digest != self.data.content.digest {
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

    /// Summaries of the receivers' programs.
    fn summaries(&self, receivers: &[ReceiverHost]) -> Vec<ProgramSummary> {
        let output = |receiver: &ReceiverHost| fs::read_to_string(receiver.side.output("tow")).ok();
        receivers.iter().filter_map(|it| self.chosen.program.summary(&output(it)?)).collect()
    }
}

fn total_sources(summaries: &[ProgramSummary]) -> BTreeMap<String, u64> {
    let mut total = BTreeMap::new();
    for (source, bytes) in summaries.iter().flat_map(|summary| &summary.sources) {
        *total.entry(source.clone()).or_default() += bytes;
    }
    total
}

/// The end of what a receiver's program said: complaints, or else the end of its output.
fn said(receiver: &ReceiverHost) -> String {
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

/// Command that runs in the host, as it could be typed there.
fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let inside = words.iter().position(|word| word == "exec").map_or(0, |at| (at + 2).min(words.len()));
    let words = &words[inside..];
    // The part that hides other hosts' directories is of no interest.
    match words.iter().position(|word| word == "--") {
        Some(end) if words.first().is_some_and(|word| word == "sh") => {
            [&words[3..4], &words[end + 1..]].concat().join(" ")
        }
        _ => words.join(" "),
    }
}
