//! Tickets that this home serves beside what is put: those of commands that run, and those that the daemon passes on. Who fetched by a
//! ticket, and which ticket a short code was of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use towpath_codes::Code;
use towpath_config::Home;
use towpath_config::fetch_log::FetchLog;
use towpath_config::running_tickets::{RunningTickets, TicketRecord};
use towpath_config::shares::{Shares, TicketKind};
use towpath_content::Ticket;
use towpath_files::display_name;

pub use towpath_config::fetch_log::{FetchOutcome, Receiver};
pub use towpath_config::running_tickets::RunningTicket;

/// Who serves a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketServer {
    /// A `tow share` that runs.
    Share,
    /// A `tow get --stay` that runs.
    Stay,
    /// The daemon, which passes on what it got.
    PassedOn,
}

/// A ticket that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedTicket {
    /// Who serves it.
    pub server: TicketServer,
    /// The ticket.
    pub ticket: Ticket,
    /// What is served: paths, made printable. The daemon knows none.
    pub path: Option<String>,
    /// Beginning, in seconds since 1970; 0 if nobody knows.
    pub since: u64,
}

/// Records that this process serves `ticket`, until the record is dropped. Where that can't be written it is not listed.
pub fn begin(home: &Home, ticket: &str, paths: &[PathBuf], is_passed_on: bool) -> Option<RunningTicket> {
    let shown = paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ");
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let record = TicketRecord { ticket: ticket.to_owned(), path: shown, since, is_passed_on };
    let begun = RunningTickets::new(home.state()).begin(&record);
    begun.inspect_err(|error| tracing::warn!(%error, "the ticket can't be listed by 'tow ls'")).ok()
}

fn shown(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    display_name(path.as_os_str().as_encoded_bytes())
}

/// All of them: first those of commands, by age.
pub fn all(home: &Home) -> Vec<ServedTicket> {
    let running = RunningTickets::new(home.state()).all().into_iter().filter_map(|record| {
        let server = if record.is_passed_on { TicketServer::Stay } else { TicketServer::Share };
        let ticket = record.ticket.parse().ok()?;
        Some(ServedTicket { server, ticket, path: Some(record.path), since: record.since })
    });
    let passed_on =
        Shares::new(home.shares()).tickets(TicketKind::PassedOn).into_iter().filter_map(|record| {
            let ticket = record.get("ticket")?.as_str()?.parse().ok()?;
            Some(ServedTicket { server: TicketServer::PassedOn, ticket, path: None, since: 0 })
        });
    running.chain(passed_on).collect()
}

/// Who fetched from this home, by object.
pub fn receivers(home: &Home) -> BTreeMap<String, Vec<Receiver>> {
    FetchLog::new(home.state()).read()
}

/// Records that `ticket` was shown as the code `text`.
pub fn note_code(home: &Home, text: &str, ticket: &str) {
    let Ok(code) = text.parse::<Code>() else { return };
    let noted =
        Shares::new(home.shares()).keep_ticket(TicketKind::Coded, &name(&code), &json!({ "ticket": ticket }));
    if let Err(error) = noted {
        tracing::warn!(%error, "'tow done' will not know the code");
    }
}

/// The ticket that this home showed as the code `text`.
pub fn of_code(home: &Home, text: &str) -> Option<String> {
    let record =
        Shares::new(home.shares()).ticket_as(TicketKind::Coded, &name(&text.trim().parse().ok()?))?;
    Some(record.get("ticket")?.as_str()?.to_owned())
}

/// Forgets it.
pub fn forget_code(home: &Home, text: &str) {
    if let Ok(code) = text.trim().parse() {
        Shares::new(home.shares()).forget_ticket(TicketKind::Coded, &name(&code));
    }
}

fn name(code: &Code) -> Vec<u8> {
    code.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};
    use towpath_content::{NodeId, Oid};

    use super::*;

    fn ticket() -> String {
        let (oid, node, terms) = (Oid::of(b"x"), NodeId([1; 32]), Terms::default());
        Ticket { oid, node, secret: Secret([2; 16]), hints: Vec::new(), terms, enclosed: None }.to_string()
    }

    #[test]
    fn what_is_served_is_told_with_who_serves_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::under(folder.path());
        let held = begin(&home, &ticket(), &["/nowhere/a".into(), "/nowhere/b".into()], false).unwrap();
        let shares = Shares::new(home.shares());
        shares.keep_ticket(TicketKind::PassedOn, b"x", &json!({ "ticket": ticket() })).unwrap();
        shares.keep_ticket(TicketKind::PassedOn, b"y", &json!({ "ticket": "nonsense" })).unwrap();
        let all_now =
            || all(&home).into_iter().map(|served| (served.server, served.path)).collect::<Vec<_>>();
        let (share, passed_on) = (TicketServer::Share, TicketServer::PassedOn);
        assert_eq!(all_now(), [(share, Some("/nowhere/a, /nowhere/b".into())), (passed_on, None)]);
        drop(held);
        assert_eq!(all_now(), [(passed_on, None)]);
    }

    #[test]
    fn a_code_leads_to_its_ticket_however_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::under(folder.path());
        let code = Code::random(7, 2, &mut towpath_codes::Entropy::from_seed(&[1; 32])).to_string();
        assert_eq!(of_code(&home, &code), None);
        note_code(&home, &code, "tow:x");
        assert_eq!(of_code(&home, &code.to_uppercase().replace('-', " ")).as_deref(), Some("tow:x"));
        assert_eq!(of_code(&home, "7-otter"), None);
        forget_code(&home, &code);
        assert_eq!(of_code(&home, &code), None);
    }
}
