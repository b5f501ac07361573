//! The service: store, identity, rights and listener put together.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use towpath_store::Leases;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use towpath_api::{ApiError, ErrorKind};
use towpath_content::ticket::{BoundSecret, Enclosed, MAX_ENCLOSED};
use towpath_content::{NodeId, Oid, Ticket};
use towpath_files::display_name;
use towpath_link::Identity;
use towpath_plugins::preferred::Precedence;
use towpath_protocol::processors::Processors;
use towpath_protocol::{Pace, Service as PeerService};
use towpath_store::{
    Availability, ByteKeeping, DiskStore, Holder, Lease, ObjectKind, State, Store, StoreError,
};

use crate::admission::{Admission, Admitted};
use crate::byte_place::byte_keeping;
use crate::left;
use crate::metrics::{Direction, Metrics};
use crate::open_puts::OpenPuts;
use crate::sessions::Sessions;
use crate::transfers::Transfers;
use towpath_config::Home;
use towpath_config::fetch_log::FetchLog;
use towpath_config::shares::Shares;
use towpath_config::{Config, Live};
use towpath_confinement::Writable;
use towpath_content::lock::lock;
use towpath_limits::read_budget::ReadBudget;
use towpath_peer_server::door::{Connections, Door};
use towpath_peer_server::grants::Grants;
use towpath_peer_server::meetings::Meetings;
use towpath_peer_server::withdrawals::Withdrawals;
use towpath_targets::in_flight::Flights;
use towpath_words as words;

/// Interval at which the cache is compared with its limits.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Tickets by which a daemon passes on what it got, at most: each is asked about now and then. What it got last is not passed on then.
const MOST_PASSED_ON: usize = 256;
/// Characters of a word that are shown to whoever gave it.
const SHOWN: usize = 80;

/// Options for starting a service.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Honour the tickets of all leases, as a daemon does. Default: only what is shared by this
    /// process.
    pub serve_leases: bool,
    /// Its configuration.
    pub config: Config,
    /// Processors of every chunk, on its way out and in, besides what `config` adds to it or takes away.
    /// Default: those of this build.
    pub processors: Processors,
    /// Paths that the kernel lets this process write, if it limits that: a get to elsewhere is refused with
    /// words. Default: no limits.
    pub writable: Option<Arc<Writable>>,
}

/// A running service.
pub struct Service {
    pub(crate) home: Home,
    pub(crate) identity: Identity,
    pub(crate) store: Arc<DiskStore>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) withdrawals: Arc<Withdrawals>,
    pub(crate) shares: Arc<Shares>,
    /// Order in which gets go first.
    pub(crate) precedence: Arc<Precedence>,
    processors: Processors,
    pub(crate) open_puts: OpenPuts,
    pub(crate) transfers: Transfers,
    pub(crate) sessions: Sessions,
    pub(crate) in_flight: Flights,
    /// Content on its way to applications.
    pub(crate) read_budget: Arc<ReadBudget>,
    /// Time at which the cache was last looked at.
    trimmed: Mutex<Option<Instant>>,
    /// Places of what is passed on as the configuration says.
    pub(crate) passed_on: Arc<Semaphore>,
    /// Told when there is a lease that ends by itself.
    pub(crate) leased: tokio::sync::Notify,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) admission: Admission,
    pub(crate) config: Live,
    writable: Option<Arc<Writable>>,
    /// Held by whoever indexes.
    pub(crate) indexing: tokio::sync::Mutex<()>,
    pub(crate) door: Door,
    /// Told when the configuration was replaced.
    pub(crate) reconfigured: Arc<tokio::sync::Notify>,
}

