//! What this machine keeps of a vault: wrapped keys, the last head, summaries, and caches of nodes and blocks.
//!
//! | file | what it is | if it is lost |
//! |---|---|---|
//! | `server` | where the vault is | said again with `tow vault join` |
//! | `holders` | who else has its blocks, a line each | said again with `tow vault holders` |
//! | `keys` | the wrapped keys | an owner's: the vault has them too, under the same passphrase; a member's: it has to be shared anew |
//! | `shares` | the vault's record of keys | fetched again |
//! | `head` | the last version that was seen, with its certificate | rollbacks to before now are not noticed |
//! | `head-NUMBER-HASH` | one that a person went back from (`tow vault accept`) | the proof that there was more is gone |
//! | `links` | hashes of versions that were proved | older versions are proved again by all behind them |
//! | `seen` | which content of each entry was put or got last | a put asks for `--overwrite` |
//! | `offered` | which content of each entry a put offered last | a put that was killed asks for `--overwrite` when it is repeated |
//! | `summaries/` | summaries by file | made again from the blocks |
//! | `marks/` | marks of files that need not be read again, by content | the files are read |
//! | `uncommitted`, `uncommitted-blocks/` | what puts left that is not committed | **a put that was kept here is lost** |
//! | `line` | what the line to the server carries | measured again |
//! | `nodes/`, `blocks/` | caches | fetched again |
//!
//! Each file is replaced whole: written beside, synced, renamed; one that has the same bytes stays. A process holds the folder's lock while it works. Who only
//! looks goes beside it, and writes nothing.

mod cache;
mod links;
mod packs;
mod places;
mod seen;
mod uncommitted;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use towpath_vault_format::{Digest, FileId, VaultId};

use crate::error::VaultClientError;
use crate::head::{NamedVersion, VaultHead};
use crate::keys::WrappedKeys;
use crate::line::KeptLine;
use crate::summary::{FileSummary, SummaryDecoder, write_summary};
use crate::unchanged::FileMarks;
use towpath_vault_difference::chunk_list::ChunkList;

pub use cache::BlobCache;
pub use packs::PackReader;
pub use seen::SeenEntries;
pub(crate) use uncommitted::{KeptQueue, UncommittedView};
pub use uncommitted::{UncommittedQueue, UncommittedVersion};

/// Bytes of the caches.
const NODE_CACHE: u64 = 256 << 20;
const BLOCK_CACHE: u64 = 2 << 30;
/// Folders of processes that only look, behind this their process ids.
const BESIDE: &str = "beside-";
/// No file here is longer, summaries of 100 GB included.
const MAX_FILE: u64 = 1 << 29;
/// Bytes that are read or written at once.
const AT_ONCE: usize = 64 << 10;

/// The folder of one vault.
#[derive(Debug)]
pub struct LocalVault {
    path: PathBuf,
    place: FolderPlace,
}

/// Who may write in a folder.
#[derive(Debug)]
enum FolderPlace {
    /// This process, until it drops the lock.
    Locked { _lock: File },
    /// Another one; this one has caches of its own in a folder that goes when it does.
    Beside(PathBuf),
}

impl LocalVault {
    /// The folder of a vault below `vaults`, made if it is not there.
    pub fn open(vaults: &Path, vault: &VaultId) -> Result<Self, VaultClientError> {
        let path = vaults.join(vault.to_string());
        let lock = lock_file(&path).map_err(|error| VaultClientError::local(&path, error))?;
        let locked = flock(&lock, FlockOperation::LockExclusive);
        locked.map_err(|errno| VaultClientError::local(&path, errno.into()))?;
        drop_left_over(&path);
        Ok(Self { path, place: FolderPlace::Locked { _lock: lock } })
    }

