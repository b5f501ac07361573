//! The service: store, identity, rights and listener put together, and the local API in process.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_api::{
    Api, ApiError, BoxFuture, ErrorKind, Event, GetRequest, Input, Object, PutReply, PutRequest, Status,
    Summary,
};
use towpath_content::ticket::{Enclosed, MAX_ENCLOSED, Secret};
use towpath_content::{Hint, NodeId, Oid, Ticket};
use towpath_files::display_name;
use towpath_link::Identity;
use towpath_plugins::direct::{Pace, PeerConfig, Service as PeerService};
use towpath_plugins::preferred::Precedence;
use towpath_plugins::processor::{Object as Chunked, Processors};
use towpath_store::{Availability, DiskStore, Lease, ObjectKind, State, Store};
use towpath_transfer::{Metadata, Outcome};

use crate::grants::Grants;
use crate::home::Home;
use crate::listen::{Listening, listen};
use crate::shares::Shares;
use crate::{errors, get, put};

/// How a service is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Honour the tickets of all leases, as a daemon does. Default: only what is shared by this
    /// process.
    pub serve_leases: bool,
    /// Bytes per second that go out, 0 for no limit.
    pub limit_rate: u64,
    /// What every chunk passes, on its way out and in. Default: those of this build.
    pub processors: Processors,
}

/// A running service.
pub struct Service {
    pub(crate) home: Home,
    pub(crate) identity: Identity,
    pub(crate) store: Arc<DiskStore>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) shares: Shares,
    /// Which gets go first.
    pub(crate) precedence: Arc<Precedence>,
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
        let grants = Arc::new(Grants::new(identity.clone(), leases));
        let peers = PeerService::new(Arc::clone(&store) as Arc<dyn Store>, grants.clone());
        let peers = Arc::new(peers.with_processors(options.processors.clone()));
        let shares = Shares::new(home.shares());
        let listening = tokio::sync::OnceCell::new();
        Ok(Arc::new(Self {
            home,
            identity,
            store,
            grants,
            shares,
            precedence: Arc::default(),
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
        PeerConfig {
            send_pace: Arc::new(Pace::new(self.options.limit_rate)),
            processors: self.processors().clone(),
            ..PeerConfig::default()
        }
    }

    /// What every chunk passes.
    pub(crate) const fn processors(&self) -> &Processors {
        &self.options.processors
    }

    /// The addresses it listens on; none if it does not.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening.get().map(|listening| listening.addresses().to_vec()).unwrap_or_default()
    }

    /// The ticket for an object of this service. A small one that is complete is in it, and it names
    /// the content, also of what was live before.
    pub(crate) fn ticket(&self, oid: Oid, secret: Secret) -> String {
        let hints = self.addresses().into_iter().enumerate().filter_map(|(place, address)| {
            let priority = u16::try_from(place).unwrap_or(u16::MAX);
            Hint::new(format!("tow://{address}"), priority, 1).ok()
        });
        let hints = hints.take(towpath_content::hint::MAX_HINTS).collect();
        let (oid, enclosed) = match self.enclosed(&oid) {
            Some((content, enclosed)) => (content, Some(enclosed)),
            None => (oid, None),
        };
        Ticket { oid, node: self.node_id(), secret, hints, enclosed }.to_string()
    }

    /// What a ticket can hold itself: a small file, as it is now.
    fn enclosed(&self, oid: &Oid) -> Option<(Oid, Enclosed)> {
        let (oid, have) = match (*oid, self.store.have(oid).ok()?) {
            (oid, have) if have.state == State::Complete => (oid, have),
            (_, Availability { state: State::Bound(content), .. }) => {
                (content, self.store.have(&content).ok()?)
            }
            _ => return None,
        };
        let is_small = have.layout.size() <= MAX_ENCLOSED as u64;
        let about = Some(have.about).filter(|about| is_small && about.kind == ObjectKind::Blob)?;
        let mut content = Vec::new();
        self.store.read_piece(&oid, 0, &mut content).ok()?;
        // What a processor refuses to let out is refused when it is asked for, as larger objects are.
        let passes = passes(self.processors(), &oid, &about.name, &content);
        passes.ok()?;
        let enclosed = Enclosed { name: about.name, mode: about.mode, modified: about.modified, content };
        enclosed.fits(&oid).then_some((oid, enclosed))
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

    /// What was put as `oid`, or became it: the ticket of a small object names its content.
    fn leased(&self, oid: Oid) -> Oid {
        let leases = self.store.leases().unwrap_or_default();
        match leases.iter().any(|lease| lease.oid == oid) {
            true => oid,
            false => leases.iter().find(|lease| lease.content == Some(oid)).map_or(oid, |lease| lease.oid),
        }
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

/// Whether an object that rides along, in a ticket or a descriptor, may pass.
pub(crate) fn passes(processors: &Processors, oid: &Oid, name: &[u8], content: &[u8]) -> Result<(), Outcome> {
    let metadata = Metadata::default();
    let object = Chunked { oid, name, size: Some(content.len() as u64), metadata: &metadata };
    processors.admit(&object)?;
    processors.inspect(&object, 0, content)
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

impl Api for InProcess {
    fn put(&self, request: PutRequest) -> BoxFuture<'_, Result<PutReply, ApiError>> {
        Box::pin(async move { Ok(put::put(&self.0, &request.path).await?.reply) })
    }

    fn put_stream<'a>(
        &'a self,
        input: Input<'a>,
        ticket: mpsc::Sender<PutReply>,
    ) -> BoxFuture<'a, Result<PutReply, ApiError>> {
        Box::pin(put::put_stream(&self.0, input, ticket))
    }

    fn get<'a>(
        &'a self,
        request: GetRequest,
        events: mpsc::Sender<Event>,
    ) -> BoxFuture<'a, Result<Summary, ApiError>> {
        Box::pin(get::get(&self.0, request, events))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Object>, ApiError>> {
        Box::pin(async move {
            let leases = self.0.store.leases().map_err(|error| errors::store(&error))?;
            Ok(leases.iter().map(|lease| self.0.object(lease)).collect())
        })
    }

    fn done(&self, name: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move {
            let oid = self.0.leased(parse_name(&name)?);
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
                connections: self.0.listening.get().map_or(0, Listening::connections),
            })
        })
    }
}
