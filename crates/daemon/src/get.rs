//! The get operation: a ticket in, a file or a tree out.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use towpath_api::{ApiError, ContentRequest, ErrorKind, Event, GetRequest, Progress, Seconds, Summary};
use towpath_content::live::Statement;
use towpath_content::pieces::Layout;
use towpath_content::ticket::Enclosed;
use towpath_content::{NodeId, Oid};
use towpath_files::display_name;
use towpath_files::{FileError, SingleFile};
use towpath_plugins::local::Allow;
use towpath_plugins::registry::{self, Parts, Tree};
use towpath_plugins::{Cascade, Inspected, Local, Preferred};
use towpath_protocol::{HAS_ALL, HAS_THE_REST, Pace, PeerConfig};
use towpath_store::{About, MemoryStore, ObjectKind, Stamp, State, Store, hash_open_file};
use towpath_transfer::ledger::LedgerConfig;
use towpath_transfer::{
    Context, Description, FetchError, Group, ObjectRequest, Outcome, Query, Session, SessionConfig, Target,
    TransferPlugin, progress,
};

use crate::arrivals::{Flight, Key, Lane, Leading};
use crate::content;
use crate::copy::search::searched;
use crate::get_search;
use crate::get_tree;
use crate::service;
use crate::service::Service;
use crate::waiting::{self, Heard, told};
use towpath_targets::errors;
use towpath_targets::file_target::FileTarget;
use towpath_targets::resume::Record;

/// How often progress is told.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often a get waits for another one of the same object before it goes alone.
const MAX_TURNS: usize = 64;
/// How often a get begins anew when the producer of a live object does.
const MAX_STARTS: usize = 20;

