//! CACHE-CHECK and CACHE-READ: chunks whose place the index knows.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{Advice, fadvise};
use towpath_content::chunking::ChunkHash;
use towpath_store::disk::chunk_index::Location;
use towpath_store::{DiskStore, Stamp};

use super::{Cancel, Cost, DiskMeter, FilePosition, FoundChunk, Give, SearchError, SearchedChunk, open};

/// Number of times a chunk's position is looked up again because its file had changed.
const ROUNDS: usize = 8;
/// Files looked at between two looks at the world outside.
const CHECK_EVERY: usize = 64;
/// Bytes read at once.
const RUN: u64 = 1 << 20;
/// Bytes between two chunks that are read along: a disk that turns reads them sooner than it seeks.
const GAP: u64 = 128 << 10;
/// Reads that the kernel is told of in advance.
const AHEAD: usize = 4;

/// A chunk and where the index has it.
pub type IndexedChunks = (ChunkHash, Location);

/// Result of reading at the index's positions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadBack {
    /// Chunks that did not lie where the index had them, or in files that cannot be read now.
    pub missing: Vec<ChunkHash>,
}

/// Looks chunks up in the index, in files that `may_use` lets through, and each file's stamp on the disk.
/// Files that changed are forgotten, and what they held is looked for elsewhere.
pub fn cache_check(
    store: &DiskStore,
    hashes: &[ChunkHash],
    may_use: &dyn Fn(&Path) -> bool,
    cancel: &Cancel,
) -> (Result<Vec<Option<Location>>, SearchError>, Cost) {
    let mut meter = DiskMeter::start();
    let result = check(store, hashes, may_use, cancel, &mut meter);
    (result, meter.stop())
}

fn check(
    store: &DiskStore,
    hashes: &[ChunkHash],
    may_use: &dyn Fn(&Path) -> bool,
    cancel: &Cancel,
    meter: &mut DiskMeter,
) -> Result<Vec<Option<Location>>, SearchError> {
    let mut answers = vec![None; hashes.len()];
    let mut open_ones: Vec<usize> = (0..hashes.len()).collect();
    // Those with their stamp, and those that are passed over from now on.
    let (mut good, mut bad) = (HashSet::<Arc<Path>>::new(), HashSet::<Arc<Path>>::new());
    for _ in 0..ROUNDS {
        cancel.check()?;
        let asked: Vec<_> = open_ones.iter().map(|at| hashes[*at]).collect();
        let may_use = |path: &Path| may_use(path) && !bad.contains(path);
        let found = store.chunk_index().find_chunks(&asked, &may_use).map_err(SearchError::Index)?;
        let mut files = HashMap::<Arc<Path>, Stamp>::new();
        for location in found.iter().flatten().filter(|found| !good.contains(&found.path)) {
            files.insert(Arc::clone(&location.path), location.stamp);
        }
        for (count, (path, stamp)) in files.into_iter().enumerate() {
            if count % CHECK_EVERY == 0 {
                cancel.check()?;
            }
            meter.cost.stats += 1;
            if is_unchanged(store, &path, &stamp) {
                good.insert(path)
            } else {
                bad.insert(path)
            };
        }
        let mut stale = Vec::new();
        for (at, location) in open_ones.into_iter().zip(found) {
            match location {
                Some(location) if good.contains(&location.path) => answers[at] = Some(location),
                Some(_) => stale.push(at),
                None => {}
            }
        }
        if stale.is_empty() {
            break;
        }
        open_ones = stale;
    }
    Ok(answers)
}

/// True if a file still has its stamp. If it is another or gone it is forgotten; one that cannot be
/// looked at for another reason is only passed over.
fn is_unchanged(store: &DiskStore, path: &Path, stamp: &Stamp) -> bool {
    match open::stamp(path) {
        Ok(found) if found == *stamp => true,
        Ok(_) | Err(SearchError::Gone(_) | SearchError::Unfit(_)) => {
            forget(store, path);
            false
        }
        Err(_) => false,
    }
}

fn forget(store: &DiskStore, path: &Path) {
    if let Err(error) = store.chunk_index().forget_file(path) {
        tracing::debug!(path = %path.display(), %error, "a changed file stays in the index");
    }
}

/// Reads chunks from where the index has them, each file once and in order, and hands out those that
/// are right and `wanted` still.
pub fn cache_read(
    store: &DiskStore,
    chunks: &[IndexedChunks],
    wanted: &SearchedChunk,
    cancel: &Cancel,
    give: &mut Give<'_>,
) -> (Result<ReadBack, SearchError>, Cost) {
    let mut sorted: Vec<&IndexedChunks> = chunks.iter().collect();
    sorted.sort_by(|(_, a), (_, b)| (&a.path, a.offset).cmp(&(&b.path, b.offset)));
    let (meter, back) = (DiskMeter::start(), ReadBack::default());
    let mut reading = CachedReading { store, wanted, cancel, give, meter, back };
    let mut files = sorted.chunk_by(|(_, a), (_, b)| a.path == b.path);
    let result = files.try_for_each(|file| reading.file(file));
    (result.map(|()| reading.back), reading.meter.stop())
}

struct CachedReading<'a, 'g> {
    store: &'a DiskStore,
    wanted: &'a SearchedChunk,
    cancel: &'a Cancel,
    give: &'a mut Give<'g>,
    meter: DiskMeter,
    back: ReadBack,
}

