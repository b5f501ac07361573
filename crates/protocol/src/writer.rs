//! The writer task of a connection: frames in the order they come, urgent ones first, a ping when
//! there are none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use towpath_link::FrameWriter;
use towpath_link::frame::WriteError;

use super::outgoing::{Batch, Outgoing};
use super::pace::Pace;
use super::session::Session;
use super::session_queue::SessionReceiver;
use super::shared::{REST, Shared};
use super::urgent::{UNREAD, UrgentReceiver};
use super::wire::Body;

/// Time for which a connection that ends in a violation is kept to send the reason.
const GOODBYE_TIME: Duration = Duration::from_secs(2);

/// Queues for the writer task.
pub(super) struct WriterQueues {
    /// Goes before data.
    pub(super) messages: Messages,
    /// Answers to questions, before data too.
    pub(super) answers: mpsc::Receiver<Batch>,
    /// All other frames.
    pub(super) outgoing: mpsc::Receiver<Batch>,
    /// Limits what is sent.
    pub(super) pace: Arc<Pace>,
}

/// Messages that go before data.
pub(super) struct Messages {
    /// Of the control stream, first.
    pub(super) control: UrgentReceiver,
    /// Of the session, its hello first.
    pub(super) session: SessionReceiver,
}

/// Origin of a batch: of one queue, none may overtake another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterQueue {
    Control,
    Session,
    Data,
}

impl Messages {
    /// Waits for the next one that may go before a batch of `waiting`. Cancel-safe.
    async fn next_before(&mut self, waiting: WriterQueue) -> (WriterQueue, Body) {
        tokio::select! {
            biased;
            Some(body) = self.control.recv(), if waiting == WriterQueue::Data => (WriterQueue::Control, body),
            Some(body) = self.session.recv(), if waiting != WriterQueue::Session => (WriterQueue::Session, body),
            else => std::future::pending().await,
        }
    }

    fn try_next(&mut self) -> Option<Body> {
        self.control.try_recv().or_else(|| self.session.try_recv())
    }

    fn is_empty(&self) -> bool {
        self.control.is_empty() && self.session.is_empty()
    }
}

impl WriterQueues {
    /// The next batch to go out; `None` when nothing more will come. While there is none, `writer` holds no memory.
    async fn next(
        &mut self,
        shared: &Shared,
        writer: &mut FrameWriter,
    ) -> Result<Option<(WriterQueue, Batch)>, WriteError> {
        let rest = Instant::now() + REST;
        let mut rests = false;
        let mut due = shared.change(|callers| {
            let live = callers.session().liveness_mut();
            live.spoke(Instant::now());
            live.ping_due()
        });
        loop {
            tokio::select! {
                biased;
                (queue, body) = self.messages.next_before(WriterQueue::Data) => {
                    return Ok(Some((queue, Outgoing::control(body).into())));
                }
                Some(batch) = self.answers.recv() => return Ok(Some((WriterQueue::Data, batch))),
                batch = self.outgoing.recv() => return Ok(batch.map(|batch| (WriterQueue::Data, batch))),
                () = tokio::time::sleep_until(due.into()) => {}
                () = tokio::time::sleep_until(rest.into()), if !rests => {
                    rests = true;
                    writer.rest().await?;
                }
            }
            due = keep_alive(shared);
        }
    }

    /// Waits until a batch of `queue` may go out, and returns the bytes that went before it. What is urgent does not
    /// wait, but counts: a limit on what is served is none on asking. Messages of the control stream have waited before. `keep_alive` has a ping sent if one
    /// is due, and says when the next one is.
    async fn pass(
        &mut self,
        writer: &mut FrameWriter,
        (queue, batch): (WriterQueue, &Batch),
        keep_alive: impl Fn() -> Instant,
    ) -> Result<u64, WriteError> {
        if queue == WriterQueue::Control {
            return Ok(0);
        }
        if queue == WriterQueue::Session {
            self.pace.wait(batch.len() as u64, Instant::now());
            return Ok(0);
        }
        let pace = Arc::clone(&self.pace);
        let passing = pace.pass(batch.len() as u64);
        tokio::pin!(passing);
        if passing.as_mut().now_or_never().is_some() {
            return Ok(0);
        }
        // Frames before it do not wait with it.
        writer.flush().await?;
        let (mut due, mut sent) = (keep_alive(), 0);
        loop {
            let (urgent, frame) = tokio::select! {
                biased;
                () = &mut passing => return Ok(sent),
                (urgent, body) = self.messages.next_before(queue) => (urgent, Outgoing::control(body)),
                () = tokio::time::sleep_until(due.into()) => {
                    due = keep_alive();
                    continue;
                }
            };
            sent += frame.len() as u64;
            if urgent == WriterQueue::Session {
                self.pace.wait(frame.len() as u64, Instant::now());
            }
            write_batch(writer, frame.into()).await?;
            writer.flush().await?;
        }
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.answers.is_empty() && self.outgoing.is_empty()
    }

