//! `tow rendezvous`

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_service::state::identity;
use towpath_standalone::public_server::PublicServer;

use super::{Context, parse_address};
use crate::notify::{READY, notify};

/// Run a server where machines find each other that know no address of each other
///
/// It keeps for each ticket who has what and where, sealed so that only who has the ticket can read it, and forgets that after
/// some minutes. Content never passes it. Machines that use it name it in their configuration, under
/// rendezvous.servers, or in TOW_RENDEZVOUS.
#[derive(Debug, Args)]
pub struct RendezvousCommand {
    /// Address to listen on; may be given again [default: all addresses, port 4433]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Vec<SocketAddr>,
}

impl RendezvousCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let mut interrupts = context.signals.interrupts();
        let server = PublicServer::start(&identity(&context.home)?, &self.listen).await?;
        let places: Vec<String> = server.places().iter().map(ToString::to_string).collect();
        let first = places.first().cloned().unwrap_or_default();
        if context.output.is_json() {
            context.output.object(&ServerListening { event: "listening", places });
        } else {
            context.output.line(&first);
        }
        context.output.print("tow: machines find each other here if their configuration says");
        context.output.print(&format!("tow:   rendezvous.servers = [\"{first}\"]"));
        notify(READY, "Serving");
        tokio::select! {
            () = interrupts.next() => Ok(ExitCode::SUCCESS),
            never = server.run() => match never {},
        }
    }
}

/// Output of `--json` when the server can be reached.
#[derive(Debug, Serialize)]
struct ServerListening {
    event: &'static str,
    /// Where, each as NODE@HOST:PORT; the best first.
    places: Vec<String>,
}
