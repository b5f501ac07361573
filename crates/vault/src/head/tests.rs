//! Heads in which one thing is wrong, and heads that do not follow from the one that was seen.

use towpath_vault_format::doubles::{TestKey, creation, members};
use towpath_vault_format::{Members, NodeMap, apply};

use super::*;

const VAULT: VaultId = VaultId([3; 16]);
const OTHER: VaultId = VaultId([4; 16]);

fn owner() -> TestKey {
    TestKey::new(1)
}

fn server() -> TestKey {
    TestKey::new(9)
}

/// Neither owner, nor member, nor server.
fn thief() -> TestKey {
    TestKey::new(66)
}

fn trusted() -> TrustedNodes {
    TrustedNodes { vault: VAULT, owner: owner().node(), server: server().node() }
}

/// What a head is made of, before it is signed.
struct Parts {
    root: VaultRoot,
    members: Members,
    owner: TestKey,
    writer: TestKey,
    server: TestKey,
}

impl Parts {
    fn new() -> Self {
        let update = creation(VAULT, 16, members(VAULT, &owner(), &[], &[]));
        let root = apply(&update, None, &NodeMap::default()).unwrap().root;
        let members = members(VAULT, &owner(), &[], &[]).members;
        Self { root, members, owner: owner(), writer: owner(), server: server() }
    }

    /// All signatures are those of whoever is said to sign; each record names the others as they are.
    fn signed(mut self) -> VaultHead {
        let members = SignedMembers::sign(self.members, |message| self.owner.sign(message));
        self.root.members = members.digest();
        let update = Digest([7; 32]);
        let signed =
            SignedRoot::sign(self.root, self.writer.node(), update, |message| self.writer.sign(message));
        certified(signed, members, &self.server)
    }
}

fn certified(signed: SignedRoot, members: SignedMembers, server: &TestKey) -> VaultHead {
    let SignedRoot { root: VaultRoot { vault, number, .. }, update, .. } = signed;
    let (root, previous, time) = (signed.root.digest(), Digest::NONE, 7);
    let node = server.node();
    let certificate =
        Certificate { vault, number, root, previous, update, time, server: node, signature: [0; 64] };
    let certificate = certificate.sign(|message| server.sign(message));
    VaultHead { signed, members, certificate }
}

/// A head whose parts are as `change` leaves them, all signed again.
fn with(change: impl FnOnce(&mut Parts)) -> VaultHead {
    let mut parts = Parts::new();
    change(&mut parts);
    parts.signed()
}

/// A good head of which `change` leaves something else than what was signed.
fn after(change: impl FnOnce(&mut VaultHead)) -> VaultHead {
    let mut head = Parts::new().signed();
    change(&mut head);
    head
}

/// The server certifies again what the head has now.
fn certified_again(head: &mut VaultHead) {
    *head = certified(head.signed.clone(), head.members.clone(), &server());
}

/// The writer and the server sign again what the head has now.
fn signed_again(head: &mut VaultHead) {
    let (root, update) = (head.signed.root.clone(), head.signed.update);
    head.signed = SignedRoot::sign(root, owner().node(), update, |message| owner().sign(message));
    certified_again(head);
}

/// The server signs a certificate of something else.
fn of_another(head: &mut VaultHead, change: impl FnOnce(&mut Certificate)) {
    change(&mut head.certificate);
    head.certificate = head.certificate.sign(|message| server().sign(message));
}

fn older_members(head: &mut VaultHead) {
    let members = Members { number: 1, ..head.members.members.clone() };
    head.members = SignedMembers::sign(members, |message| owner().sign(message));
}

fn unsigned_members(head: &mut VaultHead) {
    head.members.members.readers.push(thief().node());
    head.signed.root.members = head.members.digest();
    signed_again(head);
}

