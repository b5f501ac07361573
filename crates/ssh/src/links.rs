//! Connections by several links at once, where the person named links of their machine.
//!
//! The person's side dials by each of them, whichever side asks for data, and its hello names the link. The side that asks takes
//! each such connection as a way of its own, and one by no named link only while none of these stands.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use towpath_content::lock::lock;
use towpath_link::Identity;
use towpath_link::tcp::LocalEnd;
use towpath_plugins::direct::DirectConfig;
use towpath_plugins::takeover::Names;
use towpath_plugins::{Direct, LinkWays, Takeover};
use towpath_protocol::{Peer, PeerConfig};

use crate::attempts::{LinkAttempts, random};
use crate::far_side::{LINK_SILENCE, Other, RaceConnection, greeted};
use crate::race_status::RaceStatus;

/// The two ways of the side that asks.
const NAMES: Names = Names { first: "one", better: "links" };
/// Links that a copy uses at most.
pub const MOST_LINKS: usize = 16;

/// Dials by each of `links`, and again when a connection is lost, until it is dropped. What stands goes to `came`.
pub async fn dial_by_each(
    links: Vec<LocalEnd>,
    (other, identity): (Other, Identity),
    theirs: Vec<SocketAddr>,
    came: mpsc::Sender<RaceConnection>,
    status: watch::Sender<RaceStatus>,
) {
    let mut dialling = JoinSet::new();
    for link in links.into_iter().take(MOST_LINKS) {
        let link =
            DialledLink { link, other: other.clone(), identity: identity.clone(), status: status.clone() };
        let (theirs, came) = (theirs.clone(), came.clone());
        dialling.spawn(async move { link.dial(&theirs, &came).await });
    }
    while dialling.join_next().await.is_some() {}
}

struct DialledLink {
    link: LocalEnd,
    other: Other,
    identity: Identity,
    status: watch::Sender<RaceStatus>,
}

impl DialledLink {
    async fn dial(&self, theirs: &[SocketAddr], came: &mpsc::Sender<RaceConnection>) {
        let mut attempts = LinkAttempts::default();
        while let Some(wait) = attempts.next(Instant::now(), random()) {
            tokio::time::sleep(wait).await;
            match self.other.dial_by(&self.link, theirs, &self.identity).await {
                Ok(peer) => {
                    let (since, closed) = (Instant::now(), peer.closed());
                    if came.send(RaceConnection { peer, dialled: None }).await.is_err() {
                        return;
                    }
                    closed.await;
                    tracing::debug!(link = %self.link, "a link's connection was lost");
                    attempts.lost(since.elapsed());
                }
                Err(error) => {
                    tracing::debug!(link = %self.link, %error, "a link leads nowhere");
                    attempts.failed(&error);
                    self.status.send_modify(|status| status.last = Some(Arc::new(error)));
                }
            }
        }
    }
}

/// What the side that asks draws from: links, or one connection while there is none by a named link.
pub struct ChosenWays {
    takeover: Arc<Takeover>,
    offered: Mutex<OfferedWays>,
    status: watch::Sender<RaceStatus>,
}

/// Ways that were offered so far.
#[derive(Default)]
struct OfferedWays {
    single: Option<Arc<Direct>>,
    links: Option<Arc<LinkWays>>,
}

impl ChosenWays {
    /// Nothing yet.
    pub fn new(takeover: Arc<Takeover>, status: watch::Sender<RaceStatus>) -> Arc<Self> {
        Arc::new(Self { takeover, offered: Mutex::default(), status })
    }

    /// One connection was chosen that goes by no named link.
    pub fn offer(&self, single: &Arc<Direct>) {
        let mut offered = lock(&self.offered);
        offered.single = Some(Arc::clone(single));
        self.take(&offered);
    }

