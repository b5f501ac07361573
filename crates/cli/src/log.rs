//! The log on standard error. How much it tells can change while the program runs.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

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
    set: Box<dyn Fn(EnvFilter) + Send + Sync>,
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
        let asked = EnvFilter::try_from_env("TOW_LOG");
        let is_fixed = verbose > 0 || asked.is_ok();
        let log = tracing_subscriber::fmt()
            .with_env_filter(asked.unwrap_or_else(|_| filter(level)))
            .with_writer(std::io::stderr)
            .with_ansi(is_coloured());
        let set: Box<dyn Fn(EnvFilter) + Send + Sync> = match format {
            LogFormat::Text => {
                let log = log.with_filter_reloading();
                let handle = log.reload_handle();
                let _ = log.try_init();
                Box::new(move |filter| drop(handle.reload(filter)))
            }
            LogFormat::Json => {
                let log = log.json().with_filter_reloading();
                let handle = log.reload_handle();
                let _ = log.try_init();
                Box::new(move |filter| drop(handle.reload(filter)))
            }
        };
        Self { set, is_fixed }
    }

    /// From now on tells what the configuration says, unless the person said it.
    pub fn set_level(&self, level: &str) {
        if !self.is_fixed {
            (self.set)(filter(level));
        }
    }
}

/// Colours are for terminals, and for people who did not say that they want none.
fn is_coloured() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// At `info`, what happens to each piece is left out.
fn filter(level: &str) -> EnvFilter {
    EnvFilter::new(if level == "info" { "info,towpath_transfer=warn" } else { level })
}
