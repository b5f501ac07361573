//! A server that lies to a client.

use bytes::Bytes;
use towpath_vault_format::doubles::{TestKey, creation, members};
use towpath_vault_format::{Conflict, Members, NodeMap, SignedMembers, VaultRoot, apply};

use super::*;
use crate::message::{ClientMessage, VaultRefusal, VersionLine};

const VAULT: VaultId = VaultId([3; 16]);

fn server() -> TestKey {
    TestKey::new(9)
}

fn update_and_root() -> (Update, VaultRoot) {
    let owner = TestKey::new(1);
    let update = creation(VAULT, 16, members(VAULT, &owner, &[], &[]));
    let root = apply(&update, None, &NodeMap::default()).unwrap().root;
    (update, root)
}

fn certificate(change: impl FnOnce(&mut Certificate), key: &TestKey) -> Certificate {
    let (update, root) = update_and_root();
    let (vault, number, root, update) = (VAULT, 0, root.digest(), update.digest());
    let (server, signature) = (server().node(), [0; 64]);
    let previous = Digest::NONE;
    let mut certificate = Certificate { vault, number, root, previous, update, time: 7, server, signature };
    change(&mut certificate);
    certificate.sign(|message| key.sign(message))
}

fn version() -> CommittedVersion {
    let ((update, root), owner) = (update_and_root(), TestKey::new(1));
    let signed = SignedRoot::sign(root, owner.node(), update.digest(), |message| owner.sign(message));
    CommittedVersion { signed, certificate: certificate(|_| {}, &server()) }
}

/// What a server's answer to a request comes to.
fn answered(
    ask: impl FnOnce(&mut ClientMachine) -> ClientMessage,
    answer: ServerMessage,
) -> Result<usize, ServerFault> {
    let mut machine = ClientMachine::new(server().node(), VAULT);
    ask(&mut machine);
    machine.receive(answer).map(|_| machine.outstanding())
}

fn proposed(answer: ServerMessage) -> Result<usize, ServerFault> {
    let (update, root) = update_and_root();
    answered(|machine| machine.propose(update, Some((root.digest(), [1; 64])), true), answer)
}

#[test]
fn a_certificate_of_anything_else_is_not_believed() {
    let good = certificate(|_| {}, &server());
    assert_eq!(proposed(ServerMessage::Committed(good)), Ok(0));
    let other = TestKey::new(8);
    for wrong in [
        certificate(|_| {}, &other),
        certificate(|certificate| certificate.server = other.node(), &other),
        certificate(|certificate| certificate.vault = VaultId([4; 16]), &server()),
        certificate(|certificate| certificate.number = 1, &server()),
        certificate(|certificate| certificate.root = Digest([5; 32]), &server()),
        certificate(|certificate| certificate.update = Digest([5; 32]), &server()),
    ] {
        assert!(matches!(proposed(ServerMessage::Committed(wrong)), Err(ServerFault::Word(_))), "{wrong:?}");
        let version = Box::new(CommittedVersion { certificate: wrong, ..version() });
        let head = answered(ClientMachine::hello, ServerMessage::Head(Some(version)));
        assert!(matches!(head, Err(ServerFault::Word(_))));
    }
    // Without a signature nothing can have been committed.
    let (update, _) = update_and_root();
    let unsigned = answered(|machine| machine.propose(update, None, false), ServerMessage::Committed(good));
    assert_eq!(unsigned, Err(ServerFault::Unasked));
}

#[test]
fn a_head_that_nobody_signed_or_that_is_another_root_is_not_believed() {
    let hello = |version| answered(ClientMachine::hello, ServerMessage::Head(Some(Box::new(version))));
    assert_eq!(hello(version()), Ok(0));
    let mut forged = version();
    forged.signed.signature[9] ^= 1;
    assert!(hello(forged).is_err());
    let mut swapped = version();
    swapped.signed.root.keys = Digest([1; 32]);
    assert!(hello(swapped).is_err());
    let conflict = |version| proposed(ServerMessage::Conflict(Conflict::Moved, Some(Box::new(version))));
    assert_eq!(conflict(version()), Ok(0));
    let mut forged = version();
    forged.signed.writer = server().node();
    assert!(conflict(forged).is_err());
}

#[test]
fn objects_and_versions_are_those_that_were_asked_for() {
    let object = Bytes::from_static(b"block");
    let get = |answer| answered(|machine| machine.get(vec![Digest::of(b"block")]), answer);
    assert_eq!(get(ServerMessage::Object(object)), Ok(0));
    assert!(matches!(get(ServerMessage::Object(Bytes::new())), Err(ServerFault::OtherObject(_))));
    assert_eq!(get(ServerMessage::Missing(Digest::of(b"block"))), Ok(0));
    assert_eq!(get(ServerMessage::Missing(Digest([1; 32]))), Err(ServerFault::Unasked));
    let root = |number| answered(|machine| machine.root(number), ServerMessage::Root(Box::new(version())));
    assert_eq!(root(0), Ok(0));
    assert_eq!(root(1), Err(ServerFault::Unasked), "another version than was asked for");
    let update = answered(|machine| machine.get_update(0), ServerMessage::Update(Bytes::new()));
    assert_eq!(update, Ok(0), "whoever uses it makes of it what it is");
}

#[test]
fn answers_to_nothing_and_wants_of_no_block_are_refused() {
    let line = VersionLine { number: 0, root: Digest::NONE, time: 0, writer: server().node() };
    for answer in [
        ServerMessage::Head(None),
        ServerMessage::Versions(vec![line]),
        ServerMessage::Dropped(0),
        ServerMessage::Refused(VaultRefusal::Full, String::new()),
    ] {
        let mut machine = ClientMachine::new(server().node(), VAULT);
        assert_eq!(machine.receive(answer), Err(ServerFault::Unasked));
    }
    assert_eq!(proposed(ServerMessage::Wants(vec![0])), Err(ServerFault::Unasked), "it has no blocks");
    assert_eq!(proposed(ServerMessage::Paths(Vec::new())), Err(ServerFault::Unasked), "it is signed");
    assert_eq!(proposed(ServerMessage::Head(None)), Err(ServerFault::Unasked));
    assert_eq!(proposed(ServerMessage::Refused(VaultRefusal::Full, String::new())), Ok(0));
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let mut machine = ClientMachine::new(server().node(), VAULT);
    machine.get(vec![Digest::of(b"one"), Digest::of(b"two")]);
    machine.versions(9, 9);
    assert_eq!(machine.outstanding(), 3);
    let wrong = machine.receive(ServerMessage::Object(Bytes::from_static(b"two")));
    assert!(matches!(wrong, Err(ServerFault::OtherObject(_))));
    for answer in [
        ServerMessage::Object(Bytes::from_static(b"one")),
        ServerMessage::Object(Bytes::from_static(b"two")),
        ServerMessage::Versions(Vec::new()),
    ] {
        machine.receive(answer).unwrap();
    }
    assert_eq!(machine.outstanding(), 0);
}

/// Members are not looked at here: that a stranger signed a root is for who knows the members.
#[test]
fn members_come_with_their_owners_word() {
    let owner = TestKey::new(1);
    let signed = members(VAULT, &owner, &[], &[]);
    let forged = SignedMembers {
        members: Members { readers: vec![server().node()], ..signed.members.clone() },
        ..signed.clone()
    };
    assert!(signed.is_signed() && !forged.is_signed());
}
