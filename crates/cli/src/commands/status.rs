//! `tow status`

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_api::ApiError;

use super::Context;

/// Show the service's node id, where it listens, and how much it holds
#[derive(Debug, Args)]
pub struct StatusCommand {}

impl StatusCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let is_daemon = context.daemon().await.is_some();
        let status = context.api().await?.status().await?;
        if context.output.is_json() {
            context.output.object(&ToldStatus { status: &status, daemon: is_daemon });
            return Ok(ExitCode::SUCCESS);
        }
        context.output.line(&format!("node         {}", status.node));
        context.output.line(&format!("daemon       {}", if is_daemon { "running" } else { "not running" }));
        context.output.line(&format!("listening    {}", status.listening.join(", ")));
        context.output.line(&format!("objects      {}", status.objects));
        context.output.line(&format!("connections  {}", status.connections));
        context.output.line(&format!("sessions     {}", status.sessions));
        context.output.line(&format!("open puts    {}", status.open_puts));
        context.output.line(&format!("gets         {}", status.gets));
        context.output.line(&format!("copies       {}", status.copies));
        Ok(ExitCode::SUCCESS)
    }
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct ToldStatus<'a> {
    #[serde(flatten)]
    status: &'a towpath_api::Status,
    /// True if one runs: without, all else is that of this very command.
    daemon: bool,
}
