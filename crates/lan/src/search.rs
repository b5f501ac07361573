//! Who announces a number on the LAN, and which numbers are taken there.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use mdns_sd::{Receiver, ResolvedService, ScopedIp, ServiceDaemon, ServiceEvent};

use crate::{LanError, MAX_NUMBER, NUMBER_KEY, SERVICE, VERSION, VERSION_KEY, near};

/// The most addresses that one search finds: somebody may announce thousands.
const MAX_ADDRESSES: usize = 64;
/// The most numbers that count as taken.
const MAX_TAKEN: usize = 4096;

/// Looks for whoever announces a code of this number, as long as `wait`. Several may, and each has several addresses.
pub fn find(number: u32, wait: Duration) -> Result<LanSearch, LanError> {
    let listening = LanListening::begin(wait)?;
    Ok(LanSearch { listening, number, known: HashSet::new(), ready: VecDeque::new() })
}

/// The numbers that are announced on the LAN, as far as it tells within `wait`: a second and a half is enough where
/// nothing is lost. One that was announced just now is told again only after a second.
pub fn numbers_in_use(wait: Duration) -> Result<BTreeSet<u32>, LanError> {
    let mut listening = LanListening::begin(wait)?;
    let mut taken = BTreeSet::new();
    while taken.len() < MAX_TAKEN
        && let Some(service) = listening.next()
    {
        taken.extend(number_of(&service));
    }
    Ok(taken)
}

/// A search: gives addresses as they are found, each once, and ends when its time is over. It blocks; dropping it
/// ends it.
pub struct LanSearch {
    listening: LanListening,
    number: u32,
    known: HashSet<SocketAddr>,
    ready: VecDeque<SocketAddr>,
}

impl Iterator for LanSearch {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        while self.ready.is_empty() && self.known.len() < MAX_ADDRESSES {
            let service = self.listening.next()?;
            if number_of(&service) == Some(self.number) {
                let found = addresses(&service);
                self.ready.extend(found.into_iter().filter(|address| self.known.insert(*address)));
            }
        }
        self.ready.pop_front()
    }
}

/// All that is announced, until a moment.
struct LanListening {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    end: Instant,
}

impl LanListening {
    fn begin(wait: Duration) -> Result<Self, LanError> {
        near::check_multicast(&near::interfaces()?)?;
        let daemon = ServiceDaemon::new()?;
        let events = daemon.browse(SERVICE)?;
        Ok(Self { daemon, events, end: Instant::now() + wait })
    }

    fn next(&mut self) -> Option<Box<ResolvedService>> {
        loop {
            if let ServiceEvent::ServiceResolved(service) = self.events.recv_deadline(self.end).ok()? {
                return Some(service);
            }
        }
    }
}

impl Drop for LanListening {
    fn drop(&mut self) {
        // Nobody has to be told: the thread ends by itself.
        let _ = self.daemon.shutdown();
    }
}

/// The number that is announced, if it is one in this version's form.
fn number_of(service: &ResolvedService) -> Option<u32> {
    if service.get_property_val_str(VERSION_KEY)? != VERSION {
        return None;
    }
    let number = service.get_property_val_str(NUMBER_KEY)?.parse().ok()?;
    (1..=MAX_NUMBER).contains(&number).then_some(number)
}

/// The addresses of a service on the links of this machine, IPv4 first; an address of IPv6 that holds on one link only
/// comes with that link.
fn addresses(service: &ResolvedService) -> Vec<SocketAddr> {
    // As they are now: one may have come up since the search began.
    let interfaces = near::interfaces().unwrap_or_default();
    let all = service.addresses.iter().filter(|address| near::is_near(address.to_ip_addr(), &interfaces));
    let mut all: Vec<SocketAddr> = all.map(|address| at_port(address, service.port)).collect();
    all.retain(|address| address.port() != 0);
    all.sort_unstable();
    all
}

fn at_port(address: &ScopedIp, port: u16) -> SocketAddr {
    match (address, address.to_ip_addr()) {
        (ScopedIp::V6(scoped), IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, scoped.scope_id().index).into()
        }
        (_, ip) => SocketAddr::new(ip, port),
    }
}
