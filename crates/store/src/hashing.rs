//! Piece values: as bytes stream in, and of files that lie whole on the disk.
//!
//! Each byte is hashed once. [`PieceHasher`] takes bytes while they are warm in the cache and
//! hands out each piece's value as the piece fills; the first one only when a further byte shows
//! that it is not the whole object. [`hash_open_file`] reads a file's pieces on all cores.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use blake3::hazmat::HasherExt;
use rayon::prelude::*;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use towpath_content::Oid;
use towpath_content::pieces::{self, Layout, MIN_LOG2, Value};

use crate::error::StoreError;
use crate::stamp::Stamp;

/// Bytes of a piece of a live object.
pub(crate) const LIVE_PIECE: u64 = 1 << MIN_LOG2;
/// Bytes hashed between two looks at the world outside; more than any core needs at once.
const WINDOW: u64 = 16 << 20;
/// Bytes a thread reads at a time: still in its cache when they are hashed.
const READ: usize = 256 << 10;

/// Alignment of a buffer's begin: copying from the page cache to a little beyond a page's begin, which
/// is where allocators like to put large blocks, takes some processors three times as long.
pub(crate) const ALIGN: usize = 64;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ + ALIGN]);
}

/// Values of 256 KiB pieces of an object whose size is not known yet.
#[derive(Debug, Clone)]
pub struct PieceHasher {
    /// Hasher of the piece being filled.
    hasher: blake3::Hasher,
    filled: u64,
    index: u64,
}

impl Default for PieceHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl PieceHasher {
    /// Begins an object.
    pub fn new() -> Self {
        Self { hasher: blake3::Hasher::new(), filled: 0, index: 0 }
    }

    /// Bytes so far.
    pub const fn size(&self) -> u64 {
        self.index * LIVE_PIECE + self.filled
    }

    /// Takes the next bytes; returns the values of the pieces that they completed.
    pub fn update(&mut self, mut data: &[u8]) -> Vec<Value> {
        let mut values = Vec::new();
        while !data.is_empty() {
            if self.filled == LIVE_PIECE {
                values.push(self.close());
            }
            let room = (LIVE_PIECE - self.filled) as usize;
            let (head, rest) = data.split_at(room.min(data.len()));
            self.hasher.update(head);
            self.filled += head.len() as u64;
            if self.filled == LIVE_PIECE && self.index > 0 {
                values.push(self.close());
            }
            data = rest;
        }
        values
    }

    fn close(&mut self) -> Value {
        let value = self.hasher.finalize_non_root();
        self.index += 1;
        self.filled = 0;
        self.hasher = blake3::Hasher::new();
        self.hasher.set_input_offset(self.index * LIVE_PIECE);
        value
    }

    /// The object's id and all its values, given those handed out so far.
    pub fn finish(&self, mut values: Vec<Value>) -> (Oid, Vec<Value>) {
        if self.index == 0 {
            values.push(*self.hasher.finalize().as_bytes());
        } else if self.filled > 0 {
            values.push(self.hasher.finalize_non_root());
        }
        (pieces::oid_of(&values), values)
    }
}

/// Findings of one pass over a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// The content's name.
    pub oid: Oid,
    /// The stamp, the same before and after.
    pub stamp: Stamp,
    /// True if the stamp was settled when the content was read.
    pub settled: bool,
    /// The values of the pieces in [`Layout::of`] the size, if there is more than one.
    pub values: Option<Vec<Value>>,
}

/// Hashes an open file once; `path` is for messages. The stamp is compared before and after.
pub fn hash_open_file(file: &File, path: &Path) -> Result<Hashed, StoreError> {
    hash_since(Before::of(file, path)?, file, path)
}

