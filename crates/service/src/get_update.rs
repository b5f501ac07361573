//! A get that updates what is at the destination: a copy of the ticket's tree, with what copies have for deciding,
//! replacing and removing.
//!
//! | | DEST is a directory | DEST is not there | DEST is something else |
//! |---|---|---|---|
//! | the whole tree | becomes equal to the tree | is made | refused |
//! | paths | DEST/NAME each becomes equal to the path | refused | refused |
//! | a file's ticket | DEST/NAME | is made | is replaced |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_api::copy::{Check, CopyEvent, CopyOptions, CopySummary, FailureKind, Preserve};
use towpath_api::{ApiError, Event, GetRequest, GetUpdate, Summary, UpdateCounts};
use towpath_content::Oid;
use towpath_content::pieces::Layout;
use towpath_content::tree::{Entry, Kind, Metadata};
use towpath_files::names::check_name;
use towpath_files::{Selection, display_name};
use towpath_store::{About, ObjectKind};
use towpath_sync::{DescribedSource, DescribedTree, copy_described};
use towpath_targets::get_file::DEFAULT_MODE;
use towpath_targets::spool::{FailOnDrop, Spool};
use towpath_transfer::{Group, Session, Target};

use crate::copy::host;
use crate::get_tree::as_asked;
use crate::getting::{Failure, GetUnderWay, report_progress, summarize};
use crate::selecting::{Missing, os_path, preserve, selection, usage};
use crate::tree_place::named;
use towpath_words as words;
use towpath_words::copies;

/// Makes the destination equal to what is wanted of the tree, or to the file.
pub(crate) async fn run(
    get: &Arc<GetUnderWay>,
    (request, update): (&GetRequest, &GetUpdate),
    (about, layout): (About, Option<Layout>),
    events: &mpsc::Sender<Event>,
    summary: &mut Summary,
) -> Result<(), Failure> {
    let selection = selection(request, &about, None)?;
    let destination = match about.kind {
        ObjectKind::Tree => destination(request, &about)?,
        ObjectKind::Blob => destination_of_file(request, &about)?,
    };
    get.service.check_writable(&destination)?;
    match update.dry_run {
        true => summary.output.clone_from(&destination),
        false => get.announce((&about, layout.as_ref()), &destination, events, summary).await,
    }
    // A destination that is there already need not be this sender's.
    if !destination.exists() && !update.dry_run {
        get.note_destination(&destination);
    }
    let session = Arc::new(Session::start(Arc::clone(&get.for_tree), get.context.clone(), get.config));
    let (person, inbox) = mpsc::channel(64);
    let options = options(request, update, &about);
    let copied = {
        let to = (options, destination, person);
        let copying = async {
            match about.kind {
                ObjectKind::Tree => tree(get, &session, (layout, selection, about.name), to).await,
                ObjectKind::Blob => file(get, &session, (layout, about), to).await,
            }
        };
        let reporting = report_progress(session.progress(), events.clone());
        let both = async { tokio::join!(copying, forward(inbox, events)) };
        tokio::select! { (copied, ()) = both => copied, never = reporting => match never {} }
    };
    summarize(&session.progress().snapshot(), summary);
    let (oid, copied, selection) = copied?;
    summary.oid = oid.to_string();
    add(summary, &copied, update.dry_run);
    let Some(selection) = selection else { return Ok(()) };
    Missing::of(&selection).tell(events, summary, !request.paths.is_empty()).await?;
    Ok(())
}

