//! What is put while the server can't be reached, or is cut off: it waits, is seen as what it is, and is committed once, whatever others
//! did meanwhile and wherever the connection breaks.

use std::fs;
use std::path::Path;

use towpath_vault::Identity;
use towpath_vault::client::VaultClient;
use towpath_vault::error::VaultClientError;
use towpath_vault::garbage::collect;
use towpath_vault::local::{LocalVault, UncommittedQueue};
use towpath_vault::put::{PutOptions, PutOutcome};
use towpath_vault::server::ServerError;
use towpath_vault::share::{revoke, share};
use towpath_vault::uncommitted::{
    commit_uncommitted, discard, open_looking, open_unreachable, show_committed, show_uncommitted,
    uncommitted_entries, waiting, without_server,
};

use crate::served::{Lie, Lying};
use crate::stale::Pair;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

impl Pair {
    /// A vault of which version 1 has `notes`, of content 1.
    fn with_notes() -> Self {
        let pair = Self::new();
        pair.put(&mut pair.open(pair.one.path()), "notes", 1).unwrap();
        pair
    }

    fn put(&self, vault: &mut VaultClient, name: &str, seed: u64) -> Result<PutOutcome, VaultClientError> {
        let path = self.one.path().join(format!("{seed}"));
        if !path.exists() {
            fs::write(&path, [noise(1, 60_000), noise(seed, 3000)].concat()).unwrap();
        }
        vault.put(&path, name.as_bytes(), &PutOptions::default(), &mut |_| ())
    }

    fn unreachable(&self) -> VaultClient {
        let why = ServerError::Unreachable("it is not there".into());
        open_unreachable(self.local(self.one.path()), self.keys.clone(), why, self.trusted).unwrap()
    }

    /// Puts without a server: contents by their names.
    fn keep(&self, puts: &[(&str, u64)]) {
        for (name, seed) in puts {
            let put = self.put(&mut self.unreachable(), name, *seed).unwrap();
            assert!(put.is_new && !put.is_committed, "{name}");
        }
    }

    fn assert_content(&self, vault: &mut VaultClient, name: &str, seed: u64) {
        let path = self.other.path().join("got");
        vault.get(name.as_bytes(), None, &path, true, &mut |_| ()).unwrap();
        assert!(fs::read(&path).unwrap() == [noise(1, 60_000), noise(seed, 3000)].concat(), "{name} {seed}");
    }

    /// A put of the other machine.
    fn other_puts(&self, name: &str, seed: u64) {
        let options = PutOptions { overwrite: true, ..PutOptions::default() };
        let path = self.other.path().join(name);
        fs::write(&path, [noise(1, 60_000), noise(seed, 3000)].concat()).unwrap();
        let mut vault = self.open(self.other.path());
        assert!(vault.put(&path, name.as_bytes(), &options, &mut |_| ()).unwrap().is_new);
    }

    fn names(vault: &mut VaultClient) -> Vec<String> {
        let entries = uncommitted_entries(vault).unwrap();
        entries.into_iter().map(|change| String::from_utf8(change.name).unwrap()).collect()
    }
}

const THREE: [(&str, u64); 3] = [("notes", 2), ("list", 3), ("notes", 4)];

#[test]
fn what_is_put_without_a_server_waits_is_seen_and_is_committed_in_one_go() {
    let pair = Pair::with_notes();
    pair.keep(&THREE);
    assert_eq!(pair.served.borrow_mut().newest(), 1);
    let mut offline = pair.unreachable();
    assert_eq!(
        (Pair::names(&mut offline), waiting(&offline).unwrap().len()),
        (vec!["list".into(), "notes".into()], 3)
    );
    pair.assert_content(&mut offline, "notes", 4);
    let again = pair.put(&mut offline, "notes", 4).unwrap();
    assert!(!again.is_new && !again.is_committed, "it is no more on the server than before");
    drop(offline);
    let mut vault = pair.open(pair.one.path());
    pair.assert_content(&mut vault, "notes", 1);
    assert!(show_uncommitted(&mut vault).unwrap());
    pair.assert_content(&mut vault, "list", 3);
    show_committed(&mut vault);
    assert!(
        matches!(pair.put(&mut vault, "other", 5), Err(VaultClientError::Uncommitted)),
        "nothing is lost for it"
    );
    assert_eq!(commit_uncommitted(&mut vault).unwrap(), [2, 3, 4]);
    assert_eq!(pair.served.borrow().most_begun, 3, "none waited for another's certificate");
    assert!(waiting(&vault).unwrap().is_empty() && commit_uncommitted(&mut vault).unwrap().is_empty());
    assert!(!show_uncommitted(&mut vault).unwrap());
    assert!(pair.put(&mut vault, "notes", 5).unwrap().is_committed, "it knows its own work");
    drop(vault);
    let mut other = pair.open(pair.other.path());
    pair.assert_content(&mut other, "notes", 5);
    pair.assert_content(&mut other, "list", 3);
}

