//! The get operation: a ticket in, a file or a tree out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use towpath_api::{ApiError, ErrorKind, Event, GetRequest, Progress, Seconds, Summary};
use towpath_content::{Oid, Ticket};
use towpath_plugins::direct::{DirectConfig, Pace, PeerConfig};
use towpath_plugins::{Cascade, Direct, Local};
use towpath_store::{About, ObjectKind, Store};
use towpath_transfer::ledger::LedgerConfig;
use towpath_transfer::{
    Context, Description, FetchError, Group, ObjectRequest, Outcome, Query, Session, SessionConfig, Target,
    TransferPlugin, progress,
};

use crate::get_file::FileTarget;
use crate::get_tree;
use crate::resume::Record;
use crate::service::Service;
use crate::spool::Spool;
use crate::{errors, service};

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often a get begins anew when the producer of a live object does.
const MAX_STARTS: usize = 20;

/// One get under way: what the ticket says, and the plugins that draw from it.
pub(crate) struct Get {
    pub(crate) service: Arc<Service>,
    pub(crate) root: Arc<dyn TransferPlugin>,
    pub(crate) context: Context,
    pub(crate) config: SessionConfig,
    pub(crate) oid: Oid,
    /// Kept open so that hints can still change.
    _hints: watch::Sender<Vec<towpath_content::Hint>>,
}

/// Fetches what `request` names; events come while it goes on.
pub async fn get(
    service: &Arc<Service>,
    request: GetRequest,
    events: mpsc::Sender<Event>,
) -> Result<Summary, ApiError> {
    let start = Instant::now();
    let get = Arc::new(Get::new(service, &request)?);
    let mut summary = Summary::default();
    for _ in 0..MAX_STARTS {
        match get.run(&request, &events, &mut summary).await {
            Err(Failure::StartedOver) => tokio::time::sleep(PROGRESS_EVERY).await,
            Err(Failure::Error(error)) => return Err(error),
            Ok(()) => {
                summary.seconds = Seconds::from_duration(start.elapsed());
                return Ok(summary);
            }
        }
    }
    Err(errors::fetch(&FetchError::StartedOver))
}

/// Fetches into a stream, in order, each byte once it is checked. An error after some bytes means
/// that those are good and the rest is missing.
pub async fn get_stream(
    service: &Arc<Service>,
    request: GetRequest,
    events: mpsc::Sender<Event>,
    mut output: impl std::io::Write + Send + 'static,
) -> Result<Summary, ApiError> {
    let start = Instant::now();
    let get = Arc::new(Get::new(service, &request)?);
    let session = Session::start(Arc::clone(&get.root), get.context.clone(), get.config);
    let record = Record::open(&service.home.resume(), Path::new("-"), &get.oid);
    let record = record.map_err(|error| errors::io("note", &service.home.resume(), &error))?;
    let path = record.beside(&format!("{}.spool", std::process::id()));
    let spool = Spool::open(&path).map_err(|error| errors::io("create", &path, &error))?;
    let mut reader = spool.reader();
    let copying = tokio::task::spawn_blocking(move || {
        let copied = std::io::copy(&mut reader, &mut output);
        copied.and_then(|_| output.flush())
    });
    let target = Arc::clone(&spool) as Arc<dyn Target>;
    let fetched = {
        let telling = tell(session.progress(), events);
        let fetching = session.fetch(get.request(target));
        tokio::select! { fetched = fetching => fetched, never = telling => match never {} }
    };
    if fetched.is_err() {
        spool.fail();
    }
    let copied = copying.await;
    let _ = std::fs::remove_file(&path);
    record.remove();
    let fetched = fetched.map_err(|error| errors::fetch(&error))?;
    match copied {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(ApiError::new(ErrorKind::Failed, format!("writing the output: {error}"))),
        Err(error) => return Err(ApiError::new(ErrorKind::Failed, error.to_string())),
    }
    let mut summary = Summary { entries: 1, output: "-".into(), bytes: fetched.size, ..Summary::default() };
    summarize(&session.progress().snapshot(), &mut summary);
    (summary.oid, summary.seconds) = (fetched.oid.to_string(), Seconds::from_duration(start.elapsed()));
    Ok(summary)
}

