//! Passing on what one guest of a circuit sends to the other. It holds at most four blocks of each direction: one and the
//! beginning of another as they come, one that is passed on, and one encrypted for the way out.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use towpath_content::lock::lock;
use towpath_link::frame::{ReadError, WriteError};
use towpath_link::{Frame, FrameReader, FrameWriter};

use super::desk::{Joint, RelayShared, Seat};
use crate::message::{FailReason, MAX_FRAME, RelayMessage};
use crate::table::{Charge, Side};

/// What waits is written once it is a block.
const WRITE_AT: usize = 64 << 10;
/// After so long without anything to pass on memory is given back.
const IDLE: Duration = Duration::from_millis(500);
/// So long a guest may take to read why a circuit ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why nothing more is passed on.
enum ForwardEnd {
    /// One of the two connections ended.
    Lost,
    /// Both are to be told this.
    Fail(FailReason),
}

/// Passes on what this guest sends until either leaves; first what it sent before the other came.
pub(super) async fn forward(
    shared: &Arc<RelayShared>,
    (mut reader, early): (FrameReader, Option<Frame>),
    mut writer: FrameWriter,
    seat: Seat,
    token: &CancellationToken,
) {
    let Seat { side, joint, received, give, take } = seat;
    let _ended = joint.over.clone().drop_guard();
    if (RelayMessage::Ok { received }).send(&mut writer).await.is_err() || give.send(writer).is_err() {
        return;
    }
    let Ok(mut writer) = take.await else { return };
    reader.hold_short(false);
    reader.limit(MAX_FRAME);
    // Each wake costs a relay more than the bytes it passes on.
    reader.gather();
    let passage = Passage { shared, joint: &joint, side };
    let stop = tokio::select! {
        stop = passage.run(&mut reader, early, &mut writer) => stop,
        () = joint.over.cancelled() => ForwardEnd::Lost,
        () = token.cancelled() => ForwardEnd::Fail(FailReason::ShuttingDown),
    };
    if let ForwardEnd::Fail(why) = stop {
        let _ = joint.why.set(why);
    }
    joint.over.cancel();
    if let Some(&why) = joint.why.get() {
        // It may be gone.
        let _ = timeout(FAREWELL, say_farewell(why, writer)).await;
        // A connection that is closed before all that came by it was read takes back what went out last: why it ended.
        let _ = timeout(FAREWELL, read_to_end(&mut reader)).await;
    }
}

async fn say_farewell(why: FailReason, mut writer: FrameWriter) -> Result<(), WriteError> {
    RelayMessage::Fail { why }.send(&mut writer).await?;
    writer.finish().await
}

async fn read_to_end(reader: &mut FrameReader) {
    while let Ok(Some(_)) = reader.next().await {}
}

/// One direction of a circuit.
struct Passage<'a> {
    shared: &'a Arc<RelayShared>,
    joint: &'a Joint,
    side: Side,
}

impl Passage<'_> {
    async fn run(
        &self,
        reader: &mut FrameReader,
        mut early: Option<Frame>,
        writer: &mut FrameWriter,
    ) -> ForwardEnd {
        loop {
            let next = match early.take() {
                Some(frame) => Ok(Some(frame)),
                None => match Self::next(reader, writer).await {
                    Ok(next) => next,
                    Err(stop) => return stop,
                },
            };
            let passed = match next {
                Ok(Some(frame)) => self.pass_on(frame, writer).await,
                Ok(None) => Err(ForwardEnd::Lost),
                Err(ReadError::Malformed { .. }) => Err(ForwardEnd::Fail(FailReason::Violation)),
                Err(_) => Err(ForwardEnd::Lost),
            };
            if let Err(stop) = passed {
                // What came before goes on; the time it takes is bounded by whoever looks at the other end.
                let _ = timeout(FAREWELL, writer.flush()).await;
                return stop;
            }
        }
    }

    /// The next frame. If it is not there yet, what waits is sent off first.
    async fn next(
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<Result<Option<Frame>, ReadError>, ForwardEnd> {
        match at_once(reader.next()).await {
            Some(next) => Ok(next),
            None => Self::wait(reader, writer).await,
        }
    }

    /// Sends off what waits, and waits for more.
    async fn wait(
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<Result<Option<Frame>, ReadError>, ForwardEnd> {
        writer.flush().await.map_err(|_| ForwardEnd::Lost)?;
        if let Ok(next) = timeout(IDLE, reader.next()).await {
            return Ok(next);
        }
        reader.rest();
        writer.rest().await.map_err(|_| ForwardEnd::Lost)?;
        Ok(reader.next().await)
    }

    async fn pass_on(&self, frame: Frame, writer: &mut FrameWriter) -> Result<(), ForwardEnd> {
        let message = RelayMessage::decode(frame.kind, frame.body.clone());
        let message = message.map_err(|_| ForwardEnd::Fail(FailReason::Violation))?;
        let checked = lock(&self.joint.pairing).check(self.side, &message);
        if let Err(violation) = checked {
            tracing::debug!(%violation, circuit = ?self.joint.circuit, "a circuit is ended");
            return Err(ForwardEnd::Fail(FailReason::Violation));
        }
        self.charge(&message, writer).await?;
        writer.queue_bytes(frame.kind, b"", frame.body).map_err(|_| ForwardEnd::Lost)?;
        match writer.waiting() {
            WRITE_AT.. => writer.write_records().await.map_err(|_| ForwardEnd::Lost),
            _ => Ok(()),
        }
    }

    /// Waits as long as the account's limits ask for.
    async fn charge(&self, message: &RelayMessage, writer: &mut FrameWriter) -> Result<(), ForwardEnd> {
        let RelayMessage::Block { bytes, .. } = message else { return Ok(()) };
        match self.shared.charge(self.joint, bytes.len() as u64) {
            Charge::Fine => Ok(()),
            Charge::Over => Err(ForwardEnd::Fail(FailReason::OverQuota)),
            Charge::Wait(wait) => {
                writer.flush().await.map_err(|_| ForwardEnd::Lost)?;
                sleep(wait).await;
                Ok(())
            }
        }
    }
}

/// The outcome of a cancel-safe future if it is there already.
async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