#[test]
fn what_waits_is_made_anew_on_what_others_committed_meanwhile() {
    let pair = Pair::with_notes();
    pair.keep(&THREE);
    pair.other_puts("theirs", 7);
    pair.other_puts("more", 8);
    let mut vault = pair.open(pair.one.path());
    assert_eq!(commit_uncommitted(&mut vault).unwrap(), [4, 5, 6]);
    drop(vault);
    let mut other = pair.open(pair.other.path());
    for (name, seed) in [("theirs", 7), ("more", 8), ("notes", 4), ("list", 3)] {
        pair.assert_content(&mut other, name, seed);
    }
    assert!(other.check(None, true, &mut |_| ()).unwrap().faults.is_empty());
}

#[test]
fn what_others_changed_too_stays_here_until_a_person_says_more() {
    let pair = Pair::with_notes();
    pair.keep(&THREE);
    pair.other_puts("notes", 9);
    let mut vault = pair.open(pair.one.path());
    for _ in 0..2 {
        let refused = commit_uncommitted(&mut vault);
        assert!(
            matches!(&refused, Err(VaultClientError::Overtaken { name, .. }) if name == b"notes"),
            "{refused:?}"
        );
        assert_eq!((waiting(&vault).unwrap().len(), vault.head().signed.root.number), (3, 2));
    }
    assert!(show_uncommitted(&mut vault).unwrap());
    pair.assert_content(&mut vault, "notes", 4);
    show_committed(&mut vault);
    drop(vault);
    assert_eq!(discard(&pair.local(pair.one.path())).unwrap(), 3);
    let mut vault = pair.open(pair.one.path());
    assert!(matches!(pair.put(&mut vault, "notes", 4), Err(VaultClientError::Conflict { .. })));
    pair.assert_content(&mut vault, "notes", 9);
    assert!(pair.put(&mut vault, "list", 3).unwrap().is_committed);
}

#[test]
fn what_was_encrypted_before_the_keys_changed_is_not_committed() {
    let pair = Pair::with_notes();
    pair.keep(&[("list", 3)]);
    let mut other = pair.open(pair.other.path());
    let member = Identity::generate().unwrap().node_id();
    share(&mut other, member, false).unwrap();
    revoke(&mut other, member).unwrap();
    drop(other);
    let mut vault = pair.open(pair.one.path());
    let refused = commit_uncommitted(&mut vault);
    assert!(matches!(
        refused,
        Err(VaultClientError::Overtaken { why: "the vault's keys changed meanwhile", .. })
    ));
    assert!(show_uncommitted(&mut vault).unwrap());
    pair.assert_content(&mut vault, "list", 3);
}

/// A connection that breaks before or behind any of the commits: each version is there once in the end.
#[test]
fn wherever_the_connection_breaks_each_is_committed_once() {
    for (lie, truths, is_moved) in (0..3).flat_map(|at| {
        [Lie::Broken, Lie::Unanswered].into_iter().flat_map(move |lie| [(lie, at, false), (lie, at, true)])
    }) {
        let pair = Pair::with_notes();
        pair.keep(&THREE);
        if is_moved {
            pair.other_puts("theirs", 7);
        }
        let way = Box::new(Lying::new(&pair.served, lie, truths));
        let mut vault = pair.open_by(pair.one.path(), way);
        let broken = commit_uncommitted(&mut vault);
        let told = format!("{lie:?} after {truths}, moved {is_moved}: {broken:?}");
        assert!(matches!(broken, Err(VaultClientError::Server(ServerError::Unreachable(_)))), "{told}");
        drop(vault);
        let mut vault = pair.open(pair.one.path());
        commit_uncommitted(&mut vault).unwrap();
        assert_eq!(pair.served.borrow_mut().newest(), 4 + u64::from(is_moved), "{told}");
        pair.assert_content(&mut vault, "notes", 4);
        pair.assert_content(&mut vault, "list", 3);
        assert!(waiting(&vault).unwrap().is_empty(), "{told}");
    }
}

