//! Dialling by named links: a first connection by each, again when it is lost, and as many more beside it as are wished for.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use towpath_link::Identity;
use towpath_link::tcp::LocalEnd;
use towpath_protocol::Peer;

use crate::attempts::{LinkAttempts, random};
use crate::far_side::{Other, RaceConnection};
use crate::link_wishes::{LinkWishes, MOST_FURTHER};
use crate::links::MOST_LINKS;
use crate::race_status::RaceStatus;

/// Further connections that may fail or be lost by a link; then no more are dialled beside its first one.
const MAX_FAILURES: usize = 4;

/// Dials for a copy.
#[derive(Clone)]
pub(crate) struct LinkDialler {
    /// The other side, and this one's identity.
    pub(crate) to: (Other, Identity),
    /// Takes what stands.
    pub(crate) came: mpsc::Sender<RaceConnection>,
    /// Told why nothing stands.
    pub(crate) status: watch::Sender<RaceStatus>,
    /// Numbers that are wished for.
    pub(crate) wishes: LinkWishes,
}

/// Dials by each of `links`, and again when a connection is lost, until it is dropped.
/// The other side is at `theirs`, which may change.
pub(crate) async fn dial_by_each(
    dialler: LinkDialler,
    links: Vec<LocalEnd>,
    theirs: watch::Receiver<Vec<SocketAddr>>,
) {
    let permits = Arc::new(Semaphore::new(MOST_FURTHER));
    let mut dialling = JoinSet::new();
    for link in links.into_iter().take(MOST_LINKS) {
        let (name, permits, dialler) = (link.to_string(), Arc::clone(&permits), dialler.clone());
        let (link, theirs) = (DialledLink { link, name, permits, dialler }, theirs.clone());
        dialling.spawn(async move { link.dial_always(theirs).await });
    }
    while dialling.join_next().await.is_some() {}
}

struct DialledLink {
    link: LocalEnd,
    name: String,
    /// One for each further connection of all links.
    permits: Arc<Semaphore>,
    dialler: LinkDialler,
}

impl DialledLink {
    /// Dials also after it gave up, once the other side is elsewhere.
    async fn dial_always(&self, mut theirs: watch::Receiver<Vec<SocketAddr>>) {
        loop {
            self.dial(&mut theirs).await;
            if theirs.changed().await.is_err() {
                return;
            }
        }
    }

    async fn dial(&self, theirs: &mut watch::Receiver<Vec<SocketAddr>>) {
        let LinkDialler { to: (other, identity), came, status, wishes } = &self.dialler;
        let mut attempts = LinkAttempts::default();
        while let Some(wait) = attempts.next(Instant::now(), random()) {
            tokio::time::sleep(wait).await;
            // What was wished for beside a first one that is gone.
            wishes.set(&self.name, 1);
            let addresses = theirs.borrow_and_update().clone();
            let dialled = tokio::select! {
                dialled = other.dial_by((&self.link, 1), &addresses, identity) => dialled,
                Ok(()) = theirs.changed() => continue,
            };
            match dialled {
                Ok((peer, address)) => {
                    let (since, closed) = (Instant::now(), peer.closed());
                    if came.send(RaceConnection { peer, dialled: None }).await.is_err() {
                        return;
                    }
                    tokio::select! {
                        () = closed => {}
                        () = self.dial_further(address) => {}
                    }
                    tracing::debug!(link = %self.link, "a link's connection was lost");
                    attempts.lost(since.elapsed());
                }
                Err(error) => {
                    tracing::debug!(link = %self.link, %error, "a link leads nowhere");
                    attempts.failed(&error);
                    status.send_modify(|status| status.last = Some(Arc::new(error)));
                }
            }
        }
    }

    /// Keeps as many connections beside the first one as are wished for, where that one led. Dropping this closes them.
    async fn dial_further(&self, address: SocketAddr) {
        let mut wishes = self.dialler.wishes.subscribe();
        let (mut standing, mut failures, mut number) = (JoinSet::new(), 0, 1);
        let mut wanted = self.wanted_beside();
        loop {
            while standing.len() < self.wanted_beside() && failures < MAX_FAILURES {
                let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { break };
                number += 1;
                standing.spawn(self.further(address, number, permit));
            }
            tokio::select! {
                Ok(()) = wishes.changed() => {
                    let before = std::mem::replace(&mut wanted, self.wanted_beside());
                    failures = if before == wanted { failures } else { 0 };
                }
                // One that was closed because fewer are wanted did not fail.
                Some(_) = standing.join_next() => failures += usize::from(standing.len() < self.wanted_beside()),
                else => std::future::pending().await,
            }
        }
    }

    /// Connections that are to be there beside the first one.
    fn wanted_beside(&self) -> usize {
        self.dialler.wishes.of(&self.name).saturating_sub(1)
    }

    /// One more connection, as long as it stands.
    fn further(
        &self,
        address: SocketAddr,
        number: u32,
        permit: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (link, LinkDialler { to: (other, identity), came, .. }) =
            (self.link.clone(), self.dialler.clone());
        async move {
            let _permit = permit;
            match other.dial_by((&link, number), &[address], &identity).await {
                Ok((peer, _)) => {
                    // Whoever draws from it may drop it.
                    let (closed, _end) = (peer.closed(), FurtherLinkEnd(Arc::downgrade(&peer)));
                    if came.send(RaceConnection { peer, dialled: None }).await.is_ok() {
                        closed.await;
                    }
                }
                Err(error) => tracing::debug!(%link, %error, "no further connection by a link"),
            }
        }
    }
}

/// Goes with the first one.
struct FurtherLinkEnd(Weak<Peer>);

impl Drop for FurtherLinkEnd {
    fn drop(&mut self) {
        if let Some(peer) = self.0.upgrade() {
            peer.close("the link's first connection was lost");
        }
    }
}
