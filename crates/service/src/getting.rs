//! A get under way: what its ticket says, what of this machine it may use, and the plugins that it
//! draws from.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use towpath_api::{ApiError, Event, GetRequest, Progress, SourceBytes, SourceList, Summary};
use towpath_content::hint::PeerAddress;
use towpath_content::live::Statement;
use towpath_content::pieces::Layout;
use towpath_content::ticket::Enclosed;
use towpath_content::{Hint, NodeId, Oid, Ticket};
use towpath_plugins::direct::PeerHost;
use towpath_plugins::local::Allow;
use towpath_plugins::near::NearSource;
use towpath_plugins::registry::{self, PluginParts, Tree};
use towpath_plugins::{Cascade, Inspected, Local, Preferred};
use towpath_protocol::service::RelayedBinding;
use towpath_protocol::{HAS_ALL, HAS_THE_REST, HolderSink, Pace, PeerConfig, PeerNews};
use towpath_reuse::candidates::found_files::FoundFiles;
use towpath_store::{About, MemoryStore, ObjectKind, State, Store};
use towpath_transfer::{
    Context, Description, FetchError, FirstPiece, Group, ObjectRequest, Outcome, Query, Root, Session,
    SessionConfig, Single, Source, SourceId, Target, progress,
};

use crate::get_search;
use crate::local_ends::local_ends;
use crate::meeting::GetMeeting;
use crate::state;
use crate::state::Service;
use crate::transfers::PROGRESS_EVERY;
use crate::web_places::{WebPlaces, WebWays};
use crate::while_getting::LendingGet;
use towpath_mirror::{SimilarSource, WebRules};
use towpath_peer_server::get_peers::GetPeers;
use towpath_peer_server::told_holders::ToldHolders;
use towpath_targets::in_flight::{FlightGroup, FlightKey, FlightRole, Leading};
use towpath_words as words;

/// Number of times a get waits for another one of the same object before it goes alone.
const MAX_TURNS: usize = 64;
/// True once a get's source answered what it fetches.
#[derive(Debug, Default)]
pub(crate) struct SourceAnswered(AtomicBool);

impl SourceAnswered {
    /// It has.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One get under way: what the ticket says, and the plugins that draw from it.
pub(crate) struct GetUnderWay {
    pub(crate) service: Arc<Service>,
    pub(crate) plugins: Tree,
    /// The root of them for a tree's descriptor and its files.
    pub(crate) for_tree: Arc<dyn Root>,
    /// Local content that may be used.
    allow: Allow,
    /// Files that are here and may be of use, if these may be looked for.
    pub(crate) found_files: Option<Arc<FoundFiles>>,
    /// What an older version has of a published file, once one is found.
    pub(crate) similar: Option<Arc<SimilarSource>>,
    /// What went wrong with web servers last.
    pub(crate) web_trouble: Arc<Mutex<Option<String>>>,
    pub(crate) context: Context,
    pub(crate) config: SessionConfig,
    pub(crate) oid: Oid,
    /// True once its source answered what it is.
    pub(crate) answered: SourceAnswered,
    /// What it serves others by while it runs, if it may.
    pub(crate) lending: Option<LendingGet>,
    /// Connections that it dialled.
    pub(crate) peers: Arc<GetPeers>,
    /// Where it hears of others, if there is such a place.
    pub(crate) meeting: Option<GetMeeting>,
    /// Kept open so that hints can still change.
    _hints: watch::Sender<Vec<Hint>>,
}

/// Reason why one attempt did not finish.
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
            error => Self::Error(words::fetch(&error)),
        }
    }
}

impl GetUnderWay {
    /// A get by a ticket, or of what is on this machine.
    pub(crate) fn new(service: &Arc<Service>, request: &GetRequest) -> Result<Self, ApiError> {
        behind(service, request, &WebPlaces::default(), None)
    }

    /// A session that draws from this get's sources.
    pub(crate) fn session(&self) -> Session {
        Session::start(Arc::clone(&self.plugins.root), self.context.clone(), self.config)
    }

