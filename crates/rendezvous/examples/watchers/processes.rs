//! The server in a process of its own on the first core, and processes of watchers on the others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use towpath_link::Identity;
use towpath_link::tcp::Listener;
use towpath_rendezvous::server::ServerLimits;
use towpath_rendezvous::{PROTOCOL, RendezvousServer, ServerPlace, listening};

/// Is the server until its input ends.
pub fn be_server(key: &Path, address: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let identity = Identity::load_or_create(key).expect("a key");
        let listener = Listener::bind_for(address, &identity, &[PROTOCOL]).await.expect("a port");
        println!("{}@{}", identity.node_id(), listener.address().expect("an address"));
        // All come from one address here.
        let server =
            RendezvousServer::new(ServerLimits { per_address: usize::MAX, ..ServerLimits::default() });
        let (serving, token) = (Arc::clone(&server), CancellationToken::new());
        let ending = token.clone();
        tokio::spawn(listening::accept(listener, token, move |connection, address| {
            let (serving, ending) = (Arc::clone(&serving), ending.clone());
            async move { serving.serve(connection, address, &ending).await }
        }));
        tokio::spawn(async move { server.keep_tidy().await });
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
    });
}

/// This process (`self`) or another one shall run on this core, or on all from it on, if it is not the first.
pub fn pin(process: &str, core: usize) {
    let process = if process == "self" { std::process::id().to_string() } else { process.to_owned() };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let list = if core == 0 || cores == 1 { "0".to_owned() } else { format!("{core}-{}", cores - 1) };
    let pinned = Command::new("taskset").args(["-acp", &list, &process]).stdout(Stdio::null()).status();
    if !pinned.is_ok_and(|status| status.success()) {
        println!("taskset is missing: processes run on any core");
    }
}

/// See the head of this module.
pub struct ServerProcess {
    child: Child,
    pub place: ServerPlace,
}

impl ServerProcess {
    /// Starts one with this key at this address; port 0 for any.
    pub fn start(key: &Path, address: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("--server").arg(key).arg(address.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a server");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output"))
            .read_line(&mut line)
            .expect("its first line");
        pin(&child.id().to_string(), 0);
        Self { child, place: line.trim().parse().expect("a place") }
    }

    /// Kills it as kill -9 does, and starts it again.
    pub fn restart(mut self, key: &Path) -> Self {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
        Self::start(key, self.place.address.parse().expect("an address"))
    }

    /// Memory in use, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
    }

    /// User and system time so far.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let ticks = stat.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok());
        ticks.sum::<f64>() / 100.0
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Some watchers.
pub struct WatcherProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl WatcherProcess {
    /// Starts so many, from the one with this number on.
    pub fn start(place: &ServerPlace, topics: usize, first: usize, count: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("--watchers").arg(place.to_string()).args([topics, first, count].map(|n| n.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("watchers");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, output }
    }

    /// Waits until all have been told what there is, over so many connections each.
    pub fn until_told(&mut self, connections: usize) {
        let expected = format!("told {connections}\n");
        let mut line = String::new();
        while line != expected {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).expect("a line"), 0, "the watchers ended");
        }
    }

    /// Ends it. Returns the microseconds from a change to when it was told, of changes from `from` on.
    pub fn delays(mut self, from: u64) -> Vec<u64> {
        self.child.stdin.take().expect("its input").write_all(b"\n").expect("it listens");
        let lines: Vec<String> = self.output.by_ref().lines().map_while(Result::ok).collect();
        let both = |line: &String| {
            let (at, delay) = line.split_once(' ')?;
            Some((at.parse::<u64>().ok()?, delay.parse::<u64>().ok()?))
        };
        let told = lines.iter().filter_map(both);
        told.filter(|(at, _)| *at >= from).map(|(_, delay)| delay).collect()
    }
}

impl Drop for WatcherProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
