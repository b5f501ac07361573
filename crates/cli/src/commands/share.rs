//! `tow share`

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use towpath_api::{ApiError, ErrorKind, Event};
use towpath_config::{Config, ConfigRate};
use towpath_service::{Options, PutSource};

use super::filter_rules::FilterFlags;
use super::metadata_flags::MetadataFlags;
use super::{Context, parse_address, parse_rate};

/// Serve files or directories until interrupted; their one ticket is a line on standard output
///
/// Nothing is copied. The ticket comes at once, also while a large file or a tree is still
/// being read; a receiver follows. The same command gives the same ticket again as long as the
/// content is the same, so that an interrupted transfer can go on.
#[derive(Debug, Args)]
pub struct ShareCommand {
    /// Files or directories to serve; several are one tree, each under its last name
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// What receivers call it [default: its own name; shared, of several]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    metadata: MetadataFlags<true>,
    #[command(flatten)]
    filters: FilterFlags<true>,
    /// Address to listen on, as in 192.0.2.1:7000 [default: all addresses, the port
    /// of last time]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Send at most this many bytes per second, as in 500K or 10M
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "0", hide_default_value = true)]
    limit_rate: u64,
}

impl ShareCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let mut interrupts = context.signals.interrupts();
        let mut config = Config::default();
        config.general.limit_rate = ConfigRate(self.limit_rate);
        let service = context.embedded(Options { config, ..Options::default() })?;
        let source = PutSource::new(&self.paths, &self.filters.lines, self.name)?;
        let source = source.telling(self.metadata.told());
        service.listen(source.key().as_os_str().as_bytes(), self.listen.as_slice()).await?;
        let mut fetches = service.watch_fetches();
        let mut shared = service.share(source).await?;
        service.accept_peers();
        context.output.ticket(&shared.reply);
        context.output.print("tow: serving until interrupted; fetch with: tow get TICKET");
        let mut reading = Some(shared.reading);
        let mut left_out = 0u64;
        loop {
            tokio::select! {
                () = interrupts.next() => break,
                Some(fetch) = fetches.recv() => context.output.event(&fetch),
                Some((path, error)) = shared.failures.recv() => {
                    left_out += 1;
                    context.output.event(&Event::FileFailed { path, error });
                }
                result = async { match reading.as_mut() { Some(task) => task.await, None => std::future::pending().await } } => {
                    reading = None;
                    result.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))??;
                }
            }
        }
        let code = context
            .output
            .interrupted("the same command goes on under the same ticket, as long as nothing changed");
        Ok(if left_out > 0 && reading.is_none() { ExitCode::from(crate::output::PARTLY) } else { code })
    }
}
