//! How tickets end: those that have expired, of others and of this service, and those that were taken back.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use towpath_api::{ApiError, ErrorKind, TicketTerms};
use towpath_content::Ticket;
use towpath_content::hint::PeerAddress;
use towpath_content::ticket::Terms;
use towpath_plugins::direct::SCHEME;
use towpath_store::{Leases, StoreError};
use towpath_words as words;

use crate::getting::GetUnderWay;
use crate::state::Service;
use towpath_peer_server::fresh::now;

/// Longest time until it is looked whether a lease has ended: the clock may be set.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Shortest and longest time until a holder asks again whether its ticket was taken back.
const ASK_AT_FIRST: Duration = Duration::from_secs(5);
const ASK_AT_LAST: Duration = Duration::from_secs(600);
/// Time after which every holder that can has asked again.
pub(crate) const ALL_ASKED: Duration = ASK_AT_LAST.saturating_add(ANSWER);
/// Longest time for which an answer is waited for.
const ANSWER: Duration = Duration::from_secs(30);

/// Delay before a holder asks for the next time, after it asked so often.
fn next_ask(asked: u32) -> Duration {
    ASK_AT_FIRST.saturating_mul(1 << asked.min(16)).min(ASK_AT_LAST)
}

/// The terms that a request names, if they have not ended yet.
pub fn terms(told: &TicketTerms) -> Result<Terms, ApiError> {
    let terms = Terms { expires: told.expires, no_swarm: told.no_swarm };
    match terms.is_expired(now()) {
        true => Err(ApiError::new(ErrorKind::Usage, "the ticket would have expired already")
            .hint("name a time to come; this machine's clock counts")),
        false => Ok(terms),
    }
}

/// Terms as the API tells them.
pub(crate) const fn told_terms(terms: Terms) -> TicketTerms {
    TicketTerms { expires: terms.expires, no_swarm: terms.no_swarm }
}

impl Service {
    /// Refuses a ticket that is over, as far as this machine knows.
    pub(crate) fn check_ticket(&self, ticket: &Ticket) -> Result<(), ApiError> {
        match ticket.terms.expires {
            Some(end) if ticket.terms.is_expired(now()) => Err(words::ticket_expired(end)),
            _ if self.withdrawals.is_withdrawn(&ticket.oid, &ticket.bound_secret()) => {
                Err(words::ticket_withdrawn())
            }
            _ => Ok(()),
        }
    }

    /// Completes with the reason when the ticket is over: when it expires, or somebody tells that it was taken back.
    pub(crate) async fn ticket_over(&self, ticket: &Ticket) -> ApiError {
        let held = self.withdrawals.hold(ticket);
        let end = ticket.terms.expires;
        tokio::select! {
            () = held.withdrawn() => words::ticket_withdrawn(),
            () = expiry(end) => words::ticket_expired(end.unwrap_or(0)),
        }
    }

    /// Tells those who hold tickets of shares that ended, and were taken back, when they ask at the addresses that these name. Ends
    /// when all who can have asked.
    pub async fn tell_holders(&self, tickets: &[Ticket]) -> Result<(), ApiError> {
        let mut addresses: Vec<SocketAddr> = tickets.iter().flat_map(own_addresses).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return Ok(());
        }
        self.door.listen_again(&addresses).await?;
        self.door.open();
        tokio::time::sleep(ALL_ASKED).await;
        Ok(())
    }

    /// Gives back the leases whose tickets have expired: what they held may be removed.
    pub fn end_expired(&self) -> Result<(), StoreError> {
        let time = now();
        for lease in self.store.leases()? {
            if lease.secret.terms.is_expired(time) {
                self.store.done(&lease.oid)?;
                tracing::info!(oid = %lease.oid, "a lease ended: its ticket has expired");
            }
        }
        Ok(())
    }

    /// Gives them back as they expire. Never ends.
    pub async fn keep_ending(self: Arc<Self>) {
        loop {
            let service = Arc::clone(&self);
            let ended = tokio::task::spawn_blocking(move || {
                service.end_expired()?;
                let ends = service.store.leases()?.into_iter().filter_map(|lease| lease.secret.terms.expires);
                Ok::<_, StoreError>(ends.min())
            });
            let next = match ended.await {
                Ok(Ok(next)) => next,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "leases of expired tickets could not be given back");
                    None
                }
                Err(_) => return,
            };
            let wait = next.map_or(LOOK_EVERY, |end| Duration::from_secs(end.saturating_sub(now())));
            tokio::select! {
                () = tokio::time::sleep(wait.clamp(Duration::from_millis(100), LOOK_EVERY)) => {}
                () = self.leased.notified() => {}
            }
        }
    }
}

/// Where the ticket's issuer listened.
fn own_addresses(ticket: &Ticket) -> Vec<SocketAddr> {
    let places = ticket.hints.iter().filter(|hint| hint.scheme() == SCHEME);
    let places = places.filter_map(|hint| hint.rest().parse::<PeerAddress>().ok());
    places.filter(|place| place.node.is_none()).filter_map(|place| place.address.parse().ok()).collect()
}

/// Completes once it is `end`, in seconds since 1970; never without one.
async fn expiry(end: Option<u64>) {
    let Some(end) = end else { return std::future::pending().await };
    loop {
        match end.saturating_sub(now()) {
            0 => return,
            // The clock may be set meanwhile.
            seconds => tokio::time::sleep(Duration::from_secs(seconds).min(LOOK_EVERY)).await,
        }
    }
}

/// Asks the ticket's issuer, or who else its hints name, now and then what the ticket names: whoever knows that it was taken back
/// says so. Never ends; [`Service::ticket_over`] does.
pub(crate) async fn ask_now_and_then(get: impl Fn() -> Result<GetUnderWay, ApiError>) -> Infallible {
    let mut asked = 0;
    loop {
        tokio::time::sleep(next_ask(asked)).await;
        asked = asked.saturating_add(1);
        // What comes of it does not matter here.
        if let Ok(get) = get() {
            let _ = tokio::time::timeout(ANSWER, get.ask_others(false)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::Secret;
    use towpath_content::{Hint, NodeId, Oid};

    use super::*;

    #[test]
    fn holders_are_told_where_the_issuer_listened_and_nowhere_else() {
        let (oid, node, secret) = (Oid::of(b"x"), NodeId([1; 32]), Secret([2; 16]));
        let other = format!("tow://{node}@192.0.2.9:7000");
        let methods =
            ["tow://192.0.2.1:7000", "tow://[2001:db8::1]:7000", "tow://name:1", "https://a/", &other];
        let hints = methods.iter().map(|method| Hint::new(*method, 0, 1).unwrap()).collect();
        let ticket = Ticket { oid, node, secret, hints, terms: Terms::default(), enclosed: None };
        let told: Vec<String> = own_addresses(&ticket).iter().map(SocketAddr::to_string).collect();
        assert_eq!(told, ["192.0.2.1:7000", "[2001:db8::1]:7000"]);
    }

    #[test]
    fn holders_ask_soon_and_then_ever_more_seldom() {
        let table = [(0, 5), (1, 10), (2, 20), (6, 320), (7, 600), (8, 600), (u32::MAX, 600)];
        for (asked, seconds) in table {
            assert_eq!(next_ask(asked), Duration::from_secs(seconds), "after {asked}");
        }
    }
}
