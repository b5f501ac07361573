//! Connections of two services that either may ask on, whoever dialled them.
#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;
use towpath_api::{Event, Fetch, FetchState, GetRequest, OpenPutRequest, PutReply, PutsInParts, Summary};
use towpath_config::Home;
use towpath_content::ticket::Terms;
use towpath_content::{Hint, Oid, Ticket};
use towpath_service::get::get;
use towpath_service::put::share;
use towpath_service::{InProcess, Options, PutSource, Service};

const LIMIT: Duration = Duration::from_secs(30);
const DATA: usize = 3 << 20;

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 249 + i) as u8).collect()
}

fn service(folder: &TempDir, name: &str) -> Arc<Service> {
    Service::open(Home::under(&folder.path().join(name)), Options::default()).unwrap()
}

fn output(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join(format!("{name}.got"))
}

fn request(folder: &TempDir, name: &str, ticket: &str) -> GetRequest {
    GetRequest {
        ticket: ticket.into(),
        output: Some(output(folder, name)),
        directory: folder.path().into(),
        timeout: 20,
        no_search: true,
        ..GetRequest::default()
    }
}

/// Fetches, whatever happens meanwhile.
async fn fetch(service: &Arc<Service>, request: GetRequest) -> Result<Summary, String> {
    let (events, mut inbox) = mpsc::channel(64);
    let (got, ()) =
        tokio::join!(get(service, request, events), async { while inbox.recv().await.is_some() {} });
    got.map_err(|error| error.to_string())
}

/// Shares `data`, by a ticket whose hints lead nowhere.
async fn share_out_of_reach(service: &Arc<Service>, folder: &TempDir, name: &str, data: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, data).unwrap();
    let source = PutSource::new(std::slice::from_ref(&path), &[], None).unwrap();
    let shared = share(service, source, Terms::default()).await.unwrap();
    shared.reading.await.unwrap().unwrap();
    let mut ticket: Ticket = shared.reply.ticket.parse().unwrap();
    // Nobody listens there any more.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    ticket.hints = vec![Hint::new(format!("tow://{closed}"), 0, 1).unwrap()];
    ticket.to_string()
}

/// One that listens and has begun a put, and another one that follows the put.
struct Following {
    folder: TempDir,
    listening: Arc<Service>,
    following: Arc<Service>,
    put: PutReply,
    get: RunningGet,
    /// Of the one that follows.
    fetches: mpsc::Receiver<Event>,
}

/// A get by the one that listens, of a put that has not ended.
struct Back {
    puts: InProcess,
    put: PutReply,
    get: RunningGet,
}

impl Back {
    /// The put goes on with this and ends.
    async fn end(&self, rest: &'static [u8]) {
        self.puts.put_part(self.put.oid.clone(), DATA as u64, Box::new(rest)).await.unwrap();
        self.puts.commit_put(self.put.oid.clone()).await.unwrap();
    }
}

type RunningGet = tokio::task::JoinHandle<Result<Summary, String>>;

/// A get that ends well.
async fn expect_got(get: RunningGet) {
    timeout(LIMIT, get).await.expect("it ends").unwrap().unwrap();
}

impl Following {
    async fn begin(change: impl FnOnce(&mut GetRequest)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (listening, following) = (service(&folder, "listening"), service(&folder, "following"));
        listening.door().listen(b"test", &["127.0.0.1:0".parse().unwrap()]).await.unwrap();
        let put = InProcess(Arc::clone(&listening)).open_put(OpenPutRequest::default()).await.unwrap();
        listening.door().open();
        let mut request = request(&folder, "live", &put.ticket);
        change(&mut request);
        let (mut begun, fetches) = (listening.door().watch_fetches(), following.door().watch_fetches());
        let following_too = Arc::clone(&following);
        let get = tokio::spawn(async move { fetch(&following_too, request).await });
        let scene = Self { folder, listening, following, put, get, fetches };
        scene.put_part(0, &pattern(DATA)).await;
        while let Some(event) = timeout(LIMIT, begun.recv()).await.expect("it is followed") {
            if matches!(event, Event::Fetch(fetch) if fetch.bytes > 0) {
                break;
            }
        }
        scene
    }

    async fn put_part(&self, offset: u64, part: &[u8]) {
        let puts = InProcess(Arc::clone(&self.listening));
        puts.put_part(self.put.oid.clone(), offset, Box::new(part)).await.unwrap();
    }

    /// A put at the one that follows, which has begun and is fetched from there.
    async fn begin_back(&mut self, name: &str) -> Back {
        let puts = InProcess(Arc::clone(&self.following));
        let put = puts.open_put(OpenPutRequest::default()).await.unwrap();
        puts.put_part(put.oid.clone(), 0, Box::new(&pattern(DATA)[..])).await.unwrap();
        let get = self.get_back(name, &put.ticket);
        while let Some(event) = timeout(LIMIT, self.fetches.recv()).await.expect("it is fetched") {
            if matches!(event, Event::Fetch(fetch) if fetch.bytes > 0 && fetch.oid == put.oid) {
                break;
            }
        }
        Back { puts, put, get }
    }

    /// The one that listens gets what the other one has.
    fn get_back(&self, name: &str, ticket: &str) -> RunningGet {
        let (listening, request) = (Arc::clone(&self.listening), request(&self.folder, name, ticket));
        tokio::spawn(async move { fetch(&listening, request).await })
    }

