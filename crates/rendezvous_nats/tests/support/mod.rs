//! Real servers on loopback: a cluster of NATS, and rendezvous servers that share their entries by it. Any of them may be killed.

#![allow(dead_code)] // Each test uses some of it.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use towpath_link::Identity;
use towpath_link::tcp::Listener;
use towpath_rendezvous::client::{FoundNodes, Meeting};
use towpath_rendezvous::place::KnownServer;
use towpath_rendezvous::server::ServerLimits;
use towpath_rendezvous::sharing::SharingStatus;
use towpath_rendezvous::{PROTOCOL, RendezvousServer, ServerPlace, listening};
use towpath_rendezvous_nats::{NatsLogin, NatsSettings, share};

/// Far more than anything here takes.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Where `scripts/test-tools.sh` puts NATS, or where it is installed.
fn program() -> Option<PathBuf> {
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools/nats-server");
    let in_path = std::env::var_os("PATH").into_iter();
    let dirs = in_path.flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    std::iter::once(kept).chain(dirs.map(|dir| dir.join("nats-server"))).find(|path| path.is_file())
}

/// Servers of NATS; each is killed when this is dropped.
pub struct Cluster {
    pub addresses: Vec<SocketAddr>,
    program: PathBuf,
    routes: Vec<SocketAddr>,
    running: Vec<Option<Child>>,
    folder: TempDir,
}

impl Cluster {
    /// Starts so many; `None`, with a word, if NATS is not to be had.
    pub fn start(count: usize) -> Option<Self> {
        let Some(program) = program() else {
            assert!(std::env::var_os("CI").is_none(), "nats-server is missing; run scripts/test-tools.sh");
            eprintln!("skipped: nats-server is missing; scripts/test-tools.sh gets it");
            return None;
        };
        // Held all at once, so that they differ.
        let ports: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let mut addresses: Vec<_> = ports.iter().map(|port| port.local_addr().unwrap()).collect();
        drop(ports);
        let routes = addresses.split_off(count);
        let folder = tempfile::tempdir().unwrap();
        let mut cluster =
            Self { addresses, program, routes, running: (0..count).map(|_| None).collect(), folder };
        (0..count).for_each(|number| cluster.run(number));
        Some(cluster)
    }

    /// Starts one (again).
    pub fn run(&mut self, number: usize) {
        let routes: Vec<String> = self.routes.iter().map(|route| format!("\"nats://{route}\"")).collect();
        let cluster = format!(
            "cluster {{ name: test, listen: \"{}\", routes: [{}] }}\n",
            self.routes[number],
            routes.join(", ")
        );
        let text = format!(
            "listen: \"{}\"\nserver_name: n{number}\nmax_payload: 65536\n\
             authorization {{ user: tow, password: secret }}\n{}",
            self.addresses[number],
            if self.routes.len() > 1 { &cluster } else { "" },
        );
        let path = self.folder.path().join(format!("{number}.conf"));
        std::fs::write(&path, text).unwrap();
        let log = self.folder.path().join(format!("{number}.log"));
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(path).arg("-l").arg(log).stdout(Stdio::null()).stderr(Stdio::null());
        self.running[number] = Some(command.spawn().unwrap());
    }

    /// Kills one at once.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut running) = self.running[number].take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// Waits until one that was started again knows the others.
    pub async fn until_whole(&self, number: usize) {
        let joined = async {
            loop {
                let options = ConnectOptions::with_user_and_password("tow".into(), "secret".into());
                let client = options.connect(self.addresses[number].to_string()).await;
                if client.is_ok_and(|client| client.server_info().connect_urls.len() >= self.addresses.len())
                {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(LIMIT, joined).await.expect("the cluster is whole");
    }

    /// For a server that names this one first.
    pub fn settings(&self, first: usize) -> NatsSettings {
        let count = self.addresses.len();
        let addresses =
            (first..first + count).map(|number| format!("nats://{}", self.addresses[number % count]));
        let place = addresses.collect::<Vec<_>>().join(",").parse().unwrap();
        NatsSettings { place, login: NatsLogin::from_line("tow:secret") }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.running.len()).for_each(|number| self.kill(number));
    }
}

/// A rendezvous server that shares its entries.
pub struct SharingServer {
    pub server: Arc<RendezvousServer>,
    pub place: KnownServer,
    pub status: watch::Receiver<SharingStatus>,
    token: CancellationToken,
    sharing: JoinHandle<()>,
}

impl SharingServer {
    pub async fn start(settings: NatsSettings) -> Self {
        let identity = Identity::generate().unwrap();
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind_for(anywhere, &identity, &[PROTOCOL]).await.unwrap();
        let (server, token) = (RendezvousServer::new(ServerLimits::default()), CancellationToken::new());
        let address = listener.address().unwrap().to_string();
        let (serving, ending) = (Arc::clone(&server), token.clone());
        tokio::spawn(listening::accept(listener, token.clone(), move |connection, address| {
            let (serving, ending) = (Arc::clone(&serving), ending.clone());
            async move { serving.serve(connection, address, &ending).await }
        }));
        let status = Arc::new(watch::Sender::new(SharingStatus::Away("not yet".into())));
        let place = ServerPlace { node: identity.node_id(), address };
        let place = KnownServer { place, is_trusted: true };
        let (told, sharing) =
            (status.subscribe(), tokio::spawn(share(Arc::clone(&server), settings, status)));
        Self { server, place, status: told, token, sharing }
    }

    pub async fn until_shared(&mut self) {
        until_status(&mut self.status, |status| *status == SharingStatus::Shared).await;
    }
}

impl Drop for SharingServer {
    fn drop(&mut self) {
        self.token.cancel();
        self.sharing.abort();
    }
}

/// So many that share what they have.
pub async fn servers(cluster: &Cluster, count: usize) -> Vec<SharingServer> {
    let mut servers = Vec::new();
    for number in 0..count {
        servers.push(SharingServer::start(cluster.settings(number)).await);
    }
    for server in &mut servers {
        server.until_shared().await;
    }
    servers
}

pub async fn until_status(
    status: &mut watch::Receiver<SharingStatus>,
    is_it: impl Fn(&SharingStatus) -> bool,
) -> SharingStatus {
    let result =
        timeout(LIMIT, status.wait_for(|status| is_it(status))).await.map(|status| status.unwrap().clone());
    result.unwrap_or_else(|_| panic!("it stays {:?}", *status.borrow()))
}

pub async fn until(meeting: &Meeting, what: impl Fn(&FoundNodes) -> bool) -> FoundNodes {
    let mut found = meeting.found();
    let found = timeout(LIMIT, found.wait_for(|found| what(found))).await.expect("in time").unwrap();
    found.clone()
}
