//! `tow daemon`

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::AbortHandle;
use towpath_api::{ApiError, ErrorKind};
use towpath_api_server::{Socket, serve};
use towpath_config::Home;
use towpath_config::{BytePlace, Config, ConfigError, ConfigRate, Directory, Switch};
use towpath_confinement::{self as confinement, Enforced, Limits, Writable, deny_calls};
use towpath_service::state::prepare;
use towpath_service::{Options, Service, metrics_page};

use super::{Context, is_confined, not_confined, override_rendezvous, parse_address, parse_rate, run_to_end};
use crate::interrupts::{Interrupts, is_ignored};
use crate::log::LogFormat;
use crate::notify::{READY, STOPPING, notify};
use crate::output::Output;

/// The name under which the daemon's port is kept.
pub const PORT: &[u8] = b"daemon";

/// Run the service in the foreground: serve what is put, answer the other commands
///
/// SIGHUP reads the configuration again. SIGTERM and ^C end it: nothing new begins, and what is
/// under way has a time to finish; a second one ends it at once.
#[derive(Debug, Args)]
pub struct Daemon {
    /// Address to listen on for peers; may be given again [default: all addresses, the port of last
    /// time]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Vec<SocketAddr>,
    /// Send at most this many bytes per second, as in 500K or 10M
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    limit_rate: Option<u64>,
    /// Be the cache of a site: fetch what its machines hand tickets for, and serve them that
    #[arg(long)]
    cache: bool,
    /// Configuration file, which must exist [default: config.toml in $TOW_HOME or in
    /// ~/.config/towpath, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say what is wrong with the configuration, or print all that would hold, and end
    #[arg(long)]
    pub check_config: bool,
    /// How to write the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

impl Daemon {
    pub fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let config = self.configuration(context)?;
        if self.check_config {
            context.output.line(config.to_string().trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        context.log.set_level(config.general.log_level.name());
        // It says a few lines for years.
        context.output.hide_bar();
        let writable = confine(&context.home, &config)?.map(Arc::new);
        run_to_end(context, None, self.serve(context, config, writable))
    }

    async fn serve(
        self,
        context: &Context,
        config: Config,
        writable: Option<Arc<Writable>>,
    ) -> Result<ExitCode, ApiError> {
        let interrupts = context.signals.unhurried();
        let asked = hangups()?;
        let inherited = context.inherited();
        let socket = match inherited.local {
            Some(socket) => Socket::inherit(socket)?,
            None => Socket::bind(&context.home.socket()).await?,
        };
        let service = Service::open(
            context.home.clone(),
            Options { serve_leases: true, config: config.clone(), writable, ..Options::default() },
        )?;
        let addresses = match inherited.peers.is_empty() {
            true => service.door().listen(PORT, &config.general.listen).await?,
            false => service.door().listen_inherited(inherited.peers).await?,
        };
        let _metrics = self.serve_metrics(context, &service, &config).await?;
        let _ending = Aborting(tokio::spawn(Arc::clone(&service).keep_ending()).abort_handle());
        let _indexing = Aborting(tokio::spawn(Arc::clone(&service).keep_indexed()).abort_handle());
        service.resume();
        service.door().open();
        trim_cache(&service);
        let list = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
        if context.output.is_json() {
            context.output.object(&DaemonSockets {
                event: "listening",
                node: service.node_id().to_string(),
                listening: addresses.iter().map(SocketAddr::to_string).collect(),
                socket: context.home.socket().display().to_string(),
            });
        }
        context.output.print(&format!("tow: node {} listens on {list}", service.node_id()));
        if config.site_cache.serve == Switch::On {
            let node = service.node_id();
            let place = addresses.first().map(|address| format!("{node}@{address}")).unwrap_or_default();
            context.output.print("tow: the machines of this site write into their configuration:");
            context.output.print(&format!("tow:   site_cache.address = \"{place}\""));
        }
        context.output.print(&format!("tow: local API at {}", context.home.socket().display()));
        notify(READY, &format!("Serving at {list}"));
        let ending = end(interrupts, Arc::clone(&service), Arc::clone(&context.output));
        tokio::select! {
            served = serve(socket, Arc::clone(&service), ending) => served?,
            never = self.reload_when_asked(asked, context, &service) => match never {},
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Configuration of the file, and of the command line instead.
    fn configuration(&self, context: &Context) -> Result<Config, ApiError> {
        let wrong = |error: ConfigError| ApiError::new(ErrorKind::Usage, error.to_string());
        let mut config = match &self.config {
            None => {
                Config::load(context.home.config_file(), &context.plugins).map_err(wrong)?.unwrap_or_default()
            }
            Some(file) => Config::load(file, &context.plugins).map_err(wrong)?.ok_or_else(|| {
                let message = format!("there is no configuration at {}", file.display());
                ApiError::new(ErrorKind::NotFound, message)
            })?,
        };
        override_rendezvous(&mut config)?;
        if !self.listen.is_empty() {
            config.general.listen.clone_from(&self.listen);
        }
        if self.cache {
            config.site_cache.serve = Switch::On;
        }
        if let Some(rate) = self.limit_rate {
            config.general.limit_rate = ConfigRate(rate);
        }
        Ok(config)
    }

    async fn serve_metrics(
        &self,
        context: &Context,
        service: &Arc<Service>,
        config: &Config,
    ) -> Result<Option<Aborting>, ApiError> {
        let Some(address) = config.metrics.listen else { return Ok(None) };
        let (address, serving) = metrics_page::serve(Arc::clone(service), address).await?;
        context.output.print(&format!("tow: metrics at http://{address}/metrics"));
        Ok(Some(Aborting(tokio::spawn(serving).abort_handle())))
    }

    /// Reads the configuration again at each SIGHUP. One that is wrong changes nothing.
    async fn reload_when_asked(
        &self,
        mut asked: Option<Signal>,
        context: &Context,
        service: &Arc<Service>,
    ) -> Infallible {
        loop {
            match &mut asked {
                Some(asked) => asked.recv().await,
                None => std::future::pending().await,
            };
            let config = self.configuration(context);
            service.metrics().reloaded(config.is_ok());
            match config {
                Ok(config) => {
                    context.log.set_level(config.general.log_level.name());
                    let waiting = service.reconfigure(config);
                    trim_cache(service);
                    context.output.print(&reloaded(&waiting));
                }
                Err(error) => {
                    tracing::error!("the configuration stays as it was: {}", error.message);
                }
            }
        }
    }
}

/// Signal that asks for the configuration to be read again, unless the daemon was started so that it is ignored.
fn hangups() -> Result<Option<Signal>, ApiError> {
    let kind = SignalKind::hangup();
    let listened = (!is_ignored(kind)).then(|| signal(kind)).transpose();
    listened.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))
}

/// Output of `--json` when others can be served.
#[derive(Debug, Serialize)]
struct DaemonSockets {
    event: &'static str,
    /// The service's public key.
    node: String,
    /// Addresses for peers.
    listening: Vec<String>,
    /// The local API's socket.
    socket: String,
}

/// Has the kernel refuse this process what it does not need, before it has further threads. Returns
/// what it may still write, where the kernel limits that.
fn confine(home: &Home, config: &Config) -> Result<Option<Writable>, ApiError> {
    if !is_confined(config.general.sandbox) {
        tracing::info!("limits on what the daemon may do: {}", Enforced::SwitchedOff);
        return Ok(None);
    }
    prepare(home)?;
    let mut write_below = config.general.write_below.clone();
    // A list of its own is complete but for the place that the daemon keeps its bytes in.
    if let (false, Some(BytePlace::Directory(place))) = (write_below.is_empty(), &config.store.bytes) {
        write_below.push(Directory(place.clone()));
    }
    let writable = confinement::of_daemon(home, &write_below);
    let limited = deny_calls().and_then(|are_denied| {
        let enforced = Limits::new(&writable)?.confine_thread()?;
        Ok((are_denied, enforced))
    });
    let (are_denied, enforced) = limited.map_err(|error| not_confined(&error))?;
    if !are_denied {
        tracing::warn!("this kernel does not refuse system calls");
    }
    match enforced {
        Enforced::Fully => tracing::info!("limits on what the daemon may write: {enforced}"),
        _ => tracing::warn!("limits on what the daemon may write: {enforced}"),
    }
    Ok((enforced != Enforced::Not).then_some(writable))
}

fn reloaded(waiting: &[String]) -> String {
    match waiting.is_empty() {
        true => "tow: the configuration was read again".into(),
        false => format!("tow: the configuration was read again; after a restart: {}", waiting.join(", ")),
    }
}

/// A smaller cache is made room for at once.
fn trim_cache(service: &Arc<Service>) {
    let service = Arc::clone(service);
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = service.trim_cache() {
            tracing::warn!(%error, "the cache could not be trimmed");
        }
    }));
}

/// Time for which waiting is not worth a word.
const SOON: Duration = Duration::from_millis(100);

/// Completes when the service was asked to end, and what was under way is done or out of time.
async fn end(mut interrupts: Interrupts, service: Arc<Service>, output: Arc<Output>) {
    interrupts.next().await;
    notify(STOPPING, "Waiting for what is under way");
    let mut draining = std::pin::pin!(service.drain());
    if tokio::time::timeout(SOON, &mut draining).await.is_ok() {
        return;
    }
    let grace = service.config().general.grace.0;
    output.print(&format!("tow: waiting for what is under way, {grace} s at most; ^C again ends it at once"));
    tokio::select! {
        () = draining => {}
        () = interrupts.next() => {}
    }
}

/// Ends a task when it is dropped.
struct Aborting(AbortHandle);

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.abort();
    }
}
