//! The commands: the doc comments here and in each file are the help.

mod completions;
mod copying;
mod cp;
mod daemon;
mod doctor;
mod done;
mod fetch_flags;
mod filter_rules;
mod gc;
mod get;
mod held_names;
mod index;
mod ls;
mod man;
mod man_page;
mod metadata_flags;
mod names_from;
mod publish;
mod put;
mod refused;
mod remote;
mod rendezvous;
mod rsync_size;
mod share;
mod short_code;
mod status;
mod sync;
mod sync_flags;
mod ticket_flags;
mod ticket_words;
mod update_flags;
mod vault;

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use tokio::runtime::Runtime;
use towpath_api::{Api, ApiError, Client, ErrorKind};
use towpath_config::{Config, Switch, node_at, parse_bytes};
use towpath_config::{Home, NoHome};
use towpath_confinement::{self as confinement, ConfinementError};
use towpath_service::copy::{self, CopyError};
use towpath_service::{InProcess, Registry};
use towpath_service::{Options, Service};
use towpath_words as words;

use crate::activation::Inherited;
use crate::interrupts::Signals;
use crate::log::{Log, LogFormat};
use crate::output::{INTERRUPTED, Output, SYNC_INTERRUPTED};

/// Threads that block on the disk, at most: a few answer all peers, a few work for each transfer, one for each
/// application that reads.
const BLOCKING_THREADS: usize = 4096;
/// The variable that names rendezvous servers.
const RENDEZVOUS: &str = "TOW_RENDEZVOUS";
/// A folder that no system has.
const NOWHERE: &str = "/nonexistent";
/// Threads that wait for a peer or a disk must not hold up the end.
const END_TIME: Duration = Duration::from_millis(200);
/// Nor must those of copies, which tidy up.
const COPY_END_TIME: Duration = Duration::from_millis(500);

/// Send files and trees of files from one machine to another, verified and encrypted, and go on
/// where an interrupted transfer stopped.
///
/// `tow cp` and `tow sync` copy to and from machines that ssh reaches. `tow share PATH` on one machine
/// prints a ticket; `tow get TICKET` on another fetches it.
/// Exit status: 0 done; 1 failed; 2 usage; 3 partly done; 130 interrupted, with what came kept.
#[derive(Debug, Parser)]
#[command(name = "tow", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

/// In the help the options of every command come after a command's own.
const LAST: usize = 900;