    /// Key of the flight: object, the ticket's node, and group.
    pub(crate) const fn key(&self, group: FlightGroup) -> FlightKey {
        (self.oid, self.context.node, group)
    }

    /// Waits while another get of this machine brings the same object: what it leaves need not
    /// cross the network again. The guard makes others wait.
    pub(crate) async fn own_turn(&self) -> Option<Leading> {
        for _ in 0..MAX_TURNS {
            match self.service.in_flight.enter(self.key(FlightGroup::All), |leading| (leading, Weak::new())) {
                FlightRole::Lead(leading) => return Some(leading),
                FlightRole::Join(arrival) => drop(arrival.ended().await),
                FlightRole::Wait(ended) => ended.cancelled().await,
            }
        }
        None
    }

    /// True if this machine's own copy of `oid` may be used.
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

    /// Notes that what is about to lie at `destination` came from this sender: it may stand in for the network
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
        let (wait_limit, start) = (self.config.ledger.wait_limit, Instant::now());
        loop {
            // A peer that accepts a connection and says nothing is not waited for any longer, either.
            let asking = self.ask_any(&self.plugins.remote, eager);
            let answer = tokio::time::timeout(wait_limit.saturating_sub(start.elapsed()), asking).await;
            let outcome = match answer.unwrap_or(Err(Outcome::RetryLater(Duration::ZERO))) {
                Ok(described) => {
                    self.answered.note();
                    return Ok(described);
                }
                Err(outcome) => outcome,
            };
            if let Ok(described) = self.ask_any(&self.plugins.local, false).await {
                self.answered.note();
                return Ok(described);
            }
            match outcome {
                Outcome::RetryLater(delay) if start.elapsed() < wait_limit => tokio::time::sleep(delay).await,
                Outcome::RetryLater(_) => {
                    let last_error = self.plugins.root.state().trouble.or_else(|| self.unanswered());
                    let waited = start.elapsed();
                    return Err(words::fetch(&FetchError::Stalled { waited, last_error }));
                }
                outcome => return Err(words::fetch(&FetchError::Ended(outcome))),
            }
        }
    }

    /// Nobody said no, and nobody said yes. Nothing of an object that only this machine may have.
    pub(crate) fn unanswered(&self) -> Option<String> {
        let hints = self.context.hints.borrow();
        let addresses = hints.iter().map(|hint| match hint.rest().parse::<PeerAddress>() {
            Ok(peer) => peer.address,
            Err(_) => hint.rest().to_owned(),
        });
        // What follows a '?' may be a secret of a web server.
        let mut addresses = addresses.map(|address| address.split('?').next().unwrap_or_default().to_owned());
        let first = addresses.next()?;
        Some(match addresses.count() {
            0 => format!("no answer from {first}"),
            1 => format!("no answer from {first} and another address"),
            others => format!("no answer from {first} and {others} other addresses"),
        })
    }

    /// Asks others, not this machine, what the object is.
    pub(crate) async fn ask_others(&self, eager: bool) -> Result<(About, Option<Layout>), Outcome> {
        self.ask_any(&self.plugins.remote, eager).await
    }

    /// The first answer, or what the first of them said instead.
    async fn ask_any(
        &self,
        sources: &[Arc<dyn Source>],
        eager: bool,
    ) -> Result<(About, Option<Layout>), Outcome> {
        let mut first = None;
        for source in sources {
            match self.ask(&**source, self.oid, eager).await {
                Ok(about) => return Ok(about),
                Err(outcome) => drop(first.get_or_insert(outcome)),
            }
        }
        Err(first.unwrap_or(Outcome::NotHere))
    }

    async fn ask(
        &self,
        source: &dyn Source,
        oid: Oid,
        eager: bool,
    ) -> Result<(About, Option<Layout>), Outcome> {
        let (answers, mut inbox) = mpsc::channel(4);
        // Of a live object it isn't known what there is of it yet.
        let first = if eager && !oid.is_live() { FirstPiece::Wanted } else { FirstPiece::Unsaid };
        let query = Query { first, ..Query::about(oid) };
        let asking = source.describe(query, &self.context, answers);
        match tokio::join!(asking, inbox.recv()) {
            (_, Some(Description::Object { about, layout, .. })) => Ok((about, layout)),
            (Err(outcome), _) => Err(outcome),
            (Ok(()), _) => Err(Outcome::NotHere),
        }
    }

    /// Tells the sender that no more is needed of it.
    pub(crate) async fn finish(&self, has_all: bool) {
        let how = if has_all { HAS_ALL } else { HAS_THE_REST };
        for plugin in &self.plugins.remote {
            plugin.finish(how).await;
        }
    }

    /// Notes that content came from this sender: it may stand in for the network when it sends it again.
    pub(crate) fn note_sent(&self, oid: &Oid) {
        if let Some(node) = self.context.node
            && let Err(error) = self.service.shares.keep_sent(&node, oid)
        {
            tracing::warn!(%error, "who sent an object can't be noted");
        }
    }

    /// The content that is asked for and its size, which was described so; `None` while a live object is not bound.
    pub(crate) async fn whole(&self, layout: Option<Layout>) -> Option<(Oid, u64)> {
        let content = self.content().await?;
        let layout = match self.oid.is_live() {
            false => layout,
            // Its end is that of its content.
            true => self.ask(&*self.plugins.root, content, false).await.ok().and_then(|(_, layout)| layout),
        };
        layout.map(|layout| (content, layout.size()))
    }

    /// The content that is asked for; `None` while a live object is not bound.
    pub(crate) async fn content(&self) -> Option<Oid> {
        if !self.oid.is_live() {
            return Some(self.oid);
        }
        self.binding().await.map(|binding| binding.content)
    }

    /// Content that the live object which is asked for is bound to, with its issuer's word.
    pub(crate) async fn binding(&self) -> Option<RelayedBinding> {
        // Of values, which come before the binding, none are wanted.
        let query = Query { proofs: Some(u64::MAX..u64::MAX), ..Query::about(self.oid) };
        let (answers, mut inbox) = mpsc::channel(4);
        let find = async {
            while let Some(answer) = inbox.recv().await {
                let Description::Live { statement, signature } = answer else { continue };
                let said = (statement.to_bytes().into(), signature.into());
                let binding = relayed_binding(&self.oid, &self.context.node?, said);
                if binding.is_some() {
                    return binding;
                }
            }
            None
        };
        let (_, binding) = tokio::join!(self.plugins.root.describe(query, &self.context, answers), find);
        binding
    }

    /// True if others are served of what comes, by the same ticket.
    pub(crate) fn passes_on(&self) -> bool {
        self.service.grants.passes_on(&self.oid)
    }
}

