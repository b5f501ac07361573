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
                    if came.send(RaceConnection { peer, dialled: None, address: None }).await.is_err() {
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
        let (mut standing, mut number) = (JoinSet::new(), 1);
        let mut wanted = FurtherWanted::new(self.wanted_beside());
        loop {
            while wanted.is_one_missing(standing.len()) {
                let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { break };
                number += 1;
                standing.spawn(self.further(address, number, permit));
            }
            tokio::select! {
                Ok(()) = wishes.changed() => wanted.wish(self.wanted_beside()),
                Some(_) = standing.join_next() => {
                    wanted.wish(self.wanted_beside());
                    wanted.ended(standing.len());
                }
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
                    if came.send(RaceConnection { peer, dialled: None, address: None }).await.is_ok() {
                        closed.await;
                    }
                }
                Err(error) => tracing::debug!(%link, %error, "no further connection by a link"),
            }
        }
    }
}

/// Connections that are to be there beside a first one, and whether it is any use to dial them: pure.
#[derive(Debug, PartialEq)]
struct FurtherWanted {
    count: usize,
    /// Those that failed or were lost since another number was wished for.
    failures: usize,
}

impl FurtherWanted {
    const fn new(count: usize) -> Self {
        Self { count, failures: 0 }
    }

    /// So many are wished for. Whoever wishes for another number has reason to, also where some had failed.
    const fn wish(&mut self, count: usize) {
        if count != self.count {
            *self = Self::new(count);
        }
    }

    /// One ended, and so many are left. One that was closed because fewer are wanted did not fail.
    fn ended(&mut self, left: usize) {
        self.failures += usize::from(left < self.count);
    }

    /// True if one more is to be dialled where so many stand.
    const fn is_one_missing(&self, standing: usize) -> bool {
        standing < self.count && self.failures < MAX_FAILURES
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;
    use towpath_link::tcp::{Listener, Timeouts};
    use towpath_protocol::PeerConfig;

    use super::*;
    use crate::doubles::service;

    /// Less than a handshake may take that nobody answers.
    const SOON: Duration = Duration::from_secs(8);

    /// `w2` two are wished for beside the first one, `s` one ended while enough stand, `x` one ended and is missing.
    #[test]
    fn failures_count_until_another_number_is_wished_for() {
        for (what, happens, dials) in [
            ("none is wished for", "", false),
            ("two are", "w2", true),
            ("three failed", "w2xxx", true),
            ("four did", "w2xxxx", false),
            ("the same number again", "w2xxxxw2", false),
            ("another number", "w2xxxxw3", true),
            ("fewer, and those that were closed for it", "w6w2ssssss", true),
            ("none, and then some", "w2xxxxw0w2", true),
        ] {
            let (mut wanted, mut events) = (FurtherWanted::new(0), happens.chars());
            while let Some(event) = events.next() {
                match event {
                    's' => wanted.ended(wanted.count),
                    'x' => wanted.ended(wanted.count - 1),
                    _ => wanted.wish(events.next().and_then(|digit| digit.to_digit(10)).unwrap() as usize),
                }
            }
            assert_eq!(wanted.is_one_missing(0), dials, "{what}: {wanted:?}");
        }
    }

    /// The other side is told to be where nobody is, until that is given up; then where nobody answers; and then where it is.
    #[tokio::test]
    async fn addresses_that_the_other_side_tells_are_dialled_at_once_and_also_after_all_was_given_up() {
        let (person, remote) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let here: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let nobody = std::net::TcpListener::bind(here).unwrap().local_addr().unwrap();
        let silent = TcpListener::bind(here).await.unwrap();
        let listener = Listener::bind(here, &remote).await.unwrap();
        let other =
            Other { peer: remote.node_id(), service: service(&person), config: PeerConfig::default() };
        let (came, mut dialled) = mpsc::channel(1);
        let (status, mut failed) = watch::channel(RaceStatus::default());
        let dialler = LinkDialler { to: (other, person), came, status, wishes: LinkWishes::default() };
        let (tell, theirs) = watch::channel(vec![nobody]);
        let moving = async {
            for _ in 0..LinkAttempts::MOST_FAILURES {
                failed.changed().await.unwrap();
            }
            tell.send_replace(vec![silent.local_addr().unwrap()]);
            let _silent = silent.accept().await.unwrap();
            tell.send_replace(vec![listener.address().unwrap()]);
            let shaking = async {
                listener.accept().await.unwrap().handshake(Timeouts::default().handshake).await.unwrap()
            };
            let both = async { tokio::join!(shaking, dialled.recv()) };
            let (_there, came) = tokio::time::timeout(SOON, both).await.expect("it waits for the silent one");
            came.unwrap();
        };
        tokio::select! {
            () = dial_by_each(dialler, vec![LocalEnd::Address(here.ip())], theirs) => panic!("nobody dials any more"),
            () = moving => {}
        }
    }
}
