//! A vault's server that lies, with its own key and now and then with a member's: what is wrong is named, nothing here is
//! lost, and an older version can be read.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::runtime::Runtime;
use towpath_link::Identity;
use towpath_vault::keys::{Unlock, VaultKeys};
use towpath_vault::local::{LocalVault, vault_id};
use towpath_vault_format::doubles::block;
use towpath_vault_format::node::ChildRef;
use towpath_vault_format::{
    Canonical, Certificate, Digest, FileId, FileRoot, SignedRoot, TreeNode, VaultId, VaultRoot,
};
use towpath_vault_protocol::whole::unpacked_update;
use towpath_vault_protocol::{
    ClientMessage, CommitAnswer, CommittedVersion, ServerMessage, VaultConnection, VaultRefusal,
};

use crate::environment::{Machine, Running};
use crate::lying_server::{Fate, Honest, Liar, LyingServer, RawMessage, cut, raw};
use crate::machinery::Mounted;
use crate::runner::situations;
use crate::trees::bytes;
use crate::vault::{PASSPHRASE, Vaults, assert_told, call, find, number, put, told};

situations![
    heads_that_are_old_cut_swapped_or_forged_are_named,
    versions_between_that_are_dropped_cut_swapped_or_forged_are_named,
    blocks_and_nodes_that_are_dropped_cut_swapped_or_replayed_are_named,
    certificates_that_are_dropped_cut_swapped_or_replayed_are_named,
    updates_and_blocks_that_are_changed_on_their_way_are_not_committed,
    a_small_put_of_which_any_byte_is_changed_is_not_committed,
    a_head_that_is_told_as_a_difference_and_bent_is_named,
    an_update_that_is_replayed_is_a_conflict,
    updates_that_are_told_wrongly_bring_nothing_wrong,
    paths_that_prove_nothing_commit_nothing,
    success_that_is_claimed_without_storing_is_named,
    a_poisoned_tree_is_named_and_older_versions_stay,
    a_stale_machine_takes_back_no_names_and_modes,
    of_two_machines_that_put_one_name_at_once_one_wins,
    a_full_disk_here_is_named_and_loses_nothing,
    a_full_disk_of_the_server_is_named_and_loses_nothing,
];

/// Bytes of the two files.
const LENGTH: u64 = 300_000;
/// Another vault.
const OTHER: VaultId = VaultId([7; 16]);

/// A vault of which version 1 has notes, 2 something else too, and 3 other notes. Machine `two` has seen version 1, and
/// gets all from a liar.
struct Deceived {
    vaults: Vaults,
    one: Machine,
    two: Machine,
    id: String,
    keys: VaultKeys,
    server: Identity,
    liar: LyingServer,
    runtime: Runtime,
    seen: Vec<u8>,
}

impl Deceived {
    fn new() -> Self {
        let (vaults, one, two, id) = Vaults::with_two(&bytes(1, LENGTH));
        fs::write(one.path("other"), bytes(3, LENGTH)).unwrap();
        put(&one, "other");
        fs::write(one.path("notes"), bytes(2, LENGTH)).unwrap();
        put(&one, "notes");
        let keys = keys_of(&one, &id);
        let key = find(&vaults.env.machine("server").home(""), "node.key");
        let server = Identity::load_or_create(&key).unwrap();
        let liar = LyingServer::new(&server, &vaults.place, member(&keys));
        let seen = fs::read(state(&two, &id).join("head")).unwrap();
        fs::write(state(&two, &id).join("server"), &liar.place).unwrap();
        let runtime = Runtime::new().unwrap();
        Self { vaults, one, two, id, keys, server, liar, runtime, seen }
    }

    fn address(&self) -> &str {
        self.vaults.place.split_once('@').unwrap().1
    }

    async fn connected(&self) -> VaultConnection {
        let (node, member) = (self.server.node_id(), member(&self.keys));
        let connected =
            VaultConnection::connect(node, self.address(), &member, (self.keys.vault, None)).await;
        connected.unwrap().0
    }

    /// A version as the real server has it.
    fn version(&self, number: u64) -> CommittedVersion {
        self.runtime.block_on(async { self.connected().await.root(number).await.unwrap() })
    }

    /// The server's word on a version, whatever it is.
    fn certified(&self, signed: SignedRoot) -> CommittedVersion {
        certified_by(&self.server, signed)
    }

    /// A version that the vault's writer never made and yet signed.
    fn signed(&self, root: VaultRoot) -> CommittedVersion {
        self.certified(signed_by(&member(&self.keys), root))
    }

    /// Machine `two` forgets what it has seen since version 1, and has no blocks.
    fn forget(&self) {
        let state = state(&self.two, &self.id);
        fs::write(state.join("head"), &self.seen).unwrap();
        for cache in ["nodes", "blocks", "summaries"] {
            fs::remove_dir_all(state.join(cache)).unwrap_or_default();
        }
    }