/// Options of every command.
#[derive(Debug, Args)]
pub struct Common {
    /// Print one JSON object a line on standard output: events, and a summary at the end
    #[arg(long, global = true, display_order = LAST)]
    json: bool,
    /// Print nothing but results and errors
    #[arg(short, long, global = true, display_order = LAST)]
    quiet: bool,
    /// Tell more on standard error; twice for even more
    #[arg(short, long, global = true, display_order = LAST, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cp(cp::Cp),
    Sync(sync::SyncCommand),
    Share(share::ShareCommand),
    Get(get::GetCommand),
    Publish(publish::PublishCommand),
    Put(put::PutCommand),
    Daemon(daemon::Daemon),
    Rendezvous(rendezvous::RendezvousCommand),
    Relay(rendezvous::RelayCommand),
    Vault(vault::VaultCommand),
    Ls(ls::Ls),
    Done(done::DoneCommand),
    Gc(gc::Gc),
    Index(index::IndexCommand),
    Status(status::StatusCommand),
    Doctor(doctor::DoctorCommand),
    Remote(remote::RemoteCommand),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Context of a command.
pub struct Context {
    home: Home,
    /// Plugins that a configuration may name.
    plugins: Registry,
    output: Arc<Output>,
    verbose: u8,
    log: Log,
    inherited: Mutex<Option<Inherited>>,
    signals: Signals,
}

impl Context {
    /// The sockets that were handed over, once.
    fn inherited(&self) -> Inherited {
        self.inherited.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// The configuration of this home.
    fn configured(&self) -> Result<Config, ApiError> {
        let configured = Config::load(self.home.config_file(), &self.plugins);
        let configured = configured.map_err(|error| ApiError::new(ErrorKind::Usage, error.to_string()))?;
        let mut configured = configured.unwrap_or_default();
        override_rendezvous(&mut configured)?;
        Ok(configured)
    }

    /// The service in this process. Of the configuration only this counts: what may not pass this host may not do so
    /// because no daemon runs, and a person's plugins and links are those of all commands.
    fn embedded(&self) -> Result<Arc<Service>, ApiError> {
        let (configured, mut options) = (self.configured()?, Options::default());
        options.config.processors = configured.processors;
        options.config.plugins = configured.plugins;
        options.config.sharing = configured.sharing;
        options.config.site_cache.address = configured.site_cache.address;
        options.config.rendezvous = configured.rendezvous;
        options.config.general.bind = configured.general.bind;
        options.config.general.bases_beyond = configured.general.bases_beyond;
        Service::open(self.home.clone(), options)
    }

    /// The API of the service in this process.
    fn in_process(&self) -> Result<InProcess, ApiError> {
        Ok(InProcess(self.embedded()?))
    }

    /// The daemon, if one runs.
    async fn daemon(&self) -> Option<Client> {
        Client::connect(&self.home.socket()).await
    }

    /// The daemon if one runs, else the service in this process.
    async fn api(&self) -> Result<Box<dyn Api>, ApiError> {
        match self.daemon().await {
            Some(client) => Ok(Box::new(client)),
            None => Ok(Box::new(self.in_process()?)),
        }
    }
}

/// Has the environment's rendezvous servers, if it names any, take the place of the configured ones.
fn override_rendezvous(config: &mut Config) -> Result<(), ApiError> {
    let Some(named) = std::env::var_os(RENDEZVOUS) else { return Ok(()) };
    let named = named.to_string_lossy().into_owned();
    let servers = named.split(',').map(str::trim).filter(|name| !name.is_empty());
    let read = |name: &str| {
        let wrong = || format!("{RENDEZVOUS}: '{name}' is not NODE@HOST:PORT, as 'tow rendezvous' prints it");
        node_at(name).ok_or_else(|| ApiError::new(ErrorKind::Usage, wrong()))
    };
    config.rendezvous.servers = servers.map(read).collect::<Result<_, _>>()?;
    Ok(())
}

/// Runs a command to its end.
pub fn run(arguments: Arguments, plugins: Registry) -> ExitCode {
    let Arguments { command, common } = arguments;
    // To them the first -v is that names are printed.
    let tells_names = matches!(command, Command::Cp(_) | Command::Sync(_));
    let format = match &command {
        Command::Daemon(daemon) => daemon.log_format,
        _ => LogFormat::Text,
    };
    let log = Log::start(common.verbose.saturating_sub(u8::from(tells_names)), format);
    raise_descriptor_limit();
    leave_no_core();
    let output = Arc::new(Output::new(common.json, common.quiet));
    let said = |result: Result<ExitCode, ApiError>| result.unwrap_or_else(|error| output.error(&error));
    let command = match command {
        // These say only how to use the program, which needs no place for a service.
        Command::Completions(completions) => return said(completions.run()),
        Command::Man(man) => return said(man.run()),
        command => command,
    };
    let home = match Home::find(|name| std::env::var_os(name).map(PathBuf::from)) {
        Ok(home) => home,
        // Of a service that has none only the file that is named can be checked.
        Err(NoHome::Unset) if matches!(&command, Command::Daemon(daemon) if daemon.check_config) => {
            Home::under(Path::new(NOWHERE))
        }
        Err(error) => {
            let error = ApiError::new(ErrorKind::Usage, error.to_string());
            return output.error(&error.hint("set TOW_HOME or HOME to an absolute path"));
        }
    };
    let inherited = match matches!(command, Command::Daemon(_)).then(Inherited::take).transpose() {
        Ok(inherited) => Mutex::new(inherited),
        Err(error) => return output.error(&error),
    };
    let (verbose, signals) = (common.verbose, Signals::new());
    let context = Context { home, plugins, output: Arc::clone(&output), verbose, log, inherited, signals };
    let result = match command {
        // These confine themselves before there are threads.
        Command::Daemon(daemon) => daemon.run(&context),
        Command::Remote(remote) => remote.run(&context),
        command => {
            let interrupted =
                if matches!(command, Command::Sync(_)) { SYNC_INTERRUPTED } else { INTERRUPTED };
            run_to_end(&context, Some(interrupted), dispatch(command, &context))
        }
    };
    said(result)
}

/// Runs a command on threads that are there for it alone. It is ended with `interrupted` if it does not end by itself
/// when it is interrupted; `None`: it is the daemon, which does, and for which a closed terminal is a word of its own.
fn run_to_end(
    context: &Context,
    interrupted: Option<u8>,
    command: impl Future<Output = Result<ExitCode, ApiError>>,
) -> Result<ExitCode, ApiError> {
    let runtime = runtime(&mut tokio::runtime::Builder::new_multi_thread())?;
    let output = Arc::clone(&context.output);
    let result = runtime.block_on(async {
        context.signals.listen(interrupted.is_some(), move |owes_a_word| {
            if owes_a_word {
                output.interrupted("");
            }
            std::process::exit(interrupted.unwrap_or_default().into())
        });
        command.await
    });
    end_threads(runtime);
    result
}

/// Ends a runtime. Threads that still need it keep it, as they would find it gone: they end with the program.
fn end_threads(runtime: Runtime) {
    match runtime.block_on(copy::threads_ended(COPY_END_TIME)) {
        true => runtime.shutdown_timeout(END_TIME),
        false => std::mem::forget(runtime),
    }
}

/// True if the kernel is to limit what this process may do.
fn is_confined(configured: Switch) -> bool {
    confinement::is_wanted(std::env::var_os(confinement::VARIABLE).as_deref(), configured)
}

/// The error of a process that should be confined and can't be: it must not go on as if it were.
fn not_confined(error: &ConfinementError) -> ApiError {
    words::copies::copy(&unconfined(error))
}

/// The same for a copy, whose other side has to be told.
fn unconfined(error: &ConfinementError) -> CopyError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    CopyError::NotConfined { why: format!("{error}{cause}") }
}

fn runtime(builder: &mut tokio::runtime::Builder) -> Result<Runtime, ApiError> {
    let runtime = builder.enable_all().max_blocking_threads(BLOCKING_THREADS).build();
    runtime.map_err(|error| ApiError::new(ErrorKind::Failed, format!("can't start: {error}")))
}

async fn dispatch(command: Command, context: &Context) -> Result<ExitCode, ApiError> {
    match command {
        Command::Cp(cp) => cp.run(context).await,
        Command::Sync(sync) => sync.run(context).await,
        Command::Share(share) => share.run(context).await,
        Command::Get(get) => get.run(context).await,
        Command::Publish(publish) => publish.run(context).await,
        Command::Put(put) => put.run(context).await,
        Command::Ls(ls) => ls.run(context).await,
        Command::Done(done) => done.run(context).await,
        Command::Gc(gc) => gc.run(context).await,
        Command::Rendezvous(rendezvous) => rendezvous.run(context).await,
        Command::Relay(relay) => relay.run(context).await,
        Command::Vault(vault) => vault.run(context).await,
        Command::Index(index) => index.run(context).await,
        Command::Status(status) => status.run(context).await,
        Command::Doctor(doctor) => doctor.run(context).await,
        Command::Daemon(daemon) => daemon.run(context),
        Command::Remote(remote) => remote.run(context),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    }
}

/// Many systems start programs with 1024 descriptors; more may be taken without asking anyone.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Keys and tickets are in memory: a crash writes no core of it. One byte, as zero would not keep a
/// core from a program that the system hands it to.
fn leave_no_core() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Core);
    limit.current = Some(limit.maximum.map_or(1, |most| most.min(1)));
    let _ = setrlimit(Resource::Core, limit);
}

