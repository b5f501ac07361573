//! Strangers at a service's port: whoever has a ticket gets in nevertheless, and nobody without one stays.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use towpath_api::GetRequest;
use towpath_config::Home;
use towpath_config::{Config, Count};
use towpath_content::ticket::Terms;
use towpath_limits::connection_limits::Excess;
use towpath_link::tcp::{DialConfig, Listener, dial};
use towpath_link::{Connection, Identity};
use towpath_peer_server::fetches::Fetches;
use towpath_peer_server::listen::{ListenerServing, Listening};
use towpath_protocol::wire::{Body, Hello, Ping, VERSION};
use towpath_protocol::{Peer, PeerConfig};
use towpath_service::get::get;
use towpath_service::put::share;
use towpath_service::{Options, PutSource, Service};
use towpath_store::MemoryStore;

use support::{LIMIT, pattern, service};

#[path = "../../ssh/tests/it/support.rs"]
mod support;

const DATA: usize = 3 << 20;

struct Scene {
    folder: TempDir,
    service: Arc<Service>,
    address: SocketAddr,
    ticket: String,
}

fn home(folder: &TempDir, name: &str) -> Home {
    Home::under(&folder.path().join(name))
}

/// A service that shares a file.
async fn scene(change: impl FnOnce(&mut Config)) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    change(&mut config);
    let service = Service::open(home(&folder, "sender"), Options { config, ..Options::default() }).unwrap();
    let addresses = service.door().listen(b"test", &["127.0.0.1:0".parse().unwrap()]).await.unwrap();
    let path = folder.path().join("shared");
    std::fs::write(&path, pattern(DATA)).unwrap();
    let shared =
        share(&service, PutSource::new(std::slice::from_ref(&path), &[], None).unwrap(), Terms::default())
            .await
            .unwrap();
    service.door().open();
    shared.reading.await.unwrap().unwrap();
    Scene { folder, service, address: addresses[0], ticket: shared.reply.ticket }
}

impl Scene {
    /// Somebody with the ticket fetches the file, from 127.0.0.1.
    async fn expect_served(&self, name: &str) {
        let receiver = Service::open(home(&self.folder, name), Options::default()).unwrap();
        let output = self.folder.path().join(format!("{name}.got"));
        let request = GetRequest {
            ticket: self.ticket.clone(),
            output: Some(output.clone()),
            directory: self.folder.path().into(),
            timeout: 60,
            no_search: true,
            ..GetRequest::default()
        };
        let (events, mut inbox) = mpsc::channel(64);
        let (got, ()) =
            tokio::join!(get(&receiver, request, events), async { while inbox.recv().await.is_some() {} });
        got.unwrap();
        assert!(std::fs::read(Path::new(&output)).unwrap() == pattern(DATA), "other bytes");
    }
}

