//! `tow done`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use towpath_api::{Api, ApiError, Held, ListRequest, Object, TicketTerms};
use towpath_content::Ticket;
use towpath_standalone::served_tickets::{self, ServedTicket, TicketServer};

use super::{Context, held_names, ticket_words};

/// Said while it waits.
const WAITS: &str =
    "tow: taken back; those who hold the ticket are told when they ask, within ten minutes and a half";
/// Said when it is interrupted.
const HEAR_NOTHING: &str =
    "it is taken back; who serves it and did not ask yet goes on until a share runs there again";

/// Take back what was put or shared: its ticket ends
///
/// A code is one that 'tow share --code' or 'tow put --code' showed here, also if it is spent.
#[derive(Debug, Args)]
pub struct DoneCommand {
    /// OIDs (see `tow ls`) or their first digits, 8 at least; paths that were put, or are shared now; tickets; or codes
    #[arg(value_name = "OID|PATH|TICKET|CODE", required = true)]
    names: Vec<OsString>,
    /// Stay and tell those who serve what a 'tow share' that ended shared, when they ask at its address: ten minutes and a half
    #[arg(long)]
    wait: bool,
}

impl DoneCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let (api, mut taken_back) = (context.api().await?, Vec::new());
        let put = api.list(ListRequest::default()).await?.into_iter();
        let put = put.filter_map(|object| object.ticket?.parse::<Ticket>().ok());
        let shared = served_tickets::all(&context.home).into_iter().map(|served| served.ticket);
        let running: Vec<Ticket> = put.chain(shared).collect();
        for name in ticket_words::joined(self.names) {
            let known = known(context, &*api, &name).await?;
            api.done(known.clone()).await?;
            served_tickets::forget_code(&context.home, &name.to_string_lossy());
            taken_back.extend(known.trim().parse::<Ticket>().ok());
        }
        drop(api);
        // What is served still tells them itself.
        taken_back.retain(|ticket| !running.iter().any(|served| served.secret == ticket.secret));
        match self.wait && !taken_back.is_empty() {
            true => tell_holders(context, &taken_back).await,
            false => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Tells those who hold tickets of shares that ended.
async fn tell_holders(context: &Context, tickets: &[Ticket]) -> Result<ExitCode, ApiError> {
    let (mut interrupts, service) = (context.signals.interrupts(), context.in_process()?);
    context.output.print(WAITS);
    tokio::select! {
        () = interrupts.next() => Ok(context.output.interrupted(HEAR_NOTHING)),
        told = service.0.tell_holders(tickets) => told.map(|()| ExitCode::SUCCESS),
    }
}

/// The ticket or OID that `name` stands for.
async fn known(context: &Context, api: &dyn Api, name: &OsStr) -> Result<String, ApiError> {
    let text = name.to_string_lossy();
    if let Some(ticket) = served_tickets::of_code(&context.home, &text) {
        return Ok(ticket);
    }
    let shares = served_tickets::all(&context.home);
    let shares: Vec<Object> = shares.iter().filter_map(shared).collect();
    let by_oid = shares.iter().find(|share| share.content.as_deref() == Some(&*text));
    match by_oid {
        Some(share) => Ok(share.oid.clone()),
        None if held_names::is_whole(name) => Ok(text.into_owned()),
        None => {
            let held = [api.list(ListRequest::default()).await?, shares].concat();
            held_names::find(name, &super::working_directory()?, &held)
        }
    }
}

/// What a command shares, as if it were put: it is taken back by its ticket.
fn shared(served: &ServedTicket) -> Option<Object> {
    let terms = TicketTerms { expires: served.ticket.terms.expires, no_swarm: served.ticket.terms.no_swarm };
    (served.server == TicketServer::Share).then(|| Object {
        oid: served.ticket.to_string(),
        content: Some(served.ticket.oid.to_string()),
        kind: String::new(),
        size: None,
        path: served.path.clone(),
        ticket: Some(served.ticket.to_string()),
        terms,
        created: served.since,
        held: Held::Session,
    })
}
