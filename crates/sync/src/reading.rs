//! A file that the receiver asks for, read at the sender: a little one whole, so that its content goes
//! with its name, any other to know its name.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};
use towpath_content::Oid;
use towpath_content::tree::Time;
use towpath_files::FileError;
use towpath_store::{FileRecord, MAX_SPAN, Stamp, State, Store, StoreError, hash_and_keep, hash_open_file};

use super::source::Located;
use crate::error::EntryFault;
use towpath_content::delta::exchange::PatchParts;
use towpath_content::delta::exchange::parts as deltas;
use towpath_reuse::delta::patches;
use towpath_targets::index_record::store_stamp;

/// Files of at most so many bytes are read once, for name and delta; several at a time.
const READ_AT_ONCE: u64 = 1 << 20;
/// A longer delta does not go with its file's name.
const MOST_WITH_NAME: usize = 64 << 10;

/// What the receiver signs.
pub enum Signed {
    /// A file in one part, so.
    Whole(Bytes),
    /// One in so many parts, of which so many `ahead`, the others when it is their turn.
    InParts { parts: u64, ahead: u64 },
}

impl Signed {
    /// In how many.
    pub const fn parts(&self) -> u64 {
        if let Self::InParts { parts, .. } = self { *parts } else { 1 }
    }
}

/// What the receiver asks for.
pub struct Ask {
    /// Which entry of the tree.
    pub entry: u64,
    /// Its content has to be named.
    pub compare: bool,
    /// If it has at most so many bytes its content may come with its name.
    pub inline: u64,
    /// It was answered before, over a connection that was lost.
    pub is_again: bool,
    /// What the receiver signs of an older version, if it has one.
    pub base: Option<Signed>,
    /// The name of an older version that the receiver has.
    pub older: Option<Oid>,
    /// A patch of that may come in parts.
    pub in_parts: bool,
    /// The older version may be quite another file.
    pub is_guess: bool,
    /// Where it is.
    pub located: Located,
}

impl Ask {
    /// Bytes of the signature that came before it.
    pub fn signature_len(&self) -> usize {
        if let Some(Signed::Whole(signature)) = &self.base { signature.len() } else { 0 }
    }

    /// Whether it is wanted as a delta.
    pub const fn has_base(&self) -> bool {
        self.base.is_some() || self.older.is_some()
    }
}

