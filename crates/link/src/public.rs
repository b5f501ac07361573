//! Which addresses are public: what nobody here named, a URL or a server, leads to no other ones. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True if `address` is one that anybody may reach (IANA's registries of special addresses; RFC 6890).
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_special = match address.octets() {
        [0 | 10 | 127, ..] => true,
        [100, second, ..] => (64..128).contains(&second),
        [169, 254, ..] | [192, 168, ..] | [192, 0, 0 | 2, _] => true,
        [172, second, ..] => (16..32).contains(&second),
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        [first, ..] => first >= 224,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Translated (RFC 6052) and by 6to4 (RFC 3056): they lead to the address that they hold.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        [0x3fff, second, ..] => second >= 0x1000,
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ones_own_network_and_machine_are_not_public() {
        for (address, is_it) in [
            ("1.1.1.1", true),
            ("9.255.255.255", true),
            ("10.0.0.1", false),
            ("0.0.0.0", false),
            ("127.0.0.1", false),
            ("100.63.0.1", true),
            ("100.64.0.1", false),
            ("100.128.0.1", true),
            ("169.254.169.254", false),
            ("172.15.0.1", true),
            ("172.16.0.1", false),
            ("172.32.0.1", true),
            ("192.0.0.8", false),
            ("192.0.2.1", false),
            ("192.0.3.1", true),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("198.51.100.7", false),
            ("203.0.113.7", false),
            ("223.255.255.255", true),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:8.8.8.8", true),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b::808:808", true),
            ("2001:db8::1", false),
            ("2001::1", false),
            ("2001:200::1", true),
            ("2002:7f00:1::", false),
            ("2002:808:808::", true),
            ("2606:4700::1111", true),
            ("3fff::1", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("ff02::1", false),
            ("fec0::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), is_it, "{address}");
        }
    }
}
