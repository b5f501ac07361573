//! Connections by several links at once, where the person named links of their machine.
//!
//! The person's side dials by each of them ([`crate::dialled_links`]), whichever side asks for data, and its hello names the link.
//! The side that asks takes each such link as a way of its own, and a connection by no named link only while none of these stands. A
//! long, fast path needs several connections: the side that asks finds out, and wishes for them ([`crate::link_wishes`]).

use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use towpath_content::lock::lock;
use towpath_link::Identity;
use towpath_plugins::direct::DirectConfig;
use towpath_plugins::takeover::Names;
use towpath_plugins::{Direct, LinkWays, Takeover};
use towpath_protocol::{Peer, PeerConfig};

use crate::far_side::{LINK_SILENCE, RaceConnection, greeted};
use crate::link_wishes::{LinkWishes, MOST_FURTHER};
use crate::race_status::RaceStatus;

/// The two ways of the side that asks.
const NAMES: Names = Names { first: "one", better: "links" };
/// Links that a copy uses at most.
pub const MOST_LINKS: usize = 16;

/// What the side that asks draws from: links, or one connection while there is none by a named link.
pub struct ChosenWays {
    takeover: Arc<Takeover>,
    offered: Mutex<OfferedWays>,
    status: watch::Sender<RaceStatus>,
}

/// Ways that were offered so far.
#[derive(Default)]
struct OfferedWays {
    /// One connection, which gives way to the links once these stand, and takes over while they are in trouble.
    single: Option<Arc<Takeover>>,
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
        let single = Takeover::new(Arc::clone(single), NAMES);
        if self.takeover.gives_way() {
            single.give_way();
        }
        if let Some(links) = &offered.links {
            single.offer(Arc::clone(links));
        }
        self.takeover.offer(Arc::clone(&single));
        offered.single = Some(single);
    }

    fn join(&self, link: Arc<Direct>) -> u64 {
        let mut offered = lock(&self.offered);
        let OfferedWays { single, links } = &mut *offered;
        let key = match links {
            Some(links) => links.join(link),
            None => {
                let links = links.insert(LinkWays::new());
                let key = links.join(link);
                let takeover = single.as_ref().unwrap_or(&self.takeover);
                takeover.offer(Arc::clone(links));
                key
            }
        };
        self.status.send_modify(|status| status.links += 1);
        key
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
const MOST_GREETING: usize = MOST_LINKS + MOST_FURTHER;

/// Takes each link as a way of its own, as long as its first connection stands. Another first one by the same link takes the
/// place of the one before: its dialler has lost that. Further ones are the way's, if it wants them.
pub struct LinkKeeper<'a> {
    chosen: &'a ChosenWays,
    identity: &'a Identity,
    wishes: LinkWishes,
    /// All connections by links.
    standing: &'a Mutex<Vec<Weak<Peer>>>,
    /// Connections of each at first.
    first: usize,
    links: Vec<KeptLink>,
    closed: JoinSet<u64>,
}

/// A link that the side which asks draws from.
struct KeptLink {
    name: String,
    key: u64,
    first: Arc<Peer>,
    further: Vec<Weak<Peer>>,
    way: Arc<Direct>,
    /// Tells how many connections the way wants.
    _wishing: AbortOnDropHandle<()>,
}

impl KeptLink {
    fn further(&self) -> impl Iterator<Item = Arc<Peer>> {
        self.further.iter().filter_map(Weak::upgrade).filter(|peer| peer.ended().is_none())
    }
}

impl<'a> LinkKeeper<'a> {
    /// Joins links to `chosen`, and puts all connections into `standing`.
    pub(crate) fn new(
        chosen: &'a ChosenWays,
        identity: &'a Identity,
        wishes: LinkWishes,
        standing: &'a Mutex<Vec<Weak<Peer>>>,
    ) -> Self {
        Self { chosen, identity, wishes, standing, first: 1, links: Vec::new(), closed: JoinSet::new() }
    }

