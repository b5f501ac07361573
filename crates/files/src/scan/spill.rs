//! Sorted runs of names on disk, for directories with more names than memory is meant for.
//!
//! All directories of a scan share one scratch file without a name. It is used as a stack:
//! directories are left in the reverse order of being entered, and leaving one cuts off its runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Runs merged at once; with [`BLOCK`] this bounds the memory of a merge.
const FAN_IN: usize = 64;
/// Bytes read from a run, or written, at once.
const BLOCK: usize = 8 * 1024;

/// The scratch file.
#[derive(Debug)]
pub(super) struct Spill {
    dir: PathBuf,
    file: Option<File>,
    end: u64,
}

/// Position of a sorted run: names, each after a byte with its length.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpillRun {
    at: u64,
    end: u64,
}

impl Spill {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf(), file: None, end: 0 }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Begin of the next run.
    pub(super) const fn mark(&self) -> u64 {
        self.end
    }

    /// Forgets everything written since `mark`.
    pub(super) fn cut(&mut self, mark: u64) {
        if mark < self.end {
            self.end = mark;
            // Left-over bytes cost space only, and are written over.
            let _ = self.file.as_ref().map(|file| file.set_len(mark));
        }
    }

    /// Writes names that are sorted already.
    pub(super) fn write<'n>(&mut self, names: impl Iterator<Item = &'n [u8]>) -> io::Result<SpillRun> {
        let mut writer = RunWriter::start(self)?;
        for name in names {
            writer.push(name)?;
        }
        writer.finish()
    }

    /// Merges runs until one is left.
    pub(super) fn merge_all(&mut self, mut runs: Vec<SpillRun>) -> io::Result<Option<SpillRun>> {
        while runs.len() > 1 {
            let rest = runs.split_off(runs.len().min(FAN_IN));
            let merged = self.merge(&runs)?;
            runs = rest;
            runs.push(merged);
        }
        Ok(runs.pop())
    }

    fn merge(&mut self, runs: &[SpillRun]) -> io::Result<SpillRun> {
        let mut readers: Vec<RunReader> = runs.iter().map(|&run| RunReader::new(run)).collect();
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (index, reader) in readers.iter_mut().enumerate() {
            heap.extend(reader.next(self)?.map(|name| Reverse((name.to_vec(), index))));
        }
        let mut writer = RunWriter::start(self)?;
        while let Some(Reverse((mut name, index))) = heap.pop() {
            writer.push(&name)?;
            if let Some(next) = readers[index].next(writer.spill)? {
                name.clear();
                name.extend_from_slice(next);
                heap.push(Reverse((name, index)));
            }
        }
        writer.finish()
    }

    fn opened(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            self.file = Some(nameless(&self.dir)?);
        }
        self.file.as_ref().ok_or_else(|| io::Error::from(Errno::BADF))
    }
}

/// Appends one run.
struct RunWriter<'s> {
    spill: &'s mut Spill,
    at: u64,
    pending: Vec<u8>,
}

impl<'s> RunWriter<'s> {
    fn start(spill: &'s mut Spill) -> io::Result<Self> {
        spill.opened()?;
        Ok(Self { at: spill.end, spill, pending: Vec::with_capacity(BLOCK + 256) })
    }

    fn push(&mut self, name: &[u8]) -> io::Result<()> {
        self.pending.push(name.len() as u8);
        self.pending.extend_from_slice(name);
        if self.pending.len() >= BLOCK { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> io::Result<()> {
        let end = self.spill.end;
        self.spill.opened()?.write_all_at(&self.pending, end)?;
        self.spill.end += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<SpillRun> {
        self.write_out()?;
        Ok(SpillRun { at: self.at, end: self.spill.end })
    }
}

/// Reads one run.
#[derive(Debug)]
pub(super) struct RunReader {
    run: SpillRun,
    block: Vec<u8>,
    at: usize,
}

impl RunReader {
    pub(super) const fn new(run: SpillRun) -> Self {
        Self { run, block: Vec::new(), at: 0 }
    }

    /// The next name, until the run ends.
    pub(super) fn next(&mut self, spill: &Spill) -> io::Result<Option<&[u8]>> {
        if self.at == self.block.len() && self.run.at == self.run.end {
            return Ok(None);
        }
        self.have(spill, 1)?;
        let len = usize::from(self.block[self.at]);
        self.have(spill, 1 + len)?;
        let start = self.at + 1;
        self.at = start + len;
        Ok(Some(&self.block[start..self.at]))
    }

    /// Makes sure that `need` bytes are in the block.
    fn have(&mut self, spill: &Spill, need: usize) -> io::Result<()> {
        if self.block.len() - self.at >= need {
            return Ok(());
        }
        self.block.drain(..self.at);
        self.at = 0;
        let old = self.block.len();
        let more = (BLOCK as u64).min(self.run.end - self.run.at) as usize;
        self.block.resize(old + more, 0);
        let file = spill.file.as_ref().ok_or_else(|| io::Error::from(Errno::BADF))?;
        file.read_exact_at(&mut self.block[old..], self.run.at)?;
        self.run.at += more as u64;
        if self.block.len() < need { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// A file in `dir` that has no name and vanishes with this process.
fn nameless(dir: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(CWD, dir, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => unlinked(dir),
        opened => Ok(File::from(opened?)),
    }
}

fn unlinked(dir: &Path) -> io::Result<File> {
    let dir = crate::confine::open_root(dir)?;
    let mut bytes = [0; 8];
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    let name = format!(".tow-scan-{:016x}", u64::from_ne_bytes(bytes));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&dir, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    unlinkat(&dir, name.as_str(), rustix::fs::AtFlags::empty())?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(spill: &Spill, run: SpillRun) -> Vec<Vec<u8>> {
        let mut reader = RunReader::new(run);
        std::iter::from_fn(|| reader.next(spill).unwrap().map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn more_runs_than_are_merged_at_once_become_one() {
        let tmp = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(tmp.path());
        let name = |i: usize| format!("{:0width$}", i, width = 4 + i % 250).into_bytes();
        let runs = (0..FAN_IN * 3 + 5).map(|run| {
            let mut names: Vec<_> = (0..40).map(|i| name(i * 997 + run)).collect();
            names.sort();
            spill.write(names.iter().map(Vec::as_slice)).unwrap()
        });
        let runs: Vec<SpillRun> = runs.collect();
        let mut wanted: Vec<_> = runs.iter().flat_map(|&run| names_of(&spill, run)).collect();
        wanted.sort();
        let merged = spill.merge_all(runs).unwrap().unwrap();
        assert_eq!(names_of(&spill, merged), wanted);
    }

    #[test]
    fn what_is_cut_off_is_used_again() {
        let tmp = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(tmp.path());
        let outer = spill.write([&b"outer"[..]].into_iter()).unwrap();
        let mark = spill.mark();
        spill.write([&b"inner"[..]].into_iter()).unwrap();
        spill.cut(mark);
        let next = spill.write([&b"next"[..]].into_iter()).unwrap();
        assert_eq!(next.at, mark);
        assert_eq!(
            (names_of(&spill, outer), names_of(&spill, next)),
            (vec![b"outer".to_vec()], vec![b"next".to_vec()])
        );
    }

    #[test]
    fn the_scratch_file_leaves_no_name() {
        let tmp = tempfile::tempdir().unwrap();
        for file in [nameless(tmp.path()).unwrap(), unlinked(tmp.path()).unwrap()] {
            file.write_all_at(b"x", 0).unwrap();
            assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
        }
    }
}
