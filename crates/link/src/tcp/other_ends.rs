//! Other ends of this machine by which an address may be reached, beside the one that the system chooses: its other lines.
//!
//! | an interface | is another line |
//! |---|---|
//! | that the system would choose, or that is in use | no |
//! | a bridge, a tunnel, a mobile network, one of a virtual machine | no: it leads to a line that is there, or its bytes cost money |
//! | that is up and has a route to the address | yes |
//! | whose only route there is that to everywhere, and the address is a private one | no: there it would be another machine's |
//!
//! The choice is pure. Linux alone tells its routes so; elsewhere there are none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use super::local_end::LocalEnd;
use crate::own_addresses::{self, AddressKind};

/// Bits of a route's flags: it is up, and it refuses.
const UP: u32 = 1;
const REFUSES: u32 = 0x200;
/// Kind of interfaces like Ethernet, wireless ones too.
const ETHERNET: &str = "1";
/// Types of interfaces that are like Ethernet and no lines.
const NO_LINES: [&str; 6] = ["bridge", "wwan", "vxlan", "geneve", "macvlan", "gadget"];

/// An interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    name: String,
    addresses: Vec<IpAddr>,
    is_line: bool,
}

/// Where an interface leads.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KernelRoute {
    device: String,
    network: IpAddr,
    prefix: u32,
}

/// The interfaces by which `to` may be reached too, but for those in use: by which the system reaches the addresses `reached`, and those
/// `named`.
pub fn other_ends(to: SocketAddr, reached: &[SocketAddr], named: &[LocalEnd]) -> Vec<LocalEnd> {
    let mut used: Vec<IpAddr> = reached.iter().chain([&to]).filter_map(|to| own_address(*to)).collect();
    used.extend(named.iter().flat_map(LocalEnd::addresses));
    others(to.ip().to_canonical(), &interfaces(), &routes(), &used)
}

/// See [`other_ends`]. `used` are this machine's addresses on the interfaces in use.
fn others(to: IpAddr, interfaces: &[Interface], routes: &[KernelRoute], used: &[IpAddr]) -> Vec<LocalEnd> {
    let is_free = |interface: &&Interface| {
        let has_own = interface.addresses.iter().any(|own| own.is_ipv4() == to.is_ipv4() && !is_local(*own));
        interface.is_line && has_own && !interface.addresses.iter().any(|own| used.contains(own))
    };
    let leads = |interface: &&Interface| {
        let mut own = routes.iter().filter(|route| route.device == interface.name);
        own.any(|route| route.leads_to(to) && (route.prefix > 0 || !is_private(to)))
    };
    let others = interfaces.iter().filter(is_free).filter(leads).filter(|_| !is_local(to));
    others.map(|interface| LocalEnd::Device(interface.name.clone())).collect()
}

impl KernelRoute {
    fn leads_to(&self, to: IpAddr) -> bool {
        let (all, differ) = match (self.network, to) {
            (IpAddr::V4(network), IpAddr::V4(to)) => (32, u128::from(network.to_bits() ^ to.to_bits())),
            (IpAddr::V6(network), IpAddr::V6(to)) => (128, network.to_bits() ^ to.to_bits()),
            _ => return false,
        };
        self.prefix <= all && differ.checked_shr(all - self.prefix).unwrap_or(0) == 0
    }
}

/// True for addresses that mean another machine on each link, or none.
const fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.is_loopback() || it.is_link_local() || it.is_multicast() || it.is_unspecified(),
        IpAddr::V6(it) => {
            it.is_loopback() || it.is_unicast_link_local() || it.is_multicast() || it.is_unspecified()
        }
    }
}

/// True for addresses that mean another machine in each private network.
fn is_private(address: IpAddr) -> bool {
    let is_shared = |it: Ipv4Addr| it.octets()[0] == 100 && it.octets()[1] & 0xc0 == 64;
    match address {
        IpAddr::V4(it) => it.is_private() || is_shared(it),
        IpAddr::V6(it) => it.is_unique_local(),
    }
}

