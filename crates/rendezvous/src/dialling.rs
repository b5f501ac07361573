//! The way to a server: its name is looked up, and where only a ticket named it nothing but public addresses are dialled.

use std::net::SocketAddr;

use towpath_link::public::is_public;
use towpath_link::tcp::{DialConfig, SharedPort, dial_any};
use towpath_link::{Connection, Identity};

use crate::PROTOCOL;
use crate::place::KnownServer;

/// Addresses of a server that are tried.
const MOST_ADDRESSES: usize = 8;

/// A server, and how it is dialled.
#[derive(Debug)]
pub(crate) struct ServerWay {
    pub(crate) server: KnownServer,
    pub(crate) identity: Identity,
    /// This machine's port, if it matters.
    pub(crate) port: Option<SharedPort>,
}

impl ServerWay {
    /// A connection, or why there is none.
    pub(crate) async fn dial(&self) -> Result<Connection, String> {
        let KnownServer { place, is_trusted } = &self.server;
        let address = &place.address;
        let found = tokio::net::lookup_host(address).await.map_err(|error| format!("{address}: {error}"))?;
        let may = |address: &SocketAddr| *is_trusted || is_public(address.ip());
        let addresses: Vec<SocketAddr> = found.filter(may).take(MOST_ADDRESSES).collect();
        if addresses.is_empty() {
            return Err(format!("{address}: a ticket names it, and its address is not a public one"));
        }
        let how = DialConfig { protocol: PROTOCOL, port: self.port.clone(), ..DialConfig::default() };
        dial_any(&addresses, &self.identity, place.node, &how).await.map_err(|error| error.to_string())
    }
}
