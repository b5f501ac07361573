//! A transfer that requires encryption.

use std::sync::Arc;

use towpath_content::Oid;
use towpath_link::Identity;
use towpath_plugins::direct::DirectConfig;
use towpath_plugins::preferred::Precedence;
use towpath_plugins::{Cascade, Direct, Local, Preferred};
use towpath_protocol::{Peer, PeerConfig, Service};
use towpath_store::{About, MemoryStore};
use towpath_transfer::{Context, FetchError, Outcome, Session, Single, Source};

use crate::support::*;

async fn fetch(plugin: Arc<dyn Source>, oid: Oid, context: Context) -> Result<(), FetchError> {
    let turn = Arc::new(Arc::new(Precedence::default()).enter(0));
    let preferred = Preferred::new(Single::root(plugin), turn, true);
    let session = Session::start(Arc::new(preferred), context, impatient(LIMIT));
    session.fetch(request(oid, None, &Arc::new(Memory::default()))).await.map(drop)
}

#[tokio::test]
async fn a_pipe_that_something_else_protects_is_refused() {
    let (near, far) = connected().await;
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, b"some words", &About::default());
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    let service = Arc::new(Service::new(store.clone(), Arc::new(keys)));
    let _serving = Peer::start(far, PeerConfig::default(), Some(service));
    let peer = Peer::start(near, PeerConfig::default(), None);
    let (_keep, hints) = tokio::sync::watch::channel(Vec::new());
    let context = Context { root: oid, node: None, secret: None, hints };
    let over: Arc<dyn Source> = Arc::new(Direct::over(peer, Identity::generate().unwrap()));
    let cascade: Arc<dyn Source> = Arc::new(Cascade::new(vec![
        Arc::new(Local::new(Arc::new(MemoryStore::new()), Arc::new(|_| true))),
        Arc::clone(&over),
    ]));
    for plugin in [over, cascade, Arc::new(Local::only(store, "a stick"))] {
        match fetch(plugin, oid, context.clone()).await {
            Err(FetchError::Ended(Outcome::Refused(why))) => assert!(why.contains("encryption is required")),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_connection_with_tls_passes() {
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, b"some words", &About::default());
    let listening = serve(store, &[oid]).await;
    let direct = Direct::new(Identity::generate().unwrap(), DirectConfig::default(), None);
    fetch(Arc::new(direct), oid, listening.context(oid)).await.unwrap();
}
