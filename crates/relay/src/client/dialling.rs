//! Connecting with a relay, and the first words.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::net::lookup_host;
use tokio::time::timeout;
use towpath_link::frame::{ReadError, WriteError};
use towpath_link::tcp::{DialConfig, DialError, Timeouts, dial_any};
use towpath_link::tls::HandshakeError;
use towpath_link::{Connection, Identity};

use crate::RELAY_PROTOCOL;
use crate::message::{FailReason, MAX_FRAME, RelayMessage};
use crate::place::RelayPlace;

/// Addresses of a name that are tried: who named it may have written many.
const MOST_ADDRESSES: usize = 8;

/// How relays are dialled.
#[derive(Debug, Clone)]
pub struct RelayDial {
    /// Longest times. Default: 5 s each.
    pub timeouts: Timeouts,
    /// Addresses that may be dialled: for relays that nobody here has chosen, public ones only. Default: all.
    pub allows: fn(IpAddr) -> bool,
}

impl Default for RelayDial {
    fn default() -> Self {
        let limit = Duration::from_secs(5);
        Self { timeouts: Timeouts { connect: limit, handshake: limit }, allows: |_| true }
    }
}

/// Reason why one relay was of no help.
#[derive(Debug, Error)]
pub enum AttemptError {
    /// Its name leads to no address that may be dialled.
    #[error("no address of the relay is known that may be dialled")]
    NoAddress,
    /// There is no connection with it.
    #[error("{source}")]
    Dial {
        /// The error of dialling.
        source: DialError,
    },
    /// It said no.
    #[error("{why}")]
    Refused {
        /// Its reason.
        why: FailReason,
    },
    /// It did not answer in time.
    #[error("the relay did not answer within {limit:?}")]
    NoAnswer {
        /// The time there was.
        limit: Duration,
    },
    /// It answered with something else than an answer, or hung up.
    #[error("the relay's answer is none")]
    Answer,
    /// The connection with it broke.
    #[error("the connection with the relay broke: {source}")]
    Read {
        /// The error of reading.
        source: ReadError,
    },
    /// The connection with it broke.
    #[error("the connection with the relay broke: {source}")]
    Write {
        /// The error of writing.
        source: WriteError,
    },
    /// The two ends did not shake hands through it.
    #[error("no connection through the relay: {source}")]
    EndToEnd {
        /// The error of the handshake.
        source: HandshakeError,
    },
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandom,
    /// Another node called than the relay had told.
    #[error("another node called than the relay told")]
    WrongCaller,
}

/// Connects with a relay.
pub(super) async fn dial_relay(
    place: &RelayPlace,
    identity: &Identity,
    how: &RelayDial,
) -> Result<Connection, AttemptError> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in &place.addresses {
        let found = timeout(how.timeouts.connect, lookup_host(address.as_str())).await;
        let found = found.ok().and_then(Result::ok).into_iter().flatten();
        addresses.extend(found.filter(|address| (how.allows)(address.ip())).take(MOST_ADDRESSES));
    }
    if addresses.is_empty() {
        return Err(AttemptError::NoAddress);
    }
    let config = DialConfig { timeouts: how.timeouts, protocol: RELAY_PROTOCOL, ..DialConfig::default() };
    let dialled = dial_any(&addresses, identity, place.node, &config).await;
    let mut connection = dialled.map_err(|source| AttemptError::Dial { source })?;
    connection.reader.limit(MAX_FRAME);
    Ok(connection)
}

/// Asks a relay for something; returns what the other end of the circuit has taken in.
pub(super) async fn ask(
    connection: &mut Connection,
    request: &RelayMessage,
    limit: Duration,
) -> Result<u64, AttemptError> {
    request.queue(&mut connection.writer).map_err(|source| AttemptError::Write { source })?;
    answer(connection, limit).await
}

/// Sends what was asked, and waits for the relay's answer.
pub(super) async fn answer(connection: &mut Connection, limit: Duration) -> Result<u64, AttemptError> {
    match next_answer(connection, limit).await? {
        RelayMessage::Ok { received } => Ok(received),
        RelayMessage::Fail { why } => Err(AttemptError::Refused { why }),
        _ => Err(AttemptError::Answer),
    }
}

/// Sends what waits, and returns the next message.
pub(super) async fn next_answer(
    connection: &mut Connection,
    limit: Duration,
) -> Result<RelayMessage, AttemptError> {
    connection.writer.flush().await.map_err(|source| AttemptError::Write { source })?;
    let frame = timeout(limit, connection.reader.next()).await;
    let frame = frame.map_err(|_| AttemptError::NoAnswer { limit })?;
    let frame = frame.map_err(|source| AttemptError::Read { source })?.ok_or(AttemptError::Answer)?;
    RelayMessage::decode(frame.kind, frame.body).map_err(|_| AttemptError::Answer)
}
