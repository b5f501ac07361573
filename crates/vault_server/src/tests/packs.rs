//! Packs: blocks lie in the order in which they came, and what is wrong in a run of them is found by itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use towpath_byte_store::doubles::{ByteCall, FailingBytes};
use towpath_byte_store::{ByteStore, ByteStoreError, LocalFiles, PlaceOwner};
use towpath_link::Identity;
use towpath_vault_format::Digest;

use super::writer::{SignedUpdate, TestWriter, commit};
use crate::error::VaultError;
use crate::log::LogFile;
use crate::vault::{Vault, VaultLimits};

fn open(folder: &Path, bytes: Arc<dyn ByteStore>) -> Vault {
    bytes.claim(&PlaceOwner([1; 16]), true).unwrap();
    let medium = LogFile::at(&folder.join("vault.log")).unwrap();
    Vault::open(Box::new(medium), bytes, VaultLimits::default()).unwrap()
}

/// A vault with a version of so many blocks of 100,000 bytes.
fn with_blocks(vault: &mut Vault, count: usize) -> SignedUpdate {
    let (server, mut writer) = (Identity::generate().unwrap(), TestWriter::new(1));
    let first = writer.creation();
    commit(vault, &first, &server).unwrap();
    writer.committed(first);
    let version = writer.insertion(0, &vec![100_000; count]);
    commit(vault, &version, &server).unwrap();
    version
}

fn names(version: &SignedUpdate) -> Vec<Digest> {
    version.blocks.iter().map(|block| Digest::of(block)).collect()
}

/// What is read of `names` one after the other, and in how many goes.
fn read_all(vault: &Vault, names: &[Digest]) -> (Vec<Option<Bytes>>, usize) {
    let (mut found, mut goes) = (Vec::new(), 0);
    while found.len() < names.len() {
        let some = vault.some_objects(&names[found.len()..]).unwrap();
        assert!(!some.is_empty());
        found.extend(some);
        goes += 1;
    }
    (found, goes)
}

#[test]
fn blocks_are_read_in_long_runs_in_the_order_in_which_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let mut vault = open(folder.path(), Arc::new(LocalFiles::new(&folder.path().join("packs"))));
    let version = with_blocks(&mut vault, 200);
    let (found, goes) = read_all(&vault, &names(&version));
    let found: Vec<_> = found.into_iter().map(Option::unwrap).collect();
    assert!(found == version.blocks);
    assert!(goes <= 25, "20 MB in runs of a megabyte took {goes} goes");
    let mut strange = names(&version);
    strange.insert(3, Digest([9; 32]));
    strange.reverse();
    let (found, _) = read_all(&vault, &strange);
    let is_there: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert_eq!(is_there.iter().filter(|is_there| !**is_there).count(), 1);
    assert!(!is_there[197] && vault.some_objects(&[]).unwrap().is_empty());
}

#[test]
fn a_wrong_byte_loses_its_own_block_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut vault = open(folder.path(), Arc::new(LocalFiles::new(&folder.path().join("packs"))));
    let version = with_blocks(&mut vault, 30);
    let packs = std::fs::read_dir(folder.path().join("packs")).unwrap();
    let pack = packs
        .flat_map(|entry| std::fs::read_dir(entry.unwrap().path()).into_iter().flatten())
        .map(|entry| entry.unwrap().path())
        .next()
        .unwrap();
    let mut bytes = std::fs::read(&pack).unwrap();
    let at = bytes.windows(64).position(|run| run == &version.blocks[7][..64]).unwrap();
    bytes[at + 5000] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    let (found, _) = read_all(&vault, &names(&version));
    for (place, (object, block)) in found.into_iter().zip(&version.blocks).enumerate() {
        assert!(object.as_ref() == Some(block).filter(|_| place != 7), "block {place}");
    }
    assert!(matches!(vault.object(&names(&version)[7]), Err(VaultError::Lost(_))));
}

#[test]
fn a_place_of_packs_that_fails_is_no_loss_of_blocks_and_is_asked_once() {
    let folder = tempfile::tempdir().unwrap();
    let local: Arc<dyn ByteStore> = Arc::new(LocalFiles::new(&folder.path().join("packs")));
    let fails = Arc::new(AtomicBool::new(false));
    let gets = Arc::new(AtomicUsize::new(0));
    let (is_down, asked) = (Arc::clone(&fails), Arc::clone(&gets));
    let faults = move |call| {
        let is_failing = call == ByteCall::Get && is_down.load(Ordering::SeqCst);
        is_failing.then(|| {
            asked.fetch_add(1, Ordering::SeqCst);
            ByteStoreError::Unreachable { place: "bucket".into(), why: "503".into() }
        })
    };
    let mut vault = open(folder.path(), Arc::new(FailingBytes::new(local, Box::new(faults))));
    let version = with_blocks(&mut vault, 30);
    fails.store(true, Ordering::SeqCst);
    let failed = vault.some_objects(&names(&version));
    assert!(matches!(failed, Err(VaultError::Packs(ByteStoreError::Unreachable { .. }))), "{failed:?}");
    assert_eq!(gets.load(Ordering::SeqCst), 1);
    fails.store(false, Ordering::SeqCst);
    assert_eq!(read_all(&vault, &names(&version)).0.iter().flatten().count(), 30);
}
