//! A plain get serves others while it runs: who fetches by the same ticket gets from it what has come, within what [`Lending`] allows.
//! Others hear of it from the ticket's issuer, whom it tells where it listens; and so it hears of others.
//!
//! A short get does none of this: it listens, and tells so, once it has run for a while. When it ends nothing more is served.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_api::GetRequest;
use towpath_config::Switch;
use towpath_content::Ticket;
use towpath_content::lock::lock;
use towpath_limits::lending::{Lending, LendingLook};
use towpath_transfer::progress::Progress;

use crate::state::Service;
use towpath_peer_server::get_peers::GetPeers;
use towpath_peer_server::grants::{HasCome, PassOn, PassingOn};

/// A get that is over sooner serves nobody: nothing is made for it.
const RUNS_FOR: Duration = Duration::from_secs(1);
/// Interval at which it is noted how much has come, and new connections are told where this get serves.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a get may serve others by.
#[derive(Debug)]
pub(crate) struct LendingGet {
    ticket: Ticket,
    /// How much that may be; `None` if what it gets is passed on anyway.
    lending: Option<Arc<Mutex<Lending>>>,
}

impl LendingGet {
    /// Of a get by `ticket`, if it may serve others: the request, the ticket and the configuration allow it.
    pub(crate) fn new(service: &Service, request: &GetRequest, ticket: &Ticket) -> Option<Self> {
        let is_passed_on = service.grants.passes_on(&ticket.oid);
        let is_on = is_passed_on || service.config().sharing.while_getting == Switch::On;
        let lending = || Arc::new(Mutex::new(Lending::new(request.upload_rate)));
        let lends = is_on && may_lend(request, ticket);
        lends.then(|| Self { ticket: ticket.clone(), lending: (!is_passed_on).then(lending) })
    }

    /// From now on others get what is here, until what is returned is dropped.
    pub(crate) fn begin(&self, service: &Service) -> Option<PassingOn> {
        let why = self.why(service)?;
        Some(PassingOn::begin(&service.grants, self.ticket.oid, self.ticket.bound_secret(), why))
    }

    /// The same of a tree, of whose files others get those that `has_come` names.
    pub(crate) fn coming(&self, service: &Service, has_come: HasCome) -> PassingOn {
        // What is passed on anyway is so by the right of whoever passes it on.
        let why = self.why(service).unwrap_or(PassOn::Called);
        PassingOn::coming(&service.grants, (self.ticket.oid, self.ticket.bound_secret()), why, has_come)
    }

    /// What this machine has of it from elsewhere did not come by this ticket, and is not lent: who made the ticket may know no more of
    /// it than its hash.
    fn why(&self, service: &Service) -> Option<PassOn> {
        let lending = self.lending.as_ref().filter(|_| !service.store.is_here(&self.ticket.oid))?;
        Some(PassOn::WhileGetting(Arc::clone(lending)))
    }

    /// Notes what comes, and lets others know where it can be had, until it is dropped: the issuer, and by `tell`, with
    /// thousandths that are here, whoever is met elsewhere.
    pub(crate) async fn run(
        &self,
        service: &Service,
        peers: &GetPeers,
        progress: &Progress,
        tell: impl Fn(u16, &[SocketAddr]),
    ) -> Infallible {
        let (start, mut ticks) = (Instant::now(), tokio::time::interval(LOOK_EVERY));
        let mut port = None;
        loop {
            ticks.tick().await;
            if let Some(lending) = &self.lending {
                lock(lending).look(look(service, progress), Instant::now());
            }
            if start.elapsed() < RUNS_FOR || !service.grants.passes_on(&self.ticket.oid) {
                continue;
            }
            if port.is_none() {
                let listened = service.door.listen_for_a_while(service.grants.honours_leases()).await;
                port = Some(listened.inspect_err(|error| tracing::debug!(%error, "nobody is served")).ok());
            }
            if let Some(Some(port)) = port {
                peers.tell(&self.ticket, port);
                tell(thousandths(progress), &service.door.addresses());
            }
        }
    }
}

/// How the get does. Whoever called may bring bytes as well, and what others ask is little.
fn look(service: &Service, progress: &Progress) -> LendingLook {
    let came = service.metrics.fetched.received() + service.metrics.served.received();
    LendingLook { taken: from_others(progress), came, is_late: service.door.standing.pool.has_unsent() }
}

/// Thousandths of what is wanted that are here, in steps of a twentieth: each is told to everybody who is there.
fn thousandths(progress: &Progress) -> u16 {
    let now = progress.snapshot();
    // How long a live object is shows at its end.
    let twentieths = (u128::from(now.done) * 20).checked_div(now.expected.into()).unwrap_or(0);
    u16::try_from(twentieths.min(20) * 50).unwrap_or_default()
}

/// True if a get serves others as far as it and its ticket are concerned: it is of all of something, and neither
/// its person nor the ticket's issuer forbids it.
fn may_lend(request: &GetRequest, ticket: &Ticket) -> bool {
    let is_whole = request.paths.is_empty() && request.filters.is_empty() && request.update.is_none();
    is_whole && !request.list && ticket.enclosed.is_none() && !request.no_upload && !ticket.terms.no_swarm
}

/// Bytes that came from other machines.
fn from_others(progress: &Progress) -> u64 {
    progress
        .with(|now| now.by_source.iter().filter(|(by, _)| by.node().is_some()).map(|(_, bytes)| bytes).sum())
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};
    use towpath_content::{NodeId, Oid};

    use super::*;

    const ISSUER: NodeId = NodeId([1; 32]);

    fn ticket() -> Ticket {
        let (secret, terms) = (Secret([7; 16]), Terms::default());
        Ticket { oid: Oid::of(b"root"), node: ISSUER, secret, hints: Vec::new(), terms, enclosed: None }
    }

    #[test]
    fn a_get_serves_unless_somebody_forbids_it_or_it_is_of_a_part() {
        let request = GetRequest::default();
        let live = Ticket { oid: Oid::Live([1; 32]), ..ticket() };
        let kept = Ticket { terms: Terms { no_swarm: true, expires: None }, ..ticket() };
        let ends = Ticket { terms: Terms { no_swarm: false, expires: Some(1) }, ..ticket() };
        let part = GetRequest { paths: vec!["a".into()], ..request.clone() };
        let filtered = GetRequest { filters: vec![b"- a".to_vec()], ..request.clone() };
        let rows = [
            (&request, ticket(), true, "nothing is in the way"),
            (&request, ends, true, "it holds until then"),
            (&request, kept, false, "the ticket forbids it"),
            (&request, live, true, "what came of it"),
            (&GetRequest { no_upload: true, ..request.clone() }, ticket(), false, "the person forbids it"),
            (&GetRequest { list: true, ..request.clone() }, ticket(), false, "nothing comes"),
            (
                &GetRequest { update: Some(Default::default()), ..request.clone() },
                ticket(),
                false,
                "an update",
            ),
            (&part, ticket(), false, "a part"),
            (&filtered, ticket(), false, "a part"),
        ];
        for (request, ticket, may, why) in rows {
            assert_eq!(may_lend(request, &ticket), may, "{why}");
        }
    }
}
