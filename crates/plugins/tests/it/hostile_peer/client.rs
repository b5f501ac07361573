//! A client that lies to our real service.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_content::ticket::Secret;
use towpath_content::tree::{BLOCK, Encoder, Entry, Event, Kind, Metadata};
use towpath_content::{NodeId, Oid};
use towpath_link::Identity;
use towpath_link::tcp::{DialConfig, dial};
use towpath_plugins::Direct;
use towpath_plugins::direct::DirectConfig;
use towpath_protocol::wire::{self, Body, Describe, Get, Ping, Prove, WireCancel, WireWant, oid_field};
use towpath_store::{About, MemoryStore, ObjectKind, Store};
use towpath_transfer::{Outcome, Session, Single};

use super::liar::{Liar, header, hello};
use crate::support::*;

const LIVE: Oid = Oid::Live([4; 32]);

/// Objects of the service: a tree with one file, another file, a blob that looks like the tree's
/// descriptor, a live object, and tickets for the tree, the blob and the live object.
pub struct Scene {
    listening: Listening,
    pub tree: Oid,
    mentioned: Oid,
    unmentioned: Oid,
    pub blob: Oid,
}

fn descriptor(file: Oid, name: &str) -> Vec<u8> {
    let mut encoder = Encoder::new(false);
    let kind = Kind::File { size: 9, oid: Some(file), extents: None };
    let leaf = Entry { name: name.into(), kind, metadata: Metadata::default(), hard_link: None };
    let root =
        Entry { name: Vec::new(), kind: Kind::Directory, metadata: Metadata::default(), hard_link: None };
    for event in [Event::Enter(root), Event::Leaf(leaf), Event::Leave] {
        encoder.push(&event).unwrap();
    }
    encoder.finish().unwrap()
}

pub async fn scene() -> Scene {
    let store = Arc::new(MemoryStore::new());
    let mentioned = put(&store, b"mentioned", &About::default());
    let unmentioned = put(&store, b"a secret!", &About::default());
    let tree_about = About { kind: ObjectKind::Tree, ..About::default() };
    let tree = put(&store, &descriptor(mentioned, "file"), &tree_about);
    let blob = put(&store, &descriptor(unmentioned, "forged"), &About::default());
    store.put_init(&LIVE, &About::default()).unwrap();
    store.put_data(&LIVE, &vec![7; 300 << 10]).unwrap();
    let listening = serve(store, &[tree, blob, LIVE]).await;
    Scene { listening, tree, mentioned, unmentioned, blob }
}

pub struct Client {
    pub liar: Liar,
    node: NodeId,
    binding: [u8; 32],
}

impl Scene {
    /// A client that has said hello.
    pub async fn client(&self) -> Client {
        let mut client = self.rude_client().await;
        client.liar.say(hello(wire::VERSION)).await;
        client
    }

    async fn rude_client(&self) -> Client {
        let identity = Identity::generate().unwrap();
        let (node, how) = (identity.node_id(), DialConfig::default());
        let connection = dial(self.listening.address, &identity, self.listening.node, &how).await.unwrap();
        let binding = connection.binding;
        Client { liar: Liar::new(connection), node, binding }
    }

    /// A client that proved `root`.
    pub async fn proved(&self, root: Oid) -> Client {
        let mut client = self.client().await;
        client.prove(&root, SECRET).await;
        client
    }

    /// Another client is served as ever.
    pub async fn expect_others_are_served(&self) {
        let direct = Direct::new(Identity::generate().unwrap(), DirectConfig::default(), None);
        let context = self.listening.context(self.blob);
        let session =
            Session::start(Single::root(Arc::new(direct)), context, impatient(Duration::from_secs(10)));
        let target = Arc::new(Memory::default());
        let fetched = session.fetch(request(self.blob, None, &target)).await.unwrap();
        assert_eq!(fetched.oid, self.blob);
    }
}

pub fn want(oid: &Oid, block: Option<u64>) -> WireWant {
    WireWant { oid: oid_field(oid), block, count: 1, ..WireWant::default() }
}

pub fn get(request: u32, root: &Oid, wants: Vec<WireWant>) -> Body {
    Body::Get(Get { request, root: oid_field(root), wants, ..Get::default() })
}

pub fn describe(request: u32, root: &Oid, oid: &Oid) -> Describe {
    Describe { request, root: oid_field(root), oid: oid_field(oid), ..Describe::default() }
}

impl Client {
    pub async fn prove(&mut self, root: &Oid, secret: Secret) {
        let proof = Bytes::copy_from_slice(&secret.prove(&self.binding, &self.node, root));
        self.liar.say(Body::Prove(Prove { root: oid_field(root), proof })).await;
    }

