//! What a receiver hears, sorted for the threads that do something about it: entries for the merge, answers and
//! deltas in order, whole contents for whoever has time. Waits only while many contents are to be written.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use towpath_protocol::{ControlReceiver, ControlSender};

use super::endpoint::{Endpoint, remote_error};
use super::message::hung_up;
use super::message::{Answer, DeltaMessage, Empty, Message, violation};
use super::remote::RemoteSupplier;
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_ssh::race::NewConnection;

/// Bytes told by a sender and not looked at, at most: one that keeps to its window has 16 MiB of descriptor on the way,
/// and as many entries as directories that it told as closed.
const MAX_WAITING: usize = 22 << 20;

/// Bytes of answers and deltas that are not worked off, at most; then the sender has to wait.
const ANSWER_ROOM: usize = 8 << 20;

/// What a message without bytes of its own counts.
pub const LITTLE: usize = 64;

/// What the merging thread is handed.
pub enum Heard {
    Entries(Bytes),
    Closed(u64),
    Incomplete,
}

/// What brings contents, with the room that these take. In order.
pub enum InboxMessage {
    Answers(Vec<Answer>, OwnedSemaphorePermit),
    Delta(DeltaMessage, OwnedSemaphorePermit),
}

/// Whole contents, with the room that they take. In any order.
pub type Whole = (Vec<Answer>, OwnedSemaphorePermit);

/// Where what brings contents goes.
pub struct Tellings {
    told: mpsc::UnboundedSender<InboxMessage>,
    whole: mpsc::UnboundedSender<Whole>,
    room: Arc<Semaphore>,
    /// Bytes that wait for the merge.
    waiting: Arc<AtomicUsize>,
}

impl Tellings {
    pub fn new(
        told: mpsc::UnboundedSender<InboxMessage>,
        whole: mpsc::UnboundedSender<Whole>,
        waiting: Arc<AtomicUsize>,
    ) -> Self {
        Self { told, whole, room: Arc::new(Semaphore::new(ANSWER_ROOM)), waiting }
    }

    /// Counts what waits for the merge.
    fn count(&self, bytes: usize) -> Result<(), CopyError> {
        match self.waiting.fetch_add(bytes, Ordering::Relaxed) > MAX_WAITING {
            true => Err(violation("more than was asked for")),
            false => Ok(()),
        }
    }

    /// Takes answers of a message of so many `bytes` as soon as there is room for it.
    async fn answers(&self, answers: Vec<Answer>, bytes: usize) -> Result<(), CopyError> {
        let (whole, rest): (Vec<_>, Vec<_>) = answers.into_iter().partition(Answer::is_whole);
        if !whole.is_empty() {
            let taken = take_room(&self.room, bytes + size_of_val(&whole[..])).await?;
            drop(self.whole.send((whole, taken)));
        }
        if !rest.is_empty() {
            let taken = take_room(&self.room, bytes + size_of_val(&rest[..])).await?;
            drop(self.told.send(InboxMessage::Answers(rest, taken)));
        }
        Ok(())
    }

    async fn delta(&self, run: DeltaMessage, bytes: usize) -> Result<(), CopyError> {
        let taken = take_room(&self.room, bytes + size_of::<DeltaMessage>()).await?;
        drop(self.told.send(InboxMessage::Delta(run, taken)));
        Ok(())
    }
}