impl Service {
    /// Opens the home's key and store.
    pub fn open(home: Home, options: Options) -> Result<Arc<Self>, ApiError> {
        let identity = identity(&home)?;
        let store = open_store(&home, byte_keeping(&options.config.store)?)?;
        let chosen = &options.config.processors;
        let processors = options.processors.configured(chosen.compresses(), &chosen.rules());
        let leases = options.serve_leases.then(|| Arc::clone(&store) as Arc<dyn Leases>);
        let config = Live::new(options.config);
        let shares = Arc::new(Shares::new(home.shares()));
        let withdrawals = Arc::new(Withdrawals::open(Arc::clone(&shares)));
        let grants = Grants::new(identity.clone(), leases, config.clone(), Arc::clone(&withdrawals));
        let grants = Arc::new(grants);
        let peers = PeerService::new(Arc::clone(&store) as Arc<dyn Store>, grants.clone());
        let peers = Arc::new(peers.with_processors(processors.clone()));
        let metrics = Arc::new(Metrics::default());
        let connections = Connections {
            config: config.clone(),
            processors: processors.clone(),
            send_pace: Arc::new(Pace::new(config.get().general.limit_rate.0)),
            served: Arc::clone(&metrics.served),
            withdrawals: Arc::clone(&withdrawals),
        };
        let meetings = Meetings::new(&identity, &grants, config.clone());
        let door = Door::new(
            &identity,
            (&shares, FetchLog::new(home.state())),
            &store,
            peers,
            connections,
            meetings,
        );
        let (open_puts, transfers) = (OpenPuts::default(), Transfers::default());
        let service = Arc::new(Self {
            home,
            identity,
            store,
            grants,
            withdrawals,
            shares,
            precedence: Arc::default(),
            processors,
            admission: Admission::new(config.clone(), Arc::clone(&metrics)),
            metrics,
            writable: options.writable,
            indexing: tokio::sync::Mutex::default(),
            open_puts,
            transfers,
            sessions: Sessions::default(),
            in_flight: Flights::default(),
            read_budget: Arc::new(ReadBudget::new(config.clone())),
            trimmed: Mutex::default(),
            passed_on: Arc::new(Semaphore::new(MOST_PASSED_ON)),
            leased: tokio::sync::Notify::default(),
            config,
            door,
            reconfigured: Arc::default(),
        });
        service.end_expired().map_err(|error| words::store(&error))?;
        Ok(service)
    }

    /// Refuses a destination that the kernel would refuse, with what to do about it.
    pub(crate) fn check_writable(&self, destination: &Path) -> Result<(), ApiError> {
        if self.writable.as_ref().is_none_or(|writable| writable.takes(destination)) {
            return Ok(());
        }
        let shown = display_name(destination.as_os_str().as_encoded_bytes());
        Err(ApiError::new(
            ErrorKind::Refused,
            format!("the daemon confines itself and may not write {shown}"),
        )
        .hint(
            "name its directory in 'write_below' of the daemon's configuration and restart it, or choose \
             another place",
        ))
    }

    /// The service's public key.
    pub fn node_id(&self) -> NodeId {
        self.identity.node_id()
    }

    /// Processors of every chunk.
    pub(crate) const fn processors(&self) -> &Processors {
        &self.processors
    }

    /// Its configuration at the moment.
    pub fn config(&self) -> Arc<Config> {
        self.config.get()
    }

    /// From now on it runs so; transfers and connections go on. Returns the fields that are looked at
    /// only at the next start.
    pub fn reconfigure(&self, config: Config) -> Vec<String> {
        let new = config.clone();
        let old = self.config.set(config);
        *lock(&self.trimmed) = None;
        self.reconfigured.notify_one();
        self.door.connections.send_pace.set(new.general.limit_rate.0);
        old.waits_for_restart(&new)
    }

    /// Where peers come in.
    pub const fn door(&self) -> &Door {
        &self.door
    }

    /// Its objects, leases and recipes.
    pub const fn store(&self) -> &Arc<DiskStore> {
        &self.store
    }

    /// Holder of a put that names `session`, which has to be open; without one it is pinned.
    pub fn holder(&self, session: Option<&str>) -> Result<Holder, ApiError> {
        self.sessions.holder(session)
    }

    /// Lets a copy begin, if the limits allow one more.
    pub fn begin_copy(&self) -> Result<Admitted, ApiError> {
        self.admission.begin_anywhere(Direction::Copy)
    }

