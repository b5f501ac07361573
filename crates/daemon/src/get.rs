//! The get operation: a ticket in, a file or a tree out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use towpath_api::{ApiError, ErrorKind, Event, GetRequest, Progress, Seconds, Summary};
use towpath_content::live::Statement;
use towpath_content::{NodeId, Oid, Ticket};
use towpath_files::SingleFile;
use towpath_files::display_name;
use towpath_plugins::direct::{Pace, PeerConfig};
use towpath_plugins::local::Allow;
use towpath_plugins::registry::{self, Parts, Tree};
use towpath_store::{About, ObjectKind, Stamp, Store, hash_open_file};
use towpath_transfer::ledger::LedgerConfig;
use towpath_transfer::{
    Context, Description, FetchError, Group, ObjectRequest, Outcome, Query, Session, SessionConfig, Target,
    TransferPlugin, progress,
};

use crate::get_file::FileTarget;
use crate::get_tree;
use crate::resume::Record;
use crate::service::Service;
use crate::spool::{FailOnDrop, Spool};
use crate::{errors, service};

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often a get begins anew when the producer of a live object does.
const MAX_STARTS: usize = 20;

/// One get under way: what the ticket says, and the plugins that draw from it.
pub(crate) struct Get {
    pub(crate) service: Arc<Service>,
    pub(crate) plugins: Tree,
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
    if get.describe().await?.kind == ObjectKind::Tree {
        let message = "this is a tree, and only a single file can go to standard output";
        return Err(ApiError::new(ErrorKind::Usage, message).hint("name a new directory with -o"));
    }
    let session = Session::start(Arc::clone(&get.plugins.root), get.context.clone(), get.config);
    let record = Record::open(&service.home.resume(), Path::new("-"), &get.oid);
    let record = record.map_err(|error| errors::io("note", &service.home.resume(), &error))?;
    let path = record.beside(&format!("{}.spool", std::process::id()));
    let spool = Spool::open(&path).map_err(|error| errors::io("create", &path, &error))?;
    let _end = FailOnDrop(Arc::clone(&spool));
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
        Ok(Err(error)) => {
            return Err(ApiError::new(ErrorKind::Failed, format!("writing the output: {error}")));
        }
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
        let store = Arc::clone(&service.store) as Arc<dyn Store>;
        let allow = local_sources(service, node, request.reuse);
        let (identity, peer) = (service.identity.clone(), peer_config(service, request.limit_rate));
        let plugins = registry::build(&service.config().plugins, &Parts { store, allow, identity, peer });
        Ok(Self { service: Arc::clone(service), plugins, context, config, oid, _hints: sender })
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
        let destination = self.destination(request, &about)?;
        summary.output.clone_from(&destination);
        if about.kind == ObjectKind::Tree {
            return get_tree::run(self, &destination, events, summary).await;
        }
        self.file(&destination, about, events, summary).await
    }

    /// What is about to lie at `destination` came from this sender: it may stand in for the network
    /// when the same sender sends it again. Not before the place is known to be free: what is there
    /// already is not the sender's.
    pub(crate) fn note_destination(&self, destination: &Path) {
        let parent = destination.parent().and_then(|parent| parent.canonicalize().ok());
        if let (Some(node), Some(parent), Some(name)) = (self.context.node, parent, destination.file_name())
            && let Err(error) = self.service.shares.keep_received(&node, &parent.join(name))
        {
            tracing::warn!(%error, "the destination can't be noted");
        }
    }

    /// Asks what the object is, before anything is made for it: first its sender, who alone knows
    /// its name and times, then this machine.
    async fn describe(&self) -> Result<About, ApiError> {
        let (patience, start) = (self.config.ledger.patience, Instant::now());
        loop {
            let outcome = match self.ask_any(&self.plugins.remote).await {
                Ok(about) => return Ok(about),
                Err(outcome) => outcome,
            };
            if let Ok(about) = self.ask_any(&self.plugins.local).await {
                return Ok(about);
            }
            match outcome {
                Outcome::RetryLater(delay) if start.elapsed() < patience => tokio::time::sleep(delay).await,
                Outcome::RetryLater(_) => {
                    let (waited, trouble) = (start.elapsed(), self.plugins.root.trouble());
                    return Err(errors::fetch(&FetchError::Stalled { waited, trouble }));
                }
                outcome => return Err(errors::fetch(&FetchError::Ended(outcome))),
            }
        }
    }

    /// The first answer, or what the first of them said instead.
    async fn ask_any(&self, plugins: &[Arc<dyn TransferPlugin>]) -> Result<About, Outcome> {
        let mut first = None;
        for plugin in plugins {
            match self.ask(&**plugin).await {
                Ok(about) => return Ok(about),
                Err(outcome) => drop(first.get_or_insert(outcome)),
            }
        }
        Err(first.unwrap_or(Outcome::NotHere))
    }

    async fn ask(&self, plugin: &dyn TransferPlugin) -> Result<About, Outcome> {
        let (answers, mut inbox) = mpsc::channel(4);
        let query = Query { oid: self.oid, coverage: None, proofs: None, follow: false };
        let asking = plugin.get_descriptors(query, &self.context, answers);
        match tokio::join!(asking, inbox.recv()) {
            (_, Some(Description::Object { about, .. })) => Ok(about),
            (Err(outcome), _) => Err(outcome),
            (Ok(()), _) => Err(Outcome::NotHere),
        }
    }

    async fn file(
        self: &Arc<Self>,
        destination: &Path,
        about: About,
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        if let Some((oid, size)) = self.is_there(destination).await? {
            self.clean_up(destination);
            (summary.oid, summary.bytes, summary.kept, summary.entries) = (oid.to_string(), size, size, 1);
            return Ok(());
        }
        self.note_destination(destination);
        let record = Record::open(&self.service.home.resume(), destination, &self.oid);
        let record = record.map_err(|error| errors::io("note", &self.service.home.resume(), &error))?;
        let target = Arc::new(FileTarget::new(destination, record, Arc::clone(&self.service.store)));
        target.set_about(&about);
        let session = Session::start(Arc::clone(&self.plugins.root), self.context.clone(), self.config);
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

    /// The file at `destination`, if it is this very object; an error if it is anything else.
    async fn is_there(&self, destination: &Path) -> Result<Option<(Oid, u64)>, ApiError> {
        let Ok(metadata) = std::fs::symlink_metadata(destination) else { return Ok(None) };
        if metadata.is_file()
            && let Some(wanted) = self.content().await
            && self.holds(destination, wanted).await
        {
            return Ok(Some((wanted, metadata.len())));
        }
        let message = format!(
            "{} is already there, and it is not this object",
            display_name(destination.as_os_str().as_encoded_bytes())
        );
        Err(ApiError::new(ErrorKind::Exists, message)
            .hint("choose another name with -o, or remove what is there"))
    }

    /// The object is there: what an interrupted transfer of it left is of no more use.
    fn clean_up(&self, destination: &Path) {
        let folder = self.service.home.resume();
        if !Record::is_open(&folder, destination, &self.oid) {
            return;
        }
        let Ok(record) = Record::open(&folder, destination, &self.oid) else { return };
        let left = record.temp().and_then(|temp| SingleFile::reopen(destination, temp).ok());
        if let Some(Err(error)) = left.map(SingleFile::discard) {
            tracing::warn!(%error, "a temporary could not be removed");
        }
        record.remove();
    }

    /// The content that is asked for; `None` while a live object is not bound.
    async fn content(&self) -> Option<Oid> {
        if !self.oid.is_live() {
            return Some(self.oid);
        }
        // Of values, which come before the binding, none are wanted.
        let query = Query { oid: self.oid, coverage: None, proofs: Some(u64::MAX..u64::MAX), follow: false };
        let (answers, mut inbox) = mpsc::channel(4);
        let find = async {
            while let Some(answer) = inbox.recv().await {
                let Description::Live { statement, signature } = answer else { continue };
                let verified =
                    Statement::verified(&statement.to_bytes(), &signature, &self.context.node?).ok()?;
                if let Statement::Bound { object, content, .. } = verified
                    && object == self.oid
                {
                    return Some(content);
                }
            }
            None
        };
        let (_, content) =
            tokio::join!(self.plugins.root.get_descriptors(query, &self.context, answers), find);
        content
    }

    /// Whether the file is that object: the index knows, else it is read.
    async fn holds(&self, file: &Path, wanted: Oid) -> bool {
        let (store, file) = (Arc::clone(&self.service.store), file.to_path_buf());
        let looking = tokio::task::spawn_blocking(move || {
            let (parent, name) = (file.parent()?.canonicalize().ok()?, file.file_name()?);
            let known = store.known(&parent, &[(name, Stamp::of_path(&file).ok()?)]).ok()?;
            match known.into_iter().next().flatten() {
                Some(known) => Some(known),
                None => Some(hash_open_file(&std::fs::File::open(&file).ok()?, &file).ok()?.oid),
            }
        });
        looking.await.ok().flatten() == Some(wanted)
    }

    /// Where the object goes: the name asked for, or its own in the directory asked for. As with
    /// `cp` an existing directory takes it under its own name, unless a transfer of this very
    /// object into it was interrupted.
    fn destination(&self, request: &GetRequest, about: &About) -> Result<PathBuf, ApiError> {
        let resume = self.service.home.resume();
        match &request.output {
            None => named(&request.directory, about),
            Some(output) if output.is_dir() && !Record::is_open(&resume, output, &self.oid) => {
                named(output, about)
            }
            Some(output) => Ok(output.clone()),
        }
    }
}

