//! A link without any shaping: a pair of virtual Ethernet devices, which the kernel joins by itself.
//!
//! It is as fast as the machine, for what is said of transfers that no network holds up. Its counters are
//! the kernel's: of what TCP hands down as one packet of up to 64 KiB, headers count once.

use std::fs;
use std::io;
use std::process::Command;

use towpath_simnet::link::{Counters, LinkConfig};
use towpath_simnet::scenario::{LinkSpec, Scenario};

use crate::error::LabError;
use crate::namespace::{Namespace, run};

/// The calling thread's namespace, which `/proc/net` need not be.
const DEVICES: &str = "/proc/thread-self/net/dev";
/// Columns of that file after a device's name.
const SENT_BYTES: usize = 8;
const SENT_PACKETS: usize = 9;
const SENT_DROPPED: usize = 11;

/// The pair: a device of the same name in each of two hosts.
#[derive(Debug)]
pub struct Veth {
    hosts: [Namespace; 2],
    device: String,
}

impl Veth {
    /// True if a link of a scenario can be such a pair: nothing is asked of it, now or later.
    pub fn is_enough(scenario: &Scenario, index: usize, link: &LinkSpec) -> bool {
        let is_plain = |config: &LinkConfig| *config == LinkConfig::default();
        let is_changed = scenario.changes.iter().any(|change| change.link == index);
        is_plain(&link.forth) && is_plain(&link.back) && !is_changed
    }

    /// Makes it.
    pub fn add(hosts: [&Namespace; 2], device: String) -> Result<Self, LabError> {
        let [first, second] = hosts;
        let mut command = Command::new("ip");
        command.args(["link", "add", &device, "netns", first.name(), "type", "veth"]);
        run(command.args(["peer", "name", &device, "netns", second.name()]))?;
        Ok(Self { hosts: [first.clone(), second.clone()], device })
    }

    /// Counters of what went over it so far: forth, back.
    pub fn counters(&self) -> io::Result<[Counters; 2]> {
        let sent = |host: &Namespace| {
            let table = host.enter(|| fs::read_to_string(DEVICES))??;
            counters(&table, &self.device).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        Ok([sent(&self.hosts[0])?, sent(&self.hosts[1])?])
    }
}

/// Counters of what a device has sent, from the kernel's table of all.
fn counters(table: &str, device: &str) -> Option<Counters> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = lines.find(|(name, _)| name.trim() == device)?;
    let numbers: Vec<u64> = numbers.split_whitespace().map(|it| it.parse().unwrap_or_default()).collect();
    let (bytes, lost) = (*numbers.get(SENT_BYTES)?, *numbers.get(SENT_DROPPED)?);
    Some(Counters { packets: *numbers.get(SENT_PACKETS)?, bytes, overflows: 0, lost, delivered: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_in_the_kernels_table() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs \
                     drop fifo colls carrier compressed\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n \
                     link1:21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\n";
        let found = counters(table, "link1").unwrap();
        assert_eq!((found.bytes, found.packets, found.lost), (29, 30, 32));
        assert_eq!(counters(table, "link0"), None);
    }

    #[test]
    fn only_links_of_which_nothing_is_asked_are_plain() {
        let links = "about = ''\nhosts = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']\n\
                     [[link]]\nbetween = ['a', 'b']\nback = { delay = '1ms' }\n\
                     [[link]]\nbetween = ['a', 'b']\n[[change]]\nat = '1s'\nlink = 'link2'\ncut = true\n";
        let scenario = Scenario::parse(links).unwrap();
        let plain = scenario.links.iter().enumerate().map(|(at, link)| Veth::is_enough(&scenario, at, link));
        assert_eq!(plain.collect::<Vec<_>>(), [true, false, false]);
    }
}
