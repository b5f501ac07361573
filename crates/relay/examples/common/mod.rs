//! What the examples share: a relay in a process of its own, and two nodes.
#![allow(dead_code)] // Each example uses a part.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tokio_util::sync::CancellationToken;
use towpath_link::{Connection, Identity, Protocol};
use towpath_relay::{
    Quotas, RelayDial, RelayPass, RelayPlace, RelayRules, RelayServer, Waiting, WaitingPlace, call,
};
use wait4::Wait4;

const SECRET: &[u8] = b"examples";

/// If this process was started to be a relay: is one until its input ends.
pub fn relay_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some("--relay") {
        return;
    }
    let key = arguments.next().expect("a key file");
    let address = arguments.next().expect("an address").parse().expect("an address");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(be_relay(key.as_ref(), address));
    std::process::exit(0);
}

async fn be_relay(key: &std::path::Path, address: SocketAddr) {
    let identity = Identity::load_or_create(key).expect("a key");
    let most = 1 << 20;
    let quotas = Quotas {
        connections: most,
        connections_per_node: most,
        connections_per_address: most,
        ..Quotas::default()
    };
    let rules =
        RelayRules { nodes: HashSet::new(), pass: Some(RelayPass::new(SECRET)), public: false, quotas };
    let token = CancellationToken::new();
    let listening = RelayServer::listen(&[address], &identity, rules, &token).await.expect("listen");
    println!("{}@{}", identity.node_id(), listening.addresses[0]);
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = ended.await;
}

/// A relay in a process of its own.
pub struct RelayProcess {
    child: Child,
    pub place: RelayPlace,
}

impl RelayProcess {
    /// Starts one with this key at this address; port 0 for any.
    pub fn start(key: &std::path::Path, address: SocketAddr) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.arg("--relay").arg(key).arg(address.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a relay");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("its first line");
        Self { child, place: line.trim().parse().expect("a place") }
    }

    pub fn address(&self) -> SocketAddr {
        self.place.addresses[0].parse().expect("an address")
    }

    /// Memory in use, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Ends it as kill -9 does; returns the processor seconds it took.
    pub fn kill(mut self) -> f64 {
        self.child.kill().expect("kill");
        let usage = self.child.wait4().expect("wait").rusage;
        (usage.utime + usage.stime).as_secs_f64()
    }
}

/// A node that waits at these relays.
pub fn wait_at(places: &[RelayPlace], identity: &Identity) -> Waiting {
    let pass = Some(RelayPass::new(SECRET));
    let places = places.iter().map(|place| WaitingPlace { place: place.clone(), pass: pass.clone() });
    Waiting::start(places.collect(), identity, &RelayDial::default())
}

/// Both ends of a connection through the first of these relays that works.
pub async fn connected(
    places: &[RelayPlace],
    near: &Identity,
    far: &Identity,
    waiting: &mut Waiting,
) -> (Connection, Connection) {
    let how = RelayDial::default();
    let calling = call(places, near, far.node_id(), Protocol::PEER, &how);
    let accepting = async { waiting.next().await.expect("a call").accept(&[Protocol::PEER]).await };
    let (near, far) = tokio::join!(calling, accepting);
    (near.expect("called"), far.expect("accepted"))
}

/// User and system time of this process so far.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
