//! Common part of `tow cp` and `tow sync`: run the copy, show what happens, say how it ended.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use towpath_api::copy::{CopyEvent, CopyRequest, CopySummary, FailureKind};
use towpath_api::{Api, ApiError, CallEnd, ErrorKind, Event, Progress};
use towpath_service::copy::HandedCopy;
use towpath_service::display_text;

use super::Context;
use crate::copy_output::{ShownChanges, closing, complaint, done, exit_code, line};
use crate::output::Output;

/// Time by which ssh may be interrupted sooner than this program.
const SSH_FIRST: Duration = Duration::from_millis(150);
/// Events on their way to the screen.
const EVENTS: usize = 256;

/// A copy as the command line asks for it.
#[derive(Debug)]
pub struct Copying {
    /// Request that says what is copied, and how.
    pub request: CopyRequest,
    /// Changes that are shown of it.
    pub shown: ShownChanges,
    /// The daemon makes it (`--by-daemon`).
    pub by_daemon: bool,
}

/// Copies, and shows it.
pub async fn copy(context: &Context, mut copying: Copying) -> Result<ExitCode, ApiError> {
    let Copying { request, shown, .. } = &mut copying;
    shown.names |= context.verbose > 0;
    // Each would cross the network, from a receiver that is elsewhere.
    request.options.without_items = !context.output.is_json() && !shown.lists();
    if shown.progress == Some(false) {
        context.output.hide_bar();
    }
    let (mode, dry_run, shown) = (request.mode, request.options.dry_run, *shown);
    let mut interrupts = context.signals.interrupts();
    let result = tokio::select! {
        result = work(context, copying) => result,
        () = interrupts.next() => Err(interrupted()),
    };
    let result = match result {
        // ssh gets ^C as well, and may be the first to end.
        Err(error) if error.kind == ErrorKind::Unreachable => {
            let interrupt = tokio::time::timeout(SSH_FIRST, interrupts.next()).await;
            Err(if interrupt.is_ok() { interrupted() } else { error })
        }
        result => result,
    };
    match &result {
        Ok(summary) => show_end(&context.output, &shown, dry_run, summary),
        Err(error) if error.kind == ErrorKind::Interrupted => {
            context.output.interrupted("what is complete stays; the same command goes on");
        }
        Err(error) => drop(context.output.error(error)),
    }
    Ok(ExitCode::from(exit_code(mode, &result)))
}

fn interrupted() -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "interrupted")
}

async fn work(context: &Context, copying: Copying) -> Result<CopySummary, ApiError> {
    let Copying { mut request, shown, by_daemon } = copying;
    let (events, mut inbox) = mpsc::channel(EVENTS);
    let output = Arc::clone(&context.output);
    let showing = tokio::spawn(async move {
        let mut has_begun = false;
        while let Some(event) = inbox.recv().await {
            has_begun |= !matches!(event, CopyEvent::Waiting { .. });
            show(&output, &shown, event);
        }
        has_begun
    });
    if !by_daemon {
        let service = context.in_process()?;
        let result = service.copy(request, events).await;
        let _ = showing.await;
        return result;
    }
    let daemon = context.daemon().await.ok_or_else(no_daemon)?;
    let here = super::working_directory()?;
    let handed = HandedCopy::new(&mut request, &here, &context.home).await?;
    let result = daemon.copy(request, events).await;
    handed.end(result, showing.await.unwrap_or_default()).await
}

fn no_daemon() -> ApiError {
    ApiError::new(ErrorKind::Unreachable, "no daemon is running that could make the copy")
        .hint("start it with 'tow daemon', or leave --by-daemon out")
}

fn show(output: &Output, shown: &ShownChanges, event: CopyEvent) {
    if output.is_json() {
        return output.object(&event);
    }
    if let Some(line) = line(shown, &event) {
        output.result_line(&line);
    }
    match (&event, complaint(&event)) {
        (CopyEvent::Failed { kind: FailureKind::Skipped, path, .. }, Some(text)) if !path.is_empty() => {
            output.print(&text);
        }
        (_, Some(text)) => output.complain(&text),
        (_, None) => {}
    }
    match event {
        CopyEvent::Progress { done, expected, files_done, sources, trouble, .. } => {
            let trouble = trouble.map(|trouble| display_text(&trouble));
            let progress = Progress { done, expected, objects: files_done, sources, trouble };
            output.event(&Event::Transfer(progress));
        }
        CopyEvent::Waiting { what, seconds } => output.event(&Event::Waiting { what, seconds }),
        CopyEvent::Item { .. } | CopyEvent::Deleted { .. } | CopyEvent::Failed { .. } => {}
    }
}

fn show_end(output: &Output, shown: &ShownChanges, dry_run: bool, summary: &CopySummary) {
    output.finish();
    if output.is_json() {
        return output.object(&CallEnd::Summary(summary.clone()));
    }
    let lines = closing(shown, summary, dry_run);
    lines.iter().for_each(|line| output.result_line(line));
    // A person who watches gets a line; cp and rsync print nothing to anybody else.
    if lines.is_empty() && std::io::stderr().is_terminal() {
        output.print(&done(summary, dry_run));
    }
    output.left_out(&summary.dropped, "-X, or cp --preserve=xattr,");
    let failed = summary.failed + summary.vanished;
    if failed > 0 {
        let what = if failed == 1 { "entry was" } else { "entries were" };
        output.complain(&format!("tow: {failed} {what} not copied; the rest is done"));
    }
}
