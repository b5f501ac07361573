//! `tow get`

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use towpath_api::{
    Api, ApiError, Client, ContentRequest, ErrorKind, Event, GetRequest, Progress, SearchEffort, Seconds,
    StayRequest, Summary,
};
use towpath_service::{InProcess, get};
use towpath_standalone::served_tickets;

use super::filter_rules::FilterFlags;
use super::metadata_flags::MetadataFlags;
use super::update_flags::{UpdateFlags, change};
use super::{Context, parse_address, parse_rate, short_code, sync_flags, ticket_words};
use crate::copy_output::{Explained, explanation, line};

/// The longest ticket read from standard input.
const MAX_TICKET: u64 = 64 << 10;
/// So long a wait needs no word.
const SOON: Duration = Duration::from_secs(1);
/// Bytes written to standard output at once.
const PART: usize = 256 << 10;

/// Fetch what a ticket names: a file or a tree
///
/// Nothing is overwritten: the destination must not be there, but with --update. Interrupted in any way,
/// the same command goes on; only what is missing crosses the network.
#[derive(Debug, Args)]
pub struct GetCommand {
    /// The ticket; the short code that 'tow share --code' shows; the https URL of a .tow that 'tow publish' wrote; or the OID
    /// of an object on this machine or --from a web server. Blanks and line ends in a ticket are passed over. `-` reads it from standard input, which keeps it off the command line
    #[arg(value_name = "TICKET|CODE|URL|OID|-")]
    ticket: String,
    /// Only these paths of a tree, as --list tells them: each under its last name in DEST, or a single one as DEST
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Where to put it: a new file or directory; an existing directory takes it under its own
    /// name; `-` writes a single file to standard output as it comes [default: its own name, here]
    #[arg(short, long, value_name = "DEST")]
    output: Option<PathBuf>,
    /// Tell what the ticket holds, and fetch no contents: kind and mode, size, time (UTC) and path of each
    /// entry
    #[arg(long, conflicts_with = "output")]
    list: bool,
    #[command(flatten)]
    update: UpdateFlags,
    #[command(flatten)]
    metadata: MetadataFlags<false>,
    #[command(flatten)]
    filters: FilterFlags<false>,
    /// Draw from anything that the service knows on this machine, not only from what this sender sent
    /// before; the sender can tell from what it is not asked for
    #[arg(long)]
    reuse: bool,
    /// Take at most this many bytes per second, as in 500K or 10M
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "0", hide_default_value = true)]
    limit_rate: u64,
    /// Draw on this web server, too; may be given more than once. URL of the file, of a folder (with / at its end) in which
    /// a tree's files lie by their paths, with {oid} where an object's id in hexadecimal digits belongs, or of the .tow that
    /// 'tow publish' wrote
    #[arg(long, value_name = "URL")]
    from: Vec<String>,
    /// Go out by these interfaces of this machine, or from these addresses, all at once, as in eth0,wlan0
    /// [default: as configured, or as the system chooses]
    #[arg(long, value_name = "LINK", value_delimiter = ',')]
    bind: Vec<String>,
    /// Give up after this many seconds without progress; what came is kept
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    timeout: u64,
    /// From -128 to 127: while it is under way, the daemon's gets with a lower one give way
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "0",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    priority: i8,
    /// Refuse every way of which it can't be told that it is encrypted, a ticket that holds the object
    /// itself included
    #[arg(long)]
    require_encryption: bool,
    /// Do not search this machine's disk for what is to come
    #[arg(long)]
    no_search: bool,
    /// Search this directory too; may be given more than once. The sender can tell from what it is not
    /// asked for whether it holds the same
    #[arg(long, value_name = "DIR")]
    search: Vec<PathBuf>,
    /// How hard to search where probably nothing is: some takes a tenth of the transfer's time, all has no
    /// limit
    #[arg(long, value_name = "some|all", value_parser = sync_flags::search_effort, default_value = "some")]
    search_effort: SearchEffort,
    /// Serve others by the same ticket, from now on and until interrupted: what has come, and then all of it. A ticket that
    /// names this machine, too, is a line on standard output
    #[arg(long, conflicts_with_all = ["list", "update"])]
    stay: bool,
    /// With --stay, the address to listen on [default: all addresses, the port of last time]
    #[arg(long, value_name = "ADDR", value_parser = parse_address, requires = "stay")]
    listen: Option<SocketAddr>,
    /// Send others who fetch the same at most this many bytes per second
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "0", hide_default_value = true)]
    upload_rate: u64,
    /// Send others nothing of it. Without this they get from here what has come of a file while the rest comes, at most as much as
    /// came, as long as that makes it no slower, and if the ticket allows it
    #[arg(long, conflicts_with_all = ["stay", "upload_rate"])]
    no_upload: bool,
    /// Tell where bytes came from, what was searched, and what held the transfer up
    #[arg(long)]
    explain: bool,
}

