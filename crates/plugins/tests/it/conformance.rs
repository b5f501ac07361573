//! Our plugins pass the examination of the seam.

use std::sync::Arc;

use crate::support::{put, serve_to};
use tokio::sync::watch;
use towpath_content::{Hint, Oid};
use towpath_link::Identity;
use towpath_plugins::direct::DirectConfig;
use towpath_plugins::preferred::Precedence;
use towpath_plugins::takeover::Names;
use towpath_plugins::{Cascade, Direct, HintedNodes, Inspected, Local, Many, Preferred, Takeover};
use towpath_protocol::processor::{Inspector, Processor};
use towpath_protocol::processors::Processors;
use towpath_protocol::{Peer, PeerConfig};
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::{Context, Single, Source};
use towpath_transfer_conformance::finders::{self, FinderSubject};
use towpath_transfer_conformance::{self as conformance, Fixture, GrowingFixture, Subject};

/// A live object in a store.
struct LiveInStore {
    store: Arc<MemoryStore>,
    oid: Oid,
}

impl LiveInStore {
    fn new(store: &Arc<MemoryStore>) -> Arc<Self> {
        let oid = Oid::Live([0x55; 32]);
        store.put_init(&oid, &About::default()).unwrap();
        Arc::new(Self { store: Arc::clone(store), oid })
    }
}

impl GrowingFixture for LiveInStore {
    fn oid(&self) -> Oid {
        self.oid
    }

    fn append(&self, bytes: &[u8]) {
        self.store.put_data(&self.oid, bytes).unwrap();
    }

    fn complete(&self) {
        self.store.put_commit(&self.oid).unwrap();
    }
}

/// A store that holds every `step`th object, from number `first` on.
fn store(fixture: &Fixture, first: usize, step: usize) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    for data in fixture.objects.iter().skip(first).step_by(step) {
        put(&store, data, &About::default());
    }
    store
}

pub fn local(fixture: &Fixture, first: usize, step: usize) -> Arc<dyn Source> {
    Arc::new(Local::new(store(fixture, first, step), Arc::new(|_| true)))
}

async fn direct(fixture: Fixture, connections: usize) -> Subject {
    let root = fixture.context().root;
    let store = store(&fixture, 0, 1);
    let growing = LiveInStore::new(&store);
    let service = serve_to(store, &[root], true).await;
    let config = DirectConfig { connections, ..DirectConfig::default() };
    let plugin = Direct::new(Identity::generate().unwrap(), config, None);
    let context = service.context(root);
    Subject::new(Arc::new(plugin), context).telling().growing(growing).sharing_a_stream().keeping(service)
}

#[tokio::test]
async fn local_passes() {
    conformance::run(async |fixture: Fixture| Subject::new(local(&fixture, 0, 1), fixture.context())).await;
}

#[tokio::test]
async fn direct_passes_over_a_real_connection() {
    conformance::run(async |fixture| direct(fixture, 1).await).await;
}

#[tokio::test]
async fn direct_passes_over_several_connections() {
    conformance::run(async |fixture| direct(fixture, 3).await).await;
}

#[tokio::test]
async fn a_cascade_of_plugins_that_have_it_between_them_passes() {
    conformance::run(async |fixture: Fixture| {
        let cascade = Cascade::new(vec![local(&fixture, 1, 2), local(&fixture, 0, 2), local(&fixture, 0, 1)]);
        Subject::new(Arc::new(cascade), fixture.context())
            .wrapping(|inner| Arc::new(Cascade::new(vec![inner])))
    })
    .await;
}

#[tokio::test]
async fn several_sources_that_have_it_all_or_between_them_pass() {
    for sources in [[(0, 1), (0, 1), (0, 1)], [(1, 2), (0, 2), (0, 1)], [(1, 2), (0, 2), (0, 0x1000)]] {
        conformance::run(async |fixture: Fixture| {
            let sources = sources.map(|(first, step)| local(&fixture, first, step)).to_vec();
            let subject = Subject::new(Arc::new(Many::new(sources, Vec::new())), fixture.context());
            subject.wrapping(|inner| Arc::new(Many::new(vec![inner], Vec::new())))
        })
        .await;
    }
}

/// Looks at everything and lets it pass.
struct Looker;

impl Processor for Looker {
    fn name(&self) -> &str {
        "looker"
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }
}

impl Inspector for Looker {}

