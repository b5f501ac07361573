//! Services in this process, each with a home and a socket of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use towpath_api_server::{Socket, serve};
use towpath_config::Home;
use towpath_config::{Config, Limits};
use towpath_service::{Options, Service};

use crate::client::{Connection, Reply, WAIT_LIMIT, call};

/// A daemon.
pub struct Daemon {
    pub service: Arc<Service>,
    pub socket: PathBuf,
    pub dir: TempDir,
    end: Option<oneshot::Sender<()>>,
    runtime: Option<Runtime>,
}

impl Daemon {
    pub fn start() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    pub fn within(dir: TempDir) -> Self {
        Self::at(dir, "")
    }

    /// With its home in a folder of `dir`.
    pub fn at(dir: TempDir, folder: &str) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).max_blocking_threads(4096).enable_all().build().unwrap();
        let home = Home::under(&dir.path().join(folder));
        let socket = home.socket();
        let (end, ended) = oneshot::channel::<()>();
        let service = runtime.block_on(async {
            let listener = Socket::bind(&home.socket()).await.unwrap();
            let service = Service::open(home, Options { serve_leases: true, ..Options::default() }).unwrap();
            service.door().listen(b"test", &["127.0.0.1:0".parse().unwrap()]).await.unwrap();
            service.door().open();
            tokio::spawn(serve(listener, Arc::clone(&service), async { drop(ended.await) }));
            service
        });
        Self { service, socket, dir, end: Some(end), runtime: Some(runtime) }
    }

    /// Changes its limits, as a reload does.
    pub fn limit(&self, change: impl FnOnce(&mut Limits)) {
        let mut config = Config::clone(&self.service.config());
        change(&mut config.limits);
        self.service.reconfigure(config);
    }

    fn end(&mut self) {
        drop(self.end.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// Goes on with what was put before, as a start of the program does.
    pub fn resume(&self) {
        let _inside = self.runtime.as_ref().unwrap().enter();
        self.service.resume();
    }

    pub fn connect(&self) -> Connection {
        Connection::open(&self.socket)
    }

    pub fn call(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        call(&self.socket, method, path, body)
    }

    /// A file in the daemon's folder.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Puts bytes as a stream; returns the ticket and the content's OID.
    pub fn put(&self, bytes: &[u8]) -> (String, String) {
        let mut connection = self.connect();
        connection.request("POST", "/v1/put-stream", &[], bytes);
        let events = connection.reply().with(200).events();
        let (first, last) = (&events[0], &events[events.len() - 1]);
        assert_eq!(last["event"], "summary", "{last}");
        (first["ticket"].as_str().unwrap().into(), last["oid"].as_str().unwrap().into())
    }

    /// The bytes of a ticket, as a stream.
    pub fn content(&self, ticket: &str) -> Reply {
        let body = serde_json::json!({ "ticket": ticket });
        self.call("POST", "/v1/content", Some(body))
    }

    pub fn status(&self) -> Value {
        self.call("GET", "/v1/status", None).with(200).json()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Waits until something is so.
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    within(WAIT_LIMIT, what, is_so);
}

/// The same, for no longer than `patience`.
pub fn within(wait_limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < wait_limit, "waited too long for this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
