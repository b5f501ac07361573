//! A get whose receiver serves others by the same ticket: what has come while it runs, and all of it afterwards. A person asks for
//! that, or a daemon does so as its configuration says.

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use towpath_api::{ApiError, ErrorKind, Event, GetRequest, PutReply, StayRequest};
use towpath_config::Switch;
use towpath_content::Ticket;
use towpath_content::hint::{Hint, MAX_HINTS, PeerAddress};
use towpath_content::node_id::hex;
use towpath_protocol::service::RelayedBinding;

use crate::get;
use crate::getting::{GetUnderWay, relayed_binding};
use crate::state::{self, Service};
use crate::ticket_ends::ask_now_and_then;
use towpath_config::shares::{TicketKind, unhex};
use towpath_peer_server::ending;
use towpath_peer_server::grants::{PassOn, PassingOn};
use towpath_peer_server::withdrawals::ticket_name;

/// Delay before the issuer is asked again what a live object became, and times that it is asked.
const ASK_AGAIN: Duration = Duration::from_millis(500);
const ASKED: usize = 10;
/// Time for telling those who draw on this machine that the ticket is over.
const LINGER: Duration = Duration::from_secs(5);
/// Hints that name this node, at most.
const MOST_HINTS: usize = 4;

/// Gets what `request` names, and serves it until the future is dropped. Events: first the ticket, which names this node
/// too, then those of the get and its summary, and who fetches from here.
pub async fn get_and_stay(
    service: &Arc<Service>,
    request: GetRequest,
    stay: StayRequest,
    events: mpsc::Sender<Event>,
) -> Result<Infallible, ApiError> {
    let ticket = ticket(&request)?;
    let held = ticket.clone();
    tokio::select! {
        result = serve(service, ticket, request, stay, events) => result,
        why = service.ticket_over(&held) => {
            // Those who draw on this machine ask again, and are told.
            let start = Instant::now();
            while service.door.limits.connections() > 0 && start.elapsed() < LINGER {
                tokio::time::sleep(ending::LOOK_EVERY).await;
            }
            Err(why)
        }
    }
}

