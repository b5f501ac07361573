//! What probes found: facts, without a word on what they mean.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use towpath_link::own_addresses::AddressKind;

/// All that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// Addresses of this machine.
    pub addresses: Vec<AddressFinding>,
    /// Addresses to listen on, and why that does not work.
    pub ports: Vec<(SocketAddr, Result<(), String>)>,
    /// Rendezvous servers.
    pub rendezvous: Vec<ServerFinding>,
    /// Relays.
    pub relays: Vec<ServerFinding>,
    /// Why the relays' pass can't be had, if one is configured.
    pub pass: Option<String>,
    /// Codes on this network.
    pub multicast: MulticastFinding,
    /// The daemon.
    pub daemon: DaemonFinding,
    /// The folder of state.
    pub state: StateFinding,
    /// The ssh program.
    pub ssh: Option<PathBuf>,
    /// The clock.
    pub clock: ClockFinding,
}

/// An address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressFinding {
    /// Its interface.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// Who reaches it.
    pub kind: AddressKind,
    /// Tickets name it, unless a person says where to listen.
    pub is_named: bool,
}

/// A server that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFinding {
    /// Its `HOST:PORT`.
    pub place: String,
    /// What came of it.
    pub answer: Result<ServerAnswer, String>,
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerAnswer {
    /// Time there and back, as the kernel measured it; `None` elsewhere than on Linux.
    pub round_trip: Option<Duration>,
    /// Ports of this machine that it was asked from, and the addresses that it saw.
    pub seen: Vec<(u16, SocketAddr)>,
    /// Why a relay does not let a node of chance wait, with the pass if there is one.
    pub refused: Option<String>,
    /// It was shown the pass.
    pub has_pass: bool,
}

/// Whether a code is found on this network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MulticastFinding {
    /// The configuration says no.
    Off,
    /// It was announced, and heard after this time.
    Heard(Duration),
    /// It was announced, and not heard.
    NotHeard,
    /// Nothing can be announced.
    Trouble(String),
}

/// The daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DaemonFinding {
    /// None runs.
    Missing,
    /// Nobody answers at its socket.
    Silent {
        /// The socket.
        socket: PathBuf,
        /// It is left over of one that was killed: commands do without.
        is_left: bool,
        /// Why.
        why: String,
    },
    /// It runs.
    Running {
        /// Its version.
        version: String,
        /// Addresses on which it listens.
        listening: Vec<String>,
    },
}

/// The folder of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFinding {
    /// The folder, or the nearest one that is there.
    pub folder: PathBuf,
    /// Why nothing can be written there.
    pub trouble: Option<String>,
    /// Bytes that are free for this user.
    pub free: Option<u64>,
}

/// The clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockFinding {
    /// Nothing says that it is wrong.
    Plausible,
    /// It is so much earlier than the time at which this program was written to the disk.
    BeforeProgram(Duration),
}
