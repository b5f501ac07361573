//! What members can't do, whatever program they have.

use std::sync::Arc;

use towpath_byte_store::LocalFiles;
use towpath_link::Identity;
use towpath_vault_format::doubles::TestKey;
use towpath_vault_format::{
    Canonical, DropStatement, DroppedRange, Members, SignedMembers, SignedRoot, Update, UpdateError,
};

use super::writer::{SignedUpdate, TestWriter, VAULT, commit};
use crate::error::VaultError;
use crate::log::LogFile;
use crate::vault::{Vault, VaultLimits};

/// A vault with an owner, a writer and a reader.
struct Shared {
    vault: Vault,
    owner: TestWriter,
    server: Identity,
    _folder: tempfile::TempDir,
}

impl Shared {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let packs = Arc::new(LocalFiles::new(&folder.path().join("packs")));
        let medium = LogFile::at(&folder.path().join("vault.log")).unwrap();
        let vault = Vault::open(Box::new(medium), packs, VaultLimits::default()).unwrap();
        let mut owner = TestWriter::new(1);
        owner.members.deleter = Some(TestKey::new(50).node());
        owner.members.writers = vec![TestKey::new(2).node()];
        owner.members.readers = vec![TestKey::new(3).node()];
        let mut shared = Self { vault, owner, server: Identity::generate().unwrap(), _folder: folder };
        for is_first in [true, false] {
            let owner = &mut shared.owner;
            let version = if is_first { owner.creation() } else { owner.insertion(0, &[3000]) };
            shared.commit(&version).unwrap();
            shared.owner.committed(version);
        }
        shared
    }

    fn commit(&mut self, version: &SignedUpdate) -> Result<(), VaultError> {
        commit(&mut self.vault, version, &self.server).map(drop)
    }

    /// The owner's next version, changed and signed by another.
    fn by(&mut self, key: u8, change: impl FnOnce(&mut Update)) -> Result<(), VaultError> {
        let (key, mut version) = (TestKey::new(key), self.owner.insertion(0, &[10]));
        version.update.writer = key.node();
        change(&mut version.update);
        let message = SignedRoot::message(&version.root.digest(), &version.update.digest());
        version.signature = key.sign(&message);
        self.commit(&version)
    }
}

#[test]
fn a_reader_writes_nothing_and_a_writer_changes_neither_members_nor_keys() {
    let mut shared = Shared::new();
    let members = shared.owner.members.clone();
    let next = |signer: u8| {
        let key = TestKey::new(signer);
        let writers = vec![TestKey::new(3).node()];
        let more = Members { number: 1, writers, ..members.clone() };
        SignedMembers::sign(more, |message| key.sign(message))
    };
    let refused =
        |done: Result<(), VaultError>| matches!(done, Err(VaultError::Update(UpdateError::Members(_))));
    assert!(matches!(shared.by(3, |_| {}), Err(VaultError::Update(UpdateError::NotAWriter))));
    assert!(refused(shared.by(2, |update| update.members = Some(next(2)))));
    assert!(
        refused(shared.by(2, |update| update.members = Some(next(1)))),
        "not with the owner's word, either"
    );
    assert!(refused(shared.by(2, |update| update.keys = Some(b"planted".to_vec()))));
    shared.by(2, |_| {}).unwrap();
}

#[test]
fn nobody_writes_or_drops_in_the_name_of_another() {
    let mut shared = Shared::new();
    for named in [1, 2] {
        let forged = shared.by(3, |update| update.writer = TestKey::new(named).node());
        assert!(matches!(forged, Err(VaultError::Signature)), "{named}: {forged:?}");
    }
    let statement = |named: u8, signer: u8| {
        let dropped = vec![DroppedRange { first: 0, last: 0 }];
        let deleter = TestKey::new(named).node();
        let statement = DropStatement { vault: VAULT, number: 0, dropped, deleter, signature: [0; 64] };
        statement.sign(|message| TestKey::new(signer).sign(message))
    };
    for (named, signer) in [(1, 1), (2, 2), (3, 3), (50, 1), (50, 2)] {
        let dropped = shared.vault.drop_versions(statement(named, signer));
        assert!(matches!(dropped, Err(VaultError::Statement)), "{named} {signer}");
    }
    shared.vault.drop_versions(statement(50, 50)).unwrap();
}

#[test]
fn who_was_revoked_neither_reads_nor_writes() {
    let mut shared = Shared::new();
    let (left, stays) = (TestKey::new(2).node(), TestKey::new(3).node());
    shared.vault.check_reader(&left).unwrap();
    let owner = TestKey::new(1);
    let members = Members { number: 1, writers: Vec::new(), ..shared.owner.members.clone() };
    let mut update = shared.owner.insertion(0, &[7]).update;
    update.files.clear();
    update.blocks.clear();
    update.members = Some(SignedMembers::sign(members.clone(), |message| owner.sign(message)));
    update.keys = Some(b"for those who stay".to_vec());
    let content = shared.owner.content.clone();
    let version = shared.owner.sign(update, content, Vec::new());
    shared.commit(&version).unwrap();
    shared.owner.committed(version);
    shared.owner.members = members;
    assert!(matches!(shared.vault.check_reader(&left), Err(VaultError::NotAllowed(_))));
    shared.vault.check_reader(&stays).unwrap();
    let written = shared.by(2, |_| {});
    assert!(matches!(written, Err(VaultError::Update(UpdateError::NotAWriter))), "{written:?}");
    shared.by(1, |_| {}).unwrap();
}
