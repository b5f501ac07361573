//! A transfer's use of a connection. The first one has all that a connection offers, also a piece asked for ahead. Others
//! may use it beside that: what they cancel and how they end is theirs alone. The other side may ask there meanwhile.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_content::Oid;
use towpath_transfer::Want;
use towpath_transfer::source::Sink;

use super::peer::Peer;
use super::requests::GetRequest;
use super::wire::Body;
use super::{HAS_ALL, HAS_THE_REST};

/// What matters of a connection to whoever would use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerFacts {
    /// The peer answers what it is asked there.
    pub answers: bool,
    /// Transfers of this side that use it.
    pub uses: usize,
    /// Urgency of what this side asks there.
    pub priority: i8,
}

impl PeerFacts {
    /// Those of a connection now; `None` if it has ended.
    pub fn of(peer: &Peer) -> Option<Self> {
        let (answers, uses) = peer.shared.with(|session| match session.ended() {
            Some(_) => None,
            None => Some((session.greeting().answers, session.uses.len())),
        })?;
        Some(Self { answers, uses, priority: peer.priority })
    }
}

/// See the head of this module.
pub struct PeerUse {
    peer: Arc<Peer>,
    /// The root that it needs; none of a connection that is lent.
    root: Option<Oid>,
    /// Its number among the uses of the connection.
    number: u64,
    /// Its end was told.
    has_left: AtomicBool,
}

impl PeerUse {
    /// The use for `root` of a connection that no other one of this side uses.
    pub fn alone(peer: &Arc<Peer>, root: Oid) -> Option<Self> {
        Self::begin(peer, root, 0)
    }

    /// The same beside others.
    pub fn beside_others(peer: &Arc<Peer>, root: Oid) -> Option<Self> {
        Self::begin(peer, root, usize::MAX)
    }

    fn begin(peer: &Arc<Peer>, root: Oid, most: usize) -> Option<Self> {
        let number = peer.shared.change(|callers| {
            let uses = &mut callers.session().uses;
            (uses.len() <= most).then(|| uses.begin(root))
        })?;
        Some(Self { peer: Arc::clone(peer), root: Some(root), number, has_left: AtomicBool::new(false) })
    }

    /// The use of a connection whose owner sees to it that nobody is in the way.
    pub const fn lent(peer: Arc<Peer>) -> Self {
        Self { peer, root: None, number: 0, has_left: AtomicBool::new(true) }
    }

    /// True if other transfers of this side use the connection as well.
    pub fn has_others(&self) -> bool {
        self.peer.shared.with(|session| session.uses.len() > 1)
    }

    /// Tells the peer how this use ended, unless another one needs the same root; the connection stays.
    pub fn leave(&self, how: &str) {
        let how = if how == HAS_ALL { 1 } else { u32::from(how == HAS_THE_REST) * 2 };
        if let Some(root) = self.root
            && !self.has_left.swap(true, Ordering::AcqRel)
        {
            self.peer.shared.change(|callers| {
                let finished = callers.session().uses.end(&root, how);
                callers.session().reply(finished.map(Body::Finished));
            });
        }
    }

    /// As [`Peer::get`].
    pub async fn get(&self, request: GetRequest, sink: Arc<dyn Sink>) {
        self.peer.get(GetRequest { user: self.number, ..request }, sink).await;
    }

    /// Cancels wants of this use, as [`Peer::cancel`] does.
    pub fn cancel(&self, tags: &[u64]) {
        self.peer.cancel(self.number, tags);
    }

    /// As [`Peer::get_ahead`], if the connection has nobody else: there is place for one such piece.
    pub fn get_ahead(&self, root: &Oid, oid: &Oid, may_be_wanted: bool) {
        if self.number == 0 {
            self.peer.get_ahead(root, oid, may_be_wanted);
        }
    }

    /// As [`Peer::claim`].
    pub fn claim(
        &self,
        wants: &mut Vec<Want>,
        sink: &Arc<dyn Sink>,
    ) -> Option<impl Future<Output = ()> + use<'_>> {
        if self.number == 0 { self.peer.claim(wants, sink) } else { None }
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
    }
}