    /// Machine `two` has seen nothing new, and can read version 1 from the liar.
    fn assert_nothing_lost(&self, what: &str) {
        assert_eq!(fs::read(state(&self.two, &self.id).join("head")).unwrap(), self.seen, "{what}");
        self.assert_older_is_there(what);
    }

    fn assert_older_is_there(&self, what: &str) {
        told(&self.two, &["restore", "notes", "--version", "1", "-o", "older", "--overwrite"]);
        assert!(fs::read(self.two.path("older")).unwrap() == bytes(1, LENGTH), "{what}");
    }

    /// Machine `one` talks with the liar, too.
    fn deceive_one(&self) {
        fs::write(state(&self.one, &self.id).join("server"), &self.liar.place).unwrap();
    }

    /// Machine `one` puts other notes while the server lies; what is said of it.
    fn put_deceived(&self, seed: u64, liar: impl Liar + 'static, words: &[&str]) {
        fs::write(self.one.path("notes"), bytes(seed, LENGTH)).unwrap();
        self.liar.lie(liar);
        assert_told(call(&self.one, &["put", "notes"]), words);
        self.liar.lie(Honest);
        // The same again, and not one byte is asked to be written over.
        put(&self.one, "notes");
        told(&self.one, &["get", "notes", "-o", "back", "--overwrite"]);
        assert!(fs::read(self.one.path("back")).unwrap() == bytes(seed, LENGTH), "{words:?}");
    }

    fn assert_whole(&self) {
        self.liar.lie(Honest);
        assert_eq!(number(&told(&self.one, &["check", "--all"]), "faults"), 0);
    }
}

/// The member that has these keys.
pub fn member(keys: &VaultKeys) -> Identity {
    keys.writer.as_ref().unwrap().identity().clone()
}

/// What a machine keeps of a vault.
pub fn state(machine: &Machine, id: &str) -> PathBuf {
    find(&machine.home(""), id)
}

/// The keys of a vault, by its passphrase.
pub fn keys_of(machine: &Machine, id: &str) -> VaultKeys {
    let folder = state(machine, id);
    let folder = LocalVault::open(folder.parent().unwrap(), &vault_id(id).unwrap()).unwrap();
    let passphrase = Unlock::Passphrase(towpath_vault::Zeroizing::new(PASSPHRASE.1.into()));
    folder.keys().unwrap().unwrap().open(&passphrase).unwrap()
}

fn signed_by(writer: &Identity, root: VaultRoot) -> SignedRoot {
    SignedRoot::sign(root, writer.node_id(), Digest([9; 32]), |message| writer.sign(message))
}

fn certified_by(server: &Identity, signed: SignedRoot) -> CommittedVersion {
    let (update, previous, time) = (signed.update, Digest::NONE, 7);
    let VaultRoot { vault, number, .. } = signed.root;
    let (root, node) = (signed.root.digest(), server.node_id());
    let certificate =
        Certificate { vault, number, root, previous, update, time, server: node, signature: [0; 64] };
    CommittedVersion { signed, certificate: certificate.sign(|message| server.sign(message)) }
}

/// A root in which each of two files has what the other has.
fn swapped(mut root: VaultRoot) -> VaultRoot {
    let [one, other] = [root.files[1], root.files[2]];
    root.files[1] = FileRoot { file: one.file, ..other };
    root.files[2] = FileRoot { file: other.file, ..one };
    root
}

/// Tells something else wherever `lie` has something.
struct Instead<F>(F);

impl<F: FnMut(&ServerMessage) -> Option<Option<RawMessage>> + Send> Liar for Instead<F> {
    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        (self.0)(&message).unwrap_or_else(|| Some(raw(message.to_frames())))
    }
}

fn head(version: CommittedVersion) -> RawMessage {
    raw(ServerMessage::Head(Some(Box::new(version))).to_frames())
}

fn root(version: CommittedVersion) -> RawMessage {
    raw(ServerMessage::Root(Box::new(version)).to_frames())
}

