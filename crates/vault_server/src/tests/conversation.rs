//! Clients and the server on connections within this program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use towpath_byte_store::doubles::{ByteCall, FailingBytes};
use towpath_byte_store::{ByteStore, ByteStoreError, LocalFiles};
use towpath_content::NodeId;
use towpath_link::Identity;
use towpath_link::doubles::connected;
use towpath_vault_format::doubles::TestKey;
use towpath_vault_format::{
    Canonical, Conflict, Digest, DropStatement, DroppedRange, NodeMap, SignedRoot, UpdateAction, apply,
};
use towpath_vault_protocol::message::MAX_GET;
use towpath_vault_protocol::whole::unpacked_update;
use towpath_vault_protocol::{
    ClientMessage, CommitAnswer, CommittedVersion, ConnectionError, ProposalPaths, VaultConnection,
    VaultRefusal,
};

use super::writer::{FILE, SignedUpdate, TestWriter, VAULT};
use crate::folder::{VaultFolder, VaultRules};
use crate::server::VaultServer;
use crate::vault::VaultLimits;

pub(super) struct Place {
    server: Arc<VaultServer>,
    pub(super) vaults: Arc<VaultFolder>,
    node: NodeId,
    token: CancellationToken,
    folder: tempfile::TempDir,
}

impl Place {
    fn new(rules: VaultRules) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::generate().unwrap();
        Self::with(folder, identity, rules)
    }

    fn with(folder: tempfile::TempDir, identity: Identity, rules: VaultRules) -> Self {
        let packs = Arc::new(LocalFiles::new(&folder.path().join("packs")));
        Self::on(folder, packs, identity, rules)
    }

    /// On a disk that has no room for a pack while `is_full` says so.
    fn on_full_disk(is_full: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(LocalFiles::new(&folder.path().join("packs")));
        let full = || ByteStoreError::Full { place: "here".into(), why: "no room".into() };
        let faults = move |call| (call == ByteCall::Put && is_full()).then(full);
        let packs = Arc::new(FailingBytes::new(files, Box::new(faults)));
        let rules = VaultRules { public: true, ..VaultRules::default() };
        Self::on(folder, packs, Identity::generate().unwrap(), rules)
    }

    pub(super) fn on(
        folder: tempfile::TempDir,
        packs: Arc<dyn ByteStore>,
        identity: Identity,
        rules: VaultRules,
    ) -> Self {
        let node = identity.node_id();
        let vaults = VaultFolder::open(folder.path(), packs, identity, rules).unwrap();
        let server = VaultServer::new(Arc::clone(&vaults));
        Self { server, vaults, node, token: CancellationToken::new(), folder }
    }

    fn public() -> Self {
        Self::new(VaultRules { public: true, ..VaultRules::default() })
    }

    async fn connect(
        &self,
        client: NodeId,
    ) -> Result<(VaultConnection, Option<CommittedVersion>), ConnectionError> {
        let [near, far] = connected([self.node, client]).await;
        tokio::spawn(Arc::clone(&self.server).serve(near, self.token.clone()));
        VaultConnection::over(far, client, (VAULT, None)).await
    }

    pub(super) async fn connected(&self, writer: &TestWriter) -> (VaultConnection, Option<CommittedVersion>) {
        self.connect(writer.key.node()).await.unwrap()
    }
}

pub(super) async fn commit(
    connection: &mut VaultConnection,
    version: &SignedUpdate,
    pushes: bool,
) -> CommitAnswer {
    let give = &mut |hash: &Digest| version.give(hash);
    connection.commit(version.update.clone(), version.signed(), pushes, give).await.unwrap()
}

/// Commits a version, and counts the blocks that the server asked for.
async fn committed(connection: &mut VaultConnection, version: &SignedUpdate) -> usize {
    let mut given = 0;
    let give = &mut |hash: &Digest| {
        given += 1;
        version.give(hash)
    };
    let answer = connection.commit(version.update.clone(), version.signed(), false, give).await.unwrap();
    assert!(matches!(answer, CommitAnswer::Committed(_)), "{answer:?}");
    given
}

/// A vault with a version.
async fn begun(place: &Place) -> (TestWriter, VaultConnection) {
    let mut writer = TestWriter::new(1);
    let (mut connection, head) = place.connected(&writer).await;
    assert_eq!(head, None);
    let first = writer.creation();
    assert!(matches!(commit(&mut connection, &first, true).await, CommitAnswer::Committed(_)));
    writer.committed(first);
    let second = writer.insertion(0, &[3000, 2000]);
    assert!(matches!(commit(&mut connection, &second, false).await, CommitAnswer::Committed(_)));
    writer.committed(second);
    (writer, connection)
}