/// The address from which the system would reach `to`. Nothing is sent.
fn own_address(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The interfaces that are up, by name.
fn interfaces() -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for own in own_addresses::of_this_machine() {
        match interfaces.iter_mut().find(|interface| interface.name == own.interface) {
            Some(interface) => interface.addresses.push(own.ip),
            None => {
                let folder = Path::new("/sys/class/net").join(&own.interface);
                let is_line = own.kind() != AddressKind::Container && is_line(&folder);
                interfaces.push(Interface { addresses: vec![own.ip], name: own.interface, is_line });
            }
        }
    }
    interfaces
}

/// True if an interface is a line of its own, as its folder tells.
fn is_line(folder: &Path) -> bool {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let events = read("uevent");
    let mut kinds = events.lines().filter_map(|line| line.strip_prefix("DEVTYPE="));
    let is_virtual = kinds.any(|kind| NO_LINES.contains(&kind)) || folder.join("tun_flags").exists();
    read("type").trim() == ETHERNET && read("operstate").trim() == "up" && !is_virtual
}

/// The routes of this machine's main table.
fn routes() -> Vec<KernelRoute> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (four, six) = (read("/proc/net/route"), read("/proc/net/ipv6_route"));
    four.lines().filter_map(route_v4).chain(six.lines().filter_map(route_v6)).collect()
}

/// A line of `/proc/net/route`: interface, network, router, flags, three counts, mask. Addresses are numbers as they lie in memory.
fn route_v4(line: &str) -> Option<KernelRoute> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [device, network, _, flags, _, _, _, mask, ..] = words[..] else { return None };
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let network = IpAddr::from(number(network)?.to_ne_bytes());
    let usable = is_usable(number(flags)?);
    usable.then_some(KernelRoute { device: device.into(), network, prefix: number(mask)?.count_ones() })
}

/// A line of `/proc/net/ipv6_route`: network and prefix, source and prefix, router, three counts, flags, interface.
fn route_v6(line: &str) -> Option<KernelRoute> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [network, prefix, _, _, _, _, _, _, flags, device] = words[..] else { return None };
    let network = IpAddr::from(u128::from_str_radix(network, 16).ok()?.to_be_bytes());
    let (prefix, flags) = (u32::from_str_radix(prefix, 16).ok()?, u32::from_str_radix(flags, 16).ok()?);
    is_usable(flags).then_some(KernelRoute { device: device.into(), network, prefix })
}

