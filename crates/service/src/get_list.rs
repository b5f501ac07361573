//! List of what a ticket names, told and not fetched. Of a tree its descriptor alone comes, and is told while it does.
//!
//! The descriptor goes through a file without a name, and whoever listens sets the pace: memory does not grow with
//! the tree.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use towpath_api::copy::FileTime;
use towpath_api::{
    ApiError, EntryKind, ErrorKind, Event, GetRequest, ListedEntry, Seconds, Summary, TicketTerms,
};
use towpath_content::pieces::Layout;
use towpath_content::tree::{self, Entry, Kind, LEFT_OUT, Time};
use towpath_files::{FileError, RelPath, Selection};
use towpath_store::{About, ObjectKind};
use towpath_targets::spool::{FailOnDrop, Spool, SpoolReader};
use towpath_transfer::{Group, Session, Target};

use crate::get_tree::decode;
use crate::getting::{GetUnderWay, behind, summarize};
use crate::selecting::{Missing, os_path, selection};
use crate::state::Service;
use crate::ticket_ends::told_terms;
use crate::waiting;
use crate::web_places::WebPlaces;
use towpath_words as words;

/// Tells what `request` names. The summary has the bytes of all files, and how many entries were told.
pub(crate) async fn list(
    service: &Arc<Service>,
    request: &GetRequest,
    events: mpsc::Sender<Event>,
) -> Result<Summary, ApiError> {
    let start = Instant::now();
    let get = Arc::new(behind(service, request, &WebPlaces::of(request).await?, None)?);
    let terms = get.context.secret.map(|secret| told_terms(secret.terms)).unwrap_or_default();
    if terms != TicketTerms::default() {
        let _ = events.send(Event::Terms(terms)).await;
    }
    let telling = tell(&get, request, &events);
    let told =
        tokio::select! { told = telling => told, never = waiting::report(&get, &events) => match never {} };
    let mut summary = told?;
    summary.seconds = Seconds::from_duration(start.elapsed());
    summary.encrypted = get.plugins.root.state().is_encrypted;
    get.finish(false).await;
    Ok(summary)
}

async fn tell(
    get: &Arc<GetUnderWay>,
    request: &GetRequest,
    events: &mpsc::Sender<Event>,
) -> Result<Summary, ApiError> {
    let (about, layout) = get.describe(false).await?;
    let selection = selection(request, &about, None)?;
    if about.kind == ObjectKind::Tree {
        return descriptor(get, layout, selection, events).await;
    }
    let whole = get.whole(layout).await;
    let entry = single(&about, whole.map(|(_, size)| size));
    let (oid, bytes) = (whole.map_or(get.oid, |(oid, _)| oid).to_string(), entry.size.unwrap_or(0));
    let _ = events.send(Event::Entry(entry)).await;
    Ok(Summary { oid, bytes, entries: 1, ..Summary::default() })
}

/// A file's own entry.
fn single(about: &About, size: Option<u64>) -> ListedEntry {
    ListedEntry {
        path: os_path(&about.name),
        kind: EntryKind::File,
        mode: about.mode,
        size,
        modified: about.modified.map(file_time),
        target: None,
        left_out: false,
    }
}

/// Fetches the descriptor, and tells its entries while it comes.
async fn descriptor(
    get: &Arc<GetUnderWay>,
    layout: Option<Layout>,
    selection: Selection,
    events: &mpsc::Sender<Event>,
) -> Result<Summary, ApiError> {
    let file = tempfile::tempfile_in(get.service.home.data());
    let spool = Spool::into_empty(file.map_err(|error| words::io("use", get.service.home.data(), &error))?);
    let _end = FailOnDrop(Arc::clone(&spool));
    let (reader, listener) = (spool.reader(), events.clone());
    let telling = tokio::task::spawn_blocking(move || entries(reader, selection, &listener));
    let session = Session::start(Arc::clone(&get.for_tree), get.context.clone(), get.config);
    let target = Arc::clone(&spool) as Arc<dyn Target>;
    let fetched = session.fetch(get.request(target, layout, Group::default())).await;
    let fetched = fetched.inspect_err(|_| spool.fail());
    let told = telling.await.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    let fetched = fetched.map_err(|error| words::fetch(&error))?;
    let (mut summary, missing) = told?;
    missing.tell(events, &mut summary, true).await?;
    summarize(&session.progress().snapshot(), &mut summary);
    summary.oid = fetched.oid.to_string();
    Ok(summary)
}

