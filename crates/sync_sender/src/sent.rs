//! Which contents went to a node in copies before, so that the next version of a file can go there as a patch of the one
//! that it has. Nothing else that lies here is looked at for it: it could confirm what it guesses of files that it was
//! never sent.
//!
//! One file for each node in the state folder: the hashes of contents, the newest last. It is a help only.

use std::collections::HashSet;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use towpath_content::node_id::hex;
use towpath_content::{NodeId, Oid};

use towpath_content::lock::lock;

/// Bytes of a hash.
const HASH: usize = 32;
/// Hashes that are remembered for a node: 8 MiB of them.
const MOST: usize = 1 << 18;
/// Hashes that are written at once.
const BATCH: usize = 4096;
/// Contents of fewer bytes are not worth a patch.
const LEAST: u64 = 4 << 10;

/// What went to one node.
pub struct SentTo {
    file: PathBuf,
    before: OnceLock<HashSet<[u8; HASH]>>,
    pending: Mutex<Vec<u8>>,
}

impl SentTo {
    /// Of the records in `folder`, that of `node`.
    pub fn new(folder: &Path, node: &NodeId) -> Self {
        let file = folder.join(format!("to-{}.oids", hex(&node.0)));
        Self { file, before: OnceLock::new(), pending: Mutex::default() }
    }

    /// Whether a content went there in an earlier copy.
    pub fn has(&self, oid: &Oid) -> bool {
        !oid.is_live() && self.before.get_or_init(|| read(&self.file)).contains(oid.digest())
    }

    /// A file of `size` bytes is in place there.
    pub fn add(&self, oid: &Oid, size: u64) {
        if oid.is_live() || size < LEAST {
            return;
        }
        let mut pending = lock(&self.pending);
        pending.extend_from_slice(oid.digest());
        if pending.len() >= BATCH * HASH {
            note(&self.file, &std::mem::take(&mut *pending));
        }
    }
}

impl Drop for SentTo {
    fn drop(&mut self) {
        let pending = lock(&self.pending);
        if !pending.is_empty() {
            note(&self.file, &pending);
        }
    }
}

fn read(file: &Path) -> HashSet<[u8; HASH]> {
    let bytes = std::fs::read(file).unwrap_or_default();
    bytes.as_chunks().0.iter().rev().take(MOST).copied().collect()
}

fn note(file: &Path, hashes: &[u8]) {
    if let Err(error) = append(file, hashes) {
        tracing::debug!(%error, "what went to a node is not remembered");
    }
}

/// Appends hashes; of too many the older half is forgotten.
fn append(file: &Path, hashes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let open = |path: &Path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let len = open(file)?.metadata()?.len();
    if len > (MOST * HASH) as u64 {
        let bytes = std::fs::read(file)?;
        let kept = bytes.as_chunks::<HASH>().0;
        let shorter = file.with_extension(format!("{}.tmp", std::process::id()));
        // Of a process that had this number before.
        let _ = std::fs::remove_file(&shorter);
        open(&shorter)?.write_all(kept[kept.len() / 2..].as_flattened())?;
        std::fs::rename(shorter, file)?;
    }
    // One write, so that copies side by side do not mix theirs.
    open(file)?.write_all(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_to_a_node_is_known_in_the_next_copy_to_it_and_to_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("records");
        let (here, there) = (NodeId([1; 32]), NodeId([2; 32]));
        let (large, small) = (Oid::of(b"large"), Oid::of(b"small"));
        let sent = SentTo::new(&folder, &here);
        sent.add(&large, LEAST);
        sent.add(&small, LEAST - 1);
        assert!(!sent.has(&large), "in an earlier copy");
        drop(sent);
        assert!(SentTo::new(&folder, &here).has(&large));
        assert!(!SentTo::new(&folder, &here).has(&small));
        assert!(!SentTo::new(&folder, &there).has(&large));
    }

    #[test]
    fn of_too_many_the_older_half_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let hash = |number: u32| *Oid::of(&number.to_le_bytes()).digest();
        let all: Vec<u8> = (0..=MOST as u32).flat_map(hash).collect();
        append(&file, &all).unwrap();
        append(&file, &hash(u32::MAX)).unwrap();
        let known = read(&file);
        assert!(known.contains(&hash(u32::MAX)) && known.contains(&hash(MOST as u32)));
        assert!(!known.contains(&hash(0)) && known.len() <= MOST / 2 + 2);
    }
}
