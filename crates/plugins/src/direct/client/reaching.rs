//! How [`Direct`] reaches its peer: by a connection of its own, which is dialled or called through a relay, by one that was found,
//! or by one that other transfers use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use towpath_content::hint::{self, PeerAddress};
use towpath_content::lock::lock;
use towpath_content::{Hint, NodeId};
use towpath_link::Connection;
use towpath_link::dialling::{Decision, Dialling};
use towpath_protocol::{Peer, PeerUse};
use towpath_transfer::{Context, Outcome};

use super::{Direct, LOOK_EVERY, PAUSE};
use crate::direct::SCHEME;
use crate::direct::attempt::{DialAttempt, Dialled, SlotDialling};
use crate::direct::pool::PeerNeeds;
use crate::direct::relayed::{call_by, is_relayed, relays};
use crate::direct::slots::Slot;

/// Time after which a peer that was not reached is asked beside other transfers, where a connection with it stands.
const UNREACHED: Duration = Duration::from_secs(1);

/// Time between two rounds of dialling where a relay brings the bytes meanwhile.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// Silence that ends a connection where a relay brings the bytes meanwhile: whoever moved is to be dialled anew soon. The other end
/// speaks every five seconds at least.
const BESIDE_A_RELAY: Duration = Duration::from_secs(8);

impl Direct {
    /// Reaches the peer, and asks it nothing.
    pub(in crate::direct) async fn reach(&self, context: &Context) -> Result<(), Outcome> {
        let slot = self.slots.idlest();
        let peer = self.peer(slot, context).await?;
        let is_there = peer.greeted().await;
        self.ended(slot, &peer, if is_there { Ok(()) } else { Err(Outcome::RetryLater(PAUSE)) })
    }

    /// A connection that stands and on which the root is proved, or how long to wait.
    pub(super) async fn peer(&self, slot: &Slot, context: &Context) -> Result<Arc<PeerUse>, Outcome> {
        let mut dialling = slot.dialling.lock().await;
        let standing = slot.peer();
        let peer = match (dialling.backoff.decide(Instant::now(), standing.is_some()), standing) {
            (Decision::Use, Some(peer)) => peer,
            (decision, _) => {
                if let Some(why) = slot.take_lost() {
                    self.note(slot, Some(why));
                }
                match (self.slots.are_brought(), self.slots.is_first(slot)) {
                    (false, _) => {}
                    (true, true) => return Err(Outcome::NotHere),
                    // The others stand.
                    (true, false) => return Err(Outcome::RetryLater(PAUSE)),
                }
                let reached = match (self.find(slot, context, false), decision) {
                    (Some(found), _) => Ok((found, true)),
                    (None, Decision::Wait(wait)) => Err(Outcome::RetryLater(wait)),
                    (None, _) => self.dial_or_find(slot, &mut dialling, context).await,
                };
                // What can't be dialled is asked beside others; what could be is about to be dialled again.
                let may_share = decision == Decision::Dial || self.led().is_none();
                let shared = || Some((self.find(slot, context, may_share)?, true));
                let (peer, is_found) = reached.or_else(|outcome| shared().ok_or(outcome))?;
                dialling.attempt = None;
                let peer = Arc::new(peer);
                slot.set(Arc::clone(&peer), is_found);
                peer
            }
        };
        self.prove(&peer, context);
        Ok(peer)
    }

    /// Shows the right to the root on a connection, unless there is none to show; false if it can't be shown there.
    fn prove(&self, peer: &Peer, context: &Context) -> bool {
        context.secret.is_none_or(|secret| {
            let proof = secret.prove(peer.binding(), &self.identity.node_id(), &context.root);
            peer.prove(&context.root, &proof)
        })
    }

