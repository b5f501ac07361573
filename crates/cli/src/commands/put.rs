//! `tow put`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::sync::mpsc;
use towpath_api::{Api, ApiError, Client, ErrorKind, Event, OpenPutRequest, PutReply, PutRequest, Summary};
use towpath_service::{InProcess, display_name};

use super::filter_rules::FilterFlags;
use super::metadata_flags::MetadataFlags;
use super::short_code::CodeFlags;
use super::ticket_flags::TicketFlags;
use super::{Context, parse_address};
use crate::interrupts::Interrupts;
use crate::output::PARTLY;

/// The name under which a stream without a daemon gets its port.
const STREAM_PORT: &[u8] = b"stream";
/// End of what a daemon serves, in words.
const UNTIL_DONE: &str = "'tow done'";

/// Hand files, directories or standard input to the service; prints a ticket for each
///
/// They are pinned until `tow done`. With a daemon running they can be fetched at once and from
/// then on; the command ends when all is read, with 3 if something was left out. With --code it waits until somebody came with
/// the code. Without one they can be fetched when it is started, and `tow put -` serves what it
/// reads until interrupted.
#[derive(Debug, Args)]
pub struct PutCommand {
    /// Files or directories; `-` for standard input, whose ticket comes before its first byte
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// One ticket for all paths: a tree that has each under its last name
    #[arg(long)]
    together: bool,
    /// What receivers call it, with a single ticket [default: its own name; shared, of several]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    metadata: MetadataFlags<true>,
    #[command(flatten)]
    filters: FilterFlags<true>,
    #[command(flatten)]
    ticket: TicketFlags,
    #[command(flatten)]
    code: CodeFlags,
    /// Address to serve on when no daemon runs, as in 192.0.2.1:7000 [default: all addresses, the
    /// port of last time]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Option<SocketAddr>,
}

