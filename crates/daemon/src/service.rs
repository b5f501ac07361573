//! The service: store, identity, rights and listener put together, and the local API in process.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::{
    Api, ApiError, BoxFuture, Content, ContentRequest, ErrorKind, Event, GcReply, GcRequest, GetRequest,
    Held, Input, ListRequest, Object, OpenPutRequest, PartReply, Parts, PutReply, PutRequest, Session,
    Status, Summary, TransferEvent,
};
use towpath_content::ticket::Secret;
use towpath_content::{Hint, NodeId, Oid, Ticket};
use towpath_files::display_name;
use towpath_link::Identity;
use towpath_plugins::direct::{Pace, PeerConfig, Service as PeerService};
use towpath_store::{
    CachePolicy, CachedObject, DiskStore, GcOptions, Holder, Lease, ObjectKind, Store, StoreError,
};

use crate::arrivals::Arrivals;
use crate::grants::Grants;
use crate::home::Home;
use crate::listen::{Listening, listen};
use crate::lock::lock;
use crate::open_puts::OpenPuts;
use crate::sessions::Sessions;
use crate::shares::Shares;
use crate::transfers::Transfers;
use crate::{content, errors, get, open_puts, put, sessions};

/// How often the cache is compared with its limits.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// How a service is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Honour the tickets of all leases, as a daemon does. Default: only what is shared by this
    /// process.
    pub serve_leases: bool,
    /// Bytes per second that go out, 0 for no limit.
    pub limit_rate: u64,
}

/// A running service.
pub struct Service {
    pub(crate) home: Home,
    pub(crate) identity: Identity,
    pub(crate) store: Arc<DiskStore>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) shares: Shares,
    pub(crate) open_puts: OpenPuts,
    pub(crate) transfers: Transfers,
    pub(crate) sessions: Sessions,
    pub(crate) arrivals: Arrivals,
    /// When the cache was last looked at.
    trimmed: Mutex<Option<Instant>>,
    peers: Arc<PeerService>,
    listening: tokio::sync::OnceCell<Listening>,
    options: Options,
}

impl Service {
    /// Opens the home's key and store.
    pub fn open(home: Home, options: Options) -> Result<Arc<Self>, ApiError> {
        let identity = identity(&home)?;
        let store = DiskStore::open(home.state(), home.data());
        let store = Arc::new(store.map_err(|error| no_home(errors::store(&error)))?);
        let leases = options.serve_leases.then(|| Arc::clone(&store) as Arc<dyn Store>);
        let ended = store.end_sessions().map_err(|error| errors::store(&error))?;
        if !ended.is_empty() {
            tracing::info!(leases = ended.len(), "ended leases of applications that died with their daemon");
        }
        let grants = Arc::new(Grants::new(identity.clone(), leases));
        let peers = Arc::new(PeerService::new(Arc::clone(&store) as Arc<dyn Store>, grants.clone()));
        let shares = Shares::new(home.shares());
        let listening = tokio::sync::OnceCell::new();
        let (open_puts, transfers) = (OpenPuts::default(), Transfers::default());
        Ok(Arc::new(Self {
            home,
            identity,
            store,
            grants,
            shares,
            open_puts,
            transfers,
            sessions: Sessions::default(),
            arrivals: Arrivals::default(),
            trimmed: Mutex::default(),
            peers,
            listening,
            options,
        }))
    }

    /// The service's public key.
    pub fn node_id(&self) -> NodeId {
        self.identity.node_id()
    }

    /// Lets peers in that [`Self::listen`] listens for. To be called when what they may ask for is
    /// there: one that waits for this service to come back asks at once, and is refused only once.
    pub fn open_doors(&self) {
        if let Some(listening) = self.listening.get() {
            listening.open();
        }
    }

