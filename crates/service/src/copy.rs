//! `tow cp` and `tow sync`, which the crate `towpath-sync` does, with this service's key, store and
//! configuration.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use towpath_api::copy::{CopyEvent, CopyRequest, CopySummary, Mode, Via};
use towpath_api::{ApiError, ErrorKind};
use towpath_plugins::direct::LocalEnd;
use towpath_ssh::MOST_LINKS;
use towpath_ssh::address::Address;
use towpath_ssh::channel::RshProcess;
use towpath_ssh::ciphers::AesHosts;
pub use towpath_sync::{CopyError, threads_ended};
use towpath_sync::{Host, Writes};

use crate::local_ends::local_ends;
use crate::state::Service;
use towpath_config::{Home, Switch};
use towpath_confinement::{Places, Writable};
use towpath_words::{copies, ssh};

/// As [`towpath_sync::run`].
pub async fn run(
    service: &Service,
    request: CopyRequest,
    person: mpsc::Sender<CopyEvent>,
) -> Result<CopySummary, ApiError> {
    let host = host(service, request.umask, links(service, &request)?);
    towpath_sync::run(&host, request, person).await.map_err(|error| copies::copy(&error))
}

/// Links that a copy goes out by. ssh goes its own way.
fn links(service: &Service, request: &CopyRequest) -> Result<Vec<LocalEnd>, ApiError> {
    let refused = |message: String| Err(ApiError::new(ErrorKind::Usage, message));
    if request.options.via == Via::Ssh && !request.bind.is_empty() {
        return refused("--bind is about connections beside ssh's, and --via ssh makes none".into());
    }
    let mut links = local_ends(service, &request.bind)?;
    if request.bind.len() > MOST_LINKS {
        return refused(format!("a copy goes out by at most {MOST_LINKS} links"));
    }
    links.truncate(MOST_LINKS);
    Ok(links)
}

/// A copy that this process hands to a daemon: the command that leads to the other machine.
pub struct HandedCopy(Option<RshProcess>);

impl HandedCopy {
    /// Makes a request of somebody who is in the directory `here` one that the daemon of this `home` takes.
    pub async fn new(request: &mut CopyRequest, here: &Path, home: &Home) -> Result<Self, ApiError> {
        let hosts = AesHosts::new(home.aes_hosts());
        let process = towpath_ssh::handed::hand_over(request, here, &hosts).await;
        process.map(Self).map_err(|error| ssh::ssh(&error))
    }

    /// The end of the copy, once the command has ended. The daemon knows only that its other side is gone, and the command
    /// may tell why. `was_there`: the copy had begun; what fails sooner otherwise is not waited for.
    pub async fn end<T>(self, result: Result<T, ApiError>, was_there: bool) -> Result<T, ApiError> {
        let is_lost = result.as_ref().is_err_and(|error| error.kind == ErrorKind::Unreachable);
        let Some(mut process) = self.0.filter(|_| was_there || is_lost || result.is_ok()) else {
            return result;
        };
        match process.failure(was_there).await {
            Some(told) if is_lost => Err(ssh::ssh(&told)),
            _ => result,
        }
    }
}

/// Refuses what a daemon can't do of a copy, before anything is read or written.
pub fn check(service: &Service, request: &CopyRequest) -> Result<(), ApiError> {
    let local = |named: &OsStr| match Address::parse(named).map_err(|error| ssh::ssh(&error))? {
        Address::Local(path) if path.is_absolute() => Ok(Some(path)),
        Address::Local(_) => {
            Err(ApiError::new(ErrorKind::Usage, "paths of this machine have to be absolute"))
        }
        Address::Remote(_) => Ok(None),
    };
    let sources: Vec<Option<PathBuf>> =
        request.sources.iter().map(|source| local(source)).collect::<Result<_, ApiError>>()?;
    let destination = local(&request.destination)?;
    let is_pulled = sources.iter().any(Option::is_none);
    if is_pulled != destination.is_none() && request.reached.is_none() {
        let message = "a daemon starts no programs: the other side's socket has to come with the request";
        return Err(ApiError::new(ErrorKind::Usage, message).hint("docs/formats/local-api.md says how"));
    }
    if request.options.dry_run {
        return Ok(());
    }
    if request.options.remove_source_files {
        sources.iter().flatten().try_for_each(|source| service.check_writable(source))?;
    }
    let Some(destination) = destination else { return Ok(()) };
    let backups = request.options.backup_dir.as_deref().map(|dir| destination.join(OsStr::from_bytes(dir)));
    let behind = destination.canonicalize().ok().filter(|_| request.mode == Mode::Cp);
    let written = [Some(&destination), backups.as_ref(), behind.as_ref()];
    written.into_iter().flatten().try_for_each(|path| service.check_writable(path))?;
    service.admission.check_disk(&destination)
}

/// As [`towpath_sync::serve_stdio`]; `begin` gets what the copy may write with what this service does.
pub async fn serve_stdio(
    service: &Service,
    begin: impl FnOnce(&Writable) -> Result<Handle, CopyError>,
) -> Result<(), ApiError> {
    let (places, host) = (Places::of(&service.home), host(service, None, Vec::new()));
    let serving = towpath_sync::serve_stdio(&host, |writes| begin(&writable(&places, writes)));
    serving.await.map_err(|error| copies::copy(&error))
}

/// Paths that one side of a copy may write.
fn writable(places: &Places, writes: &Writes) -> Writable {
    match writes {
        Writes::Sender { removed } => Writable::of_sender(places, removed),
        Writes::Receiver { destination, behind, backups } => {
            let writable = Writable::of_receiver(places, destination.as_deref(), backups.as_deref());
            behind.iter().cloned().fold(writable, Writable::with_folder)
        }
    }
}

pub(crate) fn host(service: &Service, umask: Option<u32>, links: Vec<LocalEnd>) -> Arc<Host> {
    let config = service.config();
    Arc::new(Host {
        identity: service.identity.clone(),
        store: Arc::clone(&service.store),
        processors: service.processors().clone(),
        plugins: config.plugins.clone(),
        wishes: config.processors.wishes(),
        resume: service.home.resume(),
        shares: service.home.shares(),
        aes_hosts: AesHosts::new(service.home.aes_hosts()),
        bases_beyond: config.general.bases_beyond == Switch::On,
        links,
        umask,
        words: copies::entry,
    })
}