/// The way to the site's cache, which brings what a get asks for.
pub(crate) struct NearWay {
    pub(crate) source: NearSource,
    /// Where it is.
    pub(crate) hint: Hint,
    /// The rate at which the get takes what comes.
    pub(crate) pace: Arc<Pace>,
}

/// A get that draws on web servers, too, or is about to run where the site's cache may bring what is asked for: all others are its reserve then.
pub(crate) fn behind(
    service: &Arc<Service>,
    request: &GetRequest,
    web: &WebPlaces,
    near: Option<&NearWay>,
) -> Result<GetUnderWay, ApiError> {
    let (ticket, oid) = what_is_asked_for(service, request, web)?;
    let named = ticket.iter().flat_map(|ticket| ticket.hints.iter().cloned());
    let (sender, hints) = watch::channel(named.chain(near.map(|near| near.hint.clone())).collect());
    let (node, secret) = (ticket.as_ref().map(|t| t.node), ticket.as_ref().map(Ticket::bound_secret));
    let context = Context { root: oid, node, secret, hints };
    let store = Arc::clone(&service.store) as Arc<dyn Store>;
    let is_web = !web.is_empty() && node.is_none();
    let allow = if is_web { web_sources(request) } else { local_sources(service, node, request.reuse) };
    let told = ticket.as_ref().map(|ticket| ToldHolders::new(ticket, service.node_id(), sender.clone()));
    let (identity, mut peer) = (service.identity.clone(), peer_config(service, request, told));
    // One limit holds for all that comes.
    near.iter().for_each(|near| peer.receive_pace = Arc::clone(&near.pace));
    let lending = ticket.as_ref().and_then(|ticket| LendingGet::new(service, request, ticket));
    let peers = Arc::new(GetPeers::new(Arc::clone(&service.door.standing)));
    let meeting =
        ticket.as_ref().and_then(|ticket| GetMeeting::begin(service, ticket, sender.clone(), &peers));
    let search = get_search::search(service, request, node, (is_web, web.rate(request)));
    let scope = search.as_ref().map(|search| search.scope.clone());
    let rules = WebRules::new(Arc::clone(&peer.receive_pace), request.require_encryption);
    let WebWays { way, similar, mirrors } = web.ways(is_web, rules.clone());
    let bare = match ticket.and_then(|ticket| ticket.enclosed) {
        Some(enclosed) => from_ticket(&oid, enclosed, store, &allow)?,
        None => {
            let host = Some(Arc::clone(&peers) as Arc<dyn PeerHost>);
            let (allow, from) = (Arc::clone(&allow), local_ends(service, &request.bind)?);
            let near = near.map(|near| near.source.clone());
            let led = None;
            let parts =
                PluginParts { store, allow, identity, peer, from, host, way, led, mirrors, search, near };
            registry::build(&service.config().plugins, &parts)
        }
    };
    let measured = scope.zip(bare.adaptive.clone()).filter(|_| !service.processors().inspect_any());
    let found_files = measured.map(|(scope, adaptive)| Arc::new(FoundFiles::new(scope, adaptive)));
    let (plugins, for_tree) = wrapped(service, request, bare);
    Ok(GetUnderWay {
        service: Arc::clone(service),
        plugins,
        for_tree,
        allow,
        found_files,
        similar,
        web_trouble: rules.trouble,
        context,
        config: session_config(request),
        oid,
        answered: SourceAnswered::default(),
        lending,
        peers,
        meeting,
        _hints: sender,
    })
}