impl GetCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let to_stdout = self.goes_to_stdout();
        if to_stdout {
            context.output.data_goes_to_stdout();
        }
        if self.list {
            context.output.hide_bar();
        }
        let mut request = self.request()?;
        let named = request.ticket.clone();
        if let Some(ticket) = short_code::ticket_of(context, &named).await? {
            request.ticket = ticket;
        }
        if !self.list {
            ticket_words::tell_end(&request.ticket, &context.output);
        }
        if self.stay {
            return self.get_and_stay(context, request).await;
        }
        let mut interrupts = context.signals.interrupts();
        let (events, mut inbox) = mpsc::channel(16);
        let (output, shown) = (std::sync::Arc::clone(&context.output), self.update.shown(context.verbose));
        let showing = tokio::spawn(async move {
            while let Some(event) = inbox.recv().await {
                match change(&event).filter(|_| !output.is_json()) {
                    Some(change) => line(&shown, &change).iter().for_each(|line| output.result_line(line)),
                    None => output.event(&event),
                }
            }
        });
        let work = self.fetch(context, request, events, to_stdout);
        let result = tokio::select! {
            result = work => result,
            () = interrupts.next() => {
                let what = if self.list { "" } else { "what came is kept; the same command goes on" };
                return Ok(context.output.interrupted(what));
            }
        };
        let _ = showing.await;
        let summary = result?;
        if self.list {
            return Ok(context.output.list_end(&summary));
        }
        let status = context.output.summary(&summary);
        short_code::done(context, &named, status);
        if self.explain {
            explanation(1, &Explained::from(&summary)).iter().for_each(|line| context.output.print(line));
        }
        Ok(status)
    }

    async fn get_and_stay(&self, context: &Context, request: GetRequest) -> Result<ExitCode, ApiError> {
        if self.goes_to_stdout() {
            return Err(ApiError::new(
                ErrorKind::Usage,
                "--stay serves a file: give it another place than standard output",
            ));
        }
        let mut interrupts = context.signals.interrupts();
        let service = InProcess(context.embedded()?);
        let stay = StayRequest { listen: self.listen, limit_rate: self.upload_rate };
        let (events, mut inbox) = mpsc::channel(16);
        let mut staying = service.get_and_stay(request, stay, events);
        let (mut status, mut listed) = (None, None);
        loop {
            let event = tokio::select! {
                () = interrupts.next() => break,
                never = &mut staying => match never? {},
                Some(event) = inbox.recv() => event,
            };
            match event {
                Event::Ticket(reply) => {
                    let path = self.output.clone().unwrap_or_else(|| PathBuf::from("."));
                    listed = served_tickets::begin(&context.home, &reply.ticket, &[path], true);
                    context.output.ticket(&reply);
                }
                Event::Summary(summary) => {
                    status = Some(context.output.summary(&summary));
                    if self.explain {
                        explanation(1, &Explained::from(&summary))
                            .iter()
                            .for_each(|line| context.output.print(line));
                    }
                    context.output.print("tow: serving until interrupted");
                }
                event => context.output.event(&event),
            }
        }
        drop(listed);
        match status {
            Some(status) => Ok(status),
            None => Ok(context.output.interrupted("what came is kept; the same command goes on")),
        }
    }

    fn goes_to_stdout(&self) -> bool {
        self.output.as_deref() == Some(Path::new("-"))
    }

    async fn fetch(
        &self,
        context: &Context,
        request: GetRequest,
        events: mpsc::Sender<Event>,
        to_stdout: bool,
    ) -> Result<Summary, ApiError> {
        if to_stdout {
            let request = ContentRequest {
                ticket: request.ticket,
                reuse: request.reuse,
                limit_rate: request.limit_rate,
                timeout: request.timeout,
                priority: request.priority,
                require_encryption: request.require_encryption,
            };
            return match context.daemon().await {
                Some(daemon) => copy_out(&daemon, request, events).await,
                None => {
                    let service = context.embedded()?;
                    get::get_stream(&service, &request, events, std::io::stdout()).await
                }
            };
        }
        context.api().await?.get(request, events).await
    }

    fn request(&self) -> Result<GetRequest, ApiError> {
        let here = super::working_directory()?;
        let (ticket, paths) = ticket_words::of_words(&self.ticket, &self.paths);
        let ticket = if ticket == "-" { ticket_words::whole(&read_ticket()?) } else { ticket };
        // However it is written, it is the same place to the record of an interrupted transfer.
        let output = self.output.as_ref().map(|path| here.join(path).components().collect());
        let is_part = !(paths.is_empty() && self.filters.lines.is_empty());
        if self.goes_to_stdout() && (is_part || self.update.request.is_some()) {
            let message = "standard output takes a whole file: leave paths, filters and --update out";
            return Err(ApiError::new(ErrorKind::Usage, message));
        }
        Ok(GetRequest {
            ticket,
            from: self.from.clone(),
            output,
            directory: here.clone(),
            reuse: self.reuse,
            limit_rate: self.limit_rate,
            bind: self.bind.clone(),
            timeout: self.timeout,
            priority: self.priority,
            require_encryption: self.require_encryption,
            no_upload: self.no_upload,
            upload_rate: self.upload_rate,
            no_search: self.no_search,
            search: self.search.iter().map(|dir| here.join(dir)).collect(),
            search_effort: self.search_effort,
            list: self.list,
            paths,
            filters: self.filters.lines.clone(),
            preserve: self.metadata.taken(),
            update: self.update.request.clone(),
        })
    }
}

