//! HASH: a file read once, cut and hashed; what is wanted is handed out, all of it indexed.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::pieces::Layout;
use towpath_content::recipe::Descriptor;
use towpath_store::disk::chunk_index::{CutChunk, CutFile};
use towpath_store::{DiskStore, FileRecord, Hashed, StoreError, cut_and_hash_open_file, cut_open_file};

use super::stat::Candidate;
use super::{
    Cancel, Cost, DiskMeter, FilePosition, FoundChunk, Give, SearchError, SearchedChunk, gentle, open,
};

/// Chunks of one file that are indexed, 48 bytes of memory each. A file that has more is searched each time.
const MAX_INDEXED: usize = 1 << 19;
/// Bytes that are handed out at a time, if chunks are shorter.
const BATCH: u64 = 1 << 20;

/// Known facts about a file that is hashed, and uses of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// It is read unless it was cut like this before: its chunks are found by
    /// [`cache_check`](super::cache_check).
    New,
    /// It is read even if the index knows all its chunks: many of them are found sooner so.
    Again,
    /// It is about to be replaced: nothing of it is indexed, unless it is little.
    Replaced,
}

/// Outcome of hashing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashOutcome {
    /// It was read, and is in the index now.
    Read,
    /// It was cut like this before and has not changed: the index knows all its chunks, and the file was
    /// not read.
    Indexed,
}

/// Cuts the file with `parameters`, hands out what is `wanted` of it, and indexes chunks and content.
///
/// A hash that is wanted is compared with each chunk's and, if the object would be of one piece, with that
/// of the whole file.
pub fn hash(
    store: &DiskStore,
    candidate: &Candidate,
    parameters: &Parameters,
    occasion: Occasion,
    wanted: &SearchedChunk,
    cancel: &Cancel,
    give: &mut Give<'_>,
) -> (Result<HashOutcome, SearchError>, Cost) {
    let meter = DiskMeter::start();
    let file = FilePosition { path: candidate.path().into(), offset: 0, size: candidate.stamp.size };
    let mut pass =
        Pass { wanted, cancel, give, meter, file, chunks: Vec::new(), is_indexed: true, is_refused: false };
    let result = pass.run(store, candidate, parameters, occasion);
    (result, pass.meter.stop())
}

struct Pass<'a, 'g> {
    wanted: &'a SearchedChunk,
    cancel: &'a Cancel,
    give: &'a mut Give<'g>,
    meter: DiskMeter,
    /// The file's first byte.
    file: FilePosition,
    chunks: Vec<CutChunk>,
    /// Its chunks go to the index.
    is_indexed: bool,
    /// Nobody takes what is found any more.
    is_refused: bool,
}

impl Pass<'_, '_> {
    fn run(
        &mut self,
        store: &DiskStore,
        candidate: &Candidate,
        parameters: &Parameters,
        occasion: Occasion,
    ) -> Result<HashOutcome, SearchError> {
        self.cancel.check()?;
        let path = candidate.path();
        let (file, stamp) = open::regular(&path)?;
        self.meter.cost.stats += 1;
        if stamp.dev != candidate.stamp.dev {
            return Err(SearchError::OtherFileSystem(path));
        }
        let index = store.chunk_index();
        let is_known = || index.is_cut(&path, &stamp, parameters).map_err(SearchError::Index);
        if occasion == Occasion::New && is_known()? {
            return Ok(HashOutcome::Indexed);
        }
        self.is_indexed = occasion != Occasion::Replaced || is_one_piece(stamp.size);
        if !self.is_indexed {
            let cut = cut_open_file(&file, &path, parameters, &mut |run, bytes| self.take(run, bytes));
            return self.ended(cut).map(|_| HashOutcome::Read);
        }
        let hashed =
            cut_and_hash_open_file(&file, &path, parameters, &mut |run, bytes| self.take(run, bytes));
        let hashed = self.ended(hashed)?;
        self.take_whole(&file, &hashed)?;
        // Others wait for whoever writes to the index.
        gentle::pausing(|| self.record(store, candidate, parameters, hashed))
    }

    /// The index learns the file and its chunks.
    fn record(
        &self,
        store: &DiskStore,
        candidate: &Candidate,
        parameters: &Parameters,
        hashed: Hashed,
    ) -> Result<HashOutcome, SearchError> {
        let (path, index) = (candidate.path(), store.chunk_index());
        let Hashed { stamp, settled, .. } = hashed;
        if self.chunks.len() < MAX_INDEXED {
            let cut = CutFile { path: &path, stamp, settled, parameters: *parameters, chunks: &self.chunks };
            index.record_chunks(&cut).map_err(SearchError::Index)?;
        }
        let record = FileRecord::new(&candidate.dir, &candidate.name, hashed);
        store.remember(&[record]).map_err(SearchError::Index)?;
        Ok(HashOutcome::Read)
    }

