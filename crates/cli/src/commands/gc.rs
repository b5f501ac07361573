//! `tow gc`

use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use towpath_api::{ApiError, GcRequest};

use super::Context;
use crate::output::counted;

/// Remove what nobody needs: cache over its limit, entries of files that are gone, what a crash left
///
/// What is put and not done stays, and so do files that the service only refers to.
#[derive(Debug, Args)]
pub struct Gc {
    /// Remove the whole cache, not only what is over its limit
    #[arg(long)]
    all: bool,
}

impl Gc {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let removed = context.api().await?.gc(GcRequest { all: self.all }).await?;
        if context.output.is_json() {
            context.output.object(&removed);
        } else {
            let objects = counted(removed.objects, "cached object", "cached objects");
            let left = counted(removed.leftovers, "left-over file", "left-over files");
            let entries = counted(removed.entries, "entry", "entries");
            let bytes = HumanBytes(removed.bytes);
            context
                .output
                .line(&format!("{bytes} removed: {objects}, {left}; {entries} of the index forgotten"));
        }
        Ok(ExitCode::SUCCESS)
    }
}
