//! `tow daemon`

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use towpath_api::ApiError;
use towpath_daemon::Options;
use towpath_daemon::server::{Socket, serve};

use super::{Context, interrupted, parse_rate};

/// The name under which the daemon's port is kept.
pub const PORT: &[u8] = b"daemon";

/// Run the service in the foreground: serve what is put, answer the other commands
#[derive(Debug, Args)]
pub struct Daemon {
    /// Address to listen on for peers [default: all addresses, the port of last time]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Send at most this many bytes per second, as in 500K or 10M
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "0", hide_default_value = true)]
    limit_rate: u64,
}

impl Daemon {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let socket = Socket::bind(&context.home.socket()).await?;
        let service = context.embedded(Options {
            serve_leases: true,
            limit_rate: self.limit_rate,
            ..Options::default()
        })?;
        let addresses = service.listen(PORT, self.listen).await?;
        service.resume_puts();
        service.open_doors();
        let list = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
        context.output.say(&format!("tow: node {} listens on {list}", service.node_id()));
        context.output.say(&format!("tow: local API at {}", context.home.socket().display()));
        serve(socket, service, interrupted()).await?;
        Ok(ExitCode::SUCCESS)
    }
}
