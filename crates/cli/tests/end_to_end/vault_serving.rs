//! `tow vault serve`: what it acknowledged is there after kill -9, and nobody makes vaults who may not.

use bytes::Bytes;
use tokio::runtime::Runtime;
use towpath_content::NodeId;
use towpath_link::Identity;
use towpath_vault_format::doubles::{block, creation, update_of};
use towpath_vault_format::{
    Canonical, Digest, FileId, Members, NodeMap, SignedMembers, SignedRoot, Update, UpdateAction, VaultId,
    VaultRoot, apply,
};
use towpath_vault_protocol::{CommitAnswer, ConnectionError, VaultConnection, VaultRefusal};

use crate::byte_places::{SECRET, Server, keys};
use crate::environment::{LOOPBACK, Machine, Running, TestEnvironment, WAIT_LIMIT, first_line, soon};
use crate::runner::situations;
use crate::trees::bytes as content;
use crate::vault::{call, number, told};

situations![
    what_a_killed_server_acknowledged_is_there,
    nobody_makes_a_vault_who_may_not,
    a_vault_has_no_more_bytes_than_its_server_allows,
    packs_in_a_bucket_are_there_after_a_kill_and_give_their_space_back,
    a_bucket_that_denies_or_is_lost_is_named,
];

const VAULT: VaultId = VaultId([3; 16]);
const FILE: FileId = FileId([5; 16]);

/// A writer with all it knows of its vault.
struct VaultWriter {
    identity: Identity,
    members: Members,
    root: Option<VaultRoot>,
    nodes: NodeMap,
    blocks: u64,
}

/// A version, and the block that it brings.
struct Version {
    update: Update,
    root: VaultRoot,
    signature: [u8; 64],
    block: Bytes,
    nodes: Vec<Vec<u8>>,
}

impl VaultWriter {
    fn new() -> Self {
        let identity = Identity::generate().unwrap();
        let owner = identity.node_id();
        let (writers, readers) = (Vec::new(), Vec::new());
        let members = Members { vault: VAULT, number: 0, owner, deleter: None, writers, readers };
        Self { identity, members, root: None, nodes: NodeMap::default(), blocks: 0 }
    }

    fn sign(&self, update: Update, block: Bytes) -> Version {
        let base = self.root.as_ref().map(|root| (root, &self.members));
        let applied = apply(&update, base, &self.nodes).unwrap();
        let signature = self.identity.sign(&SignedRoot::message(&applied.root.digest(), &update.digest()));
        let nodes = applied.nodes.into_iter().map(|node| node.bytes).collect();
        Version { update, root: applied.root, signature, block, nodes }
    }

    fn first(&self) -> Version {
        let members = SignedMembers::sign(self.members.clone(), |message| self.identity.sign(message));
        self.sign(creation(VAULT, 16, members), Bytes::new())
    }

    /// One block more at the end.
    fn next(&mut self, len: usize) -> Version {
        self.blocks += 1;
        let mut body = vec![self.blocks as u8; len];
        body[..8].copy_from_slice(&self.blocks.to_le_bytes());
        let (tuple, new) = block(&body, self.blocks);
        let root = self.root.as_ref().unwrap();
        let at = root.file(&FILE).map_or(0, |file| file.length);
        let insert = vec![UpdateAction::Insert { at, tuples: vec![tuple] }];
        let update = update_of(root, self.identity.node_id(), FILE, insert, vec![new]);
        self.sign(update, body.into())
    }

    fn committed(&mut self, version: Version) {
        version.nodes.into_iter().for_each(|node| self.nodes.insert(node));
        self.root = Some(version.root);
    }
}

fn serve(machine: &Machine, words: &[&str]) -> (Running, NodeId, String) {
    let fixed = ["vault", "serve", "--listen", LOOPBACK];
    let mut server = machine.tow(fixed.iter().chain(words)).start();
    let place = server.wait_until("its place", |server| first_line(&server.output()));
    let (node, address) = place.split_once('@').unwrap();
    (server, node.parse().unwrap(), address.to_owned())
}

async fn commit(
    connection: &mut VaultConnection,
    version: &Version,
) -> Result<CommitAnswer, ConnectionError> {
    let signed = (version.root.digest(), version.signature);
    let block = version.block.clone();
    connection.commit(version.update.clone(), signed, true, &mut |_: &Digest| Ok(block.clone())).await
}

fn what_a_killed_server_acknowledged_is_there() {
    let (env, runtime) = (TestEnvironment::new(), Runtime::new().unwrap());
    let machine = env.machine("server");
    let mut writer = VaultWriter::new();
    let mut acknowledged: Vec<(u64, Digest, Digest)> = Vec::new();
    for round in 0..6u64 {
        let (server, node, address) = serve(&machine, &["--public"]);
        runtime.block_on(async {
            let connected = VaultConnection::connect(node, &address, &writer.identity, (VAULT, None)).await;
            let (mut connection, head) = connected.unwrap();
            let last = acknowledged.last().map(|(number, root, _)| (*number, *root));
            let head = head.map(|head| (head.signed.root.number, head.signed.root.digest()));
            assert_eq!(head, last, "round {round}");
            for (number, root, block) in &acknowledged {
                let version = connection.root(*number).await.unwrap();
                assert_eq!(version.signed.root.digest(), *root);
                connection.get(&[*block], |_, found| assert!(found.is_some())).await.unwrap();
            }
            for step in 0..3 + round * 2 {
                let version = match writer.root {
                    None => writer.first(),
                    Some(_) => writer.next(if step == 2 { 400_000 } else { 5000 }),
                };
                let answer = commit(&mut connection, &version).await.unwrap();
                assert!(matches!(answer, CommitAnswer::Committed(_)));
                if !version.block.is_empty() {
                    let block = Digest::of(&version.block);
                    acknowledged.push((version.root.number, version.root.digest(), block));
                }
                writer.committed(version);
            }
        });
        // Kill -9, right behind the last word.
        server.kill();
    }
}