/// Writes an object that the daemon gets to standard output.
async fn copy_out(
    daemon: &Client,
    request: ContentRequest,
    events: mpsc::Sender<Event>,
) -> Result<Summary, ApiError> {
    // The stream tells no more of it than what was required.
    let (start, encrypted) = (Instant::now(), request.require_encryption);
    let (seconds, opening) = (request.timeout, daemon.content(request));
    let mut content = waited_for(opening, seconds, &events).await?;
    let failed = |kind, what, error: std::io::Error| ApiError::new(kind, format!("{what}: {error}"));
    let (mut bytes, mut out, mut part) = (0, tokio::io::stdout(), vec![0; PART]);
    loop {
        let read = content.bytes.read(&mut part).await;
        let read = read.map_err(|error| failed(ErrorKind::Interrupted, "the object was cut off", error))?;
        if read == 0 {
            break;
        }
        let written = out.write_all(&part[..read]).await;
        // A live object is followed, line by line or not.
        let written = match written {
            Ok(()) => out.flush().await,
            error => error,
        };
        written.map_err(|error| failed(ErrorKind::Failed, "writing the output", error))?;
        bytes += read as u64;
        let expected = content.size.unwrap_or(bytes);
        let progress = Progress { done: bytes, expected, ..Progress::default() };
        let _ = events.try_send(Event::Transfer(progress));
    }
    Ok(Summary {
        oid: content.oid.unwrap_or_default(),
        output: "-".into(),
        bytes,
        entries: 1,
        encrypted,
        seconds: Seconds::from_duration(start.elapsed()),
        ..Summary::default()
    })
}

/// The answer of a daemon, which tells of no events here. After a second it is said what takes so long.
async fn waited_for<T>(work: impl Future<Output = T>, seconds: u64, events: &mpsc::Sender<Event>) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(SOON) => {}
    }
    let what = "the sender, whom the daemon asks".into();
    let seconds = seconds.checked_sub(SOON.as_secs());
    let _ = events.send(Event::Waiting { what, seconds }).await;
    work.await
}

fn read_ticket() -> Result<String, ApiError> {
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_TICKET).read_to_string(&mut text);
    read.map_err(|error| ApiError::new(ErrorKind::Usage, format!("reading the ticket: {error}")))?;
    match text.trim() {
        "" => Err(ApiError::new(ErrorKind::Usage, "no ticket came on standard input")),
        ticket => Ok(ticket.to_owned()),
    }
}