    /// The same for who only reads: where another process works in the folder, this one does not wait for it, and writes nothing.
    pub fn look(vaults: &Path, vault: &VaultId) -> Result<Self, VaultClientError> {
        let path = vaults.join(vault.to_string());
        let lock = lock_file(&path).map_err(|error| VaultClientError::local(&path, error))?;
        let place = match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => FolderPlace::Locked { _lock: lock },
            Err(Errno::WOULDBLOCK) => {
                FolderPlace::Beside(path.join(format!("{BESIDE}{}", std::process::id())))
            }
            Err(errno) => return Err(VaultClientError::local(&path, errno.into())),
        };
        Ok(Self { path, place })
    }

    /// True if another process works in the folder, so that nothing is written there.
    pub const fn is_beside(&self) -> bool {
        matches!(self.place, FolderPlace::Beside(_))
    }

    /// The vaults that have a folder below `vaults`.
    pub fn list(vaults: &Path) -> Vec<VaultId> {
        let Ok(found) = std::fs::read_dir(vaults) else { return Vec::new() };
        let is_whole = |path: &Path| path.join("server").exists() && path.join("keys").exists();
        let found = found.filter_map(Result::ok).filter(|entry| is_whole(&entry.path()));
        let mut ids: Vec<_> = found.filter_map(|entry| vault_id(entry.file_name().to_str()?)).collect();
        ids.sort_unstable();
        ids
    }

    /// Where the vault is, as `NODE@HOST:PORT`.
    pub fn server(&self) -> Result<Option<String>, VaultClientError> {
        let text = self.read("server")?.map(String::from_utf8).transpose();
        text.map_err(|_| VaultClientError::damaged(&self.path.join("server")))
    }

    /// Keeps where the vault is.
    pub fn set_server(&self, server: &str) -> Result<(), VaultClientError> {
        self.replace("server", server.as_bytes())
    }

    /// The wrapped keys.
    pub fn keys(&self) -> Result<Option<WrappedKeys>, VaultClientError> {
        let keys = self.read("keys")?.map(|bytes| WrappedKeys::from_bytes(&bytes)).transpose();
        keys.map_err(|_| VaultClientError::damaged(&self.path.join("keys")))
    }

    /// Keeps wrapped keys.
    pub fn set_keys(&self, keys: &WrappedKeys) -> Result<(), VaultClientError> {
        self.replace("keys", &keys.to_bytes())
    }

    /// The vault's record of keys as it was fetched last.
    pub fn shares(&self) -> Result<Option<Vec<u8>>, VaultClientError> {
        self.read("shares")
    }

    /// Keeps it.
    pub fn set_shares(&self, record: &[u8]) -> Result<(), VaultClientError> {
        self.replace("shares", record)
    }

    /// The last head. A damaged one is an error, not none: it is what rollbacks are known by.
    pub fn head(&self) -> Result<Option<VaultHead>, VaultClientError> {
        let head = self.read("head")?.map(|bytes| VaultHead::from_bytes(&bytes)).transpose();
        head.map_err(|_| VaultClientError::damaged(&self.path.join("head")))
    }

    /// Keeps a head that another one takes the place of, though it is older or does not follow.
    pub fn keep_head(&self, head: &VaultHead) -> Result<(), VaultClientError> {
        let named = head.named();
        self.replace(&format!("head-{}-{}", named.number, named.root.short()), &head.to_bytes())
    }

    /// Keeps a head.
    pub fn set_head(&self, head: &VaultHead) -> Result<(), VaultClientError> {
        self.replace("head", &head.to_bytes())?;
        self.add_links(std::iter::once(head.named()));
        Ok(())
    }

    /// The hash of a version that was proved here.
    pub fn link(&self, number: u64) -> Option<Digest> {
        links::link(&self.path.join("links"), number)
    }

    /// Notes versions that were proved.
    pub fn add_links(&self, proved: impl Iterator<Item = NamedVersion>) {
        if self.is_beside() {
            return;
        }
        links::add_links(&self.path.join("links"), proved);
    }

    /// Forgets all of them: the server's line of versions is another.
    pub fn forget_links(&self) {
        let _ = std::fs::remove_file(self.path.join("links"));
    }

    /// Contents of entries that were put or got here. What can't be read is none.
    pub fn seen(&self) -> Result<SeenEntries, VaultClientError> {
        self.noted("seen")
    }

    /// Keeps them.
    pub fn set_seen(&self, seen: &SeenEntries) -> Result<(), VaultClientError> {
        self.replace("seen", &seen.to_bytes())
    }

    /// Contents of entries that were offered here. What can't be read is none.
    pub fn offered(&self) -> Result<SeenEntries, VaultClientError> {
        self.noted("offered")
    }

    /// Keeps them.
    pub fn set_offered(&self, offered: &SeenEntries) -> Result<(), VaultClientError> {
        self.replace("offered", &offered.to_bytes())
    }

    /// Keeps what the line to the server carries.
    pub fn set_line(&self, line: &KeptLine) -> Result<(), VaultClientError> {
        self.replace("line", &line.to_bytes())
    }

    fn noted(&self, name: &str) -> Result<SeenEntries, VaultClientError> {
        let bytes = self.read(name)?;
        Ok(bytes.and_then(|bytes| SeenEntries::from_bytes(&bytes).ok()).unwrap_or_default())
    }

    /// The summary of a file, if there is a good one.
    pub fn summary(&self, file: &FileId) -> Result<Option<FileSummary>, VaultClientError> {
        let path = self.path.join(format!("summaries/{file}"));
        match read_summary(&path) {
            Ok(summary) => Ok(summary),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(VaultClientError::local(&path, error)),
        }
    }

    /// Keeps the summary of a file that has this root.
    pub fn set_summary(
        &self,
        file: &FileId,
        root: &Digest,
        chunks: &ChunkList,
    ) -> Result<(), VaultClientError> {
        self.replace_with(&format!("summaries/{file}"), &|to| write_summary(root, chunks, to))
    }

    /// The marks of a content's files, if there are good ones.
    pub fn marks(&self, content: &FileId) -> Result<Option<FileMarks>, VaultClientError> {
        let bytes = self.read(&format!("marks/{content}"))?;
        Ok(bytes.and_then(|bytes| FileMarks::from_bytes(&bytes).ok()))
    }

    /// Keeps them.
    pub fn set_marks(&self, content: &FileId, marks: &FileMarks) -> Result<(), VaultClientError> {
        self.replace(&format!("marks/{content}"), &marks.to_bytes())
    }

    /// The cache of nodes.
    pub fn nodes(&self) -> Result<BlobCache, VaultClientError> {
        self.cache("nodes", NODE_CACHE)
    }

    /// The cache of blocks.
    pub fn blocks(&self) -> Result<BlobCache, VaultClientError> {
        self.cache("blocks", BLOCK_CACHE)
    }

    fn cache(&self, name: &str, limit: u64) -> Result<BlobCache, VaultClientError> {
        let path = match &self.place {
            FolderPlace::Locked { .. } => self.path.join(name),
            FolderPlace::Beside(own) => own.join(name),
        };
        BlobCache::open(&path, limit).map_err(|error| VaultClientError::local(&path, error))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, VaultClientError> {
        let path = self.path.join(name);
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(&path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(VaultClientError::local(&path, error)),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), VaultClientError> {
        self.replace_with(name, &|to| to.write_all(bytes))
    }

    fn replace_with(&self, name: &str, write: &WriteBytes<'_>) -> Result<(), VaultClientError> {
        let path = self.path.join(name);
        // So a command that only reads needs no room on a disk that is full.
        if self.is_beside() || FileCompare::is_same(&path, write) {
            return Ok(());
        }
        replace(&path, write).map_err(|error| VaultClientError::local(&path, error))
    }
}

/// Writes the same bytes each time.
type WriteBytes<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'a;

/// Compares what is written to it with a file: it takes nothing else.
struct FileCompare(BufReader<File>);

impl FileCompare {
    /// True if the file has these bytes and no more.
    fn is_same(path: &Path, write: &WriteBytes<'_>) -> bool {
        let Ok(file) = File::open(path) else { return false };
        let mut compare = Self(BufReader::with_capacity(AT_ONCE, file));
        write(&mut compare).is_ok() && compare.0.fill_buf().is_ok_and(<[u8]>::is_empty)
    }
}

impl Write for FileCompare {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let found = self.0.fill_buf()?;
        let len = found.len().min(bytes.len());
        if found[..len] != bytes[..len] || len == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.0.consume(len);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The summary in a file; `None`: it is none.
fn read_summary(path: &Path) -> io::Result<Option<FileSummary>> {
    let mut file = BufReader::with_capacity(AT_ONCE, File::open(path)?);
    let mut decoder = SummaryDecoder::default();
    loop {
        let part = file.fill_buf()?;
        let (len, taken) = (part.len(), decoder.feed(part));
        match (len, taken) {
            (0, _) => return Ok(decoder.finish().ok()),
            (_, Err(_)) => return Ok(None),
            (len, Ok(())) => file.consume(len),
        }
    }
}

/// Who else has the vault's blocks, each as `NODE@HOST:PORT`.
pub(crate) fn kept_holders(folder: &LocalVault) -> Result<Vec<String>, VaultClientError> {
    let text = String::from_utf8(folder.read("holders")?.unwrap_or_default());
    let text = text.map_err(|_| VaultClientError::damaged(&folder.path.join("holders")))?;
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

/// Keeps who else has the vault's blocks.
pub fn keep_holders(folder: &LocalVault, holders: &[String]) -> Result<(), VaultClientError> {
    let lines: String = holders.iter().map(|holder| format!("{holder}\n")).collect();
    folder.replace("holders", lines.as_bytes())
}

/// What the line to the server carried. What can't be read is none.
pub(crate) fn kept_line(folder: &LocalVault) -> Result<Option<KeptLine>, VaultClientError> {
    Ok(folder.read("line")?.and_then(|bytes| KeptLine::from_bytes(&bytes).ok()))
}

/// What the caches of the process have that works in a folder, if this one is beside it.
pub(crate) fn packs_beside(folder: &LocalVault) -> PackReader {
    match folder.is_beside() {
        true => PackReader::open(&[&folder.path.join("nodes"), &folder.path.join("blocks")]),
        false => PackReader::default(),
    }
}

impl Drop for LocalVault {
    fn drop(&mut self) {
        if let FolderPlace::Beside(own) = &self.place {
            // Else who works here next does it.
            let _ = std::fs::remove_dir_all(own);
        }
    }
}

/// The file that is locked by who works in a folder, which is made if it is not there.
fn lock_file(path: &Path) -> io::Result<File> {
    for folder in ["summaries", "marks"] {
        DirBuilder::new().recursive(true).mode(0o700).create(path.join(folder))?;
    }
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path.join("lock"))
}

/// Removes the caches of processes that looked here and were killed.
fn drop_left_over(path: &Path) {
    let Ok(found) = std::fs::read_dir(path) else { return };
    for entry in found.filter_map(Result::ok) {
        let process = entry.file_name().to_str().and_then(|name| name.strip_prefix(BESIDE)?.parse().ok());
        let is_gone =
            process.and_then(Pid::from_raw).is_some_and(|it| test_kill_process(it) == Err(Errno::SRCH));
        if is_gone {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The id that `text` is, in 32 hexadecimal digits.
pub fn vault_id(text: &str) -> Option<VaultId> {
    let digits = text.as_bytes().as_chunks::<2>();
    let (pairs, []) = digits else { return None };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?;
    bytes.try_into().ok().map(VaultId)
}

/// Puts what is written in the place of what is at `path`: after a crash either is there, whole.
fn replace(path: &Path, write: &WriteBytes<'_>) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let mut file = BufWriter::with_capacity(AT_ONCE, file);
    write(&mut file)?;
    file.into_inner()?.sync_all()?;
    std::fs::rename(&new, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_again_and_listed_once_whole() {
        let vaults = tempfile::tempdir().unwrap();
        let vault = VaultId([0xab; 16]);
        let folder = LocalVault::open(vaults.path(), &vault).unwrap();
        assert_eq!((folder.server().unwrap(), folder.head().unwrap()), (None, None));
        folder.set_server("node@host:1").unwrap();
        assert_eq!(LocalVault::list(vaults.path()), [], "no keys yet");
        let keys = crate::keys::VaultKeys::generate().unwrap();
        let unlock = crate::keys::Unlock::KeyFile(zeroize::Zeroizing::new(vec![1; 32]));
        folder.set_keys(&WrappedKeys::wrap(&keys, &unlock, Default::default()).unwrap()).unwrap();
        drop(folder);
        let folder = LocalVault::open(vaults.path(), &vault).unwrap();
        assert_eq!(folder.server().unwrap().as_deref(), Some("node@host:1"));
        assert!(folder.keys().unwrap().unwrap().open(&unlock).is_ok());
        assert_eq!(LocalVault::list(vaults.path()), [vault]);
    }

    #[test]
    fn a_damaged_head_is_an_error_and_a_damaged_summary_is_none() {
        let vaults = tempfile::tempdir().unwrap();
        let folder = LocalVault::open(vaults.path(), &VaultId([1; 16])).unwrap();
        folder.replace("head", b"nonsense").unwrap();
        assert!(matches!(folder.head(), Err(VaultClientError::Damaged { .. })));
        let file = FileId([2; 16]);
        folder.replace(&format!("summaries/{file}"), b"nonsense").unwrap();
        assert!(folder.summary(&file).unwrap().is_none());
    }
}
