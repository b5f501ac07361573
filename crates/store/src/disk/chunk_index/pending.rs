//! Cuts not written down yet: found all the same, and bounded.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_content::chunking::Parameters;

use super::entry::{self, COPIES, ChunkEntry, prefix_of};
use super::{CutFile, KnownFile};
use crate::stamp::Stamp;

/// Chunks collected before they are written, some 80 bytes each. A file may exceed it once.
pub(super) const MAX_CHUNKS: usize = 1 << 16;
/// Files collected before they are written.
const MAX_CUTS: usize = 1 << 12;
/// Time that collected cuts may wait, so that a killed process loses little.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// A file whose chunks are pending.
#[derive(Debug, Clone)]
pub(super) struct Cut {
    pub(super) path: Arc<Path>,
    pub(super) stamp: Stamp,
    pub(super) settled: bool,
    pub(super) parameters: Parameters,
    /// Number of its chunks on record.
    pub(super) chunks: u64,
}

/// Files and chunks that were not written yet.
#[derive(Debug, Default)]
pub(super) struct PendingChunks {
    /// `None` in place of those that were forgotten or cut again.
    cuts: Vec<Option<Cut>>,
    by_path: HashMap<Arc<Path>, Vec<u32>>,
    /// The chunks; their `cut` is a position in `cuts`.
    entries: Vec<ChunkEntry>,
    by_prefix: HashMap<u64, Vec<u32>>,
    since: Option<Instant>,
}

impl PendingChunks {
    pub(super) fn is_empty(&self) -> bool {
        self.cuts.is_empty()
    }

    /// True if it is time to write.
    pub(super) fn is_due(&self) -> bool {
        let is_old = self.since.is_some_and(|since| since.elapsed() >= WAIT_LIMIT);
        self.entries.len() >= MAX_CHUNKS || self.cuts.len() >= MAX_CUTS || is_old
    }

    pub(super) fn add(&mut self, file: &CutFile<'_>) {
        let is_replaced = |cut: &Cut| cut.stamp != file.stamp || cut.parameters == file.parameters;
        self.forget_if(file.path, is_replaced);
        self.since.get_or_insert_with(Instant::now);
        let number = self.cuts.len() as u64;
        let before = self.entries.len();
        for chunk in file.chunks.iter().filter(|chunk| entry::fits(chunk.offset, chunk.len)) {
            let (prefix, offset, len) = (prefix_of(&chunk.hash), chunk.offset, chunk.len);
            self.insert(ChunkEntry { prefix, cut: number, offset, len });
        }
        let CutFile { path, stamp, settled, parameters, .. } = *file;
        let chunks = (self.entries.len() - before) as u64;
        let path = Arc::<Path>::from(path);
        self.by_path.entry(Arc::clone(&path)).or_default().push(number as u32);
        self.cuts.push(Some(Cut { path, stamp, settled, parameters, chunks }));
    }

    fn insert(&mut self, entry: ChunkEntry) {
        let places = self.by_prefix.entry(entry.prefix).or_default();
        let is_repeat = places.last().is_some_and(|at| self.entries[*at as usize].cut == entry.cut);
        if !is_repeat && places.len() < COPIES {
            places.push(self.entries.len() as u32);
            self.entries.push(entry);
        }
    }

    pub(super) fn find(&self, prefix: u64) -> impl Iterator<Item = ChunkEntry> {
        self.by_prefix.get(&prefix).into_iter().flatten().map(|at| self.entries[*at as usize])
    }

    pub(super) fn is_cut(&self, path: &Path, stamp: &Stamp, parameters: &Parameters) -> bool {
        let numbers = self.by_path.get(path).into_iter().flatten();
        let mut cuts = numbers.filter_map(|number| self.cuts[*number as usize].as_ref());
        cuts.any(|cut| cut.settled && cut.stamp == *stamp && cut.parameters == *parameters)
    }

    pub(super) fn forget(&mut self, path: &Path) {
        self.forget_if(path, |_| true);
    }

    fn forget_if(&mut self, path: &Path, goes: impl Fn(&Cut) -> bool) {
        for number in self.by_path.get(path).into_iter().flatten() {
            let slot = &mut self.cuts[*number as usize];
            if slot.as_ref().is_some_and(&goes) {
                *slot = None;
            }
        }
    }

    /// The files that entries speak of, by number.
    pub(super) fn files(&self) -> impl Iterator<Item = (u64, KnownFile)> {
        let file = |(number, cut): (u64, &Option<Cut>)| {
            cut.as_ref().map(|cut| (number, (Arc::clone(&cut.path), cut.stamp)))
        };
        (0..).zip(&self.cuts).filter_map(file)
    }

    /// All files, with `None` for those forgotten.
    pub(super) fn cuts(&self) -> impl Iterator<Item = Option<&Cut>> {
        self.cuts.iter().map(Option::as_ref)
    }

    /// The chunks, given the rows that their files got.
    pub(super) fn entries(&self, numbers: &[Option<u64>]) -> Vec<ChunkEntry> {
        let numbered = |entry: &ChunkEntry| {
            let cut = numbers.get(entry.cut as usize).copied().flatten()?;
            Some(ChunkEntry { cut, ..*entry })
        };
        self.entries.iter().filter_map(numbered).collect()
    }
}