/// Sorts what the sender says; waits only while many contents are to be written. Returns when it is over.
pub async fn hear(
    endpoint: &Endpoint,
    inbox: &mut ControlReceiver,
    entries: mpsc::UnboundedSender<Heard>,
    tellings: &Tellings,
) -> CopyError {
    let work = async {
        loop {
            let (message, kept) = Message::read(inbox.next().await.ok_or_else(hung_up)?)?;
            match message {
                Message::Entries(bytes) => {
                    tellings.count(LITTLE + bytes.len())?;
                    // Shared with its message, a byte of it would keep all of that.
                    drop(entries.send(Heard::Entries(Bytes::copy_from_slice(&bytes))));
                }
                Message::Closed(entry) => {
                    tellings.count(LITTLE)?;
                    drop(entries.send(Heard::Closed(entry)));
                }
                Message::Incomplete(Empty {}) => {
                    tellings.count(LITTLE)?;
                    drop(entries.send(Heard::Incomplete));
                }
                Message::Answers(told) => tellings.answers(told.answers, kept).await?,
                Message::Delta(run) => tellings.delta(run, kept).await?,
                Message::Event(report) if !endpoint.is_remote_end => {
                    endpoint.events.pass(report, &endpoint.other).await?
                }
                Message::Fatal(fatal) => return Err(remote_error(&fatal, &endpoint.other)),
                _ => return Err(violation("a message that a sender does not send")),
            }
        }
    };
    let result: Result<std::convert::Infallible, CopyError> = work.await;
    match result {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

/// Lets contents come over one connection after the other that stands, and takes them; `way` becomes the last one, which ends
/// with it. Returns when the sender breaks the protocol.
pub async fn hear_beside(
    mut stood: mpsc::UnboundedReceiver<NewConnection>,
    tellings: &Tellings,
    way: &mut Option<ControlSender>,
) -> CopyError {
    while let Some((control, mut inbox)) = stood.recv().await {
        // A sender that knows nothing of this has no stream there.
        if control.send(Message::Carry(Empty {}).into_bytes()).await.is_err() {
            continue;
        }
        *way = Some(control);
        while let Some(message) = inbox.next().await {
            if let Err(error) = take_beside(message, tellings).await {
                return error;
            }
        }
    }
    std::future::pending().await
}

async fn take_beside(message: Bytes, tellings: &Tellings) -> Result<(), CopyError> {
    let (message, kept) = Message::read(message)?;
    match message {
        Message::Answers(told) if told.answers.iter().all(Answer::is_whole) => {
            tellings.answers(told.answers, kept).await
        }
        _ => Err(violation("something else than contents beside the first connection")),
    }
}

async fn take_room(room: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, CopyError> {
    let bytes = u32::try_from(bytes.min(ANSWER_ROOM)).unwrap_or(u32::MAX);
    Arc::clone(room).acquire_many_owned(bytes).await.map_err(|_| hung_up())
}

/// The thread that takes answers and deltas, in order.
pub fn take_answers(
    supplier: &RemoteSupplier,
    mut answers: mpsc::UnboundedReceiver<InboxMessage>,
) -> Result<(), CopyError> {
    while let Some(told) = answers.blocking_recv() {
        // Their room is free again at the end of each arm.
        match told {
            InboxMessage::Answers(batch, _room) => supplier.answered_all(batch)?,
            InboxMessage::Delta(run, _room) => supplier.take_delta(&run)?,
        }
    }
    Ok(())
}

/// One of the threads that write contents.
pub fn write_contents(
    supplier: &RemoteSupplier,
    whole: &Mutex<mpsc::UnboundedReceiver<Whole>>,
) -> Result<(), CopyError> {
    // Whoever waits for the next ones holds the lock; who writes does not.
    let next = || lock(whole).blocking_recv();
    while let Some((answers, _room)) = next() {
        answers.iter().try_for_each(|answer| supplier.answered(answer))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_content::NodeId;
    use towpath_protocol::{Peer, PeerConfig};

    use super::super::message::Answers;
    use super::*;
    use towpath_link::doubles::connected;

    const LIMIT: Duration = Duration::from_secs(20);

    async fn beside() -> (NewConnection, Arc<Peer>) {
        let config = PeerConfig { control: true, ..PeerConfig::default() };
        let [one, other] = connected([1, 2].map(|id| NodeId([id; 32])))
            .await
            .map(|connection| Peer::start(connection, config.clone(), None));
        let stood = one.control().unwrap();
        // The other end decides when it is over.
        tokio::spawn(async move { one.until_closed().await });
        (stood, other)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn contents_and_nothing_else_come_over_one_further_connection_after_the_other() {
        let (told, _told) = mpsc::unbounded_channel();
        let (whole_in, mut whole) = mpsc::unbounded_channel();
        let tellings = Tellings::new(told, whole_in, Arc::default());
        let (stood_in, stood) = mpsc::unbounded_channel();
        let hearing = tokio::spawn(async move { hear_beside(stood, &tellings, &mut None).await });
        let answer = Answer { content: Bytes::from_static(b"x"), ..Answer::default() };
        let named = Answer { content: Bytes::new(), ..answer.clone() };
        for (answers, is_refused) in [(vec![answer.clone()], false), (vec![answer, named], true)] {
            let (stream, sender) = beside().await;
            stood_in.send(stream).ok().unwrap();
            let (control, mut inbox) = sender.control().unwrap();
            let first = tokio::time::timeout(LIMIT, inbox.next()).await.unwrap().unwrap();
            assert_eq!(Message::from_bytes(first).unwrap(), Message::Carry(Empty {}));
            control.send(Message::Answers(Answers { answers }).into_bytes()).await.unwrap();
            if !is_refused {
                assert_eq!(tokio::time::timeout(LIMIT, whole.recv()).await.unwrap().unwrap().0.len(), 1);
                sender.close("lost");
            } else {
                let error = tokio::time::timeout(LIMIT, hearing).await.unwrap().unwrap();
                assert!(error.to_string().contains("something else than contents"), "{error}");
                return;
            }
        }
    }
}
