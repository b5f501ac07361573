//! The task that carries a circuit: messages to and from the relay, and another way when the relay is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout};
use towpath_content::NodeId;
use towpath_link::frame::WriteError;
use towpath_link::tcp::Timeouts;
use towpath_link::{Connection, FrameReader, FrameWriter, Identity, PathProbe};

use super::dialling::{AttemptError, RelayDial, ask, dial_relay};
use super::socket::{CircuitShared, CircuitSocket};
use super::waiting::WaitingPlace;
use crate::message::{CircuitId, FailReason, RelayMessage};
use crate::redial::{CALLEE_STAYS, CALLER_STAYS, Redial};

/// What waits is written once it is a block.
const WRITE_AT: usize = 64 << 10;
/// After so long without anything to send memory is given back.
const IDLE: Duration = Duration::from_millis(500);
/// The clock is not looked at more often than this beside what is sent.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// So long the last words of a circuit may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// After a loss no relay may take longer for each step of connecting.
const REDIAL_LIMIT: Duration = Duration::from_secs(3);

/// A circuit, and all that is needed to find its other end again.
pub(super) struct CircuitWay {
    /// Relays to try, ...
    pub(super) places: Arc<[WaitingPlace]>,
    /// ... of which this one carries it.
    pub(super) at: usize,
    pub(super) identity: Identity,
    pub(super) how: RelayDial,
    pub(super) circuit: CircuitId,
    /// The node at the other end.
    pub(super) other: NodeId,
    pub(super) is_caller: bool,
}

/// Carries a circuit in a task of its own: over `connection`, whose relay has joined both ends; without one it looks for
/// the other end first.
pub(super) fn start(way: CircuitWay, connection: Option<Connection>) -> (CircuitSocket, PathProbe) {
    let shared = CircuitShared::new();
    carry_on(way, &shared, connection);
    let probe = shared.probe();
    (CircuitSocket(shared), probe)
}

/// The same for a circuit of which something was sent on `connection` already.
pub(super) fn carry_on(way: CircuitWay, shared: &Arc<CircuitShared>, connection: Option<Connection>) {
    tokio::spawn(run(way, Arc::clone(shared), connection));
}

async fn run(mut way: CircuitWay, shared: Arc<CircuitShared>, mut connection: Option<Connection>) {
    let mut redial = Redial::new(way.places.len(), way.at);
    loop {
        if let Some(connection) = connection {
            carry(&shared, connection).await;
        }
        if !shared.update(is_lost) {
            break;
        }
        tracing::debug!(circuit = ?way.circuit, "the relay is lost");
        match resume(&mut way, &shared, &mut redial).await {
            None => break,
            next => connection = next,
        }
    }
    let (end, sent) = shared.update(|circuit, _| (circuit.end(), circuit.sent_bytes()));
    tracing::debug!(circuit = ?way.circuit, ?end, sent, "a circuit is over");
}

/// The connection has ended; true if the circuit has not.
fn is_lost(circuit: &mut crate::circuit::Circuit, now: Instant) -> bool {
    circuit.lost(now);
    circuit.is_paused()
}

/// Carries the circuit until it is over or the connection is lost.
async fn carry(shared: &CircuitShared, connection: Connection) {
    let Connection { mut reader, mut writer, .. } = connection;
    tokio::select! {
        () = receive(shared, &mut reader) => {}
        sent = send(shared, &mut writer) => {
            if sent.is_ok() && !shared.update(|circuit, _| circuit.is_paused()) {
                // The relay may be gone.
                let _ = timeout(FAREWELL, writer.finish()).await;
            }
        }
    }
}

/// Receives until the connection ends; or, once there is nothing more to receive, until the rest was sent.
async fn receive(shared: &CircuitShared, reader: &mut FrameReader) {
    while shared.update(|circuit, _| circuit.end().is_none() && !circuit.is_paused()) {
        let next = match timeout(IDLE, reader.next()).await {
            Ok(next) => next,
            Err(_) => {
                reader.rest();
                reader.next().await
            }
        };
        let Ok(Some(frame)) = next else { return };
        match RelayMessage::decode(frame.kind, frame.body) {
            Ok(message) => shared.handle(message),
            Err(_) => shared.handle(RelayMessage::Fail { why: FailReason::Violation }),
        }
    }
    sleep(FAREWELL).await;
}

/// Writes, and looks at the clock while the connection takes nothing; returns also when it is lost.
async fn in_time(
    shared: &CircuitShared,
    writing: impl Future<Output = Result<(), WriteError>>,
) -> Result<(), WriteError> {
    tokio::select! {
        biased;
        written = writing => written,
        () = keep_time(shared) => Ok(()),
    }
}

/// Looks at the clock; returns when the connection is lost.
async fn keep_time(shared: &CircuitShared) {
    while let Some(due) = shared.update(|circuit, _| circuit.next_timeout().filter(|_| !circuit.is_paused()))
    {
        sleep_until((due.max(Instant::now() + LOOK_AGAIN)).into()).await;
        shared.update(|circuit, now| circuit.handle_timeout(now));
    }
    if !shared.update(|circuit, _| circuit.is_paused()) {
        // What is over has its last words.
        sleep(FAREWELL).await;
    }
}

