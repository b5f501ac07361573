//! The service: store, identity, rights and listener put together, and the local API in process.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::{
    Api, ApiError, BoxFuture, ErrorKind, Event, GetRequest, Input, Object, PutReply, PutRequest, Status,
    Summary,
};
use towpath_content::ticket::Secret;
use towpath_content::{Hint, NodeId, Oid, Ticket};
use towpath_files::display_name;
use towpath_link::Identity;
use towpath_link::tcp::Listener;
use towpath_plugins::direct::{Pace, PeerConfig, Service as PeerService};
use towpath_store::{DiskStore, Lease, ObjectKind, Store};

use crate::admission::Admission;
use crate::config::{Config, Live};
use crate::doors::Doors;
use crate::ending::{self, Ending, UnderWay};
use crate::grants::Grants;
use crate::home::Home;
use crate::listen::{self, Listening, Serving};
use crate::lock::lock;
use crate::metrics::{Direction, Metrics, Watch};
use crate::shares::Shares;
use crate::{errors, get, put};

/// How a service is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Honour the tickets of all leases, as a daemon does. Default: only what is shared by this
    /// process.
    pub serve_leases: bool,
    /// How it runs.
    pub config: Config,
}

/// A running service.
pub struct Service {
    pub(crate) home: Home,
    pub(crate) identity: Identity,
    pub(crate) store: Arc<DiskStore>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) shares: Shares,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) doors: Arc<Doors>,
    pub(crate) admission: Admission,
    config: Live,
    send_pace: Mutex<Arc<Pace>>,
    peers: Arc<PeerService>,
    listening: tokio::sync::OnceCell<Listening>,
}