    /// A connection of this service with the node, for the first slot: further ones are there to be more than those that stand.
    /// One that others use only if it may be shared.
    fn find(&self, slot: &Slot, context: &Context, may_share: bool) -> Option<PeerUse> {
        let (host, node) = (self.host.as_ref()?, self.node.or(context.node)?);
        let is_any_way = self.config.dial.from.is_none() && self.config.only.is_none();
        let may_be_any = is_any_way && self.slots.is_first(slot);
        if !may_be_any || self.shuns.load(Ordering::Relaxed) {
            return None;
        }
        // The other connections of this transfer are there as well.
        let may_share = may_share && self.slots.peers().next().is_none();
        let needs = PeerNeeds { may_share, ..PeerNeeds::of(&self.config.peer, self.config.is_relayed) };
        host.pool().take(&node, needs, context.root, |peer| self.prove(peer, context))
    }

    /// A connection that is dialled, or one that somebody else brings meanwhile; true for such a one. If that takes long, one that
    /// others use.
    async fn dial_or_find(
        &self,
        slot: &Slot,
        dialling: &mut SlotDialling,
        context: &Context,
    ) -> Result<(PeerUse, bool), Outcome> {
        let finding = async {
            let Some(host) = &self.host else { return std::future::pending().await };
            let free = host.pool().until(|| self.find(slot, context, false));
            match tokio::time::timeout(UNREACHED, free).await {
                Ok(found) => found,
                Err(_late) => host.pool().until(|| self.find(slot, context, true)).await,
            }
        };
        tokio::select! {
            dialled = self.dial(dialling, context) => Ok((dialled?, false)),
            found = finding => Ok((found, true)),
        }
    }

    /// A connection that a relay carries.
    async fn call(&self, dialling: &mut Dialling, context: &Context) -> Result<PeerUse, Outcome> {
        let Some(node) = self.node.or(context.node) else { return Err(Outcome::NotHere) };
        let hints = context.hints.borrow().clone();
        let is_it = |named: Option<NodeId>| named.or(context.node) == Some(node);
        let relays = relays(hints, is_it, |total| random() % (total + 1));
        if relays.is_empty() {
            self.shuns.store(false, Ordering::Relaxed);
            return Err(Outcome::NotHere);
        }
        let called = call_by(relays, &self.identity, node, self.host.as_ref()).await;
        let wait = dialling.dialled(Instant::now(), random());
        match called {
            Ok(connection) => self.start(connection, context),
            Err(error) => {
                self.shuns.store(false, Ordering::Relaxed);
                self.set_last_error(Some(error));
                Err(Outcome::RetryLater(wait))
            }
        }
    }

    /// Dials what is to stand before it is asked, as long as this is polled. Where they are brought somebody else does.
    pub(super) async fn open_ahead(&self, context: &Context) {
        let mut wanted = self.slots.wanted();
        while !self.slots.are_brought() {
            wanted.mark_unchanged();
            let dialling = self.slots.missing().map(|slot| self.peer(slot, context));
            join_all(dialling.collect::<Vec<_>>()).await;
            if wanted.changed().await.is_err() {
                break;
            }
        }
        std::future::pending().await
    }

    async fn dial(&self, dialling: &mut SlotDialling, context: &Context) -> Result<PeerUse, Outcome> {
        if self.config.is_relayed {
            return self.call(&mut dialling.backoff, context).await;
        }
        let Some(node) = self.node.or(context.node) else { return Err(Outcome::NotHere) };
        let hints = context.hints.borrow().clone();
        let is_it = |named: Option<NodeId>| named.or(context.node) == Some(node);
        let has_relay = is_relayed(&hints, is_it);
        let attempt = match &mut dialling.attempt {
            Some(attempt) => attempt,
            none => {
                let addresses = match self.config.only {
                    Some(only) => vec![only],
                    None => addresses(hints, is_it).await,
                };
                if addresses.is_empty() {
                    self.shuns.store(false, Ordering::Relaxed);
                    return Err(self.nowhere(context));
                }
                none.insert(self.attempt(addresses, node, has_relay))
            }
        };
        let dialled = attempt.ended().await;
        dialling.attempt = None;
        let is_missed = has_relay && dialled.as_ref().is_none_or(|dialled| dialled.connection.is_err());
        let wait = match is_missed {
            true => dialling.backoff.missed(Instant::now(), SHORT_PAUSE),
            false => dialling.backoff.dialled(Instant::now(), random()),
        };
        let Some(Dialled { connection, addresses }) = dialled else { return Err(Outcome::RetryLater(wait)) };
        match connection {
            // Its use remains to be seen, so what was in the way is not forgotten.
            Ok(connection) => {
                let is_it = |address: &SocketAddr| Some(address.ip().to_canonical()) == connection.address;
                *lock(&self.led) = addresses.into_iter().find(is_it);
                let peer = self.start(connection, context)?;
                if has_relay {
                    peer.set_silence(BESIDE_A_RELAY);
                }
                Ok(peer)
            }
            Err(error) => {
                self.shuns.store(false, Ordering::Relaxed);
                self.set_last_error(Some(explain(&error)));
                Err(Outcome::RetryLater(wait))
            }
        }
    }

