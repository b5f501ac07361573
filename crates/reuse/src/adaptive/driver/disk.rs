//! The driver's side of the disk: operations as the search's thread takes them, their results as events of the
//! scheduler, and the finds on their way to the session.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::mpsc;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::tree::Time;
use towpath_disk_search::scope::Mounts;
use towpath_disk_search::{
    self as disk_search, Candidate, FinishedOperation, FoundChunk, InFlight, Manner, Occasion, SearchRules,
};
use towpath_store::Stamp;
use towpath_transfer::source::Sink;
use towpath_transfer::want::Payload;
use towpath_transfer::{Delivery, Origin, Tag, WantId};

use super::{Driver, DriverMessage, Search};
use crate::adaptive::event::{End, Event};
use crate::adaptive::heuristics::File;
use crate::adaptive::operations::{OperationId, PlannedOperation, Span};
use crate::adaptive::paths::SplitDirectory;
use towpath_transfer::SourceId;

/// Directories that were listed, remembered by device and inode so that none is listed twice.
const LISTED: usize = 1 << 18;

/// An operation on the disk.
pub(super) struct RunningOperation {
    id: OperationId,
    /// Of a CACHE-CHECK: what is looked up. Of a CACHE-READ: how many chunks.
    tags: Vec<Tag>,
    /// Of a STAT: device and inode of the directory, once the first part has come.
    lists: Option<(u64, u64)>,
}

/// Wanted chunks, by their hashes: read by the search's thread.
pub(super) type ByHash = Arc<RwLock<HashMap<ChunkHash, (Tag, u32)>>>;

/// Finds on their way to the session, at most; the search's budget bounds their bytes.
pub(super) const FINDINGS: usize = 256;
/// Finds of the disk, on their way to the session. The driver must not wait for the session, which waits for it: it hears
/// of nothing that the disk does while there is no place.
pub(super) type Finds = mpsc::Sender<Finding>;
/// Chunks, each with who takes it, that are counted as on their way until they have come.
pub(super) type Finding = (Vec<GivenChunk>, InFlight);

/// A chunk for a call.
pub(super) struct GivenChunk {
    call: u64,
    sink: Arc<dyn Sink>,
    delivery: Delivery,
}

/// Rules for the search's thread.
pub(super) fn rules(search: &Search, by_hash: &ByHash, mounts: &Arc<Mounts>) -> SearchRules {
    let by_hash = Arc::clone(by_hash);
    let (scope, mounts) = (search.scope.clone(), Arc::clone(mounts));
    SearchRules {
        wanted: Arc::new(move |hash| {
            by_hash.read().unwrap_or_else(PoisonError::into_inner).get(hash).map(|(_, len)| *len)
        }),
        may_use: Arc::new(move |path| scope.covers(path, &mounts)),
        leave_out: Arc::clone(&search.leave_out),
    }
}

/// The disk's next event, once there is a place for what it may have found. Cancel-safe.
pub(super) async fn next_event(
    events: &mut mpsc::Receiver<disk_search::DiskEvent>,
    finds: &Finds,
) -> Option<disk_search::DiskEvent> {
    let _place = finds.reserve().await.ok()?;
    events.recv().await
}

/// Hands what is found to the session, one by one.
pub(super) async fn deliver_all(
    mut found: mpsc::Receiver<Finding>,
    messages: mpsc::WeakUnboundedSender<DriverMessage>,
) {
    while let Some((chunks, held)) = found.recv().await {
        let mut given = Vec::with_capacity(chunks.len());
        for GivenChunk { call, sink, delivery } in chunks {
            given.push((delivery.tag, call));
            sink.deliver(delivery).await;
        }
        drop(held);
        if let Some(messages) = messages.upgrade() {
            // It ends only with this task.
            let _ = messages.send(DriverMessage::Given(given));
        }
    }
}

