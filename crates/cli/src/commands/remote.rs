//! `tow remote`

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::runtime::{Builder, Handle, Runtime};
use towpath_api::ApiError;
use towpath_confinement::{Gate, Writable, deny_calls};
use towpath_service::copy::{self, CopyError};

use super::{Context, end_threads, is_confined, not_confined, runtime, unconfined};

/// The other side of `tow cp` and `tow sync`, which start it through ssh
///
/// It speaks with them over standard input and output, needs no configuration, and ends when they
/// do. There is no use in starting it by hand.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct RemoteCommand {}

impl RemoteCommand {
    /// Until the first message nobody knows what this copy writes, and limits on that hold for the
    /// threads of whoever takes them. So the bytes of the pipe are carried in this thread, threads for
    /// answers wait at a gate, and all other threads are started once this one is confined.
    pub fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let is_wanted = is_confined(context.configured()?.general.sandbox);
        if is_wanted {
            deny_calls().map_err(|error| not_confined(&error))?;
        }
        let service = context.embedded()?;
        let gate = Arc::new(Gate::default());
        let passing = Arc::clone(&gate);
        let first = runtime(Builder::new_current_thread().on_thread_start(move || passing.pass()))?;
        let mut rest = None;
        let begin = |writable: &Writable| {
            let enforced =
                gate.open(Some(writable).filter(|_| is_wanted)).map_err(|error| unconfined(&error))?;
            tracing::info!("limits on what this copy may write: {enforced}");
            started(&mut rest)
        };
        let result = first.block_on(copy::serve_stdio(&service, begin));
        rest.into_iter().chain([first]).for_each(end_threads);
        result.map(|()| ExitCode::SUCCESS)
    }
}

/// Starts the threads that do the work.
fn started(runtime_of_all: &mut Option<Runtime>) -> Result<Handle, CopyError> {
    let started = runtime(&mut Builder::new_multi_thread());
    let started = started.map_err(|error| CopyError::Internal { what: error.message })?;
    Ok(runtime_of_all.insert(started).handle().clone())
}
