//! The addresses of this machine, and which of them are of use to others. The choice is pure; [`of_this_machine`] asks the system.

use std::collections::BTreeSet;
use std::net::IpAddr;

use if_addrs::{IfOperStatus, Interface};

use crate::public::is_public;

/// Names of interfaces that lead to containers and virtual machines of this machine alone. Behind some of them is a number, or so.
const CONTAINERS: [&str; 18] = [
    "docker", "br-", "veth", "virbr", "vnet", "lxcbr", "lxdbr", "incusbr", "podman", "cni", "cbr", "cali",
    "flannel", "kube-", "cilium", "weave", "vmnet", "vboxnet",
];
/// Flags of `/proc/net/if_inet6`: one that goes after a while, one that is not to be used any more, one that is not used yet.
const PASSING: u8 = 0x01 | 0x20 | 0x40;

/// Who reaches an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// This machine alone.
    Loopback,
    /// Machines on the same link, who have to know the interface.
    LinkLocal,
    /// Containers and virtual machines of this machine.
    Container,
    /// Machines of the same site.
    Private,
    /// Anybody, unless a firewall hinders.
    Public,
}

/// An address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAddress {
    /// The interface that has it.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// Bits of its prefix: all that begin so are on the same link.
    pub prefix: u8,
    /// It will be another one soon, as the system says.
    pub is_passing: bool,
}

impl OwnAddress {
    /// Who reaches it.
    pub fn kind(&self) -> AddressKind {
        let is_link_local = match self.ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        match () {
            () if self.ip.is_loopback() || self.interface == "lo" => AddressKind::Loopback,
            () if is_link_local => AddressKind::LinkLocal,
            () if is_container(&self.interface) => AddressKind::Container,
            () if is_public(self.ip) => AddressKind::Public,
            () => AddressKind::Private,
        }
    }

    /// The interface, and the front of the address that all of its link have.
    fn link(&self) -> (&str, bool, u128) {
        let (bits, len) = match self.ip {
            IpAddr::V4(ip) => (ip.to_bits().into(), 32),
            IpAddr::V6(ip) => (ip.to_bits(), 128),
        };
        let host = u32::from(len - self.prefix.min(len));
        (&self.interface, self.ip.is_ipv6(), u128::checked_shr(bits, host).unwrap_or(0))
    }
}

fn is_container(interface: &str) -> bool {
    // A bridge of Docker has twelve hexadecimal digits. One that a person made has a name.
    let is_id = |rest: &str| rest.len() == 12 && rest.chars().all(|digit| digit.is_ascii_hexdigit());
    CONTAINERS
        .iter()
        .any(|front| interface.strip_prefix(front).is_some_and(|rest| *front != "br-" || is_id(rest)))
}

/// The addresses of all interfaces that are up.
pub fn of_this_machine() -> Vec<OwnAddress> {
    let mut interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    interfaces.retain(|interface| {
        !matches!(
            interface.oper_status,
            IfOperStatus::Down | IfOperStatus::NotPresent | IfOperStatus::LowerLayerDown
        )
    });
    let passing = passing(&std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default());
    interfaces.into_iter().map(|interface| own(interface, &passing)).collect()
}

fn own(interface: Interface, passing: &BTreeSet<u128>) -> OwnAddress {
    let prefix = match &interface.addr {
        if_addrs::IfAddr::V4(own) => own.netmask.to_bits().count_ones(),
        if_addrs::IfAddr::V6(own) => own.netmask.to_bits().count_ones(),
    };
    let ip = interface.ip();
    let is_passing = matches!(ip, IpAddr::V6(ip) if passing.contains(&ip.to_bits()));
    OwnAddress { interface: interface.name, ip, prefix: prefix as u8, is_passing }
}

/// Addresses of IPv6 that Linux does not keep: lines of address, index, length, scope, flags and name.
fn passing(table: &str) -> BTreeSet<u128> {
    let of_line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let flags = u8::from_str_radix(words.get(4)?, 16).ok()?;
        u128::from_str_radix(words.first()?, 16).ok().filter(|_| flags & PASSING != 0)
    };
    table.lines().filter_map(of_line).collect()
}

