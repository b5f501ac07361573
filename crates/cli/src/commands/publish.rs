//! `tow publish`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use towpath_api::{ApiError, ErrorKind};
use towpath_standalone::publishing::{PublishedTow, publish_file};

use super::Context;

/// Describe a file, so that any web server can serve it: writes FILE.tow, to lie beside it there
///
/// Put both on a web server; `tow get https://SERVER/FILE.tow` then fetches the file, checks each piece, and takes what an
/// older version on the receiver's disk has. The server needs nothing of Towpath. The id of the content is a line on
/// standard output.
#[derive(Debug, Args)]
pub struct PublishCommand {
    /// The file
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// Where to write it [default: FILE.tow]
    #[arg(short, long, value_name = "DEST")]
    output: Option<PathBuf>,
    /// URL that the file can be fetched from; may be given more than once, absolute or from the place of the .tow on
    /// [default: beside the .tow]
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct ToldPublished<'a> {
    event: &'static str,
    oid: String,
    size: u64,
    output: String,
    bytes: u64,
    sections: Vec<(&'a str, u64)>,
}

impl PublishCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let here = super::working_directory()?;
        let (path, output) = (here.join(&self.path), self.output.as_ref().map(|output| here.join(output)));
        let writing =
            tokio::task::spawn_blocking(move || publish_file(&path, output.as_deref(), &self.url)).await;
        let tow = writing.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))??;
        tell(&tow, context);
        Ok(ExitCode::SUCCESS)
    }
}

fn tell(tow: &PublishedTow, context: &Context) {
    let PublishedTow { path, bytes, head } = tow;
    let sections: Vec<(&str, u64)> =
        head.sections.iter().map(|section| (section.kind.name(), section.len)).collect();
    if context.output.is_json() {
        let (oid, output) = (head.oid.to_string(), path.display().to_string());
        let (event, size, bytes) = ("published", head.size, *bytes);
        context.output.object(&ToldPublished { event, oid, size, output, bytes, sections });
        return;
    }
    let parts: Vec<String> =
        sections.iter().map(|(name, len)| format!("{name} {}", HumanBytes(*len))).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    context.output.print(&format!(
        "tow: {} has {} for a file of {}{parts}",
        path.display(),
        HumanBytes(*bytes),
        HumanBytes(head.size)
    ));
    context.output.line(&head.oid.to_string());
}