/// One get under way: what the ticket says, and the plugins that draw from it.
pub(crate) struct Get {
    pub(crate) service: Arc<Service>,
    pub(crate) plugins: Tree,
    /// The root of them for a tree's descriptor and its files.
    pub(crate) for_tree: Arc<dyn TransferPlugin>,
    /// What of this machine may be used.
    allow: Allow,
    pub(crate) context: Context,
    pub(crate) config: SessionConfig,
    pub(crate) oid: Oid,
    /// Whether its source said what it is.
    pub(crate) heard: Heard,
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
    let first = Get::new(service, &request)?;
    let _leading = told(first.own_turn(), "another get of the same object on this machine", &events).await;
    let _place = told(service.arrivals.place(), "the end of other gets on this machine", &events).await?;
    drop(first);
    let mut summary = Summary::default();
    for _ in 0..MAX_STARTS {
        // Made after its turn came: what was brought meanwhile may be used. And made anew after each start,
        // since its plugins belong to one session.
        let get = Arc::new(Get::new(service, &request)?);
        let result = {
            let running = get.run(&request, &events, &mut summary);
            tokio::select! { result = running => result, never = waiting::tell(&get, &events) => match never {} }
        };
        summary.search = get.plugins.adaptive.as_ref().map(|adaptive| searched(&adaptive.account()));
        match result {
            Err(Failure::StartedOver) => tokio::time::sleep(PROGRESS_EVERY).await,
            Err(Failure::Error(error)) => return Err(error),
            Ok(()) => {
                summary.seconds = Seconds::from_duration(start.elapsed());
                summary.encrypted = get.plugins.root.is_encrypted();
                get.finish(summary.failed == 0).await;
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
    request: &ContentRequest,
    events: mpsc::Sender<Event>,
    mut output: impl std::io::Write + Send + 'static,
) -> Result<Summary, ApiError> {
    let start = Instant::now();
    let get = Arc::new(Get::new(service, &content::as_get(request))?);
    let opening = content::open_whole(Arc::clone(&get));
    let opened = tokio::select! { opened = opening => opened?, never = waiting::tell(&get, &events) => match never {} };
    let (mut oid, size, arrival) = (opened.oid, opened.size.unwrap_or(u64::MAX), opened.arrival());
    let encrypted = opened.encrypted;
    let progress = arrival.as_ref().map(|arrival| arrival.progress());
    let mut parts = opened.in_order(0..size);
    let copying = tokio::task::spawn_blocking(move || {
        let mut bytes = 0;
        while let Some(part) = parts.blocking_recv() {
            let part = part?;
            bytes += part.len() as u64;
            output.write_all(&part)?;
            output.flush()?;
        }
        Ok::<_, std::io::Error>(bytes)
    });
    let telling = async {
        match &progress {
            Some(progress) => tell(progress.clone(), events.clone()).await,
            None => std::future::pending().await,
        }
    };
    let copied = tokio::select! {
        copied = copying => copied,
        never = telling => match never {},
        never = waiting::tell(&get, &events) => match never {},
    };
    let copied = copied.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    let bytes = copied.map_err(|error| match error.downcast::<ApiError>() {
        Ok(error) => error,
        Err(error) => ApiError::new(ErrorKind::Failed, format!("writing the output: {error}")),
    })?;
    if let Some(arrival) = arrival {
        oid = Some(arrival.ended().await?);
    }
    let mut summary = Summary { entries: 1, output: "-".into(), bytes, ..Summary::default() };
    match progress {
        Some(progress) => summarize(&progress.snapshot(), &mut summary),
        None => drop(summary.by_source.insert(towpath_transfer::plugin::THIS_MACHINE.into(), bytes)),
    }
    summary.oid = oid.map(|oid| oid.to_string()).unwrap_or_default();
    summary.encrypted = encrypted;
    summary.seconds = Seconds::from_duration(start.elapsed());
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
    pub(crate) fn new(service: &Arc<Service>, request: &GetRequest) -> Result<Self, ApiError> {
        let text = request.ticket.trim();
        let ticket = match text.starts_with("tow:") {
            true => Some(service::parse_ticket(text)?),
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
        let (identity, peer) =
            (service.identity.clone(), peer_config(service, request.limit_rate, request.priority));
        let bare = match ticket.and_then(|ticket| ticket.enclosed) {
            Some(enclosed) => from_ticket(&oid, enclosed, store, &allow)?,
            None => {
                let search = get_search::search(service, request, node);
                let parts = Parts { store, allow: Arc::clone(&allow), identity, peer, search };
                registry::build(&service.config().plugins, &parts)
            }
        };
        let turn = Arc::new(service.precedence.enter(request.priority));
        let preferred = |plugin: Arc<dyn TransferPlugin>| -> Arc<dyn TransferPlugin> {
            Arc::new(Preferred::new(plugin, Arc::clone(&turn), request.require_encryption))
        };
        // Whatever brings it, it passes the processors.
        let wrap = |plugin| Inspected::wrap(preferred(plugin), service.processors());
        let for_tree = Inspected::wrap_tree(preferred(Arc::clone(&bare.root)), service.processors());
        let plugins = Tree {
            root: wrap(bare.root),
            remote: bare.remote.into_iter().map(wrap).collect(),
            local: bare.local.into_iter().map(wrap).collect(),
            adaptive: bare.adaptive,
        };
        Ok(Self {
            service: Arc::clone(service),
            plugins,
            for_tree,
            allow,
            context,
            config,
            oid,
            heard: Heard::default(),
            _hints: sender,
        })
    }

    /// A session that draws from this get's sources.
    pub(crate) fn session(&self) -> Session {
        Session::start(Arc::clone(&self.plugins.root), self.context.clone(), self.config)
    }

    /// What is asked for, by whose ticket, and in which lane.
    pub(crate) const fn key(&self, lane: Lane) -> Key {
        (self.oid, self.context.node, lane)
    }

    /// Waits while another get of this machine brings the same object: what it leaves need not
    /// cross the network again. The guard makes others wait.
    async fn own_turn(&self) -> Option<Leading> {
        for _ in 0..MAX_TURNS {
            match self.service.arrivals.enter(self.key(Lane::All), |leading| (leading, Weak::new())) {
                Flight::Lead(leading) => return Some(leading),
                Flight::Join(arrival) => drop(arrival.ended().await),
                Flight::Wait(ended) => ended.cancelled().await,
            }
        }
        None
    }

    /// Whether this machine's own copy of `oid` may be used.
    pub(crate) fn may_use(&self, oid: &Oid) -> bool {
        (self.allow)(oid)
    }

    /// The content that is asked for, as far as it is known without much asking.
    pub(crate) async fn known_content(&self) -> Option<Oid> {
        if !self.oid.is_live() {
            return Some(self.oid);
        }
        let is_own = self.context.node == Some(self.service.node_id());
        match self.service.store.have(&self.oid).map(|have| have.state) {
            Ok(State::Bound(content)) if is_own => Some(content),
            // Unless this sender's bytes are here, there is no use in asking.
            _ if self.context.node.is_some_and(|node| self.has_sent(&node)) => self.content().await,
            _ => None,
        }
    }

    fn has_sent(&self, node: &NodeId) -> bool {
        let shares = &self.service.shares;
        shares.has_sent(node) || !shares.received(node).is_empty()
    }

    /// The request for the ticket's own object, which was described to have this layout: it need not
    /// be asked about again. Of a live object the end is known only when it is bound.
    pub(crate) fn request(
        &self,
        target: Arc<dyn Target>,
        layout: Option<Layout>,
        group: Group,
    ) -> ObjectRequest {
        let size = layout.filter(|_| !self.oid.is_live()).map(|layout| layout.size());
        ObjectRequest { oid: self.oid, size, group: Arc::new(group), target, recipe: None }
    }

    async fn run(
        self: &Arc<Self>,
        request: &GetRequest,
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        let described = self.describe(true).await;
        let (about, layout) = described.map_err(|error| what_changed(error, "what the ticket names"))?;
        let destination = self.destination(request, &about)?;
        self.service.check_writable(&destination)?;
        summary.output.clone_from(&destination);
        if about.kind == ObjectKind::Tree {
            return get_tree::run(self, &destination, layout, events, summary).await;
        }
        self.file(&destination, (about, layout), events, summary).await
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
    /// its name and times, then this machine. If `eager`, its first piece begins to come at once.
    pub(crate) async fn describe(&self, eager: bool) -> Result<(About, Option<Layout>), ApiError> {
        let (patience, start) = (self.config.ledger.patience, Instant::now());
        loop {
            // Whoever accepts a connection and says nothing is not waited for any longer, either.
            let asking = self.ask_any(&self.plugins.remote, eager);
            let asked = tokio::time::timeout(patience.saturating_sub(start.elapsed()), asking).await;
            let outcome = match asked.unwrap_or(Err(Outcome::RetryLater(Duration::ZERO))) {
                Ok(described) => {
                    self.heard.note();
                    return Ok(described);
                }
                Err(outcome) => outcome,
            };
            if let Ok(described) = self.ask_any(&self.plugins.local, false).await {
                self.heard.note();
                return Ok(described);
            }
            match outcome {
                Outcome::RetryLater(delay) if start.elapsed() < patience => tokio::time::sleep(delay).await,
                Outcome::RetryLater(_) => {
                    let trouble = self.plugins.root.trouble().or_else(|| waiting::unheard(self));
                    let waited = start.elapsed();
                    return Err(errors::fetch(&FetchError::Stalled { waited, trouble }));
                }
                outcome => return Err(errors::fetch(&FetchError::Ended(outcome))),
            }
        }
    }

    /// The first answer, or what the first of them said instead.
    async fn ask_any(
        &self,
        plugins: &[Arc<dyn TransferPlugin>],
        eager: bool,
    ) -> Result<(About, Option<Layout>), Outcome> {
        let mut first = None;
        for plugin in plugins {
            match self.ask(&**plugin, eager).await {
                Ok(about) => return Ok(about),
                Err(outcome) => drop(first.get_or_insert(outcome)),
            }
        }
        Err(first.unwrap_or(Outcome::NotHere))
    }

    async fn ask(
        &self,
        plugin: &dyn TransferPlugin,
        eager: bool,
    ) -> Result<(About, Option<Layout>), Outcome> {
        let (answers, mut inbox) = mpsc::channel(4);
        // Of a live object it isn't known what there is of it yet.
        let query = Query { eager: eager && !self.oid.is_live(), ..Query::about(self.oid) };
        let asking = plugin.get_descriptors(query, &self.context, answers);
        match tokio::join!(asking, inbox.recv()) {
            (_, Some(Description::Object { about, layout, .. })) => Ok((about, layout)),
            (Err(outcome), _) => Err(outcome),
            (Ok(()), _) => Err(Outcome::NotHere),
        }
    }

    async fn file(
        self: &Arc<Self>,
        destination: &Path,
        (about, layout): (About, Option<Layout>),
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
        let group = group(destination, &about, layout.as_ref());
        let session = self.session();
        let fetched = {
            let telling = tell(session.progress(), events.clone());
            let fetching = session.fetch(self.request(Arc::clone(&target) as Arc<dyn Target>, layout, group));
            tokio::select! { fetched = fetching => fetched, never = telling => match never {} }
        };
        summarize(&session.progress().snapshot(), summary);
        let failure = target.failure();
        if let Some(FileError::Exists { .. }) = failure
            && let Ok(Some((oid, size))) = self.is_there(destination).await
        {
            // Another get of the same object was faster.
            target.discard();
            (summary.oid, summary.bytes, summary.entries) = (oid.to_string(), size, 1);
            return Ok(());
        }
        let fetched = fetched.map_err(|error| match failure {
            Some(file) => Failure::Error(errors::file(&file)),
            None => match Failure::from(error) {
                Failure::Error(error) => Failure::Error(what_changed(error, &display_name(&about.name))),
                started_over => started_over,
            },
        })?;
        self.note_sent(&fetched.oid);
        (summary.oid, summary.bytes, summary.entries) = (fetched.oid.to_string(), fetched.size, 1);
        Ok(())
    }

    /// Tells the sender that no more is needed of it.
    pub(crate) async fn finish(&self, has_all: bool) {
        let how = if has_all { HAS_ALL } else { HAS_THE_REST };
        for plugin in &self.plugins.remote {
            plugin.finish(how).await;
        }
    }

    /// What came from this sender may stand in for the network when it sends it again.
    pub(crate) fn note_sent(&self, oid: &Oid) {
        if let Some(node) = self.context.node
            && let Err(error) = self.service.shares.keep_sent(&node, oid)
        {
            tracing::warn!(%error, "who sent an object can't be noted");
        }
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
    pub(crate) async fn content(&self) -> Option<Oid> {
        if !self.oid.is_live() {
            return Some(self.oid);
        }
        // Of values, which come before the binding, none are wanted.
        let query = Query { proofs: Some(u64::MAX..u64::MAX), ..Query::about(self.oid) };
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

/// What of this machine may stand in for the network: without a sender, if that is this service
/// itself, or when asked to, all that the service knows; else only what that same sender sent before, which tells it nothing new.
fn local_sources(service: &Arc<Service>, node: Option<NodeId>, reuse: bool) -> Allow {
    let stranger = node.filter(|node| !reuse && *node != service.node_id());
    let Some(node) = stranger else { return Arc::new(|_| true) };
    let (store, shares) = (Arc::clone(&service.store), service.shares.clone());
    let folders = shares.received(&node);
    // Of a tree this is asked once a file; what this get itself brings is noted at its end.
    let has_sent = shares.has_sent(&node);
    Arc::new(move |oid| {
        let is_from_sender = |path: &Path| folders.iter().any(|folder| path.starts_with(folder));
        has_sent && shares.was_sent(&node, oid)
            || !folders.is_empty()
                && matches!(store.locate(oid), Ok(Some((path, _))) if is_from_sender(&path))
    })
}

/// The object is in its ticket: this machine first, then the ticket, and no service is asked.
fn from_ticket(oid: &Oid, enclosed: Enclosed, own: Arc<dyn Store>, allow: &Allow) -> Result<Tree, ApiError> {
    let Enclosed { name, mode, modified, content } = enclosed;
    let about = About { kind: ObjectKind::Blob, name, mode, modified };
    let (store, live) = (MemoryStore::new(), Oid::Live(*oid.digest()));
    let put = store.put_init(&live, &about).and_then(|()| store.put_data(&live, &content));
    put.and_then(|()| store.put_commit(&live)).map_err(|error| errors::store(&error))?;
    let local: Arc<dyn TransferPlugin> = Arc::new(Local::new(own, Arc::clone(allow)));
    let ticket: Arc<dyn TransferPlugin> = Arc::new(Local::only(Arc::new(store), "ticket"));
    let root = Arc::new(Cascade::new(vec![Arc::clone(&local), Arc::clone(&ticket)]));
    Ok(Tree { root, remote: vec![ticket], local: vec![local], adaptive: None })
}

/// What a search goes by, of a single file.
fn group(destination: &Path, about: &About, layout: Option<&Layout>) -> Group {
    // The name it has at its sender's is that of an older version, wherever it is put here.
    let parent = destination.parent().and_then(|parent| parent.canonicalize().ok());
    let name = match towpath_files::names::check_name(&about.name) {
        Ok(_) => Some(OsStr::from_bytes(&about.name)),
        Err(_) => destination.file_name(),
    };
    Group {
        path: about.name.clone(),
        size: layout.map(Layout::size),
        modified: about.modified,
        destination: parent.zip(name).map(|(parent, name)| parent.join(name)),
        ..Group::default()
    }
}

/// Of a file that changed at its source, which one that is.
fn what_changed(error: ApiError, name: &str) -> ApiError {
    match error.message.strip_prefix("it was changed") {
        Some(rest) if !name.is_empty() => ApiError { message: format!("{name} was changed{rest}"), ..error },
        _ => error,
    }
}

/// How connections to peers behave.
fn peer_config(service: &Service, limit_rate: u64, priority: i8) -> PeerConfig {
    let (receive_pace, traffic) = (Arc::new(Pace::new(limit_rate)), Arc::clone(&service.metrics.fetched));
    PeerConfig { receive_pace, traffic, priority, ..service.bare_peer_config() }
}

/// Under its own name in `directory`.
fn named(directory: &Path, about: &About) -> Result<PathBuf, ApiError> {
    if towpath_files::names::check_name(&about.name).is_err() {
        let message = "the object has no name of its own that is safe to use";
        return Err(ApiError::new(ErrorKind::Usage, message).hint("choose one with -o"));
    }
    // Shells and programs read such files unasked.
    if about.name.starts_with(b".") {
        let message = format!("the sender calls it {}, a hidden name", display_name(&about.name));
        return Err(ApiError::new(ErrorKind::Usage, message).hint("if you want that name, give it with -o"));
    }
    Ok(directory.join(OsStr::from_bytes(&about.name)))
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
