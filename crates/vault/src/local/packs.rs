//! Packs of a cache that another process writes: they are only read here, and nothing of them is cut off.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use towpath_vault_format::Digest;

/// Bytes in front of each record: its hash and its length.
const HEADER: usize = 36;
/// No node or block is longer.
const MAX_BLOB: u32 = 2 << 20;

/// What caches in some folders had when they were opened.
#[derive(Debug, Default)]
pub struct PackReader {
    packs: Vec<File>,
    places: HashMap<Digest, (usize, u64, u32)>,
}

impl PackReader {
    /// Reads where things lie in the packs of these folders. What can't be read is not there.
    pub fn open(folders: &[&Path]) -> Self {
        let mut reader = Self::default();
        for entry in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten() {
            let Ok(entry) = entry else { continue };
            let is_pack = entry.file_name().to_str().is_some_and(|name| name.starts_with("pack-"));
            if is_pack && let Ok(file) = File::open(entry.path()) {
                reader.add(file);
            }
        }
        reader
    }

    fn add(&mut self, file: File) {
        let (mut at, mut header) = (0, [0; HEADER]);
        while file.read_exact_at(&mut header, at).is_ok() {
            let (hash, length) = header.split_at(32);
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            if length > MAX_BLOB {
                break;
            }
            let mut digest = Digest::NONE;
            digest.0.copy_from_slice(hash);
            self.places.insert(digest, (self.packs.len(), at + HEADER as u64, length));
            at += HEADER as u64 + u64::from(length);
        }
        self.packs.push(file);
    }

    /// The bytes that have this hash, if they are here.
    pub fn get(&self, hash: &Digest) -> Option<Vec<u8>> {
        let (pack, at, length) = *self.places.get(hash)?;
        let mut bytes = vec![0; length as usize];
        self.packs.get(pack)?.read_exact_at(&mut bytes, at).ok()?;
        (Digest::of(&bytes) == *hash).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::BlobCache;

    #[test]
    fn what_a_cache_has_written_is_read_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = BlobCache::open(folder.path(), 1 << 20).unwrap();
        let (one, two) = (cache.add(b"first").unwrap(), cache.add(b"second").unwrap());
        drop(cache);
        let path = folder.path().join("pack-0");
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let reader = PackReader::open(&[folder.path(), Path::new("/nowhere")]);
        assert_eq!((reader.get(&one).as_deref(), reader.get(&two)), (Some(&b"first"[..]), None));
        assert_eq!(std::fs::read(&path).unwrap().len(), whole.len() - 1, "nothing is cut off");
    }
}