fn heads_that_are_old_cut_swapped_or_forged_are_named() {
    let it = Deceived::new();
    let (newest, thief) = (it.version(3), Identity::generate().unwrap());
    let with = |change: &dyn Fn(&mut SignedRoot)| {
        let mut signed = newest.signed.clone();
        change(&mut signed);
        head(it.certified(signed))
    };
    let forked = VaultRoot { keys: Digest([1; 32]), ..it.version(1).signed.root };
    let ahead = VaultRoot { previous: Digest([1; 32]), ..it.version(2).signed.root };
    let wrong: [(&[&str], RawMessage); 12] = [
        (&["rollback", "version 0", "version 1"], head(it.version(0))),
        (&["rollback", "no version at all"], raw(ServerMessage::Head(None).to_frames())),
        (&["can't be understood"], cut(head(newest.clone()))),
        (&["not signed by its writer"], with(&|signed| signed.root = swapped(signed.root.clone()))),
        (&["not signed by its writer"], with(&|signed| signed.root.files.truncate(1))),
        (&["not signed by its writer"], with(&|signed| signed.signature = it.version(2).signed.signature)),
        (&["another vault's"], head(it.signed(VaultRoot { vault: OTHER, ..newest.signed.root.clone() }))),
        (&["no member who may write"], head(it.certified(signed_by(&thief, newest.signed.root.clone())))),
        (&["another server's"], head(certified_by(&thief, newest.signed.clone()))),
        (
            &["of another version"],
            head(CommittedVersion { certificate: it.version(2).certificate, ..newest.clone() }),
        ),
        (&["fork", "version 1"], head(it.signed(forked))),
        (&["fork", "version 2", "version 1"], head(it.signed(ahead))),
    ];
    for (words, lie) in wrong {
        it.forget();
        it.liar.lie(Instead(move |message: &ServerMessage| {
            matches!(message, ServerMessage::Head(_)).then(|| Some(lie.clone()))
        }));
        assert_told(call(&it.two, &["ls"]), words);
        assert_told(call(&it.two, &["put", "older", "--as", "notes"]), words);
        it.assert_nothing_lost(words[0]);
    }
    it.assert_whole();
}

fn versions_between_that_are_dropped_cut_swapped_or_forged_are_named() {
    let it = Deceived::new();
    let (first, second, newest) = (it.version(1), it.version(2), it.version(3));
    let gone = ServerMessage::Refused(VaultRefusal::NoVersion, "it is gone".into());
    let forged = SignedRoot { root: swapped(second.signed.root.clone()), ..second.signed.clone() };
    let other = VaultRoot { keys: Digest([1; 32]), ..second.signed.root.clone() };
    let wrong: [(&[&str], RawMessage); 6] = [
        (&["version 3", "not version 2", "follows version 1"], raw(gone.to_frames())),
        (&["can't be understood"], cut(root(second))),
        (&["answers what was not asked"], root(newest)),
        (&["answers what was not asked"], root(first)),
        (&["not signed by its writer"], root(it.certified(forged))),
        (&["fork", "version 3", "version 1"], root(it.signed(other))),
    ];
    for (words, lie) in wrong {
        it.forget();
        it.liar.lie(Instead(move |message: &ServerMessage| match message {
            ServerMessage::Root(version) => (version.signed.root.number == 2).then(|| Some(lie.clone())),
            _ => None,
        }));
        assert_told(call(&it.two, &["ls"]), words);
        it.assert_nothing_lost(words[0]);
    }
    it.assert_whole();
}

/// Notes the objects that are told, or lies about others.
struct ObjectLie {
    known: Arc<Mutex<HashSet<Digest>>>,
    /// The lie, and before how many objects that are not known it says the truth.
    lie: Option<(Distortion, usize)>,
    last: Option<Bytes>,
}

#[derive(Debug, Clone, Copy)]
enum Distortion {
    Dropped,
    AllDropped,
    Cut,
    Swapped,
    Replayed,
}

impl Liar for ObjectLie {
    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        let ServerMessage::Object(object) = message else { return Some(raw(message.to_frames())) };
        let (hash, before) = (Digest::of(&object), self.last.replace(object.clone()));
        let truth = raw(ServerMessage::Object(object).to_frames());
        let Some((lie, left)) = &mut self.lie else {
            self.known.lock().unwrap().insert(hash);
            return Some(truth);
        };
        if self.known.lock().unwrap().contains(&hash) {
            return Some(truth);
        }
        if *left > 0 {
            *left -= 1;
            return Some(truth);
        }
        let missing = raw(ServerMessage::Missing(hash).to_frames());
        let lied = match *lie {
            Distortion::Dropped | Distortion::AllDropped => missing,
            Distortion::Cut => cut(truth),
            Distortion::Swapped => (truth.0, Bytes::from_static(b"some bytes")),
            Distortion::Replayed => (truth.0, before.unwrap_or_default()),
        };
        if !matches!(lie, Distortion::AllDropped) {
            self.lie = Some((*lie, usize::MAX));
        }
        Some(lied)
    }
}

/// Lies about objects of version 3 that version 1 has not.
struct ObjectLies(Arc<Mutex<HashSet<Digest>>>);

impl ObjectLies {
    fn learned(it: &Deceived) -> Self {
        let known = Arc::<Mutex<HashSet<Digest>>>::default();
        it.forget();
        it.liar.lie(ObjectLie { known: Arc::clone(&known), lie: None, last: None });
        it.assert_older_is_there("the truth");
        assert!(known.lock().unwrap().len() > 20);
        Self(known)
    }