/// A file that was read.
pub enum Read {
    /// To know its name.
    Hashed(FileRecord),
    /// A little one, whose content goes with its name.
    Whole(Stamp, Vec<u8>),
    /// One with a little delta, which goes with its name.
    Changed(FileRecord, Vec<u8>),
    /// One as a patch of the older version that the receiver named.
    Patched(FileRecord, Vec<u8>),
    /// One that comes as so many patches of parts of that older version.
    InParts(FileRecord, OlderFile),
    /// One that has the very content of that older version.
    Same(FileRecord),
    /// That older version is not here, or both together are too large.
    Lacking,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadFile {
    /// It could not be opened, or was written to.
    #[error("{0}")]
    File(#[from] FileError),
    /// It could not be hashed.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl UnreadFile {
    /// The same for the person.
    pub const fn fault(&self) -> EntryFault<'_> {
        match self {
            Self::File(error) => EntryFault::File(error),
            Self::Store(error) => EntryFault::Store(error),
        }
    }

    /// Whether it is no longer there.
    pub fn is_vanished(&self) -> bool {
        match self {
            Self::File(error) => {
                matches!(error, FileError::Vanished { .. } | FileError::NotADirectory { .. })
            }
            Self::Store(StoreError::Io { source, .. }) => source.kind() == std::io::ErrorKind::NotFound,
            Self::Store(error) => matches!(error, StoreError::NotHere | StoreError::NotYet),
        }
    }
}

/// Reads a file that is asked for: a little one whole, else for its name.
pub fn read(ask: &Ask) -> Result<Read, UnreadFile> {
    let path = ask.located.whole_path();
    let file = ask.located.open()?;
    if ask.located.stamp.size <= ask.inline
        && let Some((stamp, content)) = read_whole(&file, &path, ask.inline)?
    {
        return Ok(Read::Whole(stamp, content));
    }
    let hashed = hash_open_file(&file, &path)?;
    let (dir, name) = (path.parent().unwrap_or(&path), path.file_name().unwrap_or_default());
    Ok(Read::Hashed(FileRecord::new(dir, name, hashed)))
}

/// Reads a file whose older version the receiver signed, in one part: if it is not large, and the delta is
/// little, for both; else for its name.
pub fn read_changed(ask: &Ask, signature: &[u8]) -> Result<Read, UnreadFile> {
    let path = ask.located.whole_path();
    let file = ask.located.open()?;
    let read = hash_and_keep(&file, &path, READ_AT_ONCE)?;
    let (hashed, content) = read;
    let (dir, name) = (path.parent().unwrap_or(&path), path.file_name().unwrap_or_default());
    let is_read = content.len() as u64 == hashed.stamp.size;
    let delta = if is_read { deltas::make(signature, &content) } else { None };
    let record = FileRecord::new(dir, name, hashed);
    Ok(match delta.filter(|delta| delta.len() <= MOST_WITH_NAME) {
        Some(delta) => Read::Changed(record, delta),
        None => Read::Hashed(record),
    })
}

/// Reads a file of which the receiver named an older version: it may be the same, or become a patch of that
/// one, if there is a `store` that has it.
pub fn read_patched(
    ask: &Ask,
    older: &Oid,
    store: Option<&dyn Store>,
    level: i32,
) -> Result<Read, UnreadFile> {
    let path = ask.located.whole_path();
    let file = ask.located.open()?;
    let hashed = hash_open_file(&file, &path)?;
    let (dir, name) = (path.parent().unwrap_or(&path), path.file_name().unwrap_or_default());
    let (oid, size) = (hashed.oid, hashed.stamp.size);
    let record = FileRecord::new(dir, name, hashed);
    if oid == *older {
        return Ok(Read::Same(record));
    }
    let Some(store) = store else { return Ok(Read::Lacking) };
    let older = OlderFile::find(older, size, store);
    let older = match older {
        Some(older) if ask.in_parts && older.parts > 1 => return Ok(Read::InParts(record, older)),
        older => older.filter(|older| patches::may_be_whole(older.size, size)),
    };
    let Some(base) = older.and_then(|older| older.read(0..older.size, store)) else {
        return Ok(Read::Lacking);
    };
    // What changed since it was hashed is found out by the receiver.
    let content = read_whole(&file, &path, size)?;
    let patch = content.and_then(|(_, content)| patches::patch(&base, &content, level));
    Ok(match patch {
        Some(patch) => Read::Patched(record, patch),
        None => Read::Hashed(record),
    })
}

/// An older version that is here.
#[derive(Clone, Copy)]
pub struct OlderFile {
    oid: Oid,
    size: u64,
    /// The bytes of the new one, and in how many parts it comes.
    new: u64,
    /// See there.
    pub parts: u64,
}

impl OlderFile {
    /// If it is here, for a file of `new` bytes that is not too large.
    fn find(oid: &Oid, new: u64, store: &dyn Store) -> Option<Self> {
        let have = store.have(oid).ok().filter(|have| have.state == State::Complete)?;
        let size = have.layout.size();
        Some(Self { oid: *oid, size, new, parts: PatchParts::new(size, new)?.count() })
    }

    fn read(&self, range: Range<u64>, store: &dyn Store) -> Option<Vec<u8>> {
        let mut base = Vec::with_capacity(usize::try_from(range.end - range.start).ok()?);
        let (mut at, mut span) = (range.start, Vec::new());
        while at < range.end {
            store.read_span(&self.oid, at..range.end.min(at + MAX_SPAN), &mut span).ok()?;
            base.extend_from_slice(&span);
            at += span.len() as u64;
        }
        Some(base)
    }

