//! Memory of a relay, a process of its own, with idle pairs: two connections each, with TLS.
//!
//! `cargo run --release -p towpath-relay --example idle_pairs [pairs]`: prints what is resident before, with all pairs
//! after each has said a little and once more after a minute's quiet, and after each has moved a MiB.
#![allow(clippy::print_stdout)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{RelayProcess, connected, relay_if_asked, wait_at};
use tokio::time::sleep;
use towpath_link::{Connection, Identity};
use towpath_relay::{RelayPlace, Waiting, WaitingState};

/// Nodes that wait; each has its share of the pairs.
const WAITING: usize = 10;

fn main() {
    relay_if_asked();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(measure());
}

async fn measure() {
    let pairs = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let folder = tempfile::tempdir().expect("a folder");
    let relay = RelayProcess::start(&folder.path().join("key"), SocketAddr::from(([127, 0, 0, 1], 0)));
    let places = [relay.place.clone()];
    let mut nodes = Vec::new();
    for _ in 0..WAITING {
        nodes.push(waiting_node(&places).await);
    }
    println!("{} KiB with {WAITING} waiting nodes", relay.resident_kib());
    let mut connections = Vec::new();
    for n in 0..pairs {
        let (far, waiting) = &mut nodes[n % WAITING];
        let near = Identity::generate().expect("key");
        let (mut near, mut far) = connected(&places, &near, far, waiting).await;
        talk(&mut near, &mut far, 100).await;
        connections.push((near, far));
    }
    report(&relay, pairs, "after a few words each").await;
    sleep(Duration::from_secs(60)).await;
    report(&relay, pairs, "after a minute").await;
    for (near, far) in &mut connections {
        talk(near, far, 1 << 20).await;
    }
    report(&relay, pairs, "after a MiB each").await;
}

async fn waiting_node(places: &[RelayPlace]) -> (Identity, Waiting) {
    let identity = Identity::generate().expect("key");
    let waiting = wait_at(places, &identity);
    let mut states = waiting.states();
    let _ = states.wait_for(|states| states[0] == WaitingState::Waiting).await;
    (identity, waiting)
}

/// A frame both ways.
async fn talk(near: &mut Connection, far: &mut Connection, len: usize) {
    let bytes = vec![7; len];
    for (from, to) in [(&mut near.writer, &mut far.reader), (&mut far.writer, &mut near.reader)] {
        let sending = async {
            from.send(3, b"", &bytes).await.expect("send");
            from.flush().await.expect("flush");
        };
        let (frame, ()) = tokio::join!(to.next(), sending);
        assert_eq!(frame.expect("next").expect("a frame").body.len(), len);
    }
    for connection in [near, far] {
        connection.reader.rest();
        connection.writer.rest().await.expect("rest");
    }
}

async fn report(relay: &RelayProcess, pairs: usize, when: &str) {
    sleep(Duration::from_secs(3)).await;
    let kib = relay.resident_kib();
    println!(
        "{kib} KiB with {pairs} pairs {when}: {:.1} MiB, {} B a pair",
        kib as f64 / 1024.0,
        kib * 1024 / pairs as u64
    );
}