impl PutCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        if self.paths.iter().any(|path| path.as_os_str() == "-") {
            self.check_stream()?;
            return self.stream(context).await;
        }
        if self.name.is_some() && self.paths.len() > 1 && !self.together {
            return Err(ApiError::new(
                ErrorKind::Usage,
                "--name is for one ticket: add --together, or name one path",
            ));
        }
        let daemon = context.daemon().await;
        if self.code.is_on() {
            return self.by_code(context, daemon.as_ref()).await;
        }
        let mut interrupts = context.signals.interrupts();
        let work = self.all(context, daemon.as_ref());
        let failed = tokio::select! {
            failed = work => failed?,
            () = interrupts.next() => {
                let what = match daemon {
                    Some(_) => "the daemon goes on with what it has given a ticket for",
                    None => "'tow daemon' goes on with what is in 'tow ls'",
                };
                return Ok(context.output.interrupted(what));
            }
        };
        context.output.finish();
        if daemon.is_none() {
            context.output.print("tow: no daemon runs; start 'tow daemon' so that others can fetch this");
        }
        Ok(status(failed))
    }

    /// What is for files and directories alone is not for standard input.
    fn check_stream(&self) -> Result<(), ApiError> {
        let usage = |message: &str| Err(ApiError::new(ErrorKind::Usage, message));
        if self.paths.len() > 1 {
            return usage("'-' must be the only thing to put");
        }
        if self.code.is_on() {
            return usage(
                "a code is for files and directories, not for '-'; print the ticket, without --code",
            );
        }
        if self.together || !self.filters.lines.is_empty() {
            return usage("--together and filters are for files and directories, not for '-'");
        }
        Ok(())
    }

    /// Puts one after the other; returns how much of it was left out.
    async fn all(&self, context: &Context, daemon: Option<&Client>) -> Result<u64, ApiError> {
        let mut failed = 0;
        let mut done = 0;
        let together = if self.together { self.paths.len() } else { 1 };
        let mut tickets = self.paths.chunks(together).peekable();
        while let Some(paths) = tickets.next() {
            let put = match daemon {
                Some(client) => {
                    self.hand_over(context, client, paths, |reply| self.show(context, reply)).await
                }
                None => self.record(context, paths).await,
            };
            match put {
                Ok(left_out) => (done, failed) = (done + 1, failed + left_out),
                // Alone it is the end, as is the last one if none before it could be put.
                Err(error) if done == 0 && tickets.peek().is_none() => return Err(error),
                Err(error) => {
                    failed += 1;
                    not_put(context, &paths[0], &error);
                }
            }
        }
        Ok(failed)
    }

    async fn stream(self, context: &Context) -> Result<ExitCode, ApiError> {
        let mut interrupts = context.signals.interrupts();
        let (ticket, mut tickets) = mpsc::channel(1);
        let (output, code) = (Arc::clone(&context.output), self.code);
        let showing = tokio::spawn(async move {
            if let Some(reply) = tickets.recv().await {
                output.ticket(&reply);
                code.draw(&reply.ticket, &output);
            }
        });
        let input = Box::new(tokio::io::stdin());
        let terms = self.ticket.terms();
        let request = OpenPutRequest {
            name: self.name.clone(),
            expires: terms.expires,
            no_swarm: terms.no_swarm,
            ..OpenPutRequest::default()
        };
        if let Some(client) = context.daemon().await {
            let putting = client.put_stream(request, input, ticket);
            let put = tokio::select! {
                put = putting => put?,
                () = interrupts.next() => return Ok(context.output.interrupted("what was read so far is dropped")),
            };
            let _ = showing.await;
            context.output.print(&format!("tow: put {}", put.oid));
            return Ok(ExitCode::SUCCESS);
        }
        let service = context.in_process()?;
        let door = service.0.door();
        door.listen(STREAM_PORT, self.listen.as_slice()).await?;
        door.open();
        self.serve_stream(context, service, (request, input), ticket, interrupts).await
    }

    async fn serve_stream(
        &self,
        context: &Context,
        service: InProcess,
        (request, input): (OpenPutRequest, towpath_api::Input<'static>),
        ticket: mpsc::Sender<PutReply>,
        mut interrupts: Interrupts,
    ) -> Result<ExitCode, ApiError> {
        let door = service.0.door();
        let (mut fetches, output) = (door.watch_fetches(), Arc::clone(&context.output));
        let showing = tokio::spawn(async move {
            while let Some(fetch) = fetches.recv().await {
                output.event(&fetch);
            }
        });
        let put = tokio::select! {
            put = service.put_stream(request, input, ticket) => Some(put),
            () = interrupts.next() => None,
        };
        let Some(Ok(put)) = put else {
            // It was given up: whoever follows it gets that event first.
            tokio::select! {
                () = door.take_leave() => {}
                () = interrupts.next() => {}
            }
            showing.abort();
            put.transpose()?;
            return Ok(context.output.interrupted("what was read so far is dropped"));
        };
        context.output.print(&format!("tow: all is read ({}); serving until interrupted", put.oid));
        interrupts.next().await;
        showing.abort();
        Ok(context.output.interrupted("'tow daemon' serves it from now on, until 'tow done'"))
    }
}

impl PutCommand {
    /// The daemon reads it, and serves it at once.
    async fn hand_over(
        &self,
        context: &Context,
        client: &Client,
        paths: &[PathBuf],
        given: impl Fn(&PutReply),
    ) -> Result<u64, ApiError> {
        let request = self.request(paths.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?);
        let (summary, _) = put_to_end(context, client, request, given).await?;
        Ok(summary.failed)
    }

    /// The daemon serves it. The ticket is handed over by a code, as long as this command runs.
    async fn by_code(&self, context: &Context, daemon: Option<&Client>) -> Result<ExitCode, ApiError> {
        let usage = |message: &str| ApiError::new(ErrorKind::Usage, message);
        if self.paths.len() > 1 && !self.together {
            return Err(usage("a code hands over one ticket").hint("add --together, or put one path"));
        }
        let nobody = || usage("no daemon runs that could serve what the code leads to");
        let client = daemon.ok_or_else(|| nobody().hint("'tow share --code' needs none"))?;
        let mut interrupts = context.signals.interrupts();
        tokio::select! {
            failed = self.hand_over_by_code(context, client) => Ok(status(failed?)),
            () = interrupts.next() => {
                Ok(context.output.interrupted("the code is void; what was put stays until 'tow done'"))
            }
        }
    }

