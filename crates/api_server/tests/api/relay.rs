//! A way through the network that counts: what crossed it, a test can say.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use towpath_content::{Hint, Ticket};

use crate::world::Daemon;

/// Carries connections to a daemon.
pub struct Relay {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
}

impl Relay {
    pub fn to(daemon: &Daemon) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, target) = (listener.local_addr().unwrap(), daemon.service.door().addresses()[0]);
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(target).unwrap());
                carry(near.try_clone().unwrap(), far.try_clone().unwrap(), Arc::default());
                carry(far, near, Arc::clone(&count));
            }
        });
        Self { address, sent }
    }

    /// The same ticket, whose sender is reached through here.
    pub fn through(&self, ticket: &str) -> String {
        let mut ticket: Ticket = ticket.parse().unwrap();
        ticket.hints = vec![Hint::new(format!("tow://{}", self.address), 0, 1).unwrap()];
        ticket.to_string()
    }

    /// Bytes that the daemon sent, since this was last asked.
    pub fn take_sent(&self) -> u64 {
        self.sent.swap(0, Ordering::Relaxed)
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, count: Arc<AtomicU64>) {
    thread::spawn(move || {
        let mut part = vec![0; 64 << 10];
        while let Ok(len) = from.read(&mut part) {
            if len == 0 || to.write_all(&part[..len]).is_err() {
                break;
            }
            count.fetch_add(len as u64, Ordering::Relaxed);
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
