//! `tow done`

use std::process::ExitCode;

use clap::Args;
use towpath_api::ApiError;

use super::Context;

/// Take back what was put or shared: its ticket ends
#[derive(Debug, Args)]
pub struct DoneCommand {
    /// OIDs (see `tow ls`) or tickets; of what was shared, tickets
    #[arg(value_name = "OID", required = true)]
    names: Vec<String>,
}

impl DoneCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let api = context.api().await?;
        for name in self.names {
            api.done(name).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