impl Driver {
    /// Hands an operation to the disk; false if it cannot be done.
    pub(super) fn start(&mut self, id: OperationId, operation: PlannedOperation, is_wide: bool) -> bool {
        match &operation {
            PlannedOperation::Stat(directory) => tracing::debug!(path = ?directory.path(), "lists"),
            PlannedOperation::Hash(file) => {
                tracing::debug!(path = ?file.directory.path().join(path_of(&file.name)), bytes = file.size, "hashes");
            }
            PlannedOperation::Check(_) | PlannedOperation::Read { .. } => {}
        }
        let (operation, tags) = match operation {
            PlannedOperation::Check(mut tags) => {
                tags.retain(|tag| self.open.contains_key(tag));
                let hashes = tags.iter().filter_map(|tag| self.hash(*tag)).collect();
                (disk_search::Operation::CacheCheck(hashes), tags)
            }
            PlannedOperation::Read { spans, .. } => {
                let located =
                    |span: &Span| Some((self.hash(span.tag)?, self.located.get(&span.tag)?.clone()));
                let chunks: Vec<_> = spans.iter().filter_map(located).collect();
                (disk_search::Operation::CacheRead(chunks), spans.iter().map(|span| span.tag).collect())
            }
            PlannedOperation::Hash(file) => match self.hash_operation(&file) {
                Some(operation) => (operation, Vec::new()),
                None => return false,
            },
            PlannedOperation::Stat(directory) => {
                (disk_search::Operation::Stat(self.directory(directory.path())), Vec::new())
            }
        };
        let manner = if is_wide { Manner::Gently } else { Manner::AtOnce };
        match self.executor.submit_as(manner, operation) {
            Ok(submitted) => {
                self.running.insert(submitted, RunningOperation { id, tags, lists: None });
                true
            }
            Err(_full) => false,
        }
    }

    fn hash(&self, tag: Tag) -> Option<ChunkHash> {
        match &self.open.get(&tag)?.want.id {
            WantId::Chunk { hash, .. } => Some(ChunkHash(*hash)),
            WantId::Piece { .. } | WantId::Block { .. } => None,
        }
    }

    /// A file is cut as most of the wanted chunks are, or as its own size suggests if some are cut so.
    fn hash_operation(&self, file: &File) -> Option<disk_search::Operation> {
        let usual = Parameters::for_size(file.size);
        let is_usual = |(parameters, _): &&(Parameters, usize)| Some(*parameters) == usual;
        let most = || self.cuts.iter().max_by_key(|(_, count)| *count);
        let (parameters, _) = *self.cuts.iter().find(is_usual).or_else(most)?;
        let dir: Arc<Path> = file.directory.path().into();
        let name = path_of(&file.name).into_os_string();
        let stamp = Stamp::of_path(&dir.join(&name)).ok()?;
        let candidate = Candidate { dir, name, stamp };
        let path = candidate.path();
        let occasion = match () {
            () if self.destinations.contains_key(&path) => Occasion::Replaced,
            () if self.promised.contains(&*path) => Occasion::Again,
            () => Occasion::New,
        };
        Some(disk_search::Operation::Hash { candidate, parameters, occasion })
    }

    /// A directory, with the file system that the search came from into it.
    fn directory(&self, path: PathBuf) -> disk_search::DirectoryId {
        let above = self.mounts.iter().filter(|(begin, _)| path.starts_with(begin));
        let nearest = above.max_by_key(|(begin, _)| begin.as_os_str().len());
        match nearest {
            Some((begin, directory)) if *begin != path => {
                disk_search::DirectoryId { path: path.into(), mount: directory.mount }
            }
            _ => disk_search::DirectoryId::start(&path),
        }
    }

    pub(super) fn searched(&mut self, event: disk_search::DiskEvent) {
        match event {
            disk_search::DiskEvent::Listed { id, listing } => self.listed(id, listing),
            disk_search::DiskEvent::Found { id, chunks, held } => self.found(id, chunks, held),
            disk_search::DiskEvent::Ended { id, result, cost } => {
                let Some(RunningOperation { id, tags, .. }) = self.running.remove(&id) else { return };
                let end = match result {
                    Ok(finished) => self.finished(finished, &tags, cost.bytes),
                    Err(error) => {
                        tracing::debug!(%error, "a search's operation came to nothing");
                        End::Failed
                    }
                };
                self.feed(Event::Completed { operation: id, took: cost.time, end });
            }
        }
    }

