//! `tow done`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use towpath_api::{Api, ApiError, Held, ListRequest, Object, TicketTerms};
use towpath_standalone::served_tickets::{self, ServedTicket, TicketServer};

use super::{Context, held_names, ticket_words};

/// Take back what was put or shared: its ticket ends
///
/// A code is one that 'tow share --code' or 'tow put --code' showed here, also if it is spent.
#[derive(Debug, Args)]
pub struct DoneCommand {
    /// OIDs (see `tow ls`) or their first digits, 8 at least; paths that were put, or are shared now; tickets; or codes
    #[arg(value_name = "OID|PATH|TICKET|CODE", required = true)]
    names: Vec<OsString>,
}

impl DoneCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let api = context.api().await?;
        for name in ticket_words::joined(self.names) {
            api.done(known(context, &*api, &name).await?).await?;
            served_tickets::forget_code(&context.home, &name.to_string_lossy());
        }
        Ok(ExitCode::SUCCESS)
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
