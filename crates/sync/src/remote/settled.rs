//! News of files that are done with, told to the sender many at a time: nobody waits for them but for how far the
//! tree was considered.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use towpath_protocol::{ControlClosed, ControlSender};

use crate::file_result::FileResult;
use crate::message::{Considered, MOST_SETTLED, Message, Settled, Unchanged};

/// How long news of files that are done with wait for more: so often it is looked whether something urgent came,
/// which takes less than being woken for each.
const GATHER: Duration = Duration::from_millis(2);
const GATHERED: u32 = 10;

/// What is on its way to the sender.
pub(super) enum Settlement {
    /// A file is done with.
    Settled(u64, FileResult),
    /// All entries below this one were looked at, and these are wanted. After what was settled: the sender forgets the others.
    Considered(u64, Vec<u64>),
    /// Everything before this was told.
    Flushed(oneshot::Sender<()>),
}

/// Tells the sender which files are done with, many at a time: nobody waits for that news but for
/// how far the tree was considered.
pub(super) async fn tell_settled(control: ControlSender, mut done: mpsc::UnboundedReceiver<Settlement>) {
    while let Some(first) = done.recv().await {
        let mut told = ToldSettled::default();
        told.add(first);
        for _ in 0..GATHERED {
            while !told.is_urgent()
                && let Ok(next) = done.try_recv()
            {
                told.add(next);
            }
            if told.is_urgent() {
                break;
            }
            tokio::time::sleep(GATHER).await;
        }
        if told.send(&control).await.is_err() {
            return;
        }
    }
}

/// What is to be told.
#[derive(Default)]
struct ToldSettled {
    settled: Settled,
    count: usize,
    considered: Option<Considered>,
    flushed: Option<oneshot::Sender<()>>,
}

impl ToldSettled {
    fn add(&mut self, done: Settlement) {
        match done {
            Settlement::Settled(entry, result) => add(&mut self.settled, entry, result),
            Settlement::Considered(entry, wanted) => self.considered = Some(Considered { entry, wanted }),
            Settlement::Flushed(end) => self.flushed = Some(end),
        }
        self.count += 1;
    }

    const fn is_urgent(&self) -> bool {
        self.count >= MOST_SETTLED || self.considered.is_some() || self.flushed.is_some()
    }

    async fn send(self, control: &ControlSender) -> Result<(), ControlClosed> {
        if self.settled != Settled::default() {
            control.send(Message::Settled(self.settled).into_bytes()).await?;
        }
        if let Some(considered) = self.considered {
            control.send(Message::Considered(considered).into_bytes()).await?;
        }
        if let Some(end) = self.flushed {
            let _ = end.send(());
        }
        Ok(())
    }
}

fn add(message: &mut Settled, entry: u64, result: FileResult) {
    match result {
        FileResult::Placed => message.placed.push(entry),
        FileResult::Dropped => message.dropped.push(entry),
        FileResult::Lost => message.lost.push(entry),
        FileResult::Unchanged(stamp) => message.unchanged.push(Unchanged {
            entry,
            inode: stamp.inode,
            seconds: stamp.changed.seconds,
            nanos: stamp.changed.nanos,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than 1024 in a message ended a copy of many files.
    #[test]
    fn no_message_has_more_files_than_it_may() {
        let mut told = ToldSettled::default();
        let told_at = (0..).find(|entry| {
            told.add(Settlement::Settled(*entry, FileResult::Placed));
            told.is_urgent()
        });
        assert_eq!((told_at, told.settled.placed.len()), (Some(MOST_SETTLED as u64 - 1), MOST_SETTLED));
    }
}
