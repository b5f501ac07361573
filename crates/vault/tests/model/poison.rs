//! A member puts what nobody can read: the list of entries, an entry's bytes, an epoch that never comes. Others read what was before, and go on.
//! And how much they ask for it.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use tempfile::TempDir;
use towpath_vault::Zeroizing;
use towpath_vault::client::VaultClient;
use towpath_vault::error::VaultClientError;
use towpath_vault::format::doubles::{block, update_of};
use towpath_vault::format::tree::NodeMap;
use towpath_vault::format::{FileId, SignedMembers, SignedRoot, Update, UpdateAction, VaultRoot, apply};
use towpath_vault::head::TrustedNodes;
use towpath_vault::keys::{PassphraseCost, Unlock, VaultKeys, WrappedKeys};
use towpath_vault::local::LocalVault;
use towpath_vault::put::PutOptions;
use towpath_vault::revert::revert;
use towpath_vault::server::RemoteVault;
use towpath_vault_protocol::CommittedVersion;

use crate::served::{Lie, Lying, Served, memory_folder};

/// Version 1 has notes.
struct Poisoned {
    served: Rc<RefCell<Served>>,
    keys: VaultKeys,
    trusted: TrustedNodes,
    folder: TempDir,
}

impl Poisoned {
    fn new() -> Self {
        let (served, keys) = (Rc::new(RefCell::new(Served::new())), VaultKeys::generate().unwrap());
        let unlock = Unlock::KeyFile(Zeroizing::new(vec![1; 32]));
        let wrapped = WrappedKeys::wrap(&keys, &unlock, PassphraseCost::default()).unwrap();
        let trusted = TrustedNodes { vault: keys.vault, owner: keys.owner, server: served.borrow().node() };
        let it = Self { served, keys, trusted, folder: memory_folder() };
        let (local, way) = (it.local("one"), it.way());
        VaultClient::create(local, it.keys.clone(), &wrapped, way, trusted, Vec::new()).unwrap();
        it.put("one", b"what was before", false).unwrap();
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn local(&self, machine: &str) -> LocalVault {
        LocalVault::open(&self.path(machine), &self.keys.vault).unwrap()
    }

    fn way(&self) -> Box<Lying> {
        Box::new(Lying::new(&self.served, Lie::None, 0))
    }

    fn open(&self, machine: &str) -> VaultClient {
        VaultClient::open(self.local(machine), self.keys.clone(), self.way(), self.trusted).unwrap()
    }

    fn put(&self, machine: &str, bytes: &[u8], overwrite: bool) -> Result<u64, VaultClientError> {
        let path = self.path("notes");
        fs::write(&path, bytes).unwrap();
        let options = PutOptions { overwrite, ..PutOptions::default() };
        self.open(machine).put(&path, b"notes", &options, &mut |_| ()).map(|put| put.number)
    }

    fn assert_has(&self, machine: &str, version: Option<u64>, bytes: &[u8]) {
        let to = self.path("got");
        self.open(machine).get(b"notes", version, &to, true, &mut |_| ()).unwrap();
        assert_eq!(fs::read(&to).unwrap(), bytes);
    }

    fn newest(&self) -> VaultRoot {
        self.way().head().unwrap().unwrap().signed.root
    }

    /// The file that has the notes.
    fn notes(&self) -> FileId {
        let files = self.newest().files;
        files.iter().map(|file| file.file).find(|file| *file != FileId::CATALOGUE).unwrap()
    }

    /// A member commits a version in which a file has this in the place of what it had, under an epoch.
    fn poison(&self, file: FileId, bytes: &[u8], epoch: u32) {
        let (tuple, new) = block(bytes, 7);
        let replaced = UpdateAction::Replace { tuples: vec![tuple] };
        let mut update =
            update_of(&self.newest(), self.keys.node().unwrap(), file, vec![replaced], vec![new]);
        update.files[0].epoch = epoch;
        let signed = self.signed(&update);
        let committed = self.way().commit(&update, &signed, &mut |_| Some(bytes.to_vec())).unwrap();
        assert!(committed.is_some());
    }

    fn signed(&self, update: &Update) -> SignedRoot {
        let CommittedVersion { signed, .. } = self.way().head().unwrap().unwrap();
        let members = self.way().objects(&[signed.root.members]).unwrap().remove(0).unwrap();
        let members = towpath_vault::format::Canonical::from_bytes(&members);
        let SignedMembers { members, .. } = members.unwrap();
        let root = apply(update, Some((&signed.root, &members)), &NodeMap::default()).unwrap().root;
        let writer = self.keys.writer.as_ref().unwrap().identity();
        let digest = towpath_vault::format::Canonical::digest(update);
        SignedRoot::sign(root, writer.node_id(), digest, |message| writer.sign(message))
    }

    fn assert_whole(&self) {
        fs::remove_dir_all(self.path("new")).unwrap_or_default();
        assert!(self.open("new").check(None, false, &mut |_| ()).unwrap().faults.is_empty());
    }
}

#[test]
fn a_list_of_entries_that_nobody_can_read_is_gone_back_from() {
    let it = Poisoned::new();
    it.poison(FileId::CATALOGUE, b"no block of anybody's", 0);
    for overwrite in [false, true] {
        let refused = it.put("one", b"newer", overwrite);
        assert!(matches!(refused, Err(VaultClientError::Catalogue { number: 2, .. })), "{refused:?}");
    }
    it.assert_has("one", Some(1), b"what was before");
    let reverted = revert(&mut it.open("one"), None).unwrap();
    assert_eq!((reverted.number, reverted.like, reverted.is_new), (3, 1, true));
    it.assert_has("other", None, b"what was before");
    // What was seen of the notes is what they are: nothing asks to be written over.
    assert_eq!(it.put("one", b"newer", false).unwrap(), 4);
    it.assert_has("other", None, b"newer");
    it.assert_has("other", Some(1), b"what was before");
    it.assert_whole();
    let again = revert(&mut it.open("one"), None).unwrap();
    assert_eq!((again.number, again.is_new), (4, false));
}

#[test]
fn an_epoch_that_never_comes_stops_nobody() {
    let it = Poisoned::new();
    it.poison(FileId::CATALOGUE, b"no block of anybody's", u32::MAX);
    it.poison(it.notes(), b"nor this", u32::MAX);
    let reverted = revert(&mut it.open("other"), Some(1)).unwrap();
    assert_eq!((reverted.number, reverted.like), (4, 1));
    it.assert_has("other", None, b"what was before");
    assert_eq!(it.put("one", b"newer", true).unwrap(), 5);
    it.assert_has("other", None, b"newer");
    assert_eq!(it.open("one").forget(b"notes").unwrap(), 6);
    it.assert_whole();
}

#[test]
fn bytes_that_nobody_can_read_are_written_over_by_who_says_so() {
    let it = Poisoned::new();
    it.poison(it.notes(), b"no block of anybody's", 0);
    for machine in ["one", "other"] {
        let refused = it.put(machine, b"newer", false);
        assert!(matches!(refused, Err(VaultClientError::Conflict { .. })), "{refused:?}");
    }
    it.assert_has("one", Some(1), b"what was before");
    assert_eq!(it.put("one", b"newer", true).unwrap(), 3);
    it.assert_has("other", None, b"newer");
    it.assert_whole();
}

#[test]
fn where_no_version_can_be_read_that_is_said() {
    let it = Poisoned::new();
    let mut vault = it.open("one");
    for _ in 0..2 {
        it.poison(FileId::CATALOGUE, b"no block of anybody's", 0);
    }
    let refused = revert(&mut vault, Some(3));
    assert!(matches!(refused, Err(VaultClientError::NoVersion { number: 3 })), "{refused:?}");
    vault.refresh().unwrap();
    let refused = revert(&mut vault, Some(3));
    assert!(matches!(refused, Err(VaultClientError::Catalogue { number: 3, .. })), "{refused:?}");
    assert_eq!(revert(&mut vault, None).unwrap().like, 1, "the last one that can be read");
    // Its folder is locked while it is open.
    drop(vault);
    it.assert_has("one", None, b"what was before");
}

#[test]
fn an_old_version_is_proved_by_all_behind_it_once_and_then_by_its_hash() {
    let it = Poisoned::new();
    for number in 2..=30_u64 {
        assert_eq!(it.put("one", &number.to_le_bytes(), false).unwrap(), number);
    }
    let asked = |machine: &str| {
        let before = it.served.borrow().asked_versions;
        it.assert_has(machine, Some(1), b"what was before");
        it.served.borrow().asked_versions - before
    };
    assert_eq!(asked("one"), 1, "who made them knows them");
    assert_eq!([asked("other"), asked("other")], [29, 1]);
    // Without the hashes, or with wrong ones, it is as at first; and then they are right again.
    let links = it.path("one").join(it.keys.vault.to_string()).join("links");
    let right = fs::read(&links).unwrap();
    for (content, expected) in [(vec![7; right.len()], 30), (Vec::new(), 29), (right[..50].to_vec(), 30)] {
        fs::write(&links, content).unwrap();
        assert_eq!([asked("one"), asked("one")], [expected, 1]);
    }
}
