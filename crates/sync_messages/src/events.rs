//! Events of a copy for the person, wherever the person is: here, or at the other end of the
//! connection.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use towpath_api::copy::{CopyEvent, FailureKind, FileTime};
use towpath_content::tree::Time;
use towpath_files::FileError;
use towpath_protocol::ControlSender;

use super::message::{CopyReport, MOST_SOURCES, Message};
use crate::error::CopyError;
use crate::error::{EntryFault, LeftOut};

/// Makes the text that a person reads of one entry: what happened, and what to do next.
pub type Words = fn(&EntryFault<'_>) -> (String, Option<String>);

/// The longest text of an event.
const LONGEST: usize = 8 << 10;
/// Changes of entries reported and not shown yet.
const WAITING: usize = 512;
/// Bytes of failures reported and not shown yet; more are counted, and not shown.
const MOST_FAILURES: usize = 8 << 20;
/// Cost of an event besides its texts.
const COST: usize = 256;

/// A time as events have it.
pub const fn shown_time(time: Time) -> FileTime {
    FileTime { seconds: time.seconds, nanos: time.nanos }
}

/// Takes events from any thread.
#[derive(Debug, Clone)]
pub struct Events {
    items: mpsc::Sender<CopyEvent>,
    failures: mpsc::Sender<WaitingFailure>,
    /// Bytes of further failures that may wait.
    room: Arc<Semaphore>,
    /// Number of failures that were too many.
    dropped: Arc<AtomicU64>,
    words: Words,
}

/// End where they come out.
#[derive(Debug)]
pub struct EventInbox {
    items: mpsc::Receiver<CopyEvent>,
    failures: mpsc::Receiver<WaitingFailure>,
    dropped: Arc<AtomicU64>,
    words: Words,
}

/// A failure that waits to be shown, and its room.
type WaitingFailure = (CopyEvent, OwnedSemaphorePermit);

/// Failures, counted as they were reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Entries that could not be copied.
    pub failed: u64,
    /// Entries that vanished.
    pub vanished: u64,
    /// Entries left out for their kind.
    pub skipped: u64,
}

/// A new pair, which shows faults in these words.
pub fn events(words: Words) -> (Events, EventInbox) {
    let (items, items_out) = mpsc::channel(WAITING);
    // As many as there is room for if they have no texts.
    let (failures, failures_out) = mpsc::channel(MOST_FAILURES / COST);
    let (room, dropped) = (Arc::new(Semaphore::new(MOST_FAILURES)), Arc::<AtomicU64>::default());
    let inbox = EventInbox { items: items_out, failures: failures_out, dropped: Arc::clone(&dropped), words };
    (Events { items, failures, room, dropped, words }, inbox)
}

impl Events {
    /// Sends an event of an entry; blocks while the person does not read.
    pub fn item(&self, event: CopyEvent) {
        let _ = self.items.blocking_send(event);
    }

    /// Sends a failure; never blocks.
    pub fn failure(&self, failure: FailedEntry<'_>) {
        self.keep(failure.into_event(self.words));
    }

    /// The same behind earlier events of entries; blocks while the person does not read.
    pub fn failure_in_order(&self, failure: FailedEntry<'_>) {
        self.item(failure.into_event(self.words));
    }

    fn keep(&self, mut event: CopyEvent) {
        shorten(&mut event);
        match Arc::clone(&self.room).try_acquire_many_owned(cost(&event) as u32) {
            // There is a place for as many as there is room for. A copy that ended shows nothing more.
            Ok(room) => drop(self.failures.try_send((event, room))),
            Err(_) => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Hands on an event that the other side reported.
    pub async fn pass(&self, report: CopyReport, other: &str) -> Result<(), CopyError> {
        let mut event = report.try_into()?;
        shorten(&mut event);
        if let CopyEvent::Failed { error, .. } = &mut event {
            *error = at(other, std::mem::take(error));
        }
        match event {
            event @ CopyEvent::Progress { .. } => self.progress(event),
            event => self.send(event).await,
        }
        Ok(())
    }

    /// Sends an event, as soon as there is room.
    pub async fn send(&self, event: CopyEvent) {
        let _ = self.items.send(event).await;
    }

    /// Something takes long; `seconds` until it is given up, if it will be.
    pub async fn waiting(&self, what: String, seconds: Option<u64>) {
        self.send(CopyEvent::Waiting { what, seconds }).await;
    }

    /// Sends progress, unless there is too much to show already.
    pub fn progress(&self, event: CopyEvent) {
        let _ = self.items.try_send(event);
    }
}

impl EventInbox {
    async fn next(&mut self) -> Option<CopyEvent> {
        tokio::select! {
            biased;
            Some((event, _room)) = self.failures.recv() => Some(event),
            Some(event) = self.items.recv() => Some(event),
            else => self.dropped(),
        }
    }

    /// Failure that stands at the end for those that were too many, once.
    fn dropped(&self) -> Option<CopyEvent> {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let failure =
            || FailedEntry { path: Vec::new(), fault: EntryFault::More(dropped), kind: FailureKind::Other };
        (dropped > 0).then(|| failure().into_event(self.words))
    }

    /// Hands everything to the person, and counts what failed.
    pub async fn show_to(mut self, person: mpsc::Sender<CopyEvent>) -> Tally {
        let mut tally = Tally::default();
        while let Some(event) = self.next().await {
            if let CopyEvent::Failed { kind, path, .. } = &event {
                match kind {
                    FailureKind::Vanished => tally.vanished += 1,
                    FailureKind::Other => tally.failed += 1,
                    // Without a path it is no entry: nothing is removed, say.
                    FailureKind::Skipped => tally.skipped += u64::from(!path.is_empty()),
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
            let _ = control.send(Message::Event(event.into()).into_bytes()).await;
        }
    }
}

/// Words of the other side, which is called `other`, about a path there.
fn at(other: &str, words: String) -> String {
    if words.starts_with('/') { format!("{other}:{words}") } else { words }
}

/// Keeps the end of a path that is too long, and the front of its text.
fn shorten(event: &mut CopyEvent) {
    let cut = |path: &mut Vec<u8>| drop(path.drain(..path.len().saturating_sub(LONGEST)));
    let front = |text: &mut String| text.truncate(text.floor_char_boundary(LONGEST));
    match event {
        CopyEvent::Item { path, target, .. } => {
            cut(path);
            target.iter_mut().for_each(cut);
        }
        CopyEvent::Deleted { path, .. } => cut(path),
        CopyEvent::Waiting { what, .. } => front(what),
        CopyEvent::Failed { path, error, hint, .. } => {
            cut(path);
            front(error);
            hint.iter_mut().for_each(front);
        }
        CopyEvent::Progress { sources, trouble, .. } => {
            sources.0.truncate(MOST_SOURCES);
            trouble.iter_mut().for_each(front);
        }
    }
}

/// Bytes that a failure takes while it waits.
fn cost(event: &CopyEvent) -> usize {
    match event {
        CopyEvent::Failed { path, error, hint, .. } => {
            COST + path.len() + error.len() + hint.as_ref().map_or(0, String::len)
        }
        _ => COST,
    }
}

/// One entry that failed or is left out.
pub struct FailedEntry<'a> {
    /// Path as the person calls it; none where something that was requested is not done.
    pub path: Vec<u8>,
    /// Reason.
    pub fault: EntryFault<'a>,
    /// Meaning for the outcome.
    pub kind: FailureKind,
}

impl FailedEntry<'_> {
    fn into_event(self, words: Words) -> CopyEvent {
        let (error, hint) = words(&self.fault);
        CopyEvent::Failed { path: self.path, error, hint, kind: self.kind }
    }
}

/// A file that could not be read or written.
pub fn failed<'a>(path: &[u8], error: &'a FileError, kind: FailureKind) -> FailedEntry<'a> {
    // The root of the transfer.
    let path = if path.is_empty() { b"." } else { path };
    FailedEntry { path: path.to_vec(), fault: EntryFault::File(error), kind }
}