    fn lie(&self, lie: Distortion, after: usize) -> ObjectLie {
        ObjectLie { known: Arc::clone(&self.0), lie: Some((lie, after)), last: None }
    }
}

fn blocks_and_nodes_that_are_dropped_cut_swapped_or_replayed_are_named() {
    let it = Deceived::new();
    let lies = ObjectLies::learned(&it);
    for (lie, word) in [
        (Distortion::Dropped, "lacks"),
        (Distortion::Cut, "sent other bytes for"),
        (Distortion::Swapped, "sent other bytes for"),
        (Distortion::Replayed, "sent other bytes for"),
    ] {
        // The catalogue's node and block, then nodes and blocks of the notes.
        for after in [0, 1, 2, 3, 10] {
            it.forget();
            it.liar.lie(lies.lie(lie, after));
            assert_told(call(&it.two, &["get", "notes", "-o", "x"]), &[word]);
            assert!(!it.two.path("x").exists(), "{lie:?} after {after}");
        }
        it.liar.lie(lies.lie(lie, 0));
        it.assert_older_is_there(word);
    }
    it.liar.lie(Honest);
    told(&it.two, &["get", "notes", "-o", "x"]);
    it.assert_whole();
}

fn certificates_that_are_dropped_cut_swapped_or_replayed_are_named() {
    let it = Deceived::new();
    it.deceive_one();
    let (old, thief) = (it.version(3).certificate, Identity::generate().unwrap());
    let server = it.server.clone();
    type Change = Box<dyn Fn(Certificate) -> Option<RawMessage> + Send>;
    let said = |certificate: Certificate| raw(ServerMessage::Committed(certificate).to_frames());
    let by_server = move |certificate: Certificate| said(certificate.sign(|message| server.sign(message)));
    let by_server = Arc::new(by_server);
    let (root_of, update_of) = (Arc::clone(&by_server), Arc::clone(&by_server));
    let wrong: Vec<(&str, Change)> = vec![
        ("the vault's server", Box::new(|_| None)),
        ("can't be understood", Box::new(move |it| Some(cut(said(it))))),
        ("it is of another version", Box::new(move |_| Some(said(old)))),
        (
            "it is of another root",
            Box::new(move |it| Some(root_of(Certificate { root: Digest([1; 32]), ..it }))),
        ),
        (
            "it is of another update",
            Box::new(move |it| Some(update_of(Certificate { update: Digest([1; 32]), ..it }))),
        ),
        ("it is another vault's", Box::new(move |it| Some(by_server(Certificate { vault: OTHER, ..it })))),
        (
            "a certificate is not signed",
            Box::new(move |it| Some(said(it.sign(|message| thief.sign(message))))),
        ),
        ("answers what was not asked", Box::new(|_| Some(raw(ServerMessage::Dropped(3).to_frames())))),
    ];
    for (seed, (word, change)) in (10..).zip(wrong) {
        let liar = Instead(move |message: &ServerMessage| match message {
            ServerMessage::Committed(certificate) => Some(change(*certificate)),
            _ => None,
        });
        it.put_deceived(seed, liar, &[word]);
    }
    it.assert_older_is_there("an older version");
    it.assert_whole();
}

/// Passes something else than what a client says wherever `change` has something.
struct Changed<F>(F);

impl<F: FnMut(&ClientMessage) -> Option<Fate> + Send> Liar for Changed<F> {
    fn asked(&mut self, message: ClientMessage) -> Fate {
        (self.0)(&message).unwrap_or_else(|| Fate::Pass(raw(message.to_frames())))
    }
}

fn updates_and_blocks_that_are_changed_on_their_way_are_not_committed() {
    type Change = fn(&ClientMessage) -> Option<Fate>;
    let it = Deceived::new();
    it.deceive_one();
    let wrong: [(&str, Change); 8] = [
        ("the vault's server", |message| is_proposal(message).then_some(Fate::HangUp)),
        ("the vault's server", |message| {
            is_proposal(message).then(|| Fate::Pass(cut(raw(message.to_frames()))))
        }),
        ("refuses", |message| proposed(message, |update, _| drop(update.files.pop()))),
        ("refuses", |message| proposed(message, |update, _| drop(update.files[0].actions.pop()))),
        ("refuses", |message| proposed(message, |update, _| update.blocks.truncate(1))),
        ("refuses", |message| proposed(message, |_, signature| signature[5] ^= 1)),
        ("the vault's server", |message| {
            is_block(message).then(|| Fate::Pass(cut(raw(message.to_frames()))))
        }),
        ("the vault's server", |message| {
            let other = ClientMessage::Block(Bytes::from_static(b"some other block"));
            is_block(message).then(|| Fate::Pass(raw(other.to_frames())))
        }),
    ];
    for (seed, (word, change)) in (10..).zip(wrong) {
        it.put_deceived(seed, Changed(change), &[word]);
    }
    it.assert_older_is_there("an older version");
    it.assert_whole();
}