#[test]
fn a_head_in_which_one_thing_is_wrong_is_not_proved_and_it_is_named() {
    assert_eq!(Parts::new().signed().prove(&trusted()), Ok(()));
    let wrong: [(&str, VaultHead); 15] = [
        ("it is another vault's", with(|parts| parts.root.vault = OTHER)),
        ("its members are another vault's", with(|parts| parts.members.vault = OTHER)),
        (
            "its members are not named by the vault's owner",
            with(|parts| {
                (parts.owner, parts.writer) = (thief(), thief());
                parts.members.owner = thief().node();
            }),
        ),
        ("its members are not signed by the vault's owner", with(|parts| parts.owner = thief())),
        ("its members are not signed by the vault's owner", after(unsigned_members)),
        ("its members are not those that its root names", after(older_members)),
        ("its writer is no member who may write", with(|parts| parts.writer = thief())),
        (
            "its writer is no member who may write",
            with(|parts| {
                parts.members.readers = vec![thief().node()];
                parts.writer = thief();
            }),
        ),
        (
            "its root is not signed by its writer",
            after(|head| {
                head.signed.signature[9] ^= 1;
            }),
        ),
        (
            "its root is not signed by its writer",
            after(|head| {
                head.signed.root.keys = Digest([8; 32]);
                certified_again(head);
            }),
        ),
        (
            "its root is not signed by its writer",
            after(|head| {
                head.signed.update = Digest([8; 32]);
                certified_again(head);
            }),
        ),
        ("its certificate is not the server's", with(|parts| parts.server = thief())),
        ("its certificate is not the server's", after(|head| head.certificate.time += 1)),
        (
            "its certificate is of another version",
            after(|head| of_another(head, |certificate| certificate.root = Digest([8; 32]))),
        ),
        (
            "its certificate is of another version",
            after(|head| of_another(head, |certificate| certificate.number = 1)),
        ),
    ];
    for (why, head) in wrong {
        assert_eq!(head.prove(&trusted()), Err(HeadError::NotProved { number: 0, why }));
    }
}

/// Versions 0 to 3, each on the one before.
fn chain(seed: u8) -> Vec<VaultHead> {
    let mut heads = vec![Parts::new().signed()];
    for number in 1..4 {
        let mut next = Parts::new();
        next.root.number = number;
        next.root.previous = heads.last().unwrap().named().root;
        next.root.keys = Digest([seed; 32]);
        heads.push(next.signed());
    }
    heads
}

fn links(heads: &[VaultHead]) -> Vec<VersionLink> {
    heads.iter().map(|head| VersionLink::of(&head.signed.root)).collect()
}

#[test]
fn a_head_follows_by_every_version_between_and_else_is_a_rollback_or_a_fork() {
    let (heads, other) = (chain(1), chain(2));
    let named = |head: &VaultHead| head.named();
    assert_eq!(heads[3].follows(&heads[1], &links(&heads[2..])), Ok(()));
    assert_eq!(heads[1].follows(&heads[1], &[]), Ok(()));
    let (seen, found) = (named(&heads[2]), named(&heads[1]));
    assert_eq!(heads[1].follows(&heads[2], &[]), Err(HeadError::Rollback { seen, found }));
    let fork = |seen: &VaultHead, found: &VaultHead, between: &[VersionLink]| {
        let error = HeadError::Fork { seen: named(seen), found: named(found) };
        assert_eq!(found.follows(seen, between), Err(error));
    };
    fork(&heads[1], &other[1], &[]);
    fork(&heads[1], &other[3], &links(&other[2..]));
    fork(&heads[1], &heads[3], &links(&heads[3..]));
    fork(&heads[1], &heads[3], &links(&[heads[3].clone(), heads[2].clone()]));
    fork(&heads[1], &heads[3], &links(&[heads[2].clone(), other[3].clone()]));
    fork(&heads[1], &heads[3], &links(&heads[2..3]));
}

#[test]
fn members_of_a_lower_number_do_not_come_back() {
    let mut seen = Parts::new();
    seen.members.number = 5;
    let seen = seen.signed();
    let mut next = Parts::new();
    next.members.number = 4;
    (next.root.number, next.root.previous) = (1, seen.named().root);
    let next = next.signed();
    let why = "its members are older ones";
    let error = HeadError::NotProved { number: 1, why };
    assert_eq!(next.follows(&seen, &links(std::slice::from_ref(&next))), Err(error));
}

#[test]
fn a_head_that_is_kept_is_read_again_and_one_that_is_cut_is_refused() {
    let head = Parts::new().signed();
    let bytes = head.to_bytes();
    assert_eq!(VaultHead::from_bytes(&bytes).as_ref(), Ok(&head));
    for len in 0..bytes.len() {
        assert!(VaultHead::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(VaultHead::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
}