/// The ticket, if it is one, and the object.
fn what_is_asked_for(
    service: &Service,
    request: &GetRequest,
    web: &WebPlaces,
) -> Result<(Option<Ticket>, Oid), ApiError> {
    let text = request.ticket.trim();
    let ticket = text.starts_with("tow:").then(|| state::parse_ticket(text)).transpose()?;
    ticket.iter().try_for_each(|ticket| service.check_ticket(ticket))?;
    let oid = ticket.as_ref().map(|ticket| ticket.oid).or_else(|| web.oid());
    Ok((ticket, oid.map_or_else(|| state::parse_name(text), Ok)?))
}

/// The plugins as a get asks them: what comes passes the processors. And the root of them for a tree's descriptor and its files.
fn wrapped(service: &Arc<Service>, request: &GetRequest, bare: Tree) -> (Tree, Arc<dyn Root>) {
    let turn = Arc::new(service.precedence.enter(request.priority));
    let preferred = |root: Arc<dyn Root>| -> Arc<dyn Root> {
        Arc::new(Preferred::new(root, Arc::clone(&turn), request.require_encryption))
    };
    // Objects of every source pass the processors.
    let wrap = |root| Inspected::wrap(preferred(root), service.processors());
    let wrap_source = |source| -> Arc<dyn Source> { wrap(Single::root(source)) };
    let for_tree = Inspected::wrap_tree(preferred(Arc::clone(&bare.root)), service.processors());
    let tree = Tree {
        root: wrap(bare.root),
        remote: bare.remote.into_iter().map(wrap_source).collect(),
        local: bare.local.into_iter().map(wrap_source).collect(),
        adaptive: bare.adaptive,
    };
    (tree, for_tree)
}

/// Local content that may stand in for the network: without a sender, if that is this service
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

