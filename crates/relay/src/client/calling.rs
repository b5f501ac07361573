//! Calling a node that waits at a relay.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;
use towpath_content::NodeId;
use towpath_link::tls::open_over;
use towpath_link::{Connection, Identity, Protocol};

use super::dialling::{AttemptError, RelayDial, answer, dial_relay};
use super::driving::{CircuitWay, carry_on};
use super::socket::{CircuitShared, CircuitSocket};
use super::waiting::WaitingPlace;
use crate::message::{CircuitId, RelayMessage};
use crate::place::RelayPlace;
use crate::table::ANSWER_LIMIT;

/// So long a relay may take with its answer: the limit it has itself, and a way.
pub(super) const ANSWER: Duration = ANSWER_LIMIT.saturating_add(Duration::from_secs(2));
/// So long the handshake of both ends may take, losses of the relay included.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(15);

/// A relay that was of no help.
#[derive(Debug)]
pub struct CallAttempt {
    /// The relay.
    pub place: RelayPlace,
    /// Why.
    pub error: AttemptError,
}

/// Reason why a node was not reached.
#[derive(Debug, Error)]
pub enum CallError {
    /// No relay was given.
    #[error("no relay is known for this node")]
    NoRelay,
    /// None of the relays was of help.
    #[error("no relay leads there: {}", Attempts(attempts))]
    AllFailed {
        /// Them, in the order in which they were tried.
        attempts: Vec<CallAttempt>,
    },
}

struct Attempts<'a>(&'a [CallAttempt]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, attempt) in self.0.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(f, "{comma}{}: {}", attempt.place.addresses.join(","), attempt.error)?;
        }
        Ok(())
    }
}

/// Connects with `callee`, which waits at one of `relays`, to speak `protocol`. They are tried in their order; when the
/// one that was taken is lost later, the connection goes on by way of it or the others.
pub async fn call(
    relays: &[RelayPlace],
    identity: &Identity,
    callee: NodeId,
    protocol: Protocol,
    how: &RelayDial,
) -> Result<Connection, CallError> {
    let mut attempts = Vec::new();
    for (at, place) in relays.iter().enumerate() {
        match call_at(at, relays, identity, callee, protocol, how).await {
            Ok(connection) => return Ok(connection),
            Err(error) => attempts.push(CallAttempt { place: place.clone(), error }),
        }
    }
    Err(if attempts.is_empty() { CallError::NoRelay } else { CallError::AllFailed { attempts } })
}

/// The handshake with the other end begins with the call: its first block goes with it.
async fn call_at(
    at: usize,
    relays: &[RelayPlace],
    identity: &Identity,
    callee: NodeId,
    protocol: Protocol,
    how: &RelayDial,
) -> Result<Connection, AttemptError> {
    let mut connection = dial_relay(&relays[at], identity, how).await?;
    let circuit = fresh_circuit()?;
    let shared = CircuitShared::new();
    let (socket, probe) = (CircuitSocket(Arc::clone(&shared)), shared.probe());
    let opening = open_over(socket, identity, callee, protocol, HANDSHAKE, probe);
    let places = relays.iter().map(|place| WaitingPlace { place: place.clone(), pass: None }).collect();
    let way = CircuitWay {
        places,
        at,
        identity: identity.clone(),
        how: how.clone(),
        circuit,
        other: callee,
        is_caller: true,
    };
    let joining = async {
        let call = RelayMessage::Call { node: callee, circuit };
        call.queue(&mut connection.writer).map_err(|source| AttemptError::Write { source })?;
        let first = shared.update(|circuit, now| circuit.transmit(now));
        let first = first.map_or(Ok(()), |first| first.queue(&mut connection.writer));
        first.map_err(|source| AttemptError::Write { source })?;
        answer(&mut connection, ANSWER).await?;
        carry_on(way, &shared, Some(connection));
        Ok(())
    };
    // The handshake is polled first, so that there is a block.
    let opening = async { opening.await.map_err(|source| AttemptError::EndToEnd { source }) };
    let (opened, ()) = tokio::try_join!(biased; opening, joining)?;
    Ok(opened)
}

/// A name that nobody has drawn before.
fn fresh_circuit() -> Result<CircuitId, AttemptError> {
    let mut id = [0; 16];
    getrandom(&mut id[..], GetRandomFlags::empty()).map_err(|_| AttemptError::NoRandom)?;
    Ok(CircuitId(id))
}