const fn is_proposal(message: &ClientMessage) -> bool {
    matches!(message, ClientMessage::Propose { .. })
}

const fn is_block(message: &ClientMessage) -> bool {
    matches!(message, ClientMessage::Block(_))
}

/// Another proposal under the same signature, or the same under another.
fn proposed(
    message: &ClientMessage,
    change: fn(&mut towpath_vault_format::Update, &mut [u8; 64]),
) -> Option<Fate> {
    let ClientMessage::Propose { update, signature, pushes } = message else { return None };
    let (mut update, mut signature, pushes) = (update.clone(), (*signature)?, *pushes);
    change(&mut update, &mut signature);
    let message = ClientMessage::Propose { update, signature: Some(signature), pushes };
    Some(Fate::Pass(raw(message.to_frames())))
}

fn an_update_that_is_replayed_is_a_conflict() {
    let it = Deceived::new();
    for number in 1..=3 {
        let CommittedVersion { signed, .. } = it.version(number);
        let answer = it.runtime.block_on(async {
            let mut connection = it.connected().await;
            let packed = connection.update(number).await.unwrap();
            let base = (number - 1, signed.root.previous);
            let owner = member(&it.keys).node_id();
            let update = unpacked_update(&packed, it.keys.vault, owner, base).unwrap().update;
            let signed = (signed.root.digest(), signed.signature);
            connection.commit(update, signed, false, &mut |_| unreachable!()).await.unwrap()
        });
        assert!(matches!(answer, CommitAnswer::Conflict(_, Some(head)) if head.signed.root.number == 3));
    }
    assert_eq!(call(&it.one, &["log"]).with(0).text().lines().count(), 4);
    it.assert_whole();
}

/// Updates of versions 2 and 4, as a machine asks for them that has the tree of version 1 and would have the nodes of newer ones.
fn updates_that_are_told_wrongly_bring_nothing_wrong() {
    let it = Deceived::new();
    let newest = [&bytes(2, LENGTH)[..], b"some words more"].concat();
    fs::write(it.one.path("notes"), &newest).unwrap();
    put(&it.one, "notes");
    let update = |number| it.runtime.block_on(async { it.connected().await.update(number).await.unwrap() });
    let truths = [2, 3, 4].map(update);
    assert!(truths[2].len() < 4096, "it comes with its blocks");
    let update = |packed: Bytes| raw(ServerMessage::Update(packed).to_frames());
    let changed = |packed: &Bytes, at: usize| {
        let mut packed = packed.to_vec();
        packed[at] ^= 1;
        update(packed.into())
    };
    for target in [0, 2] {
        let truth = &truths[target];
        let lies = [
            raw(ServerMessage::Refused(VaultRefusal::NoVersion, "it is gone".into()).to_frames()),
            cut(update(truth.clone())),
            update(truths[1].clone()),
            update(truths[2 - target].clone()),
            changed(truth, 10),
            changed(truth, truth.len() / 2),
            changed(truth, truth.len() - 1),
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            it.liar.lie(Honest);
            it.forget();
            it.assert_older_is_there("the nodes of version 1");
            fs::write(state(&it.two, &it.id).join("head"), &it.seen).unwrap();
            let has_lied = Arc::new(AtomicBool::new(false));
            let (lied, truth) = (Arc::clone(&has_lied), truth.clone());
            it.liar.lie(Instead(move |message: &ServerMessage| {
                let is_it = matches!(message, ServerMessage::Update(packed) if *packed == truth);
                lied.fetch_or(is_it, Ordering::SeqCst);
                is_it.then(|| Some(lie.clone()))
            }));
            told(&it.two, &["get", "notes", "-o", "x", "--overwrite"]);
            let what = format!("lie {number} about update {target}");
            assert!(has_lied.load(Ordering::SeqCst), "{what}");
            assert!(fs::read(it.two.path("x")).unwrap() == newest, "{what}");
        }
    }
    it.assert_whole();
}

fn a_small_put_of_which_any_byte_is_changed_is_not_committed() {
    let it = Deceived::new();
    it.deceive_one();
    let mut content = bytes(2, LENGTH);
    // The signature, the parts, a block, the steps.
    for (seed, at) in (0..).zip([3, 64, 90, usize::MAX]) {
        content[1000 * seed] ^= 1;
        fs::write(it.one.path("notes"), &content).unwrap();
        let has_changed = Arc::new(AtomicBool::new(false));
        let changed = Arc::clone(&has_changed);
        it.liar.lie(Changed(move |message: &ClientMessage| {
            let ClientMessage::Whole { .. } = message else { return None };
            let (kind, body) = raw(message.to_frames());
            let mut body = body.to_vec();
            let at = at.min(body.len() - 1);
            body[at] ^= 1;
            changed.store(true, Ordering::SeqCst);
            Some(Fate::Pass((kind, body.into())))
        }));
        let ended = call(&it.one, &["put", "notes"]);
        assert!(has_changed.load(Ordering::SeqCst), "a small put is one message");
        assert_told(ended, &["the vault's server"]);
        it.liar.lie(Honest);
        put(&it.one, "notes");
        told(&it.one, &["get", "notes", "-o", "back", "--overwrite"]);
        assert!(fs::read(it.one.path("back")).unwrap() == content, "byte {at}");
    }
    it.assert_whole();
}

