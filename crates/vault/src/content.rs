//! Plaintext that is put: cut into chunks and hashed in one pass, then read again where it is new.
//!
//! The files of a tree are one content, one behind the other. Files of at least [`LONE_FILE`] bytes begin and end with a
//! chunk, so that they are found again wherever they move; smaller ones share chunks.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use towpath_content::Oid;
use towpath_files::{FileError, RelPath, SourceTree, Stamp};

use crate::boundaries::{KeyedBoundaries, MAX_CHUNK};
use crate::error::VaultClientError;
use crate::keys::{KeySecret, VaultKeys};
use crate::summary::ChunkSummary;
use towpath_vault_format::FileId;

/// Files from this size on share no chunk with others.
pub const LONE_FILE: u64 = 16 << 10;
/// Bytes that are read at once.
const READ: usize = 1 << 20;

/// Keys by which a file's plaintext is cut and hashed.
pub struct ChunkKeys {
    boundaries: KeyedBoundaries,
    hashes: KeySecret,
}

/// Plaintext, and what it is made of.
pub trait PlainSource {
    /// Its bytes.
    fn length(&self) -> u64;

    /// All its chunks, in order. `progress` is told bytes as they are read.
    fn chunks(
        &self,
        keys: &ChunkKeys,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<ChunkSummary>, VaultClientError>;

    /// Some bytes of it.
    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, VaultClientError>;
}

impl ChunkKeys {
    /// Those of a file.
    pub fn of(keys: &VaultKeys, file: FileId) -> Self {
        Self { boundaries: KeyedBoundaries::new(&keys.boundaries(file).0), hashes: keys.plain_hashes(file) }
    }

    /// The summary of a chunk.
    pub fn summary(&self, chunk: &[u8]) -> ChunkSummary {
        ChunkSummary::of(&self.hashes.0, chunk)
    }
}

/// Cuts a run of bytes that come piece by piece.
struct RunCutter<'a> {
    keys: &'a ChunkKeys,
    buffer: Vec<u8>,
    chunks: Vec<ChunkSummary>,
}

impl<'a> RunCutter<'a> {
    fn new(keys: &'a ChunkKeys) -> Self {
        Self { keys, buffer: Vec::with_capacity(READ + MAX_CHUNK), chunks: Vec::new() }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.cut(MAX_CHUNK);
    }

    /// Ends the run: what follows begins with a chunk.
    fn end(&mut self) {
        self.cut(1);
    }

    /// Cuts while `least` bytes are there.
    fn cut(&mut self, least: usize) {
        let mut at = 0;
        while self.buffer.len() - at >= least {
            let chunk = &self.buffer[at..];
            let chunk = &chunk[..self.keys.boundaries.first_chunk(chunk)];
            self.chunks.push(self.keys.summary(chunk));
            at += chunk.len();
        }
        self.buffer.drain(..at);
    }
}

/// Plaintext in memory: a catalogue, a descriptor.
#[derive(Debug, Clone)]
pub struct MemoryContent(pub Vec<u8>);

impl PlainSource for MemoryContent {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn chunks(
        &self,
        keys: &ChunkKeys,
        _: &mut dyn FnMut(u64),
    ) -> Result<Vec<ChunkSummary>, VaultClientError> {
        let mut cutter = RunCutter::new(keys);
        cutter.add(&self.0);
        cutter.end();
        Ok(cutter.chunks)
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, VaultClientError> {
        let found = usize::try_from(at).ok().and_then(|at| self.0.get(at..at.checked_add(length)?));
        Ok(found.map(<[u8]>::to_vec).unwrap_or_default())
    }
}

/// A file of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentFile {
    /// Below the root.
    pub path: RelPath,
    /// What it looked like when it was found.
    pub stamp: Stamp,
    /// Where its bytes begin.
    pub start: u64,
}

/// The files of a tree, or one file, one behind the other.
#[derive(Debug)]
pub struct LocalContent {
    tree: SourceTree,
    files: Vec<ContentFile>,
    length: u64,
    /// Hash of each file's bytes, once all was read.
    oids: RefCell<Vec<Oid>>,
    /// The file that was read last.
    open: RefCell<Option<(usize, File)>>,
}

impl LocalContent {
    /// That of files below a root.
    pub fn new(tree: SourceTree, files: Vec<ContentFile>) -> Self {
        let length = files.last().map_or(0, |file| file.start + file.stamp.size);
        Self { tree, files, length, oids: RefCell::default(), open: RefCell::default() }
    }

    /// Hashes of the files' bytes, in order, after [`PlainSource::chunks`].
    pub fn oids(&self) -> Vec<Oid> {
        self.oids.borrow().clone()
    }

