//! Several sources of one transfer: what each brings, and what is made of those that stall, lie or have nothing.

use std::sync::Arc;

use tokio::sync::watch;
use towpath_content::{Hint, NodeId, Oid};
use towpath_link::Identity;
use towpath_plugins::direct::DirectConfig;
use towpath_plugins::{Direct, HintedNodes, Many};
use towpath_store::{About, MemoryStore};
use towpath_transfer::{Context, FetchError, Outcome, Session, Single, Source, SourceId};

use crate::mannered::{Manner, Mannered};
use crate::support::*;

const MIB: usize = 1 << 20;

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 251 + i) as u8).collect()
}

fn context(oid: Oid) -> Context {
    Context { root: oid, node: None, secret: None, hints: watch::channel(Vec::new()).1 }
}

/// Fetches `data` from sources of these rates and manners. Returns how many pieces each brought.
async fn fetched(data: &[u8], sources: &[(&'static str, u64, Manner)]) -> (Result<(), FetchError>, Vec<u64>) {
    let (result, brought, _) = fetched_and_wrong(data, sources).await;
    (result, brought)
}

/// The same, and who brought what was wrong.
async fn fetched_and_wrong(
    data: &[u8],
    sources: &[(&'static str, u64, Manner)],
) -> (Result<(), FetchError>, Vec<u64>, Vec<SourceId>) {
    let made: Vec<_> =
        sources.iter().map(|&(name, rate, manner)| Mannered::new(name, data, rate, manner)).collect();
    let plugins = made.iter().map(|source| Arc::clone(source) as Arc<dyn Source>).collect();
    let oid = Oid::of(data);
    let session = Session::start(
        Single::root(Arc::new(Many::new(plugins, Vec::new()))),
        context(oid),
        impatient(LIMIT),
    );
    let target = Arc::new(Memory::default());
    let result = session.fetch(request(oid, None, &target)).await.map(drop);
    if result.is_ok() {
        target.expect(data);
    }
    let brought = made.iter().map(|source| *source.brought.borrow()).collect();
    let wrong = session.progress().snapshot().wrong.into_keys().collect();
    (result, brought, wrong)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_source_brings_what_it_is_good_for() {
    let data = data(24 * MIB);
    let (result, brought) =
        fetched(&data, &[("fast", 12 << 20, Manner::Honest), ("slow", 4 << 20, Manner::Honest)]).await;
    result.unwrap();
    let share = brought[1] as f64 / brought.iter().sum::<u64>() as f64;
    assert!((0.1..0.45).contains(&share), "{brought:?}: a quarter is right");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_stalls_holds_up_nothing() {
    let data = data(24 * MIB);
    let (result, brought) =
        fetched(&data, &[("stalls", 8 << 20, Manner::Stalls(5)), ("goes on", 8 << 20, Manner::Honest)]).await;
    result.unwrap();
    assert!(brought[1] >= 24 * 4 - 5, "{brought:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_liar_is_not_asked_for_long() {
    let data = data(16 * MIB);
    let sources = [("lies", 64 << 20, Manner::Lies), ("true", 16 << 20, Manner::Honest)];
    let (result, brought, wrong) = fetched_and_wrong(&data, &sources).await;
    result.unwrap();
    assert!(brought[0] < brought[1] / 2, "{brought:?}");
    assert_eq!(wrong, [SourceId::other("lies", None)], "it is named");
}

#[tokio::test]
async fn what_no_source_has_is_said_at_once() {
    let data = data(2 * MIB);
    let (result, _) =
        fetched(&data, &[("one", 1 << 30, Manner::Empty), ("two", 1 << 30, Manner::Empty)]).await;
    assert!(matches!(result, Err(FetchError::Ended(Outcome::NotHere))), "{result:?}");
}

#[tokio::test]
async fn one_that_has_it_is_enough() {
    let data = data(2 * MIB);
    let (result, brought) =
        fetched(&data, &[("none", 1 << 30, Manner::Empty), ("all", 1 << 30, Manner::Honest)]).await;
    result.unwrap();
    assert!(brought[0] == 0 && brought[1] >= 8, "{brought:?}");
}

/// A ticket's issuer and another holder, which a hint names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_a_hint_names_is_asked_beside_the_issuer() {
    let data = data(64 * MIB);
    let stores = [(); 2].map(|()| Arc::new(MemoryStore::new()));
    let oid = Oid::of(&data);
    for store in &stores {
        assert_eq!(put(store, &data, &About::default()), oid);
    }
    let [issuer, holder] = stores;
    let (issuer, holder) = (serve(issuer, &[oid]).await, serve(holder, &[oid]).await);
    let hinted = format!("tow://{}@{}", holder.node, holder.address);
    let context = issuer.context(oid);
    let mut hints = context.hints.borrow().clone();
    hints.push(Hint::new(hinted, 0, 1).unwrap());
    let context = Context { hints: watch::channel(hints).1, ..context };
    let identity = Identity::generate().unwrap();
    let dial = move || Direct::new(identity.clone(), DirectConfig::default(), None);
    let first: Arc<dyn Source> = Arc::new(dial());
    let many = Many::new(
        vec![first],
        vec![HintedNodes::new(Box::new(move |node, _| vec![Arc::new(dial().to(node))]), None)],
    );
    let session = Session::start(Single::root(Arc::new(many)), context, impatient(LIMIT));
    let target = Arc::new(Memory::default());
    session.fetch(request(oid, None, &target)).await.unwrap();
    target.expect(&data);
    let by_source = session.progress().snapshot().by_source;
    for node in [issuer.node, holder.node] {
        let brought = by_source.get(&SourceId::peer(node)).copied().unwrap_or(0);
        assert!(brought > 0, "{by_source:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_lie_it_is_said_and_not_waited_for() {
    let data = data(4 * MIB);
    let (result, _) = fetched(&data, &[("one", 1 << 30, Manner::Lies), ("two", 1 << 30, Manner::Lies)]).await;
    assert!(matches!(result, Err(FetchError::Bad { .. } | FetchError::Ended(_))), "{result:?}");
}

/// Two nodes by their names, and the hints that name them.
fn two_nodes() -> [(NodeId, Hint); 2] {
    [(); 2].map(|()| {
        let node = Identity::generate().unwrap().node_id();
        (node, Hint::new(format!("tow://{node}@127.0.0.1:1"), 0, 1).unwrap())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_that_comes_is_used_and_one_that_goes_is_let_go() {
    let data = data(24 * MIB);
    let oid = Oid::of(&data);
    let [(first, first_hint), (second, second_hint)] = two_nodes();
    let leaving = Mannered::new("leaving", &data, 16 << 20, Manner::Stalls(12));
    let coming = Mannered::new("coming", &data, 16 << 20, Manner::Honest);
    let sources = [(first, Arc::clone(&leaving)), (second, Arc::clone(&coming))];
    let peer = move |node: NodeId, _| -> Vec<Arc<dyn Source>> {
        let found = sources.iter().find(|(known, _)| *known == node);
        vec![Arc::clone(&found.expect("only these are named").1) as _]
    };
    let empty: Arc<dyn Source> = Mannered::new("empty", &data, 1 << 30, Manner::Empty);
    let many = Many::new(vec![empty], vec![HintedNodes::new(Box::new(peer), None)]);
    let (hints, seen) = watch::channel(vec![first_hint.clone()]);
    let context = Context { hints: seen, ..context(oid) };
    let session = Session::start(Single::root(Arc::new(many)), context, impatient(LIMIT));
    let target = Arc::new(Memory::default());
    let changing = async {
        leaving.brought.subscribe().wait_for(|brought| *brought == 12).await.unwrap();
        assert_eq!(*coming.brought.borrow(), 0, "it is not named yet");
        hints.send(vec![first_hint, second_hint.clone()]).unwrap();
        coming.brought.subscribe().wait_for(|brought| *brought > 0).await.unwrap();
        hints.send(vec![second_hint]).unwrap();
    };
    let both = async { tokio::join!(session.fetch(request(oid, None, &target)), changing) };
    tokio::time::timeout(LIMIT, both).await.expect("it ends").0.unwrap();
    target.expect(&data);
    assert_eq!(*leaving.brought.borrow(), 12, "it was not asked again");
    // It counts its last ones when they have been taken.
    let all = async { coming.brought.subscribe().wait_for(|brought| *brought >= 24 * 4 - 12).await.is_ok() };
    assert!(tokio::time::timeout(LIMIT, all).await.expect("the rest came from it"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_alone_shares_what_it_owes_with_one_that_joins() {
    let data = data(2 * MIB);
    let oid = Oid::of(&data);
    let [(node, hint), _] = two_nodes();
    let alone = Mannered::new("alone", &data, 256 << 10, Manner::Honest);
    let joins = Mannered::new("joins", &data, 64 << 20, Manner::Honest);
    let found = Arc::clone(&joins);
    let peer = move |named: NodeId, _| -> Vec<Arc<dyn Source>> {
        assert_eq!(named, node);
        vec![Arc::clone(&found) as _]
    };
    let many = Many::new(vec![Arc::clone(&alone) as _], vec![HintedNodes::new(Box::new(peer), None)]);
    let (hints, seen) = watch::channel(Vec::new());
    let context = Context { hints: seen, ..context(oid) };
    let session = Session::start(Single::root(Arc::new(many)), context, impatient(LIMIT));
    let target = Arc::new(Memory::default());
    let joining = async {
        alone.brought.subscribe().wait_for(|brought| *brought == 1).await.unwrap();
        hints.send(vec![hint]).unwrap();
    };
    let both = async { tokio::join!(session.fetch(request(oid, None, &target)), joining) };
    tokio::time::timeout(LIMIT, both).await.expect("it ends").0.unwrap();
    target.expect(&data);
    let brought = [&alone, &joins].map(|source| *source.brought.borrow());
    assert!(brought[0] <= 2, "{brought:?}: it was asked for four at once");
}

/// The copy knows nothing of the object; who knows it has no bytes at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_copy_brings_what_one_without_bytes_tells_how_to_check() {
    let data = data(4 * MIB);
    let sources = [("copy", 64 << 20, Manner::Bare), ("knows", 1 << 30, Manner::Tells)];
    let (result, brought) = fetched(&data, &sources).await;
    result.unwrap();
    assert_eq!(brought[1], 0);
    assert!(brought[0] >= 16, "{brought:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_copy_that_lies_is_not_asked_for_long() {
    let data = data(16 * MIB);
    let sources = [("lies", 64 << 20, Manner::BareLies), ("true", 16 << 20, Manner::Honest)];
    let (result, brought) = fetched(&data, &sources).await;
    result.unwrap();
    assert!(brought[0] < brought[1] / 2, "{brought:?}");
}

#[tokio::test]
async fn of_plain_copies_alone_nothing_is_asked() {
    let data = data(2 * MIB);
    let (result, brought) =
        fetched(&data, &[("one", 1 << 30, Manner::Bare), ("two", 1 << 30, Manner::Bare)]).await;
    assert!(matches!(result, Err(FetchError::NoValues)), "{result:?}");
    assert_eq!(brought, [0, 0]);
}