    /// Takes what comes, until it is dropped.
    pub async fn keep(mut self, mut came: mpsc::Receiver<Arc<Peer>>) {
        loop {
            tokio::select! {
                Some(peer) = came.recv() => self.take(peer),
                Some(Ok(key)) = self.closed.join_next() => self.end(key, "the link's first connection was lost"),
                else => std::future::pending().await,
            }
        }
    }

    fn take(&mut self, peer: Arc<Peer>) {
        let Some(name) = peer.source().path().map(str::to_owned) else { return };
        let refused = match peer.greeting().link_number {
            0 | 1 => self.take_first(&peer, name),
            _ => self.take_further(&peer, &name),
        };
        if let Some(why) = refused {
            return peer.close(why);
        }
        peer.set_silence(LINK_SILENCE);
        let mut all = lock(self.standing);
        all.retain(|peer| peer.strong_count() > 0);
        all.push(Arc::downgrade(&peer));
    }

    /// Takes the first connection of a link, or says why not.
    fn take_first(&mut self, peer: &Arc<Peer>, name: String) -> Option<&'static str> {
        let older = self.links.iter().find(|link| link.name == name).map(|link| link.key);
        if older.is_none() && self.links.len() >= MOST_LINKS {
            return Some("enough links stand");
        }
        tracing::debug!(link = name, "a link stands");
        let way = self.way(peer, &name);
        let key = self.chosen.join(Arc::clone(&way));
        if let Some(older) = older {
            self.end(older, "another connection by this link stands");
        }
        let wishing = wish(&way, self.wishes.clone(), name.clone());
        let ended = peer.closed();
        self.closed.spawn(async move {
            ended.await;
            key
        });
        let first = Arc::clone(peer);
        self.links.push(KeptLink { name, key, first, further: Vec::new(), way, _wishing: wishing });
        None
    }

    /// Takes a further connection of a link, or says why not.
    fn take_further(&mut self, peer: &Arc<Peer>, name: &str) -> Option<&'static str> {
        let standing: usize = self.links.iter().map(|link| link.further().count()).sum();
        let link = self.links.iter_mut().find(|link| link.name == name && link.first.ended().is_none());
        match link {
            Some(link) if standing < MOST_FURTHER && link.way.join(Arc::clone(peer)) => {
                tracing::debug!(link = name, "a further connection by a link stands");
                link.further.retain(|peer| peer.strong_count() > 0);
                link.further.push(Arc::downgrade(peer));
                None
            }
            _ => Some("enough connections stand"),
        }
    }

    /// A link is no way any more.
    fn end(&mut self, key: u64, why: &str) {
        let Some(at) = self.links.iter().position(|link| link.key == key) else { return };
        let link = self.links.remove(at);
        self.chosen.leave(key);
        self.wishes.set(&link.name, 1);
        link.further().for_each(|peer| peer.close(why));
        link.first.close(why);
    }

    /// The way that such a connection is. Whoever does not number its connections dials no further ones.
    fn way(&self, peer: &Arc<Peer>, name: &str) -> Arc<Direct> {
        let named = PeerConfig { way: Some(name.into()), ..PeerConfig::default() };
        let (connections, most_connections) = match peer.greeting().link_number {
            0 => (1, 1),
            _ => (self.first, MOST_FURTHER + 1),
        };
        let config = DirectConfig { connections, most_connections, peer: named, ..DirectConfig::default() };
        Arc::new(Direct::over_several(Arc::clone(peer), self.identity.clone(), config))
    }
}

