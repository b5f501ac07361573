//! Whose connections count together: one host has all of an IPv6 /64.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or the network (/64) of an IPv6 one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressGroup(IpAddr);

impl AddressGroup {
    /// The group of `address`.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                Self(Ipv6Addr::from(network).into())
            }
        }
    }

    /// An address of it, for another server to count by.
    pub const fn ip(self) -> IpAddr {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_and_ipv4_is_the_same_in_either_form() {
        let group = |text: &str| AddressGroup::of(text.parse().unwrap());
        assert_eq!(group("2001:db8:1:2::1"), group("2001:db8:1:2:ffff::9"));
        assert_ne!(group("2001:db8:1:2::1"), group("2001:db8:1:3::1"));
        assert_eq!(group("192.0.2.1"), group("::ffff:192.0.2.1"));
        assert_ne!(group("192.0.2.1"), group("192.0.2.2"));
    }
}