/// What of this machine may stand in for the network: without a sender, or when asked to, all that
/// the service knows; else only what that same sender sent before, which tells it nothing new.
fn local_sources(service: &Arc<Service>, node: Option<NodeId>, reuse: bool) -> Allow {
    let Some(node) = node.filter(|_| !reuse) else { return Arc::new(|_| true) };
    let (store, folders) = (Arc::clone(&service.store), service.shares.received(&node));
    Arc::new(move |oid| {
        let is_from_sender = |path: &Path| folders.iter().any(|folder| path.starts_with(folder));
        !folders.is_empty() && matches!(store.locate(oid), Ok(Some((path, _))) if is_from_sender(&path))
    })
}

/// How connections to peers behave.
fn peer_config(service: &Service, limit_rate: u64) -> PeerConfig {
    let (receive_pace, traffic) = (Arc::new(Pace::new(limit_rate)), Arc::clone(&service.metrics.fetched));
    PeerConfig { receive_pace, traffic, ..PeerConfig::default() }
}

/// Under its own name in `directory`.
fn named(directory: &Path, about: &About) -> Result<PathBuf, ApiError> {
    use std::os::unix::ffi::OsStrExt;
    if towpath_files::names::check_name(&about.name).is_err() {
        let message = "the object has no name of its own that is safe to use";
        return Err(ApiError::new(ErrorKind::Usage, message).hint("choose one with -o"));
    }
    Ok(directory.join(std::ffi::OsStr::from_bytes(&about.name)))
}

/// Sends progress until it is dropped.
pub(crate) async fn tell(
    progress: progress::Progress,
    events: mpsc::Sender<Event>,
) -> std::convert::Infallible {
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
