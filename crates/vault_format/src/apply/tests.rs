//! Updates: predicates, members, all or nothing, and what is signed.

use super::*;
use crate::doubles::{TestKey, block, creation, members, update_of};
use crate::names::VaultId;
use crate::root::SignedRoot;
use crate::tree::NodeMap;

const VAULT: VaultId = VaultId([3; 16]);
const FILE: FileId = FileId([5; 16]);
const OTHER: FileId = FileId([6; 16]);

struct Setting {
    owner: TestKey,
    writer: TestKey,
    members: Members,
    root: VaultRoot,
    store: NodeMap,
}

impl Setting {
    fn new() -> Self {
        let (owner, writer) = (TestKey::new(1), TestKey::new(2));
        let signed = members(VAULT, &owner, &[writer.node()], &[]);
        let members = signed.members.clone();
        let store = NodeMap::default();
        let made = apply(&creation(VAULT, 2, signed), None, &store).unwrap();
        Self { owner, writer, members, root: made.root, store }
    }

    fn apply(&self, update: &Update) -> Result<Applied, UpdateError> {
        apply(update, Some((&self.root, &self.members)), &self.store)
    }

    fn commit(&mut self, update: &Update) {
        let Applied { root, nodes } = self.apply(update).unwrap();
        nodes.into_iter().for_each(|node| self.store.insert(node.bytes));
        self.root = root;
    }

    fn append(&self, file: FileId, bytes: &[u8]) -> Update {
        let (tuple, new) = block(bytes, 1);
        let at = self.root.file(&file).map_or(0, |file| file.length);
        let insert = UpdateAction::Insert { at, tuples: vec![tuple] };
        update_of(&self.root, self.writer.node(), file, vec![insert], vec![new])
    }
}

#[test]
fn a_vault_is_made_and_each_version_names_the_one_before() {
    let mut vault = Setting::new();
    assert_eq!((vault.root.number, vault.root.previous), (0, Digest::NONE));
    let before = vault.root.digest();
    vault.commit(&vault.append(FILE, b"one"));
    assert_eq!((vault.root.number, vault.root.previous), (1, before));
    vault.commit(&vault.append(FILE, b"two"));
    vault.commit(&vault.append(OTHER, b"three"));
    let lengths: Vec<u64> = vault.root.files.iter().map(|file| file.length).collect();
    assert_eq!((vault.root.number, lengths), (3, vec![6, 5]));
    let read = VaultRoot::from_bytes(&vault.root.to_bytes());
    assert_eq!(read, Ok(vault.root));
}

#[test]
fn of_two_updates_on_one_version_the_second_conflicts_or_is_done_on_the_newer() {
    let mut vault = Setting::new();
    vault.commit(&vault.append(FILE, b"one"));
    let (same, other, before) =
        (vault.append(FILE, b"two"), vault.append(OTHER, b"three"), vault.root.clone());
    vault.commit(&vault.append(FILE, b"first"));
    let stands_against =
        |update: &Update, base: Option<&VaultRoot>| conflict(update, Some(&vault.root), base);
    assert_eq!(stands_against(&same, Some(&before)), Some(Conflict::FileChanged(FILE)));
    assert_eq!(stands_against(&other, Some(&before)), Some(Conflict::Moved));
    assert_eq!(stands_against(&other, None), Some(Conflict::FileChanged(OTHER)), "of an unknown base");
    assert!(matches!(vault.apply(&same), Err(UpdateError::Conflict(_))));
    vault.commit(&Update { base: Some(Predicate::on(&vault.root)), ..other });
    assert_eq!(vault.root.files.len(), 2);
}

#[test]
fn an_update_that_fails_in_one_file_changes_none() {
    let vault = Setting::new();
    let mut update = vault.append(FILE, b"one");
    let delete = vec![UpdateAction::Delete { at: 0, length: 1 }];
    update.files.push(FileUpdate { file: OTHER, epoch: 0, actions: delete });
    assert!(matches!(vault.apply(&update), Err(UpdateError::Tree { file: OTHER, .. })));
}

#[test]
fn a_file_is_removed_only_by_the_last_step_and_an_epoch_never_goes_back() {
    let mut vault = Setting::new();
    let mut update = vault.append(FILE, b"one");
    update.files[0].epoch = 4;
    vault.commit(&update);
    let mut back = vault.append(FILE, b"two");
    assert_eq!(vault.apply(&back), Err(UpdateError::Epoch(FILE)));
    back.files[0].epoch = 4;
    back.files[0].actions.insert(0, UpdateAction::Remove);
    assert!(matches!(vault.apply(&back), Err(UpdateError::Steps { file: FILE, .. })));
    back.files[0].actions.remove(1);
    vault.commit(&back);
    assert_eq!(vault.root.files, []);
}

