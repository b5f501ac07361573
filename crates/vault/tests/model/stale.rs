//! A machine that has an old copy reads what was written, and no nodes of the tree.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use towpath_vault::Zeroizing;
use towpath_vault::client::VaultClient;
use towpath_vault::head::TrustedNodes;
use towpath_vault::keys::{PassphraseCost, Unlock, VaultKeys, WrappedKeys};
use towpath_vault::local::LocalVault;
use towpath_vault::put::PutOptions;

use crate::served::{Lie, Lying, Served, memory_folder};

#[test]
fn who_has_an_old_copy_asks_for_new_blocks_alone() {
    let (served, keys) = (Rc::new(RefCell::new(Served::new())), VaultKeys::generate().unwrap());
    let wrapped =
        WrappedKeys::wrap(&keys, &Unlock::KeyFile(Zeroizing::new(vec![1; 32])), PassphraseCost::default());
    let trusted = TrustedNodes { vault: keys.vault, owner: keys.owner, server: served.borrow().node() };
    let [one, other] = [memory_folder(), memory_folder()];
    let local = |folder: &Path| LocalVault::open(&folder.join(".vaults"), &keys.vault).unwrap();
    let way = || Box::new(Lying::new(&served, Lie::None, 0));
    VaultClient::create(local(one.path()), keys.clone(), &wrapped.unwrap(), way(), trusted, Vec::new())
        .unwrap();
    let open = |folder: &Path| VaultClient::open(local(folder), keys.clone(), way(), trusted).unwrap();
    let mut bytes: Vec<u8> =
        (0..700_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (file, copy) = (one.path().join("file"), other.path().join("copy"));
    for number in 1..=4_u32 {
        (0..15).for_each(|place| bytes[place * 40_000 + number as usize] ^= 0x55);
        fs::write(&file, &bytes).unwrap();
        open(one.path()).put(&file, b"file", &PutOptions::default(), &mut |_| ()).unwrap();
        let before = served.borrow().asked;
        open(other.path()).get(b"file", None, &copy, true, &mut |_| ()).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), bytes);
        let asked = served.borrow().asked - before;
        let new = served.borrow_mut().new_blocks();
        assert!(number == 1 || asked <= new, "version {number}: {asked} objects for {new} new blocks");
    }
}
