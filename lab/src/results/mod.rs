//! Results: a row for every transfer, and from the rows a table and a plot.

mod chart;
mod history;
mod plot;
mod provenance;
mod summary;
mod table;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::measure::ProcessEnd;

pub use chart::{Chart, ChartError};
pub use history::{History, HistoryError};
pub use provenance::Provenance;
pub use summary::ResultSummary;

/// Reason why results could not be written.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// A file.
    #[error("{path}: {source}")]
    Io {
        /// Path of it.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The plot.
    #[error("cannot draw the plot: {0}")]
    Plot(String),
}

/// One transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The scenario's name.
    pub scenario: String,
    /// Its case.
    pub case: String,
    /// Seconds to the sender's first neighbour and back, as the scenario has them.
    pub round_trip: f64,
    /// Program.
    pub program: String,
    /// Data that were transferred.
    pub data: String,
    /// Bytes of its content.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
    /// Counted from 1.
    pub run: u32,
    /// Command that the receiver ran, without the lab's words around it.
    pub command: String,
    /// Measurement, or the reason why there is no result.
    #[serde(flatten)]
    pub outcome: RunOutcome,
    /// Of what, when and where.
    #[serde(flatten)]
    pub provenance: Provenance,
}

/// End of a transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Every receiver has the right data.
    Measured(Measured),
    /// Or not.
    Error(String),
}

/// Measurement of a transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// Until the last receiver had it.
    pub seconds: f64,
    /// The sender's side.
    pub sender: Usage,
    /// All receivers together; peak memory is that of the largest.
    pub receiver: Usage,
    /// Seconds of each receiver, in the order of the scenario.
    pub receivers: Vec<f64>,
    /// Bytes that the sender put on its links, headers and losses counted.
    pub sent: u64,
    /// Bytes put on the sender's links towards it.
    pub received: u64,
    /// Every link by name: bytes put on it, forth and back.
    pub links: BTreeMap<String, [u64; 2]>,
    /// Bytes by source, as far as the program tells.
    pub sources: BTreeMap<String, u64>,
    /// All that the program told at its end, for each receiver.
    pub told: Vec<Value>,
    /// CPU seconds of the emulator in each second of the transfer.
    pub emulator_share: f64,
}

impl Measured {
    /// Both sides' CPU seconds for each GiB of `bytes`.
    pub fn cpu_per_gib(&self, bytes: u64) -> f64 {
        (self.sender.cpu_seconds + self.receiver.cpu_seconds) / (bytes.max(1) as f64 / (1u64 << 30) as f64)
    }

    /// The larger of both sides' peaks.
    pub fn peak_memory(&self) -> u64 {
        self.sender.peak_memory.max(self.receiver.peak_memory)
    }
}

/// Usage of one side.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time.
    pub cpu_seconds: f64,
    /// Bytes of the largest process.
    pub peak_memory: u64,
}

impl Usage {
    /// With another process.
    pub fn add(&mut self, ended: &ProcessEnd) {
        self.cpu_seconds += ended.cpu.as_secs_f64();
        self.peak_memory = self.peak_memory.max(ended.peak);
    }
}

impl Row {
    /// Measurement, if it succeeded.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            RunOutcome::Measured(measured) => Some(measured),
            RunOutcome::Error(_) => None,
        }
    }

    /// Reason why it did not.
    pub fn error(&self) -> Option<&str> {
        match &self.outcome {
            RunOutcome::Measured(_) => None,
            RunOutcome::Error(error) => Some(error),
        }
    }
}

/// Axis of a plot, where it is neither seconds over size nor bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Axis {
    /// Throughput over the round-trip time.
    #[serde(rename = "rtt")]
    RoundTrip,
    /// Seconds over the number of files.
    #[serde(rename = "files")]
    Files,
    /// Seconds over the network's rate, which cases have in their names.
    #[serde(rename = "rate")]
    Rate,
}

/// Subject of tables and plots.
pub struct ReportAbout<'a> {
    /// Description of the scenario.
    pub text: &'a str,
    /// Command as typed.
    pub command: &'a str,
    /// Program that each is compared with.
    pub against: &'a BTreeMap<String, String>,
    /// See there.
    pub plot: Option<Axis>,
}

/// The files of one scenario: rows as they come, table and plot at the end.
pub struct Report {
    dir: PathBuf,
    name: String,
    rows: File,
}

impl Report {
    /// The rows that an earlier run kept.
    pub fn read(path: &Path) -> Result<Vec<Row>, ResultsError> {
        let text = fs::read_to_string(path).map_err(at(path))?;
        let rows: Result<_, _> = text.lines().map(serde_json::from_str).collect();
        rows.map_err(io::Error::from).map_err(at(path))
    }

    /// Begins anew.
    pub fn create(dir: &Path, name: &str) -> Result<Self, ResultsError> {
        fs::create_dir_all(dir).map_err(at(dir))?;
        let path = dir.join(format!("{name}.jsonl"));
        let mut options = OpenOptions::new();
        let rows = options.create(true).write(true).truncate(true).open(&path).map_err(at(&path))?;
        Ok(Self { dir: dir.into(), name: name.into(), rows })
    }

    /// Keeps a row, at once: an interruption loses nothing.
    pub fn keep(&mut self, row: &Row) -> Result<(), ResultsError> {
        let path = self.path("jsonl");
        let line = serde_json::to_string(row).map_err(io::Error::from).map_err(at(&path))?;
        writeln!(self.rows, "{line}").map_err(at(&path))
    }

    /// Writes table and plot, and gives back the table.
    pub fn finish(&self, about: &ReportAbout, rows: &[Row]) -> Result<String, ResultsError> {
        let summary = ResultSummary::of(rows);
        let has_plot = summary.points().next().is_some();
        if has_plot {
            let svg = plot::draw(&self.name, about, &summary).map_err(ResultsError::Plot)?;
            fs::write(self.path("svg"), svg).map_err(at(self.path("svg")))?;
        }
        let head = table::TableHead { name: &self.name, about, has_plot };
        let text = table::markdown(&head, rows, &summary);
        fs::write(self.path("md"), &text).map_err(at(self.path("md")))?;
        Ok(text)
    }

    /// Path of a file of this scenario.
    pub fn path(&self, ending: &str) -> PathBuf {
        self.dir.join(format!("{}.{ending}", self.name))
    }
}

fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ResultsError {
    let path = path.into();
    |source| ResultsError::Io { path, source }
}

#[cfg(test)]
mod tests;