    async fn hand_over_by_code(&self, context: &Context, client: &Client) -> Result<u64, ApiError> {
        let (given, mut tickets) = mpsc::channel(1);
        let given = |reply: &PutReply| drop(given.try_send(reply.clone()));
        let handing = async {
            let Some(reply) = tickets.recv().await else { return Ok(()) };
            match self.code.hand_over(context, &reply.ticket, UNTIL_DONE)? {
                Some(code) => code.attend_until_spent(&context.output).await,
                None => Ok(()),
            }
        };
        let putting = self.hand_over(context, client, &self.paths, given);
        tokio::try_join!(putting, handing).map(|(failed, ())| failed)
    }

    /// Without a daemon all is read before the end, so that the daemon finds it complete; nobody can fetch it sooner.
    async fn record(&self, context: &Context, paths: &[PathBuf]) -> Result<u64, ApiError> {
        let service = context.in_process()?;
        service.0.door().listen(super::daemon::PORT, self.listen.as_slice()).await?;
        let request = self.request(paths.to_vec());
        let (summary, reply) = put_to_end(context, &service, request, |_| ()).await?;
        if let Some(reply) = reply {
            let is_whole = reply.oid == summary.oid;
            let size = if is_whole { reply.size } else { Some(summary.bytes) };
            self.show(context, &PutReply { oid: summary.oid, size, ..reply });
        }
        Ok(summary.failed)
    }

    fn show(&self, context: &Context, reply: &PutReply) {
        match context.output.is_json() {
            true => context.output.object(&Event::Ticket(reply.clone())),
            false => context.output.line(&reply.ticket),
        }
        self.code.draw(&reply.ticket, &context.output);
    }

    fn request(&self, mut paths: Vec<PathBuf>) -> PutRequest {
        let (filters, name, metadata) = (self.filters.lines.clone(), self.name.clone(), self.metadata.told());
        let more = paths.split_off(1.min(paths.len()));
        let path = paths.pop().unwrap_or_default();
        let terms = self.ticket.terms();
        PutRequest { path, more, filters, name, metadata, terms, ..PutRequest::default() }
    }
}

/// The exit status where so much was left out.
fn status(failed: u64) -> ExitCode {
    if failed > 0 { ExitCode::from(PARTLY) } else { ExitCode::SUCCESS }
}

/// Puts and waits for the end, so that what is left out is named. `given` gets the ticket as soon as there is one; it is
/// returned, too.
async fn put_to_end(
    context: &Context,
    api: &dyn Api,
    request: PutRequest,
    given: impl Fn(&PutReply),
) -> Result<(Summary, Option<PutReply>), ApiError> {
    let (events, mut inbox) = mpsc::channel(16);
    let showing = async {
        let mut ticket = None;
        while let Some(event) = inbox.recv().await {
            match event {
                Event::Ticket(reply) => {
                    given(&reply);
                    ticket = Some(reply);
                }
                // Its progress is no news to those who read what is put.
                Event::Transfer(_) if context.output.is_json() => {}
                event => context.output.event(&event),
            }
        }
        ticket
    };
    let (summary, ticket) = tokio::join!(api.put_to_end(request, events), showing);
    Ok((summary?, ticket))
}

fn absolute(path: &Path) -> Result<PathBuf, ApiError> {
    std::path::absolute(path).map_err(|error| ApiError::new(ErrorKind::Usage, error.to_string()))
}

/// One of several that could not be put; the others go on.
fn not_put(context: &Context, path: &Path, error: &ApiError) {
    if context.output.is_json() {
        let path = display_name(path.as_os_str().as_encoded_bytes());
        context.output.object(&Event::FileFailed { path, error: error.message.clone() });
    } else {
        context.output.complain(&format!("tow: {}", error.message));
    }
}
