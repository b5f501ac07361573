//! `tow share`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio::sync::mpsc;
use towpath_api::{Api, ApiError, Event, ShareRequest};
use towpath_standalone::served_tickets;
use towpath_words as words;

use super::fetch_flags::FetchFlags;
use super::filter_rules::FilterFlags;
use super::metadata_flags::MetadataFlags;
use super::short_code::{CodeFlags, WaitingCode};
use super::ticket_flags::TicketFlags;
use super::{Context, parse_address, parse_rate};
use crate::output::Output;

/// Events on their way to the screen.
const EVENTS: usize = 16;
/// Said when it is interrupted.
const GOES_ON: &str = "the same command goes on under the same ticket, as long as nothing changed";

/// Serve files or directories until interrupted; their one ticket is a line on standard output
///
/// Nothing is copied. The ticket comes at once, also while a large file or a tree is still
/// being read; a receiver follows. The same command gives the same ticket again as long as the
/// content is the same, so that an interrupted transfer can go on.
#[derive(Debug, Args)]
pub struct ShareCommand {
    /// Files or directories to serve; several are one tree, each under its last name
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// What receivers call it [default: its own name; shared, of several]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    metadata: MetadataFlags<true>,
    #[command(flatten)]
    filters: FilterFlags<true>,
    #[command(flatten)]
    ticket: TicketFlags,
    #[command(flatten)]
    fetches: FetchFlags,
    #[command(flatten)]
    code: CodeFlags,
    /// URL of a web server that holds it, too; the ticket names it, and receivers draw on both. May be given more than
    /// once: of a file, of a folder (with / at its end) in which a tree's files lie by their paths, or with {oid} where an
    /// object's id in hexadecimal digits belongs
    #[arg(long, value_name = "URL", conflicts_with_all = ["once", "max_fetches"])]
    mirror: Vec<String>,
    /// Address to listen on, as in 192.0.2.1:7000 [default: all addresses, the port
    /// of last time]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Send at most this many bytes per second, as in 500K or 10M
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "0", hide_default_value = true)]
    limit_rate: u64,
}

impl ShareCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let mut interrupts = context.signals.interrupts();
        let service = context.in_process()?;
        let (max_fetches, served_until) = (self.fetches.most(), self.fetches.served_until());
        let (terms, metadata) = (self.fetches.bind(self.ticket.terms()), self.metadata.told());
        let Self { paths, name, filters: FilterFlags { lines: filters }, mirror: mirrors, .. } = self;
        let Self { listen, limit_rate, .. } = self;
        let request =
            ShareRequest { paths, filters, name, metadata, terms, max_fetches, mirrors, listen, limit_rate };
        let (shared, mut listed) = (request.paths.clone(), None);
        let (events, mut inbox) = mpsc::channel(EVENTS);
        let mut sharing = service.share(request, events);
        let (mut is_read, mut left_out, mut code) = (false, false, None);
        let code = loop {
            let event = tokio::select! {
                () = interrupts.next() => break context.output.interrupted(GOES_ON),
                spent = &mut sharing => {
                    spent?;
                    std::iter::from_fn(|| inbox.try_recv().ok()).for_each(|event| context.output.event(&event));
                    break self.fetches.told_spent(&context.output);
                }
                handed = attend(&mut code, &context.output) => {
                    handed?;
                    continue;
                }
                Some(event) = inbox.recv() => event,
            };
            match event {
                Event::Ticket(reply) => {
                    listed = served_tickets::begin(&context.home, &reply.ticket, &shared, false);
                    code = self.code.hand_over(context, &reply.ticket, &served_until)?;
                    if code.is_none() {
                        context.output.ticket(&reply);
                        self.code.draw(&reply.ticket, &context.output);
                        let until = format!("tow: serving until {served_until}; fetch with: tow get TICKET");
                        context.output.print(&until);
                    }
                }
                Event::Summary(_) => is_read = true,
                event => {
                    // What was taken back is served to nobody, though it runs on for those who are to be told.
                    if matches!(&event, Event::Waiting { what, .. } if what == words::WAITS_FOR_HOLDERS) {
                        listed = None;
                    }
                    left_out |= matches!(event, Event::FileFailed { .. });
                    context.output.event(&event);
                }
            }
        };
        drop(listed);
        Ok(if left_out && is_read { ExitCode::from(crate::output::PARTLY) } else { code })
    }
}

/// Attends to the code, if there is one.
async fn attend(code: &mut Option<WaitingCode>, output: &Output) -> Result<(), ApiError> {
    match code {
        Some(code) => code.attend(output).await,
        None => std::future::pending().await,
    }
}