/// Why one attempt did not finish.
pub(crate) enum Failure {
    /// The producer of a live object began anew; what is here is kept.
    StartedOver,
    /// For good.
    Error(ApiError),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::StartedOver => Self::StartedOver,
            error => Self::Error(errors::fetch(&error)),
        }
    }
}

impl Get {
    fn new(service: &Arc<Service>, request: &GetRequest) -> Result<Self, ApiError> {
        let text = request.ticket.trim();
        let ticket = match text.starts_with("tow:") {
            true => Some(text.parse::<Ticket>().map_err(|error| {
                ApiError::new(ErrorKind::Usage, format!("this is not a ticket: {error}"))
            })?),
            false => None,
        };
        let oid = ticket.as_ref().map_or_else(|| service::parse_name(text), |ticket| Ok(ticket.oid))?;
        let (sender, hints) = watch::channel(ticket.as_ref().map(|t| t.hints.clone()).unwrap_or_default());
        let (node, secret) = (ticket.as_ref().map(|t| t.node), ticket.as_ref().map(|t| t.secret));
        let context = Context { root: oid, node, secret, hints };
        let mut config = SessionConfig::default();
        if request.timeout > 0 {
            config.ledger = LedgerConfig { patience: Duration::from_secs(request.timeout), ..config.ledger };
        }
        let root = plugins(service, request.limit_rate);
        Ok(Self { service: Arc::clone(service), root, context, config, oid, _hints: sender })
    }

    /// The request for the ticket's own object.
    pub(crate) fn request(&self, target: Arc<dyn Target>) -> ObjectRequest {
        ObjectRequest { oid: self.oid, size: None, group: Arc::new(Group::default()), target, recipe: None }
    }

    async fn run(
        self: &Arc<Self>,
        request: &GetRequest,
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        let about = self.describe().await?;
        let destination = destination(request, &about)?;
        summary.output.clone_from(&destination);
        if about.kind == ObjectKind::Tree {
            return get_tree::run(self, &destination, events, summary).await;
        }
        self.file(&destination, about, events, summary).await
    }

    /// Asks what the object is, before anything is made for it.
    async fn describe(&self) -> Result<About, ApiError> {
        let patience = self.config.ledger.patience;
        let start = Instant::now();
        loop {
            let (answers, mut inbox) = mpsc::channel(4);
            let query = Query { oid: self.oid, coverage: None, proofs: None, follow: false };
            let asking = self.root.get_descriptors(query, &self.context, answers);
            let (result, answer) = tokio::join!(asking, inbox.recv());
            match (answer, result) {
                (Some(Description::Object { about, .. }), _) => return Ok(about),
                (_, Err(Outcome::RetryLater(delay))) if start.elapsed() < patience => {
                    tokio::time::sleep(delay).await;
                }
                (_, Err(Outcome::RetryLater(_))) => {
                    let (waited, trouble) = (start.elapsed(), self.root.trouble());
                    return Err(errors::fetch(&FetchError::Stalled { waited, trouble }));
                }
                (_, Err(outcome)) => return Err(errors::fetch(&FetchError::Ended(outcome))),
                (_, Ok(())) => return Err(errors::fetch(&FetchError::Ended(Outcome::NotHere))),
            }
        }
    }