/// Those that are of use to others, IPv4 first: one for each link. Not that of the machine alone, of one link, or of containers, and no
/// private one of IPv6 beside a public one. If nothing is left, those of containers; if there are none either, the machine's own.
pub fn for_others(own: &[OwnAddress], only_v4: bool) -> Vec<IpAddr> {
    let mut usable: Vec<_> = own.iter().filter(|own| !(only_v4 && own.ip.is_ipv6())).collect();
    // Of each link the first one counts.
    usable.sort_by_key(|own| (own.ip.is_ipv6(), own.is_passing));
    let of = |kinds: &[AddressKind]| -> Vec<&OwnAddress> {
        usable.iter().copied().filter(|own| kinds.contains(&own.kind())).collect()
    };
    let far = of(&[AddressKind::Private, AddressKind::Public]);
    let is_covered = |own: &OwnAddress| {
        own.ip.is_ipv6()
            && own.kind() == AddressKind::Private
            && far.iter().any(|other| {
                other.interface == own.interface && other.ip.is_ipv6() && other.kind() == AddressKind::Public
            })
    };
    let chosen =
        [far.iter().copied().filter(|own| !is_covered(own)).collect(), of(&[AddressKind::Container])];
    let chosen = chosen.into_iter().find(|chosen: &Vec<_>| !chosen.is_empty());
    let (mut links, mut ips) = (BTreeSet::new(), BTreeSet::new());
    let one_of_each = chosen.unwrap_or_else(|| of(&[AddressKind::Loopback])).into_iter();
    one_of_each.filter(|own| links.insert(own.link()) && ips.insert(own.ip)).map(|own| own.ip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> Vec<OwnAddress> {
        let of = |text: &&str| {
            let (interface, rest) = text.split_once(' ').unwrap();
            let (ip, prefix) = rest.trim_end_matches('~').split_once('/').unwrap();
            let (ip, prefix) = (ip.parse().unwrap(), prefix.parse().unwrap());
            OwnAddress { interface: interface.into(), ip, prefix, is_passing: rest.ends_with('~') }
        };
        texts.iter().map(of).collect()
    }

    #[test]
    fn a_ticket_names_what_others_can_use() {
        let table: [(&str, &[&str], &[&str]); 11] = [
            ("nothing but loopback", &["lo 127.0.0.1/8", "lo ::1/128"], &["127.0.0.1", "::1"]),
            ("nothing at all", &[], &[]),
            (
                "a machine at home",
                &[
                    "lo 127.0.0.1/8",
                    "lo ::1/128",
                    "wlan0 192.168.1.7/24",
                    "wlan0 fe80::1/64",
                    "docker0 172.17.0.1/16",
                ],
                &["192.168.1.7"],
            ),
            (
                "addresses that go, and those of the site, beside one that stays",
                &["e 2606:4700::2/64~", "e 2606:4700::1/64", "e fd00::1/64", "e 192.168.1.7/24"],
                &["192.168.1.7", "2606:4700::1"],
            ),
            ("only one that goes", &["e 2606:4700::2/64~"], &["2606:4700::2"]),
            ("of the site alone", &["e fd00::1/64", "e 10.0.0.1/8"], &["10.0.0.1", "fd00::1"]),
            (
                "two on one link",
                &["e 10.0.0.1/8", "e 10.0.0.2/8", "e 10.0.0.3/32"],
                &["10.0.0.1", "10.0.0.3"],
            ),
            ("two interfaces of one link", &["e 10.0.0.1/8", "w 10.0.0.2/8"], &["10.0.0.1", "10.0.0.2"]),
            ("one address twice", &["e 10.0.0.1/8", "w 10.0.0.1/24"], &["10.0.0.1"]),
            (
                "containers alone",
                &["lo 127.0.0.1/8", "br-0123456789ab 172.18.0.1/16", "veth1 fe80::1/64"],
                &["172.18.0.1"],
            ),
            (
                "a bridge by a person",
                &["br-lan 192.168.1.1/24", "br0 10.1.1.1/24"],
                &["192.168.1.1", "10.1.1.1"],
            ),
        ];
        for (what, own, expected) in table {
            let expected: Vec<IpAddr> = expected.iter().map(|ip| ip.parse().unwrap()).collect();
            assert_eq!(for_others(&all(own), false), expected, "{what}");
        }
        let both = all(&["lo 127.0.0.1/8", "e 2606:4700::1/64"]);
        assert_eq!(
            for_others(&both, true),
            ["127.0.0.1".parse::<IpAddr>().unwrap()],
            "IPv4 alone is listened on"
        );
    }

    #[test]
    fn linux_tells_which_addresses_go() {
        let table = "fd000000000000000000000000000002 02 40 00 80     eth0\n\
                     26064700000000000000000000000002 02 40 00 01     eth0\n\
                     26064700000000000000000000000003 02 40 00 20     eth0\nnonsense\n\n";
        let expected: Vec<u128> = ["2606:4700::2", "2606:4700::3"]
            .map(|ip| ip.parse::<std::net::Ipv6Addr>().unwrap().to_bits())
            .to_vec();
        assert_eq!(passing(table).into_iter().collect::<Vec<_>>(), expected);
        assert!(passing("").is_empty());
    }

    #[test]
    fn this_machine_has_its_loopback() {
        let own = of_this_machine();
        assert!(own.iter().any(|own| own.kind() == AddressKind::Loopback), "{own:?}");
        assert!(!for_others(&own, false).is_empty());
    }
}
