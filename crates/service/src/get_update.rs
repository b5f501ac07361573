//! A get that updates what is at the destination: a copy of the ticket's tree, with what copies have for deciding,
//! replacing and removing.
//!
//! | | DEST is a directory, or not there | DEST is something else |
//! |---|---|---|
//! | the whole tree | becomes equal to the tree | refused |
//! | paths | DEST/NAME each becomes equal to the path; DEST must be there | refused |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_api::copy::{Check, CopyEvent, CopyOptions, CopySummary};
use towpath_api::{ApiError, Event, GetRequest, GetUpdate, Summary, UpdateCounts};
use towpath_content::pieces::Layout;
use towpath_files::{Selection, display_name};
use towpath_store::{About, ObjectKind};
use towpath_sync::{DescribedTree, copy_described};
use towpath_targets::spool::{FailOnDrop, Spool};
use towpath_transfer::{Fetched, Group, Session, Target};

use crate::copy::host;
use crate::get_tree::as_asked;
use crate::getting::{Failure, GetUnderWay, report_progress, summarize};
use crate::selecting::{Missing, os_path, preserve, selection, usage};
use crate::tree_place::named;
use towpath_words as words;
use towpath_words::copies;

/// Makes the destination equal to what is wanted of the tree.
pub(crate) async fn run(
    get: &Arc<GetUnderWay>,
    (request, update): (&GetRequest, &GetUpdate),
    (about, layout): (About, Option<Layout>),
    events: &mpsc::Sender<Event>,
    summary: &mut Summary,
) -> Result<(), Failure> {
    if about.kind == ObjectKind::Blob {
        let error = usage("the ticket names a single file, and only a tree can be updated".into());
        return Err(error.hint("choose another name with -o, or remove the old file").into());
    }
    let selection = selection(request, &about, None)?;
    let destination = destination(request, &about)?;
    get.service.check_writable(&destination)?;
    summary.output.clone_from(&destination);
    // What is there already need not be this sender's.
    if !destination.exists() && !update.dry_run {
        get.note_destination(&destination);
    }
    let is_part = !request.paths.is_empty();
    let session = Arc::new(Session::start(Arc::clone(&get.for_tree), get.context.clone(), get.config));
    let (person, inbox) = mpsc::channel(64);
    let copied = {
        let copying = copy(
            get,
            &session,
            (layout, selection, about.name),
            options(request, update),
            (&destination, person),
        );
        let reporting = report_progress(session.progress(), events.clone());
        let both = async { tokio::join!(copying, forward(inbox, events)) };
        tokio::select! { (copied, ()) = both => copied, never = reporting => match never {} }
    };
    summarize(&session.progress().snapshot(), summary);
    let (fetched, copied, selection) = copied?;
    summary.oid = fetched.oid.to_string();
    add(summary, &copied, update.dry_run);
    Missing::of(&selection).tell(events, summary, is_part).await?;
    Ok(())
}

/// The directory that is written into.
fn destination(request: &GetRequest, about: &About) -> Result<PathBuf, ApiError> {
    let is_part = !request.paths.is_empty();
    let destination = match &request.output {
        Some(output) => output.clone(),
        None if is_part => request.directory.clone(),
        None => named(&request.directory, about)?,
    };
    let is_missing = destination.symlink_metadata().is_err();
    match destination.is_dir() || is_missing && !is_part {
        true => Ok(destination),
        false => Err(no_directory(&destination, is_part)),
    }
}

fn no_directory(destination: &Path, is_part: bool) -> ApiError {
    let shown = display_name(destination.as_os_str().as_encoded_bytes());
    let hint = match is_part {
        true => "paths are updated in a directory that is there",
        false => "remove it, or choose another place",
    };
    usage(format!("{shown} is no directory")).hint(hint)
}

/// As a get takes a tree, and as the person wants what is there treated.
fn options(request: &GetRequest, update: &GetUpdate) -> CopyOptions {
    let bytes = |path: &PathBuf| path.as_os_str().as_encoded_bytes().to_vec();
    CopyOptions {
        preserve: preserve(request),
        check: if update.checksum { Check::Content } else { Check::Quick },
        dry_run: update.dry_run,
        delete: update.delete,
        max_delete: update.max_delete,
        force: update.force,
        backup: update.backup,
        suffix: bytes(&update.suffix),
        backup_dir: update.backup_dir.as_ref().map(bytes),
        filters: request.filters.clone(),
        timeout: request.timeout,
        ..CopyOptions::default()
    }
}

/// Fetches the descriptor, and copies what it describes while it comes.
async fn copy(
    get: &Arc<GetUnderWay>,
    session: &Arc<Session>,
    (layout, selection, name): (Option<Layout>, Selection, Vec<u8>),
    options: CopyOptions,
    (destination, person): (&Path, mpsc::Sender<CopyEvent>),
) -> Result<(Fetched, CopySummary, Selection), Failure> {
    let data = get.service.home.data();
    let file = tempfile::tempfile_in(data).map_err(|error| words::io("use", data, &error))?;
    let spool = Spool::into_empty(file);
    let _end = FailOnDrop(Arc::clone(&spool));
    let name = if towpath_files::names::check_name(&name).is_ok() { name } else { b"tree".to_vec() };
    let tree =
        DescribedTree { descriptor: spool.reader(), selection, name, taken: as_asked(&options.preserve) };
    let target = Arc::clone(&spool) as Arc<dyn Target>;
    let fetching = async {
        let fetched = session.fetch(get.request(target, layout, Group::default())).await;
        fetched.map_err(Failure::from)
    };
    let host = host(&get.service, None);
    let copying = async {
        let to = destination.to_path_buf();
        let copied = copy_described(&host, (tree, Arc::clone(session)), options, to, person).await;
        copied.map_err(|error| Failure::from(copies::copy(&error)))
    };
    // The first error ends both.
    let (fetched, (summary, selection)) = tokio::try_join!(fetching, copying)?;
    Ok((fetched, summary, selection))
}

/// Tells of entries as gets do.
async fn forward(mut inbox: mpsc::Receiver<CopyEvent>, events: &mpsc::Sender<Event>) {
    while let Some(event) = inbox.recv().await {
        let event = match event {
            CopyEvent::Item { changes, path, size, .. } => {
                let changes = String::from_utf8_lossy(&changes).into_owned();
                Event::Item { changes, path: os_path(&path), size }
            }
            CopyEvent::Deleted { path, is_dir } => Event::Deleted { path: os_path(&path), is_dir },
            CopyEvent::Failed { path, error, hint, .. } => {
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                Event::FileFailed { path: display_name(&path), error: format!("{error}{hint}") }
            }
            // The session tells of these.
            CopyEvent::Progress { .. } | CopyEvent::Waiting { .. } => continue,
        };
        let _ = events.send(event).await;
    }
}

/// Adds what a copy did.
fn add(summary: &mut Summary, copied: &CopySummary, dry_run: bool) {
    summary.entries = copied.seen.total();
    summary.bytes = copied.total_size;
    summary.failed = copied.failed + copied.vanished;
    summary.dropped = copied.dropped;
    summary.updated = Some(UpdateCounts {
        dry_run,
        created: copied.created.total(),
        transferred: copied.transferred,
        deleted: copied.deleted.total(),
        max_delete_reached: copied.max_delete_reached,
    });
}

#[cfg(test)]
mod tests;
