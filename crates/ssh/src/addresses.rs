//! Addresses that this machine listens on, and under which others may reach it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use towpath_link::Identity;
use towpath_link::tcp::{BindError, Listener};

/// A listener at `address`; on a machine without IPv6 at every address of IPv4, where it is every one.
pub async fn bind(identity: &Identity, address: SocketAddr) -> Result<Listener, BindError> {
    let result = Listener::bind(address, identity).await;
    // A machine without IPv6.
    if result.is_err() && address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        return Listener::bind(SocketAddr::new([0, 0, 0, 0].into(), address.port()), identity).await;
    }
    result
}

/// The addresses of the machine's interfaces that mean something elsewhere, loopback last.
pub fn interfaces(only_v4: bool) -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut addresses: Vec<IpAddr> = interfaces.iter().map(if_addrs::Interface::ip).collect();
    addresses.retain(|ip| is_usable(*ip, only_v4));
    addresses.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    addresses.dedup();
    addresses
}

/// Link-local addresses of IPv6 need a zone that means nothing elsewhere.
fn is_usable(ip: IpAddr, only_v4: bool) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !only_v4 && !ip.is_unicast_link_local(),
    }
}