#[test]
fn only_members_write_and_only_the_owner_changes_members() {
    let vault = Setting::new();
    let stranger = TestKey::new(9);
    let mut update = vault.append(FILE, b"one");
    update.writer = stranger.node();
    assert_eq!(vault.apply(&update), Err(UpdateError::NotAWriter));
    let next = |number: u64, owner: &TestKey| {
        let changed = Members { number, writers: Vec::new(), ..vault.members.clone() };
        crate::members::SignedMembers::sign(changed, |message| owner.sign(message))
    };
    let with = |writer: &TestKey, members| {
        let mut update = vault.append(FILE, b"one");
        (update.writer, update.members) = (writer.node(), Some(members));
        vault.apply(&update)
    };
    assert!(with(&vault.owner, next(1, &vault.owner)).is_ok());
    for (writer, members) in [
        (&vault.writer, next(1, &vault.owner)),
        (&vault.owner, next(0, &vault.owner)),
        (&vault.owner, next(2, &vault.owner)),
        (&vault.owner, next(1, &vault.writer)),
    ] {
        assert!(matches!(with(writer, members), Err(UpdateError::Members(_))));
    }
    for (writer, may) in [(&vault.owner, true), (&vault.writer, false)] {
        let mut update = vault.append(FILE, b"one");
        (update.writer, update.keys) = (writer.node(), Some(b"other keys".to_vec()));
        assert_eq!(vault.apply(&update).is_ok(), may, "keys are the owner's to change");
    }
}

#[test]
fn a_vault_is_made_once_and_by_its_owner() {
    let vault = Setting::new();
    let members = || members(VAULT, &vault.owner, &[], &[]);
    let first = |change: &dyn Fn(&mut Update)| {
        let mut update = creation(VAULT, 16, members());
        change(&mut update);
        apply(&update, None, &vault.store)
    };
    assert!(first(&|_| {}).is_ok());
    assert_eq!(first(&|update| update.parameters = None), Err(UpdateError::Parameters));
    assert!(matches!(first(&|update| update.members = None), Err(UpdateError::Members(_))));
    assert!(matches!(first(&|update| update.vault = VaultId([4; 16])), Err(UpdateError::Members(_))));
    assert_eq!(first(&|update| update.writer = vault.writer.node()), Err(UpdateError::NotAWriter));
    let forge = |update: &mut Update| update.members.as_mut().unwrap().signature[0] ^= 1;
    assert!(matches!(first(&forge), Err(UpdateError::Members(_))));
    let again = vault.apply(&creation(VAULT, 16, members()));
    assert_eq!(again, Err(UpdateError::Conflict(Conflict::Existence)));
    let mut parameters = vault.append(FILE, b"one");
    parameters.parameters = Some(vault.root.parameters.clone());
    assert_eq!(vault.apply(&parameters), Err(UpdateError::Parameters));
    let mut foreign = vault.append(FILE, b"one");
    foreign.vault = VaultId([4; 16]);
    assert_eq!(vault.apply(&foreign), Err(UpdateError::OtherVault));
}

#[test]
fn a_signature_is_of_one_root_and_one_update() {
    let vault = Setting::new();
    let update = vault.append(FILE, b"one");
    let root = vault.apply(&update).unwrap().root;
    let writer = &vault.writer;
    let signed = SignedRoot::sign(root, writer.node(), update.digest(), |message| writer.sign(message));
    assert!(signed.is_signed());
    assert!(SignedRoot::from_bytes(&signed.to_bytes()).unwrap().is_signed());
    let forged = [
        SignedRoot { update: Digest::of(b"another"), ..signed.clone() },
        SignedRoot { writer: vault.owner.node(), ..signed.clone() },
        SignedRoot { root: vault.root.clone(), ..signed.clone() },
        SignedRoot { signature: [0; 64], ..signed.clone() },
    ];
    assert!(forged.iter().all(|forged| !forged.is_signed()));
    let mut swapped = signed;
    swapped.root.files[0].file = OTHER;
    assert!(!swapped.is_signed(), "a root of another file is another root");
}
