//! `tow put`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::sync::mpsc;
use towpath_api::{Api, ApiError, ErrorKind, PutReply, PutRequest};
use towpath_daemon::service::InProcess;
use towpath_daemon::{Options, Service};

use super::Context;
use crate::interrupts::Interrupts;

/// The name under which a stream without a daemon gets its port.
const STREAM_PORT: &[u8] = b"stream";

/// Hand files, directories or standard input to the service; prints a ticket for each
///
/// They are pinned until `tow done`. With a daemon running they can be fetched at once and from
/// then on. Without one they can be fetched when it is started, and `tow put -` serves what it
/// reads until interrupted.
#[derive(Debug, Args)]
pub struct Put {
    /// Files or directories; `-` for standard input, whose ticket comes before its first byte
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Address to serve on when no daemon runs, as in 192.0.2.1:7000 [default: all addresses, the
    /// port of last time]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
}

impl Put {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        if self.paths.iter().any(|path| path.as_os_str() == "-") {
            if self.paths.len() > 1 {
                return Err(ApiError::new(ErrorKind::Usage, "'-' must be the only thing to put"));
            }
            return self.stream(context).await;
        }
        let daemon = context.daemon().await;
        for path in &self.paths {
            let path = std::path::absolute(path)
                .map_err(|error| ApiError::new(ErrorKind::Usage, error.to_string()))?;
            match &daemon {
                Some(client) => {
                    show(context, &client.put(PutRequest { path, ..PutRequest::default() }).await?)
                }
                None => record(context, path, self.listen).await?,
            }
        }
        if daemon.is_none() {
            context.output.say("tow: no daemon runs; start 'tow daemon' so that others can fetch this");
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn stream(self, context: &Context) -> Result<ExitCode, ApiError> {
        let mut interrupts = context.signals.interrupts();
        let (ticket, mut tickets) = mpsc::channel(1);
        let output = Arc::clone(&context.output);
        let showing = tokio::spawn(async move {
            if let Some(reply) = tickets.recv().await {
                output.ticket(&reply);
            }
        });
        let input = Box::new(tokio::io::stdin());
        if let Some(client) = context.daemon().await {
            let putting = client.put_stream(input, ticket);
            let put = tokio::select! {
                put = putting => put?,
                () = interrupts.next() => return Ok(context.output.interrupted("what was read so far is dropped")),
            };
            let _ = showing.await;
            context.output.say(&format!("tow: put {}", put.oid));
            return Ok(ExitCode::SUCCESS);
        }
        let service = context.embedded(Options::default())?;
        service.listen(STREAM_PORT, self.listen.as_slice()).await?;
        service.open_doors();
        self.serve_stream(context, service, input, ticket, interrupts).await
    }

    async fn serve_stream(
        &self,
        context: &Context,
        service: Arc<Service>,
        input: towpath_api::Input<'static>,
        ticket: mpsc::Sender<PutReply>,
        mut interrupts: Interrupts,
    ) -> Result<ExitCode, ApiError> {
        let api = InProcess(service);
        let put = tokio::select! {
            put = api.put_stream(input, ticket) => put?,
            () = interrupts.next() => return Ok(context.output.interrupted("what was read so far is dropped")),
        };
        context.output.say(&format!("tow: all is read ({}); serving until interrupted", put.oid));
        interrupts.next().await;
        Ok(context.output.interrupted("'tow daemon' serves it from now on, until 'tow done'"))
    }
}

/// Without a daemon all is read before the end, so that the daemon finds it complete.
async fn record(context: &Context, path: PathBuf, listen: Option<SocketAddr>) -> Result<(), ApiError> {
    let service = context.embedded(Options::default())?;
    service.listen(super::daemon::PORT, listen.as_slice()).await?;
    show(context, &service.put_and_wait(&path).await?);
    Ok(())
}

fn show(context: &Context, reply: &PutReply) {
    if context.output.is_json() {
        context.output.object(&towpath_api::Event::Ticket(reply.clone()));
    } else {
        context.output.line(&reply.ticket);
    }
}