/// Sends until the circuit is over or paused.
async fn send(shared: &CircuitShared, writer: &mut FrameWriter) -> Result<(), WriteError> {
    loop {
        while let Some(message) = shared.update(|circuit, now| circuit.transmit(now)) {
            message.queue(writer)?;
            if writer.waiting() >= WRITE_AT {
                in_time(shared, writer.write_records()).await?;
            }
        }
        in_time(shared, writer.flush()).await?;
        let due = shared.update(|circuit, _| circuit.next_timeout().filter(|_| !circuit.is_paused()));
        let Some(due) = due else { return Ok(()) };
        if wait(shared, due.min(Instant::now() + IDLE)).await {
            continue;
        }
        writer.rest().await?;
        if due > Instant::now() {
            wait(shared, due).await;
        }
    }
}

/// Waits until something changed or `due`; true if it did, or what was due is done.
async fn wait(shared: &CircuitShared, due: Instant) -> bool {
    tokio::select! {
        () = shared.changed() => true,
        () = sleep_until(due.into()) => {
            shared.update(|circuit, now| {
                let is_due = circuit.next_timeout().is_some_and(|at| at <= now);
                circuit.handle_timeout(now);
                is_due
            })
        }
    }
}

/// Looks for the other end at one relay after the other; `None` if the circuit is over.
async fn resume(way: &mut CircuitWay, shared: &CircuitShared, redial: &mut Redial) -> Option<Connection> {
    loop {
        let Some((at, pause)) = redial.next(Instant::now(), fastrand::u64(..)) else {
            shared.update(|circuit, _| circuit.fail(FailReason::NotAllowed));
            return None;
        };
        let due = shared.update(|circuit, _| circuit.next_timeout())?;
        let trying = async {
            sleep(pause).await;
            resume_at(way, shared, at).await
        };
        let tried = tokio::time::timeout_at(due.into(), trying).await;
        shared.update(|circuit, now| circuit.handle_timeout(now));
        shared.update(|circuit, _| circuit.next_timeout())?;
        match tried {
            Ok(Ok(connection)) => {
                redial.succeeded();
                way.at = at;
                return Some(connection);
            }
            Ok(Err(AttemptError::Refused { why: FailReason::NotAllowed | FailReason::Violation })) => {
                redial.refused();
            }
            Ok(Err(error)) => tracing::debug!(circuit = ?way.circuit, %error, "no way by this relay"),
            Err(_) => {}
        }
    }
}

/// Goes on with the circuit at this relay.
async fn resume_at(way: &CircuitWay, shared: &CircuitShared, at: usize) -> Result<Connection, AttemptError> {
    let WaitingPlace { place, pass } = &way.places[at];
    let timeouts = Timeouts { connect: REDIAL_LIMIT, handshake: REDIAL_LIMIT };
    let mut connection = dial_relay(place, &way.identity, &RelayDial { timeouts, ..way.how.clone() }).await?;
    let node = way.identity.node_id();
    let request = RelayMessage::Resume {
        circuit: way.circuit,
        node: way.other,
        received: shared.update(|circuit, _| circuit.received()),
        pass: pass.as_ref().map(|pass| pass.proof(&connection.binding, &node)),
    };
    let stays = if way.is_caller { CALLER_STAYS } else { CALLEE_STAYS };
    let received = ask(&mut connection, &request, stays).await?;
    shared.update(|circuit, now| circuit.resumed(received, at != way.at, now));
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use towpath_link::doubles::connected;
    use towpath_link::tls::RecordSocket;

    use super::*;

    async fn until(mut done: impl FnMut() -> bool) {
        while !done() {
            tokio::task::yield_now().await;
        }
    }

    async fn write(socket: &CircuitSocket, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = poll_fn(|cx| socket.poll_write(cx, bytes)).await.unwrap();
            bytes = &bytes[count..];
        }
    }

    #[tokio::test]
    async fn a_connection_that_takes_nothing_more_is_lost_soon_although_all_was_quiet_before() {
        let [near, mut far] = connected([NodeId([1; 32]), NodeId([2; 32])]).await;
        let shared = CircuitShared::new();
        let carrying = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { carry(&shared, near).await }
        });
        let socket = CircuitSocket(Arc::clone(&shared));
        let mut turns = 0..100;
        until(|| turns.next().is_none()).await;
        write(&socket, &[7; 100]).await;
        assert!(far.reader.next().await.unwrap().is_some());
        RelayMessage::Ack { through: 1 }.send(&mut far.writer).await.unwrap();
        far.writer.flush().await.unwrap();
        until(|| shared.update(|circuit, _| circuit.path_info().rtt > Duration::ZERO)).await;
        write(&socket, &[7; 500_000]).await;
        let limit = 5 * (crate::circuit::LEAST_QUIET + crate::circuit::LEAST_SILENCE);
        timeout(limit, carrying).await.unwrap().unwrap();
        assert!(shared.update(|circuit, _| circuit.is_paused()));
    }
}