/// `-v` of the commands that copy: the first one tells names.
fn verbose_names() -> clap::Arg {
    let arg = clap::Arg::new("verbose").short('v').long("verbose").action(clap::ArgAction::Count);
    let arg = arg.display_order(LAST + 1);
    arg.help("Tell names of what changes; more often: tell more on standard error")
}

/// The error of a command line that clap took for a good one, as clap would show it.
fn usage_error(name: &str, message: String) -> clap::Error {
    let error = clap::Error::raw(clap::error::ErrorKind::ValueValidation, message);
    let mut root = Arguments::command();
    root.build();
    match root.find_subcommand_mut(name) {
        Some(command) => error.format(command),
        None => error,
    }
}

/// The directory that paths of the command line are relative to.
fn working_directory() -> Result<PathBuf, ApiError> {
    let here = std::env::current_dir();
    here.map_err(|error| ApiError::new(ErrorKind::Usage, format!("the current directory: {error}")))
}

/// Parses where to listen: an address and a port, a name and a port, or a port of all addresses.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    let found = text.to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| {
        "write an address and a port, as in 192.0.2.1:7000 or [2001:db8::1]:7000, or a port, as in :7000"
            .into()
    })
}

/// Parses a rate such as `10M`: bytes per second with a binary suffix.
fn parse_rate(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "write bytes per second, as in 500K, 1.5M or 10MB".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Arguments {
        pub fn into_sync(self) -> Option<sync::SyncCommand> {
            match self.command {
                Command::Sync(sync) => Some(sync),
                _ => None,
            }
        }

        pub fn into_cp(self) -> Option<cp::Cp> {
            match self.command {
                Command::Cp(cp) => Some(cp),
                _ => None,
            }
        }

        pub const fn flags(&self) -> (u8, bool, bool) {
            (self.common.verbose, self.common.quiet, self.common.json)
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn one_listens_at_an_address_a_name_or_a_port() {
        for (text, address) in [
            ("192.0.2.1:7000", "192.0.2.1:7000"),
            ("[::1]:7", "[::1]:7"),
            (":7005", "[::]:7005"),
            ("7005", "[::]:7005"),
        ] {
            assert_eq!(parse_address(text), Ok(address.parse().unwrap()), "{text}");
        }
        assert!(parse_address("localhost:7005").unwrap().ip().is_loopback());
        for bad in ["", ":", "70000", "192.0.2.1", "no such host:1", ":x"] {
            assert!(parse_address(bad).unwrap_err().contains("as in :7000"), "{bad}");
        }
    }

    #[test]
    fn rates_have_binary_suffixes() {
        assert_eq!(parse_rate("10"), Ok(10));
        assert_eq!(parse_rate("2M"), Ok(2 << 20));
        assert_eq!(parse_rate("1.5M"), Ok(3 << 19));
        assert_eq!(parse_rate("10MB"), Ok(10_000_000));
        for bad in ["", "M", "1X", "-1", "99999999999G"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }
}
