//! Rate of a connection through a relay, and the processor time of a GiB of it.
//!
//! `cargo run --release -p towpath-relay --example throughput [GiB] [seconds between kills of the relay]`: the relay is a
//! process of its own, both ends are in this one. With kills it is started again at once at the same port, and what was
//! sent twice is told.
#![allow(clippy::print_stdout)]

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{RelayProcess, connected, cpu_seconds, relay_if_asked, wait_at};
use tokio::time::timeout;
use towpath_link::{FrameReader, FrameWriter, Identity};
use towpath_relay::message::MAX_BLOCK;

const PAYLOAD: usize = 256 << 10;
const GIB: f64 = (1u64 << 30) as f64;

fn main() {
    relay_if_asked();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(measure());
}

async fn measure() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<f64>().ok());
    let total = (arguments.next().unwrap_or(2.0) * GIB) as u64 / PAYLOAD as u64 * PAYLOAD as u64;
    let interval = arguments.next().map(Duration::from_secs_f64);
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    let relay = RelayProcess::start(&key, SocketAddr::from(([127, 0, 0, 1], 0)));
    let (near, far) = (Identity::generate().expect("key"), Identity::generate().expect("key"));
    let places = [relay.place.clone()];
    let mut waiting = wait_at(&places, &far);
    let mut states = waiting.states();
    let _ = states.wait_for(|states| states[0] == towpath_relay::WaitingState::Waiting).await;
    let (near, far) = connected(&places, &near, &far, &mut waiting).await;
    let (begun, own, probe) = (Instant::now(), cpu_seconds(), near.info.clone());
    let sending = tokio::spawn(send(near.writer, total));
    let receiving = tokio::spawn(receive(far.reader));
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let killing = tokio::spawn(async move {
        let (mut relay, mut kills, mut cpu) = (relay, 0, 0.0);
        while let Some(interval) = interval
            && timeout(interval, &mut stopped).await.is_err()
        {
            let address = relay.address();
            cpu += relay.kill();
            relay = RelayProcess::start(&key, address);
            kills += 1;
        }
        (relay, kills, cpu)
    });
    let received = receiving.await.expect("receiver");
    sending.await.expect("sender");
    assert_eq!(received, total);
    let (elapsed, own) = (begun.elapsed().as_secs_f64(), cpu_seconds() - own);
    let path = probe.read().expect("a path");
    drop(stop);
    let (relay, kills, cpu) = killing.await.expect("the relay");
    let (per_gib, blocks) = (GIB / total as f64, path.retransmits);
    let rate = total as f64 / 1e9 / elapsed;
    println!("{rate:.2} GB/s through the relay; both ends {:.2} CPU-s/GiB", own * per_gib);
    println!("window {} KiB, shortest rtt {:?}", path.congestion_window_bytes >> 10, path.min_rtt);
    println!("{blocks} blocks sent again, {} KiB at most", (blocks as usize * MAX_BLOCK) >> 10);
    println!("relay: {} KiB resident", relay.resident_kib());
    println!("relay: {:.2} CPU-s/GiB, {kills} kills", (cpu + relay.kill()) * per_gib);
}

async fn send(mut writer: FrameWriter, total: u64) {
    let bytes: Vec<u8> = (0..PAYLOAD).map(|n| (n * 31 % 251) as u8).collect();
    for _ in 0..total / PAYLOAD as u64 {
        writer.send(3, b"", &bytes).await.expect("send");
    }
    writer.finish().await.expect("finish");
}

async fn receive(mut reader: FrameReader) -> u64 {
    let mut received = 0;
    while let Some(frame) = reader.next().await.expect("next") {
        received += frame.body.len() as u64;
    }
    received
}
