//! A transfer's use of a connection. One that is in nobody's way has it for itself on this side: the tags of its wants, the
//! piece that it asked for ahead, and what it measures would mix with those of another. The other side may ask there meanwhile.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_content::Oid;

use super::peer::Peer;
use super::wire::{Body, WireFinished, oid_field};
use super::{HAS_ALL, HAS_THE_REST};

/// What matters of a connection to whoever would use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerFacts {
    /// The peer answers what it is asked there.
    pub answers: bool,
    /// A transfer of this side has it for itself.
    pub is_taken: bool,
    /// Urgency of what this side asks there.
    pub priority: i8,
}

impl PeerFacts {
    /// Those of a connection now; `None` if it has ended.
    pub fn of(peer: &Peer) -> Option<Self> {
        let answers = peer.shared.with(|session| match session.ended() {
            Some(_) => None,
            None => Some(session.greeting().answers),
        })?;
        Some(Self { answers, priority: peer.priority, is_taken: peer.is_taken.load(Ordering::Acquire) })
    }
}

/// See the head of this module.
pub struct PeerUse {
    peer: Arc<Peer>,
    /// The root, if the connection is for this use alone.
    root: Option<Oid>,
    /// Its end was told.
    has_left: AtomicBool,
}

impl PeerUse {
    /// The use for `root` alone of a connection that no other one of this side has for itself.
    pub fn alone(peer: &Arc<Peer>, root: Oid) -> Option<Self> {
        let was_taken = peer.is_taken.swap(true, Ordering::AcqRel);
        let new = || Self { peer: Arc::clone(peer), root: Some(root), has_left: AtomicBool::new(false) };
        (!was_taken).then(new)
    }

    /// The use of a connection whose owner sees to it that nobody is in the way.
    pub const fn lent(peer: Arc<Peer>) -> Self {
        Self { peer, root: None, has_left: AtomicBool::new(true) }
    }

    /// Tells the peer how this use ended; the connection stays.
    pub fn leave(&self, how: &str) {
        let how = if how == HAS_ALL { 1 } else { u32::from(how == HAS_THE_REST) * 2 };
        if let Some(root) = self.root
            && !self.has_left.swap(true, Ordering::AcqRel)
        {
            let finished = Body::Finished(WireFinished { root: oid_field(&root), how });
            self.peer.shared.change(|callers| callers.session().reply([finished]));
        }
    }
}

impl Deref for PeerUse {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for PeerUse {
    fn drop(&mut self) {
        // It gave up, if it said nothing before.
        self.leave("");
        if self.root.is_some() {
            self.peer.is_taken.store(false, Ordering::Release);
        }
    }
}
