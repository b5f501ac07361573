//! `tow rendezvous` and `tow relay`

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tokio::sync::watch;
use towpath_api::{ApiError, ErrorKind};
use towpath_service::state::identity;
use towpath_standalone::cluster::{Cluster, SharingStatus};
use towpath_standalone::public_server::{PublicDuties, PublicServer, RelayQuotas, RelayRules, relay_rules};

use super::{Context, parse_address, parse_rate};
use crate::notify::{READY, notify};

/// Run a server where machines find each other that know no address of each other
///
/// It keeps for each ticket who has what and where, sealed so that only who has the ticket can read it, and forgets that after
/// some minutes. Content never passes it, unless it is a relay, too. Machines that use it name it in their configuration, under
/// rendezvous.servers, or in TOW_RENDEZVOUS.
#[derive(Debug, Args)]
pub struct RendezvousCommand {
    /// Address to listen on; may be given again [default: all addresses, port 4433]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Vec<SocketAddr>,
    /// Share what is kept with other servers, through NATS at this address: nats://HOST:PORT, or tls://HOST:PORT
    ///
    /// Further addresses of the same NATS cluster stand behind commas. While NATS is away the server goes on with what it has.
    #[arg(long, value_name = "URL")]
    cluster: Option<String>,
    /// File with USER:PASSWORD, or a token, for NATS; only its owner may read it
    #[arg(long, value_name = "FILE", requires = "cluster")]
    cluster_login: Option<PathBuf>,
    /// Be a relay on the same port, too, as 'tow relay' is
    #[arg(long)]
    relay: bool,
    #[command(flatten)]
    guests: RelayGuests,
}

/// Run a relay, for machines that can't reach each other
///
/// It carries what is encrypted from end to end, and can read none of it. Only who waits to be called needs a right: by its node,
/// or by a pass. Such machines name it in their configuration, under rendezvous.relays, and their tickets do.
#[derive(Debug, Args)]
pub struct RelayCommand {
    /// Address to listen on; may be given again [default: all addresses, port 4433]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Vec<SocketAddr>,
    #[command(flatten)]
    guests: RelayGuests,
}

/// Who may be called through a relay, and how much passes it.
#[derive(Debug, Args)]
pub struct RelayGuests {
    /// File with the pass that lets machines wait at the relay; only its owner may read it
    #[arg(long, value_name = "FILE")]
    pass: Option<PathBuf>,
    /// Node that may wait at the relay without a pass; may be given again
    #[arg(long, value_name = "NODE")]
    node: Vec<String>,
    /// Let everybody wait at the relay
    #[arg(long)]
    public: bool,
    /// Let at most this many bytes pass per second, of all together, as in 500K or 10M
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    limit_rate: Option<u64>,
    /// The same for each node that waits
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    node_rate: Option<u64>,
    /// The same for all nodes that wait from one address; of IPv6, from one /64
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    address_rate: Option<u64>,
    /// End a connection of two machines that has used so many bytes, as in 500M; they may begin another one
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    circuit_bytes: Option<u64>,
}

impl RendezvousCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        if !self.relay && self.guests.is_told() {
            let error = ApiError::new(ErrorKind::Usage, "this server is no relay");
            return Err(error.hint("who may wait, and how much passes, is said of a relay: add --relay"));
        }
        let relay = self.relay.then(|| self.guests.rules()).transpose()?;
        let cluster =
            self.cluster.map(|url| Cluster::new(&url, self.cluster_login.as_deref())).transpose()?;
        serve(context, &self.listen, PublicDuties { rendezvous: true, cluster, relay }).await
    }
}

impl RelayCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let relay = Some(self.guests.rules()?);
        serve(context, &self.listen, PublicDuties { rendezvous: false, cluster: None, relay }).await
    }
}

impl RelayGuests {
    fn rules(&self) -> Result<RelayRules, ApiError> {
        let rules = relay_rules(&self.node, self.pass.as_deref(), self.public)?;
        Ok(RelayRules { quotas: self.quotas(), ..rules })
    }