#[test]
fn a_put_that_was_cut_off_waits_unless_it_was_committed() {
    for (lie, numbers) in [(Lie::Broken, &[2][..]), (Lie::Unanswered, &[])] {
        let pair = Pair::with_notes();
        let mut vault = pair.open_by(pair.one.path(), pair.way(lie));
        let cut = pair.put(&mut vault, "notes", 2);
        assert!(matches!(cut, Err(VaultClientError::Server(ServerError::Unreachable(_)))), "{cut:?}");
        drop(vault);
        let mut offline = pair.unreachable();
        assert_eq!(Pair::names(&mut offline), ["notes"], "{lie:?}");
        let kept = pair.put(&mut offline, "notes", 2).unwrap();
        assert!(!kept.is_new && !kept.is_committed, "from now on it is kept here");
        drop(offline);
        let mut vault = pair.open(pair.one.path());
        assert_eq!(commit_uncommitted(&mut vault).unwrap(), numbers, "{lie:?}");
        assert_eq!(pair.served.borrow_mut().newest(), 2);
        pair.assert_content(&mut vault, "notes", 2);
    }
}

/// Its blocks are those of the cache, and may be gone.
#[test]
fn a_put_that_was_cut_off_and_is_not_whole_is_none() {
    let pair = Pair::with_notes();
    let mut vault = pair.open_by(pair.one.path(), pair.way(Lie::Broken));
    pair.put(&mut vault, "notes", 2).unwrap_err();
    drop(vault);
    let folder = pair.one.path().join(".vaults").join(pair.keys.vault.to_string());
    for lost in ["blocks", "uncommitted-blocks"] {
        fs::remove_dir_all(folder.join(lost)).unwrap();
    }
    let mut vault = pair.open(pair.one.path());
    assert!(!show_uncommitted(&mut vault).unwrap());
    let root = vault.head().signed.root.clone();
    vault.catalogue(&root).unwrap();
    drop(vault);
    pair.keep(&[("list", 3)]);
    let mut vault = pair.open(pair.one.path());
    assert_eq!(commit_uncommitted(&mut vault).unwrap(), [2]);
    assert!(pair.put(&mut vault, "notes", 2).unwrap().is_committed);
}

#[test]
fn who_looks_beside_a_put_sees_it_and_writes_nothing() {
    let pair = Pair::with_notes();
    let mut vault = pair.open_by(pair.one.path(), pair.way(Lie::Broken));
    pair.put(&mut vault, "notes", 2).unwrap_err();
    // It holds the folder's lock still.
    let folder = pair.one.path().join(".vaults").join(pair.keys.vault.to_string());
    let before = listing(&folder);
    let local = LocalVault::look(&pair.one.path().join(".vaults"), &pair.keys.vault).unwrap();
    assert!(local.is_beside());
    let mut looking = open_looking(local, pair.keys.clone(), pair.way(Lie::None), pair.trusted).unwrap();
    pair.assert_content(&mut looking, "notes", 1);
    assert!(show_uncommitted(&mut looking).unwrap());
    assert_eq!(Pair::names(&mut looking), ["notes"]);
    pair.assert_content(&mut looking, "notes", 2);
    drop(looking);
    assert_eq!(listing(&folder), before);
}