    /// The outcome of one want, `None` if data came.
    pub async fn ask(&mut self, root: &Oid, want: WireWant) -> Option<Outcome> {
        self.liar.say(get(1, root, vec![want])).await;
        let mut outcome = None;
        loop {
            match self.liar.hear().await.expect("the connection stands") {
                Body::Outcome(message) => outcome = Some(message.outcome()),
                Body::Done(_) => return outcome,
                _ => {}
            }
        }
    }

    async fn expect_refused(mut self, root: &Oid, want: WireWant, words: &str) {
        match self.ask(root, want).await {
            Some(Outcome::Refused(why)) if why.contains(words) => {}
            other => panic!("{other:?} is not a refusal with {words:?}"),
        }
    }

    /// The service says goodbye with `words` and closes.
    pub async fn expect_goodbye(mut self, words: &str) {
        let told = tokio::time::timeout(LIMIT, async {
            let mut told = None;
            while let Some(body) = self.liar.hear().await {
                if let Body::Goodbye(goodbye) = body {
                    told = Some(goodbye.reason);
                }
            }
            told
        });
        let told = told.await.expect("the connection is closed").expect("a goodbye");
        assert!(told.contains(words), "says {told:?}, not {words:?}");
    }
}

#[tokio::test]
async fn what_a_ticket_covers_is_served() {
    let scene = scene().await;
    let root = scene.tree;
    assert_eq!(scene.proved(root).await.ask(&root, want(&root, None)).await, None);
    assert_eq!(scene.proved(root).await.ask(&root, want(&scene.mentioned, Some(0))).await, None);
}

#[tokio::test]
async fn roots_that_are_unproved_or_proved_with_another_secret_are_refused() {
    let scene = scene().await;
    let not_proved = "not known here or its secret was not proved";
    for root in [scene.tree, scene.unmentioned, Oid::of(b"unknown"), LIVE] {
        scene.client().await.expect_refused(&root, want(&root, None), not_proved).await;
        let mut guessing = scene.client().await;
        guessing.prove(&root, Secret([8; 16])).await;
        guessing.expect_refused(&root, want(&root, None), not_proved).await;
    }
    // A proof for one root is none for another.
    scene.proved(scene.blob).await.expect_refused(&scene.tree, want(&scene.tree, None), not_proved).await;
    // Nor is a proof that another node made, or made on another connection.
    let mut thief = scene.client().await;
    thief.node = NodeId([3; 32]);
    thief.prove(&scene.tree, SECRET).await;
    thief.expect_refused(&scene.tree, want(&scene.tree, None), not_proved).await;
    let mut replayer = scene.client().await;
    replayer.binding = [3; 32];
    replayer.prove(&scene.tree, SECRET).await;
    replayer.expect_refused(&scene.tree, want(&scene.tree, None), not_proved).await;
    scene.expect_others_are_served().await;
}

#[tokio::test]
async fn descriptions_are_refused_like_data() {
    let scene = scene().await;
    for oid in [scene.tree, scene.mentioned, LIVE] {
        let mut client = scene.client().await;
        client.liar.say(Body::Describe(describe(1, &oid, &oid))).await;
        let Some(Body::Outcome(message)) = client.liar.hear().await else { panic!() };
        assert!(matches!(message.outcome(), Outcome::Refused(_)));
        assert!(matches!(client.liar.hear().await, Some(Body::Done(_))));
        client.liar.say(Body::Watch(describe(2, &oid, &oid))).await;
        assert!(matches!(client.liar.hear().await, Some(Body::Outcome(_))));
    }
}

#[tokio::test]
async fn knowing_a_hash_is_not_enough() {
    let scene = scene().await;
    let (root, file, secret) = (scene.tree, scene.mentioned, scene.unmentioned);
    let nothing_named = "nothing was named that covers this object";
    for (oid, block, words) in [
        (secret, Some(0), "the ticket does not cover this object"),
        (Oid::of(b"not even here"), Some(0), "the ticket does not cover this object"),
        (secret, None, nothing_named),
        (file, None, nothing_named),
        (file, Some(1), nothing_named),
        (file, Some(u64::MAX), nothing_named),
        (file, Some(u64::MAX / BLOCK as u64), nothing_named),
        (file, Some(1 << 40), nothing_named),
    ] {
        scene.proved(root).await.expect_refused(&root, want(&oid, block), words).await;
    }
    scene.expect_others_are_served().await;
}