    /// A permit to be among those to whom a recipe is sent; waits in line for it.
    pub async fn recipe_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.read_budget.recipe().await
    }

    /// The counters.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The ticket for an object of this service. A small one that is complete is in it, and it names
    /// the content, also of what was live before; but not in one that has terms, which nobody could keep then.
    pub(crate) fn ticket(&self, oid: Oid, secret: BoundSecret) -> String {
        let (hints, BoundSecret { secret, terms }) = (self.door.hints(), secret);
        let (oid, enclosed) = match self.enclosed(&oid).filter(|_| terms.is_none()) {
            Some((content, enclosed)) => (content, Some(enclosed)),
            None => (oid, None),
        };
        Ticket { oid, node: self.node_id(), secret, hints, terms, enclosed }.to_string()
    }

    /// Content that a ticket can hold itself: a small file, as it is now.
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
        // Objects that a processor refuses to let out are refused when they are asked for, as larger objects are.
        let passes = self.processors().pass_whole(&oid, &about.name, &content);
        passes.ok()?;
        let enclosed = Enclosed { name: about.name, mode: about.mode, modified: about.modified, content };
        enclosed.fits(&oid).then_some((oid, enclosed))
    }

    /// Records a lease, if its holder lives.
    pub(crate) fn lease(&self, lease: &Lease) -> Result<(), ApiError> {
        self.store.lease(lease).map_err(|error| words::store(&error))?;
        if self.sessions.is_alive(&lease.holder) {
            if lease.secret.terms.expires.is_some() {
                self.leased.notify_one();
            }
            return Ok(());
        }
        // The session ended in between, and with it what it held.
        self.store.done(&lease.oid).map_err(|error| words::store(&error))?;
        Err(ApiError::new(ErrorKind::Interrupted, "the session ended"))
    }

    /// Evicts what is too much of the cache, at most every few seconds.
    pub fn trim_cache(&self) -> Result<(), StoreError> {
        let mut trimmed = lock(&self.trimmed);
        if trimmed.is_some_and(|last| last.elapsed() < TRIM_EVERY) {
            return Ok(());
        }
        *trimmed = Some(Instant::now());
        drop(trimmed);
        let mut policy = self.config().cache_policy();
        // What is on its way to a site's cache takes up room, too.
        policy.owned_bytes = policy.owned_bytes.saturating_sub(left::bytes(self.home.data()));
        self.metrics.evicted(&self.store.cache().evict(&policy)?);
        Ok(())
    }

    /// The lease says from now on whether the ticket for `oid` is honoured, if leases are.
    pub(crate) fn leave_to_lease(&self, oid: &Oid) {
        if self.grants.honours_leases() {
            self.grants.unshare(oid);
        }
    }
}

/// Opens the home's store, and gives back what applications held that died with their daemon.
fn open_store(home: &Home, keeping: Option<ByteKeeping>) -> Result<Arc<DiskStore>, ApiError> {
    let store = DiskStore::open_with(home.state(), home.data(), keeping);
    let store = store.map_err(|error| no_home(words::store(&error)))?;
    let ended = store.lease_table().end_sessions().map_err(|error| words::store(&error))?;
    if !ended.is_empty() {
        tracing::info!(leases = ended.len(), "ended leases of applications that died with their daemon");
    }
    Ok(Arc::new(store))
}

/// A user without a home directory, such as a job's, can still have a place for the service.
fn no_home(error: ApiError) -> ApiError {
    match error.hint {
        None => error.hint("set TOW_HOME to a folder that this user may write to"),
        Some(_) => error,
    }
}

/// Makes what a service needs before it is confined: its key, which it may not write afterwards, and
/// the folders that its limits name.
pub fn prepare(home: &Home) -> Result<(), ApiError> {
    identity(home)?;
    [home.state(), home.data(), home.runtime()].into_iter().try_for_each(private_folder)
}

fn private_folder(folder: &Path) -> Result<(), ApiError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| no_home(words::io("create", folder, &error)))
}

/// The key of this home, which is made first if there is none.
pub fn identity(home: &Home) -> Result<Identity, ApiError> {
    let key = home.key();
    private_folder(key.parent().unwrap_or(&key))?;
    Identity::load_or_create(&key)
        .map_err(|error| ApiError::new(ErrorKind::Failed, towpath_sync::error::chain(&error)))
}

/// The OID that a ticket or an OID's text names.
pub fn parse_name(name: &str) -> Result<Oid, ApiError> {
    let name = name.trim();
    match name.starts_with("tow:") {
        true => parse_ticket(name).map(|ticket| ticket.oid),
        false => name.parse::<Oid>().map_err(|_| neither(name)),
    }
}

/// A ticket, or what is wrong with it.
pub(crate) fn parse_ticket(text: &str) -> Result<Ticket, ApiError> {
    text.parse::<Ticket>().map_err(|error| {
        let what = error.to_string();
        let message = match what.strip_prefix("ticket: ").or_else(|| what.strip_prefix("ticket ")) {
            Some(what) => format!("the ticket {what}"),
            None => format!("the ticket can't be read: {what}"),
        };
        ApiError::new(ErrorKind::Usage, message)
    })
}

/// Error for a name that is neither a ticket nor an OID.
fn neither(name: &str) -> ApiError {
    let shown: String = display_name(name.as_bytes()).chars().take(SHOWN).collect();
    let message = match ["blake3:", "live:"].iter().any(|begin| name.starts_with(begin)) {
        true => format!("'{shown}' is no OID: 64 of the digits 0 to 9 and a to f follow the colon"),
        false if name.is_empty() => "there is no ticket".into(),
        false => format!("'{shown}' is no ticket: a ticket begins with tow:, a code with a number"),
    };
    ApiError::new(ErrorKind::Usage, message)
}
