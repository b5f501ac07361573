//! Where a rendezvous server is: `NODE@HOST:PORT`, which is all that is needed to reach it and to know that it is the one.

use std::fmt;
use std::str::FromStr;

use towpath_content::NodeId;
use towpath_content::codec::{DecodeError, invalid};
use towpath_content::hint::{PeerAddress, RENDEZVOUS};

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerPlace {
    /// Its node id: another one that answers there is refused.
    pub node: NodeId,
    /// `HOST:PORT`; a name is looked up when it is dialled.
    pub address: String,
}

/// A server, and whether the person named it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KnownServer {
    /// The server.
    pub place: ServerPlace,
    /// The person typed or configured it. One that a ticket alone names is dialled at public addresses only.
    pub is_trusted: bool,
}

impl ServerPlace {
    /// The method of a hint that names it.
    pub fn method(&self) -> String {
        format!("{RENDEZVOUS}://{self}")
    }
}

impl FromStr for ServerPlace {
    type Err = DecodeError;

    /// Reads `NODE@HOST:PORT`, also behind `meet://`.
    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let text = text.strip_prefix("meet://").unwrap_or(text);
        let PeerAddress { node, address } = text.parse()?;
        let node = node.ok_or(invalid("rendezvous", "write NODE@HOST:PORT, as the server prints it"))?;
        let has_port = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0));
        match has_port {
            true => Ok(Self { node, address }),
            false => Err(invalid("rendezvous", "a port is missing: write NODE@HOST:PORT")),
        }
    }
}

impl fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_half_of_one_is_refused() {
        let place = ServerPlace { node: NodeId([7; 32]), address: "meet.example.org:4433".into() };
        assert_eq!(place.to_string().parse(), Ok(place.clone()));
        assert_eq!(place.method().parse(), Ok(place.clone()));
        let v6 = ServerPlace { address: "[2001:db8::1]:4433".into(), ..place.clone() };
        assert_eq!(v6.to_string().parse(), Ok(v6));
        for text in ["meet.example.org:4433", "", "12@host:1", &format!("{}@host", place.node)] {
            assert!(text.parse::<ServerPlace>().is_err(), "{text}");
        }
        for port in ["0", "x", "65536", ""] {
            assert!(format!("{}@host:{port}", place.node).parse::<ServerPlace>().is_err(), "{port}");
        }
    }
}