/// Changes one byte of what the newest version differs in.
struct BentHead(usize);

impl Liar for BentHead {
    fn is_brief(&self) -> bool {
        true
    }

    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        let (kind, body) = raw(message.to_frames());
        let mut body = body.to_vec();
        if let ServerMessage::Newer(_) = message {
            let at = self.0.min(body.len() - 1);
            body[at] ^= 1;
        }
        Some((kind, body.into()))
    }
}

fn a_head_that_is_told_as_a_difference_and_bent_is_named() {
    let it = Deceived::new();
    // What the certificate before is, its time, its signature, the length, the patch.
    for at in [0, 2, 30, 70, 80, 120, usize::MAX] {
        it.forget();
        it.liar.lie(BentHead(at));
        assert_told(call(&it.two, &["ls"]), &["the vault's server"]);
        it.assert_nothing_lost(&format!("byte {at}"));
    }
    it.liar.lie(Honest);
    told(&it.two, &["get", "notes", "-o", "x"]);
    it.assert_whole();
}

/// Keeps the nodes along the paths of what is proposed to itself.
struct HiddenPath;

impl Liar for HiddenPath {
    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        Some(raw(match message {
            ServerMessage::Paths(_) => ServerMessage::Paths(Vec::new()).to_frames(),
            message => message.to_frames(),
        }))
    }
}

/// A machine that lost the tree needs it only where it changes, and believes no root that it can't prove.
fn paths_that_prove_nothing_commit_nothing() {
    let it = Deceived::new();
    it.deceive_one();
    let mut content = bytes(2, LENGTH);
    let mut append = || {
        content.extend_from_slice(b"some bytes more");
        fs::write(it.one.path("notes"), &content).unwrap();
        fs::remove_dir_all(state(&it.one, &it.id).join("nodes")).unwrap();
        call(&it.one, &["put", "notes", "--no-patches"])
    };
    it.liar.lie(HiddenPath);
    assert_told(append(), &["the new version is unconfirmed"]);
    it.liar.lie(Honest);
    append().with(0);
    told(&it.one, &["get", "notes", "-o", "back"]);
    assert!(fs::read(it.one.path("back")).unwrap() == content);
    it.assert_whole();
}

/// The server says that it has committed, and shows the version; it keeps nothing of it.
fn success_that_is_claimed_without_storing_is_named() {
    let it = Deceived::new();
    let lies = ObjectLies::learned(&it);
    it.deceive_one();
    it.liar.lie(lies.lie(Distortion::AllDropped, 0));
    fs::write(it.one.path("notes"), bytes(20, LENGTH)).unwrap();
    assert_eq!(number(&put(&it.one, "notes"), "version"), 4, "nobody can know yet");
    assert_told(call(&it.one, &["check"]), &["version 4", "lacks"]);
    it.forget();
    assert_told(call(&it.two, &["get", "notes", "-o", "x"]), &["lacks"]);
    it.assert_older_is_there("an older version");
    // What was put is here still, in the caches too.
    told(&it.one, &["get", "notes", "-o", "mine"]);
    assert!(fs::read(it.one.path("mine")).unwrap() == bytes(20, LENGTH));
}

/// A server and a writer who agree on a version that can't be.
struct Poison {
    version: CommittedVersion,
    objects: HashMap<Digest, Bytes>,
}

impl Liar for Poison {
    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        let message = match message {
            ServerMessage::Head(_) => ServerMessage::Head(Some(Box::new(self.version.clone()))),
            // The real server has no version of that number.
            ServerMessage::Refused(VaultRefusal::NoVersion, _) => {
                ServerMessage::Root(Box::new(self.version.clone()))
            }
            ServerMessage::Missing(hash) => match self.objects.get(&hash) {
                Some(object) => ServerMessage::Object(object.clone()),
                None => ServerMessage::Missing(hash),
            },
            message => message,
        };
        Some(raw(message.to_frames()))
    }
}

/// Nodes of a tree that lies.
#[derive(Default)]
struct PoisonNodes(HashMap<Digest, Bytes>);

impl PoisonNodes {
    fn add(&mut self, node: &TreeNode) -> Digest {
        let bytes = Bytes::from(node.to_bytes());
        let name = Digest::of(&bytes);
        self.0.insert(name, bytes);
        name
    }

