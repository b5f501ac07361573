//! A line that carries so many bytes a second, each way: a relay of plain TCP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::environment::LOOPBACK;

/// So long each piece takes: short beside anything that is measured.
const PIECE: Duration = Duration::from_millis(20);

/// A way to some address.
pub struct SlowLine {
    /// Where it begins.
    pub address: String,
    passed: Arc<AtomicU64>,
}

impl SlowLine {
    /// A way to `address` of so many bytes a second to it and from it, for each connection.
    pub fn to(address: &str, up: u64, down: u64) -> Self {
        let listener = TcpListener::bind(LOOPBACK).unwrap();
        let (here, address) = (listener.local_addr().unwrap().to_string(), address.to_owned());
        let line = Self { address: here, passed: Arc::default() };
        let passed = Arc::clone(&line.passed);
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(&address) else { return };
                let passed = Arc::clone(&passed);
                thread::spawn(move || {
                    thread::scope(|scope| {
                        scope.spawn(|| pass(&near, &far, up, &passed));
                        pass(&far, &near, down, &passed);
                    });
                });
            }
        });
        line
    }

    /// Bytes that passed so far, both ways.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

/// Passes bytes one way until there are no more.
fn pass(mut from: &TcpStream, mut to: &TcpStream, rate: u64, passed: &AtomicU64) {
    let mut piece = vec![0; ((rate as f64 * PIECE.as_secs_f64()) as usize).max(1)];
    let mut free = Instant::now();
    while let Ok(len @ 1..) = from.read(&mut piece) {
        free = free.max(Instant::now()) + Duration::from_secs_f64(len as f64 / rate as f64);
        while free > Instant::now() {
            thread::park_timeout(free.saturating_duration_since(Instant::now()));
        }
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
        passed.fetch_add(len as u64, Ordering::Relaxed);
    }
    let _ = to.shutdown(Shutdown::Write);
}
