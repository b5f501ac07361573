//! Which of this machine's links a connection goes out by.
//!
//! An address alone does not choose the link on a machine with one default route, so the device is bound, too; and a device
//! alone does not choose the routes of a machine that has some for each address. Linux lets everybody bind devices since 5.7;
//! elsewhere an address is all that can be bound.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use if_addrs::Interface;
use thiserror::Error;
use tokio::net::TcpSocket;

/// Most bytes of an interface's name, as Linux has it.
const MAX_NAME: usize = 15;

/// This machine's end of connections: an interface by its name, as in `eth0`, or one of the machine's addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LocalEnd {
    /// An interface.
    Device(String),
    /// An address, and the interface that has it.
    Address(IpAddr),
}

/// Reason why a text names no end.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{0}' is neither an address nor the name of an interface")]
pub struct NoLocalEnd(String);

impl FromStr for LocalEnd {
    type Err = NoLocalEnd;

    fn from_str(text: &str) -> Result<Self, NoLocalEnd> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b',';
        let is_name = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(fits);
        if is_name { Ok(Self::Device(text.to_owned())) } else { Err(NoLocalEnd(text.to_owned())) }
    }
}

impl fmt::Display for LocalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl LocalEnd {
    /// True if this machine has it now.
    pub fn is_there(&self) -> bool {
        if_addrs::get_if_addrs().unwrap_or_default().iter().any(|interface| match self {
            Self::Device(name) => interface.name == *name,
            Self::Address(address) => interface.ip() == *address,
        })
    }

    /// Addresses of this machine at this end, now.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self {
            Self::Address(address) => vec![*address],
            Self::Device(name) => {
                let all = if_addrs::get_if_addrs().unwrap_or_default();
                all.iter().filter(|interface| interface.name == *name).map(Interface::ip).collect()
            }
        }
    }

    /// True if a connection to `remote` can begin here.
    pub(super) const fn reaches(&self, remote: SocketAddr) -> bool {
        match self {
            Self::Device(_) => true,
            Self::Address(address) => address.is_ipv4() == remote.is_ipv4(),
        }
    }

    /// Has `socket`, which isn't connected to `remote` yet, go out here.
    pub(super) fn bind(&self, socket: &TcpSocket, remote: SocketAddr) -> io::Result<()> {
        let interfaces = if_addrs::get_if_addrs()?;
        match self {
            Self::Device(name) => {
                bind_device(socket, name)?;
                let own = interfaces.iter().filter(|interface| interface.name == *name).map(Interface::ip);
                // Of several the kernel knows best which one leads there.
                match own.filter(|own| leads_to(*own, remote)).collect::<Vec<_>>()[..] {
                    [own] => socket.bind(SocketAddr::new(own, 0)),
                    _ => Ok(()),
                }
            }
            Self::Address(address) => {
                socket.bind(SocketAddr::new(*address, 0))?;
                let device = interfaces.iter().find(|interface| interface.ip() == *address);
                device.map_or(Ok(()), |device| bind_device(socket, &device.name))
            }
        }
    }
}

/// True if one of a machine's addresses may be that from which `remote` is reached.
fn leads_to(own: IpAddr, remote: SocketAddr) -> bool {
    match (own, remote.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => true,
        (IpAddr::V6(own), IpAddr::V6(remote)) => {
            own.is_unicast_link_local() == remote.is_unicast_link_local()
        }
        _ => false,
    }
}

#[cfg(target_os = "linux")]
fn bind_device(socket: &TcpSocket, name: &str) -> io::Result<()> {
    socket.bind_device(Some(name.as_bytes()))
}

#[cfg(not(target_os = "linux"))]
fn bind_device(_socket: &TcpSocket, name: &str) -> io::Result<()> {
    let interfaces = if_addrs::get_if_addrs()?;
    match interfaces.iter().any(|interface| interface.name == name) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::NotFound, "there is no such interface")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_address_or_an_interface() {
        let rows = [
            ("eth0", Ok(LocalEnd::Device("eth0".into()))),
            ("wlp3s0.7", Ok(LocalEnd::Device("wlp3s0.7".into()))),
            ("192.0.2.1", Ok(LocalEnd::Address([192, 0, 2, 1].into()))),
            ("2001:db8::1", Ok(LocalEnd::Address("2001:db8::1".parse().unwrap()))),
            ("", Err(())),
            ("eth0,eth1", Err(())),
            ("a name", Err(())),
            ("../eth0", Err(())),
            ("sixteen_bytes_is", Err(())),
        ];
        for (text, end) in rows {
            let parsed = text.parse::<LocalEnd>();
            assert_eq!(parsed.clone().map_err(drop), end, "{text}");
            assert!(parsed.is_err() || parsed.unwrap().to_string() == text, "{text}");
        }
    }

    #[test]
    fn addresses_of_one_kind_lead_to_each_other() {
        let own = |text: &str| text.parse::<IpAddr>().unwrap();
        for (from, to, leads) in [
            ("192.0.2.1", "198.51.100.1:7", true),
            ("192.0.2.1", "[2001:db8::1]:7", false),
            ("2001:db8::2", "[2001:db8::1]:7", true),
            ("fe80::2", "[2001:db8::1]:7", false),
            ("fe80::2", "[fe80::1]:7", true),
        ] {
            assert_eq!(leads_to(own(from), to.parse().unwrap()), leads, "{from} {to}");
        }
    }

    #[test]
    fn what_the_machine_has_is_there() {
        assert!(LocalEnd::Address([127, 0, 0, 1].into()).is_there());
        assert!(!LocalEnd::Address([192, 0, 2, 1].into()).is_there());
        assert!(!LocalEnd::Device("nothing_here".into()).is_there());
    }
}
