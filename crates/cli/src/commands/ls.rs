//! `tow ls`

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use towpath_api::{ApiError, Held, ListRequest, Object, TicketTerms};
use towpath_content::Ticket;
use towpath_standalone::served_tickets::{self, FetchOutcome, Receiver, ServedTicket, TicketServer};
use towpath_words as words;

use super::Context;
use crate::{listing, receivers};

/// Receivers that are named of each ticket, the last ones.
const NAMED: usize = 8;

/// List what is put and not done, what 'tow share' serves now, and what is passed on: how long each ticket holds, and who fetched
///
/// Who fetched is told by node and address, with the last time (UTC) and whether it has the whole, of the last few thousand
/// fetches from this machine.
#[derive(Debug, Args)]
pub struct Ls {
    /// List what is kept as cache, too: it stays until its room is needed
    #[arg(long)]
    cached: bool,
}

/// A line of `--json`: of what is put, or of what is served else.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ListedLine<'a> {
    Object {
        #[serde(flatten)]
        object: &'a Object,
        fetched: Vec<ToldReceiver>,
    },
    Served {
        oid: String,
        held: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<&'a str>,
        ticket: String,
        #[serde(flatten)]
        terms: TicketTerms,
        created: u64,
        fetched: Vec<ToldReceiver>,
    },
}

/// A node that fetched.
#[derive(Debug, Serialize)]
struct ToldReceiver {
    node: String,
    address: String,
    last: u64,
    outcome: &'static str,
    bytes: u64,
    times: u64,
}

impl Ls {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let fetched = served_tickets::receivers(&context.home);
        for object in context.api().await?.list(ListRequest { cached: self.cached }).await? {
            let ticket = object.ticket.as_ref().and_then(|ticket| ticket.parse().ok());
            let receivers = by_ticket(&fetched, &object.oid, ticket.as_ref());
            if context.output.is_json() {
                context.output.object(&ListedLine::Object { object: &object, fetched: told(&receivers) });
                continue;
            }
            context.output.line(&object_line(&object));
            show(context, &receivers);
        }
        for served in served_tickets::all(&context.home) {
            show_served(context, &served, &fetched);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn object_line(object: &Object) -> String {
    let size = object.size.map_or_else(|| "?".into(), |size| HumanBytes(size).to_string());
    let name = object.content.as_deref().unwrap_or(&object.oid);
    let nowhere = match (object.held, &*object.kind) {
        (Held::Cached, _) => "(cached)",
        (_, "tree") => "(a tree of several paths, or filtered)",
        _ => "(stream)",
    };
    let path = object.path.as_deref().unwrap_or(nowhere);
    let life =
        object.ticket.as_ref().map(|_| format!("  ({})", listing::life(object.terms))).unwrap_or_default();
    format!("{name}  {}  {size:>10}  {path}{life}", object.kind)
}

fn show_served(context: &Context, served: &ServedTicket, fetched: &BTreeMap<String, Vec<Receiver>>) {
    let receivers = by_ticket(fetched, &served.ticket.oid.to_string(), Some(&served.ticket));
    if context.output.is_json() {
        return context.output.object(&ListedLine::Served {
            oid: served.ticket.oid.to_string(),
            held: held(served),
            path: served.path.as_deref(),
            ticket: served.ticket.to_string(),
            terms: terms(served),
            created: served.since,
            fetched: told(&receivers),
        });
    }
    context.output.line(&served_line(served));
    show(context, &receivers);
}

/// Who fetched an object by this ticket. Of some fetches the ticket is not known: they are told with each.
fn by_ticket<'a>(
    fetched: &'a BTreeMap<String, Vec<Receiver>>,
    oid: &str,
    ticket: Option<&Ticket>,
) -> Vec<&'a Receiver> {
    let mark = ticket.map(|ticket| ticket.bound_secret().mark());
    let is_its =
        |receiver: &&Receiver| mark.is_none() || receiver.ticket.is_none() || receiver.ticket == mark;
    fetched.get(oid).into_iter().flatten().filter(is_its).collect()
}

const fn held(served: &ServedTicket) -> &'static str {
    match served.server {
        TicketServer::Share => "share",
        TicketServer::Stay | TicketServer::PassedOn => "passed_on",
    }
}

fn terms(served: &ServedTicket) -> TicketTerms {
    TicketTerms { expires: served.ticket.terms.expires, no_swarm: served.ticket.terms.no_swarm }
}

fn served_line(served: &ServedTicket) -> String {
    let how = match served.server {
        TicketServer::Share => "share".to_owned(),
        TicketServer::Stay | TicketServer::PassedOn => {
            format!("passed on of peer {}", served.ticket.node.short())
        }
    };
    let path = served.path.as_deref().unwrap_or("(by the daemon)");
    format!("{}  {how}  {path}  ({})", served.ticket.oid, listing::life(terms(served)))
}

fn told(receivers: &[&Receiver]) -> Vec<ToldReceiver> {
    let told = |receiver: &&Receiver| ToldReceiver {
        node: receiver.node.to_string(),
        address: receiver.address.clone(),
        last: receiver.at,
        outcome: receiver.outcome.name(),
        bytes: receiver.bytes,
        times: receiver.times,
    };
    receivers.iter().map(told).collect()
}

fn show(context: &Context, receivers: &[&Receiver]) {
    let mut newest = receivers.to_vec();
    newest.sort_by_key(|receiver| std::cmp::Reverse(receiver.at));
    newest.iter().take(NAMED).for_each(|receiver| context.output.line(&receiver_line(receiver)));
    if newest.len() > NAMED {
        context.output.line(&format!("    and {} before", newest.len() - NAMED));
    }
}

fn receiver_line(receiver: &Receiver) -> String {
    let what = match receiver.outcome {
        FetchOutcome::Whole => "has all of it",
        FetchOutcome::Part => "has what it wanted, a part or no content",
        FetchOutcome::Failed => "failed",
        FetchOutcome::BrokenOff => "broke off",
    };
    let (node, bytes) = (receiver.node.short(), HumanBytes(receiver.bytes));
    let time = words::time(receiver.at).unwrap_or_default();
    let times = if receiver.times > 1 { format!(", {} times", receiver.times) } else { String::new() };
    let who = receivers::receiver(&receiver.address, &node.to_string());
    format!("    {time}  {who} {what}: {bytes} sent{times}")
}