/// A connection from another loopback address.
async fn connect(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

/// Shakes hands by way of another loopback address, and says hello.
async fn stranger(from: IpAddr, scene: &Scene, tasks: &mut JoinSet<()>) -> Option<Connection> {
    let relay = TcpListener::bind("127.0.0.1:0").await.ok()?;
    let (near, to) = (relay.local_addr().ok()?, scene.address);
    tasks.spawn(async move {
        let Ok((mut near, _)) = relay.accept().await else { return };
        let Ok(mut far) = connect(from, to).await else { return };
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    let identity = Identity::generate().unwrap();
    let mut connection = dial(near, &identity, scene.service.node_id(), &DialConfig::default()).await.ok()?;
    let hello = Hello { version: VERSION, ..Hello::default() };
    say(&mut connection, Body::Hello(hello)).await;
    Some(connection)
}

async fn say(connection: &mut Connection, body: Body) -> bool {
    let sent = connection.writer.send_bytes(0, &[], body.to_frame()).await.is_ok();
    sent && connection.writer.flush().await.is_ok()
}

/// The reason with which the service closes.
async fn goodbye(mut connection: Connection) -> Option<String> {
    while let Ok(Some(frame)) = connection.reader.next().await {
        if let Ok(Body::Goodbye(goodbye)) = Body::from_frame(frame.body) {
            return Some(goodbye.reason);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_silent_connections_that_are_renewed_keep_nobody_with_a_ticket_out() {
    let scene = scene(|_| ()).await;
    let (address, (over, is_over)) = (scene.address, watch::channel(false));
    let (hung_up, mut hang_ups) = mpsc::unbounded_channel();
    let mut silent = JoinSet::new();
    for at in 0..100u8 {
        let (mut is_over, hung_up) = (is_over.clone(), hung_up.clone());
        silent.spawn(async move {
            // A stranger that is hung up on comes again.
            for _ in 0..2000 {
                if let Ok(stream) = connect([127, 0, 0, 2 + at % 2].into(), address).await {
                    let _ = timeout(LIMIT, stream.readable()).await;
                    let _ = hung_up.send(());
                }
                if timeout(Duration::from_millis(20), is_over.wait_for(|is_over| *is_over)).await.is_ok() {
                    return;
                }
            }
        });
    }
    let refused = || scene.service.door().limits().refused(Excess::Handshakes);
    timeout(LIMIT, async {
        while refused() < 50 {
            hang_ups.recv().await.unwrap();
        }
    })
    .await
    .expect("places for handshakes are short");
    for name in ["one", "two", "three"] {
        timeout(LIMIT, scene.expect_served(name)).await.expect("served");
    }
    over.send_replace(true);
    silent.shutdown().await;
}

/// Strangers that are hung up on in this test are so at once: none of them waits until its time is over.
#[tokio::test]
async fn the_oldest_of_those_who_say_nothing_goes_for_whoever_comes() {
    let scene = scene(|config| config.limits.handshakes = Count(3)).await;
    let mut silent = VecDeque::new();
    for at in 0..12 {
        let came = connect([127, 0, 0, 2].into(), scene.address).await.unwrap();
        if silent.len() == 3 {
            let mut oldest: TcpStream = silent.pop_front().unwrap();
            let (mut byte, mut other) = ([0], [0]);
            let ended = timeout(LIMIT, async {
                tokio::select! {
                    biased;
                    read = came.peek(&mut byte) => panic!("{at}: the newest was hung up on: {read:?}"),
                    read = oldest.read(&mut other) => read.unwrap_or(0),
                }
            });
            assert_eq!(ended.await.expect("the oldest is hung up on"), 0);
        }
        silent.push_back(came);
    }
    assert_eq!(scene.service.door().limits().connections(), 3);
    timeout(LIMIT, scene.expect_served("one")).await.expect("served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_strangers_that_say_hello_and_ping_keep_nobody_with_a_ticket_out() {
    let scene = scene(|_| ()).await;
    let (mut relays, mut standing) = (JoinSet::new(), Vec::new());
    for at in 0..256u32 {
        let from = [127, 0, 0, 2 + (at % 8) as u8].into();
        if let Some(mut connection) = stranger(from, &scene, &mut relays).await {
            say(&mut connection, Body::Ping(Ping::default())).await;
            standing.push(connection);
        }
    }
    assert!(standing.len() > 200, "all shook hands: {}", standing.len());
    let most = Config::default().limits.strangers.0;
    assert!(scene.service.door().limits().refused(Excess::Strangers) >= standing.len() as u64 - most - 64);
    timeout(LIMIT, scene.expect_served("one")).await.expect("served");
    assert!(scene.service.door().limits().connections() <= most + 64);
}

#[tokio::test]
async fn whoever_shows_no_ticket_in_time_is_told_to_leave_and_whoever_did_stays() {
    let scene = scene(|config| config.limits.strangers = Count(4)).await;
    let identity = Identity::generate().unwrap();
    let data = pattern(1000);
    let serving = ListenerServing {
        service: service(&identity, &data, b"secret"),
        config: Box::new(|| PeerConfig { from_anyone: true, ..PeerConfig::default() }),
        connection_limits: Arc::clone(scene.service.door().limits()),
        fetches: Arc::new(Fetches::new(Arc::new(MemoryStore::new()))),
        pool: Arc::default(),
        wait_limit: Duration::from_millis(300),
    };
    let socket = Listener::bind("127.0.0.1:0".parse().unwrap(), &identity).await.unwrap();
    let address = socket.address().unwrap();
    let listening = Listening::start(vec![socket], Arc::new(serving)).unwrap();
    listening.open();
    let dial = async || {
        let own = Identity::generate().unwrap();
        (dial(address, &own, identity.node_id(), &DialConfig::default()).await.unwrap(), own)
    };
    // It is offered the object, which is a right to something.
    let (known, own) = dial().await;
    let known = Peer::start(known, PeerConfig::default(), None);
    let direct = || Arc::new(towpath_plugins::Direct::over(Arc::clone(&known), own.clone()));
    support::fetch(direct(), &data).await.unwrap();
    let (mut stranger, _) = dial().await;
    let hello = Hello { version: VERSION, ..Hello::default() };
    say(&mut stranger, Body::Hello(hello)).await;
    say(&mut stranger, Body::Ping(Ping::default())).await;
    let told = timeout(LIMIT, goodbye(stranger)).await.expect("it ends");
    assert!(told.is_some_and(|why| why.contains("no ticket of this service was shown")));
    support::fetch(direct(), &data).await.unwrap();
    assert_eq!(known.ended(), None);
}
