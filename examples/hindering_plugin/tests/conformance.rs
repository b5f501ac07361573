//! What it wraps keeps the contract, and so does it: lost wants end, and are asked for again.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests.

use std::sync::Arc;
use std::time::Duration;

use towpath_content::Oid;
use towpath_hindering_plugin::HinderingPlugin;
use towpath_plugins::Local;
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::Source;
use towpath_transfer_conformance::{self as conformance, Fixture, Subject};

fn stored(fixture: &Fixture) -> Arc<MemoryStore> {
    let store = MemoryStore::new();
    for (number, data) in (0..).zip(&fixture.objects) {
        let live = Oid::Live([number; 32]);
        store.put_init(&live, &About::default()).unwrap();
        store.put_data(&live, data).unwrap();
        store.put_commit(&live).unwrap();
    }
    Arc::new(store)
}

#[tokio::test]
async fn a_delayed_plugin_keeps_the_contract() {
    conformance::run(async |fixture: Fixture| {
        let inner = Arc::new(Local::new(stored(&fixture), Arc::new(|_| true)));
        let wrap =
            |inner| Arc::new(HinderingPlugin::new(inner, Duration::from_millis(2), 0)) as Arc<dyn Source>;
        Subject::new(wrap(inner), fixture.context()).wrapping(wrap)
    })
    .await;
}

#[tokio::test]
async fn a_plugin_that_loses_wants_keeps_the_contract() {
    conformance::run(async |fixture: Fixture| {
        let inner = Arc::new(Local::new(stored(&fixture), Arc::new(|_| true)));
        let plugin = HinderingPlugin::new(inner, Duration::ZERO, 3);
        Subject::new(Arc::new(plugin), fixture.context()).postponing()
    })
    .await;
}
