//! A file that the receiver asks for, read at the sender: a little one whole, so that its content goes
//! with its name, any other to know its name.

use std::fs::File;
use std::path::Path;

use towpath_content::Oid;
use towpath_content::delta::exchange::{Reply, SMALL};
use towpath_files::FileError;
use towpath_protocol::offer::EntryTag;
use towpath_store::{FileRecord, Hashed, Stamp, Store, StoreError, hash_and_keep};
use towpath_transfer::offer::{EntryBody, EntryQuery};

use super::exchange::Exchange;
use super::source::Located;
use crate::error::EntryFault;
use towpath_targets::index_record::store_stamp;

/// What the receiver asks for.
pub struct Ask {
    /// The question.
    pub tag: EntryTag,
    /// What of it: as much as may be answered.
    pub query: EntryQuery,
    /// Where it is.
    pub located: Located,
}

impl Ask {
    /// What the receiver has of it, if it names that.
    pub fn named_base(&self) -> Option<Oid> {
        self.query.base.as_ref()?.base.oid()
    }
}

/// A file that was read.
pub struct Read {
    /// Its content's name, and what was seen when it was read.
    pub hashed: Hashed,
    /// What goes of it with its name.
    pub body: EntryBody,
    /// What goes behind that.
    pub exchange: Option<Box<Exchange>>,
}

impl Read {
    /// What the index is told of what was asked for. Little files are read as fast as they are looked up there.
    pub fn to_index(&self, ask: &Ask) -> Option<FileRecord> {
        if matches!(self.body, EntryBody::Whole(_)) {
            return None;
        }
        let path = ask.located.whole_path();
        let (dir, name) = (path.parent().unwrap_or(&path), path.file_name().unwrap_or_default());
        Some(FileRecord::new(dir, name, self.hashed.clone()))
    }
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

/// Reads a file that is asked for: a little one whole, else for its name. Of one of which the receiver has an older version also
/// for what is replied: if that was named, it is looked for in `store`, if there is one. Patches are made with zstd's `level`.
pub fn read(ask: &mut Ask, store: Option<&dyn Store>, level: i32) -> Result<Read, UnreadFile> {
    let (file, path) = (ask.located.open()?, ask.located.whole_path());
    let Some(request) = ask.query.base.take() else {
        return read_open(&file, &path, ask.query.inline.into());
    };
    let kept = if request.base.oid().is_some() { 0 } else { SMALL };
    let (hashed, content) = hash_and_keep(&file, &path, kept)?;
    let mut exchange = Exchange::new(request, &hashed.oid, hashed.stamp.size);
    let reply = exchange.reply(&file, Some(content), store, level);
    let exchange = (reply == Reply::InParts).then(|| Box::new(exchange));
    Ok(Read { hashed, body: EntryBody::Delta(reply), exchange })
}

fn read_open(file: &File, path: &Path, inline: u64) -> Result<Read, UnreadFile> {
    let (hashed, content) = hash_and_keep(file, path, inline)?;
    let is_whole = hashed.stamp.size <= inline;
    let body = if is_whole { EntryBody::Whole(content.into()) } else { EntryBody::Named };
    Ok(Read { hashed, body, exchange: None })
}

/// A file as it is after hashing: it may have changed since the scan saw it.
pub fn now(seen: &towpath_files::Stamp, hashed: &Stamp) -> towpath_files::Stamp {
    match store_stamp(seen) == *hashed {
        true => *seen,
        false => towpath_files::Stamp { size: hashed.size, modified: hashed.modified(), ..*seen },
    }
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
        let Read { hashed, body: EntryBody::Whole(content), .. } = read_open(&file, &path, 6).unwrap() else {
            panic!("it goes whole")
        };
        assert_eq!((&content[..], hashed.stamp), (&b"little"[..], Stamp::of(&file).unwrap()));
        assert_eq!(hashed.oid, Oid::of(b"little"));
        let read = read_open(&file, &path, 5).unwrap();
        assert!(matches!(read.body, EntryBody::Named), "it has grown beyond the limit");
        assert_eq!(read.hashed.oid, Oid::of(b"little"));
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
            match read_open(&File::open(&path).unwrap(), &path, 64 << 10) {
                Ok(Read { hashed, body: EntryBody::Whole(content), .. }) => {
                    assert_eq!(hashed.stamp.size, content.len() as u64);
                    // File times are coarse: what was changed within their grain can't be told.
                    assert!(content.iter().all(|byte| byte.is_ascii_lowercase()));
                }
                Ok(_) => panic!("it never has more bytes"),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("source changed"), "{error}");
                }
            }
        }
        end.store(true, Ordering::Relaxed);
        writing.join().unwrap();
        assert!(refused > 0, "no reading met a writer");
    }
}