pub(super) async fn object(connection: &mut VaultConnection, hash: Digest) -> Option<Bytes> {
    let mut found = None;
    connection.get(&[hash], |_, object| found = object).await.unwrap();
    found
}

#[tokio::test]
async fn versions_are_committed_told_and_read() {
    let place = Place::public();
    let (mut writer, mut connection) = begun(&place).await;
    for pushes in [true, false] {
        let version = writer.insertion(1500, &[700_000, 5]);
        let answer = commit(&mut connection, &version, pushes).await;
        let CommitAnswer::Committed(certificate) = answer else { panic!("{answer:?}") };
        assert_eq!((certificate.number, certificate.root), (version.root.number, version.root.digest()));
        for block in &version.blocks {
            assert_eq!(object(&mut connection, Digest::of(block)).await.as_ref(), Some(block));
        }
        let packed = connection.update(version.root.number).await.unwrap();
        let base = (version.root.number - 1, version.root.previous);
        let unpacked = unpacked_update(&packed, VAULT, writer.key.node(), base).unwrap();
        assert_eq!(unpacked.update, version.update);
        writer.committed(version);
    }
    let lines = connection.versions(u64::MAX, 1000).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [3, 2, 1, 0]);
    let (first, second) = (connection.root(0).await.unwrap(), connection.root(1).await.unwrap());
    assert_eq!(second.certificate.previous, first.certificate.digest(), "certificates are a chain");
    let page = connection.versions(3, 2).await.unwrap();
    assert_eq!(page.iter().map(|line| line.number).collect::<Vec<_>>(), [2, 1]);
    let none = connection.root(9).await;
    assert!(matches!(none, Err(ConnectionError::Refused { refusal: VaultRefusal::NoVersion, .. })));
    assert_eq!(object(&mut connection, Digest([1; 32])).await, None);
    assert!(connection.finish().await.is_ok());
}

