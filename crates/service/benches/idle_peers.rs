//! Memory of a service for each peer that is connected, by TLS over loopback, and watches an object that it has proved a right to,
//! but has nothing to do at the moment.
//!
//! `cargo bench -p towpath-service --bench idle_peers`. The service is this process, and counts what the kernel says is
//! resident (`VmRSS`). The peers are another process. Resident memory is measured with 100 and with 1,000 of them, after
//! pings have gone both ways; what lies between is divided by 900. Fails if that is over 64 KiB, or if the watch takes over 4.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "it measures, and says what it measured")]

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::time::{interval, sleep};
use towpath_config::{Config, Count, Home};
use towpath_content::{NodeId, Oid, Ticket};
use towpath_link::tcp::{DialConfig, dial};
use towpath_link::{Connection, Identity};
use towpath_protocol::wire::{Body, Describe, Hello, Ping, Prove, VERSION, oid_field};
use towpath_service::put::share;
use towpath_service::{Options, PutSource, Service};

const FEW: usize = 100;
const MANY: usize = 1000;
/// Each peer sends a ping so often, as the service does.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Time in which all have pinged twice.
const SETTLED: Duration = Duration::from_secs(12);
/// Looks of which the average counts.
const LOOKS: u32 = 20;
const MOST: f64 = 64.0;
const MOST_OF_WATCH: f64 = 4.0;

fn main() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let words: Vec<String> = std::env::args().collect();
    match words.iter().position(|word| word == "peers").map(|at| &words[at + 1..]) {
        Some([ticket, address, how]) => run(peers(ticket, address, how == "watch")),
        _ => run(measure()),
    }
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work);
}

/// Two services, one after the other, as what one has freed would serve the other one: each in a process of its own.
async fn measure() {
    let Some(how) = std::env::var_os("IDLE_PEERS") else {
        let [proved, watching] = ["prove", "watch"].map(|how| {
            let out = Command::new(std::env::current_exe().unwrap()).env("IDLE_PEERS", how).output().unwrap();
            String::from_utf8(out.stdout).unwrap().trim().parse::<f64>().unwrap()
        });
        println!(
            "{watching:.1} KiB for each peer that watches, of which the watch takes {:.1}",
            watching - proved
        );
        assert!(watching <= MOST && watching - proved <= MOST_OF_WATCH, "too much");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (_service, ticket, address) = serve(folder.path()).await;
    let mut peers = Peers::start(&ticket, address, how.to_str().unwrap());
    let (few, many) = (peers.resident_with(FEW).await, peers.resident_with(MANY).await);
    println!("{}", (many - few) / (MANY - FEW) as f64);
}

/// A service that shares a file, and lets many in from one address.
async fn serve(folder: &Path) -> (Arc<Service>, String, SocketAddr) {
    let mut config = Config::default();
    let limits = &mut config.limits;
    (limits.connections, limits.connections_per_address) = (Count(2 * MANY as u64), Count(2 * MANY as u64));
    let service =
        Service::open(Home::under(&folder.join("home")), Options { config, ..Options::default() }).unwrap();
    let addresses = service.door().listen(b"bench", &["127.0.0.1:0".parse().unwrap()]).await.unwrap();
    let path = folder.join("shared");
    std::fs::write(&path, vec![7; 3 << 20]).unwrap();
    let source = PutSource::new(std::slice::from_ref(&path), &[], None).unwrap();
    let shared = share(&service, source, towpath_content::ticket::Terms::default()).await.unwrap();
    service.door().open();
    shared.reading.await.unwrap().unwrap();
    (service, shared.reply.ticket, addresses[0])
}

/// KiB of this process that are resident.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The other process.
struct Peers {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Peers {
    fn start(ticket: &str, address: SocketAddr, how: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["peers", ticket, &address.to_string(), how])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// KiB that are resident once there are so many in all, and these are idle.
    async fn resident_with(&mut self, count: usize) -> f64 {
        writeln!(self.process.stdin.as_mut().unwrap(), "{count}").unwrap();
        // It says so. The service has threads of its own.
        self.lines.read_line(&mut String::new()).unwrap();
        sleep(SETTLED).await;
        let mut sum = 0.0;
        for _ in 0..LOOKS {
            sleep(PING_EVERY / LOOKS).await;
            sum += resident();
        }
        sum / f64::from(LOOKS)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Peers, as many as is asked for in lines.
async fn peers(ticket: &str, address: &str, watches: bool) {
    let (ticket, address): (Ticket, SocketAddr) = (ticket.parse().unwrap(), address.parse().unwrap());
    let mut count = 0;
    for line in std::io::stdin().lines() {
        let wanted: usize = line.unwrap().parse().unwrap();
        while count < wanted {
            let peer = IdlePeer::connect(&ticket, address, watches).await;
            tokio::spawn(peer.stay());
            count += 1;
        }
        println!("{count} are there");
    }
}

/// One that pings, and does nothing else.
struct IdlePeer(Connection);

impl IdlePeer {
    async fn connect(ticket: &Ticket, address: SocketAddr, watches: bool) -> Self {
        let identity = Identity::generate().unwrap();
        let node: NodeId = ticket.node;
        let mut peer = Self(dial(address, &identity, node, &DialConfig::default()).await.unwrap());
        let hello = Hello { version: VERSION, ..Hello::default() };
        let proof = ticket.secret.prove(&peer.0.binding, &identity.node_id(), &ticket.oid);
        let root: Oid = ticket.oid;
        let prove = Prove { root: oid_field(&root), proof: Bytes::copy_from_slice(&proof) };
        let question =
            Describe { request: 1, root: oid_field(&root), oid: oid_field(&root), ..Describe::default() };
        peer.say(Body::Hello(hello)).await;
        peer.say(Body::Prove(prove)).await;
        peer.say(Body::Describe(question.clone())).await;
        peer.hear(|body| matches!(body, Body::Done(_))).await;
        if watches {
            peer.say(Body::Watch(Describe { request: 2, follow: true, ..question })).await;
            peer.hear(|body| matches!(body, Body::Have(_))).await;
        }
        peer
    }

    async fn say(&mut self, body: Body) {
        self.0.writer.send_bytes(0, &[], body.to_frame()).await.unwrap();
        self.0.writer.flush().await.unwrap();
    }

    async fn hear(&mut self, is_it: impl Fn(&Body) -> bool) {
        while !is_it(&Body::from_frame(self.0.reader.next().await.unwrap().unwrap().body).unwrap()) {}
    }

    async fn stay(mut self) {
        let mut pings = interval(PING_EVERY);
        loop {
            tokio::select! {
                _ = pings.tick() => self.say(Body::Ping(Ping::default())).await,
                frame = self.0.reader.next() => drop(frame.unwrap().expect("the service stays")),
            }
        }
    }
}