fn nobody_makes_a_vault_who_may_not() {
    let (env, runtime) = (TestEnvironment::new(), Runtime::new().unwrap());
    let (writer, other) = (VaultWriter::new(), VaultWriter::new());
    let named = writer.identity.node_id().to_string();
    let (_server, node, address) = serve(&env.machine("server"), &["--node", &named]);
    let make = |writer: &VaultWriter| {
        runtime.block_on(async {
            let connected = VaultConnection::connect(node, &address, &writer.identity, (VAULT, None)).await;
            commit(&mut connected?.0, &writer.first()).await
        })
    };
    let refused =
        |answer| matches!(answer, Err(ConnectionError::Refused { refusal: VaultRefusal::NotAllowed, .. }));
    assert!(refused(make(&other)));
    assert!(matches!(make(&writer), Ok(CommitAnswer::Committed(_))));
    assert!(refused(make(&other)), "it is another's");
    let wrong = env.machine("server").tow(["vault", "serve", "--node", "x"]).end();
    assert!(wrong.with(2).err.contains("'x' is no node"));
}

fn a_vault_has_no_more_bytes_than_its_server_allows() {
    let (env, runtime) = (TestEnvironment::new(), Runtime::new().unwrap());
    let mut writer = VaultWriter::new();
    let (_server, node, address) = serve(&env.machine("server"), &["--public", "--quota", "100K"]);
    runtime.block_on(async {
        let connected = VaultConnection::connect(node, &address, &writer.identity, (VAULT, None)).await;
        let (mut connection, _) = connected.unwrap();
        let first = writer.first();
        commit(&mut connection, &first).await.unwrap();
        writer.committed(first);
        let large = writer.next(150_000);
        let refused = commit(&mut connection, &large).await;
        assert!(matches!(refused, Err(ConnectionError::Refused { refusal: VaultRefusal::Full, .. })));
        let small = writer.next(50_000);
        assert!(matches!(commit(&mut connection, &small).await, Ok(CommitAnswer::Committed(_))));
    });
}

/// Words by which packs go to a bucket.
fn to_bucket(server: &Server, machine: &Machine, secret: &str) -> Vec<String> {
    let keys = keys(machine, secret).display().to_string();
    let words = ["--public", "--packs", "s3://bytes/vaults", "--packs-endpoint", &server.url];
    words.into_iter().map(ToOwned::to_owned).chain(["--packs-credentials".into(), keys]).collect()
}

/// Packs in the bucket.
fn packs(server: &Server) -> usize {
    std::fs::read_dir(server.folder.join("bytes/vaults/objects")).map_or(0, Iterator::count)
}

fn packs_in_a_bucket_are_there_after_a_kill_and_give_their_space_back() {
    const LENGTH: u64 = 3 << 20;
    let env = TestEnvironment::new();
    let bucket = Server::start(&env);
    let (machine, one, two) = (env.machine("server"), &env.sender, &env.receiver);
    let words = to_bucket(&bucket, &machine, SECRET);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (server, node, address) = serve(&machine, &words);
    let id = call(one, &["init", &format!("{node}@{address}")]).with(0).text().trim().to_owned();
    std::fs::write(one.path("notes"), content(1, LENGTH)).unwrap();
    told(one, &["put", "notes"]);
    assert!(packs(&bucket) > 0, "the blocks are in the bucket");
    assert!(!machine.home("data/vaults/packs").exists(), "and not on the server's disk");
    server.kill();
    let (_server, node, address) = serve(&machine, &words);
    let place = format!("{node}@{address}");
    call(two, &["join", &place, &id]).with(0);
    told(two, &["get", "notes", "-o", "back"]);
    assert!(std::fs::read(two.path("back")).unwrap() == content(1, LENGTH));
    assert_eq!(number(&told(two, &["check", "--all"]), "faults"), 0);
    // What is dropped leaves the bucket, too.
    call(one, &["join", &place, &id]).with(0);
    let before = packs(&bucket);
    std::fs::write(one.path("notes"), content(2, 100)).unwrap();
    told(one, &["put", "notes"]);
    told(one, &["gc", "--keep", "1"]);
    soon(WAIT_LIMIT, || (packs(&bucket) < before).then_some(()));
}

fn a_bucket_that_denies_or_is_lost_is_named() {
    let env = TestEnvironment::new();
    let bucket = Server::start(&env);
    let machine = env.machine("server");
    let start = |words: &[String]| {
        let fixed = ["vault", "serve", "--listen", LOOPBACK].map(ToOwned::to_owned);
        machine.tow(fixed.iter().chain(words)).end()
    };
    let denied = start(&to_bucket(&bucket, &machine, "another-secret")).with(1).err;
    assert!(denied.contains("s3://bytes/vaults") && !denied.contains("another-secret"), "{denied}");
    let mut words = to_bucket(&bucket, &machine, SECRET);
    words[2] = "s3://nowhere/vaults".into();
    assert!(start(&words).with(1).err.contains("s3://nowhere/vaults"));
    words[2] = "s3://".into();
    start(&words).with(2);
    words.truncate(1);
    assert!(
        start(&[words[0].clone(), "--packs-endpoint".into(), bucket.url.clone()])
            .with(2)
            .err
            .contains("--packs")
    );
}
