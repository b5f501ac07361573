//! Where a relay is: its node and its addresses, as text `NODE@HOST:PORT`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use towpath_content::NodeId;

/// Addresses of one relay, at most.
const MAX_ADDRESSES: usize = 8;
/// Bytes of one address, at most: the longest name there is, and a port.
const MAX_ADDRESS: usize = 253 + 6;

/// A relay. Its text is `NODE@HOST:PORT`, or with several addresses `NODE@HOST:PORT,HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RelayPlace {
    /// The relay's node.
    pub node: NodeId,
    /// Names or addresses, with their ports: one at least.
    pub addresses: Vec<String>,
}

/// Text that names no relay.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// There is no `@`.
    #[error("a relay is written NODE@HOST:PORT")]
    NoNode,
    /// What stands before the `@` is no node id.
    #[error("`{text}` is no node id of 64 hexadecimal digits")]
    Node {
        /// The text before the `@`.
        text: String,
    },
    /// An address that has no host, or no port from 1 to 65535.
    #[error("`{text}` is no HOST:PORT")]
    Address {
        /// The address.
        text: String,
    },
    /// More addresses than a relay may have.
    #[error("{count} addresses for one relay, over the limit of 8")]
    TooMany {
        /// How many.
        count: usize,
    },
}

impl FromStr for RelayPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (node, addresses) = text.split_once('@').ok_or(PlaceError::NoNode)?;
        let node = node.parse().map_err(|_| PlaceError::Node { text: node.to_owned() })?;
        let count = addresses.split(',').count();
        if count > MAX_ADDRESSES {
            return Err(PlaceError::TooMany { count });
        }
        let addresses = addresses.split(',').map(checked).collect::<Result<_, _>>()?;
        Ok(Self { node, addresses })
    }
}

/// The same address, if it is one.
fn checked(text: &str) -> Result<String, PlaceError> {
    let wrong = || PlaceError::Address { text: text.to_owned() };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    };
    if is_port && is_host && text.len() <= MAX_ADDRESS { Ok(text.to_owned()) } else { Err(wrong()) }
}

impl fmt::Display for RelayPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.addresses.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let node = NodeId([0xab; 32]);
        for addresses in ["relay.example:7447", "192.0.2.1:1,[2001:db8::1]:65535", "a_b-c.d:80"] {
            let text = format!("{node}@{addresses}");
            let place: RelayPlace = text.parse().unwrap();
            assert_eq!((place.node, place.to_string()), (node, text));
        }
    }

    #[test]
    fn what_names_no_relay_is_refused() {
        let node = NodeId([0xab; 32]);
        for addresses in
            ["", "host", "host:", "host:0", "host:65536", ":1", "a b:1", "::1:80", "[x]:1", "a:1,", "a/b:1"]
        {
            let error = format!("{node}@{addresses}").parse::<RelayPlace>().unwrap_err();
            assert!(matches!(error, PlaceError::Address { .. }), "{addresses}: {error}");
        }
        assert_eq!("host:1".parse::<RelayPlace>(), Err(PlaceError::NoNode));
        assert!(matches!("ab@host:1".parse::<RelayPlace>(), Err(PlaceError::Node { .. })));
        let many = format!("{node}@{}", ["a:1"; 9].join(","));
        assert_eq!(many.parse::<RelayPlace>(), Err(PlaceError::TooMany { count: 9 }));
    }
}