/// Tells the entries of a descriptor that are wanted.
fn entries(
    reader: SpoolReader,
    mut selection: Selection,
    events: &mpsc::Sender<Event>,
) -> Result<(Summary, Missing), ApiError> {
    let mut summary = Summary::default();
    decode(reader, |step| {
        let Some(located) = step else { return Ok(()) };
        let Some(entry) = wanted(&mut selection, &located.event).map_err(|error| words::file(&error))? else {
            return Ok(());
        };
        summary.entries += 1;
        summary.bytes = summary.bytes.saturating_add(entry.size.unwrap_or(0));
        events.blocking_send(Event::Entry(entry)).map_err(|_| gone())
    })?;
    Ok((summary, Missing::of(&selection)))
}

/// The entry that an event begins, if it is wanted and not the root.
fn wanted(selection: &mut Selection, event: &tree::Event) -> Result<Option<ListedEntry>, FileError> {
    let (tree::Event::Enter(entry) | tree::Event::Leaf(entry)) = event else {
        return selection.next(event).map(|_| None);
    };
    let is_root = selection.depth() == 0;
    let path = if is_root { RelPath::root() } else { selection.at().join(&entry.name)? };
    let is_wanted = selection.next(event)?.is_some() && !is_root;
    Ok(is_wanted.then(|| listed(os_path(path.as_bytes()), entry)))
}

/// Nobody listens any more.
fn gone() -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "nobody reads the list any more")
}

fn listed(path: PathBuf, entry: &Entry) -> ListedEntry {
    let left_out = matches!(entry.kind, Kind::File { oid: Some(LEFT_OUT), .. });
    let (kind, size, target) = match &entry.kind {
        Kind::Directory => (EntryKind::Directory, None, None),
        Kind::File { size, .. } => (EntryKind::File, Some(*size).filter(|_| !left_out), None),
        Kind::Symlink { target } => (EntryKind::Symlink, None, Some(os_path(target))),
        Kind::Fifo => (EntryKind::Fifo, None, None),
        Kind::Socket => (EntryKind::Socket, None, None),
        Kind::CharDevice { .. } => (EntryKind::CharDevice, None, None),
        Kind::BlockDevice { .. } => (EntryKind::BlockDevice, None, None),
    };
    let (mode, modified) = (Some(entry.metadata.mode), Some(file_time(entry.metadata.modified)));
    ListedEntry { path, kind, mode, size, modified, target, left_out }
}

const fn file_time(time: Time) -> FileTime {
    FileTime { seconds: time.seconds, nanos: time.nanos }
}

#[cfg(test)]
mod tests {
    use towpath_content::tree::Encoder;

    use super::*;
    use crate::get_tree::tests::{entry, sender, service};

    #[tokio::test(flavor = "multi_thread")]
    async fn what_the_sender_left_out_is_listed_as_that() {
        let folder = tempfile::tempdir().unwrap();
        let mut encoder = Encoder::with_content(false);
        let left_out = Kind::File { size: 0, oid: Some(LEFT_OUT), extents: None };
        encoder.push(&tree::Event::Enter(entry("", Kind::Directory))).unwrap();
        encoder.push(&tree::Event::Leaf(entry("a", left_out))).unwrap();
        encoder.push(&tree::Event::Leaf(entry("b", Kind::Fifo))).unwrap();
        encoder.push(&tree::Event::Leave).unwrap();
        let (_sender, ticket) = sender(&folder, &encoder.finish().unwrap()).await;
        let request = GetRequest { ticket, timeout: 5, list: true, ..GetRequest::default() };
        let (events, mut inbox) = mpsc::channel(64);
        let summary = list(&service(&folder, "receiver"), &request, events).await.unwrap();
        assert_eq!((summary.entries, summary.bytes, summary.failed), (2, 0, 0));
        let mut told = Vec::new();
        while let Some(event) = inbox.recv().await {
            if let Event::Entry(ListedEntry { path, kind, size, left_out, .. }) = event {
                told.push((path, kind, size, left_out));
            }
        }
        let expected =
            [("a".into(), EntryKind::File, None, true), ("b".into(), EntryKind::Fifo, None, false)];
        assert_eq!(told, expected);
    }
}
