//! Services, peers and targets of tests, all in one process.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use towpath_content::pieces::Value;
use towpath_content::ticket::{BoundSecret, Secret};
use towpath_content::{Hint, NodeId, Oid};
use towpath_link::tcp::Listener;
use towpath_link::{Connection, Identity, doubles};
use towpath_protocol::wire::{Body, Hello, VERSION};
use towpath_protocol::{Issuer, Peer, PeerConfig, Service};
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::ledger::LedgerConfig;
use towpath_transfer::{Context, ObjectRequest, SessionConfig, Target};

pub const LIMIT: Duration = Duration::from_secs(30);
pub const PIECE: usize = 1 << 18;
pub const SECRET: Secret = Secret([7; 16]);

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 249 + i) as u8 ^ seed).collect()
}

/// Puts `data`; returns its OID.
pub fn put(store: &MemoryStore, data: &[u8], about: &About) -> Oid {
    let mut name = *Oid::of(data).digest();
    name[0] ^= 1;
    let live = Oid::Live(name);
    store.put_init(&live, about).unwrap();
    store.put_data(&live, data).unwrap();
    store.put_commit(&live).unwrap()
}

/// Knows the secrets of some roots.
pub struct Keys {
    pub identity: Identity,
    pub secrets: HashMap<Oid, Secret>,
    pub allow_all: bool,
}

impl Issuer for Keys {
    fn secret(&self, root: &Oid) -> Option<BoundSecret> {
        self.secrets.get(root).map(|secret| (*secret).into())
    }

    fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
        self.allow_all
    }

    fn is_known(&self, _node: &NodeId) -> bool {
        self.allow_all
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.identity.sign(message)
    }
}

/// Something that listens on the loopback interface until it is dropped.
pub struct Listening {
    pub address: SocketAddr,
    pub node: NodeId,
    _tasks: JoinSet<()>,
}

/// Two connected ends.
pub async fn connected() -> (Connection, Connection) {
    let node = || Identity::generate().unwrap().node_id();
    let [near, far] = doubles::connected([node(), node()]).await;
    (near, far)
}

/// Hands each connection to `serve`.
pub async fn listen<F: Future<Output = ()> + Send + 'static>(
    identity: &Identity,
    serve: impl Fn(Connection) -> F + Send + Sync + 'static,
) -> Listening {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), identity).await.unwrap();
    let address = listener.address().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let pending = listener.accept().await.unwrap();
            if let Ok(connection) = pending.handshake(LIMIT).await {
                connections.spawn(serve(connection));
            }
        }
    });
    Listening { address, node: identity.node_id(), _tasks: tasks }
}

/// A line that carries so many bytes a second, one delivery after the other.
pub struct Line {
    rate: u64,
    turn: tokio::sync::Mutex<()>,
}

impl Line {
    pub fn new(rate: u64) -> Self {
        Self { rate, turn: tokio::sync::Mutex::default() }
    }

    /// Takes as long as so many bytes do.
    pub async fn carry(&self, bytes: usize) {
        let _turn = self.turn.lock().await;
        tokio::time::sleep(Duration::from_secs_f64(bytes as f64 / self.rate as f64)).await;
    }
}

/// Looks again and again whether it is so, where nothing tells: whether it was soon enough.
pub async fn is_soon(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, looking).await.is_ok()
}

/// A real service over `store` that honours tickets with [`SECRET`] for `roots`.
pub async fn serve(store: Arc<MemoryStore>, roots: &[Oid]) -> Listening {
    serve_with(store, roots, |service| service).await
}

/// The same, perhaps with every node allowed.
pub async fn serve_to(store: Arc<MemoryStore>, roots: &[Oid], allow_all: bool) -> Listening {
    serve_as(store, roots, allow_all, |service| service).await
}

/// The same, with a service that is changed before it begins.
pub async fn serve_with(
    store: Arc<MemoryStore>,
    roots: &[Oid],
    change: impl FnOnce(Service) -> Service,
) -> Listening {
    serve_as(store, roots, false, change).await
}

async fn serve_as(
    store: Arc<MemoryStore>,
    roots: &[Oid],
    allow_all: bool,
    change: impl FnOnce(Service) -> Service,
) -> Listening {
    let identity = Identity::generate().unwrap();
    let secrets = roots.iter().map(|root| (*root, SECRET)).collect();
    let keys = Keys { identity: identity.clone(), secrets, allow_all };
    let service = Arc::new(change(Service::new(store, Arc::new(keys))));
    listen(&identity, move |connection| {
        let config = PeerConfig { from_anyone: true, ..PeerConfig::default() };
        let peer = Peer::start(connection, config, Some(Arc::clone(&service)));
        async move { peer.closed().await }
    })
    .await
}

impl Listening {
    /// Context of a ticket for `root` here.
    pub fn context(&self, root: Oid) -> Context {
        let hint = Hint::new(format!("tow://{}", self.address), 0, 0).unwrap();
        let hints = watch::channel(vec![hint]).1;
        Context { root, node: Some(self.node), secret: Some(SECRET.into()), hints }
    }
}

/// A target in memory.
#[derive(Default)]
pub struct Memory {
    pub bytes: Mutex<Vec<u8>>,
    pub completed: Mutex<Option<Oid>>,
}

impl Memory {
    pub fn expect(&self, data: &[u8]) {
        assert_eq!(*self.completed.lock().unwrap(), Some(Oid::of(data)));
        assert!(self.bytes.lock().unwrap()[..] == *data, "other bytes");
    }
}

impl Target for Memory {
    fn begin(&self, _size: Option<u64>, _about: &About) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        let (mut bytes, end) = (self.bytes.lock().unwrap(), offset as usize + new.len());
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(new);
        Ok(())
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.write(range.start, &vec![0; (range.end - range.start) as usize])
    }

    fn complete(&self, oid: &Oid, _size: u64, _values: Vec<Value>) -> io::Result<()> {
        *self.completed.lock().unwrap() = Some(*oid);
        Ok(())
    }
}

pub fn request(oid: Oid, size: Option<u64>, target: &Arc<Memory>) -> ObjectRequest {
    ObjectRequest { oid, size, group: Arc::default(), target: target.clone(), recipe: None }
}

/// A session that soon loses its patience.
pub fn impatient(wait_limit: Duration) -> SessionConfig {
    SessionConfig { ledger: LedgerConfig { max_bad: 2, wait_limit }, workers: 2, ..SessionConfig::default() }
}

/// A hello with capabilities.
pub fn hello(capabilities: &[&str]) -> Body {
    Body::Hello(Hello {
        version: VERSION,
        capabilities: capabilities.iter().map(|&name| name.to_owned()).collect(),
        ..Hello::default()
    })
}