    /// Batches queued before the end.
    fn rest(&mut self) -> Option<Batch> {
        match self.messages.try_next() {
            Some(body) => Some(Outgoing::control(body).into()),
            None => self.answers.try_recv().or_else(|_| self.outgoing.try_recv()).ok(),
        }
    }
}

/// Runs until the connection ends; then what was queued still goes out, and why this is the end.
pub(super) async fn write_frames(shared: Arc<Shared>, mut writer: FrameWriter, mut queues: WriterQueues) {
    let overrun = queues.messages.control.overrun();
    let result = tokio::select! {
        result = write_all(&shared, &mut writer, &mut queues) => result,
        () = shared.token.cancelled() => Ok(()),
        () = overrun => {
            shared.change(|callers| callers.session().close(Some(UNREAD.into())));
            Ok(())
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "writing ended");
        shared.token.cancel();
        return;
    }
    let farewell = async {
        while let Some(batch) = queues.rest() {
            write_batch(&mut writer, batch).await?;
        }
        if let Some(goodbye) = shared.with(Session::goodbye) {
            write_batch(&mut writer, Outgoing::control(goodbye).into()).await?;
        }
        writer.finish().await
    };
    let _ = tokio::time::timeout(GOODBYE_TIME, farewell).await;
}

async fn write_all(
    shared: &Shared,
    writer: &mut FrameWriter,
    queues: &mut WriterQueues,
) -> Result<(), WriteError> {
    // The hello waits for no pace.
    if let Some(hello) = queues.messages.session.recv().await {
        write_batch(writer, Outgoing::control(hello).into()).await?;
        writer.flush().await?;
    }
    while let Some((queue, mut batch)) = queues.next(shared, writer).await? {
        let before = queues.pass(writer, (queue, &batch), || keep_alive(shared)).await?;
        batch.drop_unwanted();
        shared.traffic.sent.fetch_add(before + batch.len() as u64, Ordering::Relaxed);
        let is_slow = batch.is_slow;
        write_batch(writer, batch).await?;
        if queues.is_empty() {
            writer.flush().await?;
        } else if is_slow {
            writer.write_records().await?;
        }
    }
    Ok(())
}

/// Has a ping sent, and says when the next one is due. It comes through the queue; unless it is not due yet, as the
/// limit was changed.
fn keep_alive(shared: &Shared) -> Instant {
    shared.change(|callers| {
        callers.session().keep_alive(Instant::now());
        callers.session().liveness().ping_due()
    })
}

async fn write_batch(writer: &mut FrameWriter, batch: Batch) -> Result<(), WriteError> {
    for frame in batch.frames {
        let header = frame.header.as_ref().map_or(&[][..], |header| &header[..]);
        writer.send_bytes(frame.kind, header, frame.body).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::super::session_queue::session_queue;
    use super::super::urgent::urgent_queue;
    use super::super::wire::Ping;
    use super::*;

    #[tokio::test]
    async fn what_was_let_through_does_not_wait_for_the_next() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut writer = FrameWriter::new(Box::pin(near));
        let (_control, control) = urgent_queue();
        let (_session, session) = session_queue();
        let ((_answer, answers), (_data, outgoing)) = (mpsc::channel(1), mpsc::channel(1));
        let messages = Messages { control, session };
        let mut queues = WriterQueues { messages, answers, outgoing, pace: Arc::new(Pace::new(1)) };
        let frame = || Batch::from(Outgoing::control(Body::Ping(Ping::default())));
        write_batch(&mut writer, frame()).await.unwrap();
        let (next, mut came) = (frame(), [0; 64]);
        let later = || Instant::now() + Duration::from_secs(3600);
        tokio::select! {
            _ = queues.pass(&mut writer, (WriterQueue::Data, &next), later) => panic!("a byte a second"),
            came = far.read(&mut came) => assert!(came.unwrap() > 0),
        }
    }
}
