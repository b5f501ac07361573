//! A put that somebody with another name overtakes is not begun again: what was read, sealed and sent counts on the newest version.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use towpath_vault::client::VaultClient;
use towpath_vault::error::VaultClientError;
use towpath_vault::head::TrustedNodes;
use towpath_vault::keys::{PassphraseCost, Unlock, VaultKeys, WrappedKeys};
use towpath_vault::local::LocalVault;
use towpath_vault::put::{PutOptions, PutOutcome};
use towpath_vault::share::{revoke, share};
use towpath_vault::{Identity, Zeroizing};

use crate::served::{Lie, Lying, Served, memory_folder};

/// Two machines with one vault.
struct Pair {
    served: Rc<RefCell<Served>>,
    keys: VaultKeys,
    trusted: TrustedNodes,
    slow: tempfile::TempDir,
    fast: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        let (served, keys) = (Rc::new(RefCell::new(Served::new())), VaultKeys::generate().unwrap());
        let unlock = Unlock::KeyFile(Zeroizing::new(vec![1; 32]));
        let wrapped = WrappedKeys::wrap(&keys, &unlock, PassphraseCost::default()).unwrap();
        let trusted = TrustedNodes { vault: keys.vault, owner: keys.owner, server: served.borrow().node() };
        let pair = Self { served, keys, trusted, slow: memory_folder(), fast: memory_folder() };
        let (local, way) = (pair.local(pair.slow.path()), Box::new(pair.way()));
        VaultClient::create(local, pair.keys.clone(), &wrapped, way, trusted, Vec::new()).unwrap();
        pair
    }

    fn local(&self, folder: &Path) -> LocalVault {
        LocalVault::open(&folder.join(".vaults"), &self.keys.vault).unwrap()
    }

    fn way(&self) -> Lying {
        Lying::new(&self.served, Lie::None, 0)
    }

    fn open(&self, folder: &Path, way: Lying) -> VaultClient {
        VaultClient::open(self.local(folder), self.keys.clone(), Box::new(way), self.trusted).unwrap()
    }

    /// The slow machine puts `large` while the fast one puts something as `name`.
    fn overtaken(&self, name: &'static [u8]) -> Result<PutOutcome, VaultClientError> {
        let small = self.fast.path().join("small");
        fs::write(&small, b"something small").unwrap();
        self.overtaken_by(move |fast| {
            fast.put(&small, name, &PutOptions::default(), &mut |_| ()).unwrap();
        })
    }

    /// The slow machine puts `large` while the fast one does something.
    fn overtaken_by(
        &self,
        work: impl FnOnce(&mut VaultClient) + 'static,
    ) -> Result<PutOutcome, VaultClientError> {
        let mut fast = self.open(self.fast.path(), self.way());
        let overtaking = Box::new(move || work(&mut fast));
        let mut slow = self.open(self.slow.path(), self.way().overtaken(overtaking));
        let large = self.slow.path().join("large");
        slow.put(&large, b"large", &PutOptions::default(), &mut |_| ())
    }
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

#[test]
fn who_is_overtaken_by_another_name_reads_and_sends_nothing_again() {
    let pair = Pair::new();
    for (seed, name) in [(1, &b"first"[..]), (2, b"second")] {
        let content = noise(seed, 6 << 20);
        fs::write(pair.slow.path().join("large"), &content).unwrap();
        let outcome = pair.overtaken(name).unwrap();
        assert_eq!((outcome.read, outcome.stats.length), (6 << 20, 6 << 20));
        assert!((6 << 20..7 << 20).contains(&outcome.stats.uploaded()), "{:?}", outcome.stats);
        let mut fast = pair.open(pair.fast.path(), pair.way());
        let copy = pair.fast.path().join("copy");
        fast.get(b"large", None, &copy, true, &mut |_| ()).unwrap();
        assert!(fs::read(&copy).unwrap() == content);
        assert!(fast.entry(name, None).is_ok());
    }
}

#[test]
fn who_is_overtaken_by_the_same_name_writes_over_nothing() {
    let pair = Pair::new();
    fs::write(pair.slow.path().join("large"), noise(1, 6 << 20)).unwrap();
    let outcome = pair.overtaken(b"large");
    assert!(matches!(outcome, Err(VaultClientError::Conflict { .. })), "{outcome:?}");
    let mut fast = pair.open(pair.fast.path(), pair.way());
    assert_eq!(fast.entry(b"large", None).unwrap().1.length, 15);
}

/// The vault's keys change while the first half of a long put is committed; the second half has the chunks of the first.
#[test]
fn a_long_put_begins_again_when_the_keys_change() {
    let pair = Pair::new();
    let length = 600 << 20;
    fs::File::create(pair.slow.path().join("large")).unwrap().set_len(length).unwrap();
    let other = Identity::generate().unwrap().node_id();
    let outcome = pair.overtaken_by(move |fast| {
        assert!(share(fast, other, false).unwrap());
        revoke(fast, other).unwrap();
    });
    let outcome = outcome.unwrap();
    // Made, shared, revoked, three stages that have the new keys, and the rest.
    assert_eq!((outcome.number, outcome.stats.length), (6, length), "nothing with the old keys is committed");
    let mut fast = pair.open(pair.fast.path(), pair.way());
    assert_eq!(fast.entry(b"large", None).unwrap().1.length, length);
}