async fn serve(
    service: &Arc<Service>,
    ticket: Ticket,
    request: GetRequest,
    stay: StayRequest,
    events: mpsc::Sender<Event>,
) -> Result<Infallible, ApiError> {
    service.check_ticket(&ticket)?;
    let (oid, secret) = (ticket.oid, ticket.bound_secret());
    service.door.connections.send_pace.set(stay.limit_rate);
    service.door.listen(oid.to_string().as_bytes(), stay.listen.as_slice()).await?;
    let mut fetches = service.door.watch_fetches();
    let _passing = PassingOn::begin(&service.grants, oid, secret, PassOn::Asked);
    service.door.open();
    let reply =
        PutReply { ticket: with_hints(service, ticket).to_string(), oid: oid.to_string(), size: None };
    let _ = events.send(Event::Ticket(reply)).await;
    let mut getting = Box::pin(get::get(service, request.clone(), events.clone()));
    let summary = loop {
        tokio::select! {
            summary = &mut getting => break summary?,
            Some(fetch) = fetches.recv() => drop(events.send(fetch).await),
        }
    };
    if oid.is_live() {
        keep_binding(service, &request).await?;
    }
    let _ = events.send(Event::Summary(summary)).await;
    let telling = async {
        while let Some(fetch) = fetches.recv().await {
            let _ = events.send(fetch).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        never = telling => match never {},
        never = ask_now_and_then(|| GetUnderWay::new(service, &request)) => match never {},
    }
}

/// What a daemon got by a ticket, which it passes on as its configuration says.
pub(crate) struct DaemonPassing {
    kind: TicketKind,
    service: Arc<Service>,
    request: GetRequest,
    ticket: Ticket,
    _passing: PassingOn,
    _place: OwnedSemaphorePermit,
}

impl DaemonPassing {
    /// Begins with what is about to be fetched, if a daemon that passes on may pass that on. The longer ticket names it.
    pub(crate) fn begin(service: &Arc<Service>, request: &GetRequest) -> Option<(Self, PutReply)> {
        let is_on = service.grants.honours_leases() && service.config().sharing.pass_on == Switch::On;
        let ticket = ticket(request).ok().filter(|ticket| is_on && ticket.enclosed.is_none())?;
        let (longer, oid) = (with_hints(service, ticket.clone()).to_string(), ticket.oid.to_string());
        let reply = PutReply { ticket: longer, oid, size: None };
        Some((Self::of(service, request.clone(), ticket, TicketKind::PassedOn)?, reply))
    }

    /// The same of what a site's cache has, or of anything else that is recorded as `kind`; `None` if so much is passed on already.
    pub(crate) fn of(
        service: &Arc<Service>,
        request: GetRequest,
        ticket: Ticket,
        kind: TicketKind,
    ) -> Option<Self> {
        let _place = Arc::clone(&service.passed_on).try_acquire_owned().ok()?;
        let why = if let TicketKind::Cached = kind { PassOn::Cached } else { PassOn::Configured };
        let _passing = PassingOn::begin(&service.grants, ticket.oid, ticket.bound_secret(), why);
        Some(Self { kind, service: Arc::clone(service), request, ticket, _passing, _place })
    }

    /// Goes on with what the last daemon passed on, as far as that is here still.
    pub(crate) fn resume(service: &Arc<Service>) {
        for passing in Self::recorded(service, TicketKind::PassedOn) {
            tokio::spawn(passing.keep(true));
        }
    }

    /// What the last daemon recorded as `kind`, as far as that is here still.
    pub(crate) fn recorded(service: &Arc<Service>, kind: TicketKind) -> Vec<Self> {
        let mut all = Vec::new();
        for (ticket, binding) in service.shares.tickets(kind).iter().filter_map(recorded) {
            let content = binding.as_ref().map_or(ticket.oid, |binding| binding.content);
            if !service.store.is_here(&content) || service.check_ticket(&ticket).is_err() {
                service.shares.forget_ticket(kind, &name(&ticket));
                continue;
            }
            let (oid, text) = (ticket.oid, ticket.to_string());
            let request = GetRequest { ticket: text, ..GetRequest::default() };
            let Some(passing) = Self::of(service, request, ticket, kind) else { return all };
            binding.into_iter().for_each(|binding| service.grants.bind(&oid, binding));
            all.push(passing);
        }
        all
    }

    /// The ticket by which it is passed on.
    pub(crate) const fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Leaves the next daemon a record. False if that would be of no use: what was live is served by its issuer's word alone,
    /// which cannot be had.
    pub(crate) async fn record(&self) -> bool {
        let binding = match self.ticket.oid.is_live() {
            true => keep_binding(&self.service, &self.request).await.ok().flatten(),
            false => None,
        };
        let is_of_use = binding.is_some() || !self.ticket.oid.is_live();
        if is_of_use {
            record(self, binding.as_ref());
        }
        is_of_use
    }

    /// Passes it on until the ticket is over, once all has come. Unless it `is_recorded`, the next daemon is left a record.
    pub(crate) async fn keep(self, is_recorded: bool) {
        let service = &self.service;
        let passing = async {
            if !is_recorded {
                self.record().await;
            }
            ask_now_and_then(|| GetUnderWay::new(service, &self.request)).await
        };
        tokio::select! {
            why = service.ticket_over(&self.ticket) => {
                tracing::info!(oid = %self.ticket.oid, %why, "not passed on any more");
                service.shares.forget_ticket(self.kind, &name(&self.ticket));
            }
            never = passing => match never {},
        }
    }
}

/// Name of a ticket's record.
pub(crate) fn name(ticket: &Ticket) -> Vec<u8> {
    ticket_name(&ticket.oid, &ticket.bound_secret())
}

/// Records for the next daemon what this one passes on.
fn record(passing: &DaemonPassing, binding: Option<&RelayedBinding>) {
    let DaemonPassing { service, ticket, kind, .. } = passing;
    let word = |bytes: fn(&RelayedBinding) -> &[u8]| binding.map(|binding| hex(bytes(binding)));
    let record = json!({
        "ticket": ticket.to_string(),
        "statement": word(|binding| &binding.statement),
        "signature": word(|binding| &binding.signature),
    });
    if let Err(error) = service.shares.keep_ticket(*kind, &name(ticket), &record) {
        tracing::warn!(%error, "what is passed on can't be kept for the next start");
    }
}

fn recorded(record: &Value) -> Option<(Ticket, Option<RelayedBinding>)> {
    let ticket = Ticket::from_str(record.get("ticket")?.as_str()?).ok()?;
    let word = |name| Some(unhex(record.get(name)?.as_str()?)?.into());
    let said = word("statement").zip(word("signature"));
    let binding = said.and_then(|said| relayed_binding(&ticket.oid, &ticket.node, said));
    Some((ticket, binding))
}

/// The ticket of a request, if what it names can be passed on as a whole.
fn ticket(request: &GetRequest) -> Result<Ticket, ApiError> {
    let usage = |message: &str| ApiError::new(ErrorKind::Usage, message);
    if !request.ticket.trim().starts_with("tow:") {
        return Err(usage("only what came by a ticket is passed on").hint("'tow share' serves what is here"));
    }
    let is_part = !(request.paths.is_empty() && request.filters.is_empty());
    if is_part || request.list || request.update.is_some() {
        return Err(usage("only what is fetched whole is passed on")
            .hint("leave paths, filters, --list and --update out"));
    }
    let ticket = state::parse_ticket(&request.ticket)?;
    match ticket.terms.no_swarm {
        true => Err(ApiError::new(
            ErrorKind::Refused,
            "the ticket does not let its holders pass on what they get",
        )
        .hint("fetch without --stay")),
        false => Ok(ticket),
    }
}

/// The ticket, with this node as a further place to ask.
fn with_hints(service: &Service, mut ticket: Ticket) -> Ticket {
    let node = Some(service.node_id());
    let own = service.door.addresses().into_iter().filter_map(|address| {
        let peer = PeerAddress { node, address: address.to_string() };
        Hint::new(format!("tow://{peer}"), 0, 1).ok()
    });
    ticket.hints.extend(own.take(MOST_HINTS));
    ticket.hints.truncate(MAX_HINTS);
    ticket
}

/// Asks what a live object became: whoever asks here needs its issuer's word. It is here, so it is bound by now.
async fn keep_binding(
    service: &Arc<Service>,
    request: &GetRequest,
) -> Result<Option<RelayedBinding>, ApiError> {
    let get = GetUnderWay::new(service, request)?;
    for _ in 0..ASKED {
        if let Some(binding) = get.binding().await {
            service.grants.bind(&get.oid, binding.clone());
            return Ok(Some(binding));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    tracing::warn!("the sender is gone and did not sign what the object became: it can't be passed on");
    Ok(None)
}
