//! The way to a server: its name is looked up, and where only a ticket named it nothing but public addresses are dialled.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;
use towpath_link::public::is_public;
use towpath_link::tcp::{DialConfig, SharedPort, dial_any};
use towpath_link::{Connection, Identity};

use crate::PROTOCOL;
use crate::place::KnownServer;

/// Time for its name to be looked up.
const LOOK_UP: Duration = Duration::from_secs(10);
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
        let found = timeout(LOOK_UP, tokio::net::lookup_host(address)).await;
        let found = found.map_err(|_| format!("{address}: the name was not found within {LOOK_UP:?}"))?;
        let found = found.map_err(|error| format!("{address}: {error}"))?;
        let may = |address: &SocketAddr| *is_trusted || is_public(address.ip());
        let addresses: Vec<SocketAddr> = found.filter(may).take(MOST_ADDRESSES).collect();
        if addresses.is_empty() {
            return Err(format!("{address}: a ticket names it, and its address is not a public one"));
        }
        let how = DialConfig { protocol: PROTOCOL, port: self.port.clone(), ..DialConfig::default() };
        dial_any(&addresses, &self.identity, place.node, &how).await.map_err(|error| error.to_string())
    }
}