    /// A leaf of so many runs of one byte.
    fn leaf(&mut self, runs: usize) -> Digest {
        let tuple = block(b"x", 1).0;
        self.add(&TreeNode::Leaf(vec![tuple; runs]))
    }

    /// A node whose children are all `node`, each said to have so many bytes.
    fn inner(&mut self, height: u8, children: usize, count: u64, node: Digest) -> Digest {
        self.add(&TreeNode::Inner(height, vec![ChildRef { count, dead: 0, node }; children]))
    }
}

fn poisons() -> Vec<(&'static [&'static str], FileRoot, PoisonNodes)> {
    let root =
        |length: u64, height, top| FileRoot { length, height, top, ..FileRoot::empty(FileId([0; 16]), 0) };
    let (length, mut poisons) = (LENGTH, Vec::new());
    let mut poison = |words: &'static [&'static str], make: &dyn Fn(&mut PoisonNodes) -> FileRoot| {
        let mut nodes = PoisonNodes::default();
        let root = make(&mut nodes);
        poisons.push((words, root, nodes));
    };
    poison(&["lies: its count is 20,"], &|nodes| {
        let leaf = nodes.leaf(20);
        root(length, 1, nodes.inner(1, 2, length / 2, leaf))
    });
    poison(&["lies: its count is 400,"], &|nodes| {
        let leaf = nodes.leaf(20);
        root(length, 1, nodes.inner(1, 20, 20, leaf))
    });
    poison(&["lies: its height is 1,"], &|nodes| {
        let leaf = nodes.leaf(20);
        let inner = nodes.inner(1, 20, length / 40, leaf);
        root(length, 1, nodes.inner(1, 2, length / 2, inner))
    });
    poison(&["lies: its number of entries is 1,"], &|nodes| {
        let leaf = nodes.add(&TreeNode::Leaf(vec![block(&[0; LENGTH as usize / 30], 1).0]));
        root(length, 1, nodes.inner(1, 30, length / 30, leaf))
    });
    poison(&["lies: its dead bytes is 0,"], &|nodes| {
        let leaf = nodes.add(&TreeNode::Leaf(vec![block(&[0; LENGTH as usize / 30], 1).0; 30]));
        FileRoot { dead: 7, ..root(length, 0, leaf) }
    });
    poison(&["names a content that is not there"], &|nodes| {
        let (mut top, mut count) = (nodes.leaf(33), 33);
        for height in 1..=5 {
            top = nodes.inner(height, 33, count, top);
            count *= 33;
        }
        assert!(count > 1_000_000_000, "a billion runs");
        root(count, 5, top)
    });
    // A node that is its own child has no hash that could be found; a server can say that another's bytes are it.
    poison(&["sent other bytes for"], &|nodes| {
        let child = Digest([1; 32]);
        let top = nodes.inner(2, 2, length / 2, child);
        let itself = nodes.0[&top].clone();
        nodes.0.insert(child, itself);
        root(length, 2, top)
    });
    poisons
}

fn a_poisoned_tree_is_named_and_older_versions_stay() {
    let it = Deceived::new();
    let newest = it.version(3).signed.root;
    let [old, fresh] = [it.version(2), it.version(3)].map(|version| version.signed.root);
    // The file that changed and is no catalogue.
    let changed = |file: &&FileRoot| file.file != FileId::CATALOGUE && old.file(&file.file) != Some(*file);
    let notes = fresh.files.iter().find(changed).unwrap().file;
    let poisoned = |file: FileId, poison: FileRoot| {
        let mut root = newest.clone();
        (root.number, root.previous) = (4, newest.digest());
        let place = root.files.iter().position(|root| root.file == file).unwrap();
        root.files[place] = FileRoot { file, ..poison };
        root
    };
    let mut lies = Vec::new();
    for (words, root, PoisonNodes(objects)) in poisons() {
        lies.push((words, poisoned(notes, root), objects.clone()));
        if root.length < 1 << 26 {
            lies.push((words, poisoned(FileId::CATALOGUE, root), objects));
        } else {
            lies.push((&["bytes of the catalogue"], poisoned(FileId::CATALOGUE, root), objects));
        }
    }
    let exchanged = VaultRoot { number: 4, previous: newest.digest(), ..swapped(newest.clone()) };
    lies.push((&["byte 0"], exchanged, HashMap::new()));
    for (words, root, objects) in lies {
        it.forget();
        it.liar.lie(Poison { version: it.signed(root), objects });
        assert_told(call(&it.two, &["get", "notes", "-o", "x"]), words);
        assert!(!it.two.path("x").exists(), "{words:?}");
        it.assert_older_is_there(words[0]);
    }
    it.assert_whole();
}