#[tokio::test]
async fn what_is_inspected_passes() {
    conformance::run(async |fixture: Fixture| {
        let processors = Processors::with(vec![Arc::new(Looker)]).unwrap();
        let wrap = move |inner| Inspected::wrap(Single::root(inner), &processors) as Arc<dyn Source>;
        Subject::new(wrap(local(&fixture, 0, 1)), fixture.context()).wrapping(wrap)
    })
    .await;
}

#[tokio::test]
async fn what_has_its_turn_passes() {
    conformance::run(async |fixture: Fixture| {
        let turn = Arc::new(Arc::new(Precedence::default()).enter(0));
        let wrap = move |inner| {
            Arc::new(Preferred::new(Single::root(inner), Arc::clone(&turn), false)) as Arc<dyn Source>
        };
        Subject::new(wrap(local(&fixture, 0, 1)), fixture.context()).wrapping(wrap)
    })
    .await;
}

/// Live objects and what can be had pass a wrapper, too.
#[tokio::test]
async fn what_wraps_a_real_connection_passes() {
    conformance::run(async |fixture: Fixture| {
        let local = local(&fixture, 1, 2);
        let wrap = move |inner| Arc::new(Cascade::new(vec![Arc::clone(&local), inner])) as Arc<dyn Source>;
        direct(fixture, 1).await.around(wrap)
    })
    .await;
    conformance::run(async |fixture| {
        direct(fixture, 1).await.around(|inner| Arc::new(Many::new(vec![inner], Vec::new())))
    })
    .await;
}

const NAMES: Names = Names { first: "ssh", better: "tls" };

#[tokio::test]
async fn a_takeover_passes_before_and_after() {
    conformance::run(async |fixture: Fixture| {
        let wrap = |inner: Arc<dyn Source>| Takeover::new(inner, NAMES) as Arc<dyn Source>;
        Subject::new(wrap(local(&fixture, 0, 1)), fixture.context()).wrapping(wrap)
    })
    .await;
    conformance::run(async |fixture: Fixture| {
        let takeover = Takeover::new(local(&fixture, 0, 0x1000), NAMES);
        takeover.offer(local(&fixture, 0, 1));
        Subject::new(takeover, fixture.context())
    })
    .await;
}

/// The better way is in trouble from the first request on.
#[tokio::test]
async fn a_takeover_with_a_lost_connection_passes() {
    conformance::run(async |fixture: Fixture| {
        let takeover = Takeover::new(local(&fixture, 0, 1), NAMES);
        let (near, far) = crate::support::connected().await;
        drop(far);
        let peer = Peer::start(near, PeerConfig::default(), None);
        peer.closed().await;
        takeover.offer(Arc::new(Direct::over(peer, Identity::generate().unwrap())));
        Subject::new(takeover, fixture.context())
    })
    .await;
}

#[tokio::test]
async fn a_cascade_of_nothing_has_nothing() {
    let fixture = Fixture { objects: vec![b"data".to_vec()] };
    let (answers, _inbox) = tokio::sync::mpsc::channel(1);
    let query = towpath_transfer::Query::about(Oid::of(b"data"));
    let result = Cascade::new(Vec::new()).describe(query, &fixture.context(), answers).await;
    assert_eq!(result, Err(towpath_transfer::Outcome::NotHere));
}

#[tokio::test]
async fn the_finder_of_hinted_nodes_passes() {
    finders::run(async || {
        let (hints, seen) = watch::channel(Vec::new());
        let context = Context { hints: seen, ..Fixture { objects: Vec::new() }.context() };
        let nodes: Vec<Hint> = (0..3).map(|_| hint_of_a_node()).collect();
        let (hints, named) = (Arc::new(hints), nodes.clone());
        let coming = Arc::clone(&hints);
        let come = move |place| {
            coming.send_modify(|hints| hints.push(named[usize::try_from(place).unwrap()].clone()))
        };
        let go = move |place| {
            hints.send_modify(|hints| hints.retain(|hint| *hint != nodes[usize::try_from(place).unwrap()]))
        };
        let nothing = |_, _| -> Vec<Arc<dyn Source>> { vec![Arc::new(Cascade::new(Vec::new()))] };
        FinderSubject::new(HintedNodes::new(Box::new(nothing), None), context, come, go)
    })
    .await;
}

fn hint_of_a_node() -> Hint {
    let node = Identity::generate().unwrap().node_id();
    Hint::new(format!("tow://{node}@127.0.0.1:1"), 0, 1).unwrap()
}