    /// Listens for peers; they wait until [`Self::open_doors`]. `user` names who listens, so that the same one gets the same port again;
    /// `address` is what a person asked for.
    pub async fn listen(
        &self,
        user: &[u8],
        address: Option<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, ApiError> {
        let config = self.peer_config();
        let start = || listen(&self.identity, &self.shares, user, address, Arc::clone(&self.peers), config);
        let listening = self.listening.get_or_try_init(start).await?;
        Ok(listening.addresses().to_vec())
    }

    fn peer_config(&self) -> PeerConfig {
        PeerConfig { send_pace: Arc::new(Pace::new(self.options.limit_rate)), ..PeerConfig::default() }
    }

    /// The addresses it listens on; none if it does not.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening.get().map(|listening| listening.addresses().to_vec()).unwrap_or_default()
    }

    /// The ticket for an object of this service.
    pub(crate) fn ticket(&self, oid: Oid, secret: Secret) -> String {
        let hints = self.addresses().into_iter().enumerate().filter_map(|(place, address)| {
            let priority = u16::try_from(place).unwrap_or(u16::MAX);
            Hint::new(format!("tow://{address}"), priority, 1).ok()
        });
        let hints = hints.take(towpath_content::hint::MAX_HINTS).collect();
        Ticket { oid, node: self.node_id(), secret, hints }.to_string()
    }

    /// Records a lease, if its holder lives.
    pub(crate) fn lease(&self, lease: &Lease) -> Result<(), ApiError> {
        self.store.lease(lease).map_err(|error| errors::store(&error))?;
        if self.sessions.is_alive(&lease.holder) {
            return Ok(());
        }
        // The session ended in between, and with it what it held.
        self.store.done(&lease.oid).map_err(|error| errors::store(&error))?;
        Err(ApiError::new(ErrorKind::Interrupted, "the session ended"))
    }

    /// Evicts what is too much of the cache, at most every few seconds.
    pub(crate) fn trim_cache(&self) -> Result<(), StoreError> {
        let mut trimmed = lock(&self.trimmed);
        if trimmed.is_some_and(|last| last.elapsed() < TRIM_EVERY) {
            return Ok(());
        }
        *trimmed = Some(Instant::now());
        drop(trimmed);
        self.store.evict(&CachePolicy::default()).map(drop)
    }

    fn collect(&self, request: GcRequest) -> Result<GcReply, ApiError> {
        let mut options = GcOptions::default();
        if request.all {
            options.policy.owned_bytes = 0;
        }
        let collected = self.store.gc(&options).map_err(|error| errors::store(&error))?;
        let forgotten = self.shares.forget_sent(|oid| self.store.have(oid).is_ok());
        forgotten.map_err(|error| errors::io("tidy up", &self.home.shares(), &error))?;
        Ok(GcReply {
            objects: collected.evicted.objects,
            bytes: collected.evicted.bytes + collected.bytes,
            entries: collected.files + collected.evicted.files + collected.values,
            leftovers: collected.objects + collected.chunks + collected.temporaries,
            leases: collected.leases,
        })
    }

    /// The lease says from now on whether the ticket for `oid` is honoured, if leases are.
    pub(crate) fn leave_to_lease(&self, oid: &Oid) {
        if self.grants.honours_leases() {
            self.grants.unshare(oid);
        }
    }

    /// Serves `path` until the service ends, under the same ticket as last time if it has not
    /// changed. The ticket comes at once; the returned handle completes when all has been read.
    pub async fn share(self: &Arc<Self>, path: &Path) -> Result<put::Shared, ApiError> {
        put::share(self, path).await
    }

    /// Puts a path and returns when all of it has been read.
    pub async fn put_and_wait(self: &Arc<Self>, path: &Path) -> Result<PutReply, ApiError> {
        let reading = put::put(self, path, Holder::Pinned).await?.reading;
        reading.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
    }

