//! State that the handle of a connection and its two tasks share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use towpath_content::NodeId;

use super::callers::{Act, Callers};
use super::control;
use super::pace::Pace;
use super::session::Session;

/// Time without a frame in one direction after which its memory is given back.
pub(super) const REST: Duration = Duration::from_secs(1);

/// Bytes that went over all connections of a session, headers included.
#[derive(Debug, Default)]
pub struct Traffic {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

impl Traffic {
    /// Bytes sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// State shared by the handle and the tasks.
pub(super) struct Shared {
    pub(super) node: NodeId,
    pub(super) callers: Mutex<Callers>,
    pub(super) token: CancellationToken,
    pub(super) receive_pace: Arc<Pace>,
    pub(super) traffic: Arc<Traffic>,
    /// Bytes that came on this connection, also of a frame that is not whole yet.
    pub(super) heard: Arc<AtomicU64>,
    /// The reader waits for the peer, not for whoever takes what came.
    pub(super) listens: AtomicBool,
    /// Cancelled once the peer's hello has come.
    pub(super) greeted: CancellationToken,
    /// Cancelled once the peer had a right to something, or from the beginning if it need not have.
    pub(super) known: CancellationToken,
    /// Cancelled once the round trip of a connection is known of which the kernel does not tell it.
    pub(super) measured: CancellationToken,
    /// The control stream, if this side has one.
    pub(super) control: Option<Arc<control::ControlStream>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the session; `acts` gets what is to be done then.
    pub(super) fn settle<T>(&self, acts: &mut Vec<Act>, f: impl FnOnce(&mut Callers) -> T) -> T {
        let mut callers = self.lock();
        let result = f(&mut callers);
        callers.settle(acts);
        if callers.session().ended().is_some() {
            self.token.cancel();
        }
        result
    }

    /// Changes the session, other than by a frame, and does what is to be done then.
    pub(super) fn change<T>(&self, f: impl FnOnce(&mut Callers) -> T) -> T {
        let mut acts = Vec::new();
        let result = self.settle(&mut acts, f);
        for act in acts {
            let later = act.perform();
            debug_assert!(later.is_none(), "only frames leave something for later");
        }
        result
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&Session) -> T) -> T {
        f(self.lock().session())
    }

    pub(super) fn ended(&self) -> Option<String> {
        self.with(|session| session.ended().map(String::from))
    }
}
