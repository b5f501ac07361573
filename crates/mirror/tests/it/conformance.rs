//! The mirror and its finder pass the examinations of their seams.

use std::sync::Arc;

use tokio::sync::watch;
use towpath_content::node_id::hex;
use towpath_content::{Hint, Oid};
use towpath_mirror::{KnownMirrors, Mirror, MirrorFinder, MirrorPlace, NamedBy, WebRules};
use towpath_transfer_conformance::finders::{self, FinderSubject};
use towpath_transfer_conformance::{self as conformance, Fixture, Subject};

use super::context;
use super::server::{Fault, WebServer};

async fn mirror_of(fixture: Fixture, fault: Fault) -> Subject {
    let named = fixture.objects.iter().map(|data| (hex(Oid::of(data).digest()), data.clone()));
    let server = WebServer::start(named).await;
    server.fail(fault);
    let place = MirrorPlace::new(&server.url("{oid}")).unwrap();
    let mirror = Arc::new(Mirror::new(place, NamedBy::Person, WebRules::default()));
    Subject::new(mirror, fixture.context()).proving_nothing().sharing_a_stream().keeping(server)
}

#[tokio::test]
async fn a_mirror_keeps_the_contract() {
    conformance::run(async |fixture: Fixture| mirror_of(fixture, Fault::Nothing).await).await;
}

#[tokio::test]
async fn a_mirror_without_ranges_keeps_the_contract() {
    conformance::run(async |fixture: Fixture| mirror_of(fixture, Fault::NoRanges).await).await;
}

#[tokio::test]
async fn a_mirror_that_ends_connections_keeps_the_contract() {
    conformance::run(async |fixture: Fixture| mirror_of(fixture, Fault::ClosesConnections).await).await;
}

#[tokio::test]
async fn the_finder_keeps_its_contract() {
    finders::run(async || {
        let (sender, hints) = watch::channel(Vec::new());
        let context = towpath_transfer::Context { hints, ..context(Oid::of(b"")) };
        let sender = Arc::new(sender);
        let hint = |number: u32| Hint::new(format!("https://mirror{number}.example/x"), 0, 1).unwrap();
        let coming = Arc::clone(&sender);
        let come = move |number| coming.send_modify(|hints| hints.push(hint(number)));
        let go = move |number| sender.send_modify(|hints| hints.retain(|one| *one != hint(number)));
        FinderSubject::new(Arc::new(MirrorFinder::new(KnownMirrors::default())), context, come, go)
    })
    .await;
}