/// The file that is written.
fn destination_of_file(request: &GetRequest, about: &About) -> Result<PathBuf, ApiError> {
    let destination = match &request.output {
        Some(output) if !output.is_dir() => output.clone(),
        output => named(output.as_ref().unwrap_or(&request.directory), about)?,
    };
    match destination.is_dir() {
        false => Ok(destination),
        true => {
            let shown = display_name(destination.as_os_str().as_encoded_bytes());
            Err(usage(format!("{shown} is a directory, and the ticket names a file")))
        }
    }
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

/// Metadata that are taken. A single file's ticket tells its mode and time alone, and of a stream no time.
fn carried(request: &GetRequest, about: &About) -> Preserve {
    let asked = preserve(request);
    if about.kind == ObjectKind::Tree {
        return asked;
    }
    let times = asked.times && about.modified.is_some();
    Preserve { times, owner: false, group: false, acls: false, xattrs: false, ..asked }
}

/// As a get takes a tree, and as the person wants what is there treated.
fn options(request: &GetRequest, update: &GetUpdate, about: &About) -> CopyOptions {
    let has_time = about.kind == ObjectKind::Tree || about.modified.is_some();
    let bytes = |path: &PathBuf| path.as_os_str().as_encoded_bytes().to_vec();
    CopyOptions {
        // A stream has no time to compare by, or to keep.
        preserve: carried(request, about),
        check: if update.checksum || !has_time { Check::Content } else { Check::Quick },
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

/// Options of a copy, where to, and who is told.
type CopyTo = (CopyOptions, PathBuf, mpsc::Sender<CopyEvent>);
/// The content that the ticket names, what was done, and what was wanted of a tree.
type Copied = (Oid, CopySummary, Option<Selection>);

/// Fetches the descriptor, and copies what it describes while it comes.
async fn tree(
    get: &GetUnderWay,
    session: &Arc<Session>,
    (layout, selection, name): (Option<Layout>, Selection, Vec<u8>),
    (options, destination, person): CopyTo,
) -> Result<Copied, Failure> {
    let data = get.service.home.data();
    let spool = tempfile::tempfile_in(data).map_err(|error| words::io("use", data, &error))?;
    let spool = Spool::into_empty(spool);
    let _end = FailOnDrop(Arc::clone(&spool));
    let name = if check_name(&name).is_ok() { name } else { b"tree".to_vec() };
    let taken = as_asked(&options.preserve);
    let tree = DescribedSource::Tree(DescribedTree { descriptor: spool.reader(), selection, name, taken });
    let target = Arc::clone(&spool) as Arc<dyn Target>;
    let fetching = async {
        let fetched = session.fetch(get.request(target, layout, Group::default())).await;
        fetched.map_err(Failure::from)
    };
    let host = host(&get.service, None, Vec::new());
    let copying = async {
        let source = (tree, Arc::clone(session), get.found_files.clone());
        let copied = copy_described(&host, source, options, destination, person).await;
        copied.map_err(|error| Failure::from(copies::copy(&error)))
    };
    // The first error ends both.
    let (fetched, (summary, selection)) = tokio::try_join!(fetching, copying)?;
    Ok((fetched.oid, summary, selection))
}

/// Copies the one file, once it is known what is in it.
async fn file(
    get: &GetUnderWay,
    session: &Arc<Session>,
    (layout, about): (Option<Layout>, About),
    (options, destination, person): CopyTo,
) -> Result<Copied, Failure> {
    let Some((oid, size)) = get.whole(layout).await else {
        let error = usage("the file is still being read at its sender, and can't be compared yet".into());
        return Err(error.hint("try again later, or get it under another name with -o").into());
    };
    let metadata = Metadata {
        mode: about.mode.unwrap_or(DEFAULT_MODE) & 0o777,
        modified: about.modified.unwrap_or_default(),
        ..Metadata::default()
    };
    let entry = Entry {
        name: if check_name(&about.name).is_ok() { about.name } else { b"file".to_vec() },
        kind: Kind::File { size, oid: Some(oid), extents: None },
        metadata: as_asked(&options.preserve)(metadata),
        hard_link: None,
    };
    let host = host(&get.service, None, Vec::new());
    let source = (DescribedSource::File { entry }, Arc::clone(session), get.found_files.clone());
    let copied = copy_described(&host, source, options, destination, person).await;
    let (summary, selection) = copied.map_err(|error| copies::copy(&error))?;
    Ok((oid, summary, selection))
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
            CopyEvent::Failed { path, error, hint, kind } => {
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                let (path, why) = (display_name(&path), format!("{error}{hint}"));
                match kind {
                    // Without a path it is something else that is not done, as removing.
                    FailureKind::Skipped if !path.is_empty() => Event::EntrySkipped { path, why },
                    _ => Event::FileFailed { path, error: why },
                }
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
    summary.skipped = copied.skipped;
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