    /// What was got so is this.
    fn assert_got(&self, name: &str, parts: &[&[u8]]) {
        assert!(std::fs::read(output(&self.folder, name)).unwrap() == parts.concat(), "{name}: other bytes");
    }

    /// The one that follows is told that what it has was fetched: what, and how many bytes went.
    async fn expect_fetched(&mut self) -> (String, u64) {
        let end = async {
            loop {
                match self.fetches.recv().await {
                    Some(Event::Fetch(Fetch { state: FetchState::Complete, oid, bytes, .. })) => {
                        return (oid, bytes);
                    }
                    event => assert!(event.is_some()),
                }
            }
        };
        timeout(LIMIT, end).await.expect("whoever is fetched from is told")
    }

    /// The put goes on and ends, and the one that follows has it whole.
    async fn expect_the_rest(&mut self) {
        let rest = pattern(DATA);
        self.put_part(DATA as u64, &rest).await;
        InProcess(Arc::clone(&self.listening)).commit_put(self.put.oid.clone()).await.unwrap();
        timeout(LIMIT, &mut self.get).await.expect("it ends").unwrap().unwrap();
        let got = std::fs::read(output(&self.folder, "live")).unwrap();
        assert!(got == [pattern(DATA), rest].concat(), "other bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_dialled_comes_over_the_connection_that_it_dialled_itself() {
    let mut scene = Following::begin(|_| ()).await;
    for round in 0..3 {
        let (data, name) = (pattern(DATA + round), format!("shared{round}"));
        let ticket = share_out_of_reach(&scene.following, &scene.folder, &name, &data).await;
        let got = fetch(&scene.listening, request(&scene.folder, &name, &ticket));
        timeout(LIMIT, got).await.expect("it comes").unwrap();
        assert!(std::fs::read(output(&scene.folder, &name)).unwrap() == data, "other bytes");
        let (oid, bytes) = scene.expect_fetched().await;
        assert_eq!(oid, Oid::of(&data).to_string());
        assert!((data.len() as u64..2 * data.len() as u64).contains(&bytes), "{bytes}");
    }
    scene.expect_the_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_that_takes_no_more_than_so_much_a_second_keeps_its_connection_for_itself() {
    let mut scene = Following::begin(|request| request.limit_rate = 1 << 30).await;
    let ticket = share_out_of_reach(&scene.following, &scene.folder, "shared", &pattern(DATA)).await;
    let request = GetRequest { timeout: 1, ..request(&scene.folder, "shared", &ticket) };
    let error = timeout(LIMIT, fetch(&scene.listening, request)).await.expect("it ends").unwrap_err();
    assert!(error.contains("refused the connection"), "{error}");
    scene.expect_the_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_get_that_dialled_cuts_off_nobody_who_fetches_over_its_connection() {
    let mut scene = Following::begin(|_| ()).await;
    let back = scene.begin_back("back").await;
    scene.expect_the_rest().await;
    back.end(b"the end").await;
    expect_got(back.get).await;
    scene.assert_got("back", &[&pattern(DATA), b"the end"]);
    scene.expect_fetched().await;
    scene.listening.door().take_leave().await;
    assert_eq!(scene.listening.door().limits().connections(), 0, "then nobody needs it");
}

/// The second one was refused as long as the first one had the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_gets_at_once_draw_over_the_one_connection_of_what_cannot_be_dialled() {
    let mut scene = Following::begin(|_| ()).await;
    let first = scene.begin_back("first").await;
    let second = scene.begin_back("second").await;
    for round in 0..2 {
        let (data, name) = (pattern(DATA + round), format!("shared{round}"));
        let ticket = share_out_of_reach(&scene.following, &scene.folder, &name, &data).await;
        expect_got(scene.get_back(&name, &ticket)).await;
        scene.assert_got(&name, &[&data]);
        let (oid, bytes) = scene.expect_fetched().await;
        assert_eq!(oid, Oid::of(&data).to_string());
        assert!((data.len() as u64..2 * data.len() as u64).contains(&bytes), "{bytes}");
    }
    for (name, back) in [("second", second), ("first", first)] {
        assert!(!back.get.is_finished());
        back.end(b"the end").await;
        expect_got(back.get).await;
        scene.assert_got(name, &[&pattern(DATA), b"the end"]);
        assert_eq!(scene.expect_fetched().await.0, back.put.oid);
    }
    scene.expect_the_rest().await;
    scene.listening.door().take_leave().await;
    assert_eq!(scene.listening.door().limits().connections(), 0, "then nobody needs it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_gets_over_one_connection_the_end_of_one_is_not_that_of_the_other() {
    let mut scene = Following::begin(|_| ()).await;
    let first = scene.begin_back("first").await;
    // One of another root, and one of the same by the same ticket.
    let second = scene.begin_back("second").await;
    let again = scene.get_back("again", &first.put.ticket);
    first.get.abort();
    assert!(first.get.await.unwrap_err().is_cancelled());
    second.end(b"2").await;
    expect_got(second.get).await;
    assert_eq!(scene.expect_fetched().await.0, second.put.oid);
    let back = Back { get: again, puts: first.puts, put: first.put };
    back.end(b"1").await;
    expect_got(back.get).await;
    scene.assert_got("again", &[&pattern(DATA), b"1"]);
    assert_eq!(scene.expect_fetched().await.0, back.put.oid);
    scene.expect_the_rest().await;
}
