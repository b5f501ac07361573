//! The interfaces of this machine: whether multicast DNS works on one, and which addresses are on the same link as one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use if_addrs::{IfAddr, Interface};
use socket2::{Domain, Protocol, Socket, Type};

use crate::LanError;

const PORT: u16 = 5353;
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// The interfaces that lead to others.
pub(crate) fn interfaces() -> Result<Vec<Interface>, LanError> {
    let mut all = if_addrs::get_if_addrs().map_err(|error| LanError::CannotBegin(error.to_string()))?;
    all.retain(|interface| !interface.is_loopback());
    if all.is_empty() { Err(LanError::NoNetwork) } else { Ok(all) }
}

/// Tries whether multicast DNS may be heard on one of them. The library for it tries in a thread, and tells nobody.
pub(crate) fn check_multicast(interfaces: &[Interface]) -> Result<(), LanError> {
    let mut failed = None;
    for interface in interfaces {
        match join(interface) {
            Ok(()) => return Ok(()),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(()), |error| Err(LanError::NoMulticast(error)))
}

fn join(interface: &Interface) -> io::Result<()> {
    let (domain, any): (_, IpAddr) = match interface.ip() {
        IpAddr::V4(_) => (Domain::IPV4, Ipv4Addr::UNSPECIFIED.into()),
        IpAddr::V6(_) => (Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SocketAddr::new(any, PORT).into())?;
    match interface.ip() {
        IpAddr::V4(own) => socket.join_multicast_v4(&GROUP_V4, &own),
        IpAddr::V6(_) => socket.join_multicast_v6(&GROUP_V6, interface.index.unwrap_or(0)),
    }
}

/// True if this address is one of the link of an interface. What is announced is nobody's word: it must not lead to
/// this machine's own loopback, nor to other networks.
pub(crate) fn is_near(address: IpAddr, interfaces: &[Interface]) -> bool {
    interfaces.iter().any(|interface| match (&interface.addr, address) {
        (IfAddr::V4(own), IpAddr::V4(address)) => {
            let mask = own.netmask.to_bits();
            address.to_bits() & mask == own.ip.to_bits() & mask && !is_whole(address, own.netmask)
        }
        (IfAddr::V6(own), IpAddr::V6(address)) => {
            let mask = own.netmask.to_bits();
            address.to_bits() & mask == own.ip.to_bits() & mask && !address.is_multicast()
        }
        _ => false,
    })
}

/// The address of all hosts of a link, or of the link itself.
fn is_whole(address: Ipv4Addr, netmask: Ipv4Addr) -> bool {
    let host = address.to_bits() & !netmask.to_bits();
    // Links of one or two hosts have none of the two.
    netmask.to_bits().count_ones() < 31 && (host == 0 || host == !netmask.to_bits())
}

#[cfg(test)]
mod tests {
    use if_addrs::{IfOperStatus, Ifv4Addr, Ifv6Addr};

    use super::*;

    fn interface(addr: IfAddr) -> Interface {
        Interface { name: "lan0".into(), addr, index: Some(2), oper_status: IfOperStatus::Up, is_p2p: false }
    }

    fn some() -> Vec<Interface> {
        let v4 = |ip: &str, mask: &str| {
            let (ip, netmask) = (ip.parse().unwrap(), mask.parse().unwrap());
            interface(IfAddr::V4(Ifv4Addr { ip, netmask, prefixlen: 0, broadcast: None }))
        };
        let v6 = |ip: &str| {
            let (ip, netmask) = (ip.parse().unwrap(), "ffff:ffff:ffff:ffff::".parse().unwrap());
            interface(IfAddr::V6(Ifv6Addr { ip, netmask, prefixlen: 64, broadcast: None }))
        };
        vec![
            v4("192.0.2.17", "255.255.255.0"),
            v4("10.1.1.1", "255.255.255.254"),
            v6("fe80::1"),
            v6("2001:db8::1"),
        ]
    }

    #[test]
    fn only_hosts_of_the_same_link_are_near() {
        let table = [
            ("192.0.2.1", true),
            ("192.0.2.17", true),
            ("192.0.2.0", false),
            ("192.0.2.255", false),
            ("192.0.3.1", false),
            ("10.1.1.0", true),
            ("10.1.1.2", false),
            ("127.0.0.1", false),
            ("0.0.0.0", false),
            ("169.254.169.254", false),
            ("224.0.0.251", false),
            ("fe80::2", true),
            ("2001:db8::ffff", true),
            ("2001:db8:0:1::1", false),
            ("::1", false),
            ("::", false),
            ("ff02::fb", false),
            ("::ffff:192.0.2.1", false),
        ];
        for (address, expected) in table {
            assert_eq!(is_near(address.parse().unwrap(), &some()), expected, "{address}");
        }
        assert!(!is_near("192.0.2.1".parse().unwrap(), &[]));
    }

    #[test]
    fn without_interfaces_nothing_is_tried() {
        assert!(check_multicast(&[]).is_ok());
    }
}