    fn join(&self, link: Arc<Direct>) -> u64 {
        let mut offered = lock(&self.offered);
        let is_first = offered.links.is_none();
        let key = offered.links.get_or_insert_with(LinkWays::new).join(link);
        if is_first {
            self.take(&offered);
        }
        self.status.send_modify(|status| status.links += 1);
        key
    }

    /// Draws from the best of what was offered, which gives way to the other while it is in trouble.
    fn take(&self, offered: &OfferedWays) {
        match (&offered.single, &offered.links) {
            (Some(single), Some(links)) => {
                let both = Takeover::new(Arc::clone(single), NAMES);
                both.offer(Arc::clone(links));
                self.takeover.offer(both);
            }
            (Some(single), None) => self.takeover.offer(Arc::clone(single)),
            (None, Some(links)) => self.takeover.offer(Arc::clone(links)),
            (None, None) => {}
        }
    }

    fn leave(&self, key: u64) {
        if let Some(links) = &lock(&self.offered).links {
            links.leave(key);
        }
        self.status.send_modify(|status| status.links = status.links.saturating_sub(1));
    }
}

/// Tells connections by named links from others, once the other side has said hello.
pub async fn sort(
    mut came: mpsc::Receiver<RaceConnection>,
    single: mpsc::Sender<RaceConnection>,
    by_link: mpsc::Sender<Arc<Peer>>,
) {
    let mut greeting = JoinSet::new();
    loop {
        tokio::select! {
            Some(came) = came.recv(), if greeting.len() < MOST_GREETING => drop(greeting.spawn(async {
                let is_by_link = greeted(&came.peer).await && came.peer.source().path().is_some();
                (came, is_by_link)
            })),
            // One too many is closed by being dropped.
            Some(Ok((came, is_by_link))) = greeting.join_next() => match is_by_link {
                true => drop(by_link.try_send(came.peer)),
                false => drop(single.try_send(came)),
            },
            else => return,
        }
    }
}

/// Connections whose hello is waited for.
const MOST_GREETING: usize = 2 * MOST_LINKS;

/// Takes each connection by a named link as a way of its own, as long as it stands. A second one by the same link takes the
/// place of the first: its dialler has lost that. All go to `standing`.
pub async fn keep_links(
    mut came: mpsc::Receiver<Arc<Peer>>,
    chosen: &ChosenWays,
    identity: &Identity,
    standing: &Mutex<Vec<Weak<Peer>>>,
) {
    let (mut links, mut closed) = (Vec::<KeptLink>::new(), JoinSet::new());
    loop {
        tokio::select! {
            Some(peer) = came.recv() => {
                let Some(name) = peer.source().path().map(str::to_owned) else { continue };
                if let Some(older) = links.iter().find(|link| link.name == name) {
                    older.peer.close("another connection by this link stands");
                } else if links.len() >= MOST_LINKS {
                    peer.close("enough links stand");
                    continue;
                }
                peer.set_silence(LINK_SILENCE);
                tracing::debug!(link = name, "a link stands");
                let key = chosen.join(way(&peer, &name, identity));
                let mut all = lock(standing);
                all.retain(|peer| peer.strong_count() > 0);
                all.push(Arc::downgrade(&peer));
                drop(all);
                let ended = peer.closed();
                links.push(KeptLink { name, peer });
                closed.spawn(async move { ended.await; key });
            }
            Some(Ok(key)) = closed.join_next() => {
                links.retain(|link| link.peer.ended().is_none());
                chosen.leave(key);
            }
            else => std::future::pending().await,
        }
    }
}

/// A link that the side which asks draws from.
struct KeptLink {
    name: String,
    peer: Arc<Peer>,
}

fn way(peer: &Arc<Peer>, name: &str, identity: &Identity) -> Arc<Direct> {
    let named = PeerConfig { way: Some(name.into()), ..PeerConfig::default() };
    let config = DirectConfig { most_connections: 1, peer: named, ..DirectConfig::default() };
    Arc::new(Direct::over_several(Arc::clone(peer), identity.clone(), config))
}