#[tokio::test]
async fn a_blob_that_looks_like_a_descriptor_covers_nothing() {
    let scene = scene().await;
    let words = "nothing was named that covers this object";
    scene
        .proved(scene.blob)
        .await
        .expect_refused(&scene.blob, want(&scene.unmentioned, Some(0)), words)
        .await;
}

#[tokio::test]
async fn chunks_are_for_allowed_nodes() {
    let scene = scene().await;
    let chunk =
        WireWant { chunk: Bytes::copy_from_slice(scene.tree.digest()), count: 1, ..WireWant::default() };
    scene.proved(scene.tree).await.expect_refused(&scene.tree, chunk, "chunks are for allowed nodes").await;
}

#[tokio::test]
async fn pieces_that_no_object_has_are_refused() {
    let scene = scene().await;
    let root = scene.tree;
    for (first, count) in [(1, 1), (0, 2), (0, 4096), (u64::MAX, 1), (u64::MAX, 4096), (1 << 60, 1)] {
        let outside = WireWant { first, count, ..want(&root, None) };
        scene.proved(root).await.expect_refused(&root, outside, "").await;
    }
    let nonsense = WireWant { oid: Bytes::from_static(b"?"), ..want(&root, None) };
    scene.proved(root).await.expect_refused(&root, nonsense, "not an OID").await;
}

#[tokio::test]
async fn more_than_the_limits_allow_ends_the_connection() {
    let scene = scene().await;
    let root = scene.tree;
    let mut pieces = scene.proved(root).await;
    pieces.liar.say(get(1, &root, vec![WireWant { count: 4097, ..want(&root, None) }])).await;
    pieces.expect_goodbye("4097 pieces at once").await;
    let mut huge = scene.proved(root).await;
    let most = WireWant { count: u32::MAX, ..want(&root, None) };
    huge.liar.say(get(1, &root, vec![most; 3])).await;
    huge.expect_goodbye("pieces at once").await;
    let mut wants = scene.proved(root).await;
    wants.liar.say(get(1, &root, vec![want(&root, None); 1025])).await;
    wants.expect_goodbye("more parts than one of its kind").await;
    let mut roots = scene.client().await;
    for _ in 0..64 {
        roots.prove(&root, SECRET).await;
    }
    assert_eq!(roots.ask(&root, want(&root, None)).await, None, "64 proofs are fine");
    roots.prove(&root, SECRET).await;
    roots.expect_goodbye("proved too many roots").await;
    scene.expect_others_are_served().await;
}

#[tokio::test]
async fn more_than_64_requests_at_once_end_the_connection() {
    let scene = scene().await;
    let mut client = scene.proved(LIVE).await;
    // 256 MiB that the client does not read keep everything behind it waiting.
    client.liar.say(get(1, &LIVE, vec![want(&LIVE, None); 1024])).await;
    for request in 2..=65 {
        client.liar.say(Body::Describe(describe(request, &LIVE, &LIVE))).await;
    }
    client.expect_goodbye("has too many requests under way").await;
    let mut client = scene.proved(LIVE).await;
    for _ in 0..2 {
        client.liar.say(Body::Watch(Describe { follow: true, ..describe(7, &LIVE, &LIVE) })).await;
    }
    client.expect_goodbye("used the number of a request that is under way").await;
    scene.expect_others_are_served().await;
}

#[tokio::test]
async fn more_than_32_followed_objects_end_the_connection() {
    let scene = scene().await;
    let mut client = scene.proved(LIVE).await;
    for request in 1..=33 {
        let question = Describe {
            values_from: Some(0),
            values_to: u64::MAX,
            follow: true,
            ..describe(request, &LIVE, &LIVE)
        };
        client.liar.say(Body::Describe(question)).await;
    }
    client.expect_goodbye("follows too many objects").await;
    scene.expect_others_are_served().await;
}

