//! A copy within this machine: the source is read in the merging thread.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use towpath_api::copy::{CopyRequest, CopySummary, Mode};
use towpath_content::tree::Event;

use super::endpoint::{StopOnDrop, blocking, receiving, show_progress};
use super::events::{Events, failed_to_read, left_out};
use super::local::LocalSupplier;
use super::merge::{Destined, Merge};
use super::naming::names_contents;
use super::source::{SourceStep, Sources};
use crate::error::{CopyError, RequestFault};
use crate::host::Host;

/// Copies local sources to a local destination.
pub async fn copy_locally(
    host: &Arc<Host>,
    request: &CopyRequest,
    paths: Vec<PathBuf>,
    destination: &Path,
    events: Events,
) -> Result<CopySummary, CopyError> {
    let names: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let contents = names_contents(request.mode, &names)?;
    let options = request.options.clone();
    let receiving = receiving(host, &options, events.clone(), false);
    let supplier = LocalSupplier::start(events.clone(), options.remove_source_files, &host.processors);
    let destined = Destined {
        path: destination.into(),
        mode: request.mode,
        sources: paths.len(),
        contents,
        names: None,
    };
    let mut merge = Merge::new(&receiving, Some(Arc::clone(&supplier) as _), destined)?;
    let _stop = StopOnDrop(Arc::clone(&receiving));
    let reporting =
        AbortOnDropHandle::new(tokio::spawn(show_progress(Arc::clone(&receiving), None, events.clone())));
    let avoid = not_into_itself(&paths, destination, contents, request.mode)?;
    let removal = Arc::clone(&supplier);
    let working = blocking(move || {
        let mut sources = Sources::open(&paths, contents, &options)?.avoiding(avoid);
        let read = sources.read(&mut |step| match step {
            SourceStep::Walk(event, located) => {
                if let (Some(located), Event::Leaf(_)) = (&located, &event) {
                    supplier.note(merge.seen(), located);
                }
                merge.step(event, located)
            }
            SourceStep::Closed => {
                let next = merge.seen();
                merge.closed(next)
            }
            SourceStep::Failed { path, error, is_named } => {
                merge.incomplete();
                events.failure_in_order(failed_to_read(&path, &error, is_named));
                Ok(())
            }
            SourceStep::Skipped { path, why } => {
                events.failure_in_order(left_out(path.as_os_str().as_bytes(), why));
                Ok(())
            }
        });
        removal.source_is_read();
        read?;
        merge.finish()
    });
    let result = working.await;
    drop(reporting);
    result.and(receiving.check())?;
    Ok(receiving.account.summary())
}

/// A directory can't be copied into itself. Returns the directory that the copy goes to if it lies
/// in a source and `sync` may go on without it, as people do with backups beside their data.
fn not_into_itself(
    paths: &[PathBuf],
    destination: &Path,
    contents: bool,
    mode: Mode,
) -> Result<Option<PathBuf>, CopyError> {
    let destination = resolve(destination);
    let mut avoid = None;
    for path in paths {
        let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        let Some(source) = path.canonicalize().ok().filter(|source| source.is_dir() && !is_link) else {
            continue;
        };
        if !destination.starts_with(&source) || (contents && destination == source) {
            continue;
        }
        if mode == Mode::Cp || destination == source {
            return Err(RequestFault::IntoItself(path.clone()).into());
        }
        avoid = Some(destination.clone());
    }
    Ok(avoid)
}

/// A path without symbolic links, as far as it is there.
fn resolve(path: &Path) -> PathBuf {
    if let Ok(resolved) = path.canonicalize() {
        return resolved;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => resolve(Path::new(".")).join(name),
        (Some(parent), Some(name)) => resolve(parent).join(name),
        _ => path.to_path_buf(),
    }
}
