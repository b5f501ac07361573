//! `tow ls`

use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use towpath_api::{ApiError, Held, ListRequest};

use super::Context;
use crate::listing;

/// List what is put and not done, and how long its ticket holds
#[derive(Debug, Args)]
pub struct Ls {
    /// List what is kept as cache, too: it stays until its room is needed
    #[arg(long)]
    cached: bool,
}

impl Ls {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        for object in context.api().await?.list(ListRequest { cached: self.cached }).await? {
            if context.output.is_json() {
                context.output.object(&object);
                continue;
            }
            let size = object.size.map_or_else(|| "?".into(), |size| HumanBytes(size).to_string());
            let name = object.content.as_deref().unwrap_or(&object.oid);
            let nowhere = match (object.held, &*object.kind) {
                (Held::Cached, _) => "(cached)",
                (_, "tree") => "(a tree of several paths, or filtered)",
                _ => "(stream)",
            };
            let path = object.path.as_deref().unwrap_or(nowhere);
            let life = object
                .ticket
                .as_ref()
                .map(|_| format!("  ({})", listing::life(object.terms)))
                .unwrap_or_default();
            context.output.line(&format!("{name}  {}  {size:>10}  {path}{life}", object.kind));
        }
        Ok(ExitCode::SUCCESS)
    }
}
