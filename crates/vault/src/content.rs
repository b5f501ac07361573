//! Plaintext that is put: cut into chunks and hashed in one pass, then read again where it is new. Files that are known to be
//! unchanged are not read at all.
//!
//! The files of a tree are one content, one behind the other. Files of at least [`LONE_FILE`] bytes begin and end with a
//! chunk, so that they are found again wherever they move; smaller ones share chunks.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use towpath_content::Oid;
use towpath_files::{FileError, SourceTree, Stamp};
use towpath_vault_format::{Digest, FileId};

use crate::error::VaultClientError;
use crate::keys::{KeySecret, VaultKeys};
use crate::summary::ChunkSummary;
use crate::unchanged::{ContentFile, FileMarks, UnchangedFiles};
use towpath_vault_difference::boundaries::{KeyedBoundaries, MAX_CHUNK};
use towpath_vault_difference::chunk_list::ChunkList;

/// Files from this size on share no chunk with others.
pub const LONE_FILE: u64 = 16 << 10;
/// Bytes that are read at once.
const READ: usize = 1 << 20;

/// Keys by which a file's plaintext is cut and hashed.
pub struct ChunkKeys {
    boundaries: KeyedBoundaries,
    hashes: KeySecret,
}

/// Takes a chunk, with its bytes if they were read.
pub type TakeChunk<'a> = dyn FnMut(ChunkSummary, Option<&[u8]>) -> Result<(), VaultClientError> + 'a;

/// All chunks of a content.
pub fn chunks_of(
    source: &dyn PlainSource,
    keys: &ChunkKeys,
    progress: &mut dyn FnMut(u64),
) -> Result<ChunkList, VaultClientError> {
    let mut chunks = ChunkList::default();
    source.chunks(keys, progress, &mut |chunk, _| {
        chunks.push(chunk);
        Ok(())
    })?;
    Ok(chunks)
}

/// Plaintext, and what it is made of.
pub trait PlainSource {
    /// Its bytes.
    fn length(&self) -> u64;

    /// Gives all its chunks to `take`, in order. `progress` is told bytes as they are read.
    fn chunks(
        &self,
        keys: &ChunkKeys,
        progress: &mut dyn FnMut(u64),
        take: &mut TakeChunk<'_>,
    ) -> Result<(), VaultClientError>;

    /// Some bytes of it.
    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, VaultClientError>;
}

impl ChunkKeys {
    /// Those of a file.
    pub fn of(keys: &VaultKeys, file: FileId) -> Self {
        Self { boundaries: KeyedBoundaries::new(&keys.boundaries(file).0), hashes: keys.plain_hashes(file) }
    }

    /// The chunks that bytes begin with, which go on to `end`: as many as bytes are there for, and up to a place that is known.
    fn cut<'a>(&self, bytes: &'a [u8], end: usize, is_known: impl Fn(usize) -> bool) -> Vec<&'a [u8]> {
        let (mut chunks, mut at) = (Vec::new(), 0);
        while at == 0 || at < bytes.len() && bytes.len() - at >= MAX_CHUNK.min(end - at) && !is_known(at) {
            let length = self.boundaries.first_chunk(&bytes[at..]);
            chunks.push(&bytes[at..at + length]);
            at += length;
        }
        chunks
    }

    /// The summaries of several chunks, in less time.
    fn summaries(&self, chunks: &[&[u8]]) -> Vec<ChunkSummary> {
        ChunkSummary::of_all(&self.hashes.0, chunks)
    }

    /// The summary of a chunk.
    pub fn summary(&self, chunk: &[u8]) -> ChunkSummary {
        ChunkSummary::of(&self.hashes.0, chunk)
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
        take: &mut TakeChunk<'_>,
    ) -> Result<(), VaultClientError> {
        let mut left = &self.0[..];
        while !left.is_empty() {
            let (chunk, rest) = left.split_at(keys.boundaries.first_chunk(left));
            take(keys.summary(chunk), Some(chunk))?;
            left = rest;
        }
        Ok(())
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, VaultClientError> {
        let found = usize::try_from(at).ok().and_then(|at| self.0.get(at..at.checked_add(length)?));
        Ok(found.map(<[u8]>::to_vec).unwrap_or_default())
    }
}