    /// Result of reading it.
    fn ended<T>(&self, result: Result<T, StoreError>) -> Result<T, SearchError> {
        self.cancel.check()?;
        if self.is_refused {
            return Err(SearchError::Cancelled);
        }
        result.map_err(|error| match error {
            StoreError::SourceChanged { path } => SearchError::Changed(path),
            StoreError::Io { source, .. } => {
                SearchError::Unreadable { path: self.file.path.to_path_buf(), source }
            }
            other => SearchError::Index(other),
        })
    }

    /// Takes a run of chunks, with the bytes that were just hashed.
    fn take(&mut self, run: &[Descriptor], bytes: &[u8]) -> io::Result<()> {
        if self.cancel.is_cancelled() {
            return Err(ended());
        }
        self.meter.cost.chunks += run.len() as u64;
        self.meter.cost.bytes += run.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>();
        let room = if self.is_indexed { MAX_INDEXED - self.chunks.len() } else { 0 };
        let chunk = |found: &Descriptor| CutChunk { hash: found.hash, offset: found.offset, len: found.len };
        self.chunks.extend(run.iter().take(room).map(chunk));
        let start = run.first().map_or(0, |first| first.offset);
        let number = |chunk: &Descriptor| chunk.offset / BATCH;
        for batch in run.chunk_by(|a, b| number(a) == number(b)) {
            let found = self.found_in(batch, bytes, start);
            if !found.is_empty() && !self.hand_out(found) {
                return Err(ended());
            }
        }
        Ok(())
    }

    /// The wanted ones of some chunks; `bytes` lie at `start` of the file. Those that follow each other share memory.
    fn found_in(&self, chunks: &[Descriptor], bytes: &[u8], start: u64) -> Vec<FoundChunk> {
        // A chunk that the file repeats is handed out once, if whoever wants it is informed in time.
        let mut given = HashSet::with_capacity(chunks.len());
        let wanted = chunks
            .iter()
            .filter(|chunk| (self.wanted)(&chunk.hash) == Some(chunk.len) && given.insert(chunk.hash));
        let wanted: Vec<&Descriptor> = wanted.collect();
        let runs = wanted.chunk_by(|a, b| a.offset + u64::from(a.len) == b.offset);
        let mut found = Vec::with_capacity(wanted.len());
        for run in runs {
            let len = run.iter().map(|chunk| chunk.len as usize).sum::<usize>();
            let at = run.first().map_or(0, |first| first.offset);
            let from = (at - start) as usize;
            let memory = Bytes::copy_from_slice(&bytes[from..from + len]);
            found.extend(run.iter().map(|chunk| {
                let from = (chunk.offset - at) as usize;
                let position = FilePosition { offset: chunk.offset, ..self.file.clone() };
                FoundChunk {
                    hash: chunk.hash,
                    bytes: memory.slice(from..from + chunk.len as usize),
                    position,
                }
            }));
        }
        found
    }

    /// The whole file, if it is an object of one piece and was not cut into one chunk: handed out if it is
    /// wanted, and indexed with the chunks.
    fn take_whole(&mut self, file: &File, hashed: &Hashed) -> Result<(), SearchError> {
        let Some(whole) = whole_as_chunk(hashed, self.chunks.len()) else { return Ok(()) };
        self.chunks.push(whole);
        let CutChunk { hash, len, .. } = whole;
        if (self.wanted)(&hash) != Some(len) {
            return Ok(());
        }
        let found = warm(file, &self.file, &Descriptor { hash, len, offset: 0 });
        let is_taken = found.is_none_or(|chunk| self.hand_out(vec![chunk]));
        if is_taken { Ok(()) } else { Err(SearchError::Cancelled) }
    }

    fn hand_out(&mut self, found: Vec<FoundChunk>) -> bool {
        let give = &mut self.give;
        self.is_refused = !self.meter.aside(|| give(found));
        !self.is_refused
    }
}

/// A file that would be an object of one piece, as a chunk of its own, so that who wants that object finds
/// it by its name; none if it was cut into one chunk, which is the same.
pub fn whole_as_chunk(hashed: &Hashed, chunks: usize) -> Option<CutChunk> {
    let size = hashed.stamp.size;
    let len = u32::try_from(size).ok().filter(|_| is_one_piece(size) && chunks > 1)?;
    Some(CutChunk { hash: ChunkHash(*hashed.oid.digest()), offset: 0, len })
}

fn is_one_piece(size: u64) -> bool {
    Layout::of(size).is_ok_and(|layout| layout.count() == 1)
}

/// The bytes of a chunk that was read a moment ago. They are compared again, since they are another copy of what
/// may be changing.
fn warm(file: &File, start: &FilePosition, chunk: &Descriptor) -> Option<FoundChunk> {
    let mut bytes = vec![0; chunk.len as usize];
    file.read_exact_at(&mut bytes, chunk.offset).ok()?;
    let position = FilePosition { offset: chunk.offset, ..start.clone() };
    let found = FoundChunk { hash: chunk.hash, bytes: Bytes::from(bytes), position };
    (ChunkHash::of(&found.bytes) == chunk.hash).then_some(found)
}

fn ended() -> io::Error {
    io::ErrorKind::Interrupted.into()
}
