//! Rendezvous servers and relays, asked under a name of chance: this machine's node shows itself to none of them, and whoever waits
//! there as this node already is not disturbed.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use towpath_config::Config;
use towpath_content::hint::PeerAddress;
use towpath_link::tcp::{DialConfig, SharedPort, Timeouts, dial_any};
use towpath_link::{Connection, Identity, Protocol};
use towpath_peer_server::relayed;
use towpath_relay::{RELAY_PROTOCOL, RelayDial, RelayPass, RelayPlace, Waiting, WaitingPlace, WaitingState};
use towpath_rendezvous::PROTOCOL;
use towpath_rendezvous::message::ToClient;

use crate::findings::{ServerAnswer, ServerFinding};

/// Time for each step of dialling.
const STEP: Duration = Duration::from_secs(2);
/// Time for one server.
const LIMIT: Duration = Duration::from_secs(4);
/// Addresses of a server that are tried.
const MOST_ADDRESSES: usize = 4;

/// The pass for the relays, or why there is none.
pub(crate) fn pass(config: &Config) -> Result<Option<RelayPass>, String> {
    let file = config.rendezvous.relay_pass.as_ref();
    file.map(|file| relayed::pass(&file.0).map_err(|error| error.message)).transpose()
}

/// Asks rendezvous servers from two ports of this machine, the same two for all, how they see it.
pub(crate) async fn ask_rendezvous(servers: &[PeerAddress]) -> Vec<ServerFinding> {
    let ports: Vec<SharedPort> = (0..2).filter_map(|_| SharedPort::new().ok()).collect();
    let ask = async |server: &PeerAddress| {
        let asked = join_all(ports.iter().map(|port| sight(server, port)));
        let answer = match timeout(LIMIT, asked).await {
            Ok(sights) => sights.into_iter().collect::<Result<Vec<_>, _>>().map(|sights| ServerAnswer {
                round_trip: sights.iter().filter_map(|(round_trip, ..)| *round_trip).min(),
                seen: sights.iter().map(|(_, port, seen)| (*port, *seen)).collect(),
                ..ServerAnswer::default()
            }),
            Err(_) => Err(late()),
        };
        ServerFinding { place: server.address.clone(), answer }
    };
    join_all(servers.iter().map(ask)).await
}

/// Asks relays whether a node of chance may wait there, with the pass if there is one.
pub(crate) async fn ask_relays(relays: &[PeerAddress], pass: Option<&RelayPass>) -> Vec<ServerFinding> {
    let ask = async |relay: &PeerAddress| {
        let answer = timeout(LIMIT, wait_at(relay, pass)).await.unwrap_or_else(|_| Err(late()));
        ServerFinding { place: relay.address.clone(), answer }
    };
    join_all(relays.iter().map(ask)).await
}

fn late() -> String {
    format!("no answer within {} s", LIMIT.as_secs())
}

async fn dial(
    server: &PeerAddress,
    protocol: Protocol,
    port: Option<SharedPort>,
) -> Result<Connection, String> {
    let node = server.node.ok_or("no node is named: write NODE@HOST:PORT")?;
    let found = tokio::net::lookup_host(&server.address).await.map_err(|error| error.to_string())?;
    let addresses: Vec<SocketAddr> = found.take(MOST_ADDRESSES).collect();
    let identity = Identity::generate().map_err(|error| error.to_string())?;
    let timeouts = Timeouts { connect: STEP, handshake: STEP };
    let how = DialConfig { timeouts, protocol, port, ..DialConfig::default() };
    dial_any(&addresses, &identity, node, &how).await.map_err(|error| error.to_string())
}

/// The round trip, the port, and the address that the server sees.
async fn sight(
    server: &PeerAddress,
    port: &SharedPort,
) -> Result<(Option<Duration>, u16, SocketAddr), String> {
    let mut connection = dial(server, PROTOCOL, Some(port.clone())).await?;
    let round_trip = round_trip(&connection);
    let frame = connection.reader.next().await.map_err(|error| error.to_string())?;
    let frame = frame.ok_or("the server hung up")?;
    match ToClient::from_frame(frame.kind, &frame.body) {
        Ok(Some(ToClient::Seen(seen))) => Ok((round_trip, port.number(), seen)),
        Ok(Some(ToClient::Refused(why))) => Err(why.reason().to_owned()),
        _ => Err("the server's answer is none".to_owned()),
    }
}

fn round_trip(connection: &Connection) -> Option<Duration> {
    connection.info.read().map(|path| path.rtt)
}

async fn wait_at(relay: &PeerAddress, pass: Option<&RelayPass>) -> Result<ServerAnswer, String> {
    let connection = dial(relay, RELAY_PROTOCOL, None).await?;
    let round_trip = round_trip(&connection);
    drop(connection);
    let node = relay.node.ok_or("no node is named")?;
    let place = RelayPlace { node, addresses: vec![relay.address.clone()] };
    let identity = Identity::generate().map_err(|error| error.to_string())?;
    let places = vec![WaitingPlace { place, pass: pass.cloned() }];
    let waiting = Waiting::start(places, &identity, &RelayDial::default());
    let mut states = waiting.states();
    let settled = states.wait_for(|states| !states.contains(&WaitingState::Connecting)).await;
    let settled = settled.map_err(|_| "the relay's answer is none")?;
    let refused = settled.iter().find_map(|state| match state {
        WaitingState::Refused(why) => Some(why.to_string()),
        _ => None,
    });
    Ok(ServerAnswer { round_trip, refused, has_pass: pass.is_some(), ..ServerAnswer::default() })
}