/// A web server sees what it is not asked for, as any sender does.
fn web_sources(request: &GetRequest) -> Allow {
    let reuse = request.reuse;
    Arc::new(move |_| reuse)
}

/// The object is in its ticket: this machine first, then the ticket, and no service is asked.
fn from_ticket(oid: &Oid, enclosed: Enclosed, own: Arc<dyn Store>, allow: &Allow) -> Result<Tree, ApiError> {
    let Enclosed { name, mode, modified, content } = enclosed;
    let about = About { kind: ObjectKind::Blob, name, mode, modified };
    let (store, live) = (MemoryStore::new(), Oid::Live(*oid.digest()));
    let put = store.put_init(&live, &about).and_then(|()| store.put_data(&live, &content));
    put.and_then(|()| store.put_commit(&live)).map_err(|error| words::store(&error))?;
    let local: Arc<dyn Source> = Arc::new(Local::new(own, Arc::clone(allow)));
    let ticket: Arc<dyn Source> = Arc::new(Local::only(Arc::new(store), "ticket"));
    let root = Single::root(Arc::new(Cascade::new(vec![Arc::clone(&local), Arc::clone(&ticket)])));
    Ok(Tree { root, remote: vec![ticket], local: vec![local], adaptive: None })
}

/// What a live object became, if these bytes and their signature are its issuer's word for that.
pub(crate) fn relayed_binding(
    live: &Oid,
    node: &NodeId,
    (statement, signature): (Bytes, Bytes),
) -> Option<RelayedBinding> {
    match Statement::verified(&statement, &signature, node).ok()? {
        Statement::Bound { object, content, .. } if object == *live => {
            Some(RelayedBinding { content, statement, signature })
        }
        _ => None,
    }
}

fn session_config(request: &GetRequest) -> SessionConfig {
    let mut config = SessionConfig::default();
    if request.timeout > 0 {
        config.ledger.wait_limit = Duration::from_secs(request.timeout);
    }
    config
}

/// Configuration of connections to peers.
pub(crate) fn peer_config(service: &Service, request: &GetRequest, told: Option<ToldHolders>) -> PeerConfig {
    let receive_pace = Arc::new(Pace::new(request.limit_rate));
    let (traffic, priority) = (Arc::clone(&service.metrics.fetched), request.priority);
    let dialled = service.door.connections.dialled();
    let holders = told.map(|told| Arc::new(told) as Arc<dyn HolderSink>);
    let news = PeerNews { holders, ..dialled.news.clone() };
    PeerConfig { receive_pace, traffic, priority, news, ..dialled }
}

/// Sends progress until it is dropped.
pub(crate) async fn report_progress(progress: progress::Progress, events: mpsc::Sender<Event>) -> Infallible {
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    loop {
        ticks.tick().await;
        let snapshot = progress.snapshot();
        let now = Progress {
            done: snapshot.done,
            expected: snapshot.expected,
            objects: snapshot.objects,
            sources: sources(&snapshot),
            trouble: snapshot.last_error,
        };
        let _ = events.send(Event::Transfer(now)).await;
    }
}

/// Bytes by source, as events and summaries list them.
pub(crate) fn sources(snapshot: &progress::Snapshot) -> SourceList {
    snapshot.by_source.iter().map(|(source, bytes)| source_bytes(source, *bytes)).collect()
}

/// Bytes that a source brought.
pub(crate) fn source_bytes(source: &SourceId, bytes: u64) -> SourceBytes {
    let (node, path) = (source.node().map(NodeId::to_string), source.path().map(str::to_owned));
    SourceBytes { kind: source.kind().to_owned(), node, path, bytes }
}

/// Adds a session's counters to a summary.
pub(crate) fn summarize(snapshot: &progress::Snapshot, summary: &mut Summary) {
    sources(snapshot).0.into_iter().for_each(|source| summary.sources.add(source));
    let wrong = snapshot.wrong.iter().map(|(source, bytes)| source_bytes(source, *bytes));
    wrong.for_each(|source| summary.wrong.add(source));
    summary.kept += snapshot.kept;
    summary.zeros += snapshot.zeros;
}