    /// Goes on reading what was put and not completely read when the last daemon ended.
    pub fn resume_puts(self: &Arc<Self>) {
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let leases = service.store.leases().unwrap_or_default();
            for lease in leases.into_iter().filter(|lease| lease.content.is_none()) {
                if open_puts::is_abandoned(&lease) {
                    let _ = service.store.done(&lease.oid);
                }
                let (Some(path), holder) = (lease.path, lease.holder) else { continue };
                match put::put(&service, &path, holder).await {
                    Ok(put) => drop(put.reading.await),
                    Err(error) => tracing::warn!(path = %path.display(), %error, "could not go on reading"),
                }
            }
        });
    }

    /// What nobody leases and the store keeps.
    fn cached_object(&self, cached: &CachedObject) -> Object {
        let kind = self.store.have(&cached.oid).map(|have| have.about.kind).unwrap_or_default();
        Object {
            oid: cached.oid.to_string(),
            content: Some(cached.oid.to_string()),
            kind: kind_name(kind).into(),
            size: Some(cached.size),
            path: None,
            ticket: None,
            created: cached.used,
            held: Held::Cached,
        }
    }

    fn object(&self, lease: &Lease) -> Object {
        Object {
            oid: lease.oid.to_string(),
            content: lease.content.map(|oid| oid.to_string()),
            kind: kind_name(lease.about.kind).into(),
            size: lease.size,
            path: lease.path.as_ref().map(|path| display_name(path.as_os_str().as_encoded_bytes())),
            ticket: Some(self.ticket(lease.oid, lease.secret)),
            created: lease.created,
            held: match lease.holder {
                Holder::Pinned => Held::Pinned,
                Holder::Session(_) => Held::Session,
            },
        }
    }
}

const fn kind_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Blob => "blob",
        ObjectKind::Tree => "tree",
    }
}

/// A user without a home directory, such as a job's, can still have a place for the service.
fn no_home(error: ApiError) -> ApiError {
    match error.hint {
        None => error.hint("set TOW_HOME to a folder that this user may write to"),
        Some(_) => error,
    }
}

fn identity(home: &Home) -> Result<Identity, ApiError> {
    let key = home.key();
    let folder = key.parent().unwrap_or(&key);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| no_home(errors::io("create", folder, &error)))?;
    Identity::load_or_create(&key).map_err(|error| ApiError::new(ErrorKind::Failed, errors::chain(&error)))
}

/// The OID that a ticket or an OID's text names.
pub(crate) fn parse_name(name: &str) -> Result<Oid, ApiError> {
    let parsed = match name.trim().starts_with("tow:") {
        true => name.parse::<Ticket>().map(|ticket| ticket.oid),
        false => name.trim().parse::<Oid>(),
    };
    parsed.map_err(|error| ApiError::new(ErrorKind::Usage, format!("not a ticket or an OID: {error}")))
}

/// The API over a shared service.
#[derive(Clone)]
pub struct InProcess(pub Arc<Service>);

impl InProcess {
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Service) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = Arc::clone(&self.0);
        let working = tokio::task::spawn_blocking(move || work(&service));
        working.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
    }

    /// Runs a get; its events go to everybody who listens, too.
    async fn observed(&self, request: GetRequest, events: mpsc::Sender<Event>) -> Result<Summary, ApiError> {
        let oid = parse_name(&request.ticket).map(|oid| oid.to_string()).unwrap_or_default();
        let transfer = self.0.transfers.begin_get(oid);
        let (teller, mut inbox) = mpsc::channel(1);
        let handing_on = async {
            while let Some(event) = inbox.recv().await {
                transfer.tell(&event);
                let _ = events.send(event).await;
            }
        };
        let (result, ()) = tokio::join!(get::get(&self.0, request, teller), handing_on);
        match &result {
            Ok(summary) => transfer.tell(&Event::Summary(summary.clone())),
            Err(error) => transfer.tell(&Event::Failed(error.clone())),
        }
        result
    }
}

