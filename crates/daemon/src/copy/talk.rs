//! What a copy tells the person, wherever the person is: here, or at the other end of the
//! connection.

use std::path::Path;

use bytes::Bytes;
use tokio::sync::mpsc;
use towpath_api::ApiError;
use towpath_files::FileError;
use towpath_plugins::direct::ControlSender;

use super::events::{CopyEvent, FailureKind};
use super::message::{Message, violation};
use crate::errors;

/// The longest path in a message; a byte of it may take four in JSON.
const LONGEST: usize = 32 << 10;
/// Changes of entries told and not shown yet.
const WAITING: usize = 1024;

/// Takes events from any thread.
#[derive(Debug, Clone)]
pub struct Events {
    items: mpsc::Sender<CopyEvent>,
    failures: mpsc::UnboundedSender<CopyEvent>,
}

/// Where they come out.
#[derive(Debug)]
pub struct Told {
    items: mpsc::Receiver<CopyEvent>,
    failures: mpsc::UnboundedReceiver<CopyEvent>,
}

/// What failed, counted as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Entries that could not be copied.
    pub failed: u64,
    /// Entries that vanished.
    pub vanished: u64,
    /// Entries left out for their kind.
    pub skipped: u64,
}

/// A new pair.
pub fn events() -> (Events, Told) {
    let (items, items_told) = mpsc::channel(WAITING);
    let (failures, failures_told) = mpsc::unbounded_channel();
    (Events { items, failures }, Told { items: items_told, failures: failures_told })
}

impl Events {
    /// Tells of an entry; blocks while the person does not read.
    pub fn item(&self, event: CopyEvent) {
        let _ = self.items.blocking_send(event);
    }

    /// Tells of a failure; never blocks.
    pub fn failure(&self, event: CopyEvent) {
        let _ = self.failures.send(event);
    }

    /// Hands on an event that the other side told, as JSON.
    pub async fn pass(&self, json: &[u8]) -> Result<(), ApiError> {
        match serde_json::from_slice(json).map_err(|error| violation(&error.to_string()))? {
            event @ CopyEvent::Progress { .. } => self.progress(event),
            event => drop(self.items.send(event).await),
        }
        Ok(())
    }

    /// Tells how far it is, unless there is too much to show already.
    pub fn progress(&self, event: CopyEvent) {
        let _ = self.items.try_send(event);
    }
}

impl Told {
    async fn next(&mut self) -> Option<CopyEvent> {
        tokio::select! {
            biased;
            Some(event) = self.failures.recv() => Some(event),
            Some(event) = self.items.recv() => Some(event),
            else => None,
        }
    }

    /// Hands everything to the person, and counts what failed.
    pub async fn show_to(mut self, person: mpsc::Sender<CopyEvent>) -> Tally {
        let mut tally = Tally::default();
        while let Some(event) = self.next().await {
            if let CopyEvent::Failed { kind, .. } = &event {
                match kind {
                    FailureKind::Vanished => tally.vanished += 1,
                    FailureKind::Other => tally.failed += 1,
                    FailureKind::Skipped => tally.skipped += 1,
                }
            }
            let _ = person.send(event).await;
        }
        tally
    }

    /// Sends everything to the other side.
    pub async fn send_to(mut self, control: ControlSender) {
        while let Some(mut event) = self.next().await {
            shorten(&mut event);
            if let Ok(json) = serde_json::to_vec(&event) {
                let _ = control.send(Message::Event(Bytes::from(json)).into_bytes()).await;
            }
        }
    }
}

/// A path that is too long for a message keeps its end.
fn shorten(event: &mut CopyEvent) {
    let path = match event {
        CopyEvent::Item { path, .. } | CopyEvent::Deleted { path, .. } | CopyEvent::Failed { path, .. } => {
            path
        }
        CopyEvent::Progress { .. } => return,
    };
    if let Some(beyond) = path.len().checked_sub(LONGEST) {
        path.drain(..beyond);
    }
}

/// The event for a file that could not be read or written.
pub fn failed(path: &[u8], error: &FileError, kind: FailureKind) -> CopyEvent {
    let error = errors::source(error);
    // The root of the transfer.
    let path = if path.is_empty() { b"." } else { path };
    CopyEvent::Failed { path: path.to_vec(), error: error.message, hint: error.hint, kind }
}

/// The same for a path of the source, which may have vanished.
pub fn failed_at(path: &Path, error: &FileError) -> CopyEvent {
    let kind = match error {
        FileError::Vanished { .. } => FailureKind::Vanished,
        _ => FailureKind::Other,
    };
    failed(path.as_os_str().as_encoded_bytes(), error, kind)
}

/// The event for a directory of the source that is not entered.
pub fn skipped(path: &Path, why: &str) -> CopyEvent {
    CopyEvent::Failed {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        error: why.into(),
        hint: None,
        kind: FailureKind::Skipped,
    }
}
