//! Addresses of hosts, and the ways between them: decided before anything is made.
//!
//! Every host has a primary address that all others know. Every link is a network of its own, so
//! that a host has an address for each of its links too. Routes go along the fewest hops; what a host
//! with several links sends from a link's address goes over that link.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Primary addresses: 10.64.0.1 and on.
const PRIMARY: u32 = 0x0a40_0000;
/// The links' networks: 10.128.0.0/30, 10.128.0.4/30 and on.
const LINKS: u32 = 0x0a80_0000;
/// Routing tables for a link's address: from this number on.
const TABLES: usize = 1000;

/// Hosts and links by their indexes.
#[derive(Debug)]
pub struct NetPlan {
    hosts: usize,
    links: Vec<[usize; 2]>,
}

/// The way to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    /// The link it begins with.
    link: usize,
    hops: usize,
}

impl NetPlan {
    /// For so many hosts, and links between them.
    pub const fn new(hosts: usize, links: Vec<[usize; 2]>) -> Self {
        Self { hosts, links }
    }

    /// The address of a host that all others have a route to.
    pub fn primary(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::from_bits(PRIMARY + host as u32 + 1)
    }

    /// One for each link of a host, in the order of the links.
    pub fn addresses(&self, host: usize) -> Vec<Ipv4Addr> {
        self.ports(host).map(|link| self.address(link, host)).collect()
    }

    /// The device of a link, at both of its ends.
    pub fn device(link: usize) -> String {
        format!("link{link}")
    }

    /// Lines for `ip -batch` in a host's namespace.
    pub fn batch(&self, host: usize) -> String {
        let mut lines = String::new();
        let mut line = |text: String| writeln!(lines, "{text}").unwrap_or_default();
        line("link set lo up".into());
        line(format!("address add {}/32 dev lo", self.primary(host)));
        for link in self.ports(host) {
            let device = Self::device(link);
            line(format!("address add {}/30 dev {device}", self.address(link, host)));
            line(format!("link set {device} up"));
        }
        self.routes(host, None).into_iter().for_each(&mut line);
        if self.ports(host).count() > 1 {
            for link in self.ports(host) {
                let table = TABLES + link;
                line(format!("rule add from {} table {table}", self.address(link, host)));
                let routes = self.routes(host, Some(link));
                routes.into_iter().for_each(|route| line(format!("{route} table {table}")));
            }
        }
        lines
    }

    /// Routes to all primary addresses and links, or those that begin with one link.
    fn routes(&self, host: usize, first: Option<usize>) -> Vec<String> {
        let ways = self.ways(host, first);
        let source = match first {
            Some(link) => self.address(link, host),
            None => self.primary(host),
        };
        let route = |to: String, way: Way| {
            let gateway = self.address(way.link, self.other_end(way.link, host));
            format!("route add {to} via {gateway} dev {} src {source}", Self::device(way.link))
        };
        let hosts =
            (0..self.hosts).filter_map(|to| Some(route(format!("{}/32", self.primary(to)), ways[to]?)));
        let links = (0..self.links.len()).filter_map(|link| {
            let network = format!("{}/30", Ipv4Addr::from_bits(LINKS + 4 * link as u32));
            if self.links[link].contains(&host) {
                // The kernel knows its own networks, but not in a table for one link's address.
                let device = Self::device(link);
                return (first == Some(link))
                    .then(|| format!("route add {network} dev {device} src {source}"));
            }
            let nearer = self.links[link].iter().filter_map(|&end| ways[end]).min_by_key(|way| way.hops)?;
            Some(route(network, nearer))
        });
        hosts.chain(links).collect()
    }

    /// The shortest way to each host that can be reached, breadth first.
    fn ways(&self, from: usize, first: Option<usize>) -> Vec<Option<Way>> {
        let mut ways: Vec<Option<Way>> = vec![None; self.hosts];
        let mut queue = VecDeque::from([from]);
        while let Some(host) = queue.pop_front() {
            for link in self.ports(host).filter(|&link| host != from || first.is_none_or(|only| only == link))
            {
                let next = self.other_end(link, host);
                if next == from || ways[next].is_some() {
                    continue;
                }
                let way = ways[host].map_or(Way { link, hops: 1 }, |way| Way { hops: way.hops + 1, ..way });
                ways[next] = Some(way);
                queue.push_back(next);
            }
        }
        ways
    }

    fn ports(&self, host: usize) -> impl Iterator<Item = usize> {
        self.links.iter().enumerate().filter(move |(_, ends)| ends.contains(&host)).map(|(link, _)| link)
    }

    fn other_end(&self, link: usize, host: usize) -> usize {
        let [first, second] = self.links[link];
        if first == host { second } else { first }
    }

    fn address(&self, link: usize, host: usize) -> Ipv4Addr {
        let end = 1 + u32::from(self.links[link][1] == host);
        Ipv4Addr::from_bits(LINKS + 4 * link as u32 + end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_the_fewest_hops() {
        // 0 - 1 - 2 - 3, and 0 - 4 - 3.
        let plan = NetPlan::new(6, vec![[0, 1], [1, 2], [2, 3], [0, 4], [4, 3]]);
        let ways = plan.ways(0, None);
        assert_eq!(ways[3], Some(Way { link: 3, hops: 2 }));
        assert_eq!(ways[2], Some(Way { link: 0, hops: 2 }));
        assert_eq!((ways[0], ways[5]), (None, None), "here, and unreachable");
        let over_first = plan.ways(0, Some(0));
        assert_eq!(over_first[3], Some(Way { link: 0, hops: 3 }));
        assert_eq!(over_first[4], Some(Way { link: 0, hops: 4 }));
    }

    #[test]
    fn a_host_with_two_links_answers_over_the_one_it_was_asked_on() {
        let batch = NetPlan::new(2, vec![[0, 1], [0, 1]]).batch(1);
        let lines: Vec<&str> = batch.lines().collect();
        for line in [
            "address add 10.64.0.2/32 dev lo",
            "address add 10.128.0.2/30 dev link0",
            "address add 10.128.0.6/30 dev link1",
            "route add 10.64.0.1/32 via 10.128.0.1 dev link0 src 10.64.0.2",
            "rule add from 10.128.0.6 table 1001",
            "route add 10.64.0.1/32 via 10.128.0.5 dev link1 src 10.128.0.6 table 1001",
            "route add 10.128.0.4/30 dev link1 src 10.128.0.6 table 1001",
        ] {
            assert!(lines.contains(&line), "{line} is not in\n{batch}");
        }
    }

    #[test]
    fn a_links_address_is_reached_over_that_link() {
        // A sender 0, routers 1 and 2, a receiver 3 behind both.
        let plan = NetPlan::new(4, vec![[0, 1], [0, 2], [1, 3], [2, 3]]);
        let batch = plan.batch(0);
        assert!(batch.contains("route add 10.128.0.8/30 via 10.128.0.2 dev link0"), "{batch}");
        assert!(batch.contains("route add 10.128.0.12/30 via 10.128.0.6 dev link1"), "{batch}");
        assert_eq!(plan.addresses(3), [Ipv4Addr::new(10, 128, 0, 10), Ipv4Addr::new(10, 128, 0, 14)]);
    }
}