    fn attempt(&self, addresses: Vec<SocketAddr>, node: NodeId, has_relay: bool) -> DialAttempt {
        let unreached = lock(&self.unreached).map_or(Duration::ZERO, |since| since.elapsed());
        let unreached = has_relay.then_some(unreached);
        DialAttempt::begin(addresses, self.identity.clone(), node, self.config.dial.clone(), unreached)
    }

    /// Starts a connection that was dialled or called. Where there is a host the peer may ask there, too.
    fn start(&self, connection: Connection, context: &Context) -> Result<PeerUse, Outcome> {
        let config = self.config.peer.clone();
        let peer = match (&self.host, self.config.is_relayed) {
            (None, _) => return Ok(PeerUse::lent(Peer::start(connection, config, None))),
            (Some(host), true) => host.start_relayed(connection, config),
            (Some(host), false) => host.start(connection, config),
        };
        // Another transfer may have been quicker.
        PeerUse::alone(&peer, context.root).ok_or(Outcome::RetryLater(PAUSE))
    }

    /// No address is known. Where a rendezvous is named it may tell one.
    fn nowhere(&self, context: &Context) -> Outcome {
        let may_be_told = context.hints.borrow().iter().any(|named| named.scheme() == hint::RENDEZVOUS);
        let (why, outcome) = match may_be_told {
            true => ("nobody who has it is known at the rendezvous", Outcome::RetryLater(LOOK_EVERY)),
            false => ("no hint tells an address that this program can dial", Outcome::NotHere),
        };
        self.set_last_error(Some(why.into()));
        outcome
    }
}

/// The addresses at which the issuer of a ticket is dialled.
pub(in crate::direct) async fn dialled_addresses(context: &Context) -> Vec<SocketAddr> {
    let hints = context.hints.borrow().clone();
    addresses(hints, |named| named.is_none() || named == context.node).await
}

/// The addresses in hints that name a node which `is_it`, or none, in the order of RFC 2782. Names are looked up; hints of
/// other plugins are left out.
async fn addresses(hints: Vec<Hint>, is_it: impl Fn(Option<NodeId>) -> bool) -> Vec<SocketAddr> {
    let named = |hint: &Hint| hint.rest().parse::<PeerAddress>().ok().filter(|_| hint.scheme() == SCHEME);
    let is_ours = |hint: &Hint| named(hint).is_some_and(|peer| is_it(peer.node));
    let ours = hints.into_iter().filter(is_ours).collect();
    let mut addresses = Vec::new();
    for hint in hint::order(ours, |total| random() % (total + 1)) {
        let Some(peer) = named(&hint) else { continue };
        match tokio::net::lookup_host(&peer.address).await {
            Ok(found) => addresses.extend(found),
            Err(error) => tracing::debug!(hint = hint.method, %error, "could not look up"),
        }
    }
    addresses
}

/// An error with what caused it.
fn explain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// A number for jitter and weighted draws; nothing secret depends on it.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
