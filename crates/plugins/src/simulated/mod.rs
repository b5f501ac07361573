//! Two machines with two links between them, in simulated time. What goes over them is real messages of real sessions; who
//! fetches decides by the state machines of the plugins. Only what is tasks and sockets there is done here by hand.
//!
//! | module | story |
//! |---|---|
//! | `link` | the way by one link: dialled, lost, and dialled again |
//! | `sender` | the machine that has what is fetched, at one of its two addresses |
//! | `sweep` | something befalls the second link after messages all over a transfer |
//!
//! Receivers stand beside what they try: `many::cuts` gets an object or small files, `links::cuts` the small files of a copy.

mod link;
mod sender;
mod sweep;

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_content::NodeId;
use towpath_content::ticket::Secret;
use towpath_protocol::Service;
use towpath_protocol::processors::Processors;
use towpath_protocol::session::SessionConfig;
use towpath_simnet::Net;
use towpath_transfer::SourceId;

pub(crate) use self::link::SimLink;
pub(crate) use self::sender::{ENTRY, Machine, Sender, entry_bytes, service};
pub(crate) use self::sweep::{Receiver, sweep};

/// Binding of proofs: here there is no TLS session to take it from.
pub(crate) const BINDING: [u8; 32] = [7; 32];
/// Of the only ticket.
pub(crate) const SECRET: Secret = Secret([5; 16]);
/// The machine that fetches.
pub(crate) const RECEIVER: NodeId = NodeId([1; 32]);
/// The machine that has what is fetched.
const SENDER: NodeId = NodeId([2; 32]);
/// Bytes a second of each link, which are counted without heads.
pub(crate) const RATE: f64 = 1e6;

/// How both sides of a connection behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conduct {
    /// Not a byte for this long: the connection is lost.
    pub(crate) silence: Duration,
    /// A person watches: both sides say twice a second that they are there.
    pub(crate) is_watched: bool,
}

impl Conduct {
    fn config(self, serves: bool, link: Option<&str>) -> SessionConfig {
        SessionConfig {
            silence: self.silence,
            control: self.is_watched,
            processors: Processors::default(),
            wishes: Vec::new(),
            serves,
            priority: 0,
            measures: false,
            source: SourceId::peer_by(SENDER, link),
            tells_link: false,
            link_number: 0,
        }
    }
}

/// The addresses of the sender, by host: each at the end of a link of its own.
pub(crate) const fn host_of(link: usize) -> usize {
    link + 1
}

/// A node for each host.
pub(crate) fn machines<R>(
    conduct: Conduct,
    service: &Arc<Service>,
    receiver: R,
) -> impl FnMut(usize) -> Machine<R> + use<R> {
    let (service, mut receiver) = (Arc::clone(service), Some(receiver));
    move |host| match host {
        0 => Machine::Receiver(receiver.take().expect("it is made once")),
        _ => Machine::Sender(Sender::new(conduct, Arc::clone(&service))),
    }
}

/// The next time at which a host is woken: wakes are not taken back, and each asks for the next one.
#[derive(Default)]
pub(crate) struct WakePlan(Option<Instant>);

impl WakePlan {
    /// Asks to be woken then, unless that was asked for already.
    pub(crate) fn plan(&mut self, net: &mut Net, next: Instant) {
        if self.0.is_none_or(|at| next < at) {
            self.0 = Some(next);
            net.wake_at_instant(next);
        }
    }

    /// A wake came.
    pub(crate) fn woken(&mut self, now: Instant) {
        self.0 = self.0.filter(|at| *at > now);
    }
}