/// The entry of a tree stays as it is where a file's bytes change.
#[test]
fn a_change_inside_a_tree_is_seen_and_is_overtaken_by_another() {
    let pair = Pair::new();
    let put = |mut vault: VaultClient, folder: &Path, seed| {
        let tree = folder.join("tree");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join("file"), noise(seed, 9000)).unwrap();
        let options = PutOptions { overwrite: true, checksum: true, ..PutOptions::default() };
        vault.put(&tree, b"tree", &options, &mut |_| ()).unwrap()
    };
    put(pair.open(pair.one.path()), pair.one.path(), 1);
    assert!(!put(pair.unreachable(), pair.one.path(), 2).is_committed);
    let mut offline = pair.unreachable();
    assert_eq!(Pair::names(&mut offline), ["tree"]);
    let got = pair.other.path().join("got");
    offline.get(b"tree", None, &got, false, &mut |_| ()).unwrap();
    assert!(fs::read(got.join("file")).unwrap() == noise(2, 9000));
    drop(offline);
    put(pair.open(pair.other.path()), pair.other.path(), 3);
    let refused = commit_uncommitted(&mut pair.open(pair.one.path()));
    assert!(
        matches!(&refused, Err(VaultClientError::Overtaken { name, .. }) if name == b"tree"),
        "{refused:?}"
    );
}

#[test]
fn versions_that_others_dropped_meanwhile_hold_nothing_up() {
    let pair = Pair::with_notes();
    pair.keep(&THREE);
    (5..9).for_each(|seed| pair.other_puts(&format!("other {seed}"), seed));
    collect(&mut pair.open(pair.other.path()), 1).unwrap();
    let mut vault = pair.open(pair.one.path());
    assert_eq!(commit_uncommitted(&mut vault).unwrap(), [6, 7, 8]);
    pair.assert_content(&mut vault, "notes", 4);
}

/// Larger than what is written beside the caches while a put is on its way.
#[test]
fn a_large_put_whose_connection_breaks_is_seen_by_the_same_process() {
    let pair = Pair::new();
    let file = pair.one.path().join("large");
    fs::write(&file, noise(1, 17 << 20)).unwrap();
    let mut vault = pair.open_by(pair.one.path(), pair.way(Lie::Broken));
    vault.put(&file, b"large", &PutOptions::default(), &mut |_| ()).unwrap_err();
    let mut offline = without_server(vault, ServerError::Unreachable("it is gone".into())).unwrap();
    assert_eq!(Pair::names(&mut offline), ["large"]);
}

#[test]
fn who_looks_beside_a_commit_may_find_nothing_left() {
    let pair = Pair::with_notes();
    pair.keep(&THREE);
    let folder = pair.one.path().join(".vaults").join(pair.keys.vault.to_string());
    for lost in ["blocks", "uncommitted-blocks"] {
        fs::remove_dir_all(folder.join(lost)).unwrap();
    }
    let mut held = pair.open(pair.one.path());
    let local = LocalVault::look(&pair.one.path().join(".vaults"), &pair.keys.vault).unwrap();
    let mut looking = open_looking(local, pair.keys.clone(), pair.way(Lie::None), pair.trusted).unwrap();
    assert!(!show_uncommitted(&mut looking).unwrap());
    assert!(matches!(show_uncommitted(&mut held), Err(VaultClientError::Damaged { .. })), "here it is lost");
}

/// Names and lengths of the files in a folder.
fn listing(folder: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut found: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap()))
        .map(|(name, data)| (name, if data.is_file() { data.len() } else { 0 }))
        .collect();
    found.sort();
    found
}

#[test]
fn a_queue_comes_back_and_never_cut_short_or_changed() {
    let pair = Pair::with_notes();
    pair.keep(&THREE);
    let path = pair.one.path().join(".vaults").join(pair.keys.vault.to_string()).join("uncommitted");
    let bytes = fs::read(&path).unwrap();
    let queue = UncommittedQueue::from_bytes(&bytes).unwrap();
    assert_eq!((queue.versions.len(), queue.to_bytes() == bytes), (3, true));
    assert!((0..bytes.len()).step_by(97).all(|end| UncommittedQueue::from_bytes(&bytes[..end]).is_err()));
    let mut swapped = queue.clone();
    swapped.versions.swap(0, 1);
    assert!(UncommittedQueue::from_bytes(&swapped.to_bytes()).is_err());
    assert_eq!(queue.clone().behind(&queue.base), Some(queue));
    fs::write(&path, &bytes[..100]).unwrap();
    let mut vault = pair.open(pair.one.path());
    assert!(
        matches!(commit_uncommitted(&mut vault), Err(VaultClientError::Damaged { .. })),
        "not taken for none"
    );
}
