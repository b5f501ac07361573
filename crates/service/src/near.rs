//! The cache of this machine's site, as a get sees it: it is handed the ticket, and once it can be drawn on it is asked before
//! everybody else. One that is not there, is full or says no costs a moment, and the get goes on as if there were none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use towpath_api::{Event, GetRequest};
use towpath_config::CacheAddress;
use towpath_content::{Hint, NodeId, Oid, Ticket};
use towpath_plugins::Direct;
use towpath_plugins::direct::{DirectConfig, PeerHost};
use towpath_plugins::near::{NearHolding, NearSource, Promise};
use towpath_protocol::Pace;
use towpath_store::ObjectKind;
use towpath_transfer::source::Query;
use towpath_transfer::{BoxFuture, Context, Description, FetchError, Outcome, Source};
use towpath_words as words;

use crate::getting::{GetUnderWay, NearWay, peer_config};
use crate::state::Service;
use crate::waiting::report_wait;

/// Time for a connection to a machine of the same site, and for a handshake with it.
const CONNECT: Duration = Duration::from_secs(2);
/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Longest time for which a get waits until the cache can be drawn on.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Shortest and longest time until the cache is asked again.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A ticket in the hands of a cache.
struct HandedTicket {
    direct: Arc<Direct>,
    text: Bytes,
    context: Context,
    /// Kept open for the context.
    _hints: watch::Sender<Vec<Hint>>,
}

impl Promise for HandedTicket {
    fn stands(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.direct.hand_over(self.text.clone(), &self.context).await.is_ok() })
    }
}

/// Has the site's cache bring what `request` names, if there is one that may and can; returns when it can be drawn on.
pub(crate) async fn near(
    service: &Arc<Service>,
    get: &GetUnderWay,
    request: &GetRequest,
    events: &mpsc::Sender<Event>,
) -> Option<NearWay> {
    let cache = service.config().site_cache.address.clone()?;
    let ticket = request.ticket.trim().parse::<Ticket>().ok()?;
    if !may_be_brought(request, &ticket, (&cache.node, &service.node_id()))
        || get.may_use(&ticket.oid) && service.store.is_here(&ticket.oid)
    {
        return None;
    }
    let pace = Arc::new(Pace::new(request.limit_rate));
    let handed = Arc::new(hand(service, request, &ticket, &cache, &pace));
    let asking = async {
        handed.until_drawn_on().await?;
        handed.holding(ticket.oid).await
    };
    let holding = match report_wait(asking, "the site's cache, which fetches it", events).await {
        Ok(holding) => holding,
        Err(why) => {
            tracing::info!(%why, cache = %cache.node.short(), "the site's cache does not bring it");
            return None;
        }
    };
    let (source, promise) = (Arc::clone(&handed.direct) as Arc<dyn Source>, handed as Arc<dyn Promise>);
    Some(NearWay {
        source: NearSource { node: cache.node, source, holding, promise },
        hint: cache.hint,
        pace,
    })
}

/// True if a cache may keep what is asked for, and all of it is wanted: of a part it would fetch too much.
fn may_be_brought(request: &GetRequest, ticket: &Ticket, (cache, own): (&NodeId, &NodeId)) -> bool {
    let is_whole = request.paths.is_empty() && request.filters.is_empty() && request.update.is_none();
    let is_anothers = ticket.node != *own && ticket.node != *cache && cache != own;
    is_whole && !request.list && is_anothers && ticket.enclosed.is_none() && !ticket.terms.no_swarm
}