    /// A part of the new version as a patch.
    pub fn patch(&self, index: u64, file: &File, store: &dyn Store, level: i32) -> Option<Vec<u8>> {
        let base = self.read(PatchParts::new(self.size, self.new)?.base(index)?, store)?;
        patches::patch(&base, &part_of(file, deltas::part(self.new, self.parts, index)?)?, level)
    }
}

/// These bytes of a file; none if they can't be read.
pub fn part_of(file: &File, range: Range<u64>) -> Option<Vec<u8>> {
    let mut part = vec![0; usize::try_from(range.end - range.start).ok()?];
    file.read_exact_at(&mut part, range.start).ok().map(|()| part)
}

/// All bytes of a file, as it was at one moment; none if it has grown beyond `limit`.
fn read_whole(file: &File, path: &Path, limit: u64) -> Result<Option<(Stamp, Vec<u8>)>, FileError> {
    let system = |error| FileError::new("read", path, error);
    let before = Stamp::of(file).map_err(system)?;
    if before.size > limit {
        return Ok(None);
    }
    let content = read_to(file, before.size).map_err(|error| system(error.into()))?;
    match content.len() as u64 == before.size && Stamp::of(file).map_err(system)? == before {
        true => Ok(Some((before, content))),
        false => Err(FileError::changed("read", path, "written to while it was read")),
    }
}

/// The first `size` bytes of a file, and one more if it has more.
fn read_to(file: &File, size: u64) -> Result<Vec<u8>, Errno> {
    let most = usize::try_from(size).map_err(|_| Errno::FBIG)? + 1;
    let mut content = Vec::with_capacity(most);
    loop {
        let at = content.len() as u64;
        match pread(file, spare_capacity(&mut content), at) {
            // Less than the one more is the end of the file.
            Ok(read) if read == 0 || content.len() as u64 >= size => return Ok(content),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file as it is after hashing: it may have changed since the scan saw it.
pub fn now(seen: &towpath_files::Stamp, hashed: &Stamp) -> towpath_files::Stamp {
    match store_stamp(seen) == *hashed {
        true => *seen,
        false => towpath_files::Stamp { size: hashed.size, modified: time(hashed.mtime_ns), ..*seen },
    }
}

fn time(nanos: i64) -> Time {
    const SECOND: i64 = 1_000_000_000;
    Time { seconds: nanos.div_euclid(SECOND), nanos: nanos.rem_euclid(SECOND) as u32 }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn file_of(content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[test]
    fn a_little_file_is_read_whole_as_it_was_at_one_moment() {
        let (_dir, path) = file_of(b"little");
        let file = File::open(&path).unwrap();
        let (stamp, content) = read_whole(&file, &path, 100).unwrap().unwrap();
        assert_eq!((content.as_slice(), stamp), (&b"little"[..], Stamp::of(&file).unwrap()));
        assert!(read_whole(&file, &path, 5).unwrap().is_none(), "it has grown beyond the limit");
    }

    /// It must not go out as something that it never was.
    #[test]
    fn a_file_that_is_written_to_while_it_is_read_is_refused() {
        let (_dir, path) = file_of(&[b'a'; 60_000]);
        let end = Arc::new(AtomicBool::new(false));
        let writing = {
            let (path, end) = (path.clone(), Arc::clone(&end));
            std::thread::spawn(move || {
                for letter in (b'a'..=b'z').cycle() {
                    if end.load(Ordering::Relaxed) {
                        break;
                    }
                    File::create(&path).unwrap().write_all(&[letter; 60_000]).unwrap();
                }
            })
        };
        let (mut refused, mut read) = (0, 0);
        // On a busy machine the two may take turns for long.
        while read < 2000 || (refused == 0 && read < 1_000_000) {
            read += 1;
            match read_whole(&File::open(&path).unwrap(), &path, 64 << 10) {
                Ok(Some((stamp, content))) => {
                    assert_eq!(stamp.size, content.len() as u64);
                    // File times are coarse: what was changed within their grain can't be told.
                    assert!(content.iter().all(|byte| byte.is_ascii_lowercase()));
                }
                Ok(None) => panic!("it never has more bytes"),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("written to while"), "{error}");
                }
            }
        }
        end.store(true, Ordering::Relaxed);
        writing.join().unwrap();
        assert!(refused > 0, "no reading met a writer");
    }
}