    /// Reads a file to its end, and makes sure that it is what was found.
    fn read_file(&self, file: &ContentFile, each: &mut dyn FnMut(&[u8])) -> Result<Oid, VaultClientError> {
        let shown = || file.path.below(self.tree.path());
        let failed = |error| VaultClientError::File(FileError::new("read", &shown(), error));
        let mut open = self.tree.open_file(&file.path, &file.stamp)?;
        let (mut hasher, mut buffer, mut left) = (blake3::Hasher::new(), vec![0; READ], file.stamp.size);
        while left > 0 {
            let most = READ.min(usize::try_from(left).unwrap_or(READ));
            let read = open.read(&mut buffer[..most]).map_err(failed)?;
            if read == 0 {
                return Err(VaultClientError::Changed { path: shown() });
            }
            hasher.update(&buffer[..read]);
            each(&buffer[..read]);
            left -= read as u64;
        }
        match Stamp::of(&open).map_err(failed)? == file.stamp {
            true => Ok(Oid::Blake3(*hasher.finalize().as_bytes())),
            false => Err(VaultClientError::Changed { path: shown() }),
        }
    }

    /// Fills `buffer` from `at` on within one file.
    fn read_in(&self, index: usize, at: u64, buffer: &mut [u8]) -> Result<(), VaultClientError> {
        let file = &self.files[index];
        let mut open = self.open.borrow_mut();
        let handle = match open.take() {
            Some((found, handle)) if found == index => handle,
            _ => self.tree.open_file(&file.path, &file.stamp)?,
        };
        let read = handle.read_exact_at(buffer, at - file.start);
        *open = Some((index, handle));
        read.map_err(|_| VaultClientError::Changed { path: file.path.below(self.tree.path()) })
    }
}

impl PlainSource for LocalContent {
    fn length(&self) -> u64 {
        self.length
    }

    fn chunks(
        &self,
        keys: &ChunkKeys,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<ChunkSummary>, VaultClientError> {
        let mut cutter = RunCutter::new(keys);
        let mut oids = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let is_lone = file.stamp.size >= LONE_FILE;
            if is_lone {
                cutter.end();
            }
            let mut each = |bytes: &[u8]| {
                cutter.add(bytes);
                progress(bytes.len() as u64);
            };
            oids.push(self.read_file(file, &mut each)?);
            if is_lone {
                cutter.end();
            }
        }
        cutter.end();
        *self.oids.borrow_mut() = oids;
        Ok(cutter.chunks)
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, VaultClientError> {
        let mut bytes = vec![0; length];
        let (mut at, mut done) = (at, 0);
        let mut index = self.files.partition_point(|file| file.start + file.stamp.size <= at);
        while done < length && index < self.files.len() {
            let end = self.files[index].start + self.files[index].stamp.size;
            let part = usize::try_from(end - at).unwrap_or(usize::MAX).min(length - done);
            if part > 0 {
                self.read_in(index, at, &mut bytes[done..done + part])?;
            }
            (at, done, index) = (at + part as u64, done + part, index + 1);
        }
        bytes.truncate(done);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, LocalContent) {
        let folder = tempfile::tempdir().unwrap();
        let mut start = 0;
        let mut found = Vec::new();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            let stamp = Stamp::of(&File::open(folder.path().join(name)).unwrap()).unwrap();
            found.push(ContentFile { path: RelPath::new([name]).unwrap(), stamp, start });
            start += stamp.size;
        }
        let tree = SourceTree::open(folder.path()).unwrap();
        (folder, LocalContent::new(tree, found))
    }

    fn noise(seed: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn keys() -> ChunkKeys {
        ChunkKeys { boundaries: KeyedBoundaries::new(&[1; 32]), hashes: KeySecret([2; 32]) }
    }

    #[test]
    fn chunks_cover_all_and_a_large_file_has_its_own() {
        let large = noise(1, 100_000);
        let files = [("a", noise(2, 3000)), ("b", noise(3, 0)), ("c", large.clone()), ("d", noise(4, 5000))];
        let (_folder, content) = content(&files);
        let all: Vec<u8> = files.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let mut read = 0;
        let chunks = content.chunks(&keys(), &mut |bytes| read += bytes).unwrap();
        assert_eq!((content.length(), read), (all.len() as u64, all.len() as u64));
        let mut at = 0;
        for chunk in &chunks {
            let bytes = content.read(at, chunk.length as usize).unwrap();
            assert_eq!(bytes, all[at as usize..][..bytes.len()]);
            assert_eq!(keys().summary(&bytes), *chunk);
            at += u64::from(chunk.length);
        }
        assert_eq!(at, all.len() as u64);
        let alone = MemoryContent(large.clone()).chunks(&keys(), &mut |_| ()).unwrap();
        assert!(chunks.windows(alone.len()).any(|run| run == alone), "the same chunks as by itself");
        let oid = Oid::Blake3(*blake3::hash(&large).as_bytes());
        assert_eq!(content.oids()[2], oid);
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_named() {
        let (folder, content) = content(&[("a", noise(1, 50_000))]);
        std::fs::write(folder.path().join("a"), noise(2, 40_000)).unwrap();
        assert!(content.chunks(&keys(), &mut |_| ()).is_err());
    }
}
