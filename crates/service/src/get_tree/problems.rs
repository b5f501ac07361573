//! Files of a tree that failed, on their way to the person.
//!
//! Some who find out cannot wait: the session's one task, and threads that work for other transfers, too. So the thread
//! that goes through the descriptor waits for them, before each entry: until there is room for all that may fail of what is
//! under way.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use towpath_api::Event;

/// Failures told and not shown yet, at most.
const MOST: usize = 8192;
/// Room before an entry begins: for those of a session, those that are about to be asked for, and those that are written
/// together.
const ROOM: usize = 4096;

/// Where failures go in.
pub(super) struct Problems {
    told: mpsc::Sender<Event>,
    shown: Arc<Notify>,
    /// Number of those for which there was no room, as a file may fail in more than one way.
    untold: AtomicU64,
}

/// Where they come out.
pub(super) struct ProblemInbox {
    told: mpsc::Receiver<Event>,
    /// Taken out, and not shown yet: whoever shows it may be given up meanwhile.
    next: Option<Event>,
    shown: Arc<Notify>,
}

/// Both ends.
pub(super) fn problems() -> (Problems, ProblemInbox) {
    let (into, told) = mpsc::channel(MOST);
    let shown = Arc::<Notify>::default();
    let problems = Problems { told: into, shown: Arc::clone(&shown), untold: AtomicU64::new(0) };
    (problems, ProblemInbox { told, next: None, shown })
}

impl Problems {
    /// Tells of a failure; never waits.
    pub(super) fn tell(&self, event: Event) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.told.try_send(event) {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Blocks while there is little room. For one thread at a time, which is nobody else's.
    pub(super) fn wait_for_room(&self) {
        if !self.has_room() {
            Handle::current().block_on(self.room());
        }
    }

    async fn room(&self) {
        while !self.has_room() {
            self.shown.notified().await;
        }
    }

    /// True also if nobody is shown anything any more.
    fn has_room(&self) -> bool {
        self.told.capacity() >= ROOM || self.told.is_closed()
    }
}

impl Drop for Problems {
    fn drop(&mut self) {
        let untold = *self.untold.get_mut();
        if untold > 0 {
            tracing::warn!(untold, "more of a tree's files failed than could be told");
        }
    }
}

impl ProblemInbox {
    /// Shows what comes, until it is dropped.
    pub(super) async fn forward(&mut self, person: &mpsc::Sender<Event>) -> Infallible {
        loop {
            self.show(person).await;
            match self.told.recv().await {
                Some(event) => self.next = Some(event),
                None => std::future::pending().await,
            }
            self.shown.notify_one();
        }
    }

    /// Shows what is left.
    pub(super) async fn drain(&mut self, person: &mpsc::Sender<Event>) {
        self.show(person).await;
        while let Ok(event) = self.told.try_recv() {
            let _ = person.send(event).await;
        }
    }

    /// Shows what was taken out.
    async fn show(&mut self, person: &mpsc::Sender<Event>) {
        if self.next.is_some()
            && let Ok(place) = person.reserve().await
            && let Some(event) = self.next.take()
        {
            place.send(event);
        }
    }
}

impl Drop for ProblemInbox {
    fn drop(&mut self) {
        self.told.close();
        self.shown.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn failure() -> Event {
        Event::FileFailed { path: "file".into(), error: "no".into() }
    }

    fn is_ready(future: impl Future) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn the_next_entry_waits_for_the_person_and_without_one_for_nobody() {
        let (problems, mut inbox) = problems();
        (0..MOST - ROOM).for_each(|_| problems.tell(failure()));
        assert!(is_ready(problems.room()));
        problems.tell(failure());
        let mut room = pin!(problems.room());
        assert!(!is_ready(room.as_mut()));
        let (person, _shown) = mpsc::channel(1);
        assert!(!is_ready(inbox.forward(&person)));
        assert!(is_ready(room));
        (0..2 * MOST).for_each(|_| problems.tell(failure()));
        assert!(problems.told.capacity() == 0 && problems.untold.load(Ordering::Relaxed) > MOST as u64);
        drop(inbox);
        assert!(is_ready(problems.room()));
    }

    /// One was lost.
    #[tokio::test]
    async fn all_are_shown_also_if_it_is_given_up_meanwhile() {
        let (problems, mut inbox) = problems();
        (0..3).for_each(|_| problems.tell(failure()));
        let (person, mut shown) = mpsc::channel(1);
        assert!(!is_ready(inbox.forward(&person)));
        let drained = async {
            inbox.drain(&person).await;
            drop(person);
        };
        let counted = async {
            let mut count = 0;
            while shown.recv().await.is_some() {
                count += 1;
            }
            count
        };
        assert_eq!(tokio::join!(drained, counted).1, 3);
    }
}