/// The files of a tree, or one file, one behind the other.
#[derive(Debug)]
pub struct LocalContent {
    tree: SourceTree,
    files: Vec<ContentFile>,
    length: u64,
    /// Places that no chunk reaches over, in order; the end is one.
    borders: Vec<u64>,
    /// When the files were looked at, or before.
    seen: SystemTime,
    /// Hash of each file's bytes, once all was read.
    oids: RefCell<Vec<Oid>>,
    /// The file that was read last.
    open: RefCell<Option<(usize, File)>>,
}

impl LocalContent {
    /// That of files below a root.
    pub fn new(tree: SourceTree, files: Vec<ContentFile>, seen: SystemTime) -> Self {
        let length = files.last().map_or(0, |file| file.start + file.stamp.size);
        let borders = borders(&files, length);
        Self { tree, files, length, borders, seen, oids: RefCell::default(), open: RefCell::default() }
    }

    /// Its files, in order.
    pub fn files(&self) -> &[ContentFile] {
        &self.files
    }

    /// Marks by which its files are known again.
    pub fn marks(&self, entry: Digest, key: &KeySecret) -> FileMarks {
        FileMarks::of(entry, key, &self.files, self.seen)
    }

    /// Hashes of the files' bytes, in order, after [`PlainSource::chunks`].
    pub fn oids(&self) -> Vec<Oid> {
        self.oids.borrow().clone()
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

impl LocalContent {
    /// Some bytes of it.
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

/// A local content, of which some files need not be read.
#[derive(Debug)]
pub struct PutContent<'a> {
    /// The files.
    pub content: &'a LocalContent,
    /// What is known of them.
    pub unchanged: UnchangedFiles,
}

impl PlainSource for PutContent<'_> {
    fn length(&self) -> u64 {
        self.content.length
    }

    fn chunks(
        &self,
        keys: &ChunkKeys,
        progress: &mut dyn FnMut(u64),
        take: &mut TakeChunk<'_>,
    ) -> Result<(), VaultClientError> {
        let borders = &self.content.borders;
        let mut window = FileWindow::new(self, progress);
        let mut at = 0;
        let known = |at| self.unchanged.chunk_at(at, |place| borders.binary_search(&place).is_ok());
        while at < self.content.length {
            if let Some(chunk) = known(at) {
                take(chunk, None)?;
                at += u64::from(chunk.length);
                continue;
            }
            let border = borders[borders.partition_point(|border| *border <= at)];
            let bytes = window.bytes(at, border)?;
            let chunks =
                keys.cut(bytes, (border - at) as usize, |length| known(at + length as u64).is_some());
            for (chunk, bytes) in keys.summaries(&chunks).into_iter().zip(chunks) {
                take(chunk, Some(bytes))?;
                at += bytes.len() as u64;
            }
        }
        *self.content.oids.borrow_mut() = window.into_oids();
        Ok(())
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, VaultClientError> {
        self.content.read(at, length)
    }
}

/// Where files of [`LONE_FILE`] bytes and more begin and end, and the end of all.
fn borders(files: &[ContentFile], length: u64) -> Vec<u64> {
    let lone = files.iter().filter(|file| file.stamp.size >= LONE_FILE);
    let mut borders: Vec<u64> = lone.flat_map(|file| [file.start, file.start + file.stamp.size]).collect();
    borders.push(length);
    borders.dedup();
    borders
}

/// A file that is read to its end.
struct HashedFile {
    index: usize,
    file: File,
    hasher: blake3::Hasher,
    left: u64,
}

/// The bytes from some place on, as far as they were read. Places only rise. A file that is not known to be unchanged is read
/// and hashed from its first byte to its last.
struct FileWindow<'a, 'p> {
    put: &'a PutContent<'a>,
    progress: &'p mut dyn FnMut(u64),
    /// Where `bytes` begin.
    start: u64,
    bytes: Vec<u8>,
    open: Option<HashedFile>,
    oids: Vec<Option<Oid>>,
}

impl<'a, 'p> FileWindow<'a, 'p> {
    fn new(put: &'a PutContent<'_>, progress: &'p mut dyn FnMut(u64)) -> Self {
        let oids = (0..put.content.files.len()).map(|file| put.unchanged.oid(file)).collect();
        Self { put, progress, start: 0, bytes: Vec::with_capacity(READ + MAX_CHUNK), open: None, oids }
    }

    /// The bytes from `at` on: as many as a chunk may have, or up to `border`.
    fn bytes(&mut self, at: u64, border: u64) -> Result<&[u8], VaultClientError> {
        let wanted = (border - at).min(MAX_CHUNK as u64) as usize;
        loop {
            let gone = (at - self.start).min(self.bytes.len() as u64) as usize;
            if self.bytes.len() - gone >= wanted {
                let end = (border - self.start).min(self.bytes.len() as u64) as usize;
                return Ok(&self.bytes[gone..end]);
            }
            self.bytes.drain(..gone);
            // What lies between was known.
            self.start = if self.bytes.is_empty() { at } else { self.start + gone as u64 };
            self.read_on(wanted - self.bytes.len())?;
        }
    }

    /// Reads on in the file where the bytes end: `wanted` of a known one, more of another.
    fn read_on(&mut self, wanted: usize) -> Result<(), VaultClientError> {
        let at = self.start + self.bytes.len() as u64;
        let (content, had) = (self.put.content, self.bytes.len());
        let index = content.files.partition_point(|file| file.start + file.stamp.size <= at);
        let left = content.files[index].start + content.files[index].stamp.size - at;
        if self.put.unchanged.oid(index).is_some() {
            self.bytes.resize(had + wanted.min(usize::try_from(left).unwrap_or(wanted)), 0);
            content.read_in(index, at, &mut self.bytes[had..])?;
        } else {
            self.read_new(index)?;
        }
        (self.progress)((self.bytes.len() - had) as u64);
        Ok(())
    }

    fn read_new(&mut self, index: usize) -> Result<(), VaultClientError> {
        let (content, had) = (self.put.content, self.bytes.len());
        let ContentFile { path, stamp, .. } = &content.files[index];
        let changed = || VaultClientError::Changed { path: path.below(content.tree.path()) };
        let failed = |error| FileError::new("read", &path.below(content.tree.path()), error);
        let mut open = match self.open.take() {
            Some(open) if open.index == index => open,
            _ => {
                let file = content.tree.open_file(path, stamp)?;
                HashedFile { index, file, hasher: blake3::Hasher::new(), left: stamp.size }
            }
        };
        self.bytes.resize(had + READ.min(usize::try_from(open.left).unwrap_or(READ)), 0);
        let read = open.file.read(&mut self.bytes[had..]).map_err(failed)?;
        self.bytes.truncate(had + read);
        open.hasher.update(&self.bytes[had..]);
        open.left -= read as u64;
        match open.left {
            _ if read == 0 => return Err(changed()),
            0 if Stamp::of(&open.file).map_err(failed)? != *stamp => return Err(changed()),
            0 => self.oids[index] = Some(Oid::Blake3(*open.hasher.finalize().as_bytes())),
            _ => self.open = Some(open),
        }
        Ok(())
    }

    /// Hashes of all files. One that has none is empty.
    fn into_oids(self) -> Vec<Oid> {
        let empty = Oid::Blake3(*blake3::hash(b"").as_bytes());
        self.oids.into_iter().map(|oid| oid.unwrap_or(empty)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use towpath_files::RelPath;

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
        (folder, LocalContent::new(tree, found, SystemTime::now()))
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
        let put = PutContent { content: &content, unchanged: UnchangedFiles::default() };
        let chunks = chunks_of(&put, &keys(), &mut |bytes| read += bytes).unwrap();
        assert_eq!((put.length(), read), (all.len() as u64, all.len() as u64));
        let mut at = 0;
        for chunk in chunks.chunks() {
            let bytes = content.read(at, chunk.length as usize).unwrap();
            assert_eq!(bytes, all[at as usize..][..bytes.len()]);
            assert_eq!(keys().summary(&bytes), *chunk);
            at += u64::from(chunk.length);
        }
        assert_eq!(at, all.len() as u64);
        let alone = chunks_of(&MemoryContent(large.clone()), &keys(), &mut |_| ()).unwrap();
        assert!(
            chunks.chunks().windows(alone.chunks().len()).any(|run| run == alone.chunks()),
            "the same chunks as by itself"
        );
        let oid = Oid::Blake3(*blake3::hash(&large).as_bytes());
        assert_eq!(content.oids()[2], oid);
    }

    /// Files of a folder, one behind the other.
    fn laid_out(folder: &std::path::Path, names: &[String]) -> LocalContent {
        let (mut start, mut files) = (0, Vec::new());
        for name in names {
            let stamp = Stamp::of(&File::open(folder.join(name)).unwrap()).unwrap();
            files.push(ContentFile { path: RelPath::new([name]).unwrap(), stamp, start });
            start += stamp.size;
        }
        LocalContent::new(SourceTree::open(folder).unwrap(), files, SystemTime::now())
    }

    /// Chunks and hashes of a content, and how many bytes were read for them.
    fn cut(content: &LocalContent, unchanged: UnchangedFiles) -> (ChunkList, Vec<Oid>, u64) {
        let mut read = 0;
        let put = PutContent { content, unchanged };
        let chunks = chunks_of(&put, &keys(), &mut |bytes| read += bytes).unwrap();
        (chunks, content.oids(), read)
    }

    /// Bytes that are read of 200 files when some are gone and some have other bytes.
    fn read_after(gone: &[&str], edited: &[&str]) -> u64 {
        let names: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
        let folder = tempfile::tempdir().unwrap();
        for (at, name) in names.iter().enumerate() {
            let size = if at.is_multiple_of(40) { 60_000 } else { 100 * (at % 37) };
            std::fs::write(folder.path().join(name), noise(at as u8, size)).unwrap();
        }
        let old = laid_out(folder.path(), &names);
        let (chunks, oids, _) = cut(&old, UnchangedFiles::default());
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        let key = KeySecret([3; 32]);
        let marks = FileMarks::of(Digest([1; 32]), &key, &old.files, later);
        let all = old.files.iter().zip(oids).map(|(file, oid)| (file.path.clone(), file.start, oid));
        for name in edited {
            std::fs::write(folder.path().join(name), noise(99, 777)).unwrap();
        }
        let left: Vec<_> = names.into_iter().filter(|name| !gone.contains(&name.as_str())).collect();
        let new = laid_out(folder.path(), &left);
        let (chunks_of_all, oids_of_all, _) = cut(&new, UnchangedFiles::default());
        let unchanged = UnchangedFiles::new(&new.files, &marks, &key, all, Arc::new(chunks));
        let (chunks, oids, read) = cut(&new, unchanged);
        assert!((chunks, oids) == (chunks_of_all, oids_of_all), "{gone:?}, {edited:?}");
        read
    }

    #[test]
    fn what_is_unchanged_is_cut_as_before_and_not_read() {
        assert_eq!(read_after(&[], &[]), 0);
        assert_eq!(read_after(&["000"], &[]), 0, "a file of its own went");
        let few = [read_after(&[], &["050"]), read_after(&["001", "199"], &["119", "160"])];
        assert!(few.iter().all(|read| (777..160_000).contains(read)), "{few:?}");
        assert!(read_after(&["040"], &["039", "041"]) < 160_000);
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_named() {
        let (folder, content) = content(&[("a", noise(1, 50_000))]);
        std::fs::write(folder.path().join("a"), noise(2, 40_000)).unwrap();
        let put = PutContent { content: &content, unchanged: UnchangedFiles::default() };
        assert!(chunks_of(&put, &keys(), &mut |_| ()).is_err());
    }
}