/// Each asks for more than the ways and queues hold, and reads none of it. There are two threads, so one node has one.
#[tokio::test]
async fn peers_that_read_nothing_and_peers_that_watch_hold_no_thread() {
    let store = Arc::new(MemoryStore::new());
    let data = vec![7; 96 << 20];
    let big = put(&store, &data, &About::default());
    let small = put(&store, b"small", &About::default());
    store.put_init(&LIVE, &About::default()).unwrap();
    store.put_data(&LIVE, &vec![7; 300 << 10]).unwrap();
    let listening = serve_with(store, &[big, small, LIVE], |service| service.with_threads(2, 1)).await;
    let scene = Scene { listening, tree: big, mentioned: small, unmentioned: small, blob: small };
    let pieces = data.len() as u64 / (256 << 10);
    let (mut deaf, mut watchers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let mut client = scene.proved(big).await;
        let run = WireWant { count: pieces as u32, ..want(&big, None) };
        client.liar.say(get(1, &big, vec![run])).await;
        deaf.push(client);
        let mut client = scene.proved(LIVE).await;
        for request in 1..=32 {
            let question = Describe { follow: true, ..describe(request, &LIVE, &LIVE) };
            client.liar.say(Body::Watch(question)).await;
            assert!(matches!(client.liar.hear().await, Some(Body::Have(_))));
        }
        watchers.push(client);
    }
    scene.expect_others_are_served().await;
    for mut client in watchers {
        client.liar.say(Body::Cancel(WireCancel { request: 7, pieces: Vec::new() })).await;
        assert!(matches!(client.liar.hear().await, Some(Body::Done(done)) if done.request == 7));
    }
}

#[tokio::test]
async fn cancelling_what_was_never_asked_costs_nothing() {
    let scene = scene().await;
    let mut client = scene.proved(scene.tree).await;
    for request in 0..5000 {
        client.liar.say(Body::Cancel(WireCancel { request, pieces: vec![request, 0] })).await;
    }
    assert_eq!(
        client.ask(&scene.tree, want(&scene.tree, None)).await,
        None,
        "also the one cancelled too early"
    );
}

#[tokio::test]
async fn garbage_ends_the_connection_with_a_goodbye() {
    let scene = scene().await;
    let mut client = scene.client().await;
    client.liar.frame(0, Bytes::from_static(&[0xff; 100])).await;
    client.expect_goodbye("is not Protocol Buffers").await;
    let mut client = scene.client().await;
    client.liar.frame(200, Bytes::new()).await;
    client.expect_goodbye("a frame of an unknown kind").await;
    let mut client = scene.client().await;
    client.liar.data(header(1, 0, 0), b"data").await;
    client.expect_goodbye("not asked for").await;
    let mut client = scene.client().await;
    client.liar.say(hello(wire::VERSION)).await;
    client.expect_goodbye("a second hello").await;
    let mut client = scene.rude_client().await;
    client.liar.say(hello(0)).await;
    client.expect_goodbye("speaks version 0").await;
    let mut client = scene.rude_client().await;
    client.liar.say(Body::Ping(Ping::default())).await;
    client.expect_goodbye("did not begin with a hello").await;
    let mut client = scene.client().await;
    client.liar.say(Body::Prove(Prove { root: Bytes::from_static(b"root"), proof: Bytes::new() })).await;
    client.expect_goodbye("").await;
    let mut client = scene.client().await;
    client
        .liar
        .say(Body::Prove(Prove { root: oid_field(&scene.tree), proof: Bytes::from_static(b"short") }))
        .await;
    client.expect_goodbye("a proof of the wrong length").await;
    scene.expect_others_are_served().await;
}

/// More calls than a connection takes requests wait their turn.
#[tokio::test]
async fn our_own_client_keeps_to_the_limit() {
    let scene = scene().await;
    let direct = Direct::new(Identity::generate().unwrap(), DirectConfig::default(), None);
    let context = scene.listening.context(scene.tree);
    let config = towpath_transfer::SessionConfig { batch_wants: 1, ..impatient(Duration::from_secs(10)) };
    let session = Session::start(Single::root(Arc::new(direct)), context, config);
    let targets: Vec<Arc<Memory>> = (0..300).map(|_| Arc::default()).collect();
    let covered = towpath_transfer::Group {
        coverage: Some(towpath_transfer::Coverage { block: 0 }),
        ..Default::default()
    };
    let covered = Arc::new(covered);
    let mut all = tokio::task::JoinSet::new();
    let session = Arc::new(session);
    for target in &targets {
        let request = towpath_transfer::ObjectRequest {
            group: Arc::clone(&covered),
            ..request(scene.mentioned, None, target)
        };
        let session = Arc::clone(&session);
        all.spawn(async move { session.fetch(request).await.map(drop) });
    }
    while let Some(result) = all.join_next().await {
        result.unwrap().unwrap();
    }
    assert_eq!(session.progress().snapshot().last_error, None);
}

/// Asks for bytes of an object.
fn span(oid: &Oid, block: Option<u64>, offset: u64, len: u32) -> WireWant {
    WireWant { offset: Some(offset), len, count: 0, ..want(oid, block) }
}