/// Two machines change one tree: one of them its names and modes alone.
fn a_stale_machine_takes_back_no_names_and_modes() {
    let vaults = Vaults::new();
    let (one, two) = (vaults.env.machine("one"), vaults.env.machine("two"));
    let id = vaults.init(&one);
    fs::create_dir(one.path("tree")).unwrap();
    fs::write(one.path("tree/a"), "content").unwrap();
    put(&one, "tree");
    vaults.join(&two, &id);
    told(&two, &["get", "tree"]);
    fs::rename(one.path("tree/a"), one.path("tree/z")).unwrap();
    put(&one, "tree");
    fs::write(two.path("tree/b"), "more").unwrap();
    assert_told(call(&two, &["put", "tree"]), &["changed by somebody else"]);
    told(&two, &["get", "tree", "-o", "theirs"]);
    assert!(two.path("theirs/z").exists());
}

/// Two machines that have seen one version each put another one.
fn of_two_machines_that_put_one_name_at_once_one_wins() {
    let (_vaults, one, two, _) = Vaults::with_two(b"the first");
    for round in 1..4 {
        for machine in [&one, &two] {
            told(machine, &["get", "notes", "--overwrite"]);
        }
        fs::write(one.path("notes"), bytes(round, LENGTH)).unwrap();
        fs::write(two.path("notes"), bytes(round + 100, LENGTH)).unwrap();
        let running = [&one, &two].map(|machine| {
            machine.tow(["vault", "put", "notes"]).variable(PASSPHRASE.0, PASSPHRASE.1).start()
        });
        let ended = running.map(Running::end);
        let won: Vec<usize> = (0..2).filter(|machine| ended[*machine].code() == 0).collect();
        let [winner] = won[..] else { panic!("round {round}: {won:?} won") };
        let [first, second] = ended;
        let lost = if winner == 0 { second } else { first };
        assert_told(lost, &["changed by somebody else"]);
        told(&one, &["get", "notes", "-o", "now", "--overwrite"]);
        let expected = bytes(round + if winner == 0 { 0 } else { 100 }, LENGTH);
        assert!(fs::read(one.path("now")).unwrap() == expected, "round {round}");
    }
}

fn a_full_disk_here_is_named_and_loses_nothing() {
    let vaults = Vaults::new();
    let one = vaults.env.machine("one");
    let disk = Mounted::tmpfs(&one.home("state"), "size=4m");
    vaults.init(&one);
    fs::write(one.path("notes"), bytes(1, LENGTH)).unwrap();
    put(&one, "notes");
    fs::write(one.path("notes"), bytes(2, 8 << 20)).unwrap();
    assert_told(call(&one, &["put", "notes"]), &["No space left"]);
    told(&one, &["get", "notes", "-o", "before"]);
    assert!(fs::read(one.path("before")).unwrap() == bytes(1, LENGTH));
    disk.remount("size=64m");
    put(&one, "notes");
    told(&one, &["get", "notes", "-o", "now"]);
    assert!(fs::read(one.path("now")).unwrap() == bytes(2, 8 << 20));
    assert_eq!(number(&told(&one, &["check", "--all"]), "faults"), 0);
}

fn a_full_disk_of_the_server_is_named_and_loses_nothing() {
    let mut vaults = Vaults::new();
    vaults.stop();
    let folder = vaults.folder();
    let disk = Mounted::tmpfs(&folder, "size=4m");
    vaults.start();
    let one = vaults.env.machine("one");
    vaults.init(&one);
    fs::write(one.path("notes"), bytes(1, LENGTH)).unwrap();
    put(&one, "notes");
    // No room for packs, then none for a record.
    fs::write(one.path("large"), bytes(2, 8 << 20)).unwrap();
    assert_told(call(&one, &["put", "large"]), &["the server has no room"]);
    let filler = folder.join("filler");
    let _ = fs::write(&filler, vec![0; 4 << 20]);
    fs::write(one.path("notes"), bytes(3, LENGTH)).unwrap();
    assert_told(call(&one, &["put", "notes"]), &["the server has no room"]);
    told(&one, &["get", "notes", "-o", "before"]);
    assert!(fs::read(one.path("before")).unwrap() == bytes(1, LENGTH));
    // What was refused is not there after a start, either.
    vaults.stop();
    fs::remove_file(filler).unwrap();
    disk.remount("size=64m");
    vaults.start();
    assert_eq!(call(&one, &["log"]).with(0).text().lines().count(), 2);
    for (name, seed, length) in [("notes", 3, LENGTH), ("large", 2, 8 << 20)] {
        put(&one, name);
        told(&one, &["get", name, "-o", "now", "--overwrite"]);
        assert!(fs::read(one.path("now")).unwrap() == bytes(seed, length), "{name}");
    }
    assert_eq!(number(&told(&one, &["check", "--all"]), "faults"), 0);
    vaults.stop();
}