    async fn file(
        self: &Arc<Self>,
        destination: &Path,
        about: About,
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        if let Some(size) = self.is_there(destination)? {
            (summary.oid, summary.bytes, summary.kept, summary.entries) = (self.oid.to_string(), size, size, 1);
            return Ok(());
        }
        let record = Record::open(&self.service.home.resume(), destination, &self.oid);
        let record = record.map_err(|error| errors::io("note", &self.service.home.resume(), &error))?;
        let target = Arc::new(FileTarget::new(destination, record, Arc::clone(&self.service.store)));
        target.set_about(&about);
        let session = Session::start(Arc::clone(&self.root), self.context.clone(), self.config);
        let fetched = {
            let telling = tell(session.progress(), events.clone());
            let fetching = session.fetch(self.request(Arc::clone(&target) as Arc<dyn Target>));
            tokio::select! { fetched = fetching => fetched, never = telling => match never {} }
        };
        summarize(&session.progress().snapshot(), summary);
        let fetched = fetched.map_err(|error| match target.failure() {
            Some(file) => Failure::Error(errors::file(&file)),
            None => Failure::from(error),
        })?;
        (summary.oid, summary.bytes, summary.entries) = (fetched.oid.to_string(), fetched.size, 1);
        Ok(())
    }

    /// The size of the file at `destination`, if it is this very object; an error if it is
    /// anything else.
    fn is_there(&self, destination: &Path) -> Result<Option<u64>, ApiError> {
        let Ok(metadata) = std::fs::symlink_metadata(destination) else { return Ok(None) };
        let parent = destination.parent().and_then(|parent| parent.canonicalize().ok());
        if let (Some(parent), Some(name), true) = (parent, destination.file_name(), metadata.is_file())
            && let Ok(stamp) = towpath_store::Stamp::of_path(destination)
            && let Ok(known) = self.service.store.known(&parent, &[(name, stamp)])
            && known.first().copied().flatten().is_some_and(|oid| self.names(&oid))
        {
            return Ok(Some(metadata.len()));
        }
        let message = format!("{} is already there, and it is not this object", destination.display());
        Err(ApiError::new(ErrorKind::Exists, message).hint("choose another name with -o, or remove what is there"))
    }

    fn names(&self, oid: &Oid) -> bool {
        *oid == self.oid
    }
}

/// The tree of plugins of a get: this machine first, then the ticket's service.
fn plugins(service: &Arc<Service>, limit_rate: u64) -> Arc<dyn TransferPlugin> {
    let local = Arc::new(Local::new(Arc::clone(&service.store) as Arc<dyn Store>));
    let peer = PeerConfig { receive_pace: Arc::new(Pace::new(limit_rate)), ..PeerConfig::default() };
    let config = DirectConfig { peer, ..DirectConfig::default() };
    let direct = Arc::new(Direct::new(service.identity.clone(), config, None));
    Arc::new(Cascade::new(vec![local, direct]))
}

/// Where the object goes: the name asked for, or its own.
fn destination(request: &GetRequest, about: &About) -> Result<PathBuf, ApiError> {
    if let Some(output) = &request.output {
        return Ok(output.clone());
    }
    use std::os::unix::ffi::OsStrExt;
    if towpath_files::names::check_name(&about.name).is_err() {
        let message = "the object has no name of its own that is safe to use";
        return Err(ApiError::new(ErrorKind::Usage, message).hint("choose one with -o"));
    }
    Ok(request.directory.join(std::ffi::OsStr::from_bytes(&about.name)))
}

/// Sends progress until it is dropped.
pub(crate) async fn tell(progress: progress::Progress, events: mpsc::Sender<Event>) -> std::convert::Infallible {
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    loop {
        ticks.tick().await;
        let snapshot = progress.snapshot();
        let by_source = snapshot.by_source.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect();
        let now = Progress {
            done: snapshot.done,
            expected: snapshot.expected,
            objects: snapshot.objects,
            by_source,
            trouble: snapshot.trouble,
        };
        let _ = events.send(Event::Transfer(now)).await;
    }
}

/// Adds a session's counters to a summary.
pub(crate) fn summarize(snapshot: &progress::Snapshot, summary: &mut Summary) {
    for (name, bytes) in &snapshot.by_source {
        *summary.by_source.entry(name.to_string()).or_default() += bytes;
    }
    summary.kept += snapshot.kept;
    summary.zeros += snapshot.zeros;
}