#[tokio::test]
async fn runs_of_bytes_are_for_those_who_may_have_the_object() {
    let scene = scene().await;
    let (root, file, secret) = (scene.tree, scene.mentioned, scene.unmentioned);
    assert_eq!(scene.proved(root).await.ask(&root, span(&file, Some(0), 2, 7)).await, None);
    assert_eq!(scene.proved(root).await.ask(&root, span(&root, None, 0, 10)).await, None);
    let nothing_named = "nothing was named that covers this object";
    for (oid, block, words) in [
        (secret, Some(0), "the ticket does not cover this object"),
        (secret, None, nothing_named),
        (file, None, nothing_named),
        (file, Some(1), nothing_named),
    ] {
        scene.proved(root).await.expect_refused(&root, span(&oid, block, 0, 1), words).await;
    }
    let not_proved = "not known here or its secret was not proved";
    scene.client().await.expect_refused(&root, span(&root, None, 0, 1), not_proved).await;
    scene.proved(LIVE).await.expect_refused(&LIVE, span(&LIVE, None, 0, 1), "of complete objects").await;
    scene.expect_others_are_served().await;
}

#[tokio::test]
async fn bytes_that_no_object_has_are_refused() {
    let scene = scene().await;
    let root = scene.tree;
    for (offset, len) in [(8, 2), (9, 1), (0, 16 << 20), (1 << 40, 1), ((1 << 44) - 1, 1)] {
        let outside = span(&scene.mentioned, Some(0), offset, len);
        scene.proved(root).await.expect_refused(&root, outside, "").await;
    }
    for (offset, len) in [(0, 0), (0, (16 << 20) + 1), (u64::MAX, 1), (1 << 44, 1)] {
        let mut client = scene.proved(root).await;
        client.liar.say(get(1, &root, vec![span(&root, None, offset, len)])).await;
        client.expect_goodbye("impossible run of bytes").await;
    }
    let mut many = scene.proved(root).await;
    many.liar.say(get(1, &root, vec![span(&root, None, 0, 1); 1025])).await;
    many.expect_goodbye("more parts than one of its kind").await;
    scene.expect_others_are_served().await;
}

#[tokio::test]
async fn recipes_are_refused_like_data() {
    let scene = scene().await;
    let recipe = |root: &Oid, oid: &Oid| Describe { recipe: true, ..describe(1, root, oid) };
    for question in [recipe(&scene.blob, &scene.tree), recipe(&scene.blob, &scene.unmentioned)] {
        let mut client = scene.proved(scene.blob).await;
        client.liar.say(Body::Describe(question)).await;
        let Some(Body::Outcome(message)) = client.liar.hear().await else { panic!() };
        assert!(matches!(message.outcome(), Outcome::Refused(_)));
        assert!(matches!(client.liar.hear().await, Some(Body::Done(_))));
    }
    // A live object has none, and is described as ever.
    let mut client = scene.proved(LIVE).await;
    client.liar.say(Body::Describe(recipe(&LIVE, &LIVE))).await;
    assert!(matches!(client.liar.hear().await, Some(Body::Description(_))));
    assert!(matches!(client.liar.hear().await, Some(Body::Done(_))));
    let mut client = scene.proved(scene.blob).await;
    client.liar.say(Body::Describe(recipe(&scene.blob, &scene.blob))).await;
    assert!(matches!(client.liar.hear().await, Some(Body::Description(_))));
    assert!(matches!(client.liar.hear().await, Some(Body::Recipe(part)) if part.root.is_some()));
    assert!(matches!(client.liar.hear().await, Some(Body::Done(_))));
}

/// Recipes that the client does not read hold no more than four threads and some messages.
#[tokio::test]
async fn a_client_that_asks_for_recipes_again_and_again_is_told_to_wait() {
    let scene = scene().await;
    let mut client = scene.proved(LIVE).await;
    client.prove(&scene.blob, SECRET).await;
    for request in 1..=60 {
        let question = Describe { recipe: true, ..describe(request, &scene.blob, &scene.blob) };
        client.liar.say(Body::Describe(question)).await;
    }
    let (mut done, mut recipes, mut waits) = (0, 0, 0);
    while done < 60 {
        match client.liar.hear().await.expect("the connection stands") {
            Body::Done(_) => done += 1,
            Body::Recipe(_) => recipes += 1,
            Body::Outcome(message) if matches!(message.outcome(), Outcome::RetryLater(_)) => waits += 1,
            _ => {}
        }
    }
    assert!(recipes >= 4 && recipes + waits == 60, "{recipes} recipes, {waits} to wait");
    scene.expect_others_are_served().await;
}