    fn listed(&mut self, id: disk_search::OperationId, listing: disk_search::Listing) {
        let Some(running) = self.running.get_mut(&id) else { return };
        let operation = running.id;
        if running.lists.replace(listing.identity).is_none()
            && self.listed.len() < LISTED
            && !self.listed.insert(listing.identity)
        {
            return self.executor.cancel(id);
        }
        for directory in &listing.directories {
            let parent = directory.path.parent();
            let begin = self.mounts.iter_mut().find(|(begin, _)| Some(begin.as_path()) == parent);
            if let Some((_, begin)) = begin {
                begin.mount = directory.mount;
            }
        }
        let files = listing.files.iter().map(|candidate| {
            let modified = Some(candidate.stamp.modified());
            file(&candidate.path(), candidate.stamp.size, modified)
        });
        let below = listing.directories.iter().filter(|directory| self.search.scope.enters(&directory.path));
        let names = below.filter_map(|directory| directory.path.file_name());
        let directories = names.map(|name| name.as_bytes().into()).collect();
        let files = files.collect();
        self.feed(Event::Listed { operation, files, directories });
    }

    fn found(&mut self, id: disk_search::OperationId, chunks: Vec<FoundChunk>, held: InFlight) {
        let Some(operation) = self.running.get(&id).map(|it| it.id) else { return };
        let found: Vec<_> = chunks.into_iter().flat_map(|chunk| self.take(chunk)).collect();
        let tags = found.iter().map(|given| given.delivery.tag).collect();
        // There is a place, and the task ends only with this one.
        let _ = self.finds.try_send((found, held));
        self.feed(Event::Found { operation, tags });
    }

    /// A chunk that was found, with each who takes it.
    fn take(&mut self, chunk: FoundChunk) -> Vec<GivenChunk> {
        let tags: Vec<Tag> = self.take_named(&chunk.hash).collect();
        tags.into_iter().filter_map(|tag| self.give(tag, &chunk)).collect()
    }

    fn give(&mut self, tag: Tag, chunk: &FoundChunk) -> Option<GivenChunk> {
        let open = self.open.get_mut(&tag)?;
        open.is_given = true;
        if let Some(Origin { oid, offset }) = open.want.origin {
            self.neighbours.found(&oid, offset, open.want.id.len(), chunk.position.clone());
        }
        let (call, sink) = (open.call, Arc::clone(&self.calls.get(&open.call)?.sink));
        let now = Instant::now();
        let delivery = Delivery {
            tag,
            payload: Payload::Hashed(chunk.bytes.clone()),
            proof: None,
            source: SourceId::this_machine(),
            timing: (now, now),
            saved: 0,
        };
        Some(GivenChunk { call, sink, delivery })
    }

    fn finished(&mut self, finished: FinishedOperation, tags: &[Tag], bytes: u64) -> End {
        match finished {
            FinishedOperation::Stat => End::Listed,
            FinishedOperation::Hash(_) => End::Hashed { bytes },
            FinishedOperation::CacheRead(_) => End::Read { chunks: tags.len() as u64 },
            FinishedOperation::CacheCheck(places) => {
                let mut by_file: HashMap<Arc<Path>, (u64, Vec<Span>)> = HashMap::new();
                for (tag, place) in tags.iter().zip(places) {
                    let Some(place) = place.filter(|_| self.open.contains_key(tag)) else { continue };
                    let (_, spans) =
                        by_file.entry(Arc::clone(&place.path)).or_insert((place.stamp.size, Vec::new()));
                    spans.push(Span { tag: *tag, offset: place.offset });
                    if self.promised.len() < LISTED {
                        self.promised.insert(Arc::clone(&place.path));
                    }
                    self.located.insert(*tag, place);
                }
                let files = by_file.into_iter();
                End::Checked(
                    files.map(|(path, (size, spans))| (Arc::new(file(&path, size, None)), spans)).collect(),
                )
            }
        }
    }
}

/// A file as the heuristics know it.
pub(super) fn file(path: &Path, size: u64, modified: Option<Time>) -> File {
    let name = path.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    let directory = SplitDirectory::new(path.parent().unwrap_or(path));
    File { directory, name: name.into(), size, modified }
}

pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn nothing_is_heard_of_the_disk_while_the_session_is_behind() {
        let (finds, _found) = mpsc::channel(1);
        let (disk, mut events) = mpsc::channel(1);
        drop(disk);
        let mut poll =
            || pin!(next_event(&mut events, &finds)).poll(&mut Context::from_waker(Waker::noop())).map(drop);
        let place = finds.try_reserve().unwrap();
        assert_eq!(poll(), Poll::Pending);
        drop(place);
        assert_eq!(poll(), Poll::Ready(()), "the disk has no more to tell");
    }
}