/// As [`hash_open_file`], and also the bytes of a file that has at most `limit` of them, read once.
pub fn hash_and_keep(file: &File, path: &Path, limit: u64) -> Result<(Hashed, Vec<u8>), StoreError> {
    let before = Before::of(file, path)?;
    let size = before.stamp.size;
    if size > limit {
        return hash_since(before, file, path).map(|hashed| (hashed, Vec::new()));
    }
    let mut content = Vec::new();
    append_range(file, 0..size, &mut content).map_err(|error| before.explain(error, file, path))?;
    before.check(file, path)?;
    let oid = Oid::of(&content);
    Ok((Hashed { oid, stamp: before.stamp, settled: before.settled, values: None }, content))
}

fn hash_since(before: Before, file: &File, path: &Path) -> Result<Hashed, StoreError> {
    let layout = Layout::of(before.stamp.size).map_err(|_| TOO_LARGE)?;
    let mut values = Vec::new();
    hash_pieces(file, &layout, &mut |run| {
        values.extend(run);
        Ok(())
    })
    .map_err(|error| before.explain(error, file, path))?;
    before.check(file, path)?;
    let oid = pieces::oid_of(&values);
    let values = (values.len() > 1).then_some(values);
    Ok(Hashed { oid, stamp: before.stamp, settled: before.settled, values })
}

/// The refusal of a file over 16 TiB.
pub(crate) const TOO_LARGE: StoreError = StoreError::Refused { why: "files over 16 TiB are not taken" };

/// A file's stamp before it is read, and whether that can be relied on later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    pub(crate) stamp: Stamp,
    pub(crate) settled: bool,
}

impl Before {
    pub(crate) fn of(file: &File, path: &Path) -> Result<Self, StoreError> {
        let now = SystemTime::now();
        let stamp = Stamp::of(file).map_err(|source| StoreError::io("looking at", path, source))?;
        Ok(Self { stamp, settled: stamp.is_settled(now) })
    }

    /// Checks that the file is still as it was.
    pub(crate) fn check(&self, file: &File, path: &Path) -> Result<(), StoreError> {
        let after = Stamp::of(file).map_err(|source| StoreError::io("looking at", path, source))?;
        if after == self.stamp { Ok(()) } else { Err(StoreError::SourceChanged { path: path.into() }) }
    }

    /// Says why reading failed: a file that became shorter is a changed one.
    pub(crate) fn explain(&self, error: io::Error, file: &File, path: &Path) -> StoreError {
        match self.check(file, path) {
            Err(changed) => changed,
            Ok(()) => StoreError::io("reading", path, error),
        }
    }
}

/// Hashes all pieces, on all cores, and hands their values over in order, some 16 MiB at a time.
/// An error from `take` ends the pass.
pub(crate) fn hash_pieces(
    file: &File,
    layout: &Layout,
    take: &mut dyn FnMut(Vec<Value>) -> io::Result<()>,
) -> io::Result<()> {
    if layout.count() == 1 {
        return hash_piece(file, layout, 0).and_then(|value| take(vec![value]));
    }
    let step = (WINDOW / layout.piece_len()).max(4);
    for start in (0..layout.count()).step_by(step as usize) {
        let end = (start + step).min(layout.count());
        let next = end..(end + step).min(layout.count());
        read_ahead(file, layout.range(next.start).start..layout.range(next.end.max(1) - 1).end);
        let run = (start as usize..end as usize).into_par_iter().with_min_len(2);
        take(run.map(|index| hash_piece(file, layout, index as u64)).collect::<io::Result<_>>()?)?;
    }
    Ok(())
}

fn hash_piece(file: &File, layout: &Layout, index: u64) -> io::Result<Value> {
    let range = layout.range(index);
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(range.start);
    hash_range(file, range, &mut hasher)?;
    Ok(if layout.count() == 1 { *hasher.finalize().as_bytes() } else { hasher.finalize_non_root() })
}

/// Feeds a range of the file to `hasher`.
pub(crate) fn hash_range(file: &File, range: Range<u64>, hasher: &mut blake3::Hasher) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        let front = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        for at in range.clone().step_by(READ) {
            let bytes = &mut buffer[front..][..READ.min((range.end - at) as usize)];
            file.read_exact_at(bytes, at)?;
            hasher.update(bytes);
        }
        Ok(())
    })
}

