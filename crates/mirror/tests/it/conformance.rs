//! The mirror, its finder, and what a `.tow` and an older version bring pass the examinations of their seams.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use towpath_content::node_id::hex;
use towpath_content::{Hint, Oid};
use towpath_mirror::{
    KnownMirrors, Mirror, MirrorFinder, MirrorPlace, NamedBy, Published, ToldValues, WebRules,
};
use towpath_transfer::source::{Backlog, Query, Sink, SourceState};
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Outcome, Source, SourceId, Tag, Want, WantId,
};
use towpath_transfer_conformance::finders::{self, FinderSubject};
use towpath_transfer_conformance::{self as conformance, Fixture, PIECE, Subject};

use super::context;
use super::publishing::tow_of;
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
        let context = Context { hints, ..context(Oid::of(b"")) };
        let sender = Arc::new(sender);
        let hint = |number: u32| Hint::new(format!("https://mirror{number}.example/x"), 0, 1).unwrap();
        let coming = Arc::clone(&sender);
        let come = move |number| coming.send_modify(|hints| hints.push(hint(number)));
        let go = move |number| sender.send_modify(|hints| hints.retain(|one| *one != hint(number)));
        FinderSubject::new(Arc::new(MirrorFinder::new(KnownMirrors::default())), context, come, go)
    })
    .await;
}

/// What a `.tow` tells of each object, and what an older version on this machine has of it; a mirror has what that lacks, which is
/// the rest behind the last full block.
struct WithOlderVersions {
    told: HashMap<Oid, ToldValues>,
    mirror: Mirror,
}

/// Hands on what comes, and notes what is not here.
struct Lacking {
    sink: Arc<dyn Sink>,
    tags: Mutex<HashSet<Tag>>,
}

impl Sink for Lacking {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        self.sink.deliver(delivery)
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        match outcome {
            Outcome::NotHere => drop(self.tags.lock().unwrap().insert(tag)),
            outcome => self.sink.outcome(tag, outcome),
        }
    }

    fn backpressure(&self) -> Backlog {
        self.sink.backpressure()
    }
}

impl Source for WithOlderVersions {
    fn name(&self) -> &str {
        "older versions"
    }

    fn state(&self) -> SourceState {
        self.told.values().next().map_or_else(|| self.mirror.state(), |told| told.similar().state())
    }

    fn cancel(&self, tags: &[Tag]) {
        self.told.values().for_each(|told| told.similar().cancel(tags));
        self.mirror.cancel(tags);
    }

    fn report_corrupt(&self, source: &SourceId) {
        self.told.values().for_each(|told| told.similar().report_corrupt(source));
        self.mirror.report_corrupt(source);
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            let told = self.told.get(&query.oid).ok_or(Outcome::NotHere)?;
            told.describe(query, context, answers).await
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let oid = |want: &Want| match want.id {
                WantId::Piece { oid, .. } => Some(oid),
                _ => want.origin.map(|origin| origin.oid),
            };
            let lacking = Arc::new(Lacking { sink: Arc::clone(&sink), tags: Mutex::default() });
            let mut rest = Vec::new();
            for want in wants {
                let Some(told) = oid(&want).and_then(|oid| self.told.get(&oid)) else {
                    rest.push(want);
                    continue;
                };
                let sink = Arc::clone(&lacking) as Arc<dyn Sink>;
                told.similar().get(vec![want.clone()], context, sink).await;
                if lacking.tags.lock().unwrap().remove(&want.tag) {
                    rest.push(want);
                }
            }
            self.mirror.get(rest, context, sink).await;
        })
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(told) = self.told.get(&oid) {
                told.similar().have(oid, context, ranges).await;
            }
        })
    }
}

/// The content, behind something that was put in front since.
fn older(dir: &TempDir, name: &str, data: &[u8]) -> (std::path::PathBuf, u64) {
    let (path, bytes) = (dir.path().join(name), [b"older", data].concat());
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes.len() as u64)
}

async fn with_older_versions(fixture: Fixture) -> Subject {
    let name = |data: &[u8]| hex(Oid::of(data).digest());
    let files = fixture.objects.iter().map(|data| (name(data), data.clone()));
    let tows = fixture.objects.iter().map(|data| (format!("{}.tow", name(data)), tow_of(data, &[])));
    let server = WebServer::start(files.chain(tows)).await;
    let (dir, mut told) = (TempDir::new().unwrap(), HashMap::new());
    for data in &fixture.objects {
        let url = server.url(&format!("{}.tow", name(data))).parse().unwrap();
        let published = Published::fetch(&url, Some(&Oid::of(data)), WebRules::default()).await.unwrap();
        let one = ToldValues::new(Arc::new(published));
        let (path, size) = older(&dir, &name(data), data);
        let (similar, base) = (Arc::clone(one.similar()), std::fs::File::open(&path).unwrap());
        let filling = Arc::clone(&similar);
        // It waits for whoever hears what there is.
        tokio::spawn(async move { filling.fill(base, size, &path).await });
        if data.len() >= PIECE {
            similar.known().await;
        }
        told.insert(Oid::of(data), one);
    }
    let place = MirrorPlace::new(&server.url("{oid}")).unwrap();
    let mirror = Mirror::new(place, NamedBy::Person, WebRules::default());
    let source = Arc::new(WithOlderVersions { told, mirror });
    Subject::new(source, fixture.context()).proving_nothing().sharing_a_stream().keeping((server, dir))
}

#[tokio::test]
async fn what_a_tow_tells_and_an_older_version_has_keeps_the_contract() {
    conformance::run(with_older_versions).await;
}
