//! The sender's messages to a receiver: entries go to the merge, events to the person.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;
use towpath_protocol::ControlReceiver;

use super::endpoint::{Endpoint, remote_error};
use super::message::hung_up;
use super::message::{Empty, Message, violation};
use crate::error::CopyError;

/// Bytes told by a sender and not looked at, at most: one that keeps to its window has 16 MiB of descriptor on the way,
/// and as many entries as directories that it told as closed.
const MAX_WAITING: usize = 22 << 20;

/// What a message without bytes of its own counts.
pub const LITTLE: usize = 64;

/// What the merging thread is handed.
pub enum Heard {
    Entries(Bytes),
    Closed(u64),
    Incomplete,
}

/// Sorts what the sender says, and counts in `waiting` what waits for the merge. Returns when it is over.
pub async fn hear(
    endpoint: &Endpoint,
    inbox: &mut ControlReceiver,
    entries: mpsc::UnboundedSender<Heard>,
    waiting: &AtomicUsize,
) -> CopyError {
    let tell = |heard: Heard, bytes: usize| {
        let before = waiting.fetch_add(LITTLE + bytes, Ordering::Relaxed);
        if before > MAX_WAITING {
            return Err(violation("more than was asked for"));
        }
        // A merge that has ended needs no more.
        drop(entries.send(heard));
        Ok(())
    };
    let work = async {
        loop {
            match Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? {
                Message::Entries(part) => {
                    let bytes = part.unpack()?;
                    let len = bytes.len();
                    tell(Heard::Entries(bytes), len)?;
                }
                Message::Closed(entry) => tell(Heard::Closed(entry), 0)?,
                Message::Incomplete(Empty {}) => tell(Heard::Incomplete, 0)?,
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