fn hand(
    service: &Service,
    request: &GetRequest,
    ticket: &Ticket,
    cache: &CacheAddress,
    pace: &Arc<Pace>,
) -> HandedTicket {
    let mut peer = peer_config(service, request, None);
    peer.receive_pace = Arc::clone(pace);
    let mut config = DirectConfig { peer, ..DirectConfig::default() };
    (config.dial.timeouts.connect, config.dial.timeouts.handshake) = (CONNECT, CONNECT);
    let host = Arc::clone(&service.door.standing) as Arc<dyn PeerHost>;
    let direct = Direct::new(service.identity.clone(), config, Some(host)).to(cache.node);
    let (sender, hints) = watch::channel(vec![cache.hint.clone()]);
    let (node, secret) = (Some(ticket.node), Some(ticket.bound_secret()));
    let context = Context { root: ticket.oid, node, secret, hints };
    HandedTicket { direct: Arc::new(direct), text: ticket.to_string().into(), context, _hints: sender }
}

impl HandedTicket {
    /// Returns when the cache has something to draw on; the error is why it has not.
    async fn until_drawn_on(&self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let asking = self.direct.hand_over(self.text.clone(), &self.context);
            let answer = tokio::time::timeout(ANSWER, asking).await;
            let delay = match (answer, self.direct.state().trouble) {
                (Ok(Ok(())), _) => return Ok(()),
                (Ok(Err(_)), Some(trouble)) => return Err(trouble),
                (Ok(Err(Outcome::RetryLater(delay))), None) if start.elapsed() < LONGEST_WAIT => delay,
                (Ok(Err(outcome)), None) => return Err(said(outcome)),
                (Err(_), _) => return Err("it does not answer".into()),
            };
            tokio::time::sleep(delay.clamp(ASK_AGAIN.0, ASK_AGAIN.1)).await;
        }
    }

    /// What it has of the root, as it says.
    async fn holding(&self, root: Oid) -> Result<NearHolding, String> {
        let (answers, mut inbox) = mpsc::channel(4);
        let asking = self.direct.describe(Query::about(root), &self.context, answers);
        let answer = tokio::time::timeout(ANSWER, async { tokio::join!(asking, inbox.recv()) }).await;
        match answer.map_err(|_| "it does not say what it has")? {
            (_, Some(Description::Object { about, layout: Some(layout), .. }))
                if about.kind == ObjectKind::Blob && !root.is_live() =>
            {
                Ok(NearHolding::Coming { size: layout.size() })
            }
            (_, Some(Description::Object { .. })) => Ok(NearHolding::Everything),
            (Err(outcome), _) => Err(said(outcome)),
            _ => Err("it does not say what it has".into()),
        }
    }
}

/// An outcome in words.
fn said(outcome: Outcome) -> String {
    words::fetch(&FetchError::Ended(outcome)).message
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};

    use super::*;

    #[test]
    fn a_cache_is_asked_for_all_of_what_another_node_lets_be_passed_on() {
        let [sender, cache, own] = [1, 2, 3].map(|byte| NodeId([byte; 32]));
        let (oid, secret, terms) = (Oid::of(b"root"), Secret([7; 16]), Terms::default());
        let ticket = Ticket { oid, node: sender, secret, hints: Vec::new(), terms, enclosed: None };
        let kept_back = Ticket { terms: Terms { no_swarm: true, ..terms }, ..ticket.clone() };
        let whole = GetRequest::default();
        let part = GetRequest { paths: vec!["a".into()], ..GetRequest::default() };
        let update = GetRequest { update: Some(Default::default()), ..GetRequest::default() };
        for (request, ticket, nodes, may, why) in [
            (&whole, &ticket, (&cache, &own), true, "nothing is in the way"),
            (&whole, &kept_back, (&cache, &own), false, "the ticket forbids it"),
            (&part, &ticket, (&cache, &own), false, "a part"),
            (&update, &ticket, (&cache, &own), false, "what changed"),
            (&whole, &ticket, (&sender, &own), false, "the cache is the sender"),
            (&whole, &ticket, (&cache, &sender), false, "this machine is the sender"),
            (&whole, &ticket, (&cache, &cache), false, "this machine is the cache"),
        ] {
            assert_eq!(may_be_brought(request, ticket, nodes), may, "{why}");
        }
    }
}
