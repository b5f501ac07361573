//! `tow done`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use towpath_api::{ApiError, ListRequest};

use super::{Context, held_names, ticket_words};

/// Take back what was put or shared: its ticket ends
#[derive(Debug, Args)]
pub struct DoneCommand {
    /// OIDs (see `tow ls`) or their first digits, 8 at least; paths that were put; or tickets; of what was shared, tickets
    #[arg(value_name = "OID|PATH|TICKET", required = true)]
    names: Vec<OsString>,
}

impl DoneCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let api = context.api().await?;
        let here = super::working_directory()?;
        for name in ticket_words::joined(self.names) {
            if !held_names::is_whole(&name) {
                let held = api.list(ListRequest::default()).await?;
                api.done(held_names::find(&name, &here, &held)?).await?;
                continue;
            }
            api.done(name.to_string_lossy().into_owned()).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
