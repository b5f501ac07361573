//! Rate at which frames go through this machine, and the CPU time of a GiB of them.
//!
//! `cargo run --release -p towpath-link --example frames [GiB] [bytes of payload a frame]`: both
//! ends in one process on two threads; over loopback with TLS, and without it for comparison.
#![allow(clippy::print_stdout)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use towpath_link::pipe::{self, Role};
use towpath_link::tcp::{self, DialConfig, Listener};
use towpath_link::{Connection, FrameReader, FrameWriter, Identity};

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<f64>().ok());
    let total = (arguments.next().unwrap_or(2.0) * (1u64 << 30) as f64) as u64;
    let payloads =
        arguments.next().map_or(vec![1 << 20, 256 << 10, 64 << 10, 1 << 10], |one| vec![one as usize]);
    for &payload in &payloads {
        let (near, far) = tls_pair().await;
        run("TLS", near, far, payload, total).await;
    }
    for &payload in &payloads {
        let (near, far) = plain_pair().await;
        run("plain", near, far, payload, total).await;
    }
}

async fn run(name: &str, near: Connection, far: Connection, payload: usize, total: u64) {
    let (cpu, begun) = (cpu_seconds(), Instant::now());
    let sending = tokio::spawn(send(near.writer, payload, total));
    let receiving = tokio::spawn(receive(far.reader));
    sending.await.expect("sender");
    let received = receiving.await.expect("receiver") as f64;
    let (cpu, elapsed) = (cpu_seconds() - cpu, begun.elapsed().as_secs_f64());
    let per_gib = cpu * (1u64 << 30) as f64 / received;
    println!("{name}, {payload:>7} B payload: {:.2} GB/s, {per_gib:.2} CPU-s/GiB", received / 1e9 / elapsed);
}

async fn send(mut writer: FrameWriter, payload: usize, total: u64) {
    let bytes: Vec<u8> = (0..payload).map(|n| (n * 31 % 251) as u8).collect();
    for index in 0..total / payload as u64 {
        writer.send(3, &index.to_le_bytes(), &bytes).await.expect("send");
    }
    writer.finish().await.expect("finish");
}

async fn receive(mut reader: FrameReader) -> u64 {
    let mut received = 0;
    while let Some(frame) = reader.next().await.expect("next") {
        received += frame.body.len() as u64 - 8;
    }
    received
}

async fn tls_pair() -> (Connection, Connection) {
    let (near, far) = (Identity::generate().expect("key"), Identity::generate().expect("key"));
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &far).await.expect("bind");
    let (address, how) = (listener.address().expect("address"), DialConfig::default());
    let dialling = tcp::dial(address, &near, far.node_id(), &how);
    let accepting = async { listener.accept().await.expect("accept").handshake(LIMIT).await };
    let (near, far) = tokio::join!(dialling, accepting);
    (near.expect("dial"), far.expect("handshake"))
}

async fn plain_pair() -> (Connection, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (near, far) = (near.expect("connect"), far.expect("accept").0);
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    let id = || Identity::generate().expect("key").node_id();
    let (near, far) = tokio::join!(
        pipe::open(near_read, near_write, id(), Role::Initiator, LIMIT),
        pipe::open(far_read, far_write, id(), Role::Responder, LIMIT),
    );
    (near.expect("near"), far.expect("far"))
}

/// User and system time of this process so far, in steps of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