impl CachedReading<'_, '_> {
    fn file(&mut self, chunks: &[&IndexedChunks]) -> Result<(), SearchError> {
        self.cancel.check()?;
        let Some((_, Location { path, stamp, .. })) = chunks.first() else { return Ok(()) };
        self.meter.cost.stats += 1;
        let opened = open::regular(path);
        let Some((file, _)) = opened.ok().filter(|(_, found)| found == stamp) else {
            is_unchanged(self.store, path, stamp);
            self.back.missing.extend(chunks.iter().map(|(hash, _)| *hash));
            return Ok(());
        };
        let runs = runs(chunks);
        let spans: Vec<_> = runs.iter().map(|run| span(run)).collect();
        spans.iter().take(AHEAD).for_each(|span| read_ahead(&file, span));
        let mut is_right = true;
        for (at, run) in runs.iter().enumerate() {
            self.cancel.check()?;
            if let Some(next) = spans.get(at + AHEAD) {
                read_ahead(&file, next);
            }
            is_right &= self.run(&file, run, &spans[at])?;
        }
        if !is_right {
            forget(self.store, path);
        }
        Ok(())
    }

    /// Reads neighbouring chunks at once; false if one of them was not there.
    fn run(&mut self, file: &File, run: &[&IndexedChunks], span: &Range<u64>) -> Result<bool, SearchError> {
        let is_wanted = |(hash, location): &&&IndexedChunks| (self.wanted)(hash) == Some(location.len);
        let run: Vec<_> = run.iter().filter(is_wanted).collect();
        if run.is_empty() {
            return Ok(true);
        }
        let mut buffer = vec![0; (span.end - span.start) as usize];
        if file.read_exact_at(&mut buffer, span.start).is_err() {
            self.back.missing.extend(run.iter().map(|(hash, _)| *hash));
            return Ok(false);
        }
        self.meter.cost.bytes += span.end - span.start;
        let (mut is_right, mut found) = (true, Vec::with_capacity(run.len()));
        for (hash, location) in run {
            let from = (location.offset - span.start) as usize;
            let bytes = &buffer[from..from + location.len as usize];
            self.meter.cost.chunks += 1;
            if ChunkHash::of(bytes) != *hash {
                self.back.missing.push(*hash);
                is_right = false;
                continue;
            }
            // A copy, so that a small chunk does not keep the whole run in memory.
            let position = FilePosition {
                path: Arc::clone(&location.path),
                offset: location.offset,
                size: location.stamp.size,
            };
            found.push(FoundChunk { hash: *hash, bytes: Bytes::copy_from_slice(bytes), position });
        }
        let give = &mut self.give;
        let is_taken = found.is_empty() || self.meter.aside(|| give(found));
        if is_taken { Ok(is_right) } else { Err(SearchError::Cancelled) }
    }
}

/// Parts sorted chunks of one file into runs that are read at once.
fn runs<'a, 'c>(chunks: &'a [&'c IndexedChunks]) -> Vec<&'a [&'c IndexedChunks]> {
    let mut start = chunks.first().map_or(0, |(_, first)| first.offset);
    let is_near = |(_, a): &&IndexedChunks, (_, b): &&IndexedChunks| {
        let gap = b.offset.saturating_sub(a.offset.saturating_add(a.len.into()));
        let is_near = gap <= GAP && b.offset + u64::from(b.len) - start <= RUN;
        if !is_near {
            start = b.offset;
        }
        is_near
    };
    chunks.chunk_by(is_near).collect()
}

fn span(run: &[&IndexedChunks]) -> Range<u64> {
    let start = run.first().map_or(0, |(_, first)| first.offset);
    let end = run.iter().map(|(_, chunk)| chunk.offset + u64::from(chunk.len)).max();
    start..end.unwrap_or(start)
}

/// Only a hint: without it the same bytes come a little later.
fn read_ahead(file: &File, span: &Range<u64>) {
    let _ = fadvise(file, span.start, NonZeroU64::new(span.end - span.start), Advice::WillNeed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_near_each_other_are_read_at_once() {
        let stamp = Stamp { dev: 0, ino: 0, size: 0, mtime_ns: 0, ctime_ns: 0 };
        let at = |(offset, len)| {
            (ChunkHash([0; 32]), Location { path: Path::new("/f").into(), stamp, offset, len })
        };
        type Places<'a> = &'a [(u64, u32)];
        let cases: [(Places<'_>, &[usize]); 6] = [
            (&[], &[]),
            (&[(0, 10), (10, 10), (20, 10)], &[3]),
            (&[(0, 10), (10 + GAP, 10), (30 + 2 * GAP, 10)], &[2, 1]),
            (&[(5, 16 << 20), (5 + (16 << 20), 10)], &[1, 1]),
            (&[(0, 10), (0, 10), (3, 20)], &[3]),
            (&[(0, 900_000), (900_000, 100_000), (1_000_000, 100_000)], &[2, 1]),
        ];
        for (places, expected) in cases {
            let chunks: Vec<IndexedChunks> = places.iter().copied().map(at).collect();
            let chunks: Vec<&IndexedChunks> = chunks.iter().collect();
            let found: Vec<_> = runs(&chunks).iter().map(|run| run.len()).collect();
            assert_eq!(found, expected, "{places:?}");
        }
    }
}
