//! The emulator: links between TUN devices, one thread for each direction, in this process.
//!
//! | module | story |
//! |---|---|
//! | `tun` | a link's end: a TUN device in a host's namespace |
//! | `packet` | what is read from a device, and how super-packets are cut |
//! | `direction` | the loop: read, ask the model, deliver when due |
//!
//! The model itself is [`towpath_simnet::link::Link`].

mod direction;
mod packet;
mod tun;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use towpath_simnet::link::{Counters, Link, LinkConfig};
use towpath_simnet::scenario::{LinkSpec, LinkWay, Params};

use self::direction::LinkDirection;
use self::tun::TunEnd;
use crate::namespace::Namespace;

/// Reason why a link can't be changed.
pub const PLAIN: &str = "nothing is asked of this link, so that it is a plain one without an emulator: give it \
                         a rate, a delay or a queue in the scenario, and it can be changed";

/// Running links. Dropped, they and their devices are gone.
pub struct Emulator {
    /// None for a link that is not emulated.
    links: Vec<Option<[RunningLink; 2]>>,
    stop: Arc<OwnedFd>,
}

/// A direction and its thread.
struct RunningLink {
    link: Arc<Mutex<Link>>,
    /// 0 until the thread runs.
    id: Arc<AtomicI32>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Nothing yet.
    pub fn new() -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { links: Vec::new(), stop: Arc::new(stop) })
    }

    /// Makes a link between two hosts: a device called `device` in each of them.
    pub fn add(&mut self, spec: &LinkSpec, hosts: [&Namespace; 2], device: &str) -> io::Result<()> {
        let ends = [tun::open(hosts[0], device)?, tun::open(hosts[1], device)?];
        let forth = self.start(spec.forth.clone(), &ends[0], &ends[1])?;
        let back = self.start(spec.back.clone(), &ends[1], &ends[0])?;
        self.links.push(Some([forth, back]));
        Ok(())
    }

    /// The next link is somebody else's.
    pub fn leave_out(&mut self) {
        self.links.push(None);
    }

    fn start(&self, config: LinkConfig, from: &TunEnd, to: &TunEnd) -> io::Result<RunningLink> {
        // Each run loses other packets: the median of several is to be that of the parameters.
        let link = Arc::new(Mutex::new(Link::new(config, fastrand::u64(..))));
        let id = Arc::new(AtomicI32::new(0));
        let direction = LinkDirection {
            from: Arc::clone(from),
            to: Arc::clone(to),
            link: Arc::clone(&link),
            stop: Arc::clone(&self.stop),
        };
        let own_id = Arc::clone(&id);
        let thread = thread::Builder::new().name("link".into()).spawn(move || {
            own_id.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            direction.run();
        })?;
        Ok(RunningLink { link, id, thread: Some(thread) })
    }

    /// New parameters for packets that come from now on; false if it has no such link.
    pub fn set(&self, link: usize, way: LinkWay, params: &Params) -> bool {
        let Some(Some([forth, back])) = self.links.get(link) else { return false };
        let chosen = [(forth, way != LinkWay::Back), (back, way != LinkWay::Forth)];
        for (running, _) in chosen.into_iter().filter(|(_, is_meant)| *is_meant) {
            let mut link = running.lock();
            let mut config = link.config().clone();
            params.apply(&mut config);
            link.set(config);
        }
        true
    }

    /// Counters of what went over each link so far, forth and back.
    pub fn counters(&self) -> Vec<Option<[Counters; 2]>> {
        let read = |ways: &[RunningLink; 2]| [ways[0].lock().counters(), ways[1].lock().counters()];
        self.links.iter().map(|link| link.as_ref().map(read)).collect()
    }

    /// CPU time of all directions so far. The kernel hands a packet to the receiving host within the
    /// emulator's write, so that this includes the host's part of receiving it.
    pub fn cpu(&self) -> Duration {
        self.links.iter().flatten().flatten().map(RunningLink::cpu).sum()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The counter can't overflow by one; if it could not be written, threads would end with the
        // process.
        let told = rustix::io::write(&*self.stop, &1u64.to_ne_bytes()).is_ok();
        let threads = self.links.iter_mut().flatten().flatten().filter_map(|running| running.thread.take());
        for thread in threads.filter(|_| told) {
            let _ = thread.join();
        }
    }
}

impl RunningLink {
    fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cpu(&self) -> Duration {
        let path = format!("/proc/self/task/{}/schedstat", self.id.load(Ordering::Relaxed));
        let text = fs::read_to_string(path).unwrap_or_default();
        let nanos = text.split(' ').next().and_then(|first| first.parse().ok());
        Duration::from_nanos(nanos.unwrap_or_default())
    }
}
