//! The reader task of a connection: feeds its session, and does what the session says and takes
//! time.
//!
//! It never waits on anything but the sink or the asker of the request that a frame belongs to, so a
//! slow disk slows this connection and no other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath_link::{Frame, FrameReader};

use super::callers::{Act, Later};
use super::conversation::{Conversation, RequestOutcome};
use super::incoming::{Decoder, Incoming};
use super::session::Encoded;
use super::shared::{REST, Shared};
use super::wire::{self, Body};
use crate::processors::Processors;

/// Runs until the connection ends, and every request with it.
pub(super) async fn read_frames(
    shared: Arc<Shared>,
    mut reader: FrameReader,
    processors: Processors,
    conversation: Option<Conversation>,
) {
    let (decoder, acts) = (Decoder::new(processors), Vec::new());
    let part = shared.with(|session| session.liveness().part());
    reader.hold_short(!shared.known.is_cancelled());
    let mut inbound = Inbound { shared: Arc::clone(&shared), conversation, decoder, acts, part };
    let result = tokio::select! {
        result = inbound.run(&mut reader) => result,
        () = shared.token.cancelled() => Ok(()),
    };
    shared.change(|callers| callers.session().close(result.err()));
    if let Some(why) = shared.ended() {
        tracing::debug!(peer = %shared.node.short(), why, "connection ended");
    }
    shared.token.cancel();
    if let Some(stream) = &shared.control {
        stream.close();
    }
}

/// The reader task's handling of frames. Errors are reasons to close the connection.
struct Inbound {
    shared: Arc<Shared>,
    conversation: Option<Conversation>,
    decoder: Decoder,
    /// Actions that a frame calls for; empty between frames.
    acts: Vec<Act>,
    /// Interval at which the silence is measured.
    part: Duration,
}

impl Inbound {
    async fn run(&mut self, reader: &mut FrameReader) -> Result<(), String> {
        loop {
            let before = reader.received();
            self.shared.listens.store(true, Ordering::Relaxed);
            let frame = self.next(reader).await?;
            self.shared.listens.store(false, Ordering::Relaxed);
            self.shared.traffic.received.fetch_add(reader.received() - before, Ordering::Relaxed);
            if frame.kind == wire::DATA {
                self.shared.receive_pace.pass(frame.body.len() as u64).await;
            }
            let shared = &self.shared;
            let expected = |header: &wire::DataHeader| shared.with(|session| session.expected(header));
            let incoming = self.decoder.decode(frame, expected)?;
            self.take(incoming);
            let mut acts = std::mem::take(&mut self.acts);
            for later in acts.drain(..).filter_map(Act::perform) {
                self.perform(later).await?;
            }
            self.acts = acts;
            reader.hold_short(!self.shared.known.is_cancelled());
        }
    }

    /// The next frame; the session closes the connection when none comes for too long.
    async fn next(&mut self, reader: &mut FrameReader) -> Result<Frame, String> {
        let (since, mut received, mut is_idle) = (Instant::now(), reader.received(), false);
        loop {
            // In parts, as the limit may change meanwhile.
            let wait = if is_idle { self.part } else { self.part.min(REST) };
            match tokio::time::timeout(wait, reader.next()).await {
                Ok(Ok(Some(frame))) => return Ok(frame),
                Ok(Ok(None)) => return Err("the peer closed the connection".into()),
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => {}
            }
            reader.rest();
            is_idle = true;
            let now = Instant::now();
            // Also of a frame that takes minutes. What went by before is not the peer's silence.
            let last = if reader.received() == received { since } else { now };
            received = reader.received();
            self.part = self.shared.change(|callers| {
                let session = callers.session();
                session.liveness_mut().received(last);
                session.tick(now);
                session.liveness().part()
            });
        }
    }

    fn take(&mut self, incoming: Incoming) {
        let (shared, acts) = (&self.shared, &mut self.acts);
        self.part = shared.settle(acts, |callers| {
            callers.session().receive(Instant::now(), incoming);
            callers.session().liveness().part()
        });
    }

    async fn perform(&self, later: Later) -> Result<(), String> {
        match later {
            Later::Deliver(wants, delivery) => wants.deliver(delivery).await,
            // An asker that has gone needs no answer.
            Later::Describe(to, answer) => drop(to.send(answer).await),
            Later::Tell(to, ranges) => drop(to.send(ranges).await),
            Later::Greeted { control, encoding } => self.greeted(control, encoding),
            Later::Measured => self.shared.measured.cancel(),
            Later::Contents { caller, contents, kept, cost } => {
                caller.contents(contents, kept).await;
                self.took(cost);
            }
            Later::Run { caller, tag, run, cost } => {
                caller.run(tag, run).await;
                self.took(cost);
            }
            Later::Request(Body::ContentCredit(credit)) => {
                self.conversation.as_ref().map_or(Ok(()), |it| it.give_back(credit.bytes))?;
            }
            Later::Request(body) => self.request(body)?,
            Later::Control(body) => self.shared.control.as_ref().map_or(Ok(()), |s| s.take(body))?,
        }
        Ok(())
    }

    /// Contents or a run were taken, and the peer may send more.
    fn took(&self, cost: usize) {
        self.shared.change(|callers| callers.session().took(cost));
    }

    fn request(&self, body: Body) -> Result<(), String> {
        let Some(conversation) = &self.conversation else { return Ok(()) };
        let RequestOutcome { replies, is_known } = conversation.request(body)?;
        if !replies.is_empty() {
            self.shared.change(|callers| callers.session().reply(replies));
        }
        if is_known {
            self.shared.known.cancel();
        }
        Ok(())
    }

    fn greeted(&self, control: bool, encoding: Option<Encoded>) {
        if let Some(stream) = &self.shared.control {
            stream.greet(control);
        }
        if let Some((conversation, encoding)) = self.conversation.as_ref().zip(encoding) {
            conversation.encode(encoding);
        }
        self.shared.greeted.cancel();
    }
}