impl Api for InProcess {
    fn put(&self, request: PutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move {
            let holder = self.0.sessions.holder(request.session.as_deref())?;
            Ok(put::put(&self.0, &request.path, holder).await?.reply)
        })
    }

    fn put_stream<'a>(
        &'a self,
        input: Input<'a>,
        ticket: mpsc::Sender<PutReply>,
    ) -> BoxFuture<'a, Result<PutReply, ApiError>> {
        Box::pin(async move { put::put_stream(&self.0, &OpenPutRequest::default(), input, ticket).await })
    }

    fn open_put(&self, request: OpenPutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { open_puts::open(&self.0, &request).map(|(_, reply)| reply) })
    }

    fn put_part<'a>(
        &'a self,
        id: String,
        offset: u64,
        part: Input<'a>,
    ) -> BoxFuture<'a, Result<PartReply, ApiError>> {
        Box::pin(async move { open_puts::append(&self.0, &parse_name(&id)?, offset, part).await })
    }

    fn commit_put(&self, id: String) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { open_puts::commit(&self.0, &parse_name(&id)?).await })
    }

    fn abort_put(&self, id: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move { open_puts::abort(&self.0, &parse_name(&id)?) })
    }

    fn get<'a>(
        &'a self,
        request: GetRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>> {
        Box::pin(self.observed(request, events))
    }

    fn content(&self, request: ContentRequest) -> BoxFuture<'_, Result<Content, ApiError>> {
        Box::pin(async move {
            let opened = content::open(&self.0, &request).await?;
            let (oid, size) = (opened.oid.map(|oid| oid.to_string()), opened.size);
            let bytes = Parts::new(opened.in_order(0..size.unwrap_or(u64::MAX)));
            Ok(Content { oid, size, bytes })
        })
    }

    fn session(&self) -> BoxFuture<'_, Result<Session, ApiError>> {
        Box::pin(async move {
            let open = sessions::Open::begin(&self.0)?;
            Ok(Session { id: open.name(), open: Box::new(open) })
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Vec<Object>, ApiError>> {
        Box::pin(self.blocking(move |service| {
            let leases = service.store.leases().map_err(|error| errors::store(&error))?;
            let mut objects: Vec<_> = leases.iter().map(|lease| service.object(lease)).collect();
            if request.cached {
                let cached = service.store.cached().map_err(|error| errors::store(&error))?;
                objects.extend(cached.iter().map(|cached| service.cached_object(cached)));
            }
            Ok(objects)
        }))
    }

    fn done(&self, name: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(self.blocking(move |service| {
            let oid = parse_name(&name)?;
            match service.store.done(&oid).map_err(|error| errors::store(&error))? {
                true => service.trim_cache().map_err(|error| errors::store(&error)),
                false => Err(ApiError::new(ErrorKind::NotFound, format!("nothing is put as {oid}"))
                    .hint("'tow ls' lists what is")),
            }
        }))
    }

    fn gc(&self, request: GcRequest) -> BoxFuture<'_, Result<GcReply, ApiError>> {
        Box::pin(self.blocking(move |service| service.collect(request)))
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, ApiError>> {
        Box::pin(self.blocking(|service| {
            let leases = service.store.leases().map_err(|error| errors::store(&error))?;
            Ok(Status {
                node: service.node_id().to_string(),
                listening: service.addresses().iter().map(SocketAddr::to_string).collect(),
                version: env!("CARGO_PKG_VERSION").into(),
                objects: leases.len() as u64,
                connections: service.listening.get().map_or(0, Listening::connections),
                sessions: service.sessions.len() as u64,
                open_puts: service.open_puts.len() as u64,
                gets: service.transfers.gets(),
            })
        }))
    }

    fn events(&self) -> BoxFuture<'_, Result<mpsc::Receiver<TransferEvent>, ApiError>> {
        Box::pin(async move { Ok(self.0.transfers.listen()) })
    }
}