const fn is_usable(flags: u32) -> bool {
    flags & UP != 0 && flags & REFUSES == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn route(text: &str) -> KernelRoute {
        let (device, network) = text.split_once(' ').unwrap();
        let (network, prefix) = network.split_once('/').unwrap();
        KernelRoute { device: device.into(), network: ip(network), prefix: prefix.parse().unwrap() }
    }

    /// A laptop: a cable, wireless, a bridge of containers and a tunnel.
    fn laptop() -> Vec<Interface> {
        let rows: [(&str, &[&str], bool); 5] = [
            ("lo", &["127.0.0.1", "::1"], false),
            ("eth0", &["192.168.1.2", "2001:db8:1::2", "fe80::2"], true),
            ("wlan0", &["192.168.7.2", "2001:db8:7::2", "fe80::7"], true),
            ("docker0", &["172.17.0.1"], false),
            ("dummy", &["169.254.1.1"], true),
        ];
        let interface = |(name, addresses, is_line): (&str, &[&str], bool)| Interface {
            name: name.into(),
            addresses: addresses.iter().map(|text| ip(text)).collect(),
            is_line,
        };
        rows.map(interface).into()
    }

    #[test]
    fn another_line_is_one_that_has_a_route_and_is_not_in_use() {
        let both = ["eth0 0.0.0.0/0", "eth0 192.168.1.0/24", "wlan0 0.0.0.0/0", "wlan0 192.168.7.0/24"];
        let six = ["eth0 ::/0", "wlan0 ::/0", "wlan0 fe80::/64"];
        for (what, to, routes, used, expected) in [
            ("two default routes", "203.0.113.1", &both[..], &["192.168.1.2"][..], &["wlan0"][..]),
            ("the other way round", "203.0.113.1", &both, &["192.168.7.2"], &["eth0"]),
            ("both are in use", "203.0.113.1", &both, &["192.168.1.2", "192.168.7.2"], &[]),
            ("one default route", "203.0.113.1", &both[..2], &["192.168.1.2"], &[]),
            ("a private address behind a router", "192.168.1.9", &both, &["192.168.1.2"], &[]),
            ("of a provider's network", "100.64.3.1", &both, &["192.168.1.2"], &[]),
            ("one of this network", "192.168.7.9", &both, &["192.168.1.2"], &["wlan0"]),
            ("a bridge", "172.17.0.9", &["docker0 172.17.0.0/16"], &[], &[]),
            ("no address but a link's", "203.0.113.1", &["dummy 0.0.0.0/0"], &[], &[]),
            ("IPv6", "2001:db8:9::1", &six, &["2001:db8:1::2"], &["wlan0"]),
            ("in use by its other kind of address", "2001:db8:9::1", &six, &["192.168.7.2"], &["eth0"]),
            ("a private address of IPv6", "fd00::1", &six, &["2001:db8:1::2"], &[]),
            ("an address of a link", "fe80::9", &six, &["fe80::2"], &[]),
            ("this machine", "127.0.0.1", &both, &["127.0.0.1"], &[]),
            ("nothing is known of routes", "203.0.113.1", &[], &["192.168.1.2"], &[]),
        ] {
            let routes: Vec<KernelRoute> = routes.iter().map(|text| route(text)).collect();
            let used: Vec<IpAddr> = used.iter().map(|text| ip(text)).collect();
            let found = others(ip(to), &laptop(), &routes, &used);
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{what}");
        }
    }

    #[test]
    fn lines_of_the_kernel_s_tables_are_read() {
        let number = |text: &str| match ip(text) {
            IpAddr::V4(ip) => format!("{:08X}", u32::from_ne_bytes(ip.octets())),
            IpAddr::V6(ip) => format!("{:032x}", ip.to_bits()),
        };
        let four = |flags: &str| {
            let (network, mask) = (number("192.168.7.0"), number("255.255.255.0"));
            format!("wlan0\t{network}\t00000000\t{flags}\t0\t0\t600\t{mask}\t0\t0\t0")
        };
        assert_eq!(route_v4(&four("0001")), Some(route("wlan0 192.168.7.0/24")));
        assert_eq!(route_v4(&four("0000")), None, "it is down");
        assert_eq!(route_v4(&four("0201")), None, "it refuses");
        assert_eq!(route_v4("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask"), None);
        assert_eq!(route_v4("wlan0 0"), None);
        let six = |flags: &str| {
            let [network, none] = [number("2001:db8:7::"), number("::")];
            format!("{network} 40 {none} 00 {none} 00000400 00000001 00000000 {flags}    wlan0")
        };
        assert_eq!(route_v6(&six("00000001")), Some(route("wlan0 2001:db8:7::/64")));
        assert_eq!(route_v6(&six("00200200")), None);
        assert!(!KernelRoute { prefix: 255, ..route("wlan0 ::/0") }.leads_to(ip("::1")), "no such prefix");
    }

    #[test]
    fn what_is_no_line_is_told_by_its_folder() {
        for (what, files, expected) in [
            ("a cable", &[("type", "1"), ("operstate", "up"), ("uevent", "INTERFACE=eth0")][..], true),
            ("wireless", &[("type", "1"), ("operstate", "up"), ("uevent", "DEVTYPE=wlan\nX=1")], true),
            ("a bridge", &[("type", "1"), ("operstate", "up"), ("uevent", "DEVTYPE=bridge")], false),
            ("a mobile network", &[("type", "1"), ("operstate", "up"), ("uevent", "DEVTYPE=wwan")], false),
            ("a virtual machine's", &[("type", "1"), ("operstate", "up"), ("tun_flags", "0x1002")], false),
            ("a tunnel", &[("type", "65534"), ("operstate", "up")], false),
            ("no cable is in it", &[("type", "1"), ("operstate", "down")], false),
            ("nothing is told", &[], false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let write = |(name, text): &(&str, &str)| std::fs::write(folder.path().join(name), text);
            files.iter().for_each(|file| write(file).unwrap());
            assert_eq!(is_line(folder.path()), expected, "{what}");
        }
    }
}
