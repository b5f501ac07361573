//! A machine that has an old copy reads what was written, and no nodes of the tree. One that has no tree writes by the paths that change.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use tempfile::TempDir;
use towpath_vault::Zeroizing;
use towpath_vault::client::VaultClient;
use towpath_vault::error::VaultClientError;
use towpath_vault::head::TrustedNodes;
use towpath_vault::keys::{PassphraseCost, Unlock, VaultKeys, WrappedKeys};
use towpath_vault::local::LocalVault;
use towpath_vault::put::PutOptions;

use crate::served::{Lie, Lying, Served, memory_folder};

/// A vault with two machines.
pub(crate) struct Pair {
    pub(crate) served: Rc<RefCell<Served>>,
    pub(crate) keys: VaultKeys,
    pub(crate) trusted: TrustedNodes,
    pub(crate) one: TempDir,
    pub(crate) other: TempDir,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let (served, keys) = (Rc::new(RefCell::new(Served::new())), VaultKeys::generate().unwrap());
        let unlock = Unlock::KeyFile(Zeroizing::new(vec![1; 32]));
        let wrapped = WrappedKeys::wrap(&keys, &unlock, PassphraseCost::default()).unwrap();
        let trusted = TrustedNodes { vault: keys.vault, owner: keys.owner, server: served.borrow().node() };
        let pair = Self { served, keys, trusted, one: memory_folder(), other: memory_folder() };
        let (local, way) = (pair.local(pair.one.path()), pair.way(Lie::None));
        VaultClient::create(local, pair.keys.clone(), &wrapped, way, trusted, Vec::new()).unwrap();
        pair
    }

    pub(crate) fn local(&self, folder: &Path) -> LocalVault {
        LocalVault::open(&folder.join(".vaults"), &self.keys.vault).unwrap()
    }

    pub(crate) fn way(&self, lie: Lie) -> Box<Lying> {
        Box::new(Lying::new(&self.served, lie, 0))
    }

    pub(crate) fn open(&self, folder: &Path) -> VaultClient {
        self.open_by(folder, self.way(Lie::None))
    }

    pub(crate) fn open_by(&self, folder: &Path, way: Box<Lying>) -> VaultClient {
        VaultClient::open(self.local(folder), self.keys.clone(), way, self.trusted).unwrap()
    }
}

fn noise() -> Vec<u8> {
    (0..700_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn who_has_an_old_copy_asks_for_new_blocks_alone() {
    let pair = Pair::new();
    let mut bytes = noise();
    let (file, copy) = (pair.one.path().join("file"), pair.other.path().join("copy"));
    for number in 1..=4_u32 {
        (0..15).for_each(|place| bytes[place * 40_000 + number as usize] ^= 0x55);
        fs::write(&file, &bytes).unwrap();
        pair.open(pair.one.path()).put(&file, b"file", &PutOptions::default(), &mut |_| ()).unwrap();
        let before = pair.served.borrow().asked;
        pair.open(pair.other.path()).get(b"file", None, &copy, true, &mut |_| ()).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), bytes);
        let asked = pair.served.borrow().asked - before;
        let new = pair.served.borrow_mut().new_blocks();
        assert!(new >= 15, "{new} new blocks");
        assert!(
            number == 1 || asked == 0,
            "version {number}: {asked} objects, though its update brings them"
        );
    }
}

/// Its summary tells what changed; nodes are needed to compute the new root alone.
#[test]
fn who_lost_the_tree_is_told_the_paths_that_change_and_believes_them_once_they_prove_it() {
    let pair = Pair::new();
    let (folder, mut bytes) = (pair.one.path(), noise());
    let file = folder.join("file");
    let nodes = folder.join(".vaults").join(pair.keys.vault.to_string()).join("nodes");
    let mut append = |lie| {
        bytes.extend_from_within(..3000);
        fs::write(&file, &bytes).unwrap();
        fs::remove_dir_all(&nodes).unwrap_or_default();
        let mut vault = pair.open(folder);
        let root = vault.head().signed.root.clone();
        vault.catalogue(&root).unwrap();
        drop(vault);
        let mut vault = pair.open_by(folder, pair.way(lie));
        vault.put(&file, b"file", &PutOptions { patches: false, ..PutOptions::default() }, &mut |_| ())
    };
    append(Lie::None).unwrap();
    let before = (pair.served.borrow().asked, pair.served.borrow().asked_paths);
    append(Lie::None).unwrap();
    let asked = pair.served.borrow().asked - before.0;
    assert_eq!(pair.served.borrow().asked_paths, before.1 + 1);
    assert!(asked <= 4, "{asked} objects of the catalogue");
    let newest = pair.served.borrow_mut().newest();
    for lie in [Lie::LostObject, Lie::CutObject] {
        let refused = append(lie);
        assert!(matches!(refused, Err(VaultClientError::Unconfirmed(_))), "{lie:?}: {refused:?}");
        assert_eq!(pair.served.borrow_mut().newest(), newest);
    }
    append(Lie::None).unwrap();
}