impl Service {
    /// Opens the home's key and store.
    pub fn open(home: Home, options: Options) -> Result<Arc<Self>, ApiError> {
        let identity = identity(&home)?;
        let store = DiskStore::open(home.state(), home.data());
        let store = Arc::new(store.map_err(|error| no_home(errors::store(&error)))?);
        let leases = options.serve_leases.then(|| Arc::clone(&store) as Arc<dyn Store>);
        let send_pace = Mutex::new(Arc::new(Pace::new(options.config.general.limit_rate.0)));
        let config = Live::new(options.config);
        let grants = Arc::new(Grants::new(identity.clone(), leases, config.clone()));
        let peers = Arc::new(PeerService::new(Arc::clone(&store) as Arc<dyn Store>, grants.clone()));
        let shares = Shares::new(home.shares());
        let listening = tokio::sync::OnceCell::new();
        let metrics = Arc::new(Metrics::default());
        Ok(Arc::new(Self {
            home,
            identity,
            store,
            grants,
            shares,
            doors: Arc::new(Doors::new(config.clone())),
            admission: Admission::new(config.clone(), Arc::clone(&metrics)),
            metrics,
            config,
            send_pace,
            peers,
            listening,
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

    /// Listens for peers; they wait until [`Self::open_doors`]. `user` names who listens, so that
    /// the same one gets the same port again; `addresses` are what a person asked for.
    pub async fn listen(
        self: &Arc<Self>,
        user: &[u8],
        addresses: &[SocketAddr],
    ) -> Result<Vec<SocketAddr>, ApiError> {
        self.listen_at(listen::sockets(&self.identity, &self.shares, user, addresses)).await
    }

    /// The same at sockets that another program, such as systemd, listens on already.
    pub async fn listen_inherited(
        self: &Arc<Self>,
        sockets: Vec<std::net::TcpListener>,
    ) -> Result<Vec<SocketAddr>, ApiError> {
        let inherited = sockets.into_iter().map(|socket| listen::inherit(&self.identity, socket));
        self.listen_at(async { inherited.collect() }).await
    }

    async fn listen_at(
        self: &Arc<Self>,
        sockets: impl Future<Output = Result<Vec<Listener>, ApiError>>,
    ) -> Result<Vec<SocketAddr>, ApiError> {
        let service = Arc::downgrade(self);
        let config =
            move || service.upgrade().map_or_else(PeerConfig::default, |service| service.peer_config());
        let serving = Serving {
            service: Arc::clone(&self.peers),
            config: Box::new(config),
            doors: Arc::clone(&self.doors),
        };
        let start = async || Listening::start(sockets.await?, serving);
        let listening = self.listening.get_or_try_init(start).await?;
        Ok(listening.addresses().to_vec())
    }

    fn peer_config(&self) -> PeerConfig {
        let (send_pace, traffic) = (Arc::clone(&lock(&self.send_pace)), Arc::clone(&self.metrics.served));
        PeerConfig { send_pace, traffic, ..PeerConfig::default() }
    }

    /// How it runs at the moment.
    pub fn config(&self) -> Arc<Config> {
        self.config.get()
    }

    /// From now on it runs so; transfers and connections go on. Returns the fields that are looked at
    /// only at the next start.
    pub fn reconfigure(&self, config: Config) -> Vec<String> {
        let new = config.clone();
        let old = self.config.set(config);
        if old.general.limit_rate != new.general.limit_rate {
            *lock(&self.send_pace) = Arc::new(Pace::new(new.general.limit_rate.0));
        }
        old.waits_for_restart(&new)
    }

    /// Evicts what is more than may be kept of what nobody holds a lease of. Blocks.
    pub fn trim_cache(&self) {
        match self.store.evict(&self.config().cache_policy()) {
            Ok(evicted) => self.metrics.evicted(&evicted),
            Err(error) => tracing::warn!(%error, "the cache could not be trimmed"),
        }
    }

    /// What was counted so far.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Lets nothing new begin, and waits for what is under way, but not for longer than the
    /// configured grace.
    pub async fn drain(&self) {
        self.admission.end();
        if let Some(listening) = self.listening.get() {
            listening.close();
        }
        let grace = Duration::from_secs(self.config().general.grace.0);
        let under_way = || UnderWay {
            transfers: self.admission.transfers(),
            connections: self.doors.connections(),
            sent: self.metrics.served.sent(),
        };
        let mut ending = Ending::new(Instant::now(), grace, under_way().sent);
        while !ending.is_over(Instant::now(), under_way()) {
            tokio::time::sleep(ending::LOOK_EVERY).await;
        }
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

    /// Serves `path` until the service ends, under the same ticket as last time if it has not
    /// changed. The ticket comes at once; the returned handle completes when all has been read.
    pub async fn share(self: &Arc<Self>, path: &Path) -> Result<put::Shared, ApiError> {
        put::share(self, path).await
    }

    /// Puts a path and returns when all of it has been read.
    pub async fn put_and_wait(self: &Arc<Self>, path: &Path) -> Result<PutReply, ApiError> {
        let reading = put::put(self, path).await?.reading;
        reading.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?
    }

    /// Goes on reading what was put and not completely read when the last daemon ended.
    pub fn resume_puts(self: &Arc<Self>) {
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let leases = service.store.leases().unwrap_or_default();
            for path in
                leases.iter().filter(|lease| lease.content.is_none()).filter_map(|lease| lease.path.clone())
            {
                match put::put(&service, &path).await {
                    Ok(put) => drop(put.reading.await),
                    Err(error) => tracing::warn!(path = %path.display(), %error, "could not go on reading"),
                }
            }
        });
    }

    fn object(&self, lease: &Lease) -> Object {
        Object {
            oid: lease.oid.to_string(),
            content: lease.content.map(|oid| oid.to_string()),
            kind: if lease.about.kind == ObjectKind::Tree { "tree" } else { "blob" }.into(),
            size: lease.size,
            path: lease.path.as_ref().map(|path| display_name(path.as_os_str().as_encoded_bytes())),
            ticket: self.ticket(lease.oid, lease.secret),
            created: lease.created,
        }
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
    /// Runs a get within the limits, and counts what it brings.
    async fn counted(&self, request: GetRequest, events: mpsc::Sender<Event>) -> Result<Summary, ApiError> {
        let place = request.output.as_ref().unwrap_or(&request.directory);
        let admitted = self.0.admission.begin(Direction::Get, place)?;
        let mut watch = Watch::new(Arc::clone(&self.0.metrics));
        let (teller, mut inbox) = mpsc::channel(1);
        let handing_on = async {
            while let Some(event) = inbox.recv().await {
                watch.event(&event);
                let _ = events.send(event).await;
            }
        };
        let (result, ()) = tokio::join!(get::get(&self.0, request, teller), handing_on);
        if let Ok(summary) = &result {
            watch.summary(summary);
            admitted.done();
        }
        result
    }
}

impl Api for InProcess {
    fn put(&self, request: PutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { Ok(put::put(&self.0, &request.path).await?.reply) })
    }

    fn put_stream<'a>(
        &'a self,
        input: Input<'a>,
        ticket: mpsc::Sender<PutReply>,
    ) -> BoxFuture<'a, Result<PutReply, ApiError>> {
        Box::pin(async move {
            let admitted = self.0.admission.begin(Direction::Put, self.0.home.data())?;
            let result = put::put_stream(&self.0, input, ticket).await;
            if result.is_ok() {
                admitted.done();
            }
            result
        })
    }

    fn get<'a>(
        &'a self,
        request: GetRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>> {
        Box::pin(self.counted(request, events))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Object>, ApiError>> {
        Box::pin(async move {
            let leases = self.0.store.leases().map_err(|error| errors::store(&error))?;
            Ok(leases.iter().map(|lease| self.0.object(lease)).collect())
        })
    }

    fn done(&self, name: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move {
            let oid = parse_name(&name)?;
            match self.0.store.done(&oid).map_err(|error| errors::store(&error))? {
                true => Ok(()),
                false => Err(ApiError::new(ErrorKind::NotFound, format!("nothing is put as {oid}"))
                    .hint("'tow ls' lists what is")),
            }
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, ApiError>> {
        Box::pin(async move {
            let leases = self.0.store.leases().map_err(|error| errors::store(&error))?;
            Ok(Status {
                node: self.0.node_id().to_string(),
                listening: self.0.addresses().iter().map(SocketAddr::to_string).collect(),
                version: env!("CARGO_PKG_VERSION").into(),
                objects: leases.len() as u64,
                connections: self.0.doors.connections(),
            })
        })
    }
}
