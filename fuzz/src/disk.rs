//! Files in this service's own folders, where a crash or a full disk may have damaged them.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Seek, Write};

use towpath_content::Oid;
use towpath_content::chunking::{ChunkHash, MAX_CHUNK_LEN};
use towpath_service::fuzzing;
use towpath_store::disk::fuzzing as store;

use crate::seeds;

/// The file of a recipe.
pub fn recipe_file(data: &[u8]) {
    thread_local! {
        static FILE: RefCell<File> = RefCell::new(tempfile::tempfile().expect("a temporary file"));
    }
    let written = FILE.with_borrow_mut(|file| {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(data)?;
        file.try_clone()
    });
    if let Some(root) = store::read_recipe(written.expect("a file that can be written")) {
        assert!(root.to_bytes().len() <= data.len());
    }
}

/// A row of the chunk index. The hash that is looked for is at its front.
pub fn chunk_entries(data: &[u8]) {
    let mut hash = ChunkHash([0; 32]);
    let len = data.len().min(32);
    hash.0[..len].copy_from_slice(&data[..len]);
    let (entries, _) = store::chunk_entries(data, &hash);
    for [_, _, offset, len] in &entries {
        assert!((1..=u64::from(MAX_CHUNK_LEN)).contains(len) && offset.checked_add(*len).is_some());
    }
    let row = store::encode_entries(&entries);
    let (kept, found) = store::chunk_entries(&row, &hash);
    assert!(kept.is_sorted() && kept.iter().all(|entry| entries.contains(entry)));
    let prefix = |entry: &&[u64; 4]| entry[0].to_be_bytes() == hash.0[..8];
    assert!(found.iter().eq(kept.iter().filter(prefix)));
}

/// Record of what an interrupted transfer left.
pub fn resume_record(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some((temp, parts)) = fuzzing::resume_record(text, &seeds::content::CONTENT) {
        let named = parts.values().chain(&temp).map(String::len).sum::<usize>();
        assert!(named <= data.len());
    }
}

/// Record of a shared path.
pub fn share_record(data: &[u8]) {
    if let Some(share) = fuzzing::share_record(data) {
        assert_eq!(share.oid.to_string().parse::<Oid>(), Ok(share.oid));
    }
}
