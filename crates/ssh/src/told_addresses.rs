//! Addresses that the two sides of a copy tell each other, and which of those they dial: pure.

use std::net::{IpAddr, SocketAddr};

use towpath_link::tcp::LocalEnd;

/// Addresses sent, and dialled.
pub const MAX_ADDRESSES: usize = 16;

/// Addresses of sshd's connection, on the remote side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshConnection {
    /// Address that ssh came from, as seen here.
    pub client: IpAddr,
    /// Address that it came to.
    pub server: IpAddr,
}

impl SshConnection {
    /// Out of the environment. Only for the remote side: elsewhere it is about another connection.
    pub fn from_env() -> Option<Self> {
        Self::parse(&std::env::var("SSH_CONNECTION").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut address = || {
            let address: IpAddr = words.next()?.parse().ok()?;
            words.next()?.parse::<u16>().ok()?;
            Some(address.to_canonical())
        };
        Some(Self { client: address()?, server: address()? })
    }
}

/// Addresses to send to the other side: first where ssh came to, then the interfaces. Loopback addresses
/// mean something there only if ssh came from one. If nothing is left, the port alone is sent.
pub(crate) fn addresses_to_send(
    local: SocketAddr,
    interfaces: Vec<IpAddr>,
    ssh: Option<SshConnection>,
) -> Vec<SocketAddr> {
    let is_near = ssh.is_some_and(|ssh| ssh.client.is_loopback());
    let others = interfaces.into_iter().filter(|ip| is_near || !ip.is_loopback());
    let fits = |ip: &IpAddr| ip.is_ipv4() || local.is_ipv6();
    let addresses = distinct(ssh.map(|ssh| ssh.server).into_iter().chain(others).filter(fits), local.port());
    if addresses.is_empty() { vec![local] } else { addresses }
}

/// Addresses to dial among those received. On the remote side where ssh came from goes first,
/// and what lies on this machine only if ssh came from it.
pub(crate) fn addresses_to_dial(addresses: &[SocketAddr], ssh: Option<SshConnection>) -> Vec<SocketAddr> {
    let Some(port) = addresses.first().map(SocketAddr::port).filter(|&port| port != 0) else {
        return Vec::new();
    };
    let is_near = ssh.is_none_or(|ssh| ssh.client.is_loopback());
    let may = |ip: &IpAddr| is_dialable(*ip) && (is_near || !ip.is_loopback());
    let addresses =
        addresses.iter().filter(|address| address.port() == port).map(|address| address.ip().to_canonical());
    distinct(ssh.map(|ssh| ssh.client).into_iter().chain(addresses.filter(may)), port)
}

/// A peer's word is not enough to send anything to all hosts of a network, or to those services
/// that are found at link-local addresses.
fn is_dialable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_link_local())
        }
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local()),
    }
}

/// Of the machine's addresses those of the links that were named, if any were.
pub(crate) fn of_links(interfaces: Vec<IpAddr>, links: &[LocalEnd]) -> Vec<IpAddr> {
    if links.is_empty() {
        return interfaces;
    }
    let named: Vec<IpAddr> = links.iter().flat_map(LocalEnd::addresses).collect();
    interfaces.into_iter().filter(|ip| named.contains(ip)).collect()
}

fn distinct(ips: impl Iterator<Item = IpAddr>, port: u16) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for ip in ips {
        let address = SocketAddr::new(ip, port);
        if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn at(texts: &[&str]) -> Vec<SocketAddr> {
        ips(texts).into_iter().map(|ip| SocketAddr::new(ip, 7)).collect()
    }

    fn ssh(client: &str, server: &str) -> Option<SshConnection> {
        SshConnection::parse(&format!("{client} 1024 {server} 22"))
    }

    #[test]
    fn what_sshd_says_is_read() {
        let both = ssh("::ffff:192.0.2.1", "2001:db8::1").unwrap();
        assert_eq!(
            (both.client, both.server),
            ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap())
        );
        for odd in ["", "192.0.2.1", "192.0.2.1 22 x 22", "fe80::1%eth0 1 fe80::2%eth0 22", "192.0.2.1  22"] {
            assert_eq!(SshConnection::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_address_that_ssh_knows_is_told_first_and_loopback_only_to_the_same_machine() {
        let local = at(&["::"])[0];
        let all = ips(&["10.0.0.1", "192.0.2.9", "2001:db8::9", "127.0.0.1", "::1"]);
        assert_eq!(
            addresses_to_send(local, all.clone(), None),
            at(&["10.0.0.1", "192.0.2.9", "2001:db8::9"])
        );
        assert_eq!(
            addresses_to_send(local, all.clone(), ssh("192.0.2.1", "192.0.2.9")),
            at(&["192.0.2.9", "10.0.0.1", "2001:db8::9"])
        );
        let near = addresses_to_send(local, all.clone(), ssh("127.0.0.1", "127.0.0.1"));
        assert_eq!(near, at(&["127.0.0.1", "10.0.0.1", "192.0.2.9", "2001:db8::9", "::1"]));
        let only_v4 = at(&["0.0.0.0"])[0];
        assert_eq!(
            addresses_to_send(only_v4, all, ssh("2001:db8::1", "2001:db8::9")),
            at(&["10.0.0.1", "192.0.2.9"])
        );
        assert_eq!(addresses_to_send(local, ips(&["127.0.0.1"]), None), [local], "the port alone");
    }

    #[test]
    fn where_ssh_came_from_is_dialled_first_and_odd_addresses_never() {
        let odd =
            at(&["0.0.0.0", "::", "169.254.169.254", "224.0.0.1", "255.255.255.255", "fe80::1", "ff02::1"]);
        assert_eq!(addresses_to_dial(&odd, None), []);
        assert_eq!(addresses_to_dial(&odd, ssh("192.0.2.1", "192.0.2.9")), at(&["192.0.2.1"]));
        let addresses = at(&["10.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.1", "192.0.2.1"]);
        assert_eq!(
            addresses_to_dial(&addresses, ssh("192.0.2.1", "192.0.2.9")),
            at(&["192.0.2.1", "10.0.0.1"])
        );
        assert_eq!(
            addresses_to_dial(&addresses, ssh("::1", "::1")),
            at(&["::1", "10.0.0.1", "127.0.0.1", "192.0.2.1"])
        );
        assert_eq!(addresses_to_dial(&addresses, None).len(), 4);
        assert_eq!(addresses_to_dial(&[], ssh("192.0.2.1", "192.0.2.9")), [], "without a port");
        let many: Vec<SocketAddr> = (1..100).map(|n| SocketAddr::new([192, 0, 2, n].into(), 7)).collect();
        assert_eq!(addresses_to_dial(&many, None).len(), MAX_ADDRESSES);
        let mut ports = many[..3].to_vec();
        ports[1].set_port(22);
        assert_eq!(addresses_to_dial(&ports, None), [many[0], many[2]], "one listener has one port");
    }
}
