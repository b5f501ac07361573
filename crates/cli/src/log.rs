//! The log on standard error. How much it tells can change while the program runs.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// Format of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// The running log.
pub struct Log {
    filter: reload::Handle<Targets, Registry>,
    /// The person said how much: with `-v`, or in `TOW_LOG`.
    is_fixed: bool,
}

impl Log {
    /// Starts the log with the level that so many `-v` stand for, unless `TOW_LOG` says otherwise.
    pub fn start(verbose: u8, format: LogFormat) -> Self {
        let level = match verbose {
            0 => "error",
            1 => "info",
            _ => "debug",
        };
        let asked = std::env::var("TOW_LOG").ok().filter(|filter| !filter.is_empty());
        let asked = asked.and_then(|filter| filter.parse().ok());
        let is_fixed = verbose > 0 || asked.is_some();
        let (filter, handle) = reload::Layer::new(asked.unwrap_or_else(|| targets(level)));
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(is_coloured());
        let log = tracing_subscriber::registry().with(filter);
        let _ = match format {
            LogFormat::Text => log.with(lines).try_init(),
            LogFormat::Json => log.with(lines.json()).try_init(),
        };
        Self { filter: handle, is_fixed }
    }

    /// From now on tells what the configuration says, unless the person said it.
    pub fn set_level(&self, level: &str) {
        if !self.is_fixed {
            drop(self.filter.reload(targets(level)));
        }
    }
}

/// Colours are for terminals, and for people who did not say that they want none.
fn is_coloured() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// At `info`, what happens to each piece is left out.
fn targets(level: &str) -> Targets {
    let filter = if level == "info" { "info,towpath_transfer=warn" } else { level };
    filter.parse().unwrap_or_default()
}