    fn quotas(&self) -> RelayQuotas {
        // As elsewhere, 0 is no limit.
        let limit = |told: Option<u64>| told.filter(|told| *told > 0);
        RelayQuotas {
            bytes_per_second: limit(self.node_rate),
            bytes_per_second_in_all: limit(self.limit_rate),
            bytes_per_second_of_address: limit(self.address_rate),
            bytes_per_circuit: limit(self.circuit_bytes),
            ..RelayQuotas::default()
        }
    }

    /// True if something was said.
    fn is_told(&self) -> bool {
        self.pass.is_some() || !self.node.is_empty() || self.public || self.quotas() != RelayQuotas::default()
    }
}

async fn serve(context: &Context, listen: &[SocketAddr], duties: PublicDuties) -> Result<ExitCode, ApiError> {
    let mut interrupts = context.signals.interrupts();
    let named = [(duties.rendezvous, "rendezvous.servers"), (duties.relay.is_some(), "rendezvous.relays")];
    let server = PublicServer::start(&identity(&context.home)?, listen, duties).await?;
    let places: Vec<String> = server.places().iter().map(ToString::to_string).collect();
    let first = places.first().cloned().unwrap_or_default();
    match context.output.is_json() {
        true => context.output.object(&ServerListening { event: "listening", places }),
        false => context.output.line(&first),
    }
    context.output.print("tow: machines use it if their configuration says");
    for (_, field) in named.iter().filter(|(is_on, _)| *is_on) {
        context.output.print(&format!("tow:   {field} = [\"{first}\"]"));
    }
    notify(READY, "Serving");
    tokio::select! {
        () = interrupts.next() => Ok(ExitCode::SUCCESS),
        never = server.run() => match never {},
        never = tell_sharing(context, server.sharing()) => match never {},
    }
}

/// Says how entries are shared, whenever that changes.
async fn tell_sharing(context: &Context, status: Option<watch::Receiver<SharingStatus>>) -> Infallible {
    let Some(mut status) = status else { return std::future::pending().await };
    loop {
        if status.changed().await.is_err() {
            return std::future::pending().await;
        }
        let why = why_not_shared(&status.borrow_and_update());
        match (context.output.is_json(), why) {
            (true, why) => {
                context.output.object(&ServerSharing { event: "sharing", shared: why.is_none(), why })
            }
            (false, None) => context.output.print("tow: entries are shared with other servers"),
            (false, Some(why)) => context.output.print(&format!("tow: entries are not shared: {why}")),
        }
    }
}

fn why_not_shared(status: &SharingStatus) -> Option<String> {
    match status {
        SharingStatus::Shared => None,
        SharingStatus::Away(why) => Some(why.clone()),
    }
}

/// Output of `--json` when it changes whether entries are shared with other servers.
#[derive(Debug, Serialize)]
struct ServerSharing {
    event: &'static str,
    shared: bool,
    /// Why not.
    why: Option<String>,
}

/// Output of `--json` when the server can be reached.
#[derive(Debug, Serialize)]
struct ServerListening {
    event: &'static str,
    /// Where, each as NODE@HOST:PORT; the best first.
    places: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        guests: RelayGuests,
    }

    fn told(words: &[&str]) -> RelayGuests {
        Words::parse_from(["relay"].iter().chain(words)).guests
    }

    #[test]
    fn limits_that_are_told_hold_and_0_is_none() {
        let words = ["--limit-rate=4M", "--node-rate=3M", "--address-rate=2M", "--circuit-bytes=1M"];
        let quotas = told(&words).quotas();
        let of_bytes = [
            quotas.bytes_per_second_in_all,
            quotas.bytes_per_second,
            quotas.bytes_per_second_of_address,
            quotas.bytes_per_circuit,
        ];
        assert_eq!(of_bytes, [4, 3, 2, 1].map(|number| Some(number << 20)));
        assert_eq!(told(&["--limit-rate=0", "--node-rate=0"]).quotas(), RelayQuotas::default());
    }

    #[test]
    fn a_word_about_a_relay_is_noticed() {
        assert!(!told(&[]).is_told());
        for word in ["--public", "--pass=file", "--node=00", "--limit-rate=1", "--circuit-bytes=1"] {
            assert!(told(&[word]).is_told(), "{word}");
        }
    }
}
