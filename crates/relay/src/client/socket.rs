//! A circuit as a stream of bytes, and the state it shares with the task that carries it.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::sync::Notify;
use towpath_content::lock::lock;
use towpath_link::PathProbe;
use towpath_link::tls::RecordSocket;

use crate::circuit::{Circuit, CircuitEnd};
use crate::message::RelayMessage;

/// What the stream and the task share.
pub(super) struct CircuitShared {
    state: Mutex<SharedState>,
    /// Something changed that the sending task is to look at.
    changed: Notify,
}

struct SharedState {
    circuit: Circuit,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl CircuitShared {
    /// A circuit whose connection stands now.
    pub(super) fn new() -> Arc<Self> {
        let circuit = Circuit::new(Instant::now());
        let state = Mutex::new(SharedState { circuit, reader: None, writer: None });
        Arc::new(Self { state, changed: Notify::new() })
    }

    /// Lets `change` do something to the circuit; wakes who waits for it.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut Circuit, Instant) -> T) -> T {
        let mut state = lock(&self.state);
        let outcome = change(&mut state.circuit, Instant::now());
        let reader = if state.circuit.is_readable() { state.reader.take() } else { None };
        let writer = if state.circuit.is_writable() { state.writer.take() } else { None };
        drop(state);
        reader.into_iter().chain(writer).for_each(Waker::wake);
        outcome
    }

    /// A message came.
    pub(super) fn handle(&self, message: RelayMessage) {
        self.update(|circuit, now| circuit.handle(message, now));
        self.changed.notify_one();
    }

    /// Completes when there may be something to send, or the circuit's state is another.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Asks about the path.
    pub(super) fn probe(self: &Arc<Self>) -> PathProbe {
        let shared = Arc::clone(self);
        PathProbe::from_fn(move || lock(&shared.state).circuit.path_info())
    }
}

/// One end of a circuit, as a stream. Dropping it leaves the circuit; what was written is still delivered.
pub(super) struct CircuitSocket(pub(super) Arc<CircuitShared>);

impl RecordSocket for CircuitSocket {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = lock(&self.0.state);
        if state.circuit.is_readable() {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_read(&self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.0.state);
        match state.circuit.read(space, Instant::now()) {
            Ok(Some(count)) => {
                self.0.changed.notify_one();
                Poll::Ready(Ok(count))
            }
            Ok(None) => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            Err(end) => Poll::Ready(Err(broken(end, io::ErrorKind::ConnectionReset))),
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.0.state);
        match state.circuit.write(bytes) {
            Some(0) => {
                state.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(count) => {
                self.0.changed.notify_one();
                Poll::Ready(Ok(count))
            }
            None => {
                let end = state.circuit.end().unwrap_or(CircuitEnd::Left);
                Poll::Ready(Err(broken(end, io::ErrorKind::BrokenPipe)))
            }
        }
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.0.state).circuit.close();
        self.0.changed.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl Drop for CircuitSocket {
    fn drop(&mut self) {
        self.0.update(|circuit, now| circuit.leave(now));
        self.0.changed.notify_one();
    }
}

/// What a reader or writer sees of a circuit's end.
fn broken(end: CircuitEnd, kind: io::ErrorKind) -> io::Error {
    let kind = if end == CircuitEnd::GivenUp { io::ErrorKind::TimedOut } else { kind };
    io::Error::new(kind, end)
}