#[tokio::test]
async fn many_objects_come_in_the_order_in_which_they_are_asked_for() {
    let place = Place::public();
    let (mut writer, mut connection) = begun(&place).await;
    let version = writer.insertion(0, &[300; 900]);
    commit(&mut connection, &version, false).await;
    let mut hashes: Vec<Digest> = version.blocks.iter().map(|block| Digest::of(block)).collect();
    hashes.insert(77, Digest([9; 32]));
    let repeated: Vec<Digest> = hashes.iter().cycle().take(MAX_GET + 500).copied().collect();
    let mut found = Vec::new();
    connection.get(&repeated, |hash, object| found.push((hash, object.is_some()))).await.unwrap();
    let expected: Vec<_> = repeated.iter().map(|hash| (*hash, *hash != Digest([9; 32]))).collect();
    assert!(found == expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_clients_on_one_file_exactly_one_wins_and_the_other_is_told() {
    let place = Place::public();
    let (mut owner, _connection) = begun(&place).await;
    for round in 0..10 {
        let (mut one, mut other) = (owner.beside(40), owner.beside(41));
        let versions = [one.insertion(round, &[50, 60]), other.insertion(round, &[70])];
        let (mut connections, mut tasks) = (Vec::new(), Vec::new());
        for writer in [one, other] {
            let (connection, head) = place.connected(&writer).await;
            assert_eq!(head.map(|head| head.signed.root), owner.root);
            connections.push(connection);
        }
        for (version, mut connection) in versions.into_iter().zip(connections) {
            tasks.push(tokio::spawn(async move {
                let answer = commit(&mut connection, &version, round % 2 == 0).await;
                (version, answer)
            }));
        }
        let mut won = Vec::new();
        for task in tasks {
            match task.await.unwrap() {
                (version, CommitAnswer::Committed(_)) => won.push(version),
                (_, CommitAnswer::Conflict(conflict, head)) => {
                    assert_eq!(conflict, Conflict::FileChanged(FILE));
                    assert_eq!(head.unwrap().signed.root.number, owner.root.as_ref().unwrap().number + 1);
                }
            }
        }
        assert_eq!(won.len(), 1);
        owner.committed(won.remove(0));
    }
}

#[tokio::test]
async fn versions_that_follow_each_other_need_not_wait() {
    let place = Place::public();
    let (mut writer, mut connection) = begun(&place).await;
    let mut sent = Vec::new();
    for at in 0..8 {
        let version = writer.insertion(at * 10, &[400, 20]);
        let give = &mut |hash: &Digest| version.give(hash);
        connection.begin_commit(version.update.clone(), version.signed(), give).await.unwrap();
        sent.push(version.root.digest());
        writer.committed(version);
    }
    for root in sent {
        let answer = connection.next_commit().await.unwrap();
        assert!(matches!(answer, CommitAnswer::Committed(certificate) if certificate.root == root));
    }
    // One that fails takes those with it that are based on it; the connection goes on.
    let mut other = writer.beside(40);
    let (mut beside, _) = place.connected(&other).await;
    let theirs = other.insertion(0, &[9]);
    commit(&mut beside, &theirs, true).await;
    for _ in 0..3 {
        let version = writer.insertion(0, &[400, 20]);
        let give = &mut |hash: &Digest| version.give(hash);
        connection.begin_commit(version.update.clone(), version.signed(), give).await.unwrap();
        writer.committed(version);
    }
    for _ in 0..3 {
        assert!(matches!(connection.next_commit().await.unwrap(), CommitAnswer::Conflict(..)));
    }
    let root = connection.root(theirs.root.number).await.unwrap().signed.root;
    assert_eq!(root, theirs.root);
}

#[tokio::test]
async fn a_client_without_the_tree_proves_the_new_root_by_the_paths() {
    let place = Place::public();
    let (mut writer, mut connection) = begun(&place).await;
    let version = writer.insertion(100, &[20; 200]);
    commit(&mut connection, &version, true).await;
    writer.committed(version);
    // What follows is all from the root that is trusted and what the server sends.
    let next = writer.insertion(2500, &[444]);
    let (root, key) = (writer.root.clone().unwrap(), TestKey::new(1));
    let members = writer.members.clone();
    let (update, whole) = (next.update.clone(), writer.nodes.len());
    let paths = connection.propose_unread(update.clone()).await.unwrap();
    let ProposalPaths::Nodes(paths) = paths else { panic!("{paths:?}") };
    assert!(paths.len() < whole / 3, "{} of {whole} nodes", paths.len());
    let paths: NodeMap = paths.into_iter().map(|node| node.to_vec()).collect();
    let digest = apply(&update, Some((&root, &members)), &paths).unwrap().root.digest();
    let signature = key.sign(&SignedRoot::message(&digest, &update.digest()));
    let hashes: Vec<Digest> = update.blocks.iter().map(|block| block.hash).collect();
    let give = &mut |hash: &Digest| next.give(hash);
    let answer = connection.sign((digest, signature), &hashes, give).await.unwrap();
    assert!(matches!(answer, CommitAnswer::Committed(certificate) if certificate.root == next.root.digest()));
    writer.committed(next);
    // One that is taken back commits nothing.
    let unproved = writer.insertion(0, &[4]);
    let paths = connection.propose_unread(unproved.update.clone()).await.unwrap();
    assert!(matches!(paths, ProposalPaths::Nodes(_)));
    connection.withdraw().await.unwrap();
    let (_, head) = place.connected(&writer).await;
    assert_eq!(head.map(|head| head.signed.root), writer.root);
}

#[tokio::test]
async fn strangers_read_nothing_write_nothing_and_make_no_vaults() {
    let place = Place::public();
    let (mut writer, mut connection) = begun(&place).await;
    let stranger = TestKey::new(99);
    let refused = place.connect(stranger.node()).await.err();
    assert!(matches!(refused, Some(ConnectionError::Refused { refusal: VaultRefusal::NotAllowed, .. })));
    // A member's connection, another's signature; then a root that does not follow.
    let good = writer.insertion(0, &[10]);
    let message = SignedRoot::message(&good.root.digest(), &good.update.digest());
    let forged = stranger.sign(&message);
    let give = &mut |hash: &Digest| good.give(hash);
    let answer = connection.commit(good.update.clone(), (good.root.digest(), forged), true, give).await;
    assert!(matches!(answer, Err(ConnectionError::Refused { refusal: VaultRefusal::Signature, .. })));
    let other = SignedRoot::message(&Digest([8; 32]), &good.update.digest());
    let give = &mut |hash: &Digest| good.give(hash);
    let signed = (Digest([8; 32]), writer.key.sign(&other));
    let answer = connection.commit(good.update.clone(), signed, true, give).await;
    assert!(matches!(answer, Err(ConnectionError::Refused { refusal: VaultRefusal::Signature, .. })));
    // Tuples that name what nobody has.
    let mut update = good.update.clone();
    update.blocks.clear();
    let message = SignedRoot::message(&good.root.digest(), &update.digest());
    let signed = (good.root.digest(), writer.key.sign(&message));
    let answer = connection.commit(update, signed, true, &mut |_| unreachable!()).await;
    assert!(matches!(answer, Err(ConnectionError::Refused { refusal: VaultRefusal::Blocks, .. })));
    assert!(matches!(commit(&mut connection, &good, true).await, CommitAnswer::Committed(_)));

    let closed = Place::new(VaultRules::default());
    let writer = TestWriter::new(1);
    let (mut connection, head) = closed.connected(&writer).await;
    let first = writer.creation();
    let answer = connection.commit(first.update.clone(), first.signed(), true, &mut |_| unreachable!()).await;
    assert!(matches!(answer, Err(ConnectionError::Refused { refusal: VaultRefusal::NotAllowed, .. })));
    assert_eq!(head, None);
    let made = std::fs::read_dir(closed.folder.path()).unwrap().filter_map(Result::ok);
    assert!(
        made.into_iter().all(|entry| entry.path().extension().is_none()),
        "no file for a vault that is not made"
    );
}

#[tokio::test]
async fn bytes_that_make_no_sense_end_the_connection_and_nothing_else() {
    let place = Place::public();
    let (mut writer, _connection) = begun(&place).await;
    let version = writer.insertion(0, &[10, 20]);
    let propose = ClientMessage::Propose {
        update: Box::new(version.update.clone()),
        signature: Some(version.signature),
        pushes: true,
    };
    let hello = || ClientMessage::Hello(VAULT, None);
    let wrong_block = ClientMessage::Block(Bytes::from_static(b"0123456789"));
    for messages in [
        vec![ClientMessage::Get(Vec::new())],
        vec![hello(), hello()],
        vec![hello(), propose.clone(), wrong_block],
        vec![hello(), propose.clone(), ClientMessage::Get(Vec::new())],
        vec![hello(), propose, ClientMessage::Hello(VAULT, None)],
        vec![hello(), ClientMessage::Block(Bytes::new())],
    ] {
        let [near, far] = connected([place.node, writer.key.node()]).await;
        let serving = tokio::spawn(Arc::clone(&place.server).serve(near, place.token.clone()));
        let (mut reader, mut sender) = far.split();
        for message in messages {
            for (kind, body) in message.to_frames() {
                sender.send_bytes(kind, &[], body).await.unwrap();
            }
        }
        sender.flush().await.unwrap();
        while let Ok(Some(_)) = reader.next().await {}
        serving.await.unwrap();
    }
    let (_, head) = place.connected(&writer).await;
    assert_eq!(head.map(|head| head.signed.root), writer.root);
}

#[tokio::test]
async fn versions_go_only_by_the_deleters_word_and_stay_gone_after_a_start() {
    let identity = Identity::generate().unwrap();
    let rules = VaultRules { public: true, ..VaultRules::default() };
    let place = Place::with(tempfile::tempdir().unwrap(), identity.clone(), rules.clone());
    let deleter = TestKey::new(50);
    let mut writer = TestWriter::new(1);
    writer.members.deleter = Some(deleter.node());
    let (mut connection, _) = place.connected(&writer).await;
    let first = writer.creation();
    commit(&mut connection, &first, true).await;
    writer.committed(first);
    for at in 0..3 {
        let version = writer.insertion(at, &[30]);
        commit(&mut connection, &version, true).await;
        writer.committed(version);
    }
    let statement = |number, first, last, key: &TestKey| {
        let dropped = vec![DroppedRange { first, last }];
        let statement =
            DropStatement { vault: VAULT, number, dropped, deleter: key.node(), signature: [0; 64] };
        statement.sign(|message| key.sign(message))
    };
    let not_allowed = |answer: Result<(), ConnectionError>| {
        matches!(answer, Err(ConnectionError::Refused { refusal: VaultRefusal::NotAllowed, .. }))
    };
    assert!(
        not_allowed(connection.drop_versions(statement(0, 0, 1, &writer.key)).await),
        "the owner has no such right"
    );
    assert!(not_allowed(connection.drop_versions(statement(1, 0, 1, &deleter)).await), "not the next one");
    connection.drop_versions(statement(0, 0, 1, &deleter)).await.unwrap();
    assert!(
        not_allowed(connection.drop_versions(statement(0, 2, 2, &deleter)).await),
        "a statement counts once"
    );
    connection.drop_versions(statement(1, 2, u64::MAX, &deleter)).await.unwrap();
    let left = |lines: Vec<towpath_vault_protocol::VersionLine>| {
        lines.iter().map(|line| line.number).collect::<Vec<_>>()
    };
    assert_eq!(left(connection.versions(u64::MAX, 9).await.unwrap()), [3], "the newest version stays");
    drop(connection);
    let Place { server, vaults, folder, token, .. } = place;
    token.cancel();
    while Arc::strong_count(&server) > 1 {
        tokio::task::yield_now().await;
    }
    drop((server, vaults));
    let place = Place::with(folder, identity, rules);
    let (mut connection, _) = place.connected(&writer).await;
    assert_eq!(left(connection.versions(u64::MAX, 9).await.unwrap()), [3]);
    assert!(connection.update(0).await.is_err());
    let delete = UpdateAction::Delete { at: 0, length: 5 };
    let update = towpath_vault_format::doubles::update_of(
        writer.root.as_ref().unwrap(),
        writer.key.node(),
        FILE,
        vec![delete],
        Vec::new(),
    );
    let version = writer.sign(update, Vec::new(), Vec::new());
    assert!(matches!(commit(&mut connection, &version, true).await, CommitAnswer::Committed(_)));
}

/// The disk is full when the first pack is written, while further blocks come.
#[tokio::test]
async fn a_version_whose_blocks_find_no_room_is_refused_and_may_come_again() {
    let is_full = AtomicBool::new(true);
    let place = Place::on_full_disk(move || is_full.swap(false, Ordering::Relaxed));
    let (mut writer, mut connection) = begun(&place).await;
    let version = writer.insertion(0, &[100_000; 200]);
    let give = &mut |hash: &Digest| version.give(hash);
    let refused = connection.commit(version.update.clone(), version.signed(), true, give).await;
    assert!(
        matches!(refused, Err(ConnectionError::Refused { refusal: VaultRefusal::Full, .. })),
        "{refused:?}"
    );
    assert!(matches!(commit(&mut connection, &version, false).await, CommitAnswer::Committed(_)));
    for block in &version.blocks {
        assert_eq!(object(&mut connection, Digest::of(block)).await.as_ref(), Some(block));
    }
}

#[tokio::test]
async fn blocks_may_come_before_their_version_but_from_writers_alone() {
    let place = Place::public();
    let mut writer = TestWriter::new(1);
    let reader = TestKey::new(3);
    writer.members.readers = vec![reader.node()];
    let (mut connection, _) = place.connected(&writer).await;
    let first = writer.creation();
    let early = vec![Bytes::from_static(b"of no vault that there is")];
    connection.send_early(early.clone()).await.unwrap();
    commit(&mut connection, &first, true).await;
    writer.committed(first);
    assert_eq!(object(&mut connection, Digest::of(&early[0])).await, None);
    let (mut read, _) = place.connect(reader.node()).await.unwrap();
    for (connection, asked) in [(&mut connection, 0), (&mut read, 125)] {
        // The last megabyte is not full, and the last pack is not either.
        let version = writer.insertion(0, &[90_000; 125]);
        connection.send_early(version.blocks.clone()).await.unwrap();
        assert_eq!(committed(connection, &version).await, asked);
        for block in &version.blocks {
            assert_eq!(object(connection, Digest::of(block)).await.as_ref(), Some(block));
        }
        writer.committed(version);
    }
}

/// What came early may be gone when its version comes: then it is asked for.
#[tokio::test]
async fn early_blocks_that_found_no_room_are_asked_for() {
    let limits = VaultLimits { bytes: 500_000 };
    let place = Place::new(VaultRules { public: true, limits, ..VaultRules::default() });
    let (mut writer, mut connection) = begun(&place).await;
    let early: Vec<Bytes> = (0..8u8).map(|seed| Bytes::from(vec![seed; 100_000])).collect();
    connection.send_early(early).await.unwrap();
    let version = writer.insertion(0, &[50_000, 20_000]);
    assert!(matches!(commit(&mut connection, &version, false).await, CommitAnswer::Committed(_)));
}

/// However often long versions are tried in vain.
#[tokio::test]
async fn early_blocks_of_no_version_leave_half_of_the_room() {
    let limits = VaultLimits { bytes: 40_000_000 };
    let place = Place::new(VaultRules { public: true, limits, ..VaultRules::default() });
    let (mut writer, mut connection) = begun(&place).await;
    for seed in 0..2 {
        let early = (0..60u8).map(|block| Bytes::from(vec![60 * seed + block; 1_000_000])).collect();
        connection.send_early(early).await.unwrap();
    }
    let version = writer.insertion(0, &[900_000; 20]);
    assert!(matches!(commit(&mut connection, &version, false).await, CommitAnswer::Committed(_)));
}

#[tokio::test]
async fn early_blocks_do_not_wait_in_memory_while_the_disk_is_full() {
    let full = Arc::new(AtomicBool::new(true));
    let is_full = Arc::clone(&full);
    let place = Place::on_full_disk(move || is_full.load(Ordering::Relaxed));
    let (mut writer, mut connection) = begun(&place).await;
    let version = writer.insertion(0, &[900_000; 40]);
    connection.send_early(version.blocks.clone()).await.unwrap();
    // What is answered came after them.
    assert_eq!(object(&mut connection, Digest([1; 32])).await, None);
    let unknown = writer.insertion(0, &[1000]);
    let give = &mut |hash: &Digest| unknown.give(hash);
    let refused = connection.commit(unknown.update.clone(), unknown.signed(), false, give).await;
    assert!(matches!(refused, Err(ConnectionError::Refused { refusal: VaultRefusal::Full, .. })));
    full.store(false, Ordering::Relaxed);
    let given = committed(&mut connection, &version).await;
    assert!(given >= 30, "{given}");
}

#[tokio::test]
async fn who_has_early_blocks_collected_in_the_middle_of_a_version_may_offer_it_again() {
    let place = Place::public();
    let (mut writer, mut connection) = begun(&place).await;
    let version = writer.insertion(0, &[900_000; 12]);
    // Ten of them are a pack, which no version needs yet.
    connection.send_early(version.blocks[..10].to_vec()).await.unwrap();
    let mut given = 0;
    let give = &mut |hash: &Digest| {
        given += 1;
        place.vaults.vault(VAULT).unwrap().collect().unwrap();
        version.give(hash)
    };
    let answer = connection.commit(version.update.clone(), version.signed(), false, give).await.unwrap();
    assert!(matches!(answer, CommitAnswer::Conflict(Conflict::Moved, Some(_))), "{answer:?}");
    assert_eq!(given, 2);
    assert!(matches!(commit(&mut connection, &version, false).await, CommitAnswer::Committed(_)));
}

/// A copy of another server's folder hands out what it has, and never becomes a second line of versions.
#[tokio::test]
async fn a_copy_gives_objects_and_takes_neither_versions_nor_blocks_nor_statements() {
    let identity = Identity::generate().unwrap();
    let rules = VaultRules { public: true, ..VaultRules::default() };
    let place = Place::with(tempfile::tempdir().unwrap(), identity.clone(), rules.clone());
    let mut writer = TestWriter::new(1);
    let deleter = TestKey::new(50);
    writer.members.deleter = Some(deleter.node());
    let (mut connection, _) = place.connected(&writer).await;
    for step in 0..2 {
        let version = if step == 0 { writer.creation() } else { writer.insertion(0, &[300_000]) };
        committed(&mut connection, &version).await;
        writer.committed(version);
    }
    let members = writer.root.as_ref().map(|root| root.members).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (place.folder.path().join("."), folder.path());
    assert!(std::process::Command::new("cp").arg("-a").arg(&from).arg(to).status().unwrap().success());
    let copy = Place::with(folder, identity, VaultRules { read_only: true, ..rules });
    let refused = |refusal: &ConnectionError| {
        matches!(refusal, ConnectionError::Refused { refusal: VaultRefusal::NotAllowed, .. })
    };
    let (mut connection, _) = copy.connected(&writer).await;
    assert!(object(&mut connection, members).await.is_some());
    let next = writer.insertion(0, &[1000]);
    connection.send_early(next.blocks.clone()).await.unwrap();
    assert_eq!(object(&mut connection, Digest::of(&next.blocks[0])).await, None);
    let give = &mut |hash: &Digest| next.give(hash);
    let answer = connection.commit(next.update.clone(), next.signed(), true, give).await;
    assert!(answer.is_err_and(|error| refused(&error)));
    let (mut connection, _) = copy.connected(&writer).await;
    let dropped = vec![DroppedRange { first: 0, last: 0 }];
    let statement =
        DropStatement { vault: VAULT, number: 0, dropped, deleter: deleter.node(), signature: [0; 64] };
    let statement = statement.sign(|message| deleter.sign(message));
    assert!(connection.drop_versions(statement).await.is_err_and(|error| refused(&error)));
}
