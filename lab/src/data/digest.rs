//! Digest of what must be the same at the end: names, kinds and contents. Times, owners and modes are left out,
//! since not every program carries them.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A BLAKE3 hash of a file's bytes, or of all that is in a tree.
pub type DataDigest = blake3::Hash;

/// Content of a file or a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestContent {
    /// All of it.
    pub digest: DataDigest,
    /// Bytes of its files.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
}

/// Kinds of entries in a tree's digest.
const DIRECTORY: &[u8] = b"d";
const FILE: &[u8] = b"f";
const LINK: &[u8] = b"l";
const OTHER: &[u8] = b"o";

/// Reads a file or a tree, and counts its bytes and files.
pub fn digest(path: &Path) -> io::Result<DigestContent> {
    match fs::symlink_metadata(path)?.is_dir() {
        false => file(path).map(|(digest, bytes)| DigestContent { digest, bytes, files: 1 }),
        true => {
            let mut hasher = blake3::Hasher::new();
            let (bytes, files) = tree(path, &mut hasher)?;
            Ok(DigestContent { digest: hasher.finalize(), bytes, files })
        }
    }
}

fn file(path: &Path) -> io::Result<(DataDigest, u64)> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok((hasher.finalize(), hasher.count()))
}

/// Every string goes in after its length, so that no two trees look the same to the hash.
fn put(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}

/// Bytes and files.
fn tree(dir: &Path, hasher: &mut blake3::Hasher) -> io::Result<(u64, u64)> {
    let mut entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    put(hasher, DIRECTORY);
    hasher.update(&(entries.len() as u64).to_le_bytes());
    let mut total = (0, 0);
    for entry in entries {
        put(hasher, entry.file_name().as_bytes());
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            let (bytes, files) = tree(&path, hasher)?;
            total = (total.0 + bytes, total.1 + files);
        } else if kind.is_file() {
            let (digest, bytes) = file(&path)?;
            put(hasher, FILE);
            put(hasher, digest.as_bytes());
            total = (total.0 + bytes, total.1 + 1);
        } else if kind.is_symlink() {
            put(hasher, LINK);
            put(hasher, fs::read_link(&path)?.as_os_str().as_bytes());
        } else {
            put(hasher, OTHER);
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_what_its_names_and_contents_are() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        for tree in [&one, &two] {
            fs::create_dir_all(tree.join("sub")).unwrap();
            fs::write(tree.join("sub/file"), "content").unwrap();
        }
        assert_eq!(digest(&one).unwrap(), digest(&two).unwrap());
        let content = digest(&one).unwrap();
        assert_eq!((content.bytes, content.files), (7, 1));
        fs::write(two.join("sub/file"), "contents").unwrap();
        assert_ne!(digest(&one).unwrap(), digest(&two).unwrap());
        fs::write(two.join("sub/file"), "content").unwrap();
        fs::rename(two.join("sub/file"), two.join("file")).unwrap();
        assert_ne!(digest(&one).unwrap().digest, digest(&two).unwrap().digest);
    }
}
