//! Files of what is on its way to a site's cache, and of what an interruption left of it.

use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use towpath_content::Oid;
use towpath_content::node_id::hex;

/// The folder of what is on its way.
const FOLDER: &str = "site-cache";
/// Bytes of a block, as the kernel counts them.
const BLOCK: u64 = 512;

/// A file of something that has not come whole.
pub(crate) struct LeftFile {
    /// When something of it came last.
    pub(crate) written: SystemTime,
    pub(crate) path: PathBuf,
    /// Bytes that it takes up.
    pub(crate) bytes: u64,
}

/// The folder in a data folder.
pub(crate) fn folder(data: &Path) -> PathBuf {
    data.join(FOLDER)
}

/// Begin of the names of the files that are filled by the ticket of this name.
pub(crate) fn flight(name: &[u8]) -> String {
    hex(&Oid::of(name).digest()[..8])
}

/// All of them, the oldest first.
pub(crate) fn files(data: &Path) -> Vec<LeftFile> {
    let Ok(entries) = std::fs::read_dir(folder(data)) else { return Vec::new() };
    let file = |entry: DirEntry| {
        let metadata = entry.metadata().ok()?;
        let (written, bytes) = (metadata.modified().ok()?, metadata.blocks() * BLOCK);
        Some(LeftFile { written, path: entry.path(), bytes })
    };
    let mut files: Vec<_> = entries.flatten().filter_map(file).collect();
    files.sort_unstable_by_key(|file| file.written);
    files
}

/// Bytes that they take up: these count in the cache's limit.
pub(crate) fn bytes(data: &Path) -> u64 {
    files(data).iter().map(|file| file.bytes).sum()
}
