//! Many versions of one file: nodes are patches on older ones, and each version is as it was, however many came behind it or went.

use std::path::Path;
use std::sync::Arc;

use towpath_byte_store::{ByteStore, LocalFiles, PlaceOwner};
use towpath_link::Identity;
use towpath_vault_format::doubles::TestKey;
use towpath_vault_format::{Canonical, Digest, DropStatement, DroppedRange, VaultRoot};

use super::writer::{TestWriter, VAULT, commit, content_of};
use crate::changes::{MAX_DEPTH, NodeChange, short};
use crate::error::VaultError;
use crate::log::{LogFile, RecordLog};
use crate::objects::VaultObjects;
use crate::vault::{Vault, VaultLimits};

/// Versions, more than patches on each other.
const VERSIONS: u64 = 3 * MAX_DEPTH as u64;

fn packs(folder: &Path) -> Arc<LocalFiles> {
    let packs = LocalFiles::new(&folder.join("packs"));
    packs.claim(&PlaceOwner([1; 16]), true).unwrap();
    Arc::new(packs)
}

fn open(folder: &Path) -> Vault {
    let medium = LogFile::at(&folder.join("vault.log")).unwrap();
    Vault::open(Box::new(medium), packs(folder), VaultLimits::default()).unwrap()
}

/// It ends and begins again.
fn again(vault: Vault, folder: &Path) -> Vault {
    drop(vault);
    open(folder)
}

fn drop_up_to(vault: &mut Vault, number: u64, last: u64) {
    let (deleter, dropped) = (TestKey::new(50), vec![DroppedRange { first: 0, last }]);
    let statement =
        DropStatement { vault: VAULT, number, dropped, deleter: deleter.node(), signature: [0; 64] };
    vault.drop_versions(statement.sign(|message| deleter.sign(message))).unwrap();
    vault.collect().unwrap();
}

fn assert_whole(vault: &Vault, versions: &[(VaultRoot, Vec<u8>)]) {
    for (root, content) in versions {
        assert!(content_of(vault, root) == *content, "version {}", root.number);
    }
}

#[test]
fn many_versions_of_one_file_cost_their_updates_and_all_come_back() {
    let (server, folder) = (Identity::generate().unwrap(), tempfile::tempdir().unwrap());
    let (mut vault, mut writer) = (open(folder.path()), TestWriter::new(1));
    writer.members.deleter = Some(TestKey::new(50).node());
    let creation = writer.creation();
    commit(&mut vault, &creation, &server).unwrap();
    writer.committed(creation);
    let first = writer.insertion(0, &[90; 400]);
    commit(&mut vault, &first, &server).unwrap();
    writer.committed(first);
    let (before, mut random) = (vault.sizes().1, fastrand::Rng::with_seed(1));
    let (mut versions, mut updates, mut nodes) = (Vec::new(), 0, 0);
    for _ in 0..VERSIONS {
        let version = writer.insertion(random.usize(..writer.content.len()), &[40]);
        commit(&mut vault, &version, &server).unwrap();
        updates += version.update.to_bytes().len() + version.root.to_bytes().len() + 40;
        nodes += version.node_bytes();
        versions.push((version.root.clone(), version.content.clone()));
        writer.committed(version);
    }
    // Words and signatures of writer and server take some 400 bytes of each version.
    let rest = (vault.sizes().1 - before) as usize - updates - 400 * VERSIONS as usize;
    assert!(2 * rest < nodes, "{nodes} bytes of nodes in {rest}");
    assert_whole(&vault, &versions);
    vault = again(vault, folder.path());
    assert_whole(&vault, &versions);
    // What stays is a patch on what goes, over and over.
    for (number, newest) in [(0, 70), (1, 71), (2, 150), (3, VERSIONS)] {
        drop_up_to(&mut vault, number, newest);
        let kept: Vec<_> = versions.iter().filter(|(root, _)| root.number > newest).cloned().collect();
        assert_whole(&vault, &kept);
        vault = again(vault, folder.path());
        assert_whole(&vault, &kept);
        assert!(!kept.is_empty(), "the newest stays");
    }
    let last = writer.insertion(7, &[50]);
    commit(&mut vault, &last, &server).unwrap();
    assert_whole(&vault, &[(last.root, last.content)]);
}

/// A log that its disk, or who keeps it, made up: an object is lost, and nothing goes on for ever.
#[test]
fn patches_on_themselves_or_on_nothing_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let log = RecordLog::open(Box::new(LogFile::at(&folder.path().join("log")).unwrap()), |_, _| Ok(()));
    let mut objects = VaultObjects::new(packs(folder.path()));
    let [one, other, third] = [1, 2, 3].map(|byte| Digest([byte; 32]));
    let change = |name, base| NodeChange { name: short(&name), base: short(&base), len: 9, patch: vec![1] };
    objects.add_changes((0, 9), &[change(one, other), change(other, one), change(third, Digest([4; 32]))]);
    for name in [one, other, third] {
        let read = objects.read(log.as_ref().unwrap(), &name);
        assert!(matches!(read, Err(VaultError::Lost(lost)) if lost == name), "{read:?}");
    }
    assert_eq!(objects.stored(), 3);
}