/// The same for a path of the source, which may have vanished.
pub fn failed_at<'a>(path: &Path, error: &'a FileError) -> FailedEntry<'a> {
    let kind = match error {
        FileError::Vanished { .. } => FailureKind::Vanished,
        _ => FailureKind::Other,
    };
    failed(path.as_os_str().as_encoded_bytes(), error, kind)
}

/// The same where the walk of the source met it. What the person named and is not there never was.
pub fn failed_to_read<'a>(path: &Path, error: &'a FileError, is_named: bool) -> FailedEntry<'a> {
    match is_named {
        true => failed(path.as_os_str().as_encoded_bytes(), error, FailureKind::Other),
        false => failed_at(path, error),
    }
}

/// An entry that is left out, at the source or at the destination.
pub fn left_out(path: &[u8], why: LeftOut) -> FailedEntry<'static> {
    FailedEntry { path: path.to_vec(), fault: EntryFault::LeftOut(why), kind: FailureKind::Skipped }
}

#[cfg(test)]
mod tests {
    use towpath_api::{SourceBytes, SourceList};

    use super::*;

    fn plain(fault: &EntryFault<'_>) -> (String, Option<String>) {
        (fault.to_string(), None)
    }

    fn failure(path: usize) -> CopyEvent {
        let (path, error) = (vec![b'x'; path], "no".into());
        CopyEvent::Failed { path, error, hint: None, kind: FailureKind::Other }
    }

    #[tokio::test]
    async fn failures_that_nobody_reads_take_no_more_than_their_room_and_are_counted() {
        let (events, inbox) = events(plain);
        let many = 100_000;
        (0..many).for_each(|_| events.keep(failure(400)));
        assert!(events.room.available_permits() < COST + 500, "as many as there is room for");
        drop(events);
        let (person, mut shown) = mpsc::channel(1 << 20);
        let tally = inbox.show_to(person).await;
        let mut last = None;
        while let Some(CopyEvent::Failed { error, .. }) = shown.recv().await {
            last = Some(error);
        }
        let shown_count = tally.failed - 1;
        assert!(shown_count < many && last.unwrap().starts_with(&format!("{} more", many - shown_count)));
    }

    #[test]
    fn texts_of_the_other_side_are_as_long_as_they_may_be() {
        let mut event = CopyEvent::Failed {
            path: [vec![b'a'; LONGEST], vec![b'z'; 9]].concat(),
            error: "é".repeat(LONGEST),
            hint: Some("h".repeat(LONGEST + 1)),
            kind: FailureKind::Other,
        };
        shorten(&mut event);
        assert!(cost(&event) <= COST + 3 * LONGEST);
        let CopyEvent::Failed { path, .. } = event else { panic!("another event") };
        assert!(path.ends_with(&[b'z'; 9]));
        let named = |number: u32| SourceBytes { kind: number.to_string(), ..SourceBytes::default() };
        let sources = SourceList((0..1000).map(named).collect());
        let mut event = CopyEvent::Progress {
            done: 0,
            expected: 0,
            files_done: 0,
            files_seen: 0,
            sources,
            trouble: None,
        };
        shorten(&mut event);
        let CopyEvent::Progress { sources, .. } = event else { panic!("another event") };
        assert_eq!(sources.0.len(), MOST_SOURCES);
    }
}