/// Wishes for as many connections as a way wants, from now on.
fn wish(way: &Direct, wishes: LinkWishes, name: String) -> AbortOnDropHandle<()> {
    let wanted = way.wanted();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let Some(mut wanted) = wanted else { return };
        loop {
            wishes.set(&name, *wanted.borrow_and_update());
            if wanted.changed().await.is_err() {
                return;
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use towpath_link::tcp::{Listener, LocalEnd, Timeouts};

    use super::*;
    use crate::dialled_links::{LinkDialler, dial_by_each};
    use crate::doubles::service;
    use crate::far_side::{HELLO_LIMIT, Other};

    const LINK: &str = "127.0.0.1";

    /// Side of a copy towards another one.
    fn towards(own: &Identity, other: &Identity) -> Other {
        let config = PeerConfig { control: true, tells_link: true, ..PeerConfig::default() };
        Other { peer: other.node_id(), service: service(own), config }
    }

    /// Accepts whatever is dialled, and keeps it.
    async fn accept(listener: Listener, other: &Other, came: &mpsc::Sender<RaceConnection>) {
        loop {
            let pending = listener.accept().await.unwrap();
            let connection = pending.handshake(Timeouts::default().handshake).await.unwrap();
            came.send(other.take(connection)).await.unwrap();
        }
    }

    async fn until(done: impl Fn() -> bool) {
        while !done() {
            tokio::task::yield_now().await;
        }
    }

    /// The side with the link dials, and asks or answers. Connections are lost, a further one and then the first one.
    #[tokio::test]
    async fn a_link_has_as_many_connections_as_its_way_wants_whichever_side_asks() {
        for person_asks in [true, false] {
            let (person, remote) = (Identity::generate().unwrap(), Identity::generate().unwrap());
            let asks = if person_asks { &person } else { &remote };
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &remote).await;
            let theirs: SocketAddr = listener.as_ref().unwrap().address().unwrap();
            let (dialled_in, mut dialled) = mpsc::channel(MOST_GREETING);
            let (accepted_in, mut accepted) = mpsc::channel(MOST_GREETING);
            let status = watch::Sender::new(RaceStatus::default());
            let (wishes, wishes_there) = (LinkWishes::default(), LinkWishes::default());
            let to = (towards(&person, &remote), person.clone());
            let dialler =
                LinkDialler { to, came: dialled_in, status: status.clone(), wishes: wishes.clone() };
            let (_keep, leads) = watch::channel(vec![theirs]);
            let dialling = dial_by_each(dialler, vec![LocalEnd::Address(theirs.ip())], leads);
            let other = towards(&remote, &person);
            let accepting = accept(listener.unwrap(), &other, &accepted_in);

            let (came, answers) = match person_asks {
                true => (&mut dialled, &mut accepted),
                false => (&mut accepted, &mut dialled),
            };
            let own_wishes = if person_asks { wishes.clone() } else { wishes_there.clone() };
            let (by_link_in, by_link) = mpsc::channel(MOST_GREETING);
            let (single, _none) = mpsc::channel(1);
            let sorting = sort(std::mem::replace(came, mpsc::channel(1).1), single, by_link_in);
            let chosen = ChosenWays::new(Takeover::only_better("nothing", NAMES), status);
            let standing = Mutex::default();
            let keeper = LinkKeeper { first: 3, ..LinkKeeper::new(&chosen, asks, own_wishes, &standing) };

            // As the other side of a copy is told.
            let telling = async {
                let mut reader = crate::WishReader::of(&wishes_there);
                while let Some((link, count)) = reader.next().await {
                    wishes.set(&link, count);
                }
            };
            let answering = async {
                let mut kept = Vec::new();
                while let Some(came) = answers.recv().await {
                    kept.push(came.peer);
                }
            };
            let stands = || -> Vec<Arc<Peer>> {
                let all = lock(&standing).iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
                all.into_iter().filter(|peer| peer.ended().is_none()).collect()
            };
            let looking = async {
                until(|| stands().len() == 3).await;
                let lost = stands().pop().unwrap();
                lost.close("lost");
                until(|| stands().len() == 3).await;
                let first = stands().into_iter().find(|peer| peer.greeting().link_number == 1).unwrap();
                first.close("lost");
                until(|| stands().len() == 3 && !stands().iter().any(|peer| Arc::ptr_eq(peer, &first))).await;
                assert!(stands().iter().all(|peer| peer.source().path() == Some(LINK)));
            };
            tokio::select! {
                looked = tokio::time::timeout(HELLO_LIMIT, looking) => looked.expect("too few connections"),
                () = dialling => panic!("nobody dials any more"),
                () = async { tokio::join!(accepting, sorting, keeper.keep(by_link), telling, answering); } => {}
            }
        }
    }
}
