//! `tow doctor`

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_api::{ApiError, ErrorKind};
use towpath_config::node_at;
use towpath_content::hint::PeerAddress;
use towpath_doctor::{CheckRow, CheckState, NamedServers, examine, rows};

use super::Context;

const AFTER: &str = "\
Examples:
  tow doctor
  tow doctor --rendezvous 2cae35…7fdd8@meet.example.org:4433      before the configuration names it
  tow doctor --json | jq -c 'select(.state == \"wrong\")'

Exit status: 0 nothing is wrong, though there may be notes; 1 something is; 2 usage.";

/// Exit status where something is wrong.
const WRONG: u8 = 1;

/// Look at what works on this machine, and say what to do about what does not
///
/// A row each for its addresses, ports, codes on its network, rendezvous servers, router, relays, daemon, folder of state, ssh
/// and clock. It takes some seconds, changes nothing, and asks no server but those of the configuration and of the command line.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct DoctorCommand {
    /// A rendezvous server to ask, too, as 'tow rendezvous' prints it; may be given again
    #[arg(long, value_name = "NODE@HOST:PORT", value_parser = parse_server)]
    rendezvous: Vec<PeerAddress>,
    /// A relay to ask, too, as 'tow relay' prints it; may be given again
    #[arg(long, value_name = "NODE@HOST:PORT", value_parser = parse_server)]
    relay: Vec<PeerAddress>,
}

fn parse_server(text: &str) -> Result<PeerAddress, String> {
    node_at(text).ok_or_else(|| "write NODE@HOST:PORT, as the server prints it".into())
}

/// A line of `--json`.
#[derive(Debug, Serialize)]
struct CheckEvent<'a> {
    event: &'static str,
    #[serde(flatten)]
    row: &'a CheckRow,
}

/// The last line of `--json`.
#[derive(Debug, Serialize)]
struct CheckSummary {
    event: &'static str,
    checks: usize,
    notes: usize,
    wrong: usize,
}

impl DoctorCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let unreadable = |error: ApiError| {
            ApiError::new(ErrorKind::Usage, format!("the configuration can't be used: {}", error.message))
                .hint("mend it first: 'tow daemon --check-config' tells what is read")
        };
        let config = context.configured().map_err(unreadable)?;
        let named = NamedServers { rendezvous: self.rendezvous, relays: self.relay };
        let rows = rows(&examine(&context.home, &config, &named).await, env!("CARGO_PKG_VERSION"));
        rows.iter().for_each(|row| show(context, row));
        let count = |state| rows.iter().filter(|row| row.state == state).count();
        let (notes, wrong) = (count(CheckState::Note), count(CheckState::Wrong));
        if context.output.is_json() {
            context.output.object(&CheckSummary { event: "summary", checks: rows.len(), notes, wrong });
        }
        Ok(if wrong > 0 { ExitCode::from(WRONG) } else { ExitCode::SUCCESS })
    }
}

fn show(context: &Context, row: &CheckRow) {
    if context.output.is_json() {
        context.output.object(&CheckEvent { event: "check", row });
        return;
    }
    let state = match row.state {
        CheckState::Ok => "ok",
        CheckState::Note => "note",
        CheckState::Wrong => "WRONG",
    };
    context.output.line(&format!("{state:<5}  {:<10}  {}", row.what, row.found));
    if let Some(advice) = &row.advice {
        context.output.line(&format!("{:19}-> {advice}", ""));
    }
}
