//! Strangers that flood a service on this machine, to measure what they cost it: connections without a
//! ticket, each of which asks for 64 times 1 MB and reads nothing, or for as much as does not end it.
//!
//! `cargo run -p towpath-protocol --example strangers -- ADDRESS NODE COUNT SECONDS PID flood` (or `patient`) prints the
//! resident memory of process PID before, and each second while they are there. Loopback addresses alone.

#![allow(clippy::print_stdout, reason = "it measures, and says what it measured")]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, copy};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{sleep, timeout};
use towpath_content::{NodeId, Oid};
use towpath_link::tcp::{DialConfig, dial};
use towpath_link::{Connection, Identity};
use towpath_protocol::wire::{Body, Get, Hello, Ping, VERSION, WireWant, oid_field};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Of each address so many.
const PER_ADDRESS: usize = 32;
/// More than the bytes of a handshake that a service sends.
const HANDSHAKE: u64 = 4096;
const PING_EVERY: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, node, count, seconds, pid, how] = &words[..] else {
        return Err("ADDRESS NODE COUNT SECONDS PID flood|patient".into());
    };
    let (address, node): (SocketAddr, NodeId) = (address.parse()?, node.parse()?);
    let (count, seconds): (usize, u64) = (count.parse::<usize>()?.min(256), seconds.parse::<u64>()?.min(600));
    if !address.ip().is_loopback() {
        return Err("this is for services on this machine".into());
    }
    // Requests, and wants of 1 KB in each.
    let load = if how == "patient" { (16, 16) } else { (64, 1024) };
    println!("before: {}", resident(pid)?);
    let start = Instant::now();
    for at in 0..count {
        let from = [127, 0, 0, 2 + (at / PER_ADDRESS) as u8].into();
        tokio::spawn(async move {
            let until = start + Duration::from_secs(seconds);
            while Instant::now() < until {
                // A stranger that is thrown out comes again.
                let _ = flood(from, address, node, until, load).await;
                sleep(Duration::from_millis(200)).await;
            }
        });
    }
    while start.elapsed() < Duration::from_secs(seconds) {
        sleep(Duration::from_secs(1)).await;
        println!("{:3} s: {}", start.elapsed().as_secs(), resident(pid)?);
    }
    Ok(())
}

fn resident(pid: &str) -> Result<String, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.parse::<u32>()?))?;
    let find = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    Ok(format!("{}, {}", find("VmRSS:"), find("Threads:")).replace('\t', " "))
}

/// One stranger, until it is thrown out.
async fn flood(
    from: IpAddr,
    to: SocketAddr,
    node: NodeId,
    until: Instant,
    (requests, wants): (u32, usize),
) -> Result<(), Failure> {
    let relay = TcpListener::bind("127.0.0.1:0").await?;
    let near = relay.local_addr()?;
    let pump = tokio::spawn(async move {
        let (mut near, _) = relay.accept().await?;
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(2048)?;
        socket.bind(SocketAddr::new(from, 0))?;
        let far = socket.connect(to).await?;
        let ((far_read, mut far_write), (mut near_read, mut near_write)) = (far.into_split(), near.split());
        // Of what comes back no more than the handshake is read.
        let mut shaking = far_read.take(HANDSHAKE);
        tokio::join!(copy(&mut shaking, &mut near_write), copy(&mut near_read, &mut far_write)).1
    });
    let mut connection = dial(near, &Identity::generate()?, node, &DialConfig::default()).await?;
    let hello = Hello { version: VERSION, ..Hello::default() };
    say(&mut connection, Body::Hello(hello)).await?;
    let (oid, chunk) = (oid_field(&Oid::Blake3([1; 32])), Bytes::from(vec![1; 950]));
    let wants = vec![WireWant { oid, chunk, count: 1, ..WireWant::default() }; wants];
    for request in 1..=requests {
        let root = oid_field(&Oid::Blake3([9; 32]));
        say(&mut connection, Body::Get(Get { request, root, wants: wants.clone(), ..Get::default() }))
            .await?;
    }
    while Instant::now() < until {
        say(&mut connection, Body::Ping(Ping::default())).await?;
        sleep(PING_EVERY).await;
    }
    pump.abort();
    Ok(())
}

async fn say(connection: &mut Connection, body: Body) -> Result<(), Failure> {
    let sending = async {
        connection.writer.send_bytes(0, &[], body.to_frame()).await?;
        connection.writer.flush().await
    };
    timeout(Duration::from_secs(10), sending).await??;
    Ok(())
}
