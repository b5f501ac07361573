//! The kind of router between this machine and its servers, from the addresses that they saw. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::findings::ServerFinding;

/// What is in between, as far as servers can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouterKind {
    /// No server was reached.
    Unknown,
    /// Servers see an address of this machine itself.
    Missing,
    /// One port of this machine is the same outside, whichever server it goes to.
    KeepsPort {
        /// The address outside.
        outside: IpAddr,
    },
    /// One server sees the very ports of this machine: with one only that is not sure.
    LikelyKeepsPort {
        /// The address outside.
        outside: IpAddr,
    },
    /// One port is another one outside for each server.
    Symmetric {
        /// The address outside.
        outside: IpAddr,
    },
    /// There is one, and one server alone can't tell which.
    SomeRouter {
        /// The address outside.
        outside: IpAddr,
    },
}

/// The kind, from what `servers` saw of a machine with these addresses. IPv4 alone is looked at if servers were reached by both.
pub fn kind(servers: &[ServerFinding], own: &[IpAddr]) -> RouterKind {
    let of =
        |server: &ServerFinding| server.answer.as_ref().map(|answer| answer.seen.clone()).unwrap_or_default();
    let sights: Vec<Vec<(u16, SocketAddr)>> =
        servers.iter().map(of).filter(|seen| !seen.is_empty()).collect();
    let is_v4 = sights.iter().flatten().any(|(_, seen)| seen.is_ipv4());
    let sights: Vec<_> =
        sights.into_iter().filter(|all| all.iter().all(|(_, seen)| seen.is_ipv4() == is_v4)).collect();
    let Some((_, first)) = sights.iter().flatten().next() else { return RouterKind::Unknown };
    let outside = first.ip();
    if sights.iter().flatten().all(|(_, seen)| own.contains(&seen.ip())) {
        return RouterKind::Missing;
    }
    let ports: BTreeSet<u16> = sights.iter().flatten().map(|(port, _)| *port).collect();
    let of_port = |port: u16| -> Vec<SocketAddr> {
        sights.iter().flatten().filter(|(own, _)| *own == port).map(|(_, seen)| *seen).collect()
    };
    let is_one = |seen: Vec<SocketAddr>| seen.windows(2).all(|two| two[0] == two[1]);
    let keeps = |(own, seen): &(u16, SocketAddr)| *own == seen.port();
    match sights.len() {
        1 if sights[0].iter().all(keeps) => RouterKind::LikelyKeepsPort { outside },
        1 => RouterKind::SomeRouter { outside },
        _ if ports.into_iter().all(|port| is_one(of_port(port))) => RouterKind::KeepsPort { outside },
        _ => RouterKind::Symmetric { outside },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::ServerAnswer;

    fn server(seen: &[(u16, &str)]) -> ServerFinding {
        let seen = seen.iter().map(|(port, address)| (*port, address.parse().unwrap())).collect();
        ServerFinding { place: "x:1".into(), answer: Ok(ServerAnswer { seen, ..ServerAnswer::default() }) }
    }

    #[test]
    fn routers_are_told_by_what_servers_see() {
        let outside: IpAddr = "203.0.113.7".parse().unwrap();
        let table: [(&str, Vec<ServerFinding>, RouterKind); 9] = [
            ("nobody was asked", vec![], RouterKind::Unknown),
            (
                "nobody answered",
                vec![ServerFinding { place: "x:1".into(), answer: Err("no".into()) }],
                RouterKind::Unknown,
            ),
            (
                "the machine itself",
                vec![server(&[(1, "10.0.0.2:1"), (2, "10.0.0.2:2")])],
                RouterKind::Missing,
            ),
            (
                "ports as they are",
                vec![server(&[(1, "203.0.113.7:1"), (2, "203.0.113.7:2")])],
                RouterKind::LikelyKeepsPort { outside },
            ),
            (
                "other ports, one server",
                vec![server(&[(1, "203.0.113.7:9"), (2, "203.0.113.7:2")])],
                RouterKind::SomeRouter { outside },
            ),
            (
                "one port for both",
                vec![
                    server(&[(1, "203.0.113.7:9"), (2, "203.0.113.7:10")]),
                    server(&[(1, "203.0.113.7:9"), (2, "203.0.113.7:10")]),
                ],
                RouterKind::KeepsPort { outside },
            ),
            (
                "another one for each",
                vec![server(&[(1, "203.0.113.7:9")]), server(&[(1, "203.0.113.7:10")])],
                RouterKind::Symmetric { outside },
            ),
            (
                "another address for each",
                vec![server(&[(1, "203.0.113.7:9")]), server(&[(1, "203.0.113.8:9")])],
                RouterKind::Symmetric { outside },
            ),
            (
                "one server by IPv6, which has no router",
                vec![server(&[(1, "[2001:db8::1]:1")]), server(&[(1, "203.0.113.7:1")])],
                RouterKind::LikelyKeepsPort { outside },
            ),
        ];
        let own = ["10.0.0.2".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        for (what, servers, expected) in table {
            assert_eq!(kind(&servers, &own), expected, "{what}");
        }
    }
}
