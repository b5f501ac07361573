//! One direction of a link: a thread that reads packets at one end, asks the model what becomes of
//! them, and writes them at the other end when they are due.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_simnet::link::{Link, PacketFate};

use super::packet::{LONGEST, Packet};
use super::tun::TunEnd;

/// Under load a direction wakes up once in this time, or two of them, and handles all that waits, so a
/// packet is late by that at most; one packet on an idle link is not.
const TICK: Duration = Duration::from_micros(150);
/// Reads in a row before it is looked at what is due.
const BATCH: usize = 256;
/// Time that the kernel may wake a thread up later than asked, in nanoseconds.
const TIMER_SLACK: u64 = 1000;
/// The emulator is the network: on a busy machine it comes before the programs that use it.
const NICE: i32 = -20;

/// Things that a direction works on.
pub struct LinkDirection {
    /// Packets come from here.
    pub from: TunEnd,
    /// And go there.
    pub to: TunEnd,
    /// The model.
    pub link: Arc<Mutex<Link>>,
    /// Readable when all is over.
    pub stop: Arc<OwnedFd>,
}

/// A packet on its way; one of those that were read together.
struct OnTheWay {
    due: Duration,
    packet: Rc<Packet>,
    index: usize,
}

struct Carrier {
    direction: LinkDirection,
    start: Instant,
    buffer: Box<[u8]>,
    on_the_way: VecDeque<OnTheWay>,
    /// Time of the last look at what came.
    looked: Duration,
    /// True if packets came, or went, at the last look.
    is_busy: bool,
}

/// Events that ended a wait.
#[derive(Default)]
struct Waited {
    has_packets: bool,
    is_over: bool,
}

impl LinkDirection {
    /// Carries packets until `stop` is readable or an end is gone.
    pub fn run(self) {
        // Without the right to these the direction is less exact under load, and `accuracy` tells.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK));
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut carrier = Carrier {
            direction: self,
            start: Instant::now(),
            buffer: vec![0; LONGEST].into(),
            on_the_way: VecDeque::new(),
            looked: Duration::ZERO,
            is_busy: false,
        };
        while carrier.round().is_ok_and(|goes_on| goes_on) {}
    }
}

impl Carrier {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits, takes in, delivers; false when it is time to stop.
    fn round(&mut self) -> io::Result<bool> {
        let last = self.looked;
        let paused = self.pause();
        // Packets that wait after a pause may have come at any time in it. The model is told the start, so
        // that a link that always has something to do is never idle.
        let waited = if paused { self.wait(Some(Duration::ZERO))? } else { Waited::default() };
        if waited.is_over {
            return Ok(false);
        }
        let came = match waited.has_packets {
            true => last,
            false => {
                let due = self.on_the_way.front().map(|first| first.due.saturating_sub(self.now()));
                if self.wait(due)?.is_over {
                    return Ok(false);
                }
                self.now()
            }
        };
        self.looked = self.now();
        let taken = self.take_in(came)?;
        let delivered = self.deliver();
        self.is_busy = taken + delivered > 0;
        Ok(true)
    }

    /// Lets a tick pass since the last look if there was something to do then; two, if that is when
    /// the next packet is due.
    fn pause(&self) -> bool {
        let next = self.looked + TICK;
        let due = self.on_the_way.front().map_or(next, |first| first.due);
        let until = if due <= next + TICK { due.max(next) } else { next };
        let rest = until.saturating_sub(self.now());
        let pauses = self.is_busy && !rest.is_zero();
        if pauses {
            thread::sleep(rest);
        }
        pauses
    }

    /// Until packets come or it is time to stop, but not longer than `timeout`.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<Waited> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut watched = [
            PollFd::new(&self.direction.from, PollFlags::IN),
            PollFd::new(&*self.direction.stop, PollFlags::IN),
        ];
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {
                let [has_packets, is_over] = watched.map(|it| !it.revents().is_empty());
                Ok(Waited { has_packets, is_over })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what waits, and has the model decide on it.
    fn take_in(&mut self, came: Duration) -> io::Result<usize> {
        let link = Arc::clone(&self.direction.link);
        let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
        // The link may have begun with it in the pause, but no packet is faster than the link's delay.
        let earliest = self.now() + link.config().delay;
        for taken in 0..BATCH {
            let len = match rustix::io::read(self.direction.from.as_fd(), &mut self.buffer[..]) {
                Ok(len) => len,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(taken),
                Err(error) => return Err(error.into()),
            };
            let Some(packet) = Packet::new(&self.buffer[..len]).map(Rc::new) else { continue };
            for index in 0..packet.count() {
                if let PacketFate::Arrives(due) = link.offer(came, packet.len(index)) {
                    let due = due.max(earliest);
                    self.on_the_way.push_back(OnTheWay { due, packet: Rc::clone(&packet), index });
                }
            }
        }
        Ok(BATCH)
    }

    /// Writes what is due; what was read together and is due together is written together.
    fn deliver(&mut self) -> usize {
        let now = self.now();
        let mut delivered = 0;
        while let Some(first) = self.on_the_way.pop_front_if(|first| first.due <= now) {
            let mut end = first.index + 1;
            while let Some(next) = self.on_the_way.pop_front_if(|next| {
                next.due <= now && next.index == end && Rc::ptr_eq(&next.packet, &first.packet)
            }) {
                end = next.index + 1;
            }
            let slice = first.packet.slice(first.index..end);
            // A host whose device is down takes no packets: they are lost like on a real network.
            let _ = rustix::io::writev(self.direction.to.as_fd(), &slice.parts().map(IoSlice::new));
            delivered += end - first.index;
        }
        delivered
    }
}
