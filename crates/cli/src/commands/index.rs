//! `tow index`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use indicatif::HumanBytes;
use tokio::sync::mpsc;
use towpath_api::{ApiError, CallEnd, IndexRequest, Indexed};

use super::Context;
use crate::output::{PARTLY, counted};

/// Events on their way to the screen.
const EVENTS: usize = 256;

/// Read files ahead of time, so that later transfers find what they hold without the network
///
/// No transfer needs this: each one that searches the disk adds what it reads. Files that have not
/// changed since they were indexed are not read again. Nothing of them is copied: a file that is changed
/// or removed later is noticed, and forgotten. Other file systems are not entered.
#[derive(Debug, Args)]
pub struct IndexCommand {
    /// Directories whose files are indexed
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
}

impl IndexCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let (events, mut inbox) = mpsc::channel(EVENTS);
        let output = Arc::clone(&context.output);
        let showing = tokio::spawn(async move {
            while let Some(event) = inbox.recv().await {
                output.event(&event);
            }
        });
        let mut interrupts = context.signals.interrupts();
        let here = super::working_directory()?;
        let directories = self.directories.iter().map(|directory| here.join(directory)).collect();
        let api = context.api().await?;
        let indexed = tokio::select! {
            indexed = api.index(IndexRequest { directories }, events) => indexed,
            () = interrupts.next() => {
                return Ok(context.output.interrupted("what was indexed is kept; the same command goes on"));
            }
        };
        // Also before an error: what failed is named first.
        let _ = showing.await;
        context.output.finish();
        let indexed = indexed?;
        show(context, indexed);
        Ok(if indexed.failed > 0 { ExitCode::from(PARTLY) } else { ExitCode::SUCCESS })
    }
}

fn show(context: &Context, indexed: Indexed) {
    if context.output.is_json() {
        return context.output.object(&CallEnd::Summary(indexed));
    }
    let Indexed { files, bytes, unchanged, read, failed, seconds } = indexed;
    let failed = if failed > 0 { format!("; {failed} failed") } else { String::new() };
    context.output.print(&format!(
        "tow: {} of {} indexed, {unchanged} of them unchanged; {} read in {:.1} s{failed}",
        counted(files, "file", "files"),
        HumanBytes(bytes),
        HumanBytes(read),
        seconds.as_f64(),
    ));
}