/// Appends a range of the file to `buf`, without clearing the memory first.
pub(crate) fn append_range(file: &File, range: Range<u64>, buf: &mut Vec<u8>) -> io::Result<()> {
    let front = buf.len();
    let end = front + (range.end - range.start) as usize;
    buf.reserve_exact(end - front);
    while buf.len() < end {
        let at = range.start + (buf.len() - front) as u64;
        match rustix::io::pread(file, spare_capacity(buf), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // There may have been room for more than was asked for.
    buf.truncate(end);
    Ok(())
}

/// Asks the kernel to fetch what is hashed next while this is hashed.
#[cfg(target_os = "linux")]
pub(crate) fn read_ahead(file: &File, range: Range<u64>) {
    if let Some(len) = std::num::NonZeroU64::new(range.end.saturating_sub(range.start)) {
        // Only a hint: without it the same bytes come a little later.
        let _ = rustix::fs::fadvise(file, range.start, Some(len), rustix::fs::Advice::WillNeed);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn read_ahead(_file: &File, _range: Range<u64>) {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const PIECE: usize = LIVE_PIECE as usize;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 253 + i) as u8).collect()
    }

    fn values_of(data: &[u8]) -> Vec<Value> {
        let layout = Layout::of(data.len() as u64).unwrap();
        let value = |i| layout.value(i, &data[layout.range(i).start as usize..layout.range(i).end as usize]);
        (0..layout.count()).map(value).collect()
    }

    #[test]
    fn the_first_piece_has_no_value_until_a_further_byte_comes() {
        let mut hasher = PieceHasher::new();
        assert!(hasher.update(&bytes(PIECE)).is_empty());
        assert_eq!(hasher.finish(Vec::new()).0, Oid::of(&bytes(PIECE)));
        assert_eq!(hasher.update(&[7]).len(), 1);
        assert_eq!(hasher.update(&bytes(PIECE - 1)).len(), 1, "later pieces have theirs at once");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_way_of_cutting_the_input_gives_the_same_values(
            len in 0usize..4 * PIECE, cuts in prop::collection::vec(1usize..2 * PIECE, 0..8)
        ) {
            let data = bytes(len);
            let (mut hasher, mut values, mut rest) = (PieceHasher::new(), Vec::new(), &data[..]);
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                values.extend(hasher.update(head));
                rest = tail;
            }
            values.extend(hasher.update(rest));
            prop_assert_eq!(hasher.size(), len as u64);
            prop_assert_eq!(hasher.finish(values), (Oid::of(&data), values_of(&data)));
        }
    }

    #[test]
    fn a_file_hashes_to_the_same_as_its_bytes() {
        for len in [0, 1, PIECE, PIECE + 1, 5 * PIECE + 77, 70 * PIECE + 3] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes(len)).unwrap();
            let hashed = hash_open_file(file.as_file(), file.path()).unwrap();
            assert_eq!(hashed.oid, Oid::of(&bytes(len)), "{len} bytes");
            assert_eq!(hashed.values.is_some(), len > PIECE);
            assert_eq!(hashed.values.unwrap_or(values_of(&bytes(len))), values_of(&bytes(len)));
        }
    }

    #[test]
    fn small_files_are_kept_and_hash_to_the_same() {
        for len in [0, 1, 99, 100, 101, PIECE + 1] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes(len)).unwrap();
            let (hashed, kept) = hash_and_keep(file.as_file(), file.path(), 100).unwrap();
            let alone = hash_open_file(file.as_file(), file.path()).unwrap();
            assert_eq!((&hashed.oid, &hashed.values), (&alone.oid, &alone.values), "{len} bytes");
            assert_eq!(kept, if len <= 100 { bytes(len) } else { Vec::new() });
        }
    }

    #[test]
    fn a_file_that_was_just_written_is_not_settled() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"fresh").unwrap();
        assert!(!hash_open_file(file.as_file(), file.path()).unwrap().settled);
        crate::doubles::settle(file.path()).unwrap();
        assert!(hash_open_file(file.as_file(), file.path()).unwrap().settled);
    }
}
